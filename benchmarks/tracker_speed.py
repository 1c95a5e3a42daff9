"""Lines a second through tracker and diagnosis, beside a plain Python loop with one compiled `search` a line.

    .venv/bin/python benchmarks/tracker_speed.py [--gib 0.125] [--rounds 3] [--file LOG]

The log is made anew each time: a start of eight ranks with bars and NCCL's lines, then hours of serving in a realistic mix
(decode, prefill and access lines, warnings of a slow tokenizer, retractions, lines of other libraries), and a crash at
its end. Both read the same file in the same run, one after the other, in turns; medians. Memory is the peak of the
process that reads with the tracker, for the whole file and for a tenth of it: flat means that they are alike.
"""

import argparse
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_RANKS = 8
_TOKENIZER = (
    "/opt/sglang/lib/python3.12/site-packages/sglang/srt/utils/hf_transformers_utils.py:412: UserWarning: "
    "Using a slow tokenizer. This might cause a significant slowdown. Consider using a fast tokenizer instead.\n"
)
_OTHERS = (
    "gpu1:4242:4377 [3] NCCL INFO Channel 01/0 : 3[3] -> 4[4] via SHM/direct/direct\n",
    "[rank3]:[W1006 20:14:09.113 ProcessGroupNCCL.cpp:1538] Warning: barrier without device_ids\n",
    "[2026-10-06 {t}] Cache flushed successfully!\n",
    "[2026-10-06 {t} TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, #new_token_ratio: 0.6 -> 0.9\n",
    "\n",
)


def _clock(second: int) -> str:
    second %= 86_400
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


def _start() -> Iterator[str]:
    """A start of eight ranks up to ready, in the words of 0.5.23."""
    second = 72_000

    def line(text: str, rank: int | None = None) -> str:
        return f"[2026-10-06 {_clock(second)}{'' if rank is None else f' TP{rank}'}] {text}\n"

    args = {"model_path": "/data/models/Kimi-K2.5", "tp_size": 8, "mem_fraction_static": 0.88}
    args |= {f"some_other_argument_{number}": None for number in range(400)}
    yield line(f"server_args={args!r}")
    for text in ("Init parallel begin.", "Init parallel ends. elapsed=2.61 s", "Load weight begin. avail mem=94.50 GB"):
        second += 3
        yield from (line(text, rank) for rank in range(_RANKS))
    for shard in range(65):
        second += 8
        yield (
            f"\rLoading safetensors checkpoint shards: {shard * 100 // 64:3}% Completed | {shard}/64 "
            f"[{shard:02}:00<10:00,  8.20s/it]"
        )
        yield _TOKENIZER if shard % 3 == 0 else ""
    yield "\n"
    for text in (
        "Load weight end. elapsed=523.90 s, type=KimiK25ForConditionalGeneration, avail mem=22.80 GB, mem usage=71.70 GB.",
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 171008, KV size: 11.19 GB",
        "Memory pool end. avail mem=11.19 GB",
        "Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=11.00 GB",
    ):
        second += 2
        yield from (line(text, rank) for rank in range(_RANKS))
    for done in range(21):
        yield f"\rCapturing batches (bs={128 - 6 * done} avail_mem=9.70 GB): {done * 5:3}%|{'#' * done}| {done}/20 [00:10<00:10,  1.62s/it]"
    yield "\n"
    yield from (
        line("Capture target decode CUDA graph end. elapsed=32.02 s, mem usage=1.61 GB, avail mem=9.19 GB.", rank)
        for rank in range(_RANKS)
    )
    yield line(
        "max_total_num_tokens=171008, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, "
        "context_len=131072, available_gpu_mem=9.10 GB",
        0,
    )
    for text in ("Started server process [4242]", "Application startup complete.", "Uvicorn running on http://127.0.0.1:30000 (Press CTRL+C to quit)"):  # fmt: skip
        yield line(f"INFO:     {text}")
    yield line("The server is fired up and ready to roll!")


