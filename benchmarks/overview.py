"""Twenty hosts in one panel, five of them unreachable and one that hangs: first frame, keys, and who waits for whom.

    .venv/bin/python benchmarks/overview.py [--smoke] [--hosts 20] [--closed 5] [--hanging 1] [--keys 40] [--rounds 1]

Hosts that answer are one sshd on loopback under several names, each with a stand-in for nvidia-smi (eight GPUs, once a
second); the others are a closed port, and a port that takes connections and never says a word. Measured in a
pseudo-terminal of 160x48: seconds from the start to the first frame with all hosts, and to all links; milliseconds from a
key to the screen that shows it, while hosts connect and once they have. A second panel has only the hosts that answer:
what the others delay is the difference. The hosts share this machine's cores, at the lowest priority. Where real-time priorities are allowed
(root), each panel is measured once more ahead of everything else on the machine: what it then takes is its own.
"""

import argparse
import os
import re
import shutil
import socket
import statistics
import time
from pathlib import Path

from loopback import Loopback, free_port
from peers import eagletui
from pty_program import PtyProgram

PROGRAMS = Path(__file__).parents[1] / "tests" / "bin"
SETTLE_S = 5.0


def name_hosts(loopback: Loopback, hosts: dict[str, int]) -> None:
    """~/.ssh/config and config.toml with these hosts, by their ports."""
    common = (
        f"  HostName 127.0.0.1\n  IdentityFile {loopback.home}/.ssh/id_ed25519\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {loopback.home}/.ssh/known_hosts\n"
    )
    config = "".join(f"Host {name}\n  Port {port}\n{common}" for name, port in hosts.items())
    (loopback.home / ".ssh/config").write_text(config)
    settings = loopback.home / ".config/eagletui/config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text("".join(f"[hosts.{name}]\npython = '/nonexistent'\n" for name in hosts))


def key_times(panel: PtyProgram, names: list[str], count: int) -> list[float]:
    """Milliseconds from `j` (`k` on the way back) to the cursor on the next host, `count` times."""
    times, at, step = [], 0, 1
    for _ in range(count):
        if not 0 <= at + step < len(names):
            step = -step
        at += step
        began = time.monotonic()
        panel.keys(b"j" if step > 0 else b"k")
        panel.wait_for(rf"▌ +{re.escape(names[at])}\b", 10)
        times.append((time.monotonic() - began) * 1000)
        panel.run_for(0.05)
    while at:
        at -= 1
        panel.keys(b"k")
        panel.wait_for(rf"▌ +{re.escape(names[at])}\b", 10)
    return times


def measure(
    loopback: Loopback, names: list[str], answering: int, keys: int, *, ahead: bool
) -> tuple[float, float, list[float], list[float]]:
    """(seconds to the first frame, seconds to all links, key times while hosts connect, key times afterwards)."""
    kept = {name: os.environ[name] for name in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE") if name in os.environ}
    environment = {"HOME": str(loopback.home), "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **kept}
    words = ["chrt", "--fifo", "5"] if ahead else []
    panel = PtyProgram([*words, eagletui(), "--all"], environment, cwd=str(loopback.home))
    try:
        if ahead:  # who measures comes before what is measured
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(6))
        frame = panel.wait_for(rf"(?s)▌ +{names[0]}\b.*\s{names[-1]}\b", 30)
        early = key_times(panel, names, keys)
        panel.wait_for(rf"{answering} of {len(names)} linked", 60)
        linked = time.monotonic() - panel.started
        panel.run_for(SETTLE_S)
        late = key_times(panel, names, keys)
        return frame, linked, early, late
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        panel.close()


def may_be_ahead() -> bool:
    """Whether this account may use real-time priorities."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(6))
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    except OSError:
        return False
    return shutil.which("chrt") is not None


def spread(times: list[float]) -> str:
    """Median, 95th percentile, most."""
    return f"{statistics.median(times):.0f}, {sorted(times)[int(0.95 * len(times))]:.0f}, {max(times):.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=20, help="all of them")
    parser.add_argument("--closed", type=int, default=5, help="of them, with a closed port")
    parser.add_argument("--hanging", type=int, default=1, help="of them, that never answer")
    parser.add_argument("--keys", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--smoke", action="store_true", help="four hosts and a few keys")
    options = parser.parse_args()
    if options.smoke:
        options.hosts, options.closed, options.hanging, options.keys = 4, 1, 1, 3
    answering = options.hosts - options.closed - options.hanging
    print(
        "| hosts | first frame, s | all links, s | key while they connect, ms (median, 95 %, most) | key afterwards, ms |"
    )
    print("|---|---|---|---|---|")
    with Loopback(PROGRAMS) as loopback, socket.create_server(("127.0.0.1", 0), backlog=64) as sink:
        # Dead ones stand between the others, not behind them.
        dead = {f"closed{n}": free_port() for n in range(options.closed)}
        dead |= {f"hanging{n}": sink.getsockname()[1] for n in range(options.hanging)}
        alive = {f"gpu{n}": loopback.port for n in range(answering)}
        words = f"{options.hosts}, {options.closed} unreachable, {options.hanging} hanging"
        places = [(words, {**dead, **alive}), (f"the {answering} that answer", alive)]
        kinds = [(what, hosts, ahead) for ahead in (False, may_be_ahead()) for what, hosts in places]
        found: dict[tuple[str, bool], list[tuple[float, float, list[float], list[float]]]] = {}
        for _ in range(options.rounds):
            for what, hosts, ahead in kinds[: 2 if options.smoke or not kinds[-1][2] else None]:
                name_hosts(loopback, hosts)
                one = measure(loopback, list(hosts), answering, options.keys, ahead=ahead)
                found.setdefault((what, ahead), []).append(one)
        for (what, ahead), rounds in found.items():
            frame, linked = (statistics.median(one[at] for one in rounds) for at in (0, 1))
            shown = [spread([ms for one in rounds for ms in one[at]]) for at in (2, 3)]
            print(f"| {what}{', ahead of other work' * ahead} | {frame:.2f} | {linked:.2f} | {shown[0]} | {shown[1]} |")
        print(f"load average {os.getloadavg()[0]:.0f}")


if __name__ == "__main__":
    main()
