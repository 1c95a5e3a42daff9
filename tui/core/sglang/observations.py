"""What a living server should be looked at for; and, of one that is only busy, what would help."""

from tui.core.model.phases import Outcome
from tui.core.sglang.advice import args_of, evidence_of
from tui.core.sglang.diagnosis import Diagnosis, Evidence
from tui.core.sglang.patterns import patterns
from tui.core.sglang.state import StartupState

BUSY = ("kv_pool_full",)  # causes that are load, and no fault of the server
_RECENT_LINES = 5_000  # of a log: what was retracted before them is over
_FREE_GIB = 8.0  # beside graphs and pools: what activations need, and more than that


def observations(state: StartupState) -> tuple[Diagnosis, ...]:
    """What the log of a server that lives shows, the most urgent first."""
    found = (_accepts_nothing(state), _unhealthy(state), _slow_tokenizer(state), _full_pool(state))
    return tuple(item for item in found if item is not None)


def _accepts_nothing(state: StartupState) -> Diagnosis | None:
    if state.accept_one < 2:
        return None
    args = args_of(state)
    draft = str(args.get("speculative_draft_model_path") or "").lower()
    change = args.get("speculative_algorithm") == "EAGLE" and "eagle3" in draft
    title, advice = patterns().words["accepts_nothing"]
    return Diagnosis(
        "draft_config",
        title.format(count=state.accept_one),
        state.phase,
        None,
        Evidence(state.accept_one_line or 0, "accept len: 1.00"),
        advice,
        {"speculative-algorithm": "EAGLE3"} if change else {},
        observation=True,
    )


def _unhealthy(state: StartupState) -> Diagnosis | None:
    clue = next((clue for clue in reversed(state.clues) if clue.level == "observation"), None)
    failure = patterns().failure(clue.id) if clue is not None and state.outcome == Outcome.READY else None
    if clue is None or failure is None:
        return None
    cause = clue.cause or "unknown"
    words = patterns().words_for(cause)
    title, advice = failure.title or words.title, failure.advice or words.advice
    return Diagnosis(cause, title, state.phase, clue.rank, evidence_of(clue), advice, observation=True)


def _slow_tokenizer(state: StartupState) -> Diagnosis | None:
    count = state.slow_tokenizer
    if not count:
        return None
    title, advice = patterns().words["slow_tokenizer"]
    title = title.format(count=f"{count:,} times" if count > 1 else "once")
    text = "Using a slow tokenizer. This might cause a significant slowdown."
    evidence = Evidence(state.slow_tokenizer_line or 0, text)
    return Diagnosis("tokenizer", title, state.phase, None, evidence, advice, observation=True)


def _full_pool(state: StartupState) -> Diagnosis | None:
    """Requests that the pool has no room for: taken back while they ran, or waiting while it is full."""
    retracted, full, words = state.retracted, state.full_pool, patterns().words
    if state.outcome != Outcome.READY:
        return None
    if full is not None:
        title, _ = words["pool_full"]
        grown = full.queued > full.queued_before
        more = f" ({full.queued_before:,} {full.lines - 1} decode lines earlier)" if grown else ""
        title = title.format(name=full.name, usage=full.usage, queued=full.queued, more=more)
        evidence = Evidence(full.line, full.text)
    elif retracted is not None and state.lines - retracted.line <= _RECENT_LINES:
        title, _ = words["retracted"]
        times = f"{retracted.times:,} times" if retracted.times > 1 else "once"
        title = title.format(times=times, requests=retracted.requests)
        evidence = Evidence(retracted.line, retracted.text)
    else:
        return None
    advice: tuple[str, ...] = ()
    if retracted is not None:
        value = args_of(state).get("schedule_conservativeness")
        now = f" (now {value:g})" if isinstance(value, int | float) else ""
        advice = tuple(text.format(now=now) for text in words["retract_less"].advice)
    pools = (row.free_gib for row in state.ledger if row.kv_pool_gib is not None and row.free_gib is not None)
    free = min(pools, default=None)
    if free is not None and free > _FREE_GIB:
        advice += tuple(text.format(free=free) for text in words["pool_may_grow"].advice)
    return Diagnosis(
        "kv_pool_full", title, state.phase, None, evidence, (*advice, *words["larger_pool"].advice), observation=True
    )
