"""Launches that gave nothing to measure, in the words of a verdict."""

from collections import Counter
from collections.abc import Sequence

from tui.core.server.forecast import ledger_of
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
