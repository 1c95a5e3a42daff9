"""The allocation that an experiment keeps from launch to launch: `[slurm] hold = true`. docs/slurm.md.

A job of Slurm that only waits, whose name follows from the experiment's id: whoever resumes the experiment takes it over. What
it is told now and then is that it is still wanted; where nobody says so any more, it gives its nodes back by itself.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from tui.core.errors import EagletuiError, UsageError
from tui.core.experiment.launching import Site
from tui.core.groups.jobs import options_of
from tui.core.link.retry import Tell
from tui.core.slurm import helper
from tui.core.slurm.script import hold_script

_KEEP_S = 60.0  # between two words that it is wanted
_NUMBER = "@N@"  # which the login host fills in: the first allocation of an experiment, the second


class Holding:
    """The allocation of one experiment; without one nothing is asked and nothing done."""

    def __init__(self, experiment_id: str, sites: Mapping[str, Site]) -> None:
        """Takes the sites of all arms, by letter. Raises UsageError where they do not fit into one allocation."""
        tables = [site.profile.slurm for site in sites.values()]
        self.name = f"hold-{experiment_id}"
        self._site = next(iter(sites.values())) if any(table is not None and table.hold for table in tables) else None
        self._script = ""
        if self._site is None:
            return
        hold_id = f"{self.name}-{_NUMBER}"
        asked = {letter: options_of(s.profile, hold_id) for letter, s in sites.items() if s.profile.slurm is not None}
        (first, options), *others = asked.items()
        unlike = next((letter for letter, other in others if other != options), None)
        if unlike is None and len(asked) < len(sites):
            raise UsageError(
                "hold: not every arm is a job", "give each arm's profile the same [slurm], or set hold = false"
            )
        if unlike is not None:
            differs = sorted(set(options) ^ set(asked[unlike]))[0]
            raise UsageError(
                f"hold: arms {first} and {unlike} ask Slurm for different things ({differs}), and one allocation serves both",
                "give them the same [slurm] with gpus_per_node, or set hold = false",
            )
        self._script = hold_script(options, hold_id)

    async def room_for(self, site: Site, ahead_s: Mapping[int, float], together_s: float, tell: Tell) -> Site:
        """The site of a launch, in an allocation that has room for it. Raises EagletuiError where there is none.

        Args:
            ahead_s: what each launch that is left takes, by number, this one first; without those of which nothing is known.
            together_s: what the launches take that should not be on different nodes: the rest of a pair.
        """
        if self._site is None:
            return site
        link = self._site.home.transport
        held = await site.patiently(lambda: helper.hold(link, self.name, self._script), tell)
        left_s = held.job.left_s
        if held.used and left_s is not None and left_s < together_s:
            tell(f"{_late(held, next(iter(ahead_s)))}: another allocation is asked for")
            await site.patiently(lambda: helper.release(link, self.name), tell)
            held = await site.patiently(lambda: helper.hold(link, self.name, self._script), tell)
        elif left_s is not None:
            for number, needed_s in ahead_s.items():
                left_s -= needed_s
                if left_s < 0:
                    tell(_late(held, number))
                    break
        return replace(site, into=held.hold_id)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """For as long as this is open, the allocation knows that it is wanted."""
        task = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep(self) -> None:
        while self._site is not None:
            with contextlib.suppress(EagletuiError):  # the link is down: said again
                await helper.keep(self._site.home.transport, self.name)
            await asyncio.sleep(_KEEP_S)

    async def release(self, tell: Tell) -> None:
        """Gives it back; its job ends by itself."""
        if self._site is not None:
            link = self._site.home.transport
            await self._site.patiently(lambda: helper.release(link, self.name), tell)


def _late(held: helper.Allocation, number: int) -> str:
    return f"launch {number} would not end before the allocation does (job {held.job.job_id})"
