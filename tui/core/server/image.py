"""Which SGLang is in an image, where its tag does not say it: asked of the image itself, once while it stays the same."""

import shlex
from collections.abc import MutableMapping
from shlex import quote

from tui.core.errors import TimedOut
from tui.core.host.elsewhere import CONTAINER_PYTHON
from tui.core.link.transport import Transport
from tui.core.runs.docker_run import Container
from tui.core.text import one_line

# Nothing is pulled: what the engine does not have is not asked. The container has no network, and goes with its answer.
_SCRIPT = """limit=
command -v timeout >/dev/null 2>&1 && limit='timeout 20'
id=$($limit {engine} image inspect -f '{{{{.Id}}}}' {image} 2>/dev/null </dev/null) || exit 0
printf '%s\\n' "$id"
case ' {known} ' in *" $id "*) exit 0 ;; esac
$limit {engine} run --rm --network none --entrypoint {python} {image} -c {program} 2>/dev/null </dev/null
exit 0
"""
_PROGRAM = "from importlib.metadata import version; print(version('sglang'))"


async def sglang_of_image(
    transport: Transport, container: Container, known: MutableMapping[str, str | None]
) -> str | None:
    """The version of SGLang that runs in a container of an image; None where it is not known.

    Args:
        known: versions by the ids of images; what is found is added.

    Raises LinkLost, HostError.
    """
    if container.sglang_version is not None:
        return container.sglang_version
    script = _SCRIPT.format(
        engine=shlex.join(container.engine),
        image=quote(container.image),
        known=" ".join(known),
        python=CONTAINER_PYTHON,
        program=quote(_PROGRAM),
    )
    try:
        done = await transport.run(script, timeout_s=45.0)
    except TimedOut:
        return None
    image_id, _, version = done.stdout.decode("utf-8", "replace").strip().partition("\n")
    name = one_line(image_id, 100)
    if name and name not in known:
        known[name] = one_line(version, 40) or None
    return known.get(name)
