"""A launch from its plan to its run: what was checked, what is stopped for it, and how far it has come."""

import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Protocol

from tui.core.errors import EagletuiError, Slug
from tui.core.hints import Action, Hint
from tui.core.host.gpus import HostFacts
from tui.core.model.group import Group, Role, member_of
from tui.core.model.run import Run, RunState
from tui.core.profiles.command import LaunchCommand
from tui.core.profiles.difference import difference_to_parent
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.secrets import public_env, public_sets
from tui.core.runs.request import LaunchRequest, new_run_id
from tui.core.server import launch_records
from tui.core.server.finding import Finding, Level
from tui.core.server.gpu_claim import claimed_gpus
from tui.core.server.launch_records import LaunchRecord
from tui.core.server.stop import StopProgress

_FRESH_S = 5.0  # GPUs, port and runs are not checked again within that time


@dataclass(frozen=True)
class LaunchPlan:
    """A launch that was checked but not made."""

    profile: LaunchProfile
    command: LaunchCommand
    findings: tuple[Finding, ...]
    facts: HostFacts
    sets: Mapping[str, object] | None = None
    replaces: tuple[Run, ...] = ()  # our live servers on its GPUs or its port: what a launch with `replace` stops
    flags: frozenset[str] | None = None  # of the host's SGLang; None: not known
    checked_at: float = float("-inf")  # time.monotonic() of the findings
    seen: tuple[Run, ...] = ()  # all runs of its host then

    @property
    def blocked(self) -> bool:
        return any(finding.level is Level.BLOCK for finding in self.findings)

    def blocked_without(self, runs_gone: Iterable[str]) -> bool:
        """Whether it would be blocked even if these runs were gone."""
        gone = set(runs_gone)
        return any(f.level is Level.BLOCK and f.run not in gone for f in self.findings)


class LaunchStep(StrEnum):
    PLANNED = "planned"
    STOPPING = "stopping"
    STOPPED = "stopped"
    STARTED = "started"


@dataclass(frozen=True)
class LaunchProgress:
    """How far a launch has come; the last one is `started`, with its run."""

    step: LaunchStep
    text: str  # a sentence
    run: Run | None = None  # stopping, stopped: the one that makes room; started: the new one
    stop: StopProgress | None = None  # of a run that is stopped


class Planned(Protocol):
    """What was checked before a launch: of one server, or of a group."""

    @property
    def findings(self) -> tuple[Finding, ...]: ...


class PreflightFailed(EagletuiError):
    """The launch was not made; `details` carries every finding."""

    slug = Slug.PREFLIGHT

    def __init__(self, plan: Planned) -> None:
        blocking = [finding for finding in plan.findings if finding.level is Level.BLOCK]
        self.ours = all(finding.run for finding in blocking)  # only runs of ours are in the way
        replaceable = any(finding.run for finding in blocking)
        super().__init__(
            "not launched: " + "; ".join(f.sentence for f in blocking),
            next((f.hint for f in blocking if f.hint), Hint(Action.REPLACE if replaceable else Action.FIX_FINDINGS)),
        )
        self.details = {"findings": [finding.json() for finding in plan.findings]}


async def steps(
    plan: LaunchPlan,
    *,
    replace: bool,
    check: Callable[[LaunchPlan], Awaitable[LaunchPlan]],
    stop: Callable[[Run], AsyncIterator[StopProgress]],
    start: Callable[[LaunchPlan], Awaitable[Run]],
) -> AsyncGenerator[LaunchProgress, None]:
    """Carries out a plan; the only way to launch or to replace. Raises PreflightFailed where it is blocked.

    With `replace`, our servers in its way are stopped first, unless something else blocks it all the same: a server
    is never stopped for a launch that cannot happen.

    Args:
        check: a plan again, with what is true now.
        stop: stops a run.
        start: starts what was planned, at most once.
    """
    name = plan.profile.name
    if replace:
        if time.monotonic() - plan.checked_at > _FRESH_S:
            plan = await check(plan)
        if plan.blocked_without(run.run_id for run in plan.replaces):
            raise PreflightFailed(plan)
        first = f"stopping {', '.join(run.short_id for run in plan.replaces)}, then " if plan.replaces else ""
        yield LaunchProgress(LaunchStep.PLANNED, f"{first}launching {name}")
        for run in plan.replaces:
            yield LaunchProgress(
                LaunchStep.STOPPING,
                f"stopping {run.short_id}",
                run,
                StopProgress("requested", f"asking {run.short_id} to stop"),
            )
            async for progress in stop(run):
                step = LaunchStep.STOPPED if progress.done else LaunchStep.STOPPING
                yield LaunchProgress(step, f"stopping {run.short_id}: {progress.text}", run, progress)
        if plan.replaces:
            plan = await check(plan)
    if plan.blocked:
        raise PreflightFailed(plan)
    yield LaunchProgress(LaunchStep.PLANNED, f"launching {name}")
    run = await start(plan)
    yield LaunchProgress(LaunchStep.STARTED, f"started {run.run_id}", run)


