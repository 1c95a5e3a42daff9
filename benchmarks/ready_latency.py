"""From the ready line written on the host to the panel showing READY, over a real sshd on loopback.

    .venv/bin/python benchmarks/ready_latency.py [--smoke] [--rounds 30]

Each round launches a stand-in for SGLang (`ready_stand_in.py`: the log lines and HTTP answers of a start, held just before
its last line), opens the panel in a pseudo-terminal, lets it settle, and releases the line. The clock starts when
the stand-in has written the line and stops when the terminal has received READY; both are this machine's clock. Printed: the
median and the 95th percentile in milliseconds. --smoke takes one round.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

from loopback import Loopback, free_port
from peers import eagletui
from pty_program import PtyProgram

STAND_IN = Path(__file__).with_name("ready_stand_in.py")
SETTLE_S = 3.0


def one_round(loopback: Loopback, environment: dict[str, str]) -> float:
    """Seconds from the line to the screen."""
    go = loopback.directory / "go"
    written = loopback.directory / "written"
    go.unlink(missing_ok=True)
    written.unlink(missing_ok=True)
    port = free_port()
    command = [sys.executable, str(STAND_IN), str(port), str(go), str(written)]
    profile = f'kind = "launch"\ncommand = {json.dumps(command)}\n[args]\nport = {port}\n'
    (loopback.home / "profiles/held.toml").write_text(profile)

    def call(*arguments: str) -> dict[str, object]:
        done = subprocess.run(
            [eagletui(), *arguments, "--json"], env=environment, cwd=loopback.home, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(done.stdout + done.stderr)
        return json.loads(done.stdout)

    run = str(call("launch", "held", "--host", "loopback")["run"])
    panel = PtyProgram([eagletui(), "loopback"], environment, cwd=str(loopback.home))
    try:
        panel.wait_for("(?i)starting", 30)
        panel.run_for(SETTLE_S)
        go.touch()
        panel.wait_for("READY", 30)
        seen = time.time()
        return seen - float(written.read_text())
    finally:
        panel.close()
        call("stop", run, "--yes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--smoke", action="store_true", help="one round: whether it runs at all")
    options = parser.parse_args()
    rounds = 1 if options.smoke else options.rounds
    with Loopback() as loopback:
        (loopback.home / "profiles").mkdir()
        environment = {
            "HOME": str(loopback.home),
            "LANG": "C.UTF-8",
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        }
        seconds = sorted(one_round(loopback, environment) for _ in range(rounds))
    p95 = statistics.quantiles(seconds, n=20)[-1] if len(seconds) > 1 else seconds[0]
    print(f"n {rounds}, median {1000 * statistics.median(seconds):.0f} ms, 95th percentile {1000 * p95:.0f} ms")


if __name__ == "__main__":
    main()
