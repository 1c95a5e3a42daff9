"""An experiment that another process of this machine runs: how far it is, and what can be asked of it.

Beside the record, which is written after every step, its driver keeps a small file of what changes within a step
(`experiments/live/`), and looks for a request to stop (`experiments/ID.stop`).
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from operator import attrgetter
from pathlib import Path

from tui.core.config import write_whole
from tui.core.experiment import record as experiment_record
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.so_far import stored_state
from tui.core.experiment.state import UnderWay, state_of
from tui.core.model.experiment import ExperimentState, LiveRun
from tui.core.model.result import Result
from tui.core.records import RecordFiles
from tui.core.results import store

_EVERY_S = 1.0
_GONE_LOOKS = 10  # a driver that hands over to another one is away for a few seconds


class Stop(StrEnum):
    """When an experiment is asked to end."""

    AFTER_LAUNCH = "after-launch"  # the launch under way is measured to its end
    NOW = "now"


@dataclass(frozen=True)
class Live:
    """What changes within a step."""

    experiment_id: str
    pid: int  # of its driver
    number: int | None = None  # the launch under way
    phase: str | None = None
    live: LiveRun | None = None
    left_s: float | None = None
    paused: bool = False
    message: str | None = None


LIVE = RecordFiles(Live, "experiments/live", attrgetter("experiment_id"), indent=None)


async def serve(
    experiment_id: str,
    now: Callable[[], UnderWay | None],
    state: Callable[[], ExperimentState],
    stops: Mapping[Stop, Callable[[], None]],
) -> None:
    """Writes how far it is, and hears who asks it to stop, until it is cancelled."""
    request = _request_path(experiment_id)
    request.unlink(missing_ok=True)  # of a driver before this one
    written: Live | None = None
    try:
        while True:
            if request.exists():
                asked = request.read_text(errors="replace").strip()
                request.unlink(missing_ok=True)
                if asked in list(Stop):
                    stops[Stop(asked)]()
            live = _live(now(), state())
            if live != written:
                written = live
                await asyncio.to_thread(LIVE.write, live)
            await asyncio.sleep(_EVERY_S)
    finally:
        LIVE.path(experiment_id).unlink(missing_ok=True)


def _live(now: UnderWay | None, state: ExperimentState) -> Live:
    left_s = None if state.left_s is None else round(state.left_s)
    number, phase, live = (now.number, now.phase, now.live) if now is not None else (None, None, None)
    return Live(state.experiment_id, os.getpid(), number, phase, live, left_s, state.paused, state.message)


def _request_path(experiment_id: str) -> Path:
    return experiment_record.FILES.directory / f"{experiment_id}.stop"


def ask_to_stop(experiment_id: str, when: Stop) -> None:
    """Its driver hears it within a second. Raises OSError."""
    write_whole(_request_path(experiment_id), f"{when}\n")


async def follow(experiment_id: str) -> AsyncGenerator[ExperimentState, None]:
    """The states of an experiment as its record and its driver tell them; the last one is finished, by its end or because
    nobody runs it any more. Closing it changes nothing.
    """
    shown: ExperimentState | None = None
    gone = 0
    results: dict[str, Result] = {}
    while True:
        pid = experiment_record.driver(experiment_id)
        record = await asyncio.to_thread(experiment_record.read, experiment_id)
        gone = 0 if pid is not None else gone + 1
        state: ExperimentState | None = None
        if record is not None and (record.ended_at is not None or gone >= _GONE_LOOKS):
            state = await asyncio.to_thread(stored_state, record)
            if record.ended_at is None:
                state = replace(state, message="nobody runs it any more: --resume continues it")
            state = replace(state, driver=None)
        elif record is not None and pid is not None:
            state = await asyncio.to_thread(_state, record, pid, results)
        if state is not None and state != shown:
            yield state
        if (state is not None and state.finished) or (record is None and gone >= _GONE_LOOKS):
            return
        shown = state or shown
        await asyncio.sleep(_EVERY_S)


def _state(record: ExperimentRecord, pid: int, results: dict[str, Result]) -> ExperimentState:
    for name in (name for cell in record.cells for name in cell.result_ids if name not in results):
        if (result := store.read(name)) is not None:
            results[name] = result
    live = LIVE.read(record.experiment_id)
    if live is None or live.pid != pid:
        live = Live(record.experiment_id, pid)
    under_way = None if live.number is None else UnderWay(live.number, 0.0, live.phase, None, live.live)
    state = state_of(record, results, under_way, paused=live.paused, message=live.message)
    return replace(state, left_s=live.left_s, driver=pid)
