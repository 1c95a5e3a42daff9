"""HTTP requests to a server through its host: its address, its API key, and what its answers say."""

import json
import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from tui.core.errors import EagletuiError, HostError, Slug
from tui.core.link.http import request
from tui.core.link.scripts import shell_path
from tui.core.link.transport import HttpResponse, Transport
from tui.core.masking.known import learn
from tui.core.model.run import Run
from tui.core.runs.request import SECRET_ARGS_FILE
from tui.core.text import as_whole, one_line, read_json

KEY_VARIABLE = "EAGLETUI_API_KEY"  # holds the server's API key, here and in the generator
LOOPBACK = ("127.0.0.1", "localhost", "::1", "0.0.0.0", "::")  # where its own host reaches it, whatever it listens on


def address(url: str) -> tuple[str, int, str]:
    """Host, port and path in front of everything, of an http:// address."""
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 80, parts.path.rstrip("/")


def host_flag(argv: Sequence[str]) -> str:
    """What a server's command line says of where it listens; SGLang's default where it says nothing."""
    told = [word.removeprefix("--host=") for word in argv if word.startswith("--host=")]
    told += [value for name, value in pairwise(argv) if name == "--host"]
    return told[-1] if told else "127.0.0.1"


def url_of(argv: Sequence[str], port: int) -> str:
    """The address by which its own host reaches a server with this command line."""
    host = host_flag(argv)
    if host in LOOPBACK:
        host = "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


async def api_key(transport: Transport, run: Run | None) -> str | None:
    """From the environment here, else from the file that the server of ours itself was given."""
    given = os.environ.get(KEY_VARIABLE)
    if given or run is None or run.directory is None:
        return given or None
    path = f"{run.directory}/{SECRET_ARGS_FILE.name}"
    done = await transport.run(f"cat {shell_path(path)} 2>/dev/null; exit 0")
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "api-key":
            try:
                key = str(read_json(value))
            except ValueError:
                return None
            learn(key)
            return key
    return None


class Requests:
    """Requests to one server, by its host."""

    def __init__(self, transport: Transport, url: str, key: str | None = None, name: str | None = None) -> None:
        """`name` is what errors call it, else its address."""
        self._transport, self.url, self.key = transport, url, key
        self._name = name or url

    async def ask(self, method: str, path: str, body: object = None, timeout_s: float = 20.0) -> HttpResponse:
        """The answer, whatever its status but 401. Raises EagletuiError."""
        host, port, prefix = address(self.url)
        headers = {"accept": "application/json", "content-type": "application/json"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        data = json.dumps(body).encode() if body is not None else b""
        try:
            answer = await request(
                self._transport, method, port, prefix + path, host=host, headers=headers, body=data, timeout_s=timeout_s
            )
        except HostError as error:
            if error.slug != Slug.REFUSED:
                raise
            raise EagletuiError(
                f"nothing answers at {self.url} on {self._transport.host}",
                "is the server up, and on this port?",
                slug=Slug.UNREACHABLE,
            ) from None
        if answer.status == 401:
            raise EagletuiError(
                f"{self._name} wants an API key" + (", and not this one" if self.key else ""),
                f"set {KEY_VARIABLE} to it",
                slug=Slug.UNAUTHORIZED,
            )
        return answer

    async def document(self, *paths: str) -> dict[str, Any]:
        """The JSON object at the first path that has one; {} where none has. Raises EagletuiError."""
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


def tokens_brought(body: bytes) -> int:
    """How many tokens an event stream has brought, as it counts them itself."""
    most = 0
    for line in body.splitlines():
        try:
            document = read_json(line.removeprefix(b"data: "))
        except ValueError:
            continue
        for part in ("meta_info", "usage") if isinstance(document, dict) else ():
            counts = document.get(part)
            if isinstance(counts, dict):
                most = max(most, as_whole(counts.get("completion_tokens")) or 0)
    return most


def error_words(body: bytes) -> str:
    """The sentence in an answer that says what is wrong."""
    text = body.decode("utf-8", "replace")
    try:
        document = read_json(text)
    except ValueError:
        return one_line(text, 160)
    while isinstance(document, dict):
        document = next(
            (document[k] for k in ("error", "message", "detail", "reason") if document.get(k)), str(document)
        )
    return one_line(str(document), 160)
