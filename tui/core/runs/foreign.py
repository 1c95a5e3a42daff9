"""Servers that others started, and who listens on a port: what the host's process table and sockets tell.

A foreign server is watched only. It is known by its command line (SGLang, vLLM), never by its log.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tui.core.link.transport import Transport
from tui.core.masking.written import learn_words
from tui.core.model.run import InContainer, PortHolder, Run, RunState
from tui.core.runs.adopted import known_containers
from tui.core.runs.helper import Answer, call, iso_stamp, iso_time, number
from tui.core.text import one_line, sanitize

ID_PREFIX = "foreign-"  # of their ids; the PID of the topmost process follows
_TITLES = ("sglang::", "VLLM::", "vllm::")  # that processes of a server give themselves
LOOPING_ENGINES = "docker nerdctl"  # podman starts a container again at once
_ENTRY_WORDS = 5  # of an image's entry point, in front of the server's
_SERVER_TEXT = re.compile(r"sglang(\.launch_server|\s+serve)|vllm\.entrypoints|vllm\s+serve")
_CONTAINERS = frozenset(["docker", "podman", "nerdctl", "kubectl", "srun", "ssh", "lxc-attach", "machinectl"])


@dataclass(frozen=True)
class _Process:
    pid: int
    start: int
    ppid: int
    session: int
    user: str
    argv: tuple[str, ...]


@dataclass(frozen=True)
class _Listening:
    address: str  # as /proc/net has it, hexadecimal
    port: int
    uid: int
    inode: str

    @property
    def answers_loopback(self) -> bool:
        """Whether a connection to 127.0.0.1 or ::1 may reach it."""
        return (
            set(self.address) == {"0"}
            or self.address in ("0100007F", "00000000000000000000000001000000")
            or self.address == "0000000000000000FFFF00000100007F"
        )


@dataclass(frozen=True)
class _Loop:
    """A container that is dead between two starts."""

    started_at: str  # the last time, as its engine writes it
    argv: tuple[str, ...]


def _loop(fields: Sequence[str]) -> _Loop | None:
    """Of a line `loop ID STARTED PATH ARGS`, the last two as JSON; None where it runs something else than a server."""
    started, _, rest = " ".join(fields[2:]).partition(" ")
    try:
        path, end = json.JSONDecoder().raw_decode(rest)
        words = [str(word) for word in (path, *(json.loads(rest[end:]) or ()))]
    except (ValueError, TypeError, RecursionError):
        return None
    for at in range(min(len(words), _ENTRY_WORDS)):
        if is_server(words[at:]):
            return _Loop(started, tuple(words[at:]))
    return _Loop(started, tuple(words)) if any(_SERVER_TEXT.search(word) for word in words) else None


class _Facts:
    """What one call reported about processes and sockets."""

    def __init__(self, answer: Answer) -> None:
        self.processes: dict[int, _Process] = {}
        for f in answer.of("proc"):
            if len(f) < 8:
                continue
            command = "\t".join(f[7:]).rstrip("\x01").split("\x01")
            pid, start, ppid, _group, session = (int(x) for x in f[1:6])
            self.processes[pid] = _Process(pid, start, ppid, session, f[6], tuple(command))
        self.box_of = {int(f[1]): f[2] for f in answer.of("box")}
        self.place_of = {f[2]: f[3] for f in answer.of("box") if len(f) > 3}
        self.loops = {f[1]: loop for f in answer.of("loop") if (loop := _loop(f)) is not None}
        self.log_copy = {f[1]: "\t".join(f[2:]) for f in answer.of("copy")}
        self.output = {int(f[1]): "\t".join(f[2:]) for f in answer.of("out")}
        self.parent = {int(f[1]): int(f[2]) for f in answer.of("up")}
        self.listening = []
        for f in answer.of("listen"):
            address, _, port = f[1].rpartition(":")
            self.listening.append(_Listening(address, int(port, 16), int(f[2]), f[3]))
        self.socket_pids: dict[str, set[int]] = {}
        for f in answer.of("sock"):
            self.socket_pids.setdefault(f[2], set()).add(int(f[1]))
        self.users = {int(f[1]): f[2] for f in answer.of("user")}
        self.owner: dict[int, str] = {}
        for f in answer.of("ours"):
            for word in f[2].split():
                self.owner.setdefault(int(word.split(":")[0]), f[1])
        me_line = answer.of("me")
        self.my_uid = int(me_line[0][1]) if me_line else None
        clock = answer.of("clock")
        self.boot_epoch = number(clock[0][1]) if clock else None
        self.ticks = (number(clock[0][2]) if clock else None) or 100

    def started_at(self, process: _Process) -> str | None:
        if self.boot_epoch is None:
            return None
        return iso_time(self.boot_epoch + process.start / self.ticks)

    def ports_of(self, pids: set[int]) -> set[int]:
        return {row.port for row in self.listening if self.socket_pids.get(row.inode, set()) & pids}


def is_server(argv: Sequence[str]) -> bool:
    """Whether a command line is a server of SGLang or vLLM, and not a shell, an editor or a grep that names one."""
    if not argv or not argv[0]:
        return False
    if argv[0].startswith(_TITLES):
        return True
    words = list(argv)
    if re.fullmatch(r"(python|pypy)[\d.]*t?", words[0].rsplit("/", 1)[-1]):
        words = words[1:]
        while words and words[0].startswith("-"):
            option = words.pop(0)
            if option == "-m":
                module = words[0] if words else ""
                return (
                    module.startswith(("sglang.launch_server", "sglang.srt.entrypoints"))
                    or (module.startswith("vllm.entrypoints.") and module.endswith("api_server"))
                    or (module in ("sglang", "sglang.cli.main", "vllm") and words[1:2] == ["serve"])
                )
            if option in ("-X", "-W", "--check-hash-based-pycs") and words:
                words.pop(0)
            elif option.startswith("-c"):
                return False
        if not words:
            return False
        if words[0].rsplit("/", 1)[-1] == "launch_server.py" and "sglang" in words[0]:
            return True
    return words[0].rsplit("/", 1)[-1] in ("sglang", "vllm") and words[1:2] == ["serve"]


def _argv_port(argv: Sequence[str]) -> int | None:
    for at, word in enumerate(argv):
        if word == "--port" and at + 1 < len(argv):
            return number(argv[at + 1])
        if word.startswith("--port="):
            return number(word[7:])
    return None


def _groups(facts: _Facts) -> dict[int, set[int]]:
    """Servers: the topmost process of each, and all of its processes that were reported."""
    servers = {pid for pid, process in facts.processes.items() if is_server(process.argv)}

    def top(pid: int) -> int:
        best, at, seen = pid, pid, {pid}
        while (at := facts.parent.get(at, 0)) > 1 and at not in seen:
            seen.add(at)
            if at in servers:
                best = at
        return best

    groups: dict[int, set[int]] = {}
    for pid in servers:
        groups.setdefault(top(pid), set()).add(pid)
    # Ranks whose launcher died have no way up; their session says that they belong together.
    by_session: dict[int, int] = {}
    for pid in sorted(groups, key=lambda p: (facts.processes[p].start, p)):
        process = facts.processes[pid]
        titled = process.argv[0].startswith(_TITLES)
        first = by_session.setdefault(process.session, pid)
        if first != pid and titled:
            groups[first] |= groups.pop(pid)
    return groups


def _foreign_of(facts: _Facts, host: str, boxes: Mapping[str, InContainer]) -> tuple[Run, ...]:
    found = []
    for pid, members in _groups(facts).items():
        if any(member in facts.owner for member in members):
            continue
        process = facts.processes[pid]
        listening = facts.ports_of(members)
        port = _argv_port(process.argv)
        if port is None:
            usual = 8000 if any("vllm" in word for word in process.argv[:4]) else 30000
            own = facts.ports_of({pid})
            if usual in listening or not own:
                port = usual if not process.argv[0].startswith(_TITLES) else None
            else:
                port = min(own)
        box = facts.box_of.get(pid)
        within = (boxes.get(box) or InContainer(box)) if box else None
        if within is not None and within.own_network and port is not None:
            port = within.on_host(port) or port
        run = Run(
            run_id=f"{ID_PREFIX}{pid}",
            kind="server",
            profile=None,
            host=host,
            state=RunState.FOREIGN,
            pid=pid,
            port=port,
            started_at=facts.started_at(process),
            log_path=facts.output.get(pid) or facts.log_copy.get(box or ""),
            container=within,
            argv=_words(process.argv),
            owner=one_line(process.user, 80),
            start_ticks=process.start,
        )
        found.append(replace(run, answers=None if _in_own_network(run) else _answers(facts, run, members)))
    lived = {run.container.container_id for run in found if run.container}
    found += [_between_starts(facts, host, box, loop, boxes) for box, loop in facts.loops.items() if box not in lived]
    return tuple(sorted(found, key=lambda run: (run.started_at or "", run.pid or 0), reverse=True))


def _words(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line of somebody else, made safe; its secrets are known from now on."""
    words = tuple(sanitize(word) for word in argv)
    learn_words(words)
    return words


