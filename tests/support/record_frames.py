"""Records what the real SGLang of `tests/sglang_cpu` sends: `python tests/measure/record_frames.py`, some three minutes.

Writes `tests/data/http/*.jsonl`; the README there says what a line is. The machine should be idle: a recorder that is late
reads in one piece what came in several.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
OUT = HERE.parent / "data" / "http"
READY_S = 300
EAGLE3 = {
    "speculative-algorithm": "EAGLE3",
    "speculative-draft-model-path": "tiny-eagle3-draft",
    "speculative-num-steps": 3,
    "speculative-eagle-topk": 1,
    "speculative-num-draft-tokens": 4,
}
CONTINUOUS = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
USAGE_LAST = {"stream_options": {"include_usage": True}}


def chat(prompt: str, length: int = 24, **more: Any) -> tuple[str, dict[str, Any]]:
    messages = [{"role": "user", "content": prompt}]
    body = {"model": "tiny-llama", "messages": messages, "max_tokens": length, "temperature": 0, "stream": True}
    return "/v1/chat/completions", {**body, "return_spec_tokens_details": True, **more}


def generate(prompt: str, length: int = 24, **more: Any) -> tuple[str, dict[str, Any]]:
    sampling = {"max_new_tokens": length, "temperature": 0, **more}
    return "/generate", {"text": prompt, "sampling_params": sampling, "stream": True}


STORY = "Tell me a story"
STOPS = "name about, differ"  # the tiny model ends it by itself
ENDS = {"stop_token_ids": [391]}  # "ther", the tenth: by chat no prompt makes it end
# Its tokens are bytes of these, so that a step may bring tokens and no text.
PIECES = {"regex": "(é|😀|ü|x){6,9}"}
# Requests that are sent together share a name.
PLAIN = {
    "chat_continuous": [chat(STORY, **CONTINUOUS)],
    "chat_usage_last": [chat(STORY, **USAGE_LAST)],
    "generate": [generate(STORY)],
}
SPECULATING = {
    "chat_continuous_eagle3": [chat(STORY, **CONTINUOUS)],
    "chat_usage_last_eagle3": [chat(STORY, **USAGE_LAST)],
    "chat_stop_eagle3": [chat(STORY, **ENDS, **CONTINUOUS)],
    "chat_utf8_eagle3": [chat(STORY, 64, **PIECES, **CONTINUOUS)],
    "chat_two_eagle3": [chat(STORY, **CONTINUOUS), chat(STOPS, **CONTINUOUS)],
    "generate_eagle3": [generate(STORY)],
    "generate_stop_eagle3": [generate(STOPS, 64)],
    "generate_utf8_eagle3": [generate(STORY, **PIECES)],
    "generate_two_eagle3": [generate(STORY), generate(STOPS, 64)],
}
INCREMENTAL = {
    "generate_incremental_eagle3": [generate(STORY)],
    "generate_incremental_utf8_eagle3": [generate(STORY, **PIECES)],
}
SERVERS = [({}, PLAIN), (EAGLE3, SPECULATING), ({**EAGLE3, "incremental-streaming-output": None}, INCREMENTAL)]


def reads(port: int, path: str, body: dict[str, Any]) -> Iterator[tuple[float, bytes]]:
    """Each read of the reply's bytes: seconds since the request was sent, and what came."""
    text = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + text)
        begin, tail = time.perf_counter(), b""
        while not tail.endswith(b"0\r\n\r\n"):
            data = connection.recv(1 << 18)
            assert data, "closed in the middle of a reply"
            yield time.perf_counter() - begin, data
            tail = (tail + data)[-5:]


def recorded(port: int, requests: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Sends them together: the lines of a file."""
    lines: list[list[dict[str, Any]]] = [[{"path": path, "request": body}] for path, body in requests]

    def send(which: int) -> None:
        for at, data in reads(port, *requests[which]):
            text = data.decode("utf-8", "surrogateescape")  # a read may end in the middle of a character
            lines[which].append({"t": round(at, 6), "text": text})

    senders = [threading.Thread(target=send, args=(which,)) for which in range(len(requests))]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join()
    return [line for part in lines for line in part]


@contextlib.contextmanager
def served(place: Path, flags: dict[str, object]) -> Iterator[int]:
    """A server with these flags; its port."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    models = place / "models"
    common = {
        "model-path": "tiny-llama",
        "served-model-name": "tiny-llama",  # no path of this machine in a reply
        "device": "cpu",
        "host": "127.0.0.1",
        "port": port,
        "prefill-attention-backend": "intel_amx",
        "decode-attention-backend": "intel_amx",
        "mem-fraction-static": 0.2,
        "max-total-tokens": 8192,
        "enable-metrics": None,  # as at every launch of ours: meta_info has more with it
    }
    argv = [str(place / "venv/bin/python"), "-m", "sglang.launch_server"]
    for name, value in {**common, **flags}.items():
        shown = models / str(value) if name.endswith("model-path") else value
        argv += [f"--{name}"] if value is None else [f"--{name}", str(shown)]
    environment = {
        "SGLANG_USE_CPU_ENGINE": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
    }
    server = subprocess.Popen(
        argv,
        env={**os.environ, **environment},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + READY_S
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5):
                break
            assert server.poll() is None, "the server ended"
            assert time.monotonic() < end, "the server does not get ready"
            time.sleep(0.5)
        yield port
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def main() -> None:
    where = subprocess.run(
        [HERE.parent / "sglang_cpu" / "setup.sh", "--where"], capture_output=True, text=True, check=True
    )
    place = Path(os.environ.get("EAGLETUI_TEST_SGLANG") or where.stdout.strip())
    for flags, recordings in SERVERS:
        with served(place, flags) as port:
            for name, requests in recordings.items():
                recorded(port, requests)  # what a first request sets up is not in the recording
                lines = recorded(port, requests)
                (OUT / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
                print(name, len(lines) - len(requests), "reads", flush=True)


if __name__ == "__main__":
    sys.exit(main())
