"""Whether the router of a group really serves: what it was told, what it says of its workers, one request through it.

Its /health is 200 from its first second on, without a worker; /readiness is 200 as soon as one prefill and one decode are
healthy; and it passes on whatever bootstrap port it was told, which no answer of its own ever shows to be wrong. A worker
that dies stays healthy in /workers for up to three checks, a minute apart: that is seen at the worker. (sglang-router 0.3.2)
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from tui.core.errors import EagletuiError
from tui.core.groups.group_state import Condition, GroupState
from tui.core.model.group import Group, Member, Role
from tui.core.model.phases import Outcome
from tui.core.model.run import Run
from tui.core.profiles.roles import BOOTSTRAP_PORT
from tui.core.runs.foreign import port_belongs_to
from tui.core.server.asking import Requests, api_key, error_words, tokens_brought, url_of
from tui.core.server.session import HostSession
from tui.core.sglang.engine import SGLANG
from tui.core.text import as_text, as_whole, one_line, read_json

_GENERATION_S = 180.0  # a first request may compile kernels
_AGAIN_S = 10.0  # between requests of ours that were not answered
_READINESS = "the router's /readiness"
_REQUEST = "a request through the router"


@dataclass(frozen=True)
class Worker:
    """A prefill or decode server as a router knows it."""

    url: str
    role: str  # prefill, decode, regular
    bootstrap_port: int | None = None
    healthy: bool | None = None  # None: of the command line, which says nothing of it


def told_to(argv: Sequence[str]) -> tuple[Worker, ...]:
    """The workers that a router's command line names: `--prefill URL [PORT|none]`, `--decode URL`."""
    found = []
    words = [part for word in argv for part in _split(word)]
    for at, (flag, url) in enumerate(pairwise(words)):
        if flag == "--decode":
            found.append(Worker(url.rstrip("/"), "decode"))
        elif flag == "--prefill":
            port = words[at + 2] if at + 2 < len(words) else ""
            found.append(Worker(url.rstrip("/"), "prefill", int(port) if port.isdigit() else None))
    return tuple(found)


def _split(word: str) -> list[str]:
    name, equals, value = word.partition("=")
    return [name, value] if equals and name in ("--prefill", "--decode") else [word]


def workers_in(body: bytes) -> tuple[Worker, ...]:
    """The answer of a router's /workers: an object with `workers`, each with url, worker_type, is_healthy and, of a
    prefill that was told one, bootstrap_port.

    Raises ValueError.
    """
    document = read_json(body)
    listed = document.get("workers") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it has no workers")
    return tuple(
        Worker(
            url=(as_text(one.get("url")) or "").rstrip("/"),
            role=as_text(one.get("worker_type"), 40) or "unknown",
            bootstrap_port=as_whole(one.get("bootstrap_port")),
            healthy=one.get("is_healthy") is True,
        )
        for one in listed
        if isinstance(one, dict)
    )


def listed_right(
    member: Member, told: Worker | None, bootstrap_port: int | None, listed: Iterable[Worker]
) -> Condition:
    """Whether the router knows a member as what it is.

    Args:
        told: what the router was launched with for it; None: nothing.
        bootstrap_port: on which a prefill takes decode servers, by its own word.
        listed: the router's /workers.
    """
    text = f"{member.name} as the router knows it"
    if told is None:
        return Condition(text, False, "the router was launched without it")
    found = next((worker for worker in listed if worker.url == told.url), None)
    if found is None:
        return Condition(text, False, f"{told.url} is not among its workers yet")
    if found.role != member.role.value:
        return Condition(text, False, f"{told.url} is a {found.role} worker there")
    if member.role is Role.PREFILL and (wrong := wrong_bootstrap_port(member, found.bootstrap_port, bootstrap_port)):
        return Condition(text, False, wrong)
    if not found.healthy:
        return Condition(text, False, f"{told.url} is not healthy there")
    return Condition(text, True, told.url)


def wrong_bootstrap_port(member: Member, told: int | None, own: int | None) -> str | None:
    """What is wrong with the bootstrap port that a router sends along; None where nothing is.

    A request without one is taken for SGLang's default, or the decode server's own flag.
    """
    right = BOOTSTRAP_PORT if own is None else own
    if told == right:
        return None
    sent = "no bootstrap port" if told is None else f"bootstrap port {told}"
    return f"the router sends {sent} along, {member.name} listens on {right}"


