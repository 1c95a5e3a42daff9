"""`ps`, `gpus` and `doctor` of several hosts: one that fails is an entry and a line, the others answer all the same."""

import json
import signal
import socket
import threading

import pytest

from tests.support.shell import Shell

pytestmark = pytest.mark.timeout(180)

DEAD = "tuner@127.0.0.1:1"  # nothing listens there
MUTE = "tuner@nosuchhost.invalid"


def test_ps_of_several_hosts(demo: Shell) -> None:
    said = demo("ps", "demo", DEAD, "demo2", "--json")
    (entry,) = [row for row in said.json if row.get("error")]
    assert said.code == 3
    assert (entry["host"], entry["error"]) == (DEAD, "refused")
    assert said.err.count("\n") == 1
    assert said.err.startswith("eagletui: ")
    assert "127.0.0.1:1" in said.err


def test_runs_of_several_hosts_carry_theirs(demo: Shell, port: str) -> None:
    run = demo("launch", "kimi-k2.5-baseline-bs128", "--host", "demo2", "--set", port, "--wait", "--json").json["run"]
    rows = demo("ps", "demo", "demo2", "--json").json
    assert [(row["host"], row["run"]) for row in rows] == [("demo2", run)]
    text = demo("ps", "demo2", "demo").out.decode()
    assert text.startswith("demo2:\nRUN ")
    assert text.rstrip().endswith("demo:")
    busy, free = (demo("gpus", "demo2", "demo", "--json").json[place]["gpus"] for place in (0, 1))
    assert all(gpu["mem_used_mib"] > 10_000 for gpu in busy)
    assert all(gpu["mem_used_mib"] < 10_000 for gpu in free)  # a host of its own
    assert demo("stop", run, "--yes", "--json").code == 0


def test_the_exit_code_is_that_of_the_first_failure(demo: Shell) -> None:
    for command in ("ps", "gpus"):
        said = demo(command, "demo", MUTE, DEAD)
        assert said.code == 3
        lines = said.err.splitlines()
        assert [host in line for host, line in zip(("nosuchhost.invalid", "127.0.0.1:1"), lines[-2:], strict=True)] == [True, True]  # fmt: skip
        assert said.out.decode().startswith("demo:\n")


def test_gpus_of_several_hosts(demo: Shell) -> None:
    documents = demo("gpus", DEAD, "demo", "--json").json
    assert [(one["host"], one["error"], len(one["gpus"])) for one in documents] == [
        (DEAD, "refused", 0),
        ("demo", None, 8),
    ]
    text = demo("gpus", "demo", "demo2").out.decode()
    assert text.count("RTX PRO 6000") == 16
    assert text.index("demo:\n") < text.index("demo2:\n")


def test_watching_goes_on_where_one_host_fails(demo: Shell) -> None:
    process = demo.start("gpus", "demo", DEAD, "--watch", "--json")
    watchdog = threading.Timer(60, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        seen = {}
        while not (seen.get("demo", {}).get("samples", 0) >= 2 and DEAD in seen):
            document = json.loads(process.stdout.readline())
            seen[document["host"]] = document
        assert seen[DEAD]["error"] == "refused"
    finally:
        watchdog.cancel()
        process.send_signal(signal.SIGINT)
        process.communicate()


def test_doctor_of_several_hosts(demo: Shell) -> None:
    said = demo("doctor", "demo", DEAD, "--json")
    assert said.code == 1
    assert [(one["host"], one["error"]) for one in said.json] == [("demo", None), (DEAD, "doctor")]
    text = demo("doctor", "demo", "demo2")
    assert text.code == 0
    assert text.out.decode().startswith("demo:\n✓ ")
    assert "\ndemo2:\n✓ " in text.out.decode()


def test_one_host_answers_as_before(demo: Shell) -> None:
    assert isinstance(demo("gpus", "demo", "--json").json, dict)
    assert isinstance(demo("doctor", "demo", "--json").json, dict)
    demo("ps", DEAD, "--json").refused(3, "refused")
    assert demo("ps", "demo", "demo", "--json").json == demo("ps", "demo", "--json").json  # a name twice is one host


def test_all_hosts_of_the_settings(demo: Shell) -> None:
    demo("ps", "--all", "--json").refused(2, "bad_config")  # there are none
    settings = demo.home / "eagletui" / "config" / "config.toml"
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text('[hosts.demo]\n[hosts.dead]\nssh = "tuner@127.0.0.1:1"\n')
    try:
        documents = demo("gpus", "--all", "--json").json
        assert [(one["host"], one["error"]) for one in documents] == [("demo", None), ("dead", "refused")]
        demo("ps", "--all", "demo", "--json").refused(2, "usage")
        demo("--all", "ps", "--json").refused(2, "usage")
    finally:
        settings.unlink()


def test_a_command_behind_a_host_is_no_host(shell: Shell) -> None:
    said = shell("gpu1", "ps")
    assert said.code == 2
    assert "ps is a command, not a host; eagletui ps gpu1" in said.err


@pytest.mark.parametrize("word", ["lunch", "ls-results", "stpo", "profile"])
def test_a_mistyped_command_is_no_host(shell: Shell, word: str) -> None:
    meant = {"lunch": "launch", "ls-results": "results", "stpo": "stop", "profile": "profiles"}[word]
    said = shell(word)
    assert said.code == 2
    assert f"{word} is neither a command nor a host of yours; did you mean eagletui {meant}?" in said.err


def test_a_host_may_be_called_like_a_command(shell: Shell) -> None:
    for words in (("panel", "bench"), ("panel", "lunch"), ("panel", "panel")):
        assert "the panel needs a terminal" in shell(*words).err
    ssh = shell.home / ".ssh"
    ssh.mkdir(exist_ok=True)
    (ssh / "config").write_text("Host lunch\n")
    assert "the panel needs a terminal" in shell("lunch").err


@pytest.mark.parametrize("words", [("gpu1", "gpu2"), ("--all",), ("demo", "--hosts", "2")])
def test_the_panel_of_several_hosts_needs_a_terminal_too(shell: Shell, words: tuple[str, ...]) -> None:
    assert "the panel needs a terminal" in shell(*words).err


def test_a_host_that_never_answers_holds_up_no_other_answer(demo: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as sink:
        mute = f"tuner@127.0.0.1:{sink.getsockname()[1]}"
        said = demo("gpus", mute, "demo", "--json", timeout=120)
    assert [(one["host"], bool(one["error"])) for one in said.json] == [(mute, True), ("demo", False)]
    assert said.code == 3
