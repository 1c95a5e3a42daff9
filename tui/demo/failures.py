"""How the simulated server fails: which configuration in which way, by the rules that docs/demo.md states.

The words of each failure lie in data/failures.toml.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tui.demo import model

_DATA = Path(__file__).with_name("data") / "failures.toml"
_WITHIN = "During handling of the above exception, another exception occurred:"


@dataclass(frozen=True)
class Failure:
    """A failure of the schedulers: where it strikes and what their exception says."""

    stage: str  # dist_init, load, pool, draft_pool, capture
    error: str  # "Type: message" of the innermost exception
    traceback: str  # {site} is still to be filled in
    before: str = ""  # unprefixed text that precedes it; {pid} and {gpu} are those of the rank

    @property
    def out_of_memory(self) -> bool:
        return "OutOfMemory" in self.error


@cache
def _words() -> dict[str, Any]:
    return tomllib.loads(_DATA.read_text(encoding="utf-8"))


def _traceback(frames: Sequence[str], error: str, values: Mapping[str, object]) -> str:
    lines = ["Traceback (most recent call last):"]
    for frame in frames:
        place, _, source = _words()["frames"].get(frame, frame).format(**values).partition(" | ")
        where, _, function = place.partition(" ")
        file, _, line = where.rpartition(":")
        lines.append(f'  File "{{site}}/{file}", line {line}, in {function}')
        if source:
            lines.append(f"    {source}")
    return "\n".join([*lines, error.lstrip("\n").format(**values)]) + "\n"


def words_of(name: str, **values: object) -> str:
    """The traceback of a failure by its name; {site} is still to be filled in."""
    recorded = _words()[name]
    text = _traceback(recorded["frames"], recorded["error"], values)
    if cause := recorded.get("cause"):
        text = f"{_traceback(cause['frames'], cause['error'], values)}\n{cause['joint']}\n\n{text}"
    return text


def _failure(name: str, **values: object) -> Failure:
    recorded = _words()[name]
    error = recorded["error"].format(**values)
    text = words_of(name, **values)
    if recorded["stage"] == "capture":
        text = f"{text}\n{_WITHIN}\n\n{words_of('capture', message=error.partition(': ')[2])}"
    return Failure(recorded["stage"], error, text, recorded.get("before", ""))


def peer_gone(address: str, when: str) -> Failure:
    """The failure that a lost node brings to the ranks of the others, `starting` or `serving`."""
    return _failure(f"peer_gone_{when}", address=address)


def crowded(config: model.Config, first_gpu: int, taken: Sequence[float]) -> Failure | None:
    """The failure that others on the GPUs bring; `taken` is what they hold of each, GiB."""
    least, most = min(taken), max(taken)
    free, usual = config.free_gib, model.FREE_BEFORE_LOAD_GIB
    if most > 1.0 and most - least > 0.1 * usual:
        low, high = usual - most, usual - least
        return _failure("unbalanced", least_gib=low, most_gib=high, limit_gib=0.9 * high)
    if most > 1.0 and free < config.weights_gib + 0.5:
        left_mib = 1024 * max(0.2, min(0.9, free))
        return _failure("weights_oom", gpu=first_gpu, total_gib=model.TORCH_TOTAL_GIB, free_mib=left_mib)
    return None


def failure_of(
    args: Mapping[str, Any], env: Mapping[str, str], config: model.Config, architecture: str
) -> Failure | None:
    """How this configuration fails on this host, None where it starts. What strikes first in a start wins."""
    if args["enable_torch_symm_mem"] or args["enable_symm_mem"]:
        return _failure("symmetric_memory")
    if args["moe_a2a_backend"] not in (None, "none"):
        return _failure("a2a_backend", backend=args["moe_a2a_backend"])
    if config.pool_tokens <= 0:
        return _failure("pool_too_small", fraction=config.fraction)
    if config.speculative and config.steps and architecture and "eagle" not in architecture.lower():
        return _failure("not_a_draft", kind=architecture)  # what a missing draft path does, too
    if not config.graphs:
        return None
    if config.outside_gib < config.capture_peak_gib:
        wanted, free = config.capture_peak_gib - 0.6 * config.outside_gib, 0.4 * config.outside_gib
        total = model.TORCH_TOTAL_GIB
        return _failure(
            "capture_oom", wanted_gib=max(0.25, wanted), free_gib=free, total_gib=total, used_gib=total - free
        )
    fusion = args["enable_flashinfer_allreduce_fusion"] or args["flashinfer_allreduce_fusion_backend"]
    if fusion and not args["enforce_disable_flashinfer_allreduce_fusion"]:
        return _failure("allreduce_fusion")
    if env.get("NCCL_ALGO", "").lower() in ("tree", "allreduce:tree") and config.tp > 1:
        return _failure("nccl_tree")
    return None
