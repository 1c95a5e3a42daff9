"""Small words that verdicts and economics share. Text that comes from a user or a host leaves here as one safe line."""

from collections import Counter
from collections.abc import Mapping, Sequence

from tui.core.model.profile import LoadPoint
from tui.core.server.earlier_starts import ledger_of
from tui.core.server.launch_records import LaunchRecord
from tui.core.sglang.memory import fraction_window
from tui.core.text import one_line

_OUT_OF_MEMORY = {
    "oom_weights": "out of memory",
    "oom_kv_pool": "out of memory",
    "oom_cuda_graph": "out of memory",
    "oom_serving": "out of memory",
    "host_oom": "out of the host's memory",
}


def count(number: int, noun: str, plural: str | None = None) -> str:
    """ "1 run", "3 runs"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def ref_words(ref: str) -> str:
    """What a user named, as it may stand in a sentence."""
    return one_line(ref, 80)


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


def failure_words(failures: Sequence[LaunchRecord], launches: int) -> str:
    """ "3/3 launches out of memory at mem-fraction-static 0.76 (need ≥ 0.84)": the most frequent cause first."""
    causes = Counter(record.cause for record in failures)
    parts = []
    for cause, times in causes.most_common():
        those = [record for record in failures if record.cause == cause]
        parts.append(f"{times}/{launches} launches {_failed(cause, those)}")
    return ", ".join(parts)


def _failed(cause: str | None, records: Sequence[LaunchRecord]) -> str:
    if cause not in _OUT_OF_MEMORY:
        return "failed" + (f" ({one_line(cause.replace('_', ' '), 40)})" if cause else "")
    words = _OUT_OF_MEMORY[cause]
    fractions = {record.mem_fraction for record in records if record.mem_fraction is not None}
    if len(fractions) != 1 or cause == "host_oom":
        return words
    [fraction] = fractions
    windows = [window for record in records if (window := fraction_window(ledger_of(record))) is not None]
    least = max((window.least for window in windows), default=0.0)
    need = f" (need ≥ {least:.2f})" if least > fraction else ""
    return f"{words} at mem-fraction-static {fraction:g}{need}"
