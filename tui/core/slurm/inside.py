"""The way onto a node of a job: a step of `srun --overlap` beside the server's, with the job's GPUs and none of its own.

A stream is one step for as long as it lives; a script is a step too, which the controller writes down, so nobody asks
every second. The step ends with the end of its input, with `srun`, and with the job.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, replace

from tui.core.errors import HostError, Slug
from tui.core.link.inside import InsideTransport
from tui.core.link.scripts import Explainer, NoShell
from tui.core.link.transport import LinkState, LinkStatus, Transport
from tui.core.model.run import Run, RunState
from tui.core.text import one_line

# What each word is for, and what Slurm does without it, is in docs/slurm.md.
_STEP = (
    *("srun", "--quiet", "--overlap", "--nodes=1", "--ntasks=1"),
    *("--mem=0", "--mpi=none", "--cpu-bind=none", "--unbuffered"),
)
_EXPORTED = ("HOME", "PATH", "USER", "LANG")
_GPUS = "printf '%s' \"${CUDA_VISIBLE_DEVICES-none}\""


@dataclass(frozen=True)
class Place:
    """A node of a running job."""

    job_id: str
    node: str

    def words(self, variables: Iterable[str] = ()) -> tuple[str, ...]:
        """What stands in front of a command that is to run there, with these variables of the login host as well."""
        exported = ",".join(dict.fromkeys((*_EXPORTED, *variables)))
        return (*_STEP, f"--export={exported}", f"--jobid={self.job_id}", f"--nodelist={self.node}")

    def __str__(self) -> str:
        return f"{self.node} of job {self.job_id}"


def place_of(run: Run) -> Place | None:
    """Where a rank of a job runs; None while it has no node, and of a run that is none."""
    if run.job is None or run.node is None or run.state not in (RunState.STARTING, RunState.RUNNING):
        return None
    return Place(run.job.job_id, run.node)


def way_into(outer: Transport, place: Place) -> Transport:
    """The transport of a node, from the login host's; nothing is asked yet."""
    return _NodeTransport(outer, place)


def no_more(host: str, place: Place | None, why: str) -> HostError:
    """Of a place whose job has ended."""
    hint = "the job is over, or its node is lost; the state of its run says which"
    return HostError(f"{host}: {place} is no more: {why}", hint, slug=Slug.LOST)


async def gpus_there(transport: Transport) -> tuple[int, ...] | None:
    """The GPUs of a job on the node that `way_into` leads to, as nvidia-smi numbers them there; None: Slurm names none.

    Raises HostError, LinkLost.
    """
    listed = (await transport.run(_GPUS)).stdout.decode("utf-8", "replace").split(",")
    return tuple(int(word) for word in listed) if all(word.isdigit() and len(word) < 4 for word in listed) else None


_NO_WAY = "`srun --overlap --jobid=… -w NODE hostname` must work on the login host, as long as the job runs there"
_JOB_ENDED = ("CANCELLED AT", "DUE TO", "has expired", "Force Terminated", "Timed out waiting for job step")


@dataclass(frozen=True)
class _Explainer(Explainer):
    """What srun says of its end, which has no exit code of its own."""

    place: Place | None = None
    over: Callable[[], None] = lambda: None

    def ended(self, how: int | str, stderr: bytes) -> HostError:
        return self._job_end(stderr) or super().ended(how, stderr)

    def no_shell(self, noise: bytes, stderr: bytes) -> NoShell:
        said = [line for line in stderr.split(b"\n") if b"lacks support for cpu binding" not in line]
        if (ended := self._job_end(stderr)) is not None:
            return NoShell(ended.message, ended.hint, slug=ended.slug)
        return super().no_shell(noise, b"\n".join(said))

    def _job_end(self, stderr: bytes) -> HostError | None:
        lines = [line for line in stderr.decode("utf-8", "replace").splitlines() if any(w in line for w in _JOB_ENDED)]
        if not lines:
            return None
        self.over()
        return no_more(self.host, self.place, one_line(lines[0], 160))


class _NodeTransport(InsideTransport):
    """It is closed once its job is seen to have ended, so that whoever samples there ends too."""

    def __init__(self, outer: Transport, place: Place) -> None:
        super().__init__(outer, place.words(), str(place))
        self._place, self._over = place, False
        self.status, self.watch = self._status, self._watch

    def _explainer(self) -> Explainer:
        means = f"there is no way onto {self._place}"
        return _Explainer(self._outer.host, means, _NO_WAY, self._place, self._end)

    def _end(self) -> None:
        self._over = True

    def _status(self) -> LinkStatus:
        seen = self._outer.status()
        return replace(seen, state=LinkState.CLOSED, notice="its job is over") if self._over else seen

    async def _watch(self) -> AsyncIterator[LinkStatus]:
        async for seen in self._outer.watch():
            yield self._status() if self._over else seen
