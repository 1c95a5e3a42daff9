"""CPU and bytes to the terminal of the panel left alone, with eight GPUs sampled once a second, beside other monitors.

    .venv/bin/python benchmarks/idle.py [--rounds 3] [--window 20] [--peers DIRECTORY] [--sglang HOST:PORT]

Each round runs every program once, one after the other, in a pseudo-terminal of 160x48: first frame, eight seconds to
settle, then the window. CPU is user and system time of the program and all its children; printed are medians over the
rounds and the ratio to eagletui's on the simulated host. The simulated host is a process of its own and is not counted, as a GPU host's
sshd would not be.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from peers import Program, eagletui, prepare
from pty_program import PtyProgram

SETTLE_S = 8.0


def measure(program: Program, window_s: float) -> tuple[float, float]:
    """(percent of one core, bytes a second to the terminal)."""
    terminal = PtyProgram(program.argv, program.env, cwd=program.cwd)
    try:
        terminal.wait_for(program.full_screen, 60)
        terminal.keys(program.keys)
        terminal.run_for(SETTLE_S)
        cpu, sent = terminal.cpu_s(), terminal.bytes
        terminal.run_for(window_s)
        return 100 * (terminal.cpu_s() - cpu) / window_s, (terminal.bytes - sent) / window_s
    finally:
        terminal.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--window", type=float, default=20.0, help="seconds")
    parser.add_argument("--peers", type=Path, default=Path(tempfile.gettempdir()) / "eagletui-peers")
    parser.add_argument("--sglang", metavar="HOST:PORT", help="a server for sgtop to watch")
    parser.add_argument("--smoke", action="store_true", help="one round of seconds, ours alone")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.window = 1, 2.0

    programs = [] if options.smoke else prepare(options.peers, sglang=options.sglang)
    with tempfile.TemporaryDirectory() as home:
        environment = {"HOME": home, "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
        ours = Program("eagletui", [eagletui(), "demo"], EIGHT_GPUS, environment, note="simulated host over SSH, 1 Hz")
        config = Path(home, ".config/eagletui/config.toml")
        config.parent.mkdir(parents=True)
        config.write_text(f"[hosts.local]\npython = {json.dumps(sys.executable)}\n")  # it has nvidia-ml-py
        local = Program(
            "eagletui local",
            [eagletui(), "local"],
            r"\s7\s+▆",
            {**environment, "LD_LIBRARY_PATH": str(options.peers / "nvml")},
            note="the NVML stand-in of nvitop, the sampler counted, 1 Hz",
        )
        programs = [local, *programs] if programs else []  # its library stand-in is made for the peers
        results: dict[str, list[tuple[float, float]]] = {}
        for _ in range(options.rounds):
            for program in [ours, *programs]:
                results.setdefault(program.name, []).append(measure(program, options.window))

    def median(name: str, column: int) -> float:
        return statistics.median(row[column] for row in results[name])

    cpu, sent = median("eagletui", 0), median("eagletui", 1)
    print("| program | CPU, % of a core | to eagletui | bytes/s | to eagletui | how |")
    print("|---|---|---|---|---|---|")
    for program in [ours, *programs]:
        own_cpu, own_sent = median(program.name, 0), median(program.name, 1)
        print(
            f"| {program.name} | {own_cpu:.1f} | {own_cpu / cpu:.1f}x | {own_sent:.0f} | {own_sent / sent:.1f}x"
            f" | {program.note} |"
        )


EIGHT_GPUS = r"(?s)SIMULATED.*\s7\s+▆"  # the row of the last GPU

if __name__ == "__main__":
    main()
