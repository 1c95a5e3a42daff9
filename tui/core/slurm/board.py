"""What is known of a cluster: one look for all jobs and runs, shared by everybody who watches one of them.

The controller is asked for all jobs at once, every few seconds while something starts and seldom after that; the files
on the shared disk are read in between, which costs it nothing, and a job whose files say that it ended is settled then.
"""

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tui.core.link.transport import Transport
from tui.core.model.job import Job, JobState
from tui.core.model.run import Run
from tui.core.slurm import helper
from tui.core.slurm.helper import Answer, JobFiles
from tui.core.slurm.script import JobRequest

_UNSETTLED = (JobState.QUEUED, JobState.STARTING, JobState.UNKNOWN)


@dataclass(frozen=True)
class Pace:
    """Seconds between two looks."""

    files_s: float = 1.5
    starting_s: float = 5.0  # at the queue, while something waits or starts
    steady_s: float = 30.0  # at the queue, else


class JobBoard:
    """One cluster, as its login host shows it. Whatever asks raises LinkLost and HostError.

    Attributes:
        starting: ids of runs whose server is not ready yet, as whoever watches them says.
        looks: how often the controller was asked for its jobs.
    """

    def __init__(self, transport: Transport, pace: Pace | None = None) -> None:
        self._transport = transport
        self._pace = pace or Pace()
        self._lock = asyncio.Lock()
        self._cluster: str | None = None
        self._jobs: dict[str, Job] = {}
        self._trouble: str | None = None  # why the controller gave no answer when it was asked last
        self._files: tuple[JobFiles, ...] = ()
        self._begun: set[str] = set()  # runs that had begun before the controller was asked last
        self._commands: dict[str, Mapping[str, Any]] = {}
        self._looked_at = self._asked_at = float("-inf")  # time.monotonic()
        self.starting: set[str] = set()
        self.looks = 0

    async def look(self, *, fresh: bool = False) -> None:
        """Sees to it that what is known is new enough; `fresh`: of now."""
        async with self._lock:
            now = time.monotonic()
            if not fresh and now - self._looked_at < self._pace.files_s:
                return
            ask = fresh or now - self._asked_at >= self._period_s()
            self._take(await helper.look(self._transport, self._cluster, self._commands, ask=ask), asked=ask)

    def _period_s(self) -> float:
        waits = any(job is None or job.state in _UNSETTLED for job in map(self._job_of, self._unsettled()))
        return self._pace.starting_s if waits or self.starting else self._pace.steady_s

    def _unsettled(self) -> list[JobFiles]:
        return [files for files in self._files if files.job_id is not None and files.last_words is None]

    def _take(self, answer: Answer, *, asked: bool) -> None:
        self._looked_at = time.monotonic()
        self._cluster = answer.cluster or self._cluster
        self._commands.update(answer.commands)
        if asked:
            self._begun = {files.run_id for files in self._files if files.begun_s is not None}
        self._files = answer.runs
        if asked:
            self.looks += 1
            self._asked_at = self._looked_at
            self._trouble = None if answer.jobs is not None else answer.trouble or "no answer"
        if answer.jobs is not None:
            self._jobs = {job.job_id: job for job in answer.jobs}

    def _job_of(self, files: JobFiles) -> Job | None:
        return helper.job_of(files, self._jobs, self._trouble, had_begun=files.run_id in self._begun)

    # What is known

    @property
    def cluster(self) -> str | None:
        """Its name; None where the controller has not said it yet."""
        return self._cluster

    def runs(self) -> tuple[Run, ...]:
        """The ranks of all launches of ours, by the last look."""
        found: list[Run] = []
        for files in self._files:
            command = self._commands.get(files.run_id, {})
            found += helper.runs_of(self._transport.host, files, self._job_of(files), command)
        return tuple(found)

    def run(self, run_id: str) -> Run | None:
        """One of them by its whole id."""
        return next((run for run in self.runs() if run.run_id == run_id), None)

    def others(self) -> tuple[Job, ...]:
        """The user's further jobs that have GPUs and are not over; they are watched only.

        One that names a launch of ours is one of them where that launch's files are not here.
        """
        ours = {name for files in self._files for name in (files.job_id, files.run_id)}
        found = (job for job in self._jobs.values() if job.job_id not in ours and job.state is not JobState.OVER)
        return tuple(job for job in found if job.with_gpus and job.run_id not in ours)

    # What changes something

    async def submit(self, request: JobRequest) -> str:
        """Submits a job at most once; its number. See `helper.submit`."""
        async with self._lock:
            answer = await helper.submit(self._transport, request)
            self._take(answer, asked=True)
        return answer.submitted or "?"

    async def stop(self, run_id: str, grace_s: float, who: str | None) -> None:
        """Has the login host stop a launch by its id, or that of one of its ranks. Idempotent."""
        async with self._lock:
            self._take(await helper.stop(self._transport, self._cluster, run_id, grace_s, who), asked=False)
