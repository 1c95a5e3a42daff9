"""A log of any size like that of a busy SGLang server, made once and kept: mostly batches, some requests and warnings."""

import random
import tempfile
import time
from pathlib import Path

RARE = "a0b1c2d3e4f5"  # stands in very few lines
_EVERY = 2_000_000  # lines from one of them to the next
GIB = 1 << 30


def big_log(size: int = GIB, directory: Path | None = None) -> Path:
    """A file of about `size` bytes; its stamps ascend, its lines differ."""
    path = (directory or Path(tempfile.gettempdir()) / "eagletui-big-logs") / f"server-{size}.log"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    part = path.with_suffix(".part")
    at, count, written = 1_790_000_000.0, 0, 0
    with part.open("w", buffering=1 << 20) as file:
        while written < size:
            at += rng.random() * 0.4
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
            text = _line(rng, count, stamp)
            file.write(text)
            written += len(text)
            count += 1
    part.rename(path)
    return path


def _line(rng: random.Random, count: int, stamp: str) -> str:
    if count % _EVERY == 1:
        return f"[{stamp} TP0] request {RARE} was dropped by its client\n"
    kind = count % 10
    if kind < 6:
        return (
            f"[{stamp} TP0] Decode batch, #running-req: {rng.randint(1, 64)}, #token: {rng.randint(1000, 400000)}, "
            f"token usage: {rng.random():.2f}, accept len: {1 + rng.random() * 3:.2f}, accept rate: {rng.random():.2f}, "
            f"cuda graph: True, gen throughput (token/s): {rng.random() * 4000:.2f}, #queue-req: {rng.randint(0, 9)}\n"
        )
    if kind < 8:
        return (
            f"[{stamp} TP0] Prefill batch, #new-seq: {rng.randint(1, 8)}, #new-token: {rng.randint(1, 8192)}, "
            f"#cached-token: {rng.randint(0, 8192)}, token usage: {rng.random():.2f}, "
            f"#running-req: {rng.randint(1, 64)}, #queue-req: 0, cuda graph: False\n"
        )
    if kind < 9:
        port = rng.randint(30_000, 65_000)
        return f'[{stamp}] INFO:     127.0.0.1:{port} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
    return f"[{stamp} TP{count % 8}] a diagnostic word of module {rng.randint(1, 999)}: {rng.getrandbits(64):016x}\n"
