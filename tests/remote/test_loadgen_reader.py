"""The reader of replies: however the bytes are cut, the figures are those of the reply; and when a warm-up is enough."""

import array
import itertools
import json
import random
from types import SimpleNamespace

import pytest

from tests.support import recorded
from tests.support.truth_server import WORDS, Reply
from tui.remote.loadgen.counters import read_metrics
from tui.remote.loadgen.exchange import Exchange, Owner
from tui.remote.loadgen.identity import identity_of
from tui.remote.loadgen.protocol import dumps
from tui.remote.loadgen.reader import MAX_HEAD, Malformed, Reader
from tui.remote.loadgen.warmup import Warmth


class Holder(Owner):
    """Notes what an exchange tells."""

    def __init__(self):
        self.begun = 0
        self.over = 0

    def first(self, exchange):
        assert not exchange.stamps
        self.begun += 1

    def ended(self, exchange):
        self.over += 1


class Wire(Reader):
    """A reader without a connection: `completed` ends the exchange, as a connection does."""

    def __init__(self, path="/generate"):
        super().__init__()
        self.holder = Holder()
        self.exchange = self.kept = Exchange(self.holder, "POST", path, b"{}", True)

    def completed(self):
        exchange, self.exchange = self.exchange, None
        exchange.end()

    def take(self, *pieces):
        """Feeds the pieces through one buffer that is overwritten each time, as the socket's is."""
        shared = bytearray(b"\xff" * (max(map(len, pieces)) + 64))
        for piece in pieces:
            shared[: len(piece)] = piece
            self.feed(shared, len(piece))
            shared[: len(piece)] = b"\xfe" * len(piece)
        return self.kept


def order(words, api="generate", **more):
    """A request for a reply as `words` say."""
    if api == "chat":
        return Reply({"messages": [{"role": "user", "content": words}], "max_tokens": 64, **more}, {}, api)
    return Reply({"text": words, "sampling_params": {"max_new_tokens": 64}, **more}, {}, api)


USAGE = {"stream_options": {"include_usage": True}}
CONTINUOUS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
REPLIES = {
    "plain": order("tokens=9"),
    "three a chunk": order("tokens=20 chunk=3 cached=4"),
    "speculation": order("tokens=23 chunk=4 speculate=1"),
    "incremental": Reply({"text": "tokens=9", "sampling_params": {}}, {"incremental": 1}, "generate"),
    "crlf": order("tokens=7 lines=crlf"),
    "cr": order("tokens=7 lines=cr"),
    "comments": order("tokens=7 comments=1"),
    "counted": order("tokens=7 body=counted"),
    "spaces": order("tokens=7 chunk=2 spaces=1"),
    "chat": order("tokens=9 reasons=2", "chat", **USAGE),
    "chat, counted as it goes": order("tokens=20 chunk=3 cached=2 reasons=2", "chat", **CONTINUOUS),
    "chat of vLLM": order("tokens=9 chunk=2 dialect=vllm", "chat", **USAGE),
    "chat of vLLM, counted as it goes": order("tokens=9 chunk=2 dialect=vllm", "chat", **CONTINUOUS),
    "chat, speculation": order("tokens=23 chunk=4 speculate=1", "chat", return_spec_tokens_details=True, **CONTINUOUS),
}


def right(exchange, reply):
    """Whether everything the exchange holds is the truth about the reply."""
    truth, row = reply.truth, exchange.row(0.0)
    assert row["err"] is None
    assert (row["in"], row["out"], row["cached"], row["finish"]) == (truth["in"], truth["out"], truth["cached"], "stop")
    assert row["chunks"] == len(truth["chunks"]) == len(row["gaps_us"]) + 1
    asked = reply.request.get("stream_options", {})
    assert exchange.exact == (reply.api == "generate" or "continuous_usage_stats" in asked)
    if exchange.exact:
        assert [row["k1"], *row["toks"]] == truth["chunks"]
    else:
        assert row["k1"] is row["toks"] is None
    if reply.api == "generate" or reply.request.get("return_spec_tokens_details"):
        found = row["verify_ct"], row["correct_drafts"], row["proposed_drafts"]
        assert found == (truth["verify"], truth["correct"], truth["proposed"])
    if reply.api == "chat":
        assert len(row["texts"]) == row["chunks"]
        assert "".join(row["texts"]) == "".join(WORDS[i % len(WORDS)] for i in range(truth["out"]))
    else:
        assert row["ids"] == (None if reply.options.get("incremental") else list(range(truth["out"])))
    assert exchange.owner.begun == exchange.owner.over == 1
    assert exchange.owner.tokens == truth["out"]


