"""What is to be measured: a server of ours, somebody else's, or an address; and a look at it right before."""

import asyncio
import contextlib
import shlex
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from tui.core.bench.workload import Dataset
from tui.core.errors import EagletuiError, Slug, UsageError
from tui.core.groups.group_state import GroupState
from tui.core.groups.router import told_to
from tui.core.groups.session import GroupSession
from tui.core.hints import Action, Hint
from tui.core.link.transport import Transport
from tui.core.model.group import Group, Member, Role, group_of
from tui.core.model.phases import Outcome
from tui.core.model.run import Run
from tui.core.runs.foreign import listener
from tui.core.server.asking import LOOPBACK, Requests, address, api_key, error_words, tokens_brought, url_of
from tui.core.server.session import HostSession, settled_state
from tui.core.sglang.engine import SGLANG
from tui.core.text import as_text, as_whole, one_line, read_json

_LOOK_S = 20.0  # how long a look at a run may take
_GENERATION_S = 180.0  # a first request may compile kernels


@dataclass(frozen=True)
class Part:
    """A member of a group that is measured, beside the serving one."""

    member: Member
    url: str | None  # by which a router reaches it; of a rank None
    run: Run


@dataclass(frozen=True)
class Target:
    """A server, by an address that its host reaches; `run` where it is one that can be seen there.

    `pid` is its process on that host, None where it is not known. Of a group, address and run are its router's.
    """

    url: str
    run: Run | None = None
    pid: int | None = None
    through: Transport | None = None  # the way to its address; None = that of its host
    group: Group | None = None
    parts: tuple[Part, ...] = ()  # of the group, in its order

    @property
    def speaks(self) -> Part | None:
        """The part that says what the group is: the first decode, which makes the tokens."""
        return next((part for part in self.parts if part.member.role is Role.DECODE), None)

    @property
    def gpus(self) -> tuple[int, ...]:
        """Of the router's, or the server's, host."""
        if self.run is None:
            return ()
        beside = (gpu for part in self.parts if part.run.host == self.run.host for gpu in part.run.gpus)
        return (*self.run.gpus, *beside)

    @property
    def gpu_count(self) -> int | None:
        """On all hosts; None where it is not known."""
        runs = [part.run for part in self.parts]
        if self.run is not None and self.speaks is None:  # a router takes none
            runs.append(self.run)
        return sum(len(run.gpus) for run in runs) if runs and all(run.gpus for run in runs) else None

    @property
    def address(self) -> tuple[str, int, str]:
        """Host, port and path in front of everything."""
        return address(self.url)

    @property
    def log_path(self) -> str | None:
        """Of its log on the host, where it is a run with one."""
        return self.run.log_path if self.run else None

    def __str__(self) -> str:
        if self.group is not None:
            return self.group.group_id
        return self.run.run_id if self.run else self.url


@dataclass(frozen=True)
class Seen:
    """What a server said of itself right before it is measured."""

    api: str  # generate, chat: the way that answered
    kind: str | None = None  # sglang, vllm
    version: str | None = None
    model: str | None = None
    served: str | None = None  # the name that requests give the model
    vocab_size: int | None = None
    max_input: int | None = None  # tokens a request may have
    key: str | None = field(default=None, repr=False)


def of_run(run: Run) -> Target:
    """A run as a target. Raises UsageError where it is not a server, or its port is not known."""
    if run.kind != "server":
        raise UsageError(f"{run.run_id} is a {run.kind} run, not a server", "name a server", slug=Slug.UNKNOWN_RUN)
    if run.port is None:
        raise UsageError(f"the port of {run.run_id} is not known", "give its address with --url", slug=Slug.UNKNOWN_RUN)
    return Target(url_of(run.argv, run.port), run, run.pid)


async def of_member(session: HostSession, run: Run) -> Target:
    """A run as a target, of a group the whole group, where all of it is on this host.

    Raises EagletuiError where a group is not ready, UsageError as `of_run` and where it has other hosts.
    """
    group = group_of(run.extra)
    if group is None:
        return of_run(run)
    if group.hosts != (session.entry.name,):
        raise UsageError(
            f"{group.group_id} runs on {', '.join(group.hosts)}",
            f"measure it with eagletui bench NAME --run {group.group_id}",
        )
    return await of_group(GroupSession({session.entry.name: session}), group)


