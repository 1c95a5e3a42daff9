"""The lines of which a serving server writes millions."""

import random


def usual_lines(rng: random.Random, count: int, *, stamped: bool = True) -> bytes:
    """Batches and answered requests; `stamped`: of a server that stamps its access lines."""
    out = []
    for _ in range(count):
        stamp = f"2026-10-06 20:{rng.randrange(60):02}:{rng.randrange(60):02}"
        kind = rng.randrange(10)
        if kind < 5:
            out.append(
                f"[{stamp} TP0] Decode batch, #running-req: {rng.randrange(1, 60)}, #token: {rng.randrange(9999)}, "
                f"token usage: 0.{rng.randrange(10, 99)}, accept len: {1 + rng.random():.2f}, cuda graph: True, "
                f"gen throughput (token/s): {rng.random() * 999:.2f}, #queue-req: 0, "
            )
        elif kind < 7:
            out.append(
                f"[{stamp} TP0] Prefill batch, #new-seq: 1, #new-token: {rng.randrange(9999)}, #cached-token: 0, "
                "token usage: 0.00, #running-req: 0, #queue-req: 0, "
            )
        else:
            out.append(
                (f"[{stamp}] " if stamped else "")
                + f'INFO:     127.0.0.1:{rng.randrange(1024, 65000)} - "POST /generate HTTP/1.1" 200 OK'
            )
    return "".join(line + "\n" for line in out).encode()