def path_of(reply):
    return "/generate" if reply.api == "generate" else "/v1/chat/completions"


@pytest.mark.parametrize("name", REPLIES)
def test_cut_anywhere(name):
    reply = REPLIES[name]
    wire = reply.whole()
    right(Wire(path_of(reply)).take(wire), reply)
    right(Wire(path_of(reply)).take(*(wire[i : i + 1] for i in range(len(wire)))), reply)
    for cut in range(1, len(wire)):
        right(Wire(path_of(reply)).take(wire[:cut], wire[cut:]), reply)


@pytest.mark.parametrize("name", REPLIES)
def test_cut_at_random_into_many(name):
    reply, rng = REPLIES[name], random.Random(name)
    wire = reply.whole()
    for _ in range(300):
        cuts = [0, *sorted(rng.sample(range(1, len(wire)), rng.randrange(2, 40))), len(wire)]
        right(Wire(path_of(reply)).take(*(wire[a:b] for a, b in itertools.pairwise(cuts))), reply)


@pytest.mark.parametrize("pack", [2, 3, 7])
@pytest.mark.parametrize("name", ["three a chunk", "chat", "crlf"])
def test_several_events_in_one_chunk(name, pack):
    reply = REPLIES[name]
    events = [reply.event(frame) for frame in reply.frames()]
    packed = [reply.part(b"".join(events[i : i + pack])) for i in range(0, len(events), pack)]
    right(Wire(path_of(reply)).take(reply.head(), *packed, reply.end()), reply)
    right(Wire(path_of(reply)).take(reply.head() + b"".join(packed) + reply.end()), reply)


def test_a_chunk_an_event_is_not_read_as_json(monkeypatch):
    """The hot path looks only for the count: JSON is read for the last frame alone."""
    read = []
    monkeypatch.setattr(
        "tui.remote.loadgen.exchange.loads", lambda frame: read.append(bytes(frame)) or json.loads(frame)
    )
    reply = order("tokens=60 chunk=2")
    events = [reply.part(reply.event(frame)) for frame in reply.frames()]
    right(Wire().take(reply.head(), *events, reply.end()), reply)
    assert len(read) == 2  # the first chunk, and the last
    read.clear()
    right(Wire().take(reply.head(), b"".join(events), reply.end()), reply)
    assert len(read) == 2


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_data_on_several_lines(end):
    frames = [
        b'{"text":"a","meta_info":{"finish_reason":null,' + end + b'data: "completion_tokens":1}}',
        b'{"text":"ab","meta_info":{"finish_reason":{"type":"stop"},"prompt_tokens":3,'
        + end
        + b'data:"completion_tokens":'
        + end
        + b"data: 4}}",
    ]
    body = b"".join(b"event: x" + end + b"data: " + frame + end + end for frame in frames)
    wire = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    for pieces in (
        [wire],
        [wire[i : i + 1] for i in range(len(wire))],
        *([wire[:i], wire[i:]] for i in range(1, len(wire))),
    ):
        row = Wire().take(*pieces).row(0.0)
        assert (row["err"], row["in"], row["out"], row["k1"], row["toks"]) == (None, 3, 4, 1, [3])