async def of_group(groups: GroupSession, group: Group) -> Target:
    """A group as a target: the member that serves, with those behind it. Raises EagletuiError where it is not ready."""
    latest: GroupState | None = None
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(_LOOK_S + (_GENERATION_S if group.serving.role is Role.ROUTER else 0.0)),
            contextlib.aclosing(groups.watch(group, end_others=False)) as updates,
        ):
            async for update in updates:
                latest = update.state
                if update.settled or latest.outcome is Outcome.READY:
                    break
    return of_state(group, latest)


def of_state(group: Group, latest: GroupState | None) -> Target:
    """The same of a group that is watched already, by what was last seen of it."""
    if latest is None or latest.outcome is not Outcome.READY:
        raise EagletuiError(
            f"{group.group_id} is not ready: {_why_not(latest)}", Hint(Action.WAIT, group.group_id), slug=Slug.NOT_READY
        )
    runs = {one.member: one.state.run for one in latest.members if one.state is not None}
    served = of_run(runs[group.serving])
    told = told_to(runs[group.serving].argv)
    urls = {role: [worker.url for worker in told if worker.role == role.value] for role in Role}
    parts = [
        Part(member, next(iter(urls[member.role][member.number :]), None), runs[member])
        for member in group.members
        if member != group.serving
    ]
    return replace(served, group=group, parts=tuple(parts))


def _why_not(state: GroupState | None) -> str:
    if state is None:
        return "nothing was heard of it"
    if state.failed is not None:
        return f"{state.failed.name} failed"
    starting = (one.member.name for one in state.members if one.state is None or one.state.outcome is not Outcome.READY)
    return state.waits_for or f"{next(starting, state.group.profile)} is {state.outcome}"


async def of_url(session: HostSession, url: str) -> Target:
    """An address as the host reaches it; where one of our runs there listens on it, that run.

    Raises UsageError where it is not an address.
    """
    text = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(text)
        port = parts.port or 80
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "http" or not parts.hostname or parts.query or not port:
        raise UsageError(
            f"{one_line(url, 80)!r} is not the address of a server",
            "write http://127.0.0.1:30000, as the host reaches it",
            slug=Slug.BAD_VALUE,
        )
    target = Target(text.rstrip("/"))
    if parts.hostname in LOOPBACK:
        holder = await listener(session.transport, port)
        if holder is None:
            return target
        named = holder.run_id or (f"foreign-{holder.pid}" if holder.pid else None)
        for run in await session.runs() if named else ():
            through = run.container is not None and run.container.publishes(port)  # its engine holds the port
            if (run.run_id == named or through) and run.kind == "server":
                if group_of(run.extra) is None:
                    return Target(target.url, run, run.pid)
                return replace(await of_member(session, run), url=target.url)
        return replace(target, pid=holder.pid)
    return target


async def the_ready_one(session: HostSession) -> Target:
    """The one ready server of ours on a host. Raises UsageError where there is none, or several."""
    ours = [run for run in await session.runs() if run.kind == "server" and run.active and not run.foreign]
    ours = [run for run in ours if (group := group_of(run.extra)) is None or group.serving.run_id == run.run_id]
    states = [await _outcome(session, run) for run in ours]
    ready = [run for run, (outcome, _) in zip(ours, states, strict=True) if outcome is Outcome.READY]
    host = session.entry.name
    if len(ready) == 1:
        return await of_member(session, ready[0])
    if ready:
        named = ", ".join(f"{run.short_id} ({run.profile}, port {run.port})" for run in ready)
        raise UsageError(
            f"{len(ready)} servers are ready on {host}: {named}", "choose one with --run", slug=Slug.AMBIGUOUS_RUN
        )
    if ours:
        run, (outcome, phase) = ours[0], states[0]
        raise EagletuiError(
            f"no server of ours is ready on {host}: {run.run_id} is {outcome}, in {phase}",
            Hint(Action.WAIT, run.short_id),
            slug=Slug.NOT_READY,
        )
    raise UsageError(f"no server of ours runs on {host}", Hint(Action.LAUNCH), slug=Slug.UNKNOWN_RUN)


async def _outcome(session: HostSession, run: Run) -> tuple[Outcome, str]:
    """Outcome and phase once the log has been read to its present end."""
    state = await settled_state(session, run, _LOOK_S)
    return (state.outcome, state.phase.replace("_", " ")) if state is not None else (Outcome.UNKNOWN, "")