def _serving(size: int) -> Iterator[str]:
    """`size` bytes of serving, in blocks."""
    chance = random.Random(1)
    second, written = 73_000, 0
    while written < size:
        block = []
        for _ in range(2000):
            second += chance.random() < 0.2
            now = _clock(second)
            kind = chance.random()
            if kind < 0.60:
                running = chance.randint(1, 64)
                block.append(
                    f"[2026-10-06 {now} TP0] Decode batch, #running-req: {running}, #token: {running * 731}, token usage: "
                    f"{running / 99:.2f}, accept len: {1.5 + chance.random():.2f}, accept rate: {chance.random():.2f}, cuda graph: True, "
                    f"gen throughput (token/s): {running * 39.7:.2f}, #queue-req: {chance.randint(0, 4)}\n"
                )
            elif kind < 0.76:
                block.append(
                    f"[2026-10-06 {now} TP0] Prefill batch, #new-seq: 1, #new-token: {chance.randint(6, 8192)}, #cached-token: 0, "
                    f"token usage: 0.12, #running-req: {chance.randint(0, 64)}, #queue-req: 0, cuda graph: False, input throughput (token/s): 8112.20\n"
                )
            elif kind < 0.94:
                block.append(
                    f'[2026-10-06 {now}] INFO:     10.0.0.{chance.randint(1, 254)}:{chance.randint(1024, 65535)} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
                )
            elif kind < 0.98:
                block.append(_TOKENIZER)
            else:
                block.append(chance.choice(_OTHERS).format(t=now))
        text = "".join(block)
        written += len(text)
        yield text


_CRASH = """[2026-10-06 23:59:58 TP3] Scheduler hit an exception: Traceback (most recent call last):
  File "/opt/sglang/lib/python3.12/site-packages/sglang/srt/managers/scheduler.py", line 3120, in run_scheduler_process
    scheduler.event_loop_overlap()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.25 GiB. GPU 3 has a total capacity of 94.97 GiB of which 0.52 GiB is free.

[2026-10-06 23:59:58] Received sigquit from a child process. It usually means the child failed.
"""


def make_log(path: Path, size: int) -> None:
    """Writes a log of about `size` bytes."""
    with path.open("w", encoding="utf-8", newline="") as out:
        for part in _start():
            out.write(part)
        for block in _serving(size):
            out.write(block)
        out.write(_CRASH)


def plain_loop(path: str) -> tuple[int, int]:
    """The yardstick: (lines, hits) of one compiled pattern, line by line."""
    pattern = re.compile(
        rb"Decode batch.*#running-req: (\d+),.*gen throughput \(token/s\): ([\d.]+)|out of memory|hit an exception"
    )
    lines = hits = 0
    with open(path, "rb") as file:
        for line in file:
            lines += 1
            if pattern.search(line):
                hits += 1
    return lines, hits


def diagnose(path: str) -> dict[str, object]:
    """What `eagletui diagnose` does with a file."""
    from tui.core.sglang.report import report_of
    from tui.core.sglang.tracker import LogTracker

    tracker = LogTracker(records=False)
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 17), b""):
            tracker.feed(block)
    tracker.flush()
    return report_of(tracker)


def _peak_mib(path: Path) -> float:
    """Peak resident memory of a process that diagnoses the file."""
    program = "import sys; sys.path[:0] = sys.argv[2:]; import tracker_speed; tracker_speed.diagnose(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, path, Path(__file__).parent], check=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=0.125)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--file", type=Path, help="a log of your own instead")
    parser.add_argument("--smoke", action="store_true", help="one round of a small log")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.gib = 1, 0.002
    with tempfile.TemporaryDirectory() as directory:
        path = options.file or Path(directory, "log")
        if options.file is None:
            make_log(path, int(options.gib * 2**30))
        small = Path(directory, "small")
        make_log(small, max(1, os.path.getsize(path) // 10))
        lines, _ = plain_loop(str(path))  # and the file is in the page cache
        found = diagnose(str(path))
        plain, ours = [], []
        for _ in range(options.rounds):
            began = time.process_time()
            plain_loop(str(path))
            plain.append(time.process_time() - began)
            began = time.process_time()
            diagnose(str(path))
            ours.append(time.process_time() - began)
        tenth, whole = _peak_mib(small), _peak_mib(path)  # children's peak only grows, so the small one first
        base, rate = lines / statistics.median(plain), lines / statistics.median(ours)
        ratios = [p / o for p, o in zip(plain, ours, strict=True)]
        print(
            f"{os.path.getsize(path) / 2**30:.2f} GiB, {lines:,} lines: {found['outcome']} in {found['phase']}, {found['cause']}"
        )
        print(f"plain loop, one search a line   {base:>12,.0f} lines/s")
        print(f"tracker and diagnosis           {rate:>12,.0f} lines/s")
        print(f"ratio                           {statistics.median(ratios):>12.2f}  ({min(ratios):.2f} to {max(ratios):.2f}, n = {len(ratios)})")  # fmt: skip
        print(f"peak memory                     {whole:>8.1f} MiB  (a tenth of the log: {tenth:.1f} MiB)")


if __name__ == "__main__":
    main()