def _between_starts(facts: _Facts, host: str, box: str, loop: _Loop, boxes: Mapping[str, InContainer]) -> Run:
    return Run(
        run_id=f"{ID_PREFIX}{box[:12]}",
        kind="server",
        profile=None,
        host=host,
        state=RunState.FOREIGN,
        port=_argv_port(loop.argv),
        started_at=iso_stamp(loop.started_at),
        log_path=facts.log_copy.get(box),
        container=boxes.get(box) or InContainer(box, status="restarting"),
        argv=_words(loop.argv),
    )


async def foreign_servers(transport: Transport, *, dead: bool = True) -> tuple[Run, ...]:
    """Servers of SGLang and vLLM that are not ours, newest first; to be watched only.

    Each has the id `foreign-<pid>`, with the topmost process of its tree as pid, and a log where its standard output
    is a file that can be read. A container that its engine starts again and again is there while it is dead, too:
    `foreign-<12 digits of its id>`, without a pid.

    Args:
        dead: the engines are asked for such containers too.
    """
    return await foreign_of(transport, await call(transport, "foreign", LOOPING_ENGINES if dead else ""))


async def foreign_of(transport: Transport, answer: Answer) -> tuple[Run, ...]:
    """The same of an answer that has them among other lines."""
    facts = _Facts(answer)
    # The same container with another first process was started again.
    boxes = {box: (0, "") for box in facts.loops}
    for pid in _groups(facts):
        if box := facts.box_of.get(pid):
            boxes[box] = (pid, facts.place_of.get(box, ""))
    known = await known_containers(transport, boxes) if boxes else {}
    return _foreign_of(facts, transport.host, known)


