"""The lease of an experiment on the GPUs of all its arms, on every host of it: taken before the first launch, kept to its end."""

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from functools import partial

from tui.core.errors import EagletuiError, LinkLost, TimedOut
from tui.core.experiment.launching import Site
from tui.core.groups import planning
from tui.core.groups.session import GroupSession
from tui.core.link import retry
from tui.core.link.retry import Tell
from tui.core.runs import leases
from tui.core.runs.leases import Held, Lease


class GpuLease:
    """One lease under one id on all hosts, renewed as long as `keep` runs; who does not give it back leaves it to lapse."""

    def __init__(self, hosts: GroupSession, lease_id: str, words: str, sites: Iterable[Site]) -> None:
        """Nothing is taken yet. `words`: the command that runs it, for whoever finds the GPUs taken."""
        self._hosts, self._id, self._words = hosts, lease_id, words
        self.gpus = _of_all(planning.gpus_on(site.profile, site.host) for site in sites)  # by host; (): all of it

    async def take(self, tell: Tell) -> list[str]:
        """Takes it on all hosts or on none; lost links are waited for. Returns who gave way, in words. Raises Held."""
        found: list[str] = []
        taken: list[str] = []
        for host in sorted(self.gpus):
            try:
                lapsed = await retry.patiently(self._hosts.sessions[host].transport, partial(self._take, host), tell)
            except EagletuiError:
                await self._give_back(taken)
                raise
            taken.append(host)
            found += [
                f"{host}: took over {leases.gpu_words(one.gpus)} no longer held by {one.holder}" for one in lapsed
            ]
        return found

    async def _take(self, host: str) -> tuple[Lease, ...]:
        link = self._hosts.sessions[host].transport
        gone: tuple[Lease, ...] = ()
        while True:
            try:
                return *gone, *await leases.take(link, self._id, self.gpus[host], self._words)
            except Held as held:
                if not held.lease.abandoned:
                    raise
                gone += (held.lease,)  # of an experiment that was killed here, and was not resumed
                await leases.give_back(link, held.lease.lease_id)

    async def keep(self) -> None:
        """Renews it, and ends by Held where somebody has taken the GPUs over: the link was away too long while nothing ran."""
        while True:
            await asyncio.sleep(leases.RENEW_S)
            for host in self.gpus:
                try:
                    await self._take(host)
                except (LinkLost, TimedOut):
                    continue  # next time

    async def give_back(self) -> None:
        """As far as its hosts can be reached: elsewhere it lapses by itself."""
        await self._give_back(self.gpus)

    async def _give_back(self, hosts: Iterable[str]) -> None:
        for host in hosts:
            with contextlib.suppress(EagletuiError):
                await leases.give_back(self._hosts.sessions[host].transport, self._id)


def _of_all(each: Iterable[Mapping[str, tuple[int, ...]]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for arm in each:
        for host, gpus in arm.items():
            both = (*found.get(host, gpus), *gpus)
            found[host] = () if not gpus or found.get(host) == () else tuple(sorted(set(both)))
    return found
