"""Containers that others started: what their engine says of them, and their output as a file on the host.

An engine is asked once a start of a container, not at each look; a copy of its output is made where somebody wants to read it, goes on
as long as the container, and is removed two days after its last line.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

from tui.core.errors import HostError, Slug
from tui.core.link.inside import InsideTransport
from tui.core.link.transport import Transport
from tui.core.model.run import InContainer, Run
from tui.core.runs.docker_run import reaches_loopback
from tui.core.runs.helper import call, number
from tui.core.text import one_line, read_json

_known: "WeakKeyDictionary[Transport, dict[tuple[str, int], InContainer]]" = WeakKeyDictionary()
_LAST_LINES = 20_000
_LAST_BYTES = 4 << 20
_KINDS = (("libpod", "podman"), ("docker", "docker"), ("nerdctl", "nerdctl"), ("kubepods", "Kubernetes"))


async def known_containers(transport: Transport, boxes: Mapping[str, tuple[int, str]]) -> Mapping[str, InContainer]:
    """Containers by their ids; of those that no engine here knows (or lets us ask about), why.

    Args:
        boxes: the first process of each, so that one which was started again is asked for again; 0: none now, it is
            asked for each time. And where its cgroup lies, which names its engine.
    """
    known = _known.setdefault(transport, {})
    missing = {box for box, (pid, _) in boxes.items() if not pid or (box, pid) not in known}
    found = {box: known[box, pid] for box, (pid, _) in boxes.items() if box not in missing}
    if missing:
        found |= await ask_engines(transport, sorted(missing), {box: place for box, (_, place) in boxes.items()})
        known.update({(box, boxes[box][0]): found[box] for box in missing})
    return found


async def ask_engines(
    transport: Transport, ids: Sequence[str], places: Mapping[str, str] | None = None
) -> dict[str, InContainer]:
    """What the engines of a host know of containers, by what they were asked for; `places` are cgroups."""
    answer = await call(transport, "engines", *ids)
    found = {fields[1]: _box(*fields[1:4]) for fields in answer.of("box") if len(fields) > 3}
    for box in ids:
        if box not in found:
            found[box] = _unknown(box, (places or {}).get(box, ""), [f for f in answer.of("unasked") if f[1] == box])
    return found


def _box(asked: str, engine: str, facts: str) -> InContainer:
    box_id, name, image, restarts, status, code, image_id, network, started, ports = (*facts.split("|"), *[""] * 10)[
        :10
    ]
    return InContainer(
        box_id if len(box_id) == len(asked) else asked,
        engine,
        one_line(name.lstrip("/"), 80) or None,
        one_line(image, 200) or None,
        number(restarts),
        one_line(status, 40) or None,
        number(code),
        one_line(image_id, 100) or None,
        one_line(network, 100) or None,
        one_line(started, 60) or None,
        (engine,),
        published=tuple(_published(ports)),
    )


def _published(ports: str) -> Iterator[tuple[int, int]]:
    """Of `{"30000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "31000"}], ...}` those that the host's 127.0.0.1 reaches."""
    try:
        found = read_json(ports)
    except ValueError:
        return
    for port, places in found.items() if isinstance(found, dict) else ():
        for place in places if isinstance(places, list) else ():
            at = place if isinstance(place, dict) else {}
            inside, on_host = number(port.removesuffix("/tcp")), number(str(at.get("HostPort")))
            if inside is not None and on_host is not None and reaches_loopback(str(at.get("HostIp", ""))):
                yield inside, on_host


def _unknown(box: str, place: str, unasked: Sequence[Sequence[str]]) -> InContainer:
    """A container of which only its processes tell: whose it is by its cgroup, and why its engine does not say more."""
    kind = next((name for word, name in _KINDS if word in place), None)
    said = {fields[2]: one_line(fields[3], 160) or "it does not answer" for fields in unasked if len(fields) > 3}
    refused = next((text for text in said.values() if "no such" not in text.lower()), None)
    whose = f"a container of {kind}" if kind else "a container"
    if refused is not None:
        return InContainer(box, unasked=f"{whose}, which this account may not ask about: {refused}")
    if kind == "Kubernetes":
        return InContainer(box, unasked="a pod of Kubernetes: kubectl logs has its output")
    why = "another user's engine has it" if said else "no container engine is installed for this account"
    return InContainer(box, unasked=f"{whose}: {why}")


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


def way_into(transport: Transport, box: InContainer) -> Transport:
    """The transport of what is in a container, by its engine."""
    return InsideTransport(transport, (*box.call, "exec", "-i", box.container_id), str(box))


async def last_words(transport: Transport, box: InContainer) -> bytes:
    """What a container wrote from its last start but one to its last death; b"" where its engine does not say."""
    if not box.call:
        return b""
    # While it runs, what it has written since its start is not of a death.
    until = f"--until {shlex.quote(box.started_at)} " if box.status == "running" and box.started_at else ""
    logs = f"{shlex.join((*box.call, 'logs'))} --tail {_LAST_LINES} {until}{shlex.quote(box.container_id)}"
    done = await transport.run(f"{logs} 2>&1 </dev/null | tail -c {_LAST_BYTES}", timeout_s=60.0)
    before, start, rest = done.stdout.rpartition(b"server_args=")
    return before[before.rfind(b"\n") + 1 :] + start + rest


async def path_of_log(transport: Transport, run: Run) -> str | None:
    """Where the log of a run lies on its host; a foreign container's output is copied there first. None: nowhere."""
    box = run.container
    if run.log_path is not None or box is None or box.engine is None:
        return run.log_path
    return await log_of_container(transport, box.engine, box.container_id)
