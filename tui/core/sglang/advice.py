"""What to change: a clue's own words, refined by what else the log says (flags, memory ledger, tracebacks)."""

import re
from collections.abc import Mapping
from dataclasses import replace

from tui.core.model.phases import Phase
from tui.core.sglang.batch_lines import decimal
from tui.core.sglang.diagnosis import Diagnosis, Evidence, advice_for, title_of
from tui.core.sglang.memory import FractionWindow, fraction_window, lowered_fraction
from tui.core.sglang.patterns import patterns
from tui.core.sglang.state import Clue, StartupState
from tui.core.text import one_line

_SHAPES = re.compile(
    r"shapes? cannot be multiplied|must match the size of tensor|size mismatch|shape mismatch|dimension mismatch"
)
_DRAFT_FRAMES = re.compile(r"eagle|draft|speculat|spec_|multi_layer|ngram|standalone", re.I)
_FLAG_FRAMES = re.compile(r"server_args|arg_groups|check_server_args")
_AMOUNT = re.compile(r"Tried to allocate ([\d.]+) ([MGK])iB")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_FRACTION = "mem-fraction-static"


def explain(clue: Clue, state: StartupState) -> Diagnosis:
    """The diagnosis that a clue makes."""
    cause = clue.cause or "unknown"
    failure = patterns().failure(clue.id)
    title, advice = title_of(cause), advice_for(cause)
    if failure is not None:
        title = (_fill(failure.title, clue.groups) if failure.title else None) or title
        advice = tuple(filled for text in failure.advice if (filled := _fill(text, clue.groups))) or advice
    found = Diagnosis(
        cause,
        title,
        clue.phase if clue.level in ("root", "comm") else state.phase,
        clue.rank,
        evidence_of(clue),
        advice,
        dict(failure.set) if failure is not None else {},
    )
    refine = _REFINEMENTS.get(cause)
    return refine(found, clue, state) if refine is not None else found


def evidence_of(clue: Clue) -> Evidence:
    """The line that a clue was found in."""
    return Evidence(clue.line, one_line(clue.text, 400))


def args_of(state: StartupState) -> Mapping[str, object]:
    """The arguments that the server printed, {} where it printed none."""
    return state.server_args or {}


def _fill(text: str, groups: Mapping[str, str]) -> str | None:
    """`text` with {name} replaced; None where a group is missing."""
    if not set(_PLACEHOLDER.findall(text)) <= set(groups):
        return None
    return _PLACEHOLDER.sub(lambda match: one_line(groups[match.group(1)], 200), text)


def _speculative(state: StartupState) -> bool:
    return bool(args_of(state).get("speculative_algorithm")) or any(row.draft_gib is not None for row in state.ledger)


# ---- GPU memory -----------------------------------------------------------------------------------------------------


def _fraction(state: StartupState, clue: Clue) -> float | None:
    """mem-fraction-static as the message or the arguments name it."""
    printed = re.search(r"mem[-_]fraction[-_]static ?= ?([\d.]+(?:e-?\d+)?)", clue.text)
    if printed is not None:
        return decimal(printed.group(1).rstrip("."))
    value = args_of(state).get("mem_fraction_static")
    return float(value) if isinstance(value, int | float) else None