async def listener(transport: Transport, port: int) -> PortHolder | None:
    """Who listens on a port of the host, None where nobody does."""
    facts = _Facts(await call(transport, "port", str(port)))
    if not facts.listening:
        return None
    rows = sorted(facts.listening, key=lambda row: (row.inode not in facts.socket_pids, not row.answers_loopback))
    row = rows[0]
    pid = min(facts.socket_pids.get(row.inode, ()), default=None)
    process = facts.processes.get(pid) if pid is not None else None
    return PortHolder(
        port=port,
        pid=pid,
        user=one_line(process.user if process else facts.users.get(row.uid, str(row.uid)), 80),
        command=one_line(" ".join(process.argv), 200) if process else None,
        run_id=facts.owner.get(pid) if pid is not None else None,
    )


async def port_belongs_to(transport: Transport, run: Run) -> bool | None:
    """Whether it is this run that answers on its port.

    False also where nobody listens there yet. None where this is not known: the listener's process is not visible,
    or the command is one of a container runtime, whose processes are not its children.
    """
    if run.port is None:
        return False
    if run.container is not None and _in_own_network(run):
        # Whoever listens in a network of its own is of the container; the host's tables do not show it.
        inside = str(run.container.inside(run.port))
        return bool((await call(transport, "netport", str(run.pid), inside)).of("listen"))
    if run.foreign:
        facts = _Facts(await call(transport, "foreign"))
        return _answers(facts, run, next((members for pid, members in _groups(facts).items() if pid == run.pid), set()))
    facts = _Facts(await call(transport, "port", str(run.port), run.run_id))
    return _answers(facts, run, {pid for pid, owner in facts.owner.items() if owner == run.run_id})


def with_answers(runs: Sequence[Run], answer: Answer) -> tuple[Run, ...]:
    """Runs of ours with whether they answer on their ports, as far as a look at all servers tells: then nobody need ask."""
    facts = _Facts(answer)
    if facts.my_uid is None:  # there was nothing that looks like a server
        return tuple(runs)

    def seen(run: Run) -> Run:
        if run.state is not RunState.RUNNING or run.port is None or _in_own_network(run):
            return run
        ours = {pid for pid, owner in facts.owner.items() if owner == run.run_id}
        return replace(run, answers=_answers(facts, run, ours))

    return tuple(map(seen, runs))


def _in_own_network(run: Run) -> bool:
    return run.container is not None and run.container.own_network and run.pid is not None


def _answers(facts: _Facts, run: Run, ours: set[int]) -> bool | None:
    """The same by what one look saw; `ours` are the processes of the run."""
    listening = [row for row in facts.listening if row.port == run.port]
    rows = [row for row in listening if row.answers_loopback] or listening
    if not rows:
        return False
    in_container = any(word.rsplit("/", 1)[-1] in _CONTAINERS for word in run.argv[:8])
    mine = False
    for row in rows:
        holders = facts.socket_pids.get(row.inode, set())
        if holders & ours:
            mine = True
        elif in_container:
            return None
        elif holders or (row.uid != facts.my_uid and not run.foreign):
            return False  # seen, and another's; or of a user whom this run's processes are not
        else:
            return None
    return mine
