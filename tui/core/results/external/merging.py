"""What belongs together of the records of a text: parts of one, and one that was printed twice."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from tui.core.model.result import Result
from tui.core.results.external.plausibility import ROUNDING
from tui.core.results.external.posted import Posted

Records = Sequence[Posted | Result]

_REMEMBERED = 64  # records that a table of runs may repeat
_ALIKE = 3  # figures by which it does


def merged(batches: Iterable[Records]) -> Iterator[Posted | Result]:
    """Records of their own. A batch is what one table or object holds.

    A tool may print its block and then the same run as JSON; a summary and its percentiles; a record over several
    tables; its runs one by one and then a table of them.
    """
    held: Records = ()
    printed: deque[Posted] = deque(maxlen=_REMEMBERED)
    for batch in batches:
        if joined := _joined(held, batch):
            held = joined
            continue
        yield from _once(held, printed)
        held = batch
    yield from _once(held, printed)


def _once(batch: Records, printed: deque[Posted]) -> Iterator[Posted | Result]:
    earlier = list(printed)
    for record in batch:
        if isinstance(record, Posted):
            if record.repeats and any(_repeats(record, other) for other in earlier):
                continue
            printed.append(record)
        yield record


def _joined(held: Records, batch: Records) -> Records:
    """The records of both where each of one belongs to one of the other; none where they do not."""
    if len(held) != len(batch):
        return ()
    joined = []
    for one, other in zip(held, batch, strict=True):
        if not (isinstance(one, Posted) and isinstance(other, Posted) and _belongs(one, other)):
            return ()
        # What was printed is rounded, JSON behind it is not; a part adds to what it is a part of.
        first, second = (one, other) if other.part else (other, one)
        joined.append(_with(first, second))
    return joined


def _belongs(held: Posted, other: Posted) -> bool:
    if held.tool == other.tool and other.part:
        shared = held.figures.keys() & other.figures.keys()
        return all(held.figures[key] == other.figures[key] for key in shared)
    return _same_run(held, other)


def _with(first: Posted, second: Posted) -> Posted:
    for key, value in second.figures.items():
        first.put(key, value)
    first.broken |= second.broken
    for name in ("dataset", "model", "tag"):
        setattr(first, name, getattr(first, name) or getattr(second, name))
    return first


def _same_run(text: Posted, other: Posted) -> bool:
    keys = ("successful", "input_tokens", "output_tokens", "duration_s", "req_per_s", "mean_ttft_ms")
    both = [(text.number(key), other.number(key)) for key in keys]
    shared = [(a, b) for a, b in both if a is not None and b is not None]
    # Text is rounded and JSON is not; two blocks with the very same figures are two blocks.
    return (
        text.kind == other.kind == "serving"
        and len(shared) >= 4
        and all(abs(a - b) <= ROUNDING for a, b in shared)
        and any(a != b for a, b in shared)
    )


def _repeats(record: Posted, other: Posted) -> bool:
    if record.tool != other.tool or record.kind != other.kind:
        return False
    both = [(record.number(key), other.number(key)) for key in record.figures.keys() & other.figures.keys()]
    shared = [(a, b) for a, b in both if a is not None and b is not None]
    return len(shared) >= _ALIKE and all(abs(a - b) <= ROUNDING for a, b in shared)
