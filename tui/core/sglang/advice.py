"""What to change: a clue's own words, refined by what else the log says (flags, memory ledger, tracebacks)."""

import re
from collections.abc import Mapping
from dataclasses import replace

from tui.core.model.phases import Phase
from tui.core.sglang.batch_lines import decimal
from tui.core.sglang.diagnosis import Diagnosis, Evidence
from tui.core.sglang.flags import flag_table, version_at_least
from tui.core.sglang.frames import feature_of, module_of, place_of
from tui.core.sglang.memory import FractionWindow, fraction_window, held_by_others, lowered_fraction
from tui.core.sglang.patterns import patterns
from tui.core.sglang.state import Clue, StartupState
from tui.core.text import one_line

_SHAPES = re.compile(
    r"shapes? cannot be multiplied|must match (?:the size of tensor|except in dimension)|invalid for input of size|size mismatch|shape mismatch|dimension mismatch"
)
_DRAFT_FRAMES = re.compile(r"eagle|draft|speculat|spec_|multi_layer|ngram|standalone", re.I)
_POOL = re.compile(r"HTTPS?ConnectionPool\(host='([^']{1,200})', port=(\d{1,5})\)")  # what urllib3 calls a host
_FOLLOWS = re.compile(
    r"(?:[\w.]*\.)?(?:AttributeError|KeyError|IndexError|TypeError|NameError|UnboundLocalError)\b|AssertionError:?$"
)
_OF_A_FEATURE = ("cuda_error", "cuda_graph", "engine_bug", "jit_compile", "unknown", "unsupported_arch")
_FIXED_BY_VERSIONS = (*_OF_A_FEATURE, "disaggregation", "draft_config", "quant_mismatch", "unsupported_model")
_AMOUNT = re.compile(r"Tried to allocate ([\d.]+) ([MGK])iB")
_PIDS_SHOWN = 8
_FILLED = 2_000  # the right one of many choices may be the last
_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_FRACTION = "mem-fraction-static"


def explain(clue: Clue, state: StartupState) -> Diagnosis:
    """The diagnosis that a clue makes."""
    cause = clue.cause or "unknown"
    failure = patterns().failure(clue.id)
    title, advice = patterns().words_for(cause)
    if failure is not None:
        title = (_fill(failure.title, clue.groups) if failure.title else None) or title
        advice = tuple(filled for text in failure.advice if (filled := _fill(text, clue.groups))) or advice
    found = Diagnosis(
        cause,
        title,
        clue.phase if clue.level in ("root", "comm", "exception") else state.phase,
        clue.rank,
        evidence_of(clue),
        advice,
        dict(failure.set) if failure is not None else {},
        raised_in=clue.raised_in,
    )
    refine = _REFINEMENTS.get(cause)
    found = refine(found, clue, state) if refine is not None else found
    if found.cause.startswith("oom_"):
        if any((module_of(frame.file) or "").startswith("multimodal_gen/") for frame in clue.frames):
            found = replace(found, advice=_advice("diffusion_memory"), set={})
        found = _held_by_others(found, clue)
    if found.cause in _OF_A_FEATURE:
        feature = feature_of(clue.raised_in or clue.frames, patterns().features)
        if feature is not None and (not feature.causes or found.cause in feature.causes):
            first = found.advice[: 1 if found.cause != "unknown" else 0]
            found = replace(found, advice=tuple(dict.fromkeys((*first, *feature.advice, *found.advice))))
    return with_version(found, state.version)


def with_version(found: Diagnosis, version: str | None) -> Diagnosis:
    """Where a newer SGLang may help, whether there is one.

    Args:
        version: of the server's SGLang; None: not known.
    """
    newest = flag_table().newest
    if version is None or found.cause not in _FIXED_BY_VERSIONS or version_at_least(version, newest):
        return found
    return replace(
        found, advice=tuple(dict.fromkeys((*found.advice, *_advice("newer", newest=newest, version=version))))
    )