async def started(launch: AsyncGenerator[LaunchProgress, None], tell: Callable[[str], None] | None = None) -> Run:
    """The run of a launch, once it is carried out; `tell` hears the texts of what is stopped for it."""
    run: Run | None = None
    async with aclosing(launch) as progress:
        async for step in progress:
            run = step.run
            if tell is not None and step.stop is not None:
                tell(step.text)
    assert run is not None
    return run


def in_the_way(profile: LaunchProfile, command: LaunchCommand, found: Iterable[Run]) -> tuple[Run, ...]:
    """Our live servers on the GPUs or the port of a launch."""
    wanted = set(claimed_gpus(profile))

    def meets(run: Run) -> bool:
        """Without a list a server takes the GPUs from 0 on, and two such servers meet there; a router takes none."""
        member = member_of(run.run_id, run.extra)
        if profile.gpus == () or (member is not None and member.role is Role.ROUTER):
            return False
        return not wanted or not run.gpus or bool(wanted & set(run.gpus))

    return tuple(
        run
        for run in found
        if run.kind == "server"
        and run.active
        and run.state not in (RunState.FOREIGN, RunState.UNKNOWN)
        and (run.port == command.port or meets(run))
    )


def request_of(
    command: LaunchCommand, profile: str, run_id: str, extra: Mapping[str, object], gpus: tuple[int, ...] = ()
) -> LaunchRequest:
    """What a host is asked for where it starts a command as a server."""
    return LaunchRequest(
        run_id=run_id,
        kind="server",
        profile=profile,
        argv=(*command.argv, *command.open_words),
        env=command.env,
        cwd=command.cwd,
        secret_env=command.secret_env,
        secret_args=command.secret_args,
        port=command.port,
        gpus=gpus,
        notes=command.notes,
        extra=dict(extra),
        hide=tuple(command.open_args.values()),
    )


def record_of(
    profile: LaunchProfile,
    run_id: str,
    host: str,
    sets: Mapping[str, object] | None,
    facts: HostFacts | None = None,
    **more: Any,
) -> LaunchRecord:
    """The record of a server that is about to be launched.

    Args:
        sets: what was changed for this launch.
        facts: of the host; None: not asked.
        more: further fields.
    """
    model = profile.arg("model-path")
    facts = facts or HostFacts()
    return LaunchRecord(
        run_id=run_id,
        host=host,
        kind="server",
        profile=profile.name,
        launched_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        sets=public_sets(sets or {}),
        model=model if isinstance(model, str) else None,
        args=profile.public_args,
        env=public_env(profile.env),
        extends=profile.extends,
        difference=difference_to_parent(profile),
        gpu_names=facts.gpu_names,
        driver=facts.driver,
        sglang=facts.sglang,
        torch=facts.torch,
        **more,
    )


def prepare(plan: LaunchPlan, host: str, run_id: str | None, group: Group | None = None) -> LaunchRequest:
    """What the host is asked to start; recorded here before it is asked, so that no lost link loses the run's id.

    Args:
        group: the one that the run is a member of.
    """
    of_group = {} if group is None else {"group": group.extra()}
    profile, command = plan.profile, plan.command
    run_id = run_id or new_run_id(profile.name)
    sets = public_sets(plan.sets or {})
    request = request_of(command, profile.name, run_id, {"sets": sets, **of_group}, claimed_gpus(profile))
    warm = next((f.warm for f in plan.findings if f.warm is not None), None)
    more = {"port": command.port, "group": of_group.get("group"), "warm": warm}
    launch_records.begin(record_of(profile, run_id, host, plan.sets, plan.facts, **more))
    return request