def test_what_an_earlier_read_left_in_the_buffer_does_not_count():
    reply = order("tokens=4")
    wire = Wire()
    wire.take(reply.head())
    for part in [reply.part(reply.event(frame)) for frame in reply.frames()]:
        buffer = bytearray(part)  # all of it lies there, but only half has come
        wire.feed(buffer, len(part) // 2)
        buffer[: len(part) - len(part) // 2] = part[len(part) // 2 :]
        wire.feed(buffer, len(part) - len(part) // 2)
    right(wire.take(reply.end()), reply)


def test_until_the_connection_closes():
    for body in ("close", "http10"):
        reply = order(f"tokens=9 body={body}")
        wire = Wire()
        wire.take(reply.whole())
        assert wire.exchange is not None
        assert wire.end_of_file() is None
        right(wire.kept, reply)
        assert not wire.reusable


def test_two_replies_on_one_connection():
    first, second = order("tokens=9"), order("tokens=11 chunk=2")
    wire = Wire()
    right(wire.take(first.whole()), first)
    assert wire.reusable
    wire.holder = Holder()
    wire.exchange = wire.kept = Exchange(wire.holder, "POST", "/generate", b"{}", True)
    right(wire.take(second.whole()), second)


@pytest.mark.parametrize("cut", range(1, 400, 7))
def test_closed_in_the_middle(cut):
    wire = Wire()
    whole = order("tokens=9").whole()
    assert wire.take(whole[:cut]).error is None
    assert wire.end_of_file().startswith("closed")


def test_what_a_reply_said_before_it_broke_off():
    for reply in (REPLIES["three a chunk"], REPLIES["chat of vLLM, counted as it goes"]):
        wire = Wire(path_of(reply))
        *parts, _, _, _, _ = [reply.part(reply.event(frame)) for frame in reply.frames()]
        exchange = wire.take(reply.head(), *parts)
        exchange.end("reset")
        row = exchange.row(0.0)
        assert row["out"] == row["k1"] + sum(row["toks"]) > 2


def test_continue_before_the_head():
    reply = order("tokens=5")
    right(Wire().take(b"HTTP/1.1 100 Continue\r\n\r\n" + reply.whole()), reply)


def test_trailer_and_extension():
    reply = order("tokens=5")
    body = b"".join(reply.event(frame) for frame in reply.frames())
    wire = Wire()
    wire.take(reply.head() + b"%X;a=b\r\n%b\r\n000\r\nExpires: never\r\n\r\n" % (len(body), body))
    right(wire.kept, reply)


def said(*frames, end=b""):
    """A counted reply of these frames as they are."""
    body = b"".join(b"data: " + frame + b"\n\n" for frame in frames) + end
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body)
    return head + body


DONE = b'{"text":"a b","meta_info":{"finish_reason":{"type":"stop"},"prompt_tokens":3,"completion_tokens":2,"cached_tokens":0}}'


@pytest.mark.parametrize(
    ("frames", "error"),
    [
        ([DONE, b"[DONE]"], None),
        ([DONE], None),  # no [DONE], but the reply is whole
        ([b'{"text":"a","meta_info":{"finish_reason":null,"completion_tokens":1}}', b"[DONE]"], "closed"),
        ([], "closed"),
        ([b'{"error":{"message":"out of memory\\nsecond line"}}', b"[DONE]"], "server: out of memory second line"),
        ([b'{"object":"error","message":"gone"}'], "server: gone"),
        ([b'{"text":'], "malformed"),
        ([b"[1]"], "malformed"),
        ([b'{"text":"","meta_info":{"finish_reason":{"type":"stop"},"completion_tokens":0}}'], "no_tokens"),
        ([b'{"text":"","meta_info":{"finish_reason":{"type":"stop"}}}'], "no_count"),
        ([b'{"text":"","meta_info":{"finish_reason":{"type":"abort","message":"x"},"completion_tokens":1}}'], "server: abort: x"),
    ],
)  # fmt: skip
def test_what_a_reply_lacks(frames, error):
    exchange = Wire().take(said(*frames))
    assert exchange.over
    assert (exchange.error is None) if error is None else exchange.error.startswith(error)


def test_last_event_without_its_empty_line():
    wire = said(DONE)[:-2]
    wire = wire.replace(b"content-length: %d" % (len(DONE) + 8), b"content-length: %d" % (len(DONE) + 6))
    exchange = Wire().take(wire)
    assert (exchange.error, exchange.output) == (None, 2)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 30\r\n\r\n" + b'{"error":{"message":"later"}} ', "http: 503: later"),
        (b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nOops\r\n0\r\n\r\n", "http: 500: Oops"),
        (b"HTTP/1.1 400 X\r\ncontent-length: 0\r\n\r\n", "http: 400: "),
        (b'HTTP/1.1 200 OK\r\ncontent-length: 14\r\n\r\n{"error":"no"}', "malformed: the reply is not an event stream"),
    ],
)
def test_refusals(reply, error):
    for pieces in ([reply], [reply[i : i + 1] for i in range(len(reply))]):
        wire = Wire()
        exchange = wire.take(*pieces)
        assert exchange.over
        assert exchange.error.startswith(error)
        assert not exchange.stamps


@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\nabcd\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD,
    ],
)
def test_not_http(nonsense):
    with pytest.raises(Malformed):
        Wire().take(nonsense)


