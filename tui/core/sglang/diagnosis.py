"""Why a server died (or why a ready one deserves a second look), and what to change."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tui.core.errors import Slug, UsageError
from tui.core.model.phases import Outcome, Phase
from tui.core.sglang.memory import fraction_window, lowered_fraction
from tui.core.sglang.patterns import patterns
from tui.core.sglang.state import Clue, StartupState
from tui.core.sglang.tracker import LogTracker
from tui.core.text import one_line


@dataclass(frozen=True)
class Evidence:
    line: int  # 1-based line of the log; 0 where the evidence is not in the log
    text: str  # sanitised


@dataclass(frozen=True)
class Diagnosis:
    cause: str  # a slug of docs/diagnosis.md
    title: str  # one sentence for the red band
    phase: Phase | None
    rank: str | None
    evidence: Evidence | None
    advice: tuple[str, ...] = ()
    set: dict[str, object] = field(default_factory=dict)  # flags to change, without dashes
    observation: bool = False  # about a server that lives


@dataclass(frozen=True)
class ExitEvidence:
    """What the host says about a process, beside its log."""

    exit_code: int | None = None  # 128 + signal or the negative signal; None = not known
    stopped_by_us: bool = False
    dmesg_oom: str | None = None  # the kernel's line about the out-of-memory killer
    dmesg_xid: str | None = None  # the kernel's line about an error of a GPU or its driver
    kernel_silent: bool = False  # the kernel's log could be read and, where the two above are None, says nothing
    alive: bool = False


_WINDOW = 50  # lines before the first fatal one in which a line outside any traceback counts as a cause
_SHAPES = re.compile(
    r"shapes? cannot be multiplied|must match the size of tensor|size mismatch|shape mismatch|dimension mismatch"
)
_DRAFT_FRAMES = re.compile(r"eagle|draft|speculat|spec_|multi_layer|ngram|standalone", re.I)
_FLAG_FRAMES = re.compile(r"server_args|arg_groups|check_server_args")
_BLOCK = 1 << 17  # bytes read at once: what is looked at several times stays in the processor's cache
_AMOUNT = re.compile(r"Tried to allocate ([\d.]+) ([MGK])iB")


def diagnose(
    source: LogTracker | StartupState, *, exit: ExitEvidence | None = None
) -> tuple[Diagnosis | None, tuple[Diagnosis, ...]]:
    """The root cause of a death, and observations about a server that lives.

    Args:
        source: what the log says.
        exit: what the host says; without it the log alone decides.

    Returns:
        (None, observations) where nothing failed.
    """
    state = source.state() if isinstance(source, LogTracker) else source
    if _died(state, exit):
        return _cause(state, exit), ()
    return None, _observations(state)


def _died(state: StartupState, exit: ExitEvidence | None) -> bool:
    if state.outcome == Outcome.STOPPED or (exit is not None and exit.stopped_by_us):
        return False
    if state.outcome == Outcome.CRASHED:
        return True
    if exit is None or exit.alive:
        return False
    return exit.exit_code is None or exit.exit_code not in (0, 130, -2)


# ---- the root cause -------------------------------------------------------------------------------------------------


def _pick(clues: Iterable[Clue]) -> Clue | None:
    """The clue that names the cause: the first root wins, communication trouble gives way to it on whatever rank."""
    clues = [clue for clue in clues if clue.level != "observation"]
    fatal = min((clue.line for clue in clues if clue.fatal), default=None)
    chosen: Clue | None = None
    best = (99, 0)
    for clue in clues:
        near = fatal is None or clue.line >= fatal - _WINDOW
        inside = clue.marked or clue.fatal
        match clue.level:
            case "root" if clue.id == "import":
                tier = 2 if clue.traceback else 9  # often handled by a fallback: any other root comes before it
            case "root":
                tier = 0 if inside else 1 if clue.traceback else 3 if near else 9
            case "comm":
                tier = 4 if inside or clue.traceback else 5 if near else 9
            case "exception":
                tier = 6
            case "wrapper":
                tier = 7
            case "exit":
                tier = 8
            case _:
                tier = 10
        if (tier, clue.line) < best:
            chosen, best = clue, (tier, clue.line)
    return chosen


def _cause(state: StartupState, exit: ExitEvidence | None) -> Diagnosis:
    clue = _pick(state.clues)
    if clue is None or clue.level not in ("root", "comm", "exception", "wrapper"):
        from_host = _from_exit(state, exit, clue)
        if from_host is not None:
            return from_host
    if clue is not None and clue.level == "end" and "Killed" in clue.text and not _others(state, clue):
        # A shell's "Killed" and nothing else: signal 9 came from outside.
        evidence = Evidence(clue.line, one_line(clue.text, 400))
        return Diagnosis("host_oom", _title("host_oom"), state.phase, None, evidence, _advice("host_oom"))
    if clue is None:
        return Diagnosis("unknown", _title("unknown"), state.phase, None, None, _advice_without_trace())
    return _explain(clue, state)


def _others(state: StartupState, clue: Clue) -> bool:
    return any(item.level not in ("end", "observation") for item in state.clues)


def _title(cause: str) -> str:
    return patterns().causes.get(cause, patterns().causes["unknown"])[0]


def _advice(cause: str) -> tuple[str, ...]:
    return patterns().causes.get(cause, patterns().causes["unknown"])[1]


def _advice_without_trace() -> tuple[str, ...]:
    return (
        "The log ends without a word about an error: look at the exit code, and at dmesg -T for the out-of-memory killer (host memory).",
        "A driver error (Xid) stands in dmesg as well.",
    )


def _from_exit(state: StartupState, exit: ExitEvidence | None, clue: Clue | None) -> Diagnosis | None:
    """What the host knows where the log names no cause."""
    if exit is None:
        return None
    code = exit.exit_code
    signal = -code if code is not None and code < 0 else code - 128 if code is not None and code > 128 else None
    rank = clue.rank if clue is not None else None
    if exit.dmesg_oom is not None:
        evidence = Evidence(0, one_line(exit.dmesg_oom))
        return Diagnosis(
            "host_oom",
            "The host's memory ran out: the kernel killed the server.",
            state.phase,
            rank,
            evidence,
            _advice("host_oom"),
        )
    if clue is not None and clue.level == "exit":
        return None
    if exit.dmesg_xid is not None:
        title = "The GPU or its driver failed: the kernel's log has an Xid error."
        steps = (
            "Look up the Xid's number in NVIDIA's list; 79 means that the GPU fell off the bus, 48 a memory error.",
            "nvidia-smi -q tells whether the GPU needs a reset.",
        )
        evidence = Evidence(0, one_line(exit.dmesg_xid))
        return Diagnosis("cuda_error", title, state.phase, rank, evidence, steps)
    evidence = Evidence(0, f"exit code {code}")
    # SGLang's main process kills itself with signal 9 whenever a child fails, so 137 says nothing where the log does.
    if signal == 9 and not any(item.fatal for item in state.clues):
        title, advice = _title("host_oom"), _advice("host_oom")
        if exit.kernel_silent:
            title = "The server was killed from outside (signal 9); the kernel's log says nothing of memory."
            who = "Find out who sent it: a job manager, a container's limit, a time limit, or a person (kill -9)."
            advice = (who, *advice[-1:])
        return Diagnosis("host_oom", title, state.phase, rank, evidence, advice)
    if signal == 3:
        return Diagnosis(
            "unknown",
            "The server ended itself with SIGQUIT: SGLang does so when one of its processes fails.",
            state.phase,
            rank,
            evidence,
            (
                "The log does not say which: look at its last lines by rank, and at dmesg -T.",
                "Run it once with --log-level info: at level warning the reason may be left out.",
            ),
        )
    if signal == 15:
        return Diagnosis(
            "unknown",
            "The server was ended from outside (SIGTERM), and not by eagletui.",
            state.phase,
            rank,
            evidence,
            ("Something sent SIGTERM: a job manager, a time limit, a logout, or a person.",),
        )
    if signal in (4, 6, 7, 8, 11):
        native = next(item for item in patterns().failures if item.id == "exit_native")
        return Diagnosis("unknown", native.title or "", state.phase, rank, evidence, native.advice)
    if code == 2 and state.phase == Phase.LAUNCH:
        return Diagnosis("bad_flag", _title("bad_flag"), state.phase, rank, evidence, _advice("bad_flag"))
    return None


def _fill(text: str, groups: Mapping[str, str]) -> str | None:
    """`text` with {name} replaced; None where a group is missing."""
    names = set(re.findall(r"\{(\w+)\}", text))
    if not names <= set(groups):
        return None
    return re.sub(r"\{(\w+)\}", lambda match: one_line(groups[match.group(1)], 200), text)


def _explain(clue: Clue, state: StartupState) -> Diagnosis:
    cause = clue.cause or "unknown"
    failure = next((item for item in patterns().failures if item.id == clue.id), None)
    title, advice = _title(cause), _advice(cause)
    if failure is not None:
        title = (_fill(failure.title, clue.groups) if failure.title else None) or title
        own = tuple(filled for text in failure.advice if (filled := _fill(text, clue.groups)))
        advice = own or advice
    phase = clue.phase if clue.level in ("root", "comm") else state.phase
    evidence = Evidence(clue.line, one_line(clue.text, 400))
    change = dict(failure.set) if failure is not None else {}
    found = Diagnosis(cause, title, phase, clue.rank, evidence, advice, change)
    refine = _REFINEMENTS.get(cause)
    return refine(found, clue, state) if refine is not None else found


def _args(state: StartupState) -> Mapping[str, object]:
    return state.server_args or {}


def _speculative(state: StartupState) -> bool:
    return bool(_args(state).get("speculative_algorithm")) or any(row.draft_gib is not None for row in state.ledger)


def _fraction(state: StartupState, clue: Clue) -> float | None:
    shown = re.search(r"mem[-_]fraction[-_]static ?= ?([\d.]+(?:e-?\d+)?)", clue.text)
    value = _args(state).get("mem_fraction_static")
    try:
        return float(shown.group(1).rstrip(".")) if shown else float(value) if isinstance(value, int | float) else None
    except ValueError:
        return None


def _pool(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    if clue.id == "oom_pool_allocation":
        return _lower(found, clue, state)
    current = _fraction(state, clue)
    window = fraction_window(state.ledger, current)
    shrink = "Or need less: a larger --tp, fewer dp replicas, a quantization with smaller weights, a smaller --context-length, --kv-cache-dtype fp8_e4m3."
    draft = _speculative(state)
    title = "The KV pool has no room: weights and draft model alone exceed the memory budget." if draft else found.title
    if clue.id == "pool_tiny":
        title = found.title
    if window is None:
        stated = re.search(r"Raise --mem-fraction-static above ([\d.]+)", clue.text)
        advice = [*found.advice[:1]]
        change: dict[str, object] = {}
        if stated is not None:
            least = float(stated.group(1).rstrip("."))
            advice = [f"Raise --mem-fraction-static: it must be above {least:g}, more leaves a useful pool."]
            change = {"mem-fraction-static": _default_above(least)}
        return replace(found, title=title, advice=(*advice, shrink), set=change)
    loaded = f"{window.loaded_gib:.1f} GiB of {'weights and draft model' if draft else 'weights'} of {window.before_gib:.1f} GiB free before the load"
    if window.suggested is None:
        return replace(
            found,
            title=title,
            advice=(
                f"Raise --mem-fraction-static: not enough, because no value works: {loaded} need at least {window.least:.2f}, and above {window.most:.2f} nothing is left for CUDA graphs and activations.",
                ("Shrink something else: a smaller draft model or none, " if draft else "Shrink something else: ")
                + "a larger --tp, fewer dp replicas, a quantization with smaller weights.",
            ),
        )
    return replace(
        found,
        title=title,
        advice=(
            f"Raise --mem-fraction-static to {window.suggested:.2f}: {loaded} need at least {window.least:.2f} before any pool fits."
            + (f" The present value is {current:g}." if current is not None else ""),
            shrink
            + (
                " If graph capture then runs out of memory, no value works for this draft: use a smaller one."
                if draft
                else ""
            ),
        ),
        set={"mem-fraction-static": window.suggested},
    )


def _default_above(least: float) -> float:
    return round(min(0.95, max(least + 0.06, 0.1)), 2)


def _missing(clue: Clue) -> float | None:
    match = _AMOUNT.search(clue.text)
    return float(match.group(1)) * {"K": 1 / 1048576, "M": 1 / 1024, "G": 1.0}[match.group(2)] if match else None


def _lower(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    """Out of memory outside the budget: less for the budget, or a smaller need outside."""
    current = _fraction(state, clue)
    lower = lowered_fraction(state.ledger, current, _missing(clue)) if current is not None else None
    advice = (
        list(found.advice)
        if found.cause != "oom_kv_pool"
        else ["Lower --mem-fraction-static: the pool left too little beside it."]
    )
    if lower is not None:
        advice.insert(
            0,
            f"Lower --mem-fraction-static from {current:g} to {lower:.2f}: capture needs memory outside the budget."
            if found.cause == "oom_cuda_graph"
            else f"Lower --mem-fraction-static from {current:g} to {lower:.2f}.",
        )
        return replace(found, advice=tuple(advice), set={"mem-fraction-static": lower})
    batch, name = _graph_batch(state)
    if found.cause == "oom_cuda_graph" and batch is not None and batch > 1:
        half = batch // 2
        if current is not None:
            advice = [
                f"Lower --{name} from {batch} to {half}: a lower --mem-fraction-static than {current:g} would leave the KV pool without room.",
                "If that is not enough, no value works: shrink the draft model or the weights, or use a larger --tp."
                if _speculative(state)
                else "If that is not enough: a larger --tp, or a quantization with smaller weights.",
                "Last resort: --disable-cuda-graph (slow).",
            ]
        return replace(found, advice=tuple(advice), set={name: half})
    return replace(found, advice=tuple(advice))


def _graph_batch(state: StartupState) -> tuple[int | None, str]:
    """The largest batch that is captured, and the flag's name in this version (renamed in 0.5.20)."""
    args = _args(state)
    for key in ("cuda_graph_max_bs_decode", "cuda_graph_max_bs"):
        value = args.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return value, key.replace("_", "-")
    return None, "cuda-graph-max-bs-decode" if "cuda_graph_max_bs_decode" in args else "cuda-graph-max-bs"


