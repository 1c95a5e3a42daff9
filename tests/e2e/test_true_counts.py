"""The real SGLang with EAGLE-3, by chat and by /generate: what the load generator says is what came over the socket.

Between the two stands a proxy that notes every read from the server; tokens and times are read again from what it noted.
"""

import bisect
import gzip
import itertools
import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.generator import generator
from tests.support.truth import LIMIT, Case, Run, compare, prompt_of

pytestmark = pytest.mark.timeout(600)

READY_S = 240
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


def replies(proxy: Proxy) -> dict[str, dict[str, Any]]:
    """All streamed replies by the hash of what was asked."""
    found = {}
    for asked, answered in proxy.connections:
        for (at, head, ((_, body), *_)), (_, _, pieces) in zip(messages(asked), messages(answered), strict=True):
            if head.startswith(b"post") and b'"stream"' in body:
                reply = reply_of(at, body, head.split()[1].decode(), pieces)
                found[prompt_of(reply)] = reply
    return found


@pytest.fixture(scope="module")
def port(gpu_hosts, sglang_module, free_port):
    """Of a real server with an EAGLE-3 draft that is ready."""
    host, found = gpu_hosts(), free_port()
    host.python(sglang_module.python)
    host.profile("tiny-eagle3", sglang_module.profile(found))
    said = host.eagletui.json("launch", "tiny-eagle3", "--wait", "--timeout", str(READY_S), timeout=READY_S + 60)
    assert said["outcome"] == "ready"
    return found


@pytest.mark.parametrize("users", [1, 4])
@pytest.mark.parametrize("api", ["chat", "generate"])
def test_the_figures_are_those_of_the_frames(port, tmp_path, api, users):
    proxy = Proxy(port)
    items = [{"prompt": f"{word} of the next line"} for word in ("a few", "words", "that", "differ", "a little")]
    plan = {
        "version": 1,
        "base_url": f"http://127.0.0.1:{proxy.port}",
        "api": api,
        "points": [{"concurrency": users}],
        "duration_s": 6,
        "output_len": 48,
        "dataset": {"kind": "prompts", "items": items},
        "warmup_s": 3,
    }
    (tmp_path / "bench.json").write_text(json.dumps(plan))
    argv = generator(tmp_path)
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    proxy.close()
    assert done.returncode == 0, done.stdout[-500:] + done.stderr
    noted = replies(proxy)
    meta = json.loads((tmp_path / f"c{users}-1.json").read_text())
    lines = gzip.decompress((tmp_path / f"c{users}-1.rows.jsonl.gz").read_bytes()).splitlines()
    rows = [json.loads(line) for line in lines]
    told = [noted[row["prompt"]] for row in rows]
    assert len(rows) > 4 * users
    for row, reply in zip(rows, told, strict=True):
        assert row["err"] is None
        assert [row["k1"], *row["toks"]] == reply["chunks"]
        assert row["k1"] + sum(row["toks"]) == row["out"] == reply["sends"][-1][1]
    figures = {each.figure: each for each in compare(Run(Case(api, {"concurrency": users}), rows, meta, told))}
    rate = figures["per-user tok/s"]
    assert rate.measured == pytest.approx(rate.true, rel=LIMIT), meta["client"]
    assert figures["tau"].holds
    assert figures["tau"].true > 1.2
