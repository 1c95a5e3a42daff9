"""Small words that verdicts and economics share. Text that comes from a user or a host leaves here as one safe line."""

from collections.abc import Mapping

from tui.core.model.profile import Limits, LoadPoint, Search
from tui.core.model.result import Capacity
from tui.core.text import one_line


def count(number: int, noun: str, plural: str | None = None) -> str:
    """ "1 run", "3 runs"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def load_words(point: LoadPoint) -> str:
    """A load as a sentence says it."""
    if point.search is not None:
        return f"highest {point.search}"
    if point.concurrency is not None:
        return f"conc {point.concurrency}"
    return f"{point.rate:g} requests/s" if point.rate is not None else "load unknown"


def sets_words(sets: Mapping[str, object]) -> str:
    """Overrides as they were typed, or "no override"."""
    return one_line(", ".join(f"{key}={value}" for key, value in sets.items()), 80) or "no override"


def percent(share: float) -> str:
    """The size of a share, as "9.1"."""
    return f"{abs(share) * 100:.1f}"


def signed(share: float) -> str:
    """A share with its sign, as "−0.4"; what rounds to nothing has none."""
    text = percent(share)
    return text if float(text) == 0 else ("+" if share > 0 else "−") + text


def two(value: float) -> str:
    """Two decimals, a half rounded up whichever side of it the float fell: 2.685 is 2.69."""
    return f"{value + 1e-9:.2f}"


def about(seconds: float) -> str:
    """An estimate, as "~50 min" or "~1 h 40 min"."""
    minutes = max(1, round(seconds / 60))
    if minutes < 90:
        return f"~{minutes} min"
    minutes = 5 * round(minutes / 5)
    return f"~{minutes // 60} h {minutes % 60:02d} min"


def amount_words(concurrency: float | None, rate: float | None) -> str:
    """ "12 users at once" or "2.5 requests/s"."""
    if concurrency is None:
        return f"{rate:g} requests/s"
    return f"{concurrency:g} {'user' if concurrency == 1 else 'users'} at once"


def limits_words(limits: Limits) -> str:
    """ "95 % of replies within TTFT 500 ms and TPOT 30 ms"."""
    named = (("TTFT", limits.ttft_ms), ("TPOT", limits.tpot_ms), ("E2E", limits.e2e_ms))
    *others, last = [f"{name} {value:g} ms" for name, value in named if value is not None]
    both = f"{', '.join(others)} and {last}" if others else last
    return f"{limits.share * 100:g} % of replies within {both}"


def search_words(search: Search) -> str:
    """ "highest concurrency from 1 to 256"."""
    unit = " requests/s" if search.kind == "rate" else ""
    return f"highest {search.kind} from {search.low:g} to {search.high:g}{unit}"


def answer_words(capacity: Capacity) -> str:
    """ "holds 12 users at once; 13 fail"."""

    def amount(load: float) -> str:
        return amount_words(*((load, None) if capacity.search.kind == "concurrency" else (None, load)))

    if capacity.found is None:
        return f"does not hold {amount(capacity.search.low)}, the lowest that was tried"
    if capacity.fails_from is None:
        return f"holds {amount(capacity.found)}, the highest that was tried"
    return f"holds {amount(capacity.found)}, not {capacity.fails_from:g}"
