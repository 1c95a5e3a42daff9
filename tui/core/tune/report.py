"""A tune in words: what was found, how sure that is, and what was not tried and why."""

from collections.abc import Iterable, Mapping

from tui.core.records import picked
from tui.core.server.earlier_starts import FRACTION
from tui.core.tune import decide, ranges
from tui.core.tune.decide import Spot
from tui.core.tune.record import Draft, Phase, Status, TuneRecord

GOAL_WORDS = {"tok_s": "tok/s per user", "ttft": "time to first token", "goodput": "goodput"}


def level_of(record: TuneRecord, draft: Draft | None) -> str:
    """What a cell's figure rests on: L0 one run, L1 one or two launches, L2 three launches and more."""
    launches = [t for t in record.of(Phase.SPECULATION) if t.step.draft == draft and t.rate is not None]
    if len(launches) >= decide.PAIRS:
        return "L2"
    return "L1" if sum(taken.runs for taken in launches) > 1 else "L0"


def breakeven(record: TuneRecord, spot: Spot) -> float | None:
    """The accept length from which a cell pays; None where nothing tells."""
    base = decide.baseline(record)
    return spot.estimate.cycle_ms * base / 1000 if spot.estimate is not None and base is not None else None


def range_words(record: TuneRecord) -> str:
    """What was found of the fraction, in one sentence."""
    known, tried = ranges.found(record), record.of(Phase.RANGE)
    said = known.text if tried else "the range that starts is not looked for yet"
    if (why := ranges.failure(record)) is not None:
        said += f"; the search ended with {why}"
    if known.used is not None:
        said += f"; {known.used:.2f} is used on"
    if known.batch is not None and known.batch != record.batch:
        said += f", with graphs up to {known.batch}"
    return said


def so_far(record: TuneRecord) -> str | None:
    """What the cells say until now, before anything is confirmed; None where no cell was measured."""
    best, base = decide.best_cell(record), decide.baseline(record)
    if best is None or base is None:
        return None
    at = decide.spots(record)[best.steps, best.topk].estimate if record.start is not None else None
    if at is None:
        return None
    beats = "beats" if at.rate > base else "does not beat"
    return (
        f"best draft: {best}, {at.rate:.1f} tok/s per user, {at.rate / base:.2f}× of {base:.1f} without speculation "
        f"({level_of(record, best)}); it {beats} no speculation"
    )


def not_tried(record: TuneRecord, *, fields: bool = True) -> tuple[str, ...]:
    """What the answer says nothing about, each with the reason; without `fields` no fields of the map."""
    said = []
    if record.start is None:
        said.append("speculation: the profile names no draft")
    else:
        said.append(
            f"other algorithms than {record.algorithm}, other drafts: a draft model is not the tuner's to choose"
        )
    if record.start is not None and record.goal == "ttft":
        said.append("other steps and top-k: a draft does not bring the first token earlier")
    elif fields:
        said += _skipped(decide.spots(record).values())
    known = ranges.found(record)
    if known.below is not None and known.low is not None:
        said.append(f"{FRACTION} below {known.low:.2f}: no room for the KV pool")
    fits = f"; the ledger has room for graphs up to {record.bounds.batch_most}" if record.bounds.batch_most else ""
    said.append(f"other graph batches than {known.batch or record.batch or 'the default'}{fits}")
    said.append("KV cache in fp8, attention back ends, all-reduce: they change more than the speed")
    if record.loads:
        said.append(f"the workload's other loads: {', '.join(record.loads)}")
    return tuple(said)


_SKIPPED = {  # how a reason begins, and what is said of the fields that have it
    "at most ": "even with every draft accepted slower than the best",
    "estimate ": "estimated to be slower than the best",
}