def test_bytes_that_nobody_asked_for():
    reply = order("tokens=5")
    wire = Wire()
    wire.take(reply.whole())
    with pytest.raises(Malformed):
        wire.take(b"HTTP/1.1 408 Request Timeout\r\n\r\n")


def test_an_event_without_an_end_is_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr("tui.remote.loadgen.reader.MAX_FRAME", 1000)
    reply = order("tokens=5")
    wire = Wire()
    wire.take(reply.head())
    with pytest.raises(Malformed, match="event without an end"):
        wire.take(*([reply.part(b"x" * 100)] * 20))


def test_random_bytes_do_no_harm():
    """Whatever comes, the reader goes on, ends the reply or says Malformed."""
    rng = random.Random(5)
    whole = order("tokens=12 chunk=2").whole()
    for _ in range(2000):
        noisy = bytearray(whole)
        for _ in range(rng.randrange(1, 6)):
            noisy[rng.randrange(len(noisy))] = rng.randrange(256)
        wire = Wire()
        cut = rng.randrange(1, len(noisy))
        try:
            wire.take(bytes(noisy[:cut]), bytes(noisy[cut:]))
            wire.end_of_file()
        except Malformed:
            pass


@pytest.mark.parametrize("name", recorded.NAMES)
def test_replies_of_a_real_server(name):
    """However its bytes are cut, the tokens of a chunk are those that its event counts."""
    for recording in recorded.recordings(name):
        wire = recording.wire
        events = [piece for piece in recorded.pieces(wire) if isinstance(piece, dict)]
        said = [event["meta_info"] if "meta_info" in event else event.get("usage") or {} for event in events]
        counts = [0, *(each["completion_tokens"] for each in said if each)]
        texts = [event["choices"][0]["delta"].get("content") for event in events if event.get("choices")]
        details = [event["sglext"]["spec_tokens_details"] for event in events if "sglext" in event]
        for reads in ([data for _, data in recording.reads], [wire], [wire[i : i + 1] for i in range(len(wire))]):
            row = Wire(recording.path).take(*reads).row(0.0)
            assert row["err"] is None
            assert (row["in"], row["out"]) == (said[-1]["prompt_tokens"], counts[-1])
            if "usage_last" in name:
                assert (row["k1"], row["toks"], row["chunks"]) == (None, None, len([*filter(None, texts)]))
            else:
                grown = [b - a for a, b in itertools.pairwise(counts) if b > a]
                assert [row["k1"], *row["toks"]] == grown
            spec = (details or said)[-1]
            assert row["verify_ct"] == spec.get("spec_verify_ct")
            assert row["correct_drafts"] == spec.get("spec_num_correct_drafts")
            if texts:
                assert "".join(row["texts"]) == "".join(filter(None, texts))
            elif "incremental" not in name:
                assert row["ids"] == events[-1]["output_ids"]


# --- when a warm-up is enough -------------------------------------------------------------------------------------


def warmed_after(monkeypatch, step_s, *, requests=2, limit_s=30.0):
    """Seconds until a warm-up ends, and whether it was steady, for a server whose steps take `step_s(time)`."""
    now = 0.0
    monkeypatch.setattr("tui.remote.loadgen.warmup.clock", lambda: now)
    reply = SimpleNamespace(stamps=array.array("d"))
    load = SimpleNamespace(zero=0.0, tokens=0, completed=0, all=[reply])
    warmth = Warmth(requests, limit_s)
    while not warmth(load):
        now += step_s(now)
        if len(reply.stamps) >= 60 + 25 * load.completed:  # replies of different lengths, and a prefill between them
            load.completed += 1
            reply = SimpleNamespace(stamps=array.array("d"))
            load.all.append(reply)
            now += 0.2
        reply.stamps.append(now)
        load.tokens += 1 + load.tokens % 4  # drafts accepted, or not
    return now, warmth.stable


