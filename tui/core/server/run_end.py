"""How a run ended: by its files, and by what the host's kernel wrote at that time."""

import re
import time
from dataclasses import dataclass
from functools import partial

from tui.core.errors import EagletuiError, Slug
from tui.core.link.retry import until
from tui.core.link.transport import Transport
from tui.core.model.job import Job, JobEnd
from tui.core.model.phases import Outcome
from tui.core.model.run import OUT_OF_MEMORY, Run, RunState
from tui.core.runs.adopted import last_words
from tui.core.runs.control import refresh
from tui.core.sglang.diagnose import diagnose
from tui.core.sglang.diagnosis import Diagnosis, ExitEvidence
from tui.core.sglang.tracker import LogTracker
from tui.core.text import epoch_of, one_line

LOST_HEAD = "the log has lost its beginning: its container engine keeps only the newest part"
_SLACK_S = 60.0  # of the kernel's stamps against ours
_KERNEL_STAMP = re.compile(r"\[\s*(\d+)\.\d+\]")
_KERNEL = (
    "cat /proc/uptime; if words=$(dmesg 2>/dev/null); then echo readable; printf '%s\\n' \"$words\" |"
    " grep -iE 'out of memory|oom-kill|killed process|NVRM: Xid' | tail -n 40; fi; exit 0"
)


async def until_over(transport: Transport, run: Run) -> None:
    """Waits until a run is over, or its files are gone; survives the link."""
    look = partial(refresh, transport, run)
    await until(lambda seen: seen is None or seen.over, look, transport=transport)


def no_log(run: Run) -> EagletuiError:
    """That a run has no log; raised where one is asked for."""
    if run.container is not None and run.container.unasked is not None:
        return EagletuiError(
            f"the output of {run.run_id} is with its container engine: {run.container.unasked}",
            "use an account that may ask it, or have its output put into a file",
            slug=Slug.NO_LOG,
        )
    return EagletuiError(
        f"the output of {run.run_id} goes nowhere that can be read",
        "start it with eagletui, or with its output in a file",
        slug=Slug.NO_LOG,
    )


def outcome_of_files(run: Run) -> Outcome | None:
    """The outcome where the files of a run alone decide it, None while it lives."""
    if run.state is RunState.QUEUED:
        return Outcome.QUEUED
    if run.job is not None and run.over:
        return _outcome_of_job(run, run.job)
    if run.state is not RunState.EXITED:
        return {RunState.LOST: Outcome.LOST, RunState.UNKNOWN: Outcome.UNKNOWN}.get(run.state)
    if run.stopped_by_us:
        return Outcome.STOPPED
    if run.exit_code is None:  # a foreign server: its exit code is not known
        return Outcome.LOST
    if run.exit_code != 0:
        return Outcome.CRASHED
    return Outcome.STOPPED if run.kind == "server" else Outcome.FINISHED


def _outcome_of_job(run: Run, job: Job) -> Outcome:
    """A rank that ended well in a job that somebody cancelled was stopped; one that its time ran out on was not."""
    if run.stopped_by_us or job.end is JobEnd.CANCELLED:
        return Outcome.STOPPED
    if job.end is JobEnd.LOST:
        return Outcome.LOST
    if job.end not in (JobEnd.COMPLETED, JobEnd.FAILED):
        return Outcome.CRASHED
    code = run.exit_code if run.exit_code is not None else job.exit_code
    return Outcome.CRASHED if code else Outcome.STOPPED


@dataclass(frozen=True)
class KernelWords:
    """What the kernel's log says of the time of a run."""

    readable: bool = False  # whether we may see it at all
    oom: str | None = None  # the newest line about a process killed for memory
    xid: str | None = None  # the newest line about an error of a GPU or its driver


async def kernel_words_of(transport: Transport, run: Run) -> KernelWords:
    """The kernel's log where it may explain a run's end. Raises HostError, LinkLost."""
    if outcome_of_files(run) not in (Outcome.CRASHED, Outcome.LOST) or run.job is not None:
        return KernelWords()  # that of a login host knows nothing of a node
    started, ended, now = epoch_of(run.started_at), epoch_of(run.ended_at), time.time()  # by our clock
    return await kernel_words(transport, (now - (ended or now), now - started) if started is not None else None)


async def kernel_words(transport: Transport, seconds_ago: tuple[float, float] | None) -> KernelWords:
    """The kernel's log, where it can be read; see `read_kernel`. Raises HostError, LinkLost."""
    done = await transport.run(_KERNEL, timeout_s=20.0)
    return read_kernel(done.stdout.decode("utf-8", "replace"), seconds_ago)


def read_kernel(text: str, seconds_ago: tuple[float, float] | None) -> KernelWords:
    """The answer: lines without the kernel's time stamp, or from before or after the run, explain nothing.

    Args:
        seconds_ago: when the run ended (0: it has not), and when it was started; None: not known.
    """
    first, _, rest = text.partition("\n")
    heading, *lines = rest.split("\n")
    try:
        uptime = float(first.split()[0])
    except (ValueError, IndexError):
        return KernelWords()
    if heading != "readable" or seconds_ago is None:
        return KernelWords(readable=heading == "readable")
    oom = xid = None
    for line in lines:
        stamp = _KERNEL_STAMP.search(line)
        age_s = uptime - float(stamp[1]) if stamp is not None else None
        if age_s is None or not seconds_ago[0] - _SLACK_S <= age_s <= seconds_ago[1] + _SLACK_S:
            continue
        if "Xid" in line:
            xid = one_line(line)
        else:
            oom = one_line(line)
    return KernelWords(True, oom, xid)


class LastDeath:
    """Why a container died that its engine has started again, by what it wrote since the start before."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.diagnosis: Diagnosis | None = None
        self._of: object = None

    async def hear(self, run: Run) -> None:
        """Reads it once for each death. Raises HostError."""
        box = run.container
        if box is None or self._of == (box.restarts, box.status):
            return
        tracker = LogTracker(records=False)
        tracker.feed(await last_words(self._transport, box))
        tracker.flush()
        code = box.exit_code if box.status == "restarting" else None
        found, _ = diagnose(tracker.state(), exit=ExitEvidence(exit_code=code))
        self.diagnosis, self._of = found or self.diagnosis, (box.restarts, box.status)


async def exit_evidence(transport: Transport, run: Run) -> ExitEvidence:
    """What the host says of a run's end. Raises HostError, LinkLost."""
    if not run.over:
        return ExitEvidence(alive=True)
    return evidence(run, await kernel_words_of(transport, run))


def evidence(run: Run, kernel: KernelWords) -> ExitEvidence:
    """What explains the end of a run that is over."""
    return ExitEvidence(
        exit_code=run.exit_code,
        stopped_by_us=run.stopped_by_us,
        # Of its container the engine knows; the kernel's log may not be ours to read.
        dmesg_oom=kernel.oom or ("the container engine says: out of memory" if run.why == OUT_OF_MEMORY else None),
        dmesg_xid=kernel.xid,
        kernel_silent=kernel.readable,
    )
