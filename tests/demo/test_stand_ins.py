"""Our stand-ins send what the real server was recorded to send: the same events in the same order, each in a write of its own."""

import asyncio
import itertools
import json
from pathlib import Path

import pytest

from tests.support import recorded
from tests.support.truth_server import TruthServer
from tui.demo import model
from tui.demo.api import Api
from tui.demo.engine import Engine, Request
from tui.demo.http import Connection
from tui.demo.output import Output


class Wire(asyncio.Transport):
    """A transport that keeps each write."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass


def request_of(recording: recorded.Recording) -> bytes:
    body = json.dumps(recording.request).encode()
    return f"POST {recording.path} HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def told(recording: recorded.Recording) -> tuple[bool, bool, bool]:
    """Of the recorded reply: whether it speculates, ends by itself, and sends only new text by /generate."""
    wire = recording.wire
    texts = [piece["text"] for piece in recorded.pieces(wire) if "text" in piece and isinstance(piece, dict)]
    return (
        b"spec_verify_ct" in wire,
        b'"finish_reason":"stop"' in wire or b'"type":"stop"' in wire,
        not all(after.startswith(before) for before, after in itertools.pairwise(texts)),
    )


async def truth(recording: recorded.Recording, directory: Path) -> list[bytes]:
    """What the truth server writes to the recorded request."""
    speculates, stops, incremental = told(recording)
    settings = {"speculate": speculates, "chunk": 3, "cached": 6, "silent": 1, "incremental": incremental}
    wire, reader, loop = Wire(), asyncio.StreamReader(), asyncio.get_running_loop()
    writer = asyncio.StreamWriter(wire, asyncio.streams.FlowControlMixin(), reader, loop)
    reader.feed_data(request_of(recording))
    reader.feed_eof()
    await TruthServer(settings | ({"tokens": 12} if stops else {})).connection(reader, writer)
    return wire.writes


class Silent(Output):
    def raw(self, text: str) -> None:
        pass


class Hasty(Engine):
    """Generates at once."""

    stops = False

    async def _until(self, due: float) -> float:
        await asyncio.sleep(0)
        return due

    def submit(self, request: Request) -> None:
        super().submit(request)
        request.natural_length = 12 if self.stops else 1000


async def demo(recording: recorded.Recording, directory: Path) -> list[bytes]:
    """What the simulated host's server writes to the recorded request, the second time: its prompt is in the cache."""
    speculates, stops, incremental = told(recording)
    config = model.Config(True, 8, 0.88, 128, speculative=speculates, steps=3, draft_tokens=4)
    engine = Hasty(config, Silent(8, directory), seed=1, configuration="x", launch=1)
    engine.stops = stops
    args = {"api_key": None, "enable_cache_report": False, "served_model_name": "m"}
    args["incremental_streaming_output"] = incremental
    api = Api(args, engine, None, None, argv=(), model_info={})  # type: ignore[arg-type]
    scheduler = asyncio.create_task(engine.run())
    for _ in range(2):
        wire = Wire()
        connection = Connection(api.handle, lambda *_: None)
        connection.connection_made(wire)
        connection.data_received(request_of(recording))
        assert connection.task is not None
        await connection.task
    scheduler.cancel()
    return wire.writes


@pytest.mark.parametrize("name", recorded.NAMES)
def test_the_real_server_writes_the_head_and_each_event_by_itself(name):
    for recording in recorded.recordings(name):
        assert len([piece for _, data in recording.reads for piece in recorded.pieces(data)]) > 4


def test_the_head_and_the_role_come_in_reads_of_their_own():
    """As they may: what a stand-in that writes them together never shows."""
    recording, _ = recorded.recordings("chat_two_eagle3")
    head, role, *_ = [recorded.pieces(data) for _, data in recording.reads]
    assert head == ["head"]
    assert [choice["delta"]["role"] for event in role for choice in event["choices"]] == ["assistant"]
    assert "usage" not in role[0]


@pytest.mark.parametrize("stand_in", [truth, demo])
@pytest.mark.parametrize("name", recorded.NAMES)
async def test_a_stand_in_sends_what_was_recorded(name, stand_in, tmp_path):
    for recording in recorded.recordings(name):
        writes = [recorded.pieces(data) for data in await stand_in(recording, tmp_path)]
        assert all(len(one) == 1 for one in writes), "two pieces in one write"
        sent = recorded.shapes([piece for (piece,) in writes])
        assert sent == recorded.shapes(recorded.pieces(recording.wire))
