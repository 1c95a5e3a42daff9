"""Why a change is suggested: what the diagnosis says, and how often a start with it worked on this host."""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from tui import format as fmt

if TYPE_CHECKING:
    from tui.core.server.server_state import ServerState

_SAME = ("model-path", "speculative-algorithm", "speculative-draft-model-path")


def reasons(state: "ServerState", host: str) -> tuple[str, ...]:
    """Sentences for the suggested change; () where nothing is known."""
    diagnosis = state.diagnosis
    if diagnosis is None or not diagnosis.set:
        return ()
    advice = diagnosis.advice[0] if diagnosis.advice else ""
    first = re.split(r"(?<=[.!?])\s+(?=[A-Z])", advice)[0]
    times = _worked(host, state.run.run_id, tuple((key, str(value)) for key, value in diagnosis.set.items()))
    known = "reached ready here" in first
    found = [first] if first else []
    if times and not known:
        found.append(f"Started here {fmt.plural(times, 'time')} with it.")
    return tuple(found)


@lru_cache(maxsize=8)
def _worked(host: str, run_id: str, change: tuple[tuple[str, str], ...]) -> int:
    """Starts on the host that reached ready with the change, same model and draft. Cached: it is asked while painting."""
    from tui.core.server import launch_records
    from tui.core.sglang.flags import flag_table

    canonical = flag_table().canonical
    own = launch_records.read(run_id)
    if own is None:
        return 0

    def in_force(record: launch_records.LaunchRecord) -> dict[str, str]:
        values = {canonical(key): str(value) for key, value in record.args.items()}
        if record.mem_fraction is not None:
            values[canonical("mem-fraction-static")] = str(record.mem_fraction)
        return values

    wanted = {canonical(key): value for key, value in change}
    mine = in_force(own)
    same = {key: mine.get(key) for key in map(canonical, _SAME)}
    return sum(
        1
        for record in launch_records.read_all()
        if record.host == host
        and record.ready_after_s is not None
        and all(in_force(record).get(key) == value for key, value in (same | wanted).items())
    )


def written(value: object) -> str:
    """A value as TOML; fractions have two decimals, so that they can be compared by eye."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.2f}" if 0 < value < 1 and round(value, 2) == value else f"{value:g}"
    return f'"{value}"' if isinstance(value, str) else str(value)
