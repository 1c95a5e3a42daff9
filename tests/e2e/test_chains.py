"""Two arms on the real SGLang over a real sshd: the driver is killed in three places, resumed, and says its verdict."""

import json
import signal
import subprocess
import time

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
    def rows() -> list[dict]:
        return host.eagletui.json("ps")

    def cells() -> list[dict]:
        found = list((host.eagletui.home / ".local/share/eagletui/experiments").glob("*.json"))
        return json.loads(found[0].read_text())["cells"] if found else []

    servers = []
    for launch, place in PLACES:
        words = ["--resume"] if servers else ["--seed", "1"]
        driver = host.eagletui.popen("experiment", "chain", *words, stderr=subprocess.PIPE)

        def there(launch=launch, place=place, driver=driver) -> bool:
            assert driver.poll() is None, driver.stderr.read().decode()
            cell = cells()[launch - 1] if cells() else {}
            wanted = cell.get("bench_run_id" if place == "bench" else "run_id")
            return wanted is not None and any(row["run"] == wanted and row["state"] == "running" for row in rows())

        wait_until(there, 240, lambda at=(launch, place): f"never at {at}: {cells()}")
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
        servers.append(cells()[launch - 1]["run_id"])
        # Nobody else gets its GPUs meanwhile: it is named.
        refused = host.eagletui.json("launch", "tiny", "--dry-run", code=None)
        assert "held by experiment chain" in json.dumps(refused)
    began = time.monotonic()
    said = host.eagletui.json("experiment", "chain", "--resume", code=None, timeout=400)
    assert time.monotonic() > began
    assert servers[0] == servers[1]
    assert [one["run"] for one in said["launches"]] == [servers[0], servers[2]]  # no launch was lost
    assert [one["status"] for one in said["launches"][:2]] == ["measured", "measured"]
    assert said["outcome"] == "done"
    (verdict,) = said["verdicts"]
    assert verdict["text"]
    print("VERDICT", verdict["verdict"], verdict["text"], said["error"])
    assert [row for row in rows() if row["state"] == "running"] == []
    assert not list((host.remote_home / "leases").glob("*/chain-*"))
