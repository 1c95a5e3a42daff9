"""One look at the processes of a run on its host, and at who is connected to its port."""

from dataclasses import dataclass

from tui.core.link.programs import program
from tui.core.link.transport import Transport
from tui.core.text import one_line

_COMPILERS = ("nvcc", "cicc", "ptxas", "ninja", "cc1plus", "hipcc")  # fatbinary and ld come and go too fast to be seen


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    cpu_s: float  # used so far
    read_bytes: int | None  # from disks so far; None = not allowed to see
    name: str


@dataclass(frozen=True)
class HostLook:
    """The processes of a run at one moment, and who is connected to its port."""

    processes: tuple[Process, ...]
    connections: frozenset[str]  # remote ends of established connections

    @property
    def cpu_s(self) -> float:
        return sum(process.cpu_s for process in self.processes)

    @property
    def read_bytes(self) -> int | None:
        seen = [process.read_bytes for process in self.processes if process.read_bytes is not None]
        return sum(seen) if seen else None

    @property
    def compilers(self) -> tuple[str, ...]:
        """Names of the compilers that run now, sorted."""
        return tuple(sorted({process.name for process in self.processes if process.name in _COMPILERS}))


def head(pid: int, port: int | None) -> str:
    """What the script is told, in front of it."""
    return f"LK_PID={pid}\nLK_PORT={port or ''}\n"


async def look(transport: Transport, pid: int, port: int | None) -> HostLook:
    """One look at the processes of a run. Raises HostError, LinkLost."""
    done = await transport.run(head(pid, port) + program("look.sh"), timeout_s=20.0)
    return read_look(done.stdout.decode("utf-8", "replace"))


def read_look(text: str) -> HostLook:
    """The script's answer; lines of another form are left out."""
    ticks = 100.0
    processes: list[Process] = []
    connections: set[str] = set()
    for line in text.split("\n"):
        words = line.split(" ", 5)
        try:
            match words[0]:
                case "hz":
                    ticks = float(words[1]) or 100.0
                case "proc":
                    read = None if words[4] == "-" else int(words[4])
                    name = one_line(words[5], 40)
                    processes.append(Process(int(words[1]), int(words[2]), int(words[3]) / ticks, read, name))
                case "conn":
                    connections.add(words[1])
        except (IndexError, ValueError):
            continue
    return HostLook(tuple(processes), frozenset(connections))