def _no_room_for_pool(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    if clue.id == "oom_pool_allocation":
        return _no_room_outside(found, clue, state)
    draft = _speculative(state)
    if draft and clue.id != "pool_tiny":
        title = "The KV pool has no room: weights and draft model alone exceed the memory budget."
        found = replace(found, title=title)
    current = _fraction(state, clue)
    window = fraction_window(state.ledger, current)
    shrink = (
        "Or need less: a larger --tp, fewer dp replicas, a quantization with smaller weights, a smaller "
        "--context-length, --kv-cache-dtype fp8_e4m3."
    )
    if window is not None:
        return _raised(found, window, current, draft, shrink)
    stated = re.search(r"Raise --mem-fraction-static above ([\d.]+)", clue.text)
    if stated is None:
        return replace(found, advice=(*found.advice[:1], shrink), set={})
    least = float(stated.group(1).rstrip("."))
    advice = f"Raise --mem-fraction-static: it must be above {least:g}, more leaves a useful pool."
    return replace(found, advice=(advice, shrink), set={_FRACTION: round(min(0.95, max(least + 0.06, 0.1)), 2)})


def _raised(found: Diagnosis, window: FractionWindow, current: float | None, draft: bool, shrink: str) -> Diagnosis:
    what = "weights and draft model" if draft else "weights"
    loaded = f"{window.loaded_gib:.1f} GiB of {what} of {window.before_gib:.1f} GiB free before the load"
    if window.suggested is None:
        first = "a smaller draft model or none, " if draft else ""
        return replace(
            found,
            advice=(
                f"Raise --mem-fraction-static: not enough, because no value works: {loaded} need at least "
                f"{window.least:.2f}, and above {window.most:.2f} nothing is left for CUDA graphs and activations.",
                f"Shrink something else: {first}a larger --tp, fewer dp replicas, a quantization with smaller weights.",
            ),
        )
    now = f" The present value is {current:g}." if current is not None else ""
    if draft:
        shrink += " If graph capture then runs out of memory, no value works for this draft: use a smaller one."
    return replace(
        found,
        advice=(
            f"Raise --mem-fraction-static to {window.suggested:.2f}: {loaded} need at least {window.least:.2f} before "
            f"any pool fits.{now}",
            shrink,
        ),
        set={_FRACTION: window.suggested},
    )


def _no_room_outside(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    """Out of memory outside the budget: less for the budget, or a smaller need outside."""
    current = _fraction(state, clue)
    capture = found.cause == "oom_cuda_graph"
    amount = _AMOUNT.search(clue.text)
    missing_gib = float(amount[1]) * {"K": 1 / 1048576, "M": 1 / 1024, "G": 1.0}[amount[2]] if amount else None
    lower = lowered_fraction(state.ledger, current, missing_gib) if current is not None else None
    advice = found.advice
    if found.cause == "oom_kv_pool":
        advice = ("Lower --mem-fraction-static: the pool left too little beside it.",)
    if lower is not None:
        why = ": capture needs memory outside the budget." if capture else "."
        first = f"Lower --mem-fraction-static from {current:g} to {lower:.2f}{why}"
        return replace(found, advice=(first, *advice), set={_FRACTION: lower})
    batch, name = _largest_graph(state)
    if not capture or batch is None or batch <= 1:
        return replace(found, advice=advice)
    half = batch // 2
    if current is not None:
        advice = (
            f"Lower --{name} from {batch} to {half}: a lower --mem-fraction-static than {current:g} would leave the KV "
            "pool without room.",
            "If that is not enough, no value works: shrink the draft model or the weights, or use a larger --tp."
            if _speculative(state)
            else "If that is not enough: a larger --tp, or a quantization with smaller weights.",
            "Last resort: --disable-cuda-graph (slow).",
        )
    return replace(found, advice=advice, set={name: half})


def _largest_graph(state: StartupState) -> tuple[int | None, str]:
    """The largest batch that is captured, and the flag's name in this version (renamed in 0.5.20)."""
    args = args_of(state)
    for key in ("cuda_graph_max_bs_decode", "cuda_graph_max_bs"):
        value = args.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value, key.replace("_", "-")
    return None, "cuda-graph-max-bs-decode" if "cuda_graph_max_bs_decode" in args else "cuda-graph-max-bs"


def _no_room_for_weights(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    if clue.phase != Phase.DRAFT_MODEL:
        return found
    smaller = "Use a smaller draft model (--speculative-draft-model-path) or start without it."
    title = "The draft model does not fit beside the target's weights."
    return replace(found, title=title, advice=(smaller, *found.advice))


# ---- everything else ------------------------------------------------------------------------------------------------


def _unknown(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    frames = "\n".join(clue.frames)
    if _SHAPES.search(clue.text) and _DRAFT_FRAMES.search(frames):
        return replace(_as_cause(found, "draft_config"), phase=clue.phase)
    if clue.level == "exception" and clue.phase == Phase.LAUNCH and clue.rank is None and _FLAG_FRAMES.search(frames):
        message = one_line(clue.text.partition(": ")[2], 200)
        advice = f"Change what the message names: {message}" if message else advice_for("bad_flag")[0]
        title = "SGLang refuses this combination of flags."
        return replace(found, cause="bad_flag", title=title, advice=(advice,))
    if clue.phase == Phase.CUDA_GRAPH and re.search("piecewise|prefill", state.capturing or ""):
        return _piecewise(_as_cause(found, "piecewise_cuda_graph"), clue, state)
    if clue.level in ("end", "collateral"):
        return replace(found, advice=patterns().words["silent"].advice)
    accepts = state.last_decode is not None and state.last_decode.accept_len is not None
    if clue.level != "marker" and (_speculative(state) or accepts):
        once = "Try once without the draft model (speculative decoding off): that shows whether the draft is to blame."
        return replace(found, advice=(*found.advice, once))
    return found


def _as_cause(found: Diagnosis, cause: str) -> Diagnosis:
    return replace(found, cause=cause, title=title_of(cause), advice=advice_for(cause))


def _path(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    # The frames that tell are below the line: Python prints the innermost traceback of a chain first.
    frames = [frame for item in state.clues if item.id == clue.id for frame in item.frames]
    if not any("speculative" in frame or "draft" in frame for frame in frames):
        return found
    either = "(--model-path, or --speculative-draft-model-path for the draft)"
    advice = tuple(text.replace(either, "(--speculative-draft-model-path)") for text in found.advice)
    return replace(found, title=found.title.replace("no model", "no draft model"), advice=advice)


def _draft(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    args = args_of(state)
    given = args.get("speculative_draft_model_path", "not printed")
    if given is not None and given != args.get("model_path"):
        return found
    title = "The target model itself was loaded as its draft: no draft model path is given."
    return replace(
        found, title=title, advice=("Give the draft: --speculative-draft-model-path PATH.", *found.advice[1:])
    )


def _nccl(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    # NCCL prints the reason as a warning before the error; the error alone says nothing.
    reason = next((item for item in state.clues if item.id == "nccl_algo"), None)
    if reason is None or clue.id == "nccl_algo":
        return found
    return replace(explain(reason, state), rank=found.rank, phase=found.phase)


def _port(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    given = args_of(state).get("nccl_port")
    if clue.id != "port_dist" or given is None or str(given) != clue.groups.get("port"):
        return found
    title = f"The port {given} (--nccl-port) is held by another process."
    advice = ("Leave --nccl-port out, or give it a free port.", "The HTTP port is not involved.")
    return replace(found, title=title, advice=advice)


def _arch(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    if clue.id != "arch_symmetric_memory":
        return found
    on = [flag for flag in ("enable_symm_mem", "enable_torch_symm_mem") if args_of(state).get(flag)]
    return replace(found, set={flag.replace("_", "-"): False for flag in on})


def _piecewise(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    if any(key.startswith("cuda_graph_backend_prefill") for key in args_of(state)):
        return replace(found, set={"cuda-graph-backend-prefill": "disabled"})
    return replace(found, set={"disable-piecewise-cuda-graph": True})


_REFINEMENTS = {
    "oom_kv_pool": _no_room_for_pool,
    "oom_cuda_graph": _no_room_outside,
    "oom_serving": _no_room_outside,
    "oom_weights": _no_room_for_weights,
    "unknown": _unknown,
    "bad_model_path": _path,
    "nccl": _nccl,
    "port_in_use": _port,
    "unsupported_arch": _arch,
    "draft_config": _draft,
    "piecewise_cuda_graph": _piecewise,
}
