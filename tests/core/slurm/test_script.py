"""The batch script of a launch: what it asks Slurm for, and that nothing of a profile is more than a word in it."""

import subprocess
from pathlib import Path

import pytest

from tui.core.config import HostEntry
from tui.core.groups.jobs import group_for, job_launch
from tui.core.profiles.launch_profile import LaunchProfile, SlurmTable
from tui.core.slurm.script import JobRequest, seconds_of

HOSTILE = "x'; touch pwned; $(touch pwned) `touch pwned`\n#SBATCH --wrap=x\n@RANK@ @ID@ \\"


def request(table: SlurmTable | None = None, **fields: object) -> JobRequest:
    args = {"model-path": "/m", **fields.pop("args", {})}  # type: ignore[dict-item]
    profile = LaunchProfile("x", Path("x.toml"), slurm=table or SlurmTable(), args=args, **fields)  # type: ignore[arg-type]
    return job_launch(profile, HostEntry("login", "login", python="/opt/python"), group_for(profile, "login")).request


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("1:30", 90),
        ("4:00:00", 14400),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("2-00:00:01", 172801),
        ("UNLIMITED", None),
        ("", None),
        ("1:2:3:4", None),
        (None, None),
    ],
)
def test_times_as_slurm_writes_them(text: str | None, seconds: float | None) -> None:
    assert seconds_of(text) == seconds


def test_what_is_asked_of_slurm() -> None:
    table = SlurmTable(partition="gpu", account="me", nodes=2, time="4:00:00", options=("--exclusive",))
    found = request(table, args={"tp-size": 16})
    assert set(found.options) >= {
        f"--comment=eagletui={found.run_id}",
        "--nodes=2",
        "--ntasks-per-node=1",
        "--gres=gpu:8",  # of 16
        "--partition=gpu",
        "--account=me",
        "--time=4:00:00",
        "--signal=B:TERM@120",
        "--no-requeue",
        "--exclusive",
    }
    head = found.script.partition("set -u")[0]
    assert [line for line in head.splitlines() if line.startswith("#SBATCH")] == [f"#SBATCH {o}" for o in found.options]


def test_of_little_time_nothing_is_taken_away_for_draining() -> None:
    assert not [option for option in request(SlurmTable(time="10")).options if "signal" in option]


def test_gpus_are_the_schedulers() -> None:
    found = request(gpus=(2, 3), env={"A": "1"})
    assert "--gres=gpu:2" in found.options
    assert "CUDA_VISIBLE_DEVICES" not in found.script


def test_one_node_gets_no_flags_of_nodes() -> None:
    assert "--nnodes" not in request().script
    assert '--node-rank "$n"' in request(SlurmTable(nodes=2)).script


def test_secrets_are_not_in_the_script() -> None:
    found = request(env={"HF_TOKEN": "hf_sekret"}, args={"api-key": "sekret2"})
    assert "sekret" not in found.script + found.command
    assert "hf_sekret" in found.secret
    assert "sekret2" in found.secret + str(found.secret_args)


def test_images_are_run_by_pyxis_or_apptainer() -> None:
    pyxis = request(SlurmTable(image="a/b:c", mounts=("/m:/m",))).script
    assert "--container-image=a/b:c --container-mounts=/m:/m," in pyxis
    assert "set -- python3 -m sglang.launch_server" in pyxis
    runner = SlurmTable(image="/i/s.sif", image_runner="apptainer", mounts=("/m:/m",))
    assert 'set -- apptainer exec --nv --bind "$run":"$run" --bind /m:/m /i/s.sif python3 -m' in request(runner).script


def test_a_hostile_profile_is_words_and_nothing_else(tmp_path: Path) -> None:
    """The rank's part of the script, run by a shell: the server gets every value byte for byte."""
    server = tmp_path / "server"
    server.write_text('#!/bin/sh\nprintf "%s\\0" "$@" "$X" "$PWD" >"$OUT"\n')
    server.chmod(0o755)
    (tmp_path / "it's here").mkdir()
    found = request(
        SlurmTable(options=("--x=@RANK@",)),
        args={"model-path": HOSTILE, "chat-template": "@OPTIONS@"},
        env={"X": HOSTILE, "OUT": f"{tmp_path}/out"},
        command=(str(server),),
        cwd=f"{tmp_path}/it's here",
    )
    script = tmp_path / "job.sh"
    script.write_text(found.script)
    env = {"SLURM_NODEID": "0", "PATH": "/usr/bin:/bin", "SLURM_NNODES": "1"}
    subprocess.run(["/bin/sh", script, str(tmp_path), "rank"], env=env, check=True, timeout=20, cwd=tmp_path)
    said = (tmp_path / "out").read_bytes().decode().split("\0")
    assert said[1:4:2] == [HOSTILE, "@OPTIONS@"]
    assert said[-3:-1] == [HOSTILE, f"{tmp_path}/it's here"]
    assert not list(tmp_path.rglob("pwned"))
    assert (tmp_path / "exit.0").read_text().split()[0] == "0"


@pytest.mark.parametrize(("claimed", "restarts", "code"), [("7", "", 76), ("8", "", 75), ("", "1", 76)])
def test_a_second_start_is_refused(tmp_path: Path, claimed: str, restarts: str, code: int) -> None:
    """Of the same job with 76, of another one with 75; no server is started."""
    if claimed:
        (tmp_path / "claim").mkdir()
        (tmp_path / "claim/job").write_text(f"{claimed}\n")
    script = tmp_path / "job.sh"
    script.write_text(request(command=("touch", f"{tmp_path}/served")).script)
    env = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": restarts or "0", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(["/bin/sh", script, str(tmp_path)], env=env, capture_output=True, timeout=20, check=False)
    assert done.returncode == code
    assert (tmp_path / "refused").exists() == (code == 76)
    assert not (tmp_path / "served").exists()
