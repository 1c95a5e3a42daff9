"""CPU seconds of `eagletui --help` and up to the panel's first whole frame, beside other programs.

    .venv/bin/python benchmarks/startup.py [--rounds 7] [--peers DIRECTORY]

CPU is user and system time of the program and all its children. Rounds run the programs one after the other; medians.
The simulated host runs already when the panel is measured, as a GPU host's sshd would.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from idle import EIGHT_GPUS
from peers import eagletui, prepare
from pty_program import PtyProgram


def cpu_of(argv: list[str], env: Mapping[str, str], cwd: str | None = None) -> float:
    """CPU seconds of a command that ends by itself."""
    process = subprocess.Popen(argv, env=dict(env), cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, usage = os.wait4(process.pid, 0)
    process.returncode = 0  # reaped here, not by Popen
    return usage.ru_utime + usage.ru_stime


def cpu_to_frame(argv: list[str], env: Mapping[str, str], pattern: str, cwd: str | None) -> tuple[float, float]:
    """(CPU seconds, wall seconds) from the start to the pattern on the screen."""
    terminal = PtyProgram(argv, env, cwd=cwd)
    try:
        wall = terminal.wait_for(pattern, 60)
        return terminal.cpu_s(), wall
    finally:
        terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--peers", type=Path, default=Path(tempfile.gettempdir()) / "eagletui-peers")
    parser.add_argument("--smoke", action="store_true", help="one round, ours alone")
    options = parser.parse_args()
    if options.smoke:
        options.rounds = 1
    peers = [] if options.smoke else prepare(options.peers)
    helps: dict[str, list[float]] = {}
    frames: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
        cpu_to_frame([eagletui(), "demo"], environment, EIGHT_GPUS, None)  # starts the simulated host
        for _ in range(options.rounds):
            helps.setdefault("eagletui", []).append(cpu_of([eagletui(), "--help"], environment))
            frames.setdefault("eagletui", []).append(cpu_to_frame([eagletui(), "demo"], environment, EIGHT_GPUS, None))
            for peer in peers:
                helps.setdefault(peer.name, []).append(cpu_of([peer.argv[0], "--help"], peer.env, peer.cwd))
                frames.setdefault(peer.name, []).append(cpu_to_frame(peer.argv, peer.env, peer.full_screen, peer.cwd))
    print("| program | --help, CPU s | first whole frame, CPU s | wall s |")
    print("|---|---|---|---|")
    for name, seconds in helps.items():
        cpu = statistics.median(row[0] for row in frames[name])
        wall = statistics.median(row[1] for row in frames[name])
        print(f"| {name} | {statistics.median(seconds):.2f} | {cpu:.2f} | {wall:.2f} |")


if __name__ == "__main__":
    main()
