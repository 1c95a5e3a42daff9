"""Small words of the journal."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from tui.core.model.profile import DiffLine
from tui.core.text import epoch_of, one_line
from tui.core.verdicts.sentences import sets_words


def clock(seconds: float) -> str:
    """`9:21`; from an hour `2 h 21 min`."""
    total = max(0, round(seconds))
    return f"{total // 60}:{total % 60:02d}" if total < 3600 else f"{total // 3600} h {total % 3600 // 60:02d} min"


def day(at: str) -> str:
    """`3 Nov`, by this machine's zone; with the year where it is another one; the text itself where it is no time."""
    epoch = epoch_of(at)
    if epoch is None:
        return one_line(at, 30)
    moment = datetime.fromtimestamp(epoch, UTC).astimezone()
    year = "" if moment.year == datetime.now(UTC).astimezone().year else f" {moment.year}"
    return f"{moment.day} {moment:%b}{year}"


def configured(profile: str, sets: Mapping[str, object]) -> str:
    """A profile with what was changed for one launch; the port is no change."""
    changed = {key: value for key, value in sets.items() if key not in ("port", "host")}
    return one_line(profile, 60) + (f" {sets_words(changed)}" if changed else "")


def difference_words(lines: Iterable[DiffLine], limit: int = 160) -> str:
    """`~mem-fraction-static 0.84 → 0.88, +speculative-algorithm="EAGLE3", -enable-x`: what tells most first."""

    def one(line: DiffLine) -> str:
        if line.sign == "~":
            return f"~{line.key} {line.old} → {line.new}"
        return f"{line.sign}{line.key}" + (f"={line.new}" if line.sign == "+" and line.new != "true" else "")

    return one_line(", ".join(map(one, sorted(lines, key=lambda line: "~+-".find(line.sign)))), limit)


def lowest_load(load: str) -> tuple[bool, float, str]:
    """A key that sorts loads in words by their number; searches, and what has none, come last."""
    numbers = [float(word) for word in load.split() if word.replace(".", "", 1).isdigit()]
    return load.startswith("highest") or not numbers, numbers[0] if numbers else 0.0, load
