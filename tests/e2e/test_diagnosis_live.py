"""The real SGLang broken on purpose in nine ways behind a real sshd, and diagnosed right each time, live.

The command is given as it is (`command = [...]`), so that the pre-flight does not refuse what these tests need. One server
at a time; most die within seconds.
"""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(240)

WAIT_S = 150
EAGLE3 = [
    *("--prefill-attention-backend", "intel_amx", "--decode-attention-backend", "intel_amx"),
    *("--speculative-algorithm", "EAGLE3", "--speculative-num-steps", "3"),
    *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"),
]


@pytest.fixture(scope="module")
def host(gpu_hosts, sglang_module):
    host = gpu_hosts()
    host.python(sglang_module.python)
    return host


class Broken:
    """Launches the server with flags that make it fail, or somebody who harms it."""

    def __init__(self, host, sglang, port: int) -> None:
        self.host, self.sglang, self.port = host, sglang, port

    def launch(self, *flags: str, wrapper: tuple[str, ...] = (), model: str | None = None) -> str:
        """Starts it; returns the run."""
        command = [
            *(self.sglang.python, "-m", "sglang.launch_server", "--device", "cpu"),
            *("--host", "127.0.0.1", "--port", str(self.port)),
            *("--model-path", model or self.sglang.model("tiny-llama")),
            *(flags or ("--mem-fraction-static", "0.2", "--max-total-tokens", "8192")),
        ]
        text = self.sglang.profile(self.port, eagle3=False).partition("[args]")[0]
        head = f"command = {json.dumps(command)}\n"
        head += f"wrapper = {json.dumps(wrapper)}\n" if wrapper else ""
        self.host.profile("broken", text.replace("[env]", head + "[env]"))
        launched = self.host.eagletui.json("launch", "broken", code=None, timeout=60)  # 1 where it is dead at once
        return launched["run"]

    def end(self, run: str) -> dict[str, object]:
        """Waits for the end; returns the diagnosis, which `wait` and `diagnose` agree on."""
        found = self.host.eagletui.json("wait", run, "--timeout", str(WAIT_S), code=1, timeout=WAIT_S + 30)
        assert found["outcome"] == "crashed"
        assert self.sglang.processes() == []
        diagnosis = found["diagnosis"]
        read = self.host.eagletui.json("diagnose", run)
        assert read["cause"] == diagnosis["cause"]
        return {**diagnosis, "phase": read["phase"], "set": read["set"], "run": run}

    def log(self, run: str) -> Path:
        (path,) = [path for path in self.host.directory.rglob("log") if path.parent.name == run]
        return path


@pytest.fixture
def broken(host, sglang_module, free_port):
    yield Broken(host, sglang_module, free_port())
    sglang_module.kill()


def advice(found: dict[str, object]) -> str:
    return " ".join(found["advice"])  # type: ignore[arg-type]


def test_a_flag_that_does_not_exist(broken):
    found = broken.end(broken.launch("--enable-warp-drive"))
    assert (found["cause"], found["phase"]) == ("bad_flag", "launch")
    assert "--enable-warp-drive" in advice(found)


def test_a_model_path_with_nothing_there(broken):
    found = broken.end(broken.launch(model="/no/such/model"))
    assert found["cause"] == "bad_model_path"
    assert "/no/such/model" in advice(found)


def test_a_draft_path_with_nothing_there(broken):
    found = broken.end(broken.launch(*EAGLE3, "--speculative-draft-model-path", "/no/such/draft"))
    assert found["cause"] == "bad_model_path"
    assert "/no/such/draft" in advice(found)
    assert "--speculative-draft-model-path" in advice(found)


def test_a_draft_of_another_kind(broken):
    draft = broken.sglang.model("tiny-standalone-draft")
    found = broken.end(
        broken.launch(
            *("--mem-fraction-static", "0.2", "--max-total-tokens", "8192"),
            *EAGLE3,
            *("--speculative-draft-model-path", draft),
        )
    )
    assert found["cause"] == "draft_config"
    assert "--speculative-draft-model-path" in advice(found)


def test_a_fraction_too_small_for_the_weights(broken):
    found = broken.end(broken.launch("--mem-fraction-static", "0.0001"))
    assert (found["cause"], found["phase"]) == ("oom_kv_pool", "memory_pool")
    assert found["set"]["mem-fraction-static"] > 0.003
    assert "Raise --mem-fraction-static" in advice(found)


def test_an_internal_port_that_is_taken(broken):
    with socket.create_server(("0.0.0.0", 0)) as holder:
        port = holder.getsockname()[1]
        found = broken.end(
            broken.launch("--mem-fraction-static", "0.2", "--max-total-tokens", "8192", "--nccl-port", str(port))
        )
    assert (found["cause"], found["phase"]) == ("port_in_use", "distributed_init")
    assert str(port) in found["title"]


def test_a_limit_on_memory(broken):
    limited = ("sh", "-c", 'ulimit -v 500000; exec "$@"', "sh")
    found = broken.end(broken.launch(wrapper=limited))
    assert found["cause"] == "host_oom"
    assert "ulimit -a" in advice(found)


def named(title: str, pids: list[int]) -> list[int]:
    """Processes that call themselves so."""
    found = []
    for pid in pids:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if words.startswith(title.encode()):
            found.append(pid)
    return found


def test_a_rank_killed_from_outside(broken, wait_until):
    run = broken.launch()
    ranks = wait_until(lambda: named("sglang::scheduler", broken.sglang.processes()), 120, lambda: "no scheduler came")
    os.kill(ranks[0], signal.SIGKILL)
    found = broken.end(run)
    assert found["cause"] == "host_oom"  # signal 9 from outside, most often the kernel for want of memory
    assert "signal 9" in found["title"]
    assert "-9" in found["evidence"]["text"]


def test_the_main_process_killed_from_outside_behind_a_silent_log(broken):
    """No milestone in the log: the port, who holds it and the server's own answer say ready; then the exit code says why not."""
    run = broken.launch("--mem-fraction-static", "0.2", "--max-total-tokens", "8192", "--log-level", "warning")
    ready = broken.host.eagletui.json("wait", run, "--timeout", str(WAIT_S), timeout=WAIT_S + 30)
    assert (ready["outcome"], ready["phase"]) == ("ready", "ready")
    assert b"fired up" not in broken.log(run).read_bytes()
    os.kill(ready["pid"], signal.SIGKILL)
    found = broken.end(run)
    assert found["cause"] == "host_oom"
    assert (found["evidence"]["line"], found["evidence"]["text"]) == (0, "exit code 137")
    assert b"Received sigquit" not in broken.log(run).read_bytes()
