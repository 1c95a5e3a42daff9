"""A node of a job of Slurm as a host: what is asked of it goes through a step, what runs there is a run of the login host."""

import contextlib
import dataclasses
from collections.abc import AsyncGenerator, Iterable

from tui.core.errors import UsageError
from tui.core.hints import Action, Hint
from tui.core.host import gpu_sampler
from tui.core.host.gpus import GpuSample, HostFacts
from tui.core.host.host_facts import host_facts
from tui.core.link.transport import LinkState
from tui.core.model.run import Run
from tui.core.server.session import HostSession
from tui.core.slurm.inside import Place, gpus_there, no_more, place_of, way_into


class NodeSession(HostSession):
    """Its `transport` is the login host's, where files and runs are; `way` leads onto the node.

    What it shows of GPUs is the job's alone: others of the node are other people's.
    """

    def __init__(self, login: HostSession, place: Place) -> None:
        super().__init__(login.entry, login.transport)
        self.place = place
        self.way = way_into(login.transport, place)
        self._gpus: frozenset[int] | None = None
        self._asked = False

    def words_for(self, variables: Iterable[str]) -> tuple[str, ...]:
        """See `HostSession.words_for`: a step as long as the program."""
        return self.place.words(variables)

    async def own_gpus(self) -> tuple[int, ...]:
        """The job's GPUs on this node, () where Slurm names none. Raises HostError, LinkLost."""
        if not self._asked:
            found = await gpus_there(self.way)
            self._gpus, self._asked = (frozenset(found) if found is not None else None), True
        return tuple(sorted(self._gpus or ()))

    async def facts(self, *, refresh: bool = False) -> HostFacts:
        """See `HostSession.facts`; not remembered, for the next job has other nodes."""
        async with self._facts_lock:
            if self._facts is None or refresh:
                self._facts = await host_facts(self.way, self.entry.python)
            return self._facts

    async def gpus(self, period_s: float = 1.0) -> AsyncGenerator[GpuSample]:
        """See `HostSession.gpus`: one step for as long as it is read. Raises HostError at the end of the job."""
        await self.own_gpus()
        async with contextlib.aclosing(gpu_sampler.sample_gpus(self.way, self.entry.python, period_s)) as samples:
            async for sample in samples:
                yield self._of_job(sample)
        if self.transport.status().state is not LinkState.CLOSED:
            raise no_more(self.transport.host, self.place, "its GPUs are sampled no longer")

    async def sample(self) -> GpuSample:
        """See `HostSession.sample`."""
        await self.own_gpus()
        return self._of_job(await gpu_sampler.one_sample(self.way, self.entry.python))

    def _of_job(self, sample: GpuSample) -> GpuSample:
        if self._gpus is None:
            return sample
        return dataclasses.replace(sample, gpus=tuple(gpu for gpu in sample.gpus if gpu.index in self._gpus))


def node_sessions(login: HostSession, ranks: Iterable[Run]) -> dict[str, NodeSession]:
    """The nodes of ranks that run, by their names. Raises UsageError where one has no node (any more)."""
    found: dict[str, NodeSession] = {}
    for run in ranks:
        if (place := place_of(run)) is None:
            why = "is no rank of a job" if run.job is None else f"has no node: it is {run.state}"
            raise UsageError(f"{run.run_id} {why}", Hint(Action.LIST_RUNS, login.entry.name))
        found[place.node] = NodeSession(login, place)
    return found
