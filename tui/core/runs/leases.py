"""Leases: the right of an experiment to GPUs of a host, between its launches too, against everybody who uses `eagletui` there.

The host keeps it (`tui/remote/eaglerun.sh`): it names its holder, survives whoever took it, and lapses when it was not renewed
for five minutes while nothing of it runs. docs/runs.md describes it.
"""

import os
import re
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass

from tui.core.errors import EagletuiError, Slug, TimedOut
from tui.core.hints import Action, Hint
from tui.core.link.transport import Transport
from tui.core.runs.helper import Fields, call, iso_time, number
from tui.core.runs.request import requester
from tui.core.text import one_line

RENEW_S = 60.0  # a lease counts as lapsed for its holder after 240 s, for everybody else after 300

# The lease that launches of this task belong to: the only ones that it does not keep out.
holding: ContextVar[str] = ContextVar("holding", default="")


@dataclass(frozen=True)
class Lease:
    """A lease as the host says it."""

    lease_id: str  # of an experiment its id
    gpus: tuple[int, ...]  # (): all
    by: str  # user@machine
    pid: int | None  # there
    namespace: str  # of PIDs, of that process; "" where its system has none
    words: str  # the command
    since: str | None  # ISO 8601 UTC
    idle_s: int | None  # since its last renewal

    @classmethod
    def of(cls, fields: Fields) -> "Lease":
        """Of a line of the helper; its texts are somebody else's."""
        pid, _, namespace = fields.get("pid", "").partition(":")
        return cls(
            one_line(fields.get("id", ""), 100),
            tuple(int(gpu) for gpu in fields.get("gpus", "").split(",") if gpu.isdigit()),
            one_line(fields.get("by", ""), 80),
            number(pid),
            namespace,
            one_line(fields.get("words", ""), 120),
            iso_time(fields.get("since")),
            number(fields.get("idle")),
        )

    @property
    def holder(self) -> str:
        """Who has it: command, user, machine, process, since when, last sign of life."""
        pid = f", PID {self.pid} there" if self.pid is not None else ""
        since = f", since {self.since}" if self.since else ""
        idle = f", last sign of life {self.idle_s} s ago" if self.idle_s is not None else ""
        return f"{self.words} ({self.lease_id}) of {self.by}{pid}{since}{idle}"

    @property
    def hint(self) -> Hint:
        return Hint(Action.WAIT_FOR_LEASE, self.words)

    @property
    def abandoned(self) -> bool:
        """Whether a process of this very machine took it, and has ended."""
        if self.by != requester(None) or self.pid is None or self.namespace != _namespace():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            pass
        return False

    def meets(self, gpus: Sequence[int]) -> bool:
        return bool(gpus) and (not self.gpus or bool(set(self.gpus) & set(gpus)))

    def __str__(self) -> str:
        return f"{gpu_words(self.gpus)} held by {self.holder}"


class Held(EagletuiError):
    """Somebody else's experiment has the GPUs."""

    slug = Slug.BUSY

    def __init__(self, host: str, lease: Lease) -> None:
        self.lease = lease
        super().__init__(f"{host}: {lease}", lease.hint)


def gpu_words(gpus: Sequence[int]) -> str:
    if not gpus:
        return "all GPUs are"
    return f"GPU {gpus[0]} is" if len(gpus) == 1 else f"GPUs {','.join(map(str, gpus))} are"


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")
    except OSError:
        return ""


async def take(transport: Transport, lease_id: str, gpus: Sequence[int], words: str) -> tuple[Lease, ...]:
    """Takes a lease on GPUs (none named: on all of the host), or renews it: whoever has its id has it at once.

    Returns those that had lapsed and gave way to it. Raises Held where somebody else has one of the GPUs; HostError.
    """
    listed = ",".join(map(str, sorted(set(gpus)))) or "all"
    plain = [re.sub(r"[^A-Za-z0-9._@:, +-]", "_", text)[:100] for text in (requester(None), words)]
    answer = await call(transport, "lease", lease_id, listed, plain[0], f"{os.getpid()}:{_namespace()}", plain[1])
    for busy in answer.named("busy"):
        raise Held(transport.host, Lease.of(busy))
    return tuple(map(Lease.of, answer.named("took")))


async def give_back(transport: Transport, lease_id: str) -> None:
    """Ends a lease of ours, whoever of us took it."""
    await call(transport, "unlease", lease_id)


async def on_host(transport: Transport) -> tuple[Lease, ...]:
    """All leases that hold on a host, of all users; without the one that this task holds. A host that hangs says none."""
    try:
        answer = await call(transport, "leases")
    except TimedOut:
        return ()
    found = map(Lease.of, answer.named("lease"))
    return tuple(lease for lease in found if lease.lease_id != holding.get())