def test_a_steady_step_is_warm_after_three_spans_whatever_the_replies_are_like(monkeypatch):
    seconds, stable = warmed_after(monkeypatch, lambda now: 0.011)
    assert stable
    assert 6 <= seconds < 7


def test_a_step_that_still_gets_faster_is_not_warm(monkeypatch):
    seconds, stable = warmed_after(monkeypatch, lambda now: 0.030 if now < 4 else 0.011)
    assert stable
    assert 9 < seconds < 11
    assert warmed_after(monkeypatch, lambda now: 0.03 / (1 + now / 10))[1] is False


def test_few_chunks_say_nothing_about_the_step(monkeypatch):
    seconds, stable = warmed_after(monkeypatch, lambda now: 0.5)
    assert not stable
    assert seconds >= 30


# --- what a chat says in one event ------------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def chat_events(deltas, *, counted=True, last=None):
    """Events of vLLM's chat, a delta each; `last`: what the finish event has beside its choice."""
    for number, delta in enumerate(deltas, 1):
        frame = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield frame | ({"usage": {"prompt_tokens": 3, "completion_tokens": number}} if counted else {})
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], **(last or {})}
    if last is None:
        yield {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(deltas)}}


def rows_of(frames):
    """The row of a reply, by whole events and byte by byte: they are the same."""
    events = [b"data: %b\n\n" % json.dumps(frame, separators=(",", ":")).encode() for frame in frames]
    chunks = [b"%x\r\n%b\r\n" % (len(event), event) for event in [*events, b"data: [DONE]\n\n"]]
    wire = b"".join([HEAD, *chunks, b"0\r\n\r\n"])
    pieces = ([HEAD, *chunks, b"0\r\n\r\n"], [wire], [wire[i : i + 1] for i in range(len(wire))])
    found = [Wire("/v1/chat/completions").take(*each).row(0.0) for each in pieces]
    stamps = ("t_first", "t_last", "gaps_us")
    one, *others = [{key: value for key, value in row.items() if key not in stamps} for row in found]
    assert all(other == one for other in others)
    return one


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize(
    ("deltas", "texts"),
    [
        ([{"reasoning": "a"}, {"content": "c", "reasoning": "b"}, {"content": "d"}], ["a", "bc", "d"]),
        ([{"content": "", "reasoning": "r"}] * 4, ["r"] * 4),
        ([{"content": "x", "reasoning_content": "say \"content\":\"y\""}] * 3, ["say \"content\":\"y\"x"] * 3),
        ([{"content": "a"}, {"content": None, "tool_calls": [{"index": 0}]}, {"content": "b"}], ["a", '[{"index": 0}]', "b"]),
        ([{"content": "a\ud83d"}, {"content": "\ude00b"}, {"content": "\ud83d"}], ["a", "😀b", "\ufffd"]),
    ],
)  # fmt: skip
def test_all_text_of_an_event_is_kept_in_its_order(deltas, texts, counted):
    row = rows_of(chat_events(deltas, counted=counted))
    assert row["err"] is None
    assert row["texts"] == texts
    assert row["out"] == len(deltas)
    assert dumps(row)  # whatever writes it


def test_usage_in_the_event_of_the_end_is_no_chunk():
    last = {"usage": {"prompt_tokens": 3, "completion_tokens": 9}}
    row = rows_of(chat_events([{"content": "a"}] * 3, counted=False, last=last))
    assert (row["chunks"], row["out"], row["toks"], row["err"]) == (3, 9, None, None)


def test_an_error_in_the_middle_of_a_reply_is_not_passed_over():
    frames = list(chat_events([{"content": "a"}] * 4))
    frames[2] = {"error": {"message": "boom"}, "usage": {"completion_tokens": 3}}
    assert rows_of(frames)["err"] == "server: boom"


@pytest.mark.fault(
    "F12", "metrics with infinities", sees="a measurement without them", holds="no fault of the load generator"
)
def test_counters_that_are_no_number_are_left_out():
    text = 'vllm:generation_tokens_total{engine="0"} +Inf\nvllm:prompt_tokens_total{engine="0"} 7.0\n'
    assert read_metrics(text) == ({"vllm:prompt_tokens_total": 7}, 0.0)
    facts = {"server_info": None, "model_info": None, "models": {"data": 5}}
    assert identity_of(facts, None, None)["model"] is None