def _weights(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    if clue.phase == Phase.DRAFT_MODEL:
        return replace(
            found,
            title="The draft model does not fit beside the target's weights.",
            advice=("Use a smaller draft model (--speculative-draft-model-path) or start without it.", *found.advice),
        )
    return found


def _unknown(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    frames = "\n".join(clue.frames)
    if _SHAPES.search(clue.text) and _DRAFT_FRAMES.search(frames):
        draft = replace(found, cause="draft_config", title=_title("draft_config"), advice=_advice("draft_config"))
        return replace(draft, phase=clue.phase)
    if clue.level == "exception" and clue.phase == Phase.LAUNCH and clue.rank is None and _FLAG_FRAMES.search(frames):
        message = one_line(clue.text.partition(": ")[2], 200)
        return replace(
            found,
            cause="bad_flag",
            title="SGLang refuses this combination of flags.",
            advice=(f"Change what the message names: {message}" if message else _advice("bad_flag")[0],),
        )
    if clue.phase == Phase.CUDA_GRAPH and re.search("piecewise|prefill", state.capturing or ""):
        cause = "piecewise_cuda_graph"
        return _piecewise(replace(found, cause=cause, title=_title(cause), advice=_advice(cause)), clue, state)
    if clue.level in ("end", "collateral", "marker"):
        return replace(found, advice=(_advice_without_trace() if clue.level != "marker" else found.advice))
    if _speculative(state) or (state.last_decode is not None and state.last_decode.accept_len is not None):
        return replace(
            found,
            advice=(
                *found.advice,
                "Try once without the draft model (speculative decoding off): it tells whether the draft is to blame.",
            ),
        )
    return found


def _path(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    # The frames that tell stand below the line: Python prints the innermost traceback of a chain first.
    frames = [frame for item in state.clues if item.id == clue.id for frame in item.frames]
    if any("speculative" in frame or "draft" in frame for frame in frames):
        return replace(
            found,
            title=found.title.replace("no model", "no draft model"),
            advice=tuple(
                text.replace(
                    "(--model-path, or --speculative-draft-model-path for the draft)",
                    "(--speculative-draft-model-path)",
                )
                for text in found.advice
            ),
        )
    return found


def _draft(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    args = _args(state)
    if "speculative_draft_model_path" in args and args["speculative_draft_model_path"] in (
        None,
        args.get("model_path"),
    ):
        return replace(
            found,
            title="The target model itself was loaded as its draft: no draft model path is given.",
            advice=("Give the draft: --speculative-draft-model-path PATH.", *found.advice[1:]),
        )
    return found


def _nccl(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    # NCCL prints the reason as a warning before the error; the error alone says nothing.
    reason = next((item for item in state.clues if item.id == "nccl_algo"), None)
    if reason is None or clue.id == "nccl_algo":
        return found
    return replace(_explain(reason, state), rank=found.rank, phase=found.phase)


def _port(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    given = _args(state).get("nccl_port")
    if clue.id != "port_dist" or given is None or str(given) != clue.groups.get("port"):
        return found
    return replace(
        found,
        title=f"The port {given} (--nccl-port) is held by another process.",
        advice=("Leave --nccl-port out, or give it a free port.", "The HTTP port is not involved."),
    )


def _arch(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    if clue.id != "arch_symmetric_memory":
        return found
    on = [flag for flag in ("enable_symm_mem", "enable_torch_symm_mem") if _args(state).get(flag)]
    return replace(found, set={flag.replace("_", "-"): False for flag in on})


def _piecewise(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    if any(key.startswith("cuda_graph_backend_prefill") for key in _args(state)):
        return replace(found, set={"cuda-graph-backend-prefill": "disabled"})
    return replace(found, set={"disable-piecewise-cuda-graph": True})


_REFINEMENTS = {
    "oom_kv_pool": _pool,
    "oom_cuda_graph": _lower,
    "oom_serving": _lower,
    "oom_weights": _weights,
    "unknown": _unknown,
    "bad_model_path": _path,
    "nccl": _nccl,
    "port_in_use": _port,
    "unsupported_arch": _arch,
    "draft_config": _draft,
    "piecewise_cuda_graph": _piecewise,
}


# ---- observations -----------------------------------------------------------------------------------------------------


def _observations(state: StartupState) -> tuple[Diagnosis, ...]:
    found: list[Diagnosis] = []
    if state.accept_one >= 2:
        advice = (
            "Check --speculative-algorithm: an EAGLE-3 draft needs --speculative-algorithm EAGLE3; under EAGLE it starts without a warning and accepts nothing.",
            "Check that the draft was trained for this target (--speculative-draft-model-path).",
            "Until then the draft only costs time: accept len 1.00 means no draft token was accepted.",
        )
        change: dict[str, object] = {}
        algorithm, draft = _args(state).get("speculative_algorithm"), _draft_type(state)
        if algorithm == "EAGLE" and "eagle3" in draft.lower():
            change = {"speculative-algorithm": "EAGLE3"}
        found.append(
            Diagnosis(
                "draft_config",
                f"accept len 1.00 in the last {state.accept_one} decode lines: the draft model contributes nothing.",
                state.phase,
                None,
                Evidence(state.accept_one_line or 0, "accept len: 1.00"),
                advice,
                change,
                observation=True,
            )
        )
    health = [clue for clue in state.clues if clue.level == "observation"]
    if health and state.outcome == Outcome.READY:
        failure = next(item for item in patterns().failures if item.id == health[-1].id)
        found.append(
            Diagnosis(
                health[-1].cause or "unknown",
                failure.title or _title(health[-1].cause or "unknown"),
                state.phase,
                health[-1].rank,
                Evidence(health[-1].line, one_line(health[-1].text, 400)),
                failure.advice or _advice(health[-1].cause or "unknown"),
                observation=True,
            )
        )
    if state.slow_tokenizer:
        found.append(
            Diagnosis(
                "tokenizer",
                f"A slow (Python) tokenizer is in use (said {state.slow_tokenizer:,} times); the server lives, but long prompts wait for it.",
                state.phase,
                None,
                Evidence(
                    state.slow_tokenizer_line or 0, "Using a slow tokenizer. This might cause a significant slowdown."
                ),
                (
                    "Use a fast tokenizer where the model has one (tokenizer.json; leave out --tokenizer-mode slow). Time to first token suffers, decode speed does not.",
                ),
                observation=True,
            )
        )
    return tuple(found)


def _draft_type(state: StartupState) -> str:
    return str(_args(state).get("speculative_draft_model_path") or "")


# ---- `eagletui diagnose` ----------------------------------------------------------------------------------------------


class Report(dict[str, Any]):
    """The JSON object of `eagletui diagnose`; `title` is for people and not a part of it."""

    title: str | None = None


def report_of(
    tracker: LogTracker,
    *,
    exit: ExitEvidence | None = None,
    prefer: Callable[[Diagnosis, StartupState], Diagnosis] | None = None,
) -> Report:
    """The JSON object of `eagletui diagnose` for what a tracker has read.

    Args:
        exit: what the host says of the process.
        prefer: knows better advice, from earlier starts on that host (`forecast.prefer_worked`).
    """
    state = tracker.state()
    found, observations = diagnose(state, exit=exit)
    if found is not None and prefer is not None:
        found = prefer(found, state)
    shown = found or next((item for item in observations if state.outcome == Outcome.READY), None)
    decode = state.last_decode
    made = Report(
        {
            "phase": state.phase.value,
            "outcome": state.outcome.value,
            "cause": shown.cause if shown else None,
            "rank": shown.rank if shown else None,
            "evidence": {"line": shown.evidence.line, "text": shown.evidence.text}
            if shown and shown.evidence
            else None,
            "advice": list(shown.advice) if shown else [],
            "set": dict(shown.set) if shown else {},
            "progress": {"what": state.progress.what, "done": state.progress.done, "total": state.progress.total}
            if state.progress
            else None,
            "ranks_seen": state.ranks_seen,
            "last_decode": {"running": decode.running, "gen_tok_s": decode.gen_tok_s, "accept_len": decode.accept_len}
            if decode
            else None,
            "ledger": [
                {
                    "rank": row.rank,
                    "before_gib": row.before_gib,
                    "weights_gib": row.weights_gib,
                    "draft_gib": row.draft_gib,
                    "kv_pool_gib": row.kv_pool_gib,
                    "graphs_gib": row.graphs_gib,
                    "free_gib": row.free_gib,
                    "kv_tokens": row.kv_tokens,
                }
                for row in state.ledger
            ],
        }
    )
    made.title = shown.title if shown else None
    return made


def report(chunks: bytes | Iterable[bytes]) -> Report:
    """Reads a whole log, in one pass and flat memory, into the JSON object of `eagletui diagnose`."""
    tracker = LogTracker(records=False)
    for chunk in (chunks,) if isinstance(chunks, bytes) else chunks:
        tracker.feed(chunk)
    tracker.flush()
    return report_of(tracker)


def read_file_report(path: Path | str) -> Report:
    """`report` of a file. Raises UsageError where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return report(iter(lambda: file.read(_BLOCK), b""))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", "check the path", slug=Slug.UNREADABLE) from None


def report_text(found: Mapping[str, Any]) -> str:
    """The same for people: outcome, cause, evidence, advice, change, ledger."""
    phase = str(found["phase"]).replace("_", " ")
    title = getattr(found, "title", None)
    lines = [f"{str(found['outcome']).upper()} in {phase}" + (f": {title}" if title else "")]
    progress = found.get("progress")
    if progress:
        lines.append(f"  progress  {progress['what']} {progress['done']}/{progress['total']}")
    if found.get("cause"):
        rank = f", first on {found['rank']}" if found.get("rank") else ""
        lines.append(f"  cause     {found['cause']}{rank}")
    evidence = found.get("evidence")
    if evidence:
        where = f"line {evidence['line']}: " if evidence["line"] else ""
        lines.append(f"  evidence  {where}{evidence['text']}")
    lines += [f"  advice    {text}" for text in found.get("advice", ())]
    lines += [f"  set       {key} = {value}" for key, value in found.get("set", {}).items()]
    decode = found.get("last_decode")
    if decode:
        parts = [f"{decode['running']} running" if decode["running"] is not None else None]
        parts.append(f"{decode['gen_tok_s']:g} tok/s" if decode["gen_tok_s"] is not None else None)
        parts.append(f"accept length {decode['accept_len']:.2f}" if decode["accept_len"] is not None else None)
        lines.append("  decode    " + ", ".join(part for part in parts if part))
    if found.get("ranks_seen"):
        lines.append(f"  ranks     {found['ranks_seen']} seen")
    for row in found.get("ledger", ()):
        figures = [
            f"{name} {row[key]:.2f}"
            for name, key in (
                ("before", "before_gib"),
                ("weights", "weights_gib"),
                ("draft", "draft_gib"),
                ("KV pool", "kv_pool_gib"),
                ("graphs", "graphs_gib"),
                ("free", "free_gib"),
            )
            if row[key] is not None
        ]
        lines.append(f"  memory    {row['rank'] or 'GPU'}: {', '.join(figures)} GiB")
    return "\n".join(lines)
