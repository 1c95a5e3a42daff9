"""Jobs of a real Slurm on the command line: exit codes and JSON as for any other run."""

from pathlib import Path

import pytest

from tests.support.shell import Shell
from tests.support.slurm import Slurm, free_port

SERVER = Path(__file__).parents[1] / "support/slurm_server.py"
PROFILE = '[slurm]\nnodes = 2\ngpus_per_node = 1\n{}[args]\nmodel-path = "/m"\ntp-size = 2\n'


@pytest.fixture
def login(slurm: Slurm, shell: Shell, tmp_path: Path) -> Shell:
    """A user of a login host, which is this machine."""
    shell.env |= {**slurm.env, "EAGLETUI_STATE": str(tmp_path / "state")}
    config = shell.home / "eagletui/config/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[hosts.local]\npython = "{SERVER}"\nslurm = true\n')
    return shell


def profile(shell: Shell, name: str, more: str = "") -> str:
    directory = shell.cwd / "profiles"
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.toml").write_text(
        f'kind = "launch"\nhost = "local"\n{PROFILE.format(f"dist_port = {free_port()}" + chr(10) + more)}'
    )
    return name


def test_a_job_from_launch_to_stop(login: Shell, slurm: Slurm) -> None:
    launched = login("launch", profile(login, "two"), "--wait", "--timeout", "60", "--json")
    assert launched.code == 0
    ready = launched.json
    assert (ready["outcome"], ready["job"]["state"]) == ("ready", "running")
    assert [(one["node"], one["outcome"]) for one in ready["group"]["members"]] == [("n1", "ready"), ("n2", "ready")]
    slurm.wait(slurm.submit("-J", "train", "--gres=gpu:1"), "RUNNING")
    listed = login("ps", "local", "--json").json
    ours = [row for row in listed if row["group"] and row["group"]["id"] == ready["run"]]
    assert [(row["outcome"], row["job"]["job_id"]) for row in ours] == [("ready", ready["job"]["job_id"])] * 2
    assert [(r["outcome"], r["job"]["name"], r["state"]) for r in listed if r["kind"] == "job"] == [
        ("running", "train", "foreign")
    ]
    logs = login("logs", ready["run"])
    assert logs.code == 0
    assert logs.out.count(b"server_args=") == 2
    assert login("diagnose", ready["run"], "--json").json["outcome"] == "ready"
    assert login("stop", ready["run"], "--json").json["outcome"] == "stopped"
    ended = slurm.show(ready["job"]["job_id"])
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0")
    over = login("wait", ready["run"], "--for", "exit", "--json")
    assert (over.code, over.json["job"]["end"]) == (0, "completed")


def test_a_wait_ends_on_a_reason_that_never_clears(login: Shell) -> None:
    done = login("launch", profile(login, "never", 'partition = "single"\n'), "--wait", "--timeout", "60")
    # Slurm may say so before it takes the job.
    assert done.code == 1
    assert "can never run" in done.err or "not launched: slurm" in done.err


def test_a_dry_run_prints_the_script_and_submits_nothing(login: Shell, slurm: Slurm) -> None:
    done = login("launch", profile(login, "two"), "--dry-run")
    assert (done.code, done.out.startswith(b"#!/bin/sh\n#SBATCH --job-name=eagletui-two-")) == (0, True)
    assert login("launch", "two", "--dry-run", "--json").json["sbatch"][2:4] == ["--nodes=2", "--ntasks-per-node=1"]
    assert slurm("squeue", "-h") == ""


def test_a_profile_without_a_job_is_one_on_a_login_host(login: Shell) -> None:
    (login.cwd / "profiles").mkdir()
    (login.cwd / "profiles/plain.toml").write_text('kind = "launch"\n[args]\nmodel-path = "/m"\ntp-size = 2\n')
    assert "--gres=gpu:2" in login("launch", "plain", "--host", "local", "--dry-run", "--json").json["sbatch"]
    assert login("launch", "plain", "--host", "elsewhere", "--dry-run", "--json").json["error"] == "host_unknown"
