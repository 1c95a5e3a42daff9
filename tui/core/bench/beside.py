"""A measurement beside a server in a container: a container of the same image, in the same network.

Where the host has no Python, or does not reach the server's network, the generator runs there: the server itself is left
alone, its 127.0.0.1 is the generator's, and the run's directory is mounted, so that its files lie where they always do.
It is a run like any other in a container (docs/runs.md).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from tui.core.bench.driver import Driver, Program
from tui.core.bench.target import Target
from tui.core.host.elsewhere import CONTAINER_PYTHON
from tui.core.host.gpus import HostFacts
from tui.core.model.run import InContainer
from tui.core.runs.adopted import way_into
from tui.core.runs.docker_run import gpu_words
from tui.core.runs.request import RUN_DIR, InRunDir
from tui.core.server.session import HostSession

_HERE = "/eagletui"  # the run's directory, inside
_RUN = 'umask 022; exec "$@"'  # the account that measures reads the files


def container_beside(measured: Target, facts: HostFacts, driver: Driver) -> InContainer | None:
    """The container that a measurement must run beside; None where the host's own Python measures it."""
    box = measured.run.container if measured.run is not None else None
    if box is None or not box.call or not driver.needs_python or not (box.image_id or box.image):
        return None
    if facts.python_error:
        return box
    return box if box.own_network and not box.publishes(measured.address[1]) else None


async def reached(session: HostSession, measured: Target, box: InContainer | None) -> Target:
    """The target by the way that leads to it, its log a file of the host. Raises HostError."""
    if box is None or measured.run is None:
        return measured
    through = way_into(session.transport, box) if box.own_network else None
    return replace(measured, run=await session.with_log(measured.run), through=through)


def beside(program: Program, box: InContainer, facts: HostFacts, log: str | None) -> Program:
    """The program in a container beside that one; `log` is the server's, on the host."""
    words: list[str | InRunDir] = [*box.call, "run", "--network", f"container:{box.container_id}", "--pid", "host"]
    words += [
        "--security-opt",
        "label=disable",
        "-w",
        _HERE,
        "--mount",
        InRunDir(RUN_DIR, f"type=bind,target={_HERE},source="),
    ]
    if log is not None:
        place = str(PurePosixPath(log).parent)
        words += ["--mount", f"type=bind,readonly,target={place},source={place}"]
    for name in program.env:
        words += ["-e", name]
    if facts.gpu_names:
        words += gpu_words(PurePosixPath(box.engine or "").name, None)
    words += ["--entrypoint", "/bin/sh", box.image_id or box.image or "", "-c", _RUN, "sh", CONTAINER_PYTHON]
    return replace(program, argv=(*words, *_inside(program)))


def _inside(program: Program) -> Iterator[str]:
    """The program's words behind its interpreter; files of the run are where its directory is mounted."""
    for word in program.argv[1:]:
        yield word if isinstance(word, str) else f"{word.prefix}{_HERE}/{word.name}"
