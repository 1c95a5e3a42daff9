"""What masking secrets costs a log line: bytes through `SecretMask`, beside a plain loop with one compiled `search` a line.

    .venv/bin/python benchmarks/masking.py [--mib 64] [--rounds 5]

The log is the serving part of that of `tracker_speed.py`. Nothing, one secret and fifty are known; once none of them stands in
the log, once every hundredth line has one. CPU time, all in turns, medians; the last column is the ratio to the plain loop.
"""

import argparse
import random
import re
import statistics
import string
import time
from collections.abc import Callable

from tui.core.masking.known import forget, learn
from tui.core.masking.written import SecretMask

_CHUNK = 1 << 16  # bytes, as a link brings them
_LINES = (
    "[2026-10-06 20:{m:02}:{s:02} TP0] Decode batch. #running-req: {n}, #token: {t}, token usage: 0.{n:02}, accept len: 2.41, "
    "cuda graph: True, gen throughput (token/s): {t}.50, #queue-req: 0, \n",
    '[2026-10-06 20:{m:02}:{s:02}] INFO:     127.0.0.1:{t} - "POST /generate HTTP/1.1" 200 OK\n',
    "[2026-10-06 20:{m:02}:{s:02} TP3] Prefill batch. #new-seq: 1, #new-token: {t}, #cached-token: 0, token usage: 0.{n:02}\n",
)


def _log(size: int, secrets: list[str]) -> bytes:
    chance = random.Random(3)
    parts, done, number = [], 0, 0
    while done < size:
        line = chance.choice(_LINES).format(
            m=number // 60 % 60, s=number % 60, n=number % 48 + 1, t=chance.randint(1, 65000)
        )
        if secrets and number % 100 == 0:
            line = f"{line[:-1]} value is {chance.choice(secrets)}\n"
        parts.append(line.encode())
        done += len(parts[-1])
        number += 1
    return b"".join(parts)


def _plain(log: bytes) -> int:
    search = re.compile(rb"Decode batch\. #running-req: (\d+)").search
    return sum(search(line) is not None for line in log.splitlines())


def _masked(log: bytes) -> int:
    mask = SecretMask()
    found = sum(mask.feed(log[at : at + _CHUNK]).count(b"***") for at in range(0, len(log), _CHUNK))
    return found + mask.flush().count(b"***")


def _timed(work: Callable[[bytes], int], log: bytes) -> float:
    begin = time.process_time()
    work(log)
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=float, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="small, to see that it runs")
    given = parser.parse_args()
    size, rounds = (1 << 18, 1) if given.smoke else (int(given.mib * (1 << 20)), given.rounds)
    chance = random.Random(5)
    letters = string.ascii_letters + string.digits + "-_"
    secrets = ["".join(chance.choices(letters, k=chance.randint(12, 48))) for _ in range(50)]
    cases = [(count, planted) for planted in (False, True) for count in (0, 1, 50) if count or not planted]
    logs = {False: _log(size, []), True: _log(size, secrets[:1])}
    lines = logs[False].count(b"\n")
    took: dict[object, list[float]] = {}
    for _ in range(rounds):
        took.setdefault("plain", []).append(_timed(_plain, logs[False]))
        for count, planted in cases:
            forget()
            learn(*secrets[:count])
            took.setdefault((count, planted), []).append(_timed(_masked, logs[planted]))
    plain = statistics.median(took["plain"])
    print(f"{lines:,} lines, {size / (1 << 20):.1f} MiB; plain loop {plain / lines * 1e9:.0f} ns a line")
    for count, planted in cases:
        each = statistics.median(took[count, planted])
        where = "every 100th line has one" if planted else "none stands there"
        print(
            f"{count:>3} known, {where:<25} {each / lines * 1e9:6.0f} ns a line  {each / plain:5.2f} of the plain loop"
        )


if __name__ == "__main__":
    main()
