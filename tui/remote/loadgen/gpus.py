"""Samples of the GPUs during a bench, by nvidia-smi, and whose processes are on them."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from typing import Any

from tui.remote.loadgen.processes import family
from tui.remote.loadgen.protocol import clock


class Child:
    """A program that prints lines until it is ended; it never outlives this process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, argv: list[str], line: Callable[[str], None]) -> None:
        libc = ctypes.CDLL(None)
        buffer = shutil.which("stdbuf")  # output into a pipe may be held back until 4 KiB have come together
        self.loop, self.line = loop, line
        self.rest = b""
        self.process = subprocess.Popen(
            [buffer, "-oL", *argv] if buffer else argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: libc.prctl(1, signal.SIGKILL),  # PR_SET_PDEATHSIG
        )
        assert self.process.stdout is not None
        self.descriptor = self.process.stdout.fileno()
        os.set_blocking(self.descriptor, False)
        loop.add_reader(self.descriptor, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.loop.remove_reader(self.descriptor)
            return
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self.line(line.decode("utf-8", "replace").strip())

    def end(self) -> None:
        """Kills it."""
        self.loop.remove_reader(self.descriptor)
        with contextlib.suppress(OSError):
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Gpus:
    """Samples of the GPUs by nvidia-smi, once a second; the processes on them, every five."""

    def __init__(self, loop: asyncio.AbstractEventLoop, gpus: list[int] | None, pids: list[int]) -> None:
        """`gpus`: None samples all, [] none; `pids`: whose processes are the server's."""
        self.loop, self.chosen, self.ours = loop, gpus, pids
        self.samples: list[list[Any]] = []  # [clock, index, W, %, MiB, MHz, mask]
        self.pids: list[tuple[float, int]] = []
        self.children: list[Child] = []
        self.program = shutil.which("nvidia-smi")
        self.reasons = ["clocks_throttle_reasons.active", "clocks_event_reasons.active"]  # an old name and a new one
        if self.program is not None and gpus != []:
            self._ask_for_samples()
            self._start("--query-compute-apps=pid", 5, self._process)

    def _ask_for_samples(self) -> None:
        fields = f"index,power.draw,utilization.gpu,memory.used,clocks.sm,{self.reasons.pop()}"
        self._start(f"--query-gpu={fields}", 1, self._sample)

    def _start(self, query: str, period_s: int, line: Callable[[str], None]) -> None:
        chosen = ["-i", ",".join(map(str, self.chosen))] if self.chosen else []
        argv = [str(self.program), query, "--format=csv,noheader,nounits", *chosen, "-l", str(period_s)]
        self.children.append(Child(self.loop, argv, line))

    def _sample(self, line: str) -> None:
        if "not a valid field" in line and self.reasons:
            self._ask_for_samples()
        parts = [part.strip() for part in line.split(",")]
        if len(parts) != 6 or not parts[0].isdigit():
            return

        def number(text: str) -> float | None:
            try:
                return float(text)
            except ValueError:
                return None

        mask = None
        with contextlib.suppress(ValueError):
            mask = int(parts[5], 16)
        self.samples.append([clock(), int(parts[0]), *map(number, parts[1:5]), mask])

    def _process(self, line: str) -> None:
        if line.isdigit():
            self.pids.append((clock(), int(line)))

    def now(self) -> tuple[float | None, float | None]:
        """Power of all in W, and memory of the fullest in MiB."""
        newest = {sample[1]: sample for sample in self.samples[-64:] if clock() - sample[0] < 5}
        powers = [sample[2] for sample in newest.values() if sample[2] is not None]
        memory = [sample[4] for sample in newest.values() if sample[4] is not None]
        return (sum(powers) if powers else None), (max(memory) if memory else None)

    def during(self, begin: float, end: float) -> dict[str, Any] | None:
        """Samples and foreign processes of a run."""
        samples = [[round(at - begin, 3), *rest] for at, *rest in self.samples if begin <= at <= end]
        if not samples:
            return None
        # From shortly before: the list comes every five seconds only.
        seen = {pid for at, pid in self.pids if begin - 6 <= at <= end}
        foreign = None
        if self.ours:
            ours = set().union(*map(family, self.ours))
            if seen & ours:  # else the server is in another process namespace, or not on these GPUs
                foreign = sorted(seen - ours)
        return {"samples": samples, "foreign_pids": foreign}

    def forget(self, before: float) -> None:
        """Drops what no later run needs."""
        self.samples = [sample for sample in self.samples if sample[0] >= before]
        self.pids = [entry for entry in self.pids if entry[0] >= before - 6]

    def end(self) -> None:
        """Ends the samplers."""
        for child in self.children:
            child.end()
        self.children = []
