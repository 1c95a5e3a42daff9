#!/usr/bin/env python3
"""A node of a server as it looks from a job: the recorded log of the real SGLang (tests/data/demo/nodes), its port, its peers.

It stands for an interpreter: with `-m sglang.launch_server …` it is that server, anything else runs on the real one. Rank 0
listens at --dist-init-addr, the others connect there and end when it closes. In: FAIL (a rank that ends with an error once it is up), DIE (a rank that is killed
then), DEAF (rank 0 serves nobody), IGNORE_TERM, WORKER (a child that outlives it), HOG (rank 0 takes 300 MiB).
"""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

if "sglang.launch_server" not in sys.argv:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])

LOGS = Path(__file__).parents[1] / "data/demo/nodes"
READY = "The server is fired up"
DRAIN = "SIGTERM received"


def flag(name: str, default: str) -> str:
    at = len(sys.argv) - 1 - sys.argv[::-1].index(name) if name in sys.argv else -1
    return sys.argv[at + 1] if at >= 0 else default


rank = int(flag("--node-rank", "0"))
lines = (LOGS / f"stopped.{min(rank, 1)}.log").read_text().splitlines(keepends=True)
drains = next((at for at, line in enumerate(lines) if DRAIN in line), len(lines))
peers: list[socket.socket] = []


def meet() -> socket.socket:
    host, _, port = flag("--dist-init-addr", "127.0.0.1:0").rpartition(":")
    if rank == 0:
        listener = socket.create_server((host, int(port)))
        peers.extend(listener.accept()[0] for _ in range(int(flag("--nnodes", "1")) - 1))
        return listener
    while True:
        try:
            return socket.create_connection((host, int(port)))
        except OSError:
            time.sleep(0.05)


def drain(*_: object) -> None:
    if os.environ.get("IGNORE_TERM"):
        return
    sys.stderr.write("".join(lines[drains:]))
    for peer in peers:
        peer.close()
    os._exit(0)


signal.signal(signal.SIGTERM, drain)
if rank == 0 and not os.environ.get("DEAF"):
    serves = socket.create_server((flag("--host", "127.0.0.1"), int(flag("--port", "30000"))))
if os.environ.get("WORKER"):
    subprocess.Popen(["sleep", "1000"], start_new_session=True)
meeting = meet()
sys.stderr.write("".join(lines[:drains]))
sys.stderr.flush()
if os.environ.get("FAIL") == str(rank):
    sys.stderr.write(
        "[2026-11-30 04:30:50 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/x/sglang/srt/managers/scheduler.py", line 3000, in run_scheduler_process\n'
        "    scheduler = Scheduler(server_args, port_args)\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB\n\n"
    )
    os._exit(1)
hog = bytearray(300 << 20) if os.environ.get("HOG") and rank == 0 else b""
if os.environ.get("DIE") == str(rank):
    os.kill(os.getpid(), signal.SIGKILL)
if rank > 0:
    meeting.recv(1)
    sys.exit(0)
while True:
    signal.pause()