def evidence_of(clue: Clue) -> Evidence:
    """The line that a clue was found in; of an exception what a person would quote.

    A lookup that failed, a check without a word and a request that failed follow from an error that was logged just
    before, if one was.
    """
    number, text, lines = clue.line, clue.quote or clue.text, clue.lines or (clue.text,)
    if clue.before is not None and (clue.level == "observation" or _FOLLOWS.match(clue.text)):
        number, text, lines = clue.before.number, clue.before.text, (clue.before.text, *lines)
    text = _POOL.sub(r"\1:\2", text)
    return Evidence(number, one_line(text, 400), tuple(one_line(line, 2_000) for line in lines))


def args_of(state: StartupState) -> Mapping[str, object]:
    """The arguments that the server printed, {} where it printed none."""
    return state.server_args or {}


def _fill(text: str, groups: Mapping[str, str]) -> str | None:
    """`text` with {name} replaced; None where a group is missing."""
    if not set(_PLACEHOLDER.findall(text)) <= set(groups):
        return None
    return _PLACEHOLDER.sub(lambda match: one_line(groups[match.group(1)], _FILLED), text)


def _advice(words: str, **values: object) -> tuple[str, ...]:
    """What `words.NAME` of tui/data/failures.toml advises, with values in it."""
    return tuple(text.format(**values) for text in patterns().words[words].advice)


def _speculative(state: StartupState) -> bool:
    return bool(args_of(state).get("speculative_algorithm")) or any(row.draft_gib is not None for row in state.ledger)


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
        found = replace(found, title=patterns().words["pool_over_budget"].title)
    current = _fraction(state, clue)
    window = fraction_window(state.ledger, current)
    if window is not None:
        return _raised(found, window, current, draft, _need_less(clue, state, draft))
    need_less = _need_less(clue, state, draft)
    stated = re.search(r"Raise --mem-fraction-static above ([\d.]+)", clue.text)
    if stated is None:
        return replace(found, advice=(*found.advice[:1], need_less), set={})
    least = float(stated.group(1).rstrip("."))
    advice = (*_advice("raise_above", least=least), need_less)
    return replace(found, advice=advice, set={_FRACTION: round(min(0.95, max(least + 0.06, 0.1)), 2)})


def _need_less(clue: Clue, state: StartupState, draft: bool) -> str:
    """What makes room beside a larger budget: of what the pool itself takes, only where there is room for a pool at all."""
    args = args_of(state)
    replicas, kv = args.get("dp_size"), str(args.get("kv_cache_dtype", "auto"))
    options = (
        ("a larger --tp", True),
        ("fewer dp replicas", isinstance(replicas, int) and replicas > 1),
        ("a quantization with smaller weights", True),
        ("a smaller draft model or none", draft),
        ("--kv-cache-dtype fp8_e4m3", clue.id == "pool_tiny" and "fp8" not in kv and "fp4" not in kv),
    )
    (need_less,) = _advice("need_less", options=", ".join(words for words, helps in options if helps))
    return need_less


def _raised(found: Diagnosis, window: FractionWindow, current: float | None, draft: bool, need_less: str) -> Diagnosis:
    what = "weights and draft model" if draft else "weights"
    loaded = f"{window.loaded_gib:.1f} GiB of {what} of {window.before_gib:.1f} GiB free before the load"
    if window.suggested is None:
        smaller = "a smaller draft model or none, " if draft else ""
        advice = _advice("raise_in_vain", loaded=loaded, least=window.least, most=window.most, draft=smaller)
        return replace(found, advice=advice)
    now = f" The present value is {current:g}." if current is not None else ""
    if draft:
        need_less += " If graph capture then runs out of memory, no value works for this draft: use a smaller one."
    advice = _advice("raise_to", suggested=window.suggested, loaded=loaded, least=window.least, now=now)
    return replace(found, advice=(*advice, need_less), set={_FRACTION: window.suggested})


