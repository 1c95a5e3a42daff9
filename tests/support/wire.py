"""Every streamed reply of a server as it came over the socket: a proxy that notes each read, and its frames read again."""

import bisect
import itertools
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from tests.support.truth import prompt_of

Noted = list[tuple[float, bytes]]


class Proxy:
    """Forwards connections to a port; what comes either way is noted with the moment of its read."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[tuple[Noted, Noted]] = []  # from the client, from the server
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._target))
            self.connections.append(([], []))
            for source, sink, noted in zip((client, server), (server, client), self.connections[-1], strict=True):
                sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=self._copy, args=(source, sink, noted), daemon=True).start()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket, noted: Noted) -> None:
        try:
            while data := source.recv(1 << 18):
                noted.append((time.perf_counter(), data))
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def close(self) -> None:
        self._listener.close()


def messages(noted: Noted) -> Iterator[tuple[float, bytes, list[tuple[float, bytes]]]]:
    """HTTP messages of one direction: when the whole of it was there, its head, and its body's pieces with their moments."""
    data, ends = (b"".join(part for _, part in noted), list(itertools.accumulate(len(part) for _, part in noted)))

    def moment(end: int) -> float:
        return noted[bisect.bisect_left(ends, end)][0]

    at = 0
    while at < len(data):
        body = data.index(b"\r\n\r\n", at) + 4
        head, at = data[at:body].lower(), body
        pieces = []
        if b"transfer-encoding: chunked" in head:
            size = -1
            while size:
                line = data.index(b"\r\n", at)
                size, begin = int(data[at:line], 16), line + 2
                at = begin + size + 2
                pieces.append((moment(begin + size), data[begin : begin + size]))
        else:
            length = int(head.partition(b"content-length:")[2].split()[0])
            at += length
            pieces.append((moment(at), data[at - length : at]))
        yield pieces[-1][0], head, pieces


def reply_of(asked: float, body: bytes, path: str, pieces: list[tuple[float, bytes]]) -> dict[str, Any]:
    """A reply as the truth server would have recorded it, from its frames alone."""
    sends: list[tuple[float, int]] = []
    spec: dict[str, Any] = {}
    for moment, piece in pieces:
        if not piece.startswith(b"data: {"):
            continue
        event = json.loads(piece[6:])
        said = event.get("meta_info") or event.get("usage") or {}
        spec = next(
            (
                each
                for each in (event.get("sglext", {}).get("spec_tokens_details"), said)
                if each and "spec_verify_ct" in each
            ),
            spec,
        )
        count = said.get("completion_tokens", 0)
        if count > (sends[-1][1] if sends else 0):
            sends.append((moment, count))
    counts = [0, *(count for _, count in sends)]
    return {
        "what": "chat" if "chat" in path else "generate",
        "body": json.loads(body),
        "at": asked,
        "sends": sends,
        "chunks": [b - a for a, b in itertools.pairwise(counts)],
        "verify": spec["spec_verify_ct"],
        "correct": spec["spec_num_correct_drafts"],
        "whole": True,
        "fault": "",
    }


def replies_of(proxy: Proxy) -> dict[str, dict[str, Any]]:
    """All streamed replies by the hash of what was asked."""
    found = {}
    for asked, answered in proxy.connections:
        for (at, head, ((_, body), *_)), (_, _, pieces) in zip(messages(asked), messages(answered), strict=True):
            if head.startswith(b"post") and b'"stream"' in body:
                reply = reply_of(at, body, head.split()[1].decode(), pieces)
                found[prompt_of(reply)] = reply
    return found
