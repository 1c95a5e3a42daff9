"""`eagletui bench NAME` as scripts and people use it: a server that knows the truth, and the simulated host."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support import bench_states
from tests.support.truth_server import truth_server
from tui.commands import results
from tui.core.model.result import Load, MeasuredServer, Result, Tool
from tui.core.results.flat import flat

pytestmark = pytest.mark.timeout(240)

ME = [sys.executable, "-m", "tui"]
QUICK = """
kind = "bench"
concurrency = [2]
output_len = 40
duration_s = 0.5
runs = 2
"""


@dataclass
class Shell:
    """eagletui with a home and profiles of its own."""

    home: Path
    env: dict[str, str]

    @classmethod
    def at(cls, home: Path, **extra: str) -> "Shell":
        (home / "profiles").mkdir(parents=True)
        (home / "profiles" / "quick.toml").write_text(QUICK)
        env = {name: value for name, value in os.environ.items() if not name.startswith(("EAGLETUI_", "XDG_"))}
        env |= {"HOME": str(home), "EAGLETUI_HOME": str(home / "eagletui"), **extra}
        env["PYTHONPATH"] = str(Path(__file__).parents[2])
        return cls(home, env)

    def popen(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*ME, *words],
            env=self.env,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        process = self.popen(*words)
        out, err = process.communicate(timeout=180)
        assert "Traceback" not in out + err, out + err
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def json(self, *words: str, code: int = 0):
        done = self(*words, "--json")
        assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
        assert done.stdout.count("\n") == 1, done.stdout
        return json.loads(done.stdout)


@pytest.fixture
def shell(tmp_path):
    return Shell.at(tmp_path / "home")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


# -- a server that knows the truth ------------------------------------------------------------------------------------------


def test_the_document_has_flat_figures_and_every_run(shell):
    with truth_server(speculate=1, chunk=3, tokens=19) as (port, _):
        said = shell.json("bench", "quick", "--url", f"127.0.0.1:{port}", code=1)  # half a second is too short
    flat_keys = set(
        flat(Result("x", "b", "2026-11-29T00:00:00Z", Tool("t"), MeasuredServer("h"), Load("closed", 1, None, "d")))
    )
    assert set(said) == flat_keys | {"results", "error", "failed_if"}
    assert said["error"] is None
    assert said["valid"] is False
    assert said["guards"]["window"] == "failed"
    assert said["guards"]["tokens"] == "ok"
    assert said["guards"]["foreign"] == "not_applicable"
    assert (said["max_concurrency"], said["bench"], said["accept_length"]) == (2, "quick", 2.0)
    assert [run["run_index"] for run in said["results"]] == [1, 2]
    one, two = (run["per_user_tok_s"] for run in said["results"])
    assert said["per_user_tok_s"] == pytest.approx((one + two) / 2)
    for run in said["results"]:
        record = run["record"]
        assert record["counts"]["output_tokens"] == record["counts"]["server_output_tokens"] == run["output_tokens"]
        assert {guard["id"] for guard in record["guards"]} == set(said["guards"])
        assert "hush-hush" not in json.dumps(record)
    stored = shell.json("results", "list")
    assert {row["result"] for row in stored} == {run["result"] for run in said["results"]}


def test_people_see_a_table_and_why_a_run_does_not_count(shell):
    with truth_server(tokens=19) as (port, _):
        done = shell("bench", "quick", "--url", f"127.0.0.1:{port}", "--set", "runs=1")
    assert done.returncode == 1
    assert "tok/s user" in done.stdout
    assert re.search(r"✗ c2 run 1 does not count: \d\.\d s with all users busy, \d+ tokens", done.stdout)
    assert "not checked: no GPU figures" in done.stdout
    assert "c2 run 1 of 1: window" in done.stderr
    assert "\r" not in done.stderr  # no terminal: a line a phase


def test_a_table_names_what_a_launch_had_beside_its_profile():
    measured = bench_states.result("A", 1, 1, 100.0)
    other = replace(measured, server=replace(measured.server, sets={"mem-fraction-static": 0.9, "trust": True}))
    assert f" {measured.server.profile} +mem-fraction-static=0.9 +trust=true " in results.table([other])


@pytest.mark.parametrize(
    ("words", "code", "slug"),
    [
        (("quick",), 2, "unknown_run"),
        (("quack",), 2, "unknown_profile"),
        (("quick", "--url", "127.0.0.1:9"), 1, "unreachable"),
        (("quick", "--url", "ftp://x"), 2, "bad_value"),
        (("quick", "--run", "abc123"), 2, "unknown_run"),
        (("quick", "--run", "a", "--url", "b"), 2, "bad_value"),
        (("quick", "--set", "runs=none"), 2, "bad_profile"),
        (("quick", "--set", "dataset=no.jsonl", "--url", "127.0.0.1:9"), 2, "unknown_file"),
        (("qwen3-0.6b-one-gpu",), 2, "wrong_kind"),
        (("quick", "--host", "nobody.invalid"), 3, "host_unknown"),
        ((), 2, "usage"),
        (("quick", "extra"), 2, "usage"),
    ],
)  # fmt: skip
def test_errors_are_one_line_with_their_code(shell, words, code, slug):
    said = shell.json("bench", *words, code=code)
    assert said["error"] == slug
    assert said["message"]
    assert said["hint"]


def test_a_server_that_dies_leaves_what_was_measured(shell):
    program = str(Path(__file__).parents[1] / "support" / "truth_server.py")
    server = subprocess.Popen([sys.executable, program, '{"tokens": 9}'], stdout=subprocess.PIPE, text=True)
    port = server.stdout.readline().strip()
    process = shell.popen("bench", "quick", "--url", f"127.0.0.1:{port}", "--set", "runs=60", "--json")
    while not list((shell.home / "eagletui/data/results").glob("*.json")):
        assert process.poll() is None, process.communicate()
    server.kill()
    server.wait()
    out, err = process.communicate(timeout=120)
    said = json.loads(out)
    assert process.returncode == 1, err
    assert said["error"] in ("server_lost", "unreachable", "refused")
    assert said["results"]
    assert said["message"]


# -- the simulated host -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """(shell, the first of two ready servers with one GPU each, the second)."""
    shell = Shell.at(tmp_path_factory.mktemp("home") / "home", EAGLETUI_DEMO_SPEED="2000", EAGLETUI_HOST="demo")
    servers = []
    for gpu in (0, 1):
        said = shell.json(
            "launch", "qwen3-0.6b-one-gpu", "--wait", "--set", f"gpus=[{gpu}]", "--set", f"port={free_port()}"
        )
        servers.append(said["run"])
    yield shell, *servers
    code = "import asyncio; from tui.demo.client import stop_demo; asyncio.run(stop_demo())"
    subprocess.run([sys.executable, "-c", code], env=shell.env, check=True, timeout=60)


def test_which_of_several_servers_has_to_be_said(demo):
    shell, one, two = demo
    said = shell.json("bench", "quick", code=2)
    assert said["error"] == "ambiguous_run"
    assert one[-6:] in said["message"]
    assert two[-6:] in said["message"]
    assert "--run" in said["hint"]


def test_a_server_of_ours_is_measured_as_its_model_says(demo):
    shell, run, _ = demo
    said = shell.json(
        *("bench", "quick", "--run", run[-6:], "--set", "concurrency=4", "--set", "runs=1"),
        *("--set", "duration_s=10", "--set", "output_len=120"),
    )
    assert said["valid"] is True
    assert said["host"] == "demo"
    assert said["run"] == run
    assert said["profile"] == "qwen3-0.6b-one-gpu"
    # There is nothing that the simulated host does not tell, and arrivals are of another sort of load.
    assert [name for name, status in said["guards"].items() if status != "ok"] == ["overload"]
    # 9.6 ms a step, 3.5 % for each further user, one percent of noise between launches.
    assert said["median_tpot_ms"] == pytest.approx(9.6 * (1 + 3 * 0.035), rel=0.06)
    assert said["per_user_tok_s"] == pytest.approx(1000 / said["mean_tpot_ms"], rel=0.03)
    assert said["accept_length"] is None
    assert said["failed_if"] == []
    record = said["results"][0]["record"]
    assert len(record["server"]["gpus"]) == 1
    assert record["server"]["args"]["port"] == record["server"]["sets"]["port"] or record["server"]["args"]["port"]
    assert record["throughput"]["output_tok_s_per_gpu"] == record["throughput"]["output_tok_s"]
    assert record["gpu"]["power_w"] > 0


def test_after_ctrl_c_it_goes_on_and_wait_stores_what_it_finds(demo):
    shell, run, _ = demo
    process = shell.popen("bench", "quick", "--run", run)
    first = process.stderr.readline()
    measuring = first.split()[0]
    assert f"measures {run} on demo: 2 runs of 0.5 s, up to 2.5 s each where the server is slow" in first
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"{measuring} keeps measuring" in err
    assert f"eagletui wait {measuring[-6:]} --for exit" in err
    said = shell.json("wait", measuring[-6:], "--for", "exit")
    assert said["outcome"] == "finished"
    assert said["results"] == [f"{measuring}-c2-{n}" for n in (1, 2)]
    assert {row["result"] for row in shell.json("results", "list")} >= set(said["results"])
    (row,) = [row for row in shell.json("ps") if row["run"] == measuring]
    assert (row["kind"], row["outcome"], row["exit_code"]) == ("bench", "finished", 0)


def test_detached_it_goes_on_too(demo):
    shell, _, run = demo
    said = shell.json("bench", "quick", "--run", run, "--set", "runs=1", "--detach")
    assert (said["host"], said["bench"], said["error"]) == ("demo", "quick", None)
    assert shell.json("wait", said["run"][-6:], "--for", "exit")["results"] == [f"{said['run']}-c2-1"]
    assert "exclude each other" in shell("bench", "quick", "--detach", "--fail-if", "req_per_s < 1").stderr
