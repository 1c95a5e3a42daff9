"""Opening a log of 1 GiB: time to the first rows and memory, beside Toolong and lnav on the same file in the same run.

    .venv/bin/python benchmarks/log_open.py [--rounds 5] [--gib 1] [--peers DIRECTORY]

Needs lnav (`apt-get install lnav`) and an sshd (`apt-get install openssh-server`); Toolong is installed into an environment
of its own. Every program opens the file, and a file of 1 kB, once a round, one after the other; what is told is the difference of
the medians, so that starting the interpreter does not count. Memory is the anonymous part of what is resident (the pages of the file
itself do not count), of the program and its children, once it has been quiet for two seconds; the programs keep reading
after their first rows. The file is in the page cache.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from big_log import GIB, big_log
from loopback import Loopback
from peers import eagletui
from pty_program import PtyProgram

TOOLONG = "toolong==1.5.0"
ROWS = re.compile(r"(?s)(?:Decode|Prefill) batch.*(?:Decode|Prefill) batch")
_QUIET_S = 2.0
_LIMIT_S = 240.0


@dataclass(frozen=True)
class Viewer:
    name: str
    argv: list[str]  # without the file
    prefix: str = ""  # of the file
    version: str = ""


@dataclass(frozen=True)
class Opened:
    rows_s: float
    memory_mib: float
    quiet_s: float  # until it had done all it does after opening
    cpu_s: float


def toolong(directory: Path) -> Viewer:
    """Toolong in an environment of its own, kept for the next time."""
    home = directory / "toolong"
    if not (home / "done").exists():
        venv.create(home, with_pip=True, clear=True)
        subprocess.run([home / "bin/python", "-m", "pip", "install", "-q", TOOLONG], check=True)
        (home / "done").touch()
    return Viewer("Toolong", [str(home / "bin/tl")], version=TOOLONG.partition("==")[2])


def viewers(directory: Path | None) -> list[Viewer]:
    """Ours on this machine and over SSH, and with a directory the others."""
    ours = [
        Viewer("eagletui, this machine", [eagletui(), "logs"], "local:"),
        Viewer("eagletui over SSH", [eagletui(), "logs"], "loopback:"),
    ]
    if directory is None:
        return ours
    lnav = shutil.which("lnav")
    if lnav is None:
        raise SystemExit("no lnav: apt-get install lnav")
    said = subprocess.run([lnav, "-V"], capture_output=True, text=True, check=True).stdout.split()
    return [*ours, toolong(directory), Viewer("lnav", [lnav], version=said[1])]


def anonymous_mib(root: int) -> float:
    """Anonymous resident memory of a process and everything below it."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    total, queue = 0, [root]
    while queue:
        pid = queue.pop()
        queue += [child for child, parent in parents.items() if parent == pid]
        try:
            found = re.search(r"RssAnon:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
        except OSError:
            continue
        total += int(found[1]) if found else 0
    return total / 1024


def opened(viewer: Viewer, path: Path, env: Mapping[str, str]) -> Opened:
    """Opens a file until its rows are on the screen and the program has come to rest."""
    terminal = PtyProgram([*viewer.argv, viewer.prefix + str(path)], env, columns=160, rows=48)
    began = time.monotonic()
    try:
        rows_s = terminal.wait_for(ROWS.pattern, _LIMIT_S)
        cpu, at = terminal.cpu_s(), time.monotonic()
        while True:
            terminal.run_for(_QUIET_S)
            now, then = terminal.cpu_s(), time.monotonic()
            if (now - cpu) / (then - at) < 0.1 or then - began > _LIMIT_S:
                break
            cpu, at = now, then
        return Opened(rows_s, anonymous_mib(terminal.pid), at - began, now)
    finally:
        terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--peers", type=Path, default=Path(tempfile.gettempdir()) / "eagletui-peers")
    parser.add_argument("--smoke", action="store_true", help="one round of a small log, ours alone")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.gib = 1, 0.01
    chosen = viewers(None if options.smoke else options.peers)
    big, small = big_log(int(options.gib * GIB)), big_log(1_000)
    found: dict[tuple[str, Path], list[Opened]] = {}
    with Loopback() as loopback:
        env = {
            "HOME": str(loopback.home),
            "LANG": "C.UTF-8",
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "EAGLETUI_HOME": str(loopback.home / "eagletui"),
        }
        for path in (small, big):
            os.system(f"cat {path} > /dev/null")
        for _ in range(options.rounds):
            for viewer in chosen:
                for path in (small, big):
                    found.setdefault((viewer.name, path), []).append(opened(viewer, path, env))

    def median(name: str, path: Path, what: str) -> float:
        return statistics.median(getattr(one, what) for one in found[name, path])

    print(f"{options.rounds} rounds, {big.stat().st_size / GIB:.2f} GiB; medians, less those on 1 kB")
    print(
        "| program | first rows, ms | memory, MiB | on 1 kB: first rows, ms | memory, MiB | at rest after, s | CPU until then, s |"
    )
    print("|---|---|---|---|---|---|---|")
    for viewer in chosen:
        name = viewer.name
        rows = 1000 * (median(name, big, "rows_s") - median(name, small, "rows_s"))
        memory = median(name, big, "memory_mib") - median(name, small, "memory_mib")
        print(
            f"| {name} {viewer.version} | {rows:.0f} | {memory:.1f} | {1000 * median(name, small, 'rows_s'):.0f} "
            f"| {median(name, small, 'memory_mib'):.1f} | {median(name, big, 'quiet_s'):.1f} | {median(name, big, 'cpu_s'):.1f} |"
        )


if __name__ == "__main__":
    main()
