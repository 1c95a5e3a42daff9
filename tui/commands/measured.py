"""The question before a measurement ends with the server that it measures."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tui.commands.output import say
from tui.commands.terminal import read_line
from tui.core.model.run import Run

if TYPE_CHECKING:
    from tui.core.groups.session import GroupPlan
    from tui.core.server.launch import LaunchPlan


async def may_stop(ask: bool | None, what: str, measurement: Run | None) -> bool:
    """Whether to stop a server. Raises ServerMeasured where it is measured and nobody can be asked.

    Args:
        ask: somebody can be asked; None: it was said already that it shall be.
    """
    if ask is None:
        return True
    if not ask and measurement is not None:
        from tui.core.bench.measured_servers import ServerMeasured

        raise ServerMeasured(what, measurement)
    if not ask:
        return True
    if measurement is not None:
        what += f", which {measurement.run_id} is measuring now and which ends with it"
    say(f"stop {what}?")
    agreed = (await read_line("[yes/No] ") or "").strip().lower() in ("y", "yes")
    if not agreed:
        say("not stopped")
    return agreed


def measurement_of_one(server: Run, runs: Iterable[Run]) -> Run | None:
    """What measures a server; `runs` are all of its host."""
    from tui.core.bench.measured_servers import measured_among

    return next((measurement for _, measurement in measured_among([server], runs)), None)


async def may_replace(ask: bool | None, plan: "LaunchPlan | GroupPlan") -> bool:
    """Whether a launch may stop what is in its way: asked only where that is measured, and the launch can be made then."""
    if not plan.replaces or plan.blocked_without(run.run_id for run in plan.replaces):
        return True  # the launch says what is in the way, and stops nothing
    for server in plan.replaces:
        measurement = measurement_of_one(server, plan.seen)
        if measurement is not None and not await may_stop(ask, run_words(server), measurement):
            return False
    return True


def run_words(run: Run) -> str:
    """A run that shall be stopped, by what a person knows it by."""
    gpus = f", GPUs {', '.join(map(str, run.gpus))}" if run.gpus else ""
    return f"{run.run_id} on {run.host}, PID {run.pid}{gpus}"