def _skipped(spots: Iterable[Spot]) -> list[str]:
    """The fields without a launch, those of one kind of reason together."""
    why: dict[str, list[str]] = {}
    for spot in spots:
        if spot.state in ("skipped", "open"):
            begin = next((begin for begin in _SKIPPED if spot.why.startswith(begin)), None)
            kind = _SKIPPED[begin] if begin is not None else None
            figure = f" ({spot.why.removeprefix(begin)})" if begin is not None else ""
            reason = kind or spot.why or "no launch was left for it"
            why.setdefault(reason, []).append(f"{spot.steps}×{spot.topk}{figure}")
    return [f"{reason}, steps × top-k: {', '.join(places)}" for reason, places in why.items()]


def plan_words(record: TuneRecord) -> tuple[str, ...]:
    """What a tune would do and cost, before it begins."""
    length_s, base = decide.launch_length_s(record), decide.MOST_LAUNCHES - decide.CONFIRM_LAUNCHES
    cost = f"at most {decide.MOST_LAUNCHES} launches"
    if length_s is not None:
        cost += f" of about {length_s / 60:.0f} min each, {decide.MOST_LAUNCHES * length_s / 3600:.1f} h in all"
    bounds = record.bounds
    ledger = "the ledger knows no start of this model here"
    if bounds.least is not None:
        most = f" to about {bounds.most:.2f}" if bounds.most is not None else " up"
        ledger = f"the ledger leaves {bounds.least:.2f}{most}"
    drafts = (
        f"no speculation, {record.start}, then what can still change the answer"
        if record.start
        else "no speculation alone"
    )
    return (
        f"1 range: {FRACTION} that starts and serves {record.longest_prompt} tokens, at most {ranges.MOST_LAUNCHES} "
        f"launches; {ledger}",
        f"2 speculation: {drafts}; each a launch measured with {record.bench.name} at {record.bench.points[0].label}, "
        f"at most {base} launches with the range",
        f"3 confirm: {decide.PAIRS} launch pairs of the best against the start",
        cost + ("" if length_s is not None else "; how long one takes is not known here yet"),
    )


def document(record: TuneRecord) -> Mapping[str, object]:
    """A tune as `--json` prints it."""
    known = ranges.found(record)
    best, base = decide.best_cell(record), decide.baseline(record)
    of_step = (
        "number phase=step.phase title=step.title why=step.why fraction=step.fraction graph_batch=step.batch draft=step.draft "
        "status launches spent_s started=started_at ended=ended_at run=run_id results=result_ids experiment=experiment_id "
        "ready_after_s kv_tokens free_gib value tok_s=rate accept_length cycle_ms failed_in=phase cause reason verdict words"
    )
    return {
        **picked(
            record, "tune=tune_id profile host goal bench=bench.name budget_h seed outcome message launches spent_s"
        ),
        "range": {**picked(known, "low high below above exact used graph_batch=batch"), "text": range_words(record)},
        "start": picked(record.start, "steps topk draft_tokens=tokens") if record.start is not None else None,
        "baseline_tok_s": base,
        "best": picked(best, "steps topk draft_tokens=tokens") if best is not None else None,
        "best_text": so_far(record),
        "cells": [_cell(record, spot) for spot in decide.spots(record).values()],
        "verdict": next((taken.verdict for taken in record.of(Phase.CONFIRM) if taken.status is Status.DONE), None),
        "not_tried": list(not_tried(record)),
        "steps": [picked(taken, of_step) for taken in record.steps],
    }


def _cell(record: TuneRecord, spot: Spot) -> dict[str, object]:
    measured, at = spot.state == "measured", spot.estimate
    return {
        **picked(
            spot,
            "steps topk draft_tokens=draft.tokens state launches tok_s=estimate.rate accept_length=estimate.accept_length",
        ),
        "estimated": at is not None and not measured,
        "deviation": at.deviation if at is not None else None,
        "breakeven": breakeven(record, spot),
        "level": level_of(record, spot.draft) if measured else None,
        "why": spot.why or None,
    }
