"""What commands print: nothing in it steers a terminal, and no known secret is in it, wherever the text comes from."""

import io
import json

import pytest

from tests.support.planted import HOSTILE, SECRET, leaks, planted
from tests.support.shell import Shell
from tests.support.stored import measured
from tui.commands.output import SafeOutput, emit
from tui.core.masking.known import learn
from tui.core.records import to_json
from tui.core.server.launch_records import LaunchRecord

KEEP = frozenset(["run_id", "result_id", "kind", "started_at", "launched_at", "bench_run_id", "host"])
SMI = """#!/bin/sh
printf 'name\\033]52;c;UFdO\\007 [red]\\302\\2332J\\342\\200\\256 %s\\n' "$SECRET_OF_GPU"
exit 3
"""
PROFILE = f"""
kind = "launch"
description = "[bold]m[/] {SECRET}"
[env]
MY_TOKEN = "{SECRET}"
[args]
model-path = "/m[red]{SECRET}"
"""


@pytest.fixture
def hostile(shell: Shell) -> Shell:
    """A user whose profiles, records, results, logs, files and GPU tool hold hostile text."""
    profiles = shell.cwd / "profiles"
    profiles.mkdir()
    (profiles / "mine.toml").write_text(PROFILE)
    (profiles / "steers.toml").write_text('kind = "launch"\nhypothesis = "\\u001b]52;c;UFdO\\u0007"\n')
    (profiles / "a\x1b]52;c;UFdO\x07\x9b2J.toml").write_text(PROFILE + "x = 1\n")
    data = shell.home / "eagletui" / "data"
    for directory in ("results", "launches"):
        (data / directory).mkdir(parents=True)
    for result in map(measured, (1, 2)):
        raw = to_json(planted(result, keep=KEEP | {"profile", "bench"}))
        (data / "results" / f"{result.result_id}.json").write_text(json.dumps(raw))
    record = LaunchRecord("mine-20261006T200103Z-4f9c2a", "local", "server", "mine", "2026-10-06T20:01:03Z", model="m")
    (data / "launches" / f"{record.run_id}.json").write_text(json.dumps(to_json(planted(record, keep=KEEP))))
    (shell.cwd / "server.log").write_text(
        f"[2026-10-06 20:01:17] server_args=ServerArgs(model_path='/m{HOSTILE}', tp_size=1)\n"
        f'Traceback (most recent call last):\n  File "/a{HOSTILE}.py", line 3, in x{HOSTILE}\nValueError: {HOSTILE}\n'
    )
    bin_ = shell.cwd / "bin"
    bin_.mkdir()
    (bin_ / "nvidia-smi").write_text(SMI)
    (bin_ / "nvidia-smi").chmod(0o755)
    shell.env["PATH"] = f"{bin_}:{shell.env['PATH']}"
    shell.env["SECRET_OF_GPU"] = SECRET
    return shell


COMMANDS = [
    ("profiles",),
    ("profiles", "show", "mine"),
    ("profiles", "show", "mine", "--json"),
    ("profiles", "show", f"no{HOSTILE}"),
    ("results",),
    ("results", "export", "--format", "csv"),
    ("results", "export", "--format", "markdown"),
    ("results", "export", "--format", "jsonl"),
    ("compare", "mine", "other"),
    ("diagnose", "server.log"),
    ("diagnose", "server.log", "--json"),
    ("logs", "server.log", "--json"),
    ("gpus", "local"),
    ("gpus", "--file", "server.log"),
    ("doctor", "local", "--json"),
    ("ps", "local", "--json"),
    ("stop", f"x{HOSTILE}", "--yes"),
    ("launch", "steers", "--host", "local"),
    ("launch", "mine", "--host", f"nowhere{HOSTILE}"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: " ".join(words[:2])[:20])
def test_every_command(hostile: Shell, command: tuple[str, ...]) -> None:
    done = hostile(*(word.replace("\0", "") for word in command))
    for text in (done.out.decode("utf-8", "surrogateescape"), done.err):
        assert leaks(text.replace("\r\n", "\n") if "csv" in command else text) == []
    assert "bug of eagletui" not in done.err
    assert done.out or done.err


def test_the_bytes_of_a_log_stay_but_for_its_secrets(hostile: Shell) -> None:
    done = hostile("logs", "server.log")
    assert done.out == (hostile.cwd / "server.log").read_bytes().replace(SECRET.encode(), b"***")


def test_json_says_what_there_is_in_escapes(capsys) -> None:
    learn(SECRET)
    document = {"a": f"x\x9b\u202e\x7f{SECRET}", "b": ["é", "\udc80"]}
    emit(document)
    out = capsys.readouterr().out
    assert leaks(out) == []
    assert json.loads(out) == {"a": "x\x9b\u202e\x7f***", "b": ["é", "\udc80"]}
    emit({"HF_TOKEN": SECRET}, secrets=True)
    assert json.loads(capsys.readouterr().out) == {"HF_TOKEN": SECRET}


def test_the_parts_of_one_print_are_looked_at_together() -> None:
    learn(SECRET)
    raw = io.BytesIO()
    out = SafeOutput(io.TextIOWrapper(raw), "utf-8")
    print("a", SECRET[:9], sep="", end="", file=out)
    print(SECRET[9:], "\x1b[31mb\r", file=out)
    print("next", end="", file=out, flush=True)
    assert raw.getvalue().decode() == "a*** b\u240d\nnext"
