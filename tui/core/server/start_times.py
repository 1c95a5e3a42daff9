"""How long a start takes: each phase so far, launch to ready, and what is left. By the host's clock, whatever ours says."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from tui.core.link.transport import Transport
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import Run
from tui.core.server.launch_records import PhaseHistory
from tui.core.sglang.state import Progress, StartupState
from tui.core.text import epoch_of


@dataclass(frozen=True)
class HostClock:
    """The host's clock against ours."""

    skew_s: float  # host minus here
    utc_offset: timedelta

    def now(self) -> float:
        """time.time() as the host would say it."""
        return time.time() + self.skew_s

    def epoch_of(self, stamp_s: float) -> float:
        """A log's naive local stamp, read as UTC, as true seconds since the epoch."""
        return stamp_s - self.utc_offset.total_seconds()


async def host_clock(transport: Transport) -> HostClock:
    """Asks the host for its time and zone."""
    before = time.time()
    answer = await transport.run("date '+%s %z'")
    words = answer.stdout.split()
    here = (before + time.time()) / 2
    try:
        seconds, zone = float(words[0]), words[1].decode()
        minutes = int(zone[1:3]) * 60 + int(zone[3:5])
        offset = timedelta(minutes=-minutes if zone[0] == "-" else minutes)
    except (IndexError, ValueError):
        return HostClock(0.0, datetime.now().astimezone().utcoffset() or timedelta())
    # `date` has whole seconds: a difference below two says nothing.
    return HostClock(seconds - here if abs(seconds - here) > 2 else 0.0, offset)


@dataclass(frozen=True)
class StartTimes:
    """Seconds of one start; None is not known."""

    started_s: float | None  # time.time() at the launch
    ready_after_s: float | None  # launch to ready
    phase_took_s: Mapping[Phase, float]  # ended phases, and the present one so far


def follows(run: Run) -> bool:
    """Whether it is a node above rank 0, which answers every /health with 200."""
    return any(name == "--node-rank" and rank.strip("0") for name, rank in pairwise(run.argv))


def start_times(
    run: Run,
    startup: StartupState,
    clock: HostClock | None,
    *,
    phase: Phase,
    outcome: Outcome,
    ready: bool,
    ready_after_s: float | None,
) -> StartTimes:
    """What the stamps of a log, the files of its run and the host's clock say together.

    Args:
        ready: readiness was seen.
        ready_after_s: what is known already; it stays.
    """
    started_s = epoch_of(run.started_at)
    if clock is None or started_s is None:
        return StartTimes(started_s, ready_after_s, {})
    elapsed = max(0.0, clock.now() - started_s)
    if outcome is not Outcome.STARTING and run.ended_at:
        elapsed = max(0.0, (epoch_of(run.ended_at) or started_s) - started_s)
    first = clock.epoch_of(startup.first_stamp_s) if startup.first_stamp_s is not None else None
    # Stamps have whole seconds, so the first one may seem to lie before the launch.
    offset = max(0.0, first - started_s) if first is not None else 0.0
    took: dict[Phase, float] = {}
    # Nothing in the log of a follower ends its warm-up, which is that of rank 0.
    untimed = (Phase.WARMUP, Phase.READY, Phase.SERVING) if follows(run) else (Phase.READY, Phase.SERVING)
    for span in startup.spans:
        if span.began_s is None or span.phase in untimed:
            continue
        began = 0.0 if span.phase is Phase.LAUNCH else offset + span.began_s
        if span.ended_s is not None:
            end = offset + span.ended_s
        else:
            end = elapsed if outcome is not Outcome.READY else (ready_after_s or elapsed)
        took[span.phase] = took.get(span.phase, 0.0) + max(0.0, end - began)
    if not took and phase is Phase.LAUNCH:
        took[Phase.LAUNCH] = elapsed
    if ready and ready_after_s is None:
        stamp = next((span.began_s for span in startup.spans if span.phase is Phase.READY), None)
        ready_after_s = offset + stamp if stamp is not None and first is not None else elapsed
    return StartTimes(started_s, ready_after_s, took)


def seconds_left(
    phase: Phase,
    took: Mapping[Phase, float],
    progress: Progress | None,
    usual: Mapping[Phase, PhaseHistory],
    usual_total: PhaseHistory | None,
) -> float | None:
    """Seconds to ready: of the present phase, by its bar or its usual time, and of the phases after it."""
    if usual_total is None:
        return None
    if not usual:
        return max(0.0, usual_total.median_s - sum(took.values()))
    so_far = took.get(phase, 0.0)
    current = max(0.0, usual[phase].median_s - so_far) if phase in usual else 0.0
    if progress and 0 < progress.done <= progress.total and phase is Phase.LOAD_WEIGHTS:
        current = so_far * (progress.total - progress.done) / progress.done
    return current + sum(history.median_s for later, history in usual.items() if later not in {*took, phase})
