"""Two arms on the real SGLang over a real sshd: the driver is killed in three places, resumed, and says its verdict."""

import contextlib
import json
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

pytestmark = pytest.mark.timeout(600)

BENCH = """
kind = "bench"
dataset = "random-ids"
concurrency = [1]
input_len = 16
output_len = 16
duration_s = 10
runs = 1
"""
# On a busy machine these runs may not count; neither that they are repeated, nor that launches are made up for, is the matter here.
ONCE = """
from tui.core.experiment import runner, so_far
runner._REPEATS = so_far._MADE_UP = 0
from tui.cli import main
main()
"""
PLACES = [(1, "starting"), (1, "bench"), (2, "starting")]  # launch, and what runs when the driver is killed


@pytest.fixture
def host(gpu_hosts, sglang_cpu, free_port):
    host = gpu_hosts()
    host.python(sglang_cpu.python)
    host.profile("shortest", BENCH)
    host.profile("tiny", sglang_cpu.profile(free_port(), eagle3=False))
    arms = '[[arms]]\nprofile = "tiny"\n[[arms]]\nprofile = "tiny"\nset = { max-running-requests = 4 }\n'
    host.profile("chain", f'kind = "experiment"\nbench = "shortest"\npairs = 1\n{arms}')
    return host


def test_a_driver_killed_in_three_places_ends_in_a_verdict(host, wait_until):
    experiments = host.eagletui.home / ".local/share/eagletui/experiments"

    def read(pattern: str) -> dict:
        for path in experiments.glob(pattern):
            with contextlib.suppress(OSError):
                return json.loads(path.read_text())
        return {}

    command = replace(host.eagletui, argv=[sys.executable, "-c", ONCE])
    servers = []
    for launch, place in PLACES:
        words = ["--resume"] if servers else ["--seed", "1"]
        driver = command.popen("experiment", "chain", *words, stderr=subprocess.PIPE)

        def there(launch=launch, place=place, driver=driver) -> bool:
            """By the files of the driver: whoever asks the host is in the way of what is measured on the same CPU."""
            assert driver.poll() is None, driver.stderr.read().decode()
            live = read("live/*.json")
            phase = live.get("phase") if place == "starting" else live.get("live")
            return live.get("number") == launch and phase is not None

        wait_until(there, 240, lambda at=(launch, place): f"never at {at}: {read('*.json')}")
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
        servers.append(read("*.json")["cells"][launch - 1]["run_id"])
        # Nobody else gets its GPUs meanwhile: it is named.
        refused = host.eagletui.json("launch", "tiny", "--dry-run", code=None)
        assert "held by experiment chain" in json.dumps(refused)
    said = command.json("experiment", "chain", "--resume", code=None, timeout=400)
    assert servers[0] == servers[1]
    assert [one["run"] for one in said["launches"]] == [servers[0], servers[2]]  # no launch was lost
    assert [one["status"] for one in said["launches"][:2]] == ["measured", "measured"]
    assert said["outcome"] == "done"
    (verdict,) = said["verdicts"]
    assert verdict["text"]
    print("VERDICT", verdict["verdict"], verdict["text"], said["error"])
    assert [row for row in host.eagletui.json("ps") if row["state"] == "running"] == []
    assert not list((host.remote_home / "leases").glob("*/chain-*"))
