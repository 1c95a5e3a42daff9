"""The command line as scripts and people use it: the real command in a process of its own, on real hosts.

Hosts are this machine and the simulated one (its real SSH server, real processes, real sockets). Here is what a caller
sees: JSON, exit codes, one-line errors, pipes, signals, terminals. What the commands find out is tested in tests/core.
"""

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.shell import ME, Shell, Terminal

pytestmark = pytest.mark.timeout(180)

STATE_KEYS = [
    *("run", "host", "profile", "outcome", "phase", "diagnosis", "pid", "port", "started", "ended"),
    *("exit_code", "ready_after_s", "error"),
]
ROW_KEYS = [
    *("run", "kind", "profile", "host", "outcome", "phase", "cause", "pid", "port", "started", "ended"),
    *("exit_code", "state", "owner", "container", "orphans", "why", "group", "sets"),
    "job",
]
REPORT_KEYS = [
    *("phase", "outcome", "cause", "rank", "evidence", "advice", "set", "progress", "ranks_seen"),
    *(
        "last_decode",
        "ledger",
        "observations",
        "source",
        "engine",
        "wrapping",
        "container",
        "other_containers",
        "note",
        "unread_lines",
    ),
]


# -- without a host ---------------------------------------------------------------------------------------------------


def test_help_imports_nothing_heavy(shell: Shell) -> None:
    code = (
        "import sys; sys.argv = ['eagletui', '--help']\n"
        "from tui.cli import main\n"
        "try: main()\nexcept SystemExit as end: code = end.code\n"
        "heavy = {'textual', 'rich', 'asyncssh', 'asyncio', 'pydantic', 'tui.core.server.session'} & set(sys.modules)\n"
        "sys.exit(f'{code} {heavy}')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=shell.env, timeout=60)
    assert done.stderr == "0 set()\n"
    for name in ("gpus", "profiles", "launch", "ps", "wait", "stop", "logs", "diagnose", "doctor", "paths"):
        assert f"\n  {name} " in done.stdout


def test_paths(shell: Shell) -> None:
    found = shell("paths", "--json").json
    keys = ["config", "profiles", "shipped_profiles", "patterns", "launches", "results", "journal", "data", "state"]
    assert list(found) == keys
    assert found["config"] == str(shell.home / "eagletui" / "config" / "config.toml")
    assert not (shell.home / "eagletui").exists()  # looking creates nothing
    assert "not there yet" in shell("paths").out.decode()


def test_profiles_are_listed_shown_and_imported(shell: Shell) -> None:
    (shell.cwd / "profiles").mkdir()
    (shell.cwd / "profiles" / "broken.toml").write_text("kind = 3\n")
    listed = shell("profiles", "--json").json
    assert listed == shell("profiles", "list", "--json").json
    assert all(list(row) == ["name", "kind", "path", "description", "errors"] for row in listed)
    by_name = {row["name"]: row for row in listed}
    assert by_name["kimi-k2.5-eagle3-mem088"]["errors"] == []
    assert by_name["broken"]["errors"][0]["key"] == "kind"
    assert b"broken" in shell("profiles").out

    shown = shell("profiles", "show", "kimi-k2.5-baseline-bs128", "--set", "tp=4", "--json").json
    assert list(shown)[:3] == ["env", "argv", "host"]
    assert shown["argv"][shown["argv"].index("--tp") + 1] == "4"
    bench = shell("profiles", "show", "decode-bs1", "--set", "runs=5", "--json").json
    assert (bench["kind"], bench["concurrency"], bench["runs"]) == ("bench", [1], 5)
    experiment = shell("profiles", "show", "does-eagle-pay").out.decode()
    assert 'kind = "experiment"' in experiment
    assert experiment.count("[[arms]]") == 2
    shell("profiles", "show", "does-eagle-pay", "--set", "runs=5", "--json").refused(2, "usage")

    posted = b"HF_TOKEN=hf_x NCCL_DEBUG=INFO sudo python -m sglang.launch_server --model-path m --tp 2\n"
    imported = shell("profiles", "import", "-", "--json", "--save", "mine", input=posted).json
    assert list(imported)[:4] == ["env", "argv", "profile", "warnings"]
    assert imported["argv"][-2:] == ["--tp", "2"]
    assert "mine" in {row["name"] for row in shell("profiles", "--json").json}
    shell("profiles", "show", "nosuch", "--json").refused(2, "unknown_profile")

    nodes = b"export HF_TOKEN=hf_secret0; for R in 0 1; do sglang serve --model-path $M --node-rank $R extra & done\n"
    printed = shell("profiles", "import", "-", "--define", "M=/m", "--pick", "2", input=nodes)
    assert b"node-rank = 1" in printed.out
    assert b'model-path = "/m"' in printed.out
    assert b"hf_secret0" not in printed.out + printed.err.encode()
    assert "not understood: extra belongs to no flag" in printed.err
    assert "--pick N" in printed.err
    first = shell("profiles", "import", "-", "--json", input=nodes).json
    assert first["env"]["HF_TOKEN"] == "hf_secret0"  # for a program, not for a terminal
    assert [item["name"] for item in first["unresolved"]] == ["M"]
    assert (first["picked"], [other["number"] for other in first["others"]]) == (1, [2])
    assert "give it with --define M=VALUE" in shell("profiles", "import", "-", input=nodes).err
    nameless = shell("profiles", "import", "-", "--json", "--save", "none", input=b"sglang serve --tp 8\n")
    nameless.refused(2, "no_model")
    assert "none" not in {row["name"] for row in shell("profiles", "--json").json}
    shell("profiles", "import", "-", "--json", "--define", "x", input=nodes).refused(2, "usage")
    shell("profiles", "import", "nosuch.sh", "--json").refused(2, "unknown_file")


def test_gpus_of_a_saved_file(shell: Shell) -> None:
    saved = shell.cwd / "smi.csv"
    saved.write_text("index, name, memory.used [MiB], utilization.gpu [%]\n0, NVIDIA H200, 12 MiB, [N/A]\n")
    found = shell("gpus", "--file", str(saved), "--json").json
    assert (found["samples"], found["error"]) == (1, None)
    gpu = found["gpus"][0]
    assert {"index", "name", "uuid", "bus_id", "mem_used_mib", "mem_total_mib", "mem_reserved_mib"} <= set(gpu)
    assert (gpu["mem_used_mib"], gpu["util_pct"]) == (12.0, None)
    saved.write_text("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")
    failed = shell("gpus", "--file", str(saved), "--json")
    assert failed.refused(1, failed.json["error"])["gpus"] == []
    assert shell("gpus", "--file", "nosuch.csv", "--json").refused(2, "unknown_file")["gpus"] == []


def test_gpus_of_what_was_pasted(shell: Shell) -> None:
    row = b"> GPU 0: NVIDIA H200 (UUID: GPU-4cf8db2d-06c0-7d70-1a51-e59b25b2c16c)\n"
    for args in (("--file", "-"), ("-",)):
        found = shell("gpus", *args, "--json", input=row).json
        assert (found["kind"], found["also"], found["gpus"][0]["name"]) == ("nvidia-smi -L", [], "NVIDIA H200")
        assert found["gpus"][0]["mem_used_mib"] is None
    topology = b"        GPU0    GPU1\nGPU0     X      NV18\nGPU1    NV18     X\n"
    refused = shell("gpus", "-", "--json", input=topology)
    assert refused.refused(2, "no_figures")["kind"] == "nvidia-smi topo -m"
    said = shell("gpus", "-", input=topology)
    assert said.code == 2
    assert "standard input: no GPU figures (it is `nvidia-smi topo -m`: how GPUs" in said.err
    assert "run `nvidia-smi`" in said.err
    with (shell.cwd / "large.txt").open("wb") as large:
        large.truncate((16 << 20) + 1)
    assert shell("gpus", "--file", "large.txt", "--json").refused(2, "too_large")["gpus"] == []


@pytest.mark.parametrize(
    ("args", "code", "slug"),
    [
        (["gpus", "nosuchhost.invalid"], 3, "host_unknown"),
        (["ps", "tuner@127.0.0.1:1"], 3, "refused"),
        (["wait", "nosuch"], 2, "unknown_run"),
        (["stop", "nosuch"], 2, "unknown_run"),
        (["stop", "", "--yes"], 2, "unknown_run"),
        (["logs", "nosuch"], 2, "unknown_run"),
        (["logs", ""], 2, "unknown_run"),
        (["logs", "./nosuch"], 2, "unknown_file"),
        (["logs", "local:"], 2, "unknown_file"),
        (["logs", "/"], 2, "unreadable_file"),
        (["logs", "a" * 5000], 2, "unknown_run"),
        (["diagnose", "./nosuch"], 2, "unknown_file"),
        (["launch", "nosuch"], 2, "unknown_profile"),
        (["launch", "kimi-k2.5-baseline-bs128", "--set", "nosuchflag=1"], 2, "bad_profile"),
        (["launch", "decode-bs1"], 2, "wrong_kind"),
        (["wait", "x", "--timeout", "nan"], 2, "usage"),
        (["wait", "x", "--timeout", "-1"], 2, "usage"),
        (["stop", "x", "--grace", "inf"], 2, "usage"),
        (["breakeven", "--base-tok-s", "1e300", "--verify-ms", "1e300"], 2, "usage"),
        (["breakeven", "--base-tok-s", "1e-320", "--verify-ms", "1"], 2, "usage"),
        (["breakeven", "--base-tok-s", "89", "--verify-ms", "30", "--draft-ms", "1e300"], 2, "usage"),
        (["bench", "aa", "x", "--bench", "y", "--pairs", "1" + "0" * 30], 2, "usage"),
        (["experiment", "does-eagle-pay", "--seed", "1" + "0" * 30], 2, "usage"),
        (["ps", "--nosuch"], 2, "usage"),
        (["profiles", "nosuch"], 2, "usage"),
        (["--profiles", "/nosuch", "ps"], 2, "usage"),
        (["gpu1"], 2, "usage"),  # the panel has no --json
        (["wait", b"\xff\xfe"], 2, "unknown_run"),
        (["logs", b"local:/\xff"], 2, "bad_value"),
    ],
    ids=lambda value: (
        None if not isinstance(value, list) else b" ".join(map(os.fsencode, value))[:30].decode("ascii", "replace")
    ),
)
def test_a_wrong_word_is_one_line(shell: Shell, args: list[str | bytes], code: int, slug: str) -> None:
    shell(*args, "--json").refused(code, slug)


@pytest.mark.parametrize(("args", "code"), [(["gpu1"], 2), (["stop", "nosuch"], 2), (["gpus", "nosuch.invalid"], 3)])
def test_a_person_reads_it_on_stderr_alone(shell: Shell, args: list[str], code: int) -> None:
    said = shell(*args)
    assert (said.code, said.out) == (code, b"")
    assert said.err.startswith("eagletui: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    ["x =", "default_host = 3", "hosts = 3", "[hosts.demo]\nssh = 'x'", '"\\u001b[31m" = 1', "a" + "[" * 5000, b"\xff"],
)
def test_a_broken_config_is_one_line(shell: Shell, text: str | bytes) -> None:
    config = shell.home / "eagletui" / "config" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_bytes(text if isinstance(text, bytes) else text.encode())
    said = shell("ps")
    assert said.code == 2
    assert said.err.startswith(f"eagletui: {config}")
    assert said.err.count("\n") == 1
    assert "\x1b" not in said.err
    shell("ps", "--json").refused(2, "bad_config")


def test_homes_that_cannot_be(shell: Shell) -> None:
    nowhere = {"EAGLETUI_HOME": "~nosuchuser/x"}
    shell("paths", "--json", env=nowhere).refused(2, "bad_config")
    # A relative one is meant from here; the simulated host would look for it elsewhere.
    assert shell("paths", "--json", env={"EAGLETUI_HOME": "rel"}).json["state"] == str(shell.cwd / "rel" / "state")
    no_home = {"HOME": None, "EAGLETUI_HOME": None}
    assert Path(shell("paths", "--json", env=no_home).json["state"]).is_absolute()
    (shell.cwd / "file").touch()
    as_file = {"EAGLETUI_HOME": str(shell.cwd / "file")}
    shell("ps", "--json", env=as_file).refused(2, "bad_config")
    assert shell("profiles", "--json", env=as_file).code == 0
    said = shell("gpus", "demo", "--json", env={"EAGLETUI_HOME": "/proc/nosuch"}).refused(3, "demo")
    assert "/proc/nosuch" in said["message"]
    assert "EAGLETUI_HOME" in said["hint"]


def test_closed_and_full_streams(shell: Shell) -> None:
    def closing(*numbers: int) -> Callable[[], None]:
        return lambda: [os.close(number) for number in numbers] and None

    nothing = {"stdin": None, "stdout": None, "stderr": None}
    for numbers in ((0,), (1,), (2,), (0, 1, 2)):
        process = shell.start("paths", "--json", **nothing, preexec_fn=closing(*numbers))
        assert process.wait(60) == 0
    # Nothing to read is an empty log, and no one to ask.
    done = shell("diagnose", "-", "--json", stdin=None, preexec_fn=closing(0))
    assert (done.code, done.json["outcome"]) == (2, "unknown")
    shell("stop", "nosuch", "--json", stdin=None, preexec_fn=closing(0)).refused(2, "unknown_run")
    with open("/dev/full", "wb") as full:
        for args in (["paths", "--json"], ["paths"], ["logs", "nosuch", "--json"]):
            done = shell(*args, stdout=full)
            assert done.code in (1, 2)
            assert done.err.count("\n") <= 2
            assert done.err.startswith("eagletui: ")
    for encoding in ("ascii", "latin-1"):
        done = shell(
            "profiles",
            "import",
            "-",
            input="python -m sglang.launch_server --model-path é✓".encode(),
            env={"PYTHONIOENCODING": encoding},
        )
        assert done.code == 0


@pytest.mark.parametrize(
    "args", [["profiles"], ["profiles", "--json"], ["logs", "./big", "-f"], ["logs", "./big", "--json"]]
)
def test_a_reader_that_leaves_is_no_failure(shell: Shell, args: list[str]) -> None:
    (shell.cwd / "big").write_bytes(b"a line of a log\n" * 500_000)
    process = shell.start(*args)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.wait(60) == 0
    assert process.stderr.read() == b""
    process.stderr.close()


# -- logs and diagnosis of files --------------------------------------------------------------------------------------

HOSTILE = (
    b"\x1b]0;owned\x07\x1b[31mred\x1b[2J\n"
    b"bar 1/2\rbar 2/2\r\n"
    b"server_args=ServerArgs(api_key='sk-very-secret-1', admin_api_key=\"sk-very-secret-2\")\n"
    b"--api-key sk-very-secret-3 --tp 8\n"
    b"token hf_abcdefghijklmnopqrstuvwxyz\n"
    b"\xff\xfe\x00 binary"
)


def test_secrets_never_leave_with_a_log(shell: Shell) -> None:
    (shell.cwd / "x.log").write_bytes(HOSTILE)
    raw = shell("logs", "./x.log").out
    assert b"secret" not in raw
    assert b"abcdefghijk" not in raw
    assert raw.startswith(HOSTILE[:40])  # every other byte as it was written
    assert raw.endswith(b"\xff\xfe\x00 binary")
    as_json = shell("logs", "x.log", "--json")
    assert b"secret" not in as_json.out
    assert b"abcdefghijk" not in as_json.out
    records = [json.loads(line) for line in as_json.out.splitlines()]
    assert list(records[0]) == ["line", "offset", "time", "rank", "kind", "phase", "text"]
    assert sorted({record["line"] for record in records}) == [1, 2, 3, 4, 5, 6]
    shell("logs", "local:" + str(shell.cwd / "x.log")).out.startswith(HOSTILE[:40])


def test_a_terminal_gets_no_escape_sequence(shell: Shell) -> None:
    (shell.cwd / "x.log").write_bytes(HOSTILE)
    # Nobody sits there: it is printed.
    program = "import os, sys; os.dup2(os.open(os.devnull, os.O_RDONLY), 0); os.execv(sys.executable, sys.argv[1:])"
    with Terminal(shell, program=[sys.executable, "-c", program, *ME, "logs", "./x.log"]) as terminal:
        shown = terminal.read_to_end()
    assert b"\x1b" not in shown
    assert b"\x07" not in shown
    assert b"red" in shown
    assert b"secret" not in shown


def test_a_followed_log_is_rotated_and_truncated(shell: Shell) -> None:
    log = shell.cwd / "x.log"
    log.write_bytes(b"first\n")
    process = shell.start("logs", "./x.log", "-f")
    try:
        reader = Reader(process)
        reader.until(b"first\n")
        log.rename(shell.cwd / "x.log.1")
        reader.until(b"[gone]", "err")
        log.write_bytes(b"second\n")
        reader.until(b"second\n")
        log.write_bytes(b"3\n")
        reader.until(b"3\n")
        assert reader.out.endswith(b"first\nsecond\n3\n")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        reader.until(b"runs on the host keep running", "err")
    finally:
        process.kill()
        process.communicate()


def test_diagnose_reads_anything(shell: Shell) -> None:
    for text in (b"", b"\x00\xff" * 100_000, b"x" * 3_000_000):
        done = shell("diagnose", "-", "--json", input=text)
        assert done.code == 2
        assert list(done.json) == REPORT_KEYS
        assert (done.json["outcome"], done.json["cause"]) == ("unknown", None)
    assert b"UNKNOWN: no line of it" in shell("diagnose", "-", input=b"Dear all, our memory is out of order.\n").out
    with open(shell.cwd / "sparse.log", "wb") as file:
        file.truncate(200 << 20)
    assert shell("diagnose", "sparse.log", "--json").code == 2
    text = b"RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.76\n"
    (shell.cwd / "died.log").write_bytes(
        b"[2026-01-01 00:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):\n" + text
    )
    there = shell("diagnose", f"local:{shell.cwd}/died.log", "--json").json
    assert there == shell("diagnose", "died.log", "--json").json
    assert (there["outcome"], there["cause"], there["evidence"]["line"]) == ("crashed", "oom_kv_pool", 2)


def test_diagnose_takes_off_what_is_around_a_log(shell: Shell) -> None:
    log = (
        b"[2026-01-01 00:00:00 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
        b'  File "/x/sglang/srt/managers/scheduler.py", line 1, in run_scheduler_process\n'
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB.\n"
    )
    plain = shell("diagnose", "-", "--json", input=log).json
    text = b"It dies:\n\n" + b"".join(b"> sglang-1  | " + line for line in log.splitlines(keepends=True))
    found = shell("diagnose", "-", "--json", input=text + b"> nginx-1   | GET / 502\n")
    assert found.code == 0
    assert found.json["wrapping"] == ["quote", "prefix"]
    assert (found.json["container"], found.json["other_containers"]) == ("sglang-1", ["nginx-1"])
    assert found.json["evidence"]["text"] == plain["evidence"]["text"]
    assert found.json["evidence"]["line"] == plain["evidence"]["line"] + 2
    assert [found.json[key] for key in ("cause", "rank")] == [plain["cause"], plain["rank"]]
    words = shell("diagnose", "-", input=text + b"> nginx-1   | GET / 502\n").out.decode()
    assert "sglang-1 was read; left out: nginx-1" in words


def test_diagnose_calls_another_engine_by_its_name(shell: Shell) -> None:
    log = b"(EngineCore_DP0 pid=59619) ERROR 10-15 08:32:29 [core.py:708] EngineCore failed to start.\n"
    (shell.cwd / "vllm.log").write_bytes(log)
    done = shell("diagnose", "./vllm.log")
    assert (done.code, done.out.decode()) == (2, "a log of vLLM, not of a server of SGLang: nothing of it is judged\n")
    done = shell("diagnose", f"local:{shell.cwd}/vllm.log", "--json")
    assert (done.code, done.json["engine"], done.json["outcome"]) == (2, "vllm", "starting")


# -- runs of this machine ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "code", "outcome"),
    [
        ("exit 3", 1, "crashed"),
        ("exit 0", 0, "stopped"),
        ("head -c 99999 /dev/urandom; exit 1", 1, "crashed"),
        ("kill -9 $$", 1, "crashed"),
    ],
)
def test_a_program_that_ends_at_once(
    shell: Shell, command: Callable[..., str], port: str, script: str, code: int, outcome: str
) -> None:
    launched = shell("launch", command("brief", "sh", "-c", script), "--set", port, "--json")
    assert launched.json["error"] is None
    run = launched.json["run"]
    waited = shell("wait", run, "--for", "exit", "--json")
    assert (waited.code, waited.json["outcome"]) == (code, outcome)
    assert set(waited.json) == set(STATE_KEYS)
    assert shell("wait", run, "--json").code == 1  # it never was ready, and never will be
    row = shell.row(run)
    assert (row["outcome"], row["phase"]) == (outcome, "launch")
    assert set(row) == set(ROW_KEYS)


def test_a_silent_program_is_waited_for_and_stopped(shell: Shell, command: Callable[..., str], port: str) -> None:
    """A log without a byte: whatever asks for the state must not wait for the first line."""
    run = shell("launch", command("silent", "sh", "-c", "exec sleep 300"), "--set", port, "--json").json["run"]
    now = shell("wait", run, "--timeout", "0", "--json")
    assert (now.code, now.json["error"], now.json["outcome"]) == (4, "timeout", "starting")
    assert shell("wait", run[-6:], "--for", "exit", "--timeout", "0").code == 4
    assert shell("logs", run).out == b""

    # Another machine's eagletui (another record of launches) finds it by its files on the host.
    records = shell.home / "eagletui" / "data" / "launches"
    (records / f"{run}.json").rename(shell.cwd / "away.json")
    assert shell("wait", run[-6:], "--timeout", "0", "--json").json["run"] == run
    # Broken records hide nothing.
    for number, text in enumerate(
        [
            "{",
            "[]",
            "\x00",
            '{"run_id": 3}',
            "[" * 9000,
            json.dumps({"run_id": "broken-5", "host": 1, "kind": [], "profile": None, "launched_at": 5}),
        ]
    ):
        (records / f"broken-{number}.json").write_text(text)
    assert shell.row(run)["state"] == "running"

    stopped = shell("stop", run, "--json")
    assert stopped.code == 0
    assert {*STATE_KEYS} - {"ready_after_s"} <= set(stopped.json)
    assert (stopped.json["outcome"], stopped.json["orphans"], stopped.json["error"]) == ("stopped", [], None)
    assert shell("stop", run, "--json").json == {**stopped.json, "mem_held_mib": None}
    again = shell("stop", run)
    assert (again.code, again.out) == (0, b"")
    assert "has ended already" in again.err
    ended = shell("wait", run, "--for", "exit", "--json")
    assert (ended.code, ended.json["outcome"]) == (0, "stopped")  # whatever its exit code: we stopped it
    assert shell("diagnose", run, "--json").json["outcome"] == "stopped"  # its log says nothing of it


def test_ctrl_c_of_a_launch_says_which_run_goes_on_and_where(
    shell: Shell, command: Callable[..., str], port: str
) -> None:
    process = shell.start("launch", command("going", "sh", "-c", "sleep 300"), "--set", port, "--wait", "--json")
    try:
        end = time.monotonic() + 60
        run = None
        while run is None and time.monotonic() < end:  # until it was launched, and is waited for
            rows = shell("ps", "local", "--json").json
            run = next((row["run"] for row in rows if row["profile"] == "going" and row["state"] == "running"), None)
        assert run is not None
        wait_for_children(process.pid)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    finally:
        process.kill()
        process.communicate()
    said = json.loads(out)
    assert (process.returncode, said["error"], said["run"], said["hosts"]) == (130, "interrupted", run, ["local"])
    assert said["message"] == f"interrupted; {run} keeps running on local"
    assert said["hint"] == f"eagletui wait {run[-6:]} waits for it, eagletui stop {run[-6:]} ends it"
    assert shell.row(run)["state"] == "running"
    assert shell("stop", run, "--yes").code == 0


def test_ctrl_c_ends_the_waiting_and_not_the_run(shell: Shell, command: Callable[..., str], port: str) -> None:
    run = shell("launch", command("going", "sh", "-c", "echo up; sleep 300"), "--set", port, "--json").json["run"]
    for args in (["wait", run], ["wait", run, "--json"], ["logs", run, "-f"]):
        process = shell.start(*args)
        reader = Reader(process)
        if args[0] == "logs":
            reader.until(b"up\n")
        else:
            wait_for_children(process.pid)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
        assert process.returncode == 130
        text = reader.out + out + reader.err + err
        assert b"runs on the host keep running" in text
        assert b"Traceback" not in text
        if "--json" in args:
            assert json.loads(out)["error"] == "interrupted"
    assert shell.row(run)["state"] == "running"
    with Terminal(shell, "stop", run) as terminal:
        terminal.until(b"[yes/No] ")
        terminal.write(b"\x03")
        terminal.read_to_end()
        assert terminal.code() == 130
    with Terminal(shell, "stop", run) as terminal:
        terminal.until(b"[yes/No] ")
        terminal.write(b"\n")
        assert b"not stopped" in terminal.read_to_end()
        assert terminal.code() == 1
    with Terminal(shell, "stop", run) as terminal:
        terminal.until(b"[yes/No] ")
        terminal.write(b"yes\n")
        terminal.read_to_end()
        assert terminal.code() == 0
    assert shell.row(run)["outcome"] == "stopped"


def test_an_import_that_cannot_be_launched_yet_says_so_when_it_is_saved(shell: Shell) -> None:
    posted = b"python -m sglang.launch_server --model-path /m --nnodes $NODES\n"
    done = shell("profiles", "import", "-", "--save", "posted", input=posted)
    assert done.code == 0
    assert "it cannot be launched yet: " in done.err
    assert "args.nnodes: must be a whole number" in done.err
    given = shell("profiles", "import", "-", "--save", "given", "--define", "NODES=2", input=posted)
    assert "cannot be launched" not in given.err


# -- the simulated host -----------------------------------------------------------------------------------------------


def test_a_server_from_launch_to_stop(demo: Shell, port: str) -> None:
    # Two shells at the same moment: one server, and one refusal that says why.
    both = [demo.start("launch", "kimi-k2.5-eagle3-mem088", "--host", "demo", "--set", port, "--json") for _ in "12"]
    answers = [json.loads(process.communicate(timeout=90)[0]) for process in both]
    launched = [answer for answer in answers if answer["error"] is None]
    refused = [answer["error"] for answer in answers if answer["error"] is not None]
    assert len(launched) == 1, answers
    assert refused in (["busy"], ["preflight"])
    assert set(launched[0]) == set(STATE_KEYS)
    run = launched[0]["run"]
    assert re.fullmatch(r"kimi-k2\.5-eagle3-mem088-\d{8}T\d{6}Z-[0-9a-f]{6}", run)

    ready = demo("wait", run, "--json")
    assert (ready.code, ready.json["outcome"], ready.json["phase"]) == (0, "ready", "ready")
    assert demo("wait", run[-6:], "--timeout", "0", "--json").code == 0  # however short the patience
    assert demo("wait", run, "--for", "exit", "--timeout", "0", "--json").refused(4, "timeout")["outcome"] == "ready"
    row = demo.row(run, "demo")
    assert set(row) == set(ROW_KEYS)
    assert (row["outcome"], row["phase"], row["cause"], row["exit_code"]) == ("ready", "ready", None, None)

    blocked = demo("launch", "kimi-k2.5-baseline-bs128", "--host", "demo", "--set", port, "--json").refused(
        1, "preflight"
    )
    assert {"check", "level", "text"} == set(blocked["findings"][0])
    assert any(run[-6:] in finding["text"] for finding in blocked["findings"])

    report = demo("diagnose", run, "--json").json
    assert list(report) == REPORT_KEYS
    assert (report["outcome"], report["ranks_seen"]) == ("ready", 8)
    assert b"fired up" in demo("logs", run).out
    gpus = demo("gpus", "demo", "--json").json
    assert len(gpus["gpus"]) == 8
    assert all(gpu["mem_used_mib"] > 10_000 for gpu in gpus["gpus"])
    doctor = demo("doctor", "demo", "--json")
    assert (doctor.code, doctor.json["error"]) == (0, None)
    assert {"check", "level", "text"} == set(doctor.json["findings"][0])

    # The log is followed to the end of the run, and the wait ends with it.
    following = demo.start("logs", run, "-f")
    waiting = demo.start("wait", run, "--for", "exit", "--json")
    stopped = demo("stop", run)
    assert stopped.code == 0
    assert stopped.err.splitlines()[-1] == "stopped, the GPU memory is back"
    assert b"kill_process_tree called" in following.communicate(timeout=60)[0].splitlines()[-1]
    assert following.returncode == 0
    assert json.loads(waiting.communicate(timeout=60)[0])["outcome"] == "stopped"
    assert waiting.returncode == 0
    ended = demo("wait", run, "--json")
    assert (ended.code, ended.json["outcome"]) == (1, "stopped")
    assert ended.json["phase"] in ("ready", "serving")  # read from its log, and not where a watch begins
    assert ended.json["ready_after_s"] == ready.json["ready_after_s"]


def test_a_failing_launch_says_what_to_run_instead(demo: Shell, port: str) -> None:
    failed = demo("launch", "kimi-k2.5-eagle3-mem076", "--host", "demo", "--set", port, "--wait")
    assert failed.code == 1
    assert failed.out == b""
    assert "oom_kv_pool" in failed.err
    again = next(line for line in failed.err.splitlines() if line.startswith("try: "))
    words = again.removeprefix("try: eagletui ").split()
    assert port in words
    assert "demo" in words
    row = demo("ps", "demo", "--json").json[0]
    assert (row["outcome"], row["phase"], row["cause"]) == ("crashed", "memory_pool", "oom_kv_pool")
    told = demo("wait", row["run"], "--json")
    assert (told.code, told.json["diagnosis"]["cause"]) == (1, "oom_kv_pool")
    assert told.json["diagnosis"]["set"]

    sets = [word for word in words if "=" in word]
    shown = demo("profiles", "show", "kimi-k2.5-eagle3-mem076", *(f"--set={each}" for each in sets), "--json").json
    fraction = float(shown["argv"][shown["argv"].index("--mem-fraction-static") + 1])
    assert 0.84 <= fraction <= 0.9
    # What a boolean change says must be a boolean again when it is typed.
    fusion = demo("launch", "kimi-k2.5-flashinfer-fusion", "--host", "demo", "--set", port, "--wait")
    assert "--set enable-flashinfer-allreduce-fusion=false" in fusion.err
    assert fusion.code == 1


# -- questions --------------------------------------------------------------------------------------------------------


class Reader:
    """Both outputs of a process, as they come."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._pipes = {process.stdout.fileno(): "out", process.stderr.fileno(): "err"}
        self.out = self.err = b""

    def until(self, wanted: bytes, where: str = "out") -> None:
        end = time.monotonic() + 60
        while wanted not in getattr(self, where):
            readable = select.select(list(self._pipes), [], [], max(0.0, end - time.monotonic()))[0]
            if not readable:
                pytest.fail(f"no {wanted!r}: {self.out!r} {self.err!r}")
            for number in readable:
                data = os.read(number, 65_536)
                if not data and len(self._pipes) == 1:
                    pytest.fail(f"ended without {wanted!r}: {self.out!r} {self.err!r}")
                if not data:
                    del self._pipes[number]
                    continue
                setattr(self, self._pipes[number], getattr(self, self._pipes[number]) + data)


def wait_for_children(pid: int) -> None:
    """Until a command has a shell of its own at work, so that it is past its start."""
    end = time.monotonic() + 60
    while not subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=False).stdout.split():
        if time.monotonic() > end:
            pytest.fail("it starts nothing")
        time.sleep(0.05)


ASKS = """
import asyncio, sys
from tui.core.link.transport import HostKeyQuestion, Prompt
from tui.commands.terminal import TerminalAsker
asker = TerminalAsker()
if sys.argv[1] == "key":
    asked = asker.host_key(HostKeyQuestion("gpu1", "tuner@gpu1:22", None, "ssh-ed25519", "SHA256:abc", "bastion"))
else:
    asked = asker.prompt(Prompt("gpu1", "two factors", "Welcome", (("Password: ", False), ("Code: ", True))))
print("answered", asyncio.run(asked))
"""


def asks(shell: Shell, what: str) -> Terminal:
    return Terminal(shell, program=[sys.executable, "-c", ASKS, what])


@pytest.mark.parametrize(
    ("typed", "accepted"), [(b"yes\n", True), (b"y\n", False), (b"\n", False), (b"\x04", False), (b" YES \n", True)]
)
def test_only_yes_accepts_a_host_key(shell: Shell, typed: bytes, accepted: bool) -> None:
    with asks(shell, "key") as terminal:
        terminal.until(b"[yes/No] ")
        assert b"SHA256:abc" in terminal.shown
        assert b"bastion" in terminal.shown
        terminal.write(typed)
        terminal.until(b"answered " + str(accepted).encode())


def test_a_password_is_not_shown_and_a_code_is(shell: Shell) -> None:
    with asks(shell, "prompt") as terminal:
        terminal.until(b"gpu1: Password: ")
        terminal.write("paßword 1\n".encode())
        terminal.until(b"gpu1: Code: ")
        assert b"word 1" not in terminal.shown
        terminal.write(b"123456\n")
        terminal.until(b"answered ('pa\xc3\x9fword 1', '123456')")
        assert terminal.shown.count(b"123456") == 2  # as typed, and in the answer
    with asks(shell, "prompt") as terminal:
        terminal.until(b"gpu1: Password: ")
        terminal.write(b"\x04")
        terminal.until(b"answered None")


def test_ctrl_c_at_a_password_gives_the_terminal_back(shell: Shell) -> None:
    (shell.cwd / "ask.py").write_text(ASKS)
    script = f"{sys.executable} ask.py prompt; stty -a; echo over"
    shell.env["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    with Terminal(
        shell,
        program=[
            sys.executable,
            "-c",
            "import os, sys; os.execv('/bin/sh', ['sh', '-c', sys.argv[1]])",
            f"trap : INT; {script}",
        ],
    ) as terminal:
        terminal.until(b"gpu1: Password: ")
        terminal.write(b"\x03")
        terminal.until(b"over")
        assert re.search(rb"[\s;]echo[\s;]", terminal.shown)
        assert b"-echo " not in terminal.shown


def test_an_unknown_host_is_asked_about_once(shell: Shell, sshd: Any) -> None:
    known = shell.home / "known"
    (shell.home / ".ssh").mkdir()
    (shell.home / ".ssh" / "config").write_text(
        f"Host gpu1\n HostName 127.0.0.1\n Port {sshd.port}\n User {sshd.user}\n IdentityFile {sshd.client_key}\n"
        f" IdentitiesOnly yes\n UserKnownHostsFile {known}\n"
    )
    # OpenSSH takes the home directory from the user database, so it is told where the file is.
    shell.env["EAGLETUI_SSH_CONFIG"] = str(shell.home / ".ssh" / "config")
    shell("ps", "gpu1", "--json").refused(3, "host_key_unknown")  # nobody to ask
    with Terminal(shell, "ps", "gpu1", "--json") as terminal:
        terminal.until(b"[yes/No] ")
        terminal.write(b"yes\n")
        terminal.read_to_end()
        assert terminal.code() == 0
    assert b"127.0.0.1" in known.read_bytes()
    asked = shell("ps", "gpu1", "--json")
    assert (asked.code, asked.err) == (0, "")
    log = shell.cwd / "far.log"
    log.write_bytes(HOSTILE)
    assert shell("logs", f"gpu1:{log}").out == shell("logs", str(log)).out


def test_nobody_is_asked_without_a_terminal(shell: Shell) -> None:
    for what in ("key", "prompt"):
        done = subprocess.run(
            [sys.executable, "-c", ASKS, what], capture_output=True, text=True, env=shell.env, input="yes\n", timeout=60
        )
        assert done.stdout in ("answered False\n", "answered None\n")
        assert done.stderr == ""


def test_the_panel_needs_all_of_a_terminal(shell: Shell, tmp_path: Path) -> None:
    said = tmp_path / "err"
    code = (
        f"import os, sys; os.dup2(os.open({str(said)!r}, os.O_CREAT | os.O_WRONLY), 2); "
        f"os.execv(sys.executable, {[*ME, 'local']!r})"
    )
    with Terminal(shell, program=[sys.executable, "-c", code]) as terminal:
        terminal.read_to_end()
    assert "needs a terminal" in said.read_text()


async def test_a_command_outlasts_a_connection_that_sshd_drops(
    sshd, make_tcp_proxy, make_ssh_transport, monkeypatch
) -> None:
    from tui.commands import sessions
    from tui.core.config import HostEntry
    from tui.core.server.session import HostSession

    proxy = await make_tcp_proxy(sshd.port)
    proxy.cut_after(1500)  # in the middle of the first login
    transport = make_ssh_transport(sshd.target(proxy.port))

    async def opened(name: str, asker: object) -> HostSession:
        return HostSession(HostEntry(name, name), transport)

    monkeypatch.setattr(sessions, "open_session", opened)
    async with sessions.session("gpu1") as session:
        assert (await session.transport.run("echo at last")).stdout == b"at last\n"


def test_the_lines_of_help_are_those_of_the_commands():
    from tui.cli import cli
    from tui.commands.bench import command as bench

    for group in (cli, bench):
        with group.make_context("x", ["paths"]) as context:
            for name, line in group._lazy.items():
                said = group.get_command(context, name).help.partition("\n")[0]
                assert line in (said, said.partition(":")[0] + ".", said.partition(";")[0] + ".")