class RouterReadiness:
    """What must hold of a group with a router beside its members; asked again and again until it does.

    Nothing is asked before all members are ready by themselves: each answer of 503 is an error in the router's log.
    """

    def __init__(self, sessions: Mapping[str, HostSession], group: Group) -> None:
        self._sessions = sessions
        self._workers = [one for one in group.members if one.role in (Role.PREFILL, Role.DECODE)]
        self._router = group.serving
        self._bootstrap: dict[Member, int] = {}
        self._answered: Condition | None = None
        self._ask_again_at = 0.0  # time.monotonic()

    @classmethod
    def of(cls, sessions: Mapping[str, HostSession], group: Group) -> "RouterReadiness | None":
        """None of a group without a router."""
        return cls(sessions, group) if group.serving.role is Role.ROUTER else None

    async def __call__(self, state: GroupState) -> tuple[Condition, ...]:
        """The conditions, in the order in which they come to hold. Raises LinkLost, HostError."""
        runs = {one.member: one.state.run for one in state.members if one.state is not None and not one.link_lost}
        ready = {one.member for one in state.members if one.state and one.state.outcome is Outcome.READY}
        waits = [one.member.name for one in state.members if one.member not in ready & set(runs)]
        if waits:
            return self._not_asked(f"asked once {', '.join(waits)} {'is' if len(waits) == 1 else 'are'} ready")
        router = runs[self._router]
        server = await self._requests(self._router, router)
        try:
            readiness = await server.ask("GET", "/readiness")
            listed = workers_in((await server.ask("GET", "/workers")).body)
        except ValueError as error:
            return self._not_asked(f"its /workers cannot be read: {one_line(str(error), 80)}")
        except EagletuiError as error:
            return self._not_asked(error.message)
        said = (
            str(readiness.status) if readiness.status == 200 else f"{readiness.status}: {error_words(readiness.body)}"
        )
        told = told_to(router.argv)
        conditions = [Condition(_READINESS, readiness.status == 200, said)]
        for member in self._workers:
            conditions.append(await self._worker(member, runs[member], told, listed))
        if not all(one.holds for one in conditions):
            return (*conditions, Condition(_REQUEST, None, "sent once the others hold"))
        return (*conditions, await self._request(server))

    def _not_asked(self, why: str) -> tuple[Condition, ...]:
        names = [_READINESS, *(f"{member.name} as the router knows it" for member in self._workers), _REQUEST]
        return tuple(Condition(name, None, why if name == _READINESS else None) for name in names)

    async def _requests(self, member: Member, run: Run) -> Requests:
        """To a member. Of the router's own flags no file is kept: its workers have the same key."""
        transport = self._sessions[member.host].transport
        return Requests(transport, url_of(run.argv, run.port or 0), await api_key(transport, run), member.name)

    async def _worker(self, member: Member, run: Run, told: Sequence[Worker], listed: Sequence[Worker]) -> Condition:
        of_role = [worker for worker in told if worker.role == member.role.value]
        own = of_role[member.number] if member.number < len(of_role) else None
        if member.role is not Role.PREFILL:
            return listed_right(member, own, None, listed)
        port = await self._bootstrap_port(member, run)
        condition = listed_right(member, own, port, listed)
        if not condition.holds:
            return condition
        transport = self._sessions[member.host].transport
        if await port_belongs_to(transport, replace(run, port=port)) is False:
            return replace(
                condition, holds=False, detail=f"nothing of {member.name} listens on its bootstrap port {port}"
            )
        return condition

    async def _bootstrap_port(self, member: Member, run: Run) -> int:
        """As the server itself has it (SGLang's Rust server moves it to its own port), else as it was launched."""
        if member not in self._bootstrap:
            given = [value for name, value in pairwise(run.argv) if name == "--disaggregation-bootstrap-port"]
            launched = int(given[-1]) if given and given[-1].isdigit() else BOOTSTRAP_PORT
            info = await (await self._requests(member, run)).document(*SGLANG.endpoints.info)
            self._bootstrap[member] = as_whole(info.get("disaggregation_bootstrap_port")) or launched
        return self._bootstrap[member]

    async def _request(self, server: Requests) -> Condition:
        """One short generation; once answered, it stays so."""
        if self._answered is not None and (self._answered.holds or time.monotonic() < self._ask_again_at):
            return self._answered
        body = {"text": "Say hello.", "sampling_params": {"max_new_tokens": 4, "temperature": 0}, "stream": True}
        begun = time.monotonic()
        try:
            answer = await server.ask("POST", SGLANG.endpoints.generate, body, _GENERATION_S)
        except EagletuiError as error:
            self._answered = Condition(_REQUEST, False, error.message)
        else:
            tokens = tokens_brought(answer.body) if answer.status == 200 else 0
            said = f"{tokens} token{'s' if tokens != 1 else ''} after {time.monotonic() - begun:.1f} s"
            if answer.status != 200:
                said = f"POST {SGLANG.endpoints.generate} gives {answer.status}: {error_words(answer.body)}"
            self._answered = Condition(_REQUEST, tokens > 0, said)
        self._ask_again_at = time.monotonic() + _AGAIN_S
        return self._answered
