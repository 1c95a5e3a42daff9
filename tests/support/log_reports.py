"""What `eagletui diagnose` says of a whole log."""

from pathlib import Path

from tui.core.sglang.report import Report, report_of
from tui.core.sglang.tracker import LogTracker


def report(log: bytes | Path) -> Report:
    tracker = LogTracker(records=False)
    tracker.feed(log.read_bytes() if isinstance(log, Path) else log)
    tracker.flush()
    return report_of(tracker)
