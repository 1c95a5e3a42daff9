"""Host facts as last seen, kept on this machine: `profiles show` knows the host's SGLang without a connection."""

import contextlib
import json
import re
from pathlib import Path

from tui.core.config import HostEntry, state_dir, write_whole
from tui.core.errors import HostError
from tui.core.host.elsewhere import CONTAINER_PYTHON, Elsewhere
from tui.core.host.gpus import HostFacts
from tui.core.host.host_facts import host_facts, with_container
from tui.core.link.transport import Transport
from tui.core.records import from_json, to_json
from tui.core.text import read_json


def _path(entry: HostEntry) -> Path:
    return state_dir() / "hosts" / (re.sub(r"[^A-Za-z0-9._-]", "_", entry.name) + ".json")


async def facts(transport: Transport, entry: HostEntry, elsewhere: Elsewhere) -> HostFacts:
    """Asks the host (one script call) and remembers the answer. Raises HostError.

    Args:
        elsewhere: a place inside that may have the Python that the host itself lacks.
    """
    found = await host_facts(transport, entry.python)
    if found.sglang is None and (inside := await elsewhere()) is not None:
        with contextlib.suppress(HostError):  # that may end, or refuse us, at any time
            found = with_container(found, await host_facts(inside.transport, CONTAINER_PYTHON), inside.name)
    with contextlib.suppress(OSError):  # remembering is a convenience
        write_whole(_path(entry), json.dumps(to_json(found)))
    return found


def remembered(entry: HostEntry) -> HostFacts | None:
    """What was last known of a host, None where nothing is."""
    try:
        return from_json(HostFacts, read_json(_path(entry).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
