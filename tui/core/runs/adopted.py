"""Containers that others started: what their engine says of them, and their output as a file on the host.

An engine is asked once a container, never at each look; a copy of its output is made where somebody wants to read it, goes on
as long as the container, and is removed two days after its last line.
"""

from collections.abc import Collection, Mapping
from weakref import WeakKeyDictionary

from tui.core.errors import HostError, Slug
from tui.core.link.transport import Transport
from tui.core.model.run import InContainer, Run
from tui.core.runs.helper import call, number
from tui.core.text import one_line

_known: "WeakKeyDictionary[Transport, dict[str, InContainer]]" = WeakKeyDictionary()


async def known_containers(transport: Transport, ids: Collection[str]) -> Mapping[str, InContainer]:
    """Containers by their ids; those that no engine here knows (or lets us ask about) have an id alone."""
    known = _known.setdefault(transport, {})
    if missing := sorted(set(ids) - set(known)):
        answer = await call(transport, "engines", *missing)
        known.update({box: InContainer(box) for box in missing})
        for fields in answer.of("box"):
            _, asked, engine, facts = (*fields, "", "", "")[:4]
            name, image, restarts = (*facts.split("|")[1:4], "", "", "")[:3]
            known[asked] = InContainer(
                asked, engine, one_line(name.lstrip("/"), 80) or None, one_line(image, 200) or None, number(restarts)
            )
    return known


async def log_of_container(transport: Transport, engine: str, name: str) -> str:
    """The path of a file that holds a container's output and goes on with it.

    Raises UsageError (slug unknown_run) where the engine has no such container or lets us see none.
    """
    answer = await call(transport, "adopt", engine, name)
    paths = answer.of("path")
    if not paths or len(paths[0]) < 2:
        raise HostError(
            f"{transport.host}: the output of {one_line(name, 80)} could not be copied",
            "free space there and try again",
            slug=Slug.BAD_ANSWER,
        )
    return paths[0][1]


async def path_of_log(transport: Transport, run: Run) -> str | None:
    """Where the log of a run lies on its host; a foreign container's output is copied there first. None: nowhere."""
    box = run.container
    if run.log_path is not None or box is None or box.engine is None:
        return run.log_path
    return await log_of_container(transport, box.engine, box.container_id)
