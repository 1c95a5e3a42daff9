"""What is to be measured: a server of ours, somebody else's, or an address; and a look at it right before."""

import json
import os
import shlex
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from tui.core.bench.server_args_check import asked_flags
from tui.core.bench.workload import KEY_VARIABLE, Dataset
from tui.core.errors import EagletuiError, HostError, Slug, UsageError
from tui.core.hints import Action, Hint
from tui.core.link.http import request
from tui.core.link.scripts import shell_path
from tui.core.link.transport import HttpResponse, Transport
from tui.core.model.phases import Outcome
from tui.core.model.run import Run
from tui.core.runs.foreign import listener
from tui.core.runs.request import SECRET_ARGS_FILE
from tui.core.server.session import HostSession, settled_state
from tui.core.sglang.engine import SGLANG
from tui.core.text import as_text, as_whole, one_line, read_json

_LOOK_S = 20.0  # how long a look at a run may take
_GENERATION_S = 180.0  # a first request may compile kernels
_LOOPBACK = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::")


@dataclass(frozen=True)
class Target:
    """A server, by an address that its host reaches; `run` where it is one that can be seen there.

    `pid` is its process on that host, None where it is not known.
    """

    url: str
    run: Run | None = None
    pid: int | None = None
    through: Transport | None = None  # the way to its address; None = that of its host

    @property
    def address(self) -> tuple[str, int, str]:
        """Host, port and path in front of everything."""
        parts = urlsplit(self.url)
        return parts.hostname or "127.0.0.1", parts.port or 80, parts.path.rstrip("/")

    @property
    def log_path(self) -> str | None:
        """Of its log on the host, where it is a run with one."""
        return self.run.log_path if self.run else None

    def __str__(self) -> str:
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
    host = str(asked_flags(run.argv).get("host") or "127.0.0.1")
    if host in _LOOPBACK:
        host = "127.0.0.1"
    return Target(f"http://{f'[{host}]' if ':' in host else host}:{run.port}", run, run.pid)


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
    if parts.hostname in _LOOPBACK:
        holder = await listener(session.transport, port)
        if holder is None:
            return target
        named = holder.run_id or (f"foreign-{holder.pid}" if holder.pid else None)
        for run in await session.runs() if named else ():
            if run.run_id == named and run.kind == "server":
                return Target(target.url, run, run.pid)
        return replace(target, pid=holder.pid)
    return target


async def the_ready_one(session: HostSession) -> Target:
    """The one ready server of ours on a host. Raises UsageError where there is none, or several."""
    ours = [run for run in await session.runs() if run.kind == "server" and run.active and not run.foreign]
    states = [await _outcome(session, run) for run in ours]
    ready = [run for run, (outcome, _) in zip(ours, states, strict=True) if outcome is Outcome.READY]
    host = session.entry.name
    if len(ready) == 1:
        return of_run(ready[0])
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
    if target.run is not None:
        outcome, phase = await _outcome(session, target.run)
        if outcome is not Outcome.READY:
            raise EagletuiError(
                f"{target.run.run_id} is not ready: {outcome}, in {phase}",
                Hint(Action.WAIT, target.run.short_id),
                slug=Slug.NOT_READY,
            )
    server = _Requests(session, target, await _api_key(session, target))
    info = await server.document(*SGLANG.endpoints.info)
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
        api=await server.generates(data, kind, model),
        kind=kind,
        version=as_text(info.get("version")),
        model=path or model,
        served=model,
        vocab_size=await _vocab_size(session, path) if data.kind == "random-ids" else None,
        max_input=as_whole(info.get("max_req_input_len")),
        key=server.key,
    )


class _Requests:
    """Requests to a target, by its host."""

    def __init__(self, session: HostSession, target: Target, key: str | None) -> None:
        self._session, self._target, self.key = session, target, key

    async def ask(self, method: str, path: str, body: object = None, timeout_s: float = 20.0) -> HttpResponse:
        host, port, prefix = self._target.address
        headers = {"accept": "application/json", "content-type": "application/json"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        data = json.dumps(body).encode() if body is not None else b""
        try:
            answer = await request(
                self._target.through or self._session.transport,
                method,
                port,
                prefix + path,
                host=host,
                headers=headers,
                body=data,
                timeout_s=timeout_s,
            )
        except HostError as error:
            if error.slug != Slug.REFUSED:
                raise
            raise EagletuiError(
                f"nothing answers at {self._target.url} on {self._session.entry.name}",
                "is the server up, and on this port?",
                slug=Slug.UNREACHABLE,
            ) from None
        if answer.status == 401:
            raise EagletuiError(
                f"{self._target} wants an API key" + (", and not this one" if self.key else ""),
                f"set {KEY_VARIABLE} to it",
                slug=Slug.UNAUTHORIZED,
            )
        return answer

    async def document(self, *paths: str) -> dict[str, Any]:
        """The JSON object at the first path that has one; {} where none has."""
        for path in paths:
            answer = await self.ask("GET", path)
            if answer.status == 200:
                try:
                    found = read_json(answer.body)
                except ValueError:
                    continue
                if isinstance(found, dict):
                    return found
        return {}

    async def generates(self, data: Dataset, kind: str | None, model: str | None) -> str:
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
            answer = await self.ask("POST", path, body, _GENERATION_S)
            if answer.status == 200 and _brought_tokens(answer.body):
                return name
            said = f"POST {path} gives {answer.status}: {_error_words(answer.body)}"
        raise EagletuiError(
            f"{self._target} does not generate: {said}",
            "send such a request by hand, and read its log",
            slug=Slug.NOT_GENERATING,
        )


def _brought_tokens(body: bytes) -> bool:
    """Whether an event stream has brought at least one token, as it counts them itself."""
    for line in body.splitlines():
        try:
            document = read_json(line.removeprefix(b"data: "))
        except ValueError:
            continue
        for part in ("meta_info", "usage") if isinstance(document, dict) else ():
            counts = document.get(part)
            if isinstance(counts, dict) and as_whole(counts.get("completion_tokens")):
                return True
    return False


def _error_words(body: bytes) -> str:
    text = body.decode("utf-8", "replace")
    try:
        document = read_json(text)
    except ValueError:
        return one_line(text, 160)
    while isinstance(document, dict):
        document = next((document[k] for k in ("error", "message", "detail") if document.get(k)), str(document))
    return one_line(str(document), 160)


async def _api_key(session: HostSession, target: Target) -> str | None:
    """From the environment here, else from the file that the server of ours itself was given."""
    given = os.environ.get(KEY_VARIABLE)
    if given or target.run is None or target.run.directory is None:
        return given or None
    path = f"{target.run.directory}/{SECRET_ARGS_FILE.name}"
    done = await session.transport.run(f"cat {shell_path(path)} 2>/dev/null; exit 0")
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "api-key":
            try:
                return str(read_json(value))
            except ValueError:
                return None
    return None


async def _vocab_size(session: HostSession, model: str | None) -> int | None:
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
    done = await session.transport.run(script)
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
