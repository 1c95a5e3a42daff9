"""The pre-flight of all arms of an experiment, before the first of them is launched: what fails already measures nothing."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tui.core.bench.measured_servers import ServerMeasured, measured_among
from tui.core.errors import EagletuiError, HostError, Slug
from tui.core.experiment.launching import Site
from tui.core.groups.session import GroupPlan
from tui.core.hints import Action, Hint
from tui.core.link.retry import Tell
from tui.core.server.finding import Finding, Level
from tui.core.server.launch import LaunchPlan


@dataclass(frozen=True)
class ArmAhead:
    """An arm as it would be launched now."""

    letter: str
    profile: str
    hosts: tuple[str, ...]
    plan: LaunchPlan | GroupPlan | None = None
    error: str | None = None  # why there is no plan

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Of all its hosts. A server of ours that is stopped for it is no reason against it."""
        if self.plan is None:
            return ()
        ours = {run.run_id for run in self.plan.replaces}
        stopped = (f.level is Level.BLOCK and f.run in ours for f in self.plan.findings)
        return tuple(
            replace(finding, level=Level.WARN, text=f"{finding.text}: it is stopped first", hint=None)
            if goes
            else finding
            for finding, goes in zip(self.plan.findings, stopped, strict=True)
        )

    @property
    def blocking(self) -> tuple[str, ...]:
        """What keeps it from being launched, whatever servers of ours are stopped for it."""
        if self.plan is None:
            return (self.error or "it cannot be planned",)
        return tuple(f.sentence for f in self.findings if f.level is Level.BLOCK)


class ArmsRefused(EagletuiError):
    """The experiment was not begun; `details` has every arm with its findings."""

    slug = Slug.PREFLIGHT

    def __init__(self, arms: tuple[ArmAhead, ...]) -> None:
        refused = [f"arm {arm.letter}, {arm.profile}: {'; '.join(arm.blocking)}" for arm in arms if arm.blocking]
        super().__init__("nothing was launched: " + "; ".join(refused), Hint(Action.FIX_FINDINGS))
        self.details = {"arms": [arm_json(arm) for arm in arms]}


def arm_json(arm: ArmAhead) -> dict[str, object]:
    """An arm as `experiment --dry-run --json` prints it."""
    return {
        "arm": arm.letter,
        "profile": arm.profile,
        "hosts": list(arm.hosts),
        "blocked": bool(arm.blocking),
        "blocking": list(arm.blocking),
        "findings": [finding.json() for finding in arm.findings],
    }


async def arms_ahead(sites: Mapping[str, Site], tell: Tell) -> tuple[ArmAhead, ...]:
    """A look at each arm, by letter, one after the other: two that listen on one port would be in each other's way.

    Lost links are waited for. Raises HostError.
    """
    return tuple([await _ahead(letter, site, tell) for letter, site in sites.items()])


async def _ahead(letter: str, site: Site, tell: Tell) -> ArmAhead:
    name, hosts = site.profile.name, tuple(site.groups.sessions)
    tell(f"pre-flight of arm {letter} on {', '.join(hosts)}")
    try:
        return ArmAhead(letter, name, hosts, await site.patiently(site.plan, tell))
    except HostError:
        raise
    except EagletuiError as error:
        return ArmAhead(letter, name, hosts, error=error.message)


def refused(arms: tuple[ArmAhead, ...]) -> None:
    """Raises ArmsRefused where an arm could not be launched."""
    if any(arm.blocking for arm in arms):
        raise ArmsRefused(arms)


def refused_or_measured(arms: tuple[ArmAhead, ...], own: Collection[str | None]) -> None:
    """As `refused`; raises ServerMeasured where an arm would stop a server that is being measured, but by the experiment itself.

    Args:
        own: ids of the experiment's own measurements.
    """
    refused(arms)
    for plan in (arm.plan for arm in arms if arm.plan is not None):
        for server, measurement in measured_among(plan.replaces, plan.seen):
            if measurement.run_id not in own:
                raise ServerMeasured(f"{server.run_id} on {server.host}", measurement)