async def look(session: HostSession, target: Target, data: Dataset) -> Seen:
    """Readiness, what the server is, and one real short generation by the interface that will be measured.

    Raises:
        EagletuiError: it is not ready, does not generate, or wants a key.
        UsageError: it cannot take such data.
    """
    if target.run is not None and target.group is None:  # of a group, `of_group` has looked
        outcome, phase = await _outcome(session, target.run)
        if outcome is not Outcome.READY:
            raise EagletuiError(
                f"{target.run.run_id} is not ready: {outcome}, in {phase}",
                Hint(Action.WAIT, target.run.short_id),
                slug=Slug.NOT_READY,
            )
    part = target.speaks
    key = await api_key(session.transport, part.run if part and part.run.host == session.entry.name else target.run)
    server = Requests(target.through or session.transport, target.url, key, str(target))
    said_by = Requests(session.transport, part.url, key, part.member.name) if part and part.url else server
    info = await said_by.document(*SGLANG.endpoints.info)
    models = await server.document(SGLANG.endpoints.models)
    model = as_text(info.get("served_model_name")) or _first_model(models)
    kind = SGLANG.kind if "version" in info else None
    if kind is None and (version := (await server.document("/version")).get("version")):
        kind, info = "vllm", {"version": version}
    if data.has_ids and kind != SGLANG.kind:
        raise UsageError(
            f"{target} is not an SGLang server: it takes no token ids",
            'measure it with dataset = "prompts"',
            slug=Slug.NO_ENDPOINT,
        )
    path = as_text(info.get("model_path"))
    return Seen(
        api=await _generates(target, server, data, kind, model),
        kind=kind,
        version=as_text(info.get("version")),
        model=path or model,
        served=model,
        vocab_size=await _vocab_size(session.way, path) if data.kind == "random-ids" else None,
        max_input=as_whole(info.get("max_req_input_len")),
        key=server.key,
    )


async def _generates(target: Target, server: Requests, data: Dataset, kind: str | None, model: str | None) -> str:
    """One short greedy generation: the interface that answered, chat where the data is text, for its template."""
    chat: dict[str, object] = {
        "model": model or "default",
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 8,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    plain: dict[str, object] = {
        "text": "Say hello.",
        "sampling_params": {"max_new_tokens": 8, "temperature": 0},
        "stream": True,
    }
    ways = [] if data.has_ids else [("chat", SGLANG.endpoints.chat, chat)]
    if kind == SGLANG.kind and not data.needs_chat:
        ways.append(("generate", SGLANG.endpoints.generate, plain))
    said = "it has no such endpoint"
    for name, path, body in ways:
        answer = await server.ask("POST", path, body, _GENERATION_S)
        if answer.status == 200 and tokens_brought(answer.body):
            return name
        said = f"POST {path} gives {answer.status}: {error_words(answer.body)}"
    raise EagletuiError(
        f"{target} does not generate: {said}", "send such a request by hand, and read its log", slug=Slug.NOT_GENERATING
    )


async def _vocab_size(transport: Transport, model: str | None) -> int | None:
    """Of a model whose config.json lies on the host."""
    if model is None:
        return None
    cached = "models--" + model.replace("/", "--")
    script = (
        "root=${EAGLETUI_FS_ROOT-}\n"
        "hub=${HF_HUB_CACHE:-${HF_HOME:-$HOME/.cache/huggingface}/hub}\n"
        f'for f in "$root"{shlex.quote(model)}/config.json {shlex.quote(model)}/config.json '
        f'"$hub"/{shlex.quote(cached)}/snapshots/*/config.json; do\n'
        '  [ -f "$f" ] && { cat "$f"; exit 0; }\ndone\nexit 0\n'
    )
    done = await transport.run(script)
    try:
        config = read_json(done.stdout)
    except ValueError:
        return None
    if not isinstance(config, dict):
        return None
    inner = config.get("text_config")
    return as_whole(config.get("vocab_size")) or (
        as_whole(inner.get("vocab_size")) if isinstance(inner, dict) else None
    )


def _first_model(models: dict[str, Any]) -> str | None:
    listed = models.get("data")
    first = listed[0] if isinstance(listed, list) and listed else None
    return as_text(first.get("id")) if isinstance(first, dict) else None
