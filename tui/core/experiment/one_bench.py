"""A bench of one server that runs already, in the states of an experiment: one arm, one launch, nothing stored but results.

So that screens show either with the same code.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from tui.core.bench import bench_run, target
from tui.core.bench.collect import Asked
from tui.core.bench.other_hosts import Sessions
from tui.core.model.experiment import ArmState, ArmStatus, ExperimentState
from tui.core.model.profile import BenchProfile
from tui.core.model.result import Result
from tui.core.model.run import Run
from tui.core.server.session import HostSession


async def measure_running(
    session: HostSession, bench: BenchProfile, measured: target.Target, others: Sessions | None = None
) -> AsyncGenerator[ExperimentState, None]:
    """Measures a server: the first state is there before the host is asked. `others` are sessions with the hosts of a group.

    Closing it leaves the measurement running; its results are stored as they come. Raises as `bench_run.follow_run`.
    """
    name = measured.run.profile if measured.run is not None else None
    yield ExperimentState(
        "",
        bench.name,
        session.entry.name,
        bench,
        (ArmState("A", name or "server", status=ArmStatus.LAUNCHING, phase="checking the server"),),
        hypothesis=bench.hypothesis,
        message="checking the server: does it generate, and what is it?",
        hosts=measured.group.hosts if measured.group is not None else (),
    )
    generator = await bench_run.start(session, bench, measured, others=others)
    async with aclosing(under_way(session, generator, others)) as states:
        async for state in states:
            yield state


async def under_way(
    session: HostSession, generator: Run, others: Sessions | None = None
) -> AsyncGenerator[ExperimentState, None]:
    """States of a measurement that was started here or by another eagletui, from its beginning to its end.

    `others` are sessions with further hosts, by name. Raises as `bench_run.follow_run`, and EagletuiError where the run is
    not a measurement.
    """
    asked = Asked.of(generator.run_id, generator.extra)
    server = asked.server
    arm = ArmState("A", server.profile or server.url or "", sets=server.sets, status=ArmStatus.RUNNING)
    state = ExperimentState(
        experiment_id=generator.run_id,
        name=asked.bench.name,
        host=session.entry.name,
        bench=asked.bench,
        arms=(arm,),
        order=("A",),
        hypothesis=asked.bench.hypothesis,
        started_at=generator.started_at,
        hosts=tuple(dict.fromkeys(member.host for member in server.members)),
    )
    yield state
    async with aclosing(bench_run.follow_run(session, generator, others)) as events:
        async for event in events:
            if isinstance(event, Result):
                arm = replace(arm, results=(*arm.results, event), live=None)
                state = replace(state, arms=(arm,))
            else:
                arm = replace(arm, live=event)
                state = replace(state, arms=(arm,), left_s=event.left_s)
            yield state
    arm = replace(arm, status=ArmStatus.MEASURED, launches_done=1, live=None)
    yield replace(state, arms=(arm,), at=1, left_s=None, finished=True, message="done")