def _held_by_others(found: Diagnosis, clue: Clue) -> Diagnosis:
    """Other processes on the GPU come first: no flag of this server gives back what they hold."""
    others = held_by_others("\n".join(clue.lines or (clue.text,)))
    if others is None:
        return found
    words = patterns().words["held_by_others"]
    of = f" of the {others.capacity_gib:.1f}" if others.capacity_gib is not None else ""
    who = ("processes " if len(others.pids) > 1 else "process ") + ", ".join(map(str, others.pids[:_PIDS_SHOWN]))
    values = {"gib": others.gib, "of": of, "who": who}
    title = f"{found.title.rstrip('.')}: {words.title.format(**values)}"
    advice = (*(text.format(**values) for text in words.advice), *found.advice)
    return replace(found, title=title, advice=advice)


def _no_room_outside(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    """Out of memory outside the budget: less for the budget, or a smaller need outside."""
    current = _fraction(state, clue)
    capture = found.cause == "oom_cuda_graph"
    amount = _AMOUNT.search(clue.text)
    missing_gib = float(amount[1]) * {"K": 1 / 1048576, "M": 1 / 1024, "G": 1.0}[amount[2]] if amount else None
    lower = lowered_fraction(state.ledger, current, missing_gib) if current is not None else None
    advice = found.advice
    if found.cause == "oom_kv_pool":
        advice = _advice("pool_left_too_little")
    if lower is not None:
        why = ": capture needs memory outside the budget." if capture else "."
        first = f"Lower --mem-fraction-static from {current:g} to {lower:.2f}{why}"
        return replace(found, advice=(first, *advice), set={_FRACTION: lower})
    batch, name = _largest_graph(state)
    if not capture or batch is None or batch <= 1:
        return replace(found, advice=advice)
    half = batch // 2
    if current is not None:
        words = "fewer_graphs_with_draft" if _speculative(state) else "fewer_graphs"
        advice = _advice(words, name=name, batch=batch, half=half, current=current)
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
    title, advice = patterns().words["draft_too_big"]
    return replace(found, title=title, advice=(*advice, *found.advice))


def _unknown(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    frames = "\n".join(place_of(frame) for frame in clue.frames)
    if _SHAPES.search(clue.text) and _DRAFT_FRAMES.search(frames):
        return replace(_as_cause(found, "draft_config"), phase=clue.phase)
    if clue.phase == Phase.CUDA_GRAPH and re.search("piecewise|prefill", state.capturing or ""):
        return _piecewise(_as_cause(found, "piecewise_cuda_graph"), clue, state)
    if clue.level in ("end", "collateral"):
        return replace(found, advice=patterns().words["silent"].advice)
    accepts = state.last_decode is not None and state.last_decode.accept_len is not None
    if clue.level != "marker" and (_speculative(state) or accepts):
        return replace(found, advice=(*found.advice, *_advice("once_without_draft")))
    return found


def _as_cause(found: Diagnosis, cause: str) -> Diagnosis:
    return replace(found, cause=cause, **patterns().words_for(cause)._asdict())


def _path(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    # The frames that tell are below the line: Python prints the innermost traceback of a chain first.
    frames = [frame for item in state.clues if item.id == clue.id for frame in item.frames]
    if not any(_DRAFT_FRAMES.search(place_of(frame)) for frame in frames):
        return found
    either = "(--model-path, or --speculative-draft-model-path for the draft)"
    advice = tuple(text.replace(either, "(--speculative-draft-model-path)") for text in found.advice)
    return replace(found, title=found.title.replace("no model", "no draft model"), advice=advice)


def _draft(found: Diagnosis, clue: Clue, state: StartupState) -> Diagnosis:
    args = args_of(state)
    given = args.get("speculative_draft_model_path", "not printed")
    if given is not None and given != args.get("model_path"):
        return found
    title, advice = patterns().words["target_as_draft"]
    return replace(found, title=title, advice=(*advice, *found.advice[1:]))


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
    title, advice = patterns().words["nccl_port"]
    return replace(found, title=title.format(port=given), advice=advice)


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
    "engine_bug": _unknown,
    "bad_model_path": _path,
    "nccl": _nccl,
    "port_in_use": _port,
    "unsupported_arch": _arch,
    "draft_config": _draft,
    "piecewise_cuda_graph": _piecewise,
}
