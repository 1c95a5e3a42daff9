"""Secrets of every kind are planted, and looked for afterwards wherever they could have come out."""

import base64
import json
import os
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.run_lab import free_port
from tests.support.shell import Shell

# A server that prints what it was given in every way that servers do, then dies of one of them.
LEAKY = """
import base64, json, os, sys, urllib.parse
values = [value for value in os.environ.values() if "PLANT" in value]
print("ENV", dict(os.environ))
for value in values:
    print("value is", value, "in", json.dumps({"x": value}), urllib.parse.quote(value, safe=""))
    print("Authorization: Basic", base64.b64encode(b"me:" + value.encode()).decode(), flush=True)
print("Traceback (most recent call last):")
print("RuntimeError: cannot log in with", " and ".join(values), flush=True)
sys.exit(1)
"""
SECRETS = {
    "HF_TOKEN": "hf_PLANTaaaa1111bbbb2222",
    "MY_TOKEN": "PLANTtwo-2222/xyz+a",
    "AWS_SECRET_ACCESS_KEY": "PLANTthree/33+33==",
    "DB_PASSWORD": 'PLANT"four\\44 x',
    "PGPASS": "PLANTfive5",
    "GITHUB_PAT": "PLANTsix6666",
    "AUTH": "Basic PLANTseven77",
    "MY_CREDENTIALS": "PLANTeight8888",
    "SESSION_COOKIE": "PLANTnine99999",
    "OPENAI_KEY": "sk-PLANTten0000000",
    "PASSPHRASE": "PLANT eleven words",
    "apiKey": "PLANTtwelve12",
    "PLAIN_URL": "https://user:PLANTthirteen13@host/x",
    "DATABASE_DSN": "host=db password=PLANTfourteen user=x",
    "ODD_NAME": "PLANTfifteen15",  # named by `secrets`
    "FROM_WRAPPER": "PLANTsixteen16",
    "FROM_SET_TOKEN": "PLANTseventeen",
}
# What of each is the secret, and not what stands around it.
CORES = {name: value for name, value in SECRETS.items()} | {
    "AUTH": "PLANTseven77",
    "PLAIN_URL": "PLANTthirteen13",
    "DATABASE_DSN": "PLANTfourteen",
}


def spellings(value: str) -> list[bytes]:
    found = [value, json.dumps(value)[1:-1], urllib.parse.quote(value, safe="")]
    return [text.encode() for text in found] + [base64.b64encode(b"me:" + value.encode())[4:-4]]


def leaked(data: bytes) -> list[str]:
    return sorted(name for name, value in CORES.items() if any(spelling in data for spelling in spellings(value)))


def files_below(directory: Path) -> Iterator[Path]:
    for path, _, names in os.walk(directory):
        yield from (Path(path) / name for name in names)


@pytest.fixture
def planted(shell: Shell) -> Shell:
    profiles = shell.cwd / "profiles"
    profiles.mkdir()
    (shell.cwd / "leaky.py").write_text(LEAKY)
    env = {name: value for name, value in SECRETS.items() if not name.startswith("FROM_")}
    (profiles / "leaky.toml").write_text(
        'kind = "launch"\nsecrets = ["ODD_NAME"]\n'
        f"command = {json.dumps([sys.executable, str(shell.cwd / 'leaky.py'), '--port', str(free_port())])}\n"
        f'wrapper = ["env", "MY_TOKEN_2={SECRETS["FROM_WRAPPER"]}"]\n'
        "[env]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in env.items())
    )
    return shell


def test_no_planted_secret_comes_out_anywhere(planted: Shell) -> None:
    setting = f"env.FROM_SET_TOKEN={SECRETS['FROM_SET_TOKEN']}"
    outputs = {}

    def run(*words: str) -> bytes:
        done = planted(*words)
        outputs[" ".join(words)] = done.out + done.err.encode()
        return done.out

    # FROM_SET_TOKEN is known to the command that was given it; later ones know it by its name alone.
    run("profiles", "show", "leaky", "--set", setting)
    run("profiles", "show", "leaky", "--set", setting, "--json")
    launched = json.loads(run("launch", "leaky", "--host", "local", "--set", setting, "--wait", "--json"))
    name = launched["run"]
    for words in (("ps", "local"), ("logs", name), ("diagnose", name), ("wait", name, "--for", "exit")):
        run(*words, "--json")
    run("logs", name)
    run("diagnose", name)
    run("profiles")
    log = planted.home / "eagletui" / "state"
    raw = b"".join(path.read_bytes() for path in files_below(log) if path.name == "log")
    assert len(leaked(raw)) >= len(SECRETS) - 2  # the host's own file has every byte
    later = {words: leaked(data) for words, data in outputs.items() if leaked(data)}
    assert {words: names for words, names in later.items() if names != ["FROM_SET_TOKEN"]} == {}
    assert not any("--set" in words for words in later)
    for path in files_below(planted.home / "eagletui"):
        if path.is_symlink():  # a lock
            continue
        of_run = "runs" in path.parts
        assert not (of_run and path.stat().st_mode & 0o077), path  # read by nobody else
        if path.name != "log" or not of_run:
            assert leaked(path.read_bytes()) == [], path
    assert b"MY_TOKEN_2" in outputs["profiles show leaky --set " + setting]
    assert b"***" in outputs[f"logs {name}"]


def test_who_looks_later_quotes_no_log_of_a_launch_with_a_secret_of_its_own(planted: Shell) -> None:
    """Only the command that launched knew the value: nobody waited there, and another process sees the death first."""
    setting = f"env.FROM_SET_TOKEN={SECRETS['FROM_SET_TOKEN']}"
    name = planted("launch", "leaky", "--host", "local", "--set", setting, "--json").json["run"]
    planted("wait", name, "--for", "exit", "--json")
    planted("journal", "--json")
    for path in files_below(planted.home / "eagletui" / "data"):
        assert leaked(path.read_bytes()) == [], path


def test_no_secret_is_in_the_list_of_processes(shell: Shell) -> None:
    (shell.cwd / "profiles").mkdir()
    (shell.cwd / "sleep.py").write_text("import time; print('up', flush=True); time.sleep(300)\n")
    argv = [sys.executable, str(shell.cwd / "sleep.py"), "--port", str(free_port())]
    (shell.cwd / "profiles" / "quiet.toml").write_text(
        f'kind = "launch"\ncommand = {json.dumps(argv)}\n'
        f'wrapper = ["env", "A_KEY={CORES["PGPASS"]}"]\n[env]\nMY_TOKEN = "{CORES["GITHUB_PAT"]}"\n'
    )
    with shell.start("launch", "quiet", "--host", "local", "--json") as launching:
        seen = set()
        while launching.poll() is None:
            seen |= _command_lines()
        out, _ = launching.communicate()
    name = json.loads(out)["run"]
    with shell.start("stop", name, "--host", "local", "--yes", "--json") as stopping:
        while stopping.poll() is None:
            seen |= _command_lines()
        stopping.communicate()
    assert any(b"sleep.py" in line for line in seen)
    assert not any(value.encode() in line for line in seen for value in (CORES["PGPASS"], CORES["GITHUB_PAT"]))


def _command_lines() -> set[bytes]:
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found.add((entry / "cmdline").read_bytes())
            except OSError:
                continue
    return found
