"""The helper under dash, BusyBox and bash: launch, files, states, locks, what a cut upload does."""

import asyncio
import contextlib
import json
import os
import random
import shlex
import signal
import socket
import stat
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from tests.support.run_lab import exited, free_port, record, request, seen, sh, stop_over, until, write_record
from tui.core.errors import EagletuiError, UsageError
from tui.core.link import scripts
from tui.core.link.programs import shell_program
from tui.core.model.run import Run, RunState
from tui.core.runs import control
from tui.core.runs.control import RunBusy, launch
from tui.core.runs.request import InRunDir, LaunchRequest, new_run_id, valid_run_id

HOSTILE = [
    "",
    "plain",
    "$(touch /tmp/eagletui-pwned)",
    "`id`",
    "a'b\"c",
    "new\nline\n",
    "!!",
    "%s%n\\n\\0",
    "*",
    "~root",
    "-n",
    "--",
    "ümlaut 漢字 🦅",
    "back\\slash\\",
    "#hash ; exit 1 & |",
    "tab\there",
    "${HOME}${IFS}",
    "'\\''",
    "}\n}\n",
    "EOF\n",
    " lead and trail ",
    "a=b",
]

DUMP = """
import json, os, sys
json.dump({"argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(),
           "umask": os.umask(0)}, open(os.environ["DUMP"], "w"))
"""


def _umask() -> int:
    value = os.umask(0)
    os.umask(value)
    return value


# -- launch -------------------------------------------------------------------------------------------------------


@pytest.mark.fault(
    "J4",
    "values full of quotes, dollars and newlines",
    sees="the server's own argv",
    holds="every byte arrives, nothing is executed",
)
@pytest.mark.fault(
    "E4", "the host speaks another language", sees="the server's own locale", holds="ours is for our tools only"
)
async def test_values_arrive_byte_for_byte_and_nothing_is_executed(make_host, shell, tmp_path):
    host = make_host(shell)
    where = tmp_path / "a dir with 'quotes' $(x)"
    where.mkdir()
    env = {f"V{n}": value for n, value in enumerate(HOSTILE)} | {"DUMP": str(tmp_path / "dump")}
    run = await launch(
        host,
        LaunchRequest(
            new_run_id("hostile ; name"),
            "bench",
            "hostile ; 'name'",
            (sys.executable, "-c", DUMP, *HOSTILE, InRunDir("file", prefix="--x=")),
            env=env,
            cwd=str(where),
            secret_env={"TOKEN": "s3cr'$HOME"},
        ),
    )
    run = await exited(host, run)
    assert run.exit_code == 0, Path(run.log_path).read_text()
    dump = json.loads((tmp_path / "dump").read_text())
    assert dump["argv"] == [*HOSTILE, f"--x={run.directory}/file"]
    assert {name: dump["env"][name] for name in env} == env
    assert dump["env"]["TOKEN"] == "s3cr'$HOME"
    assert dump["cwd"] == str(where)
    assert dump["env"]["EAGLETUI_RUN"] == run.run_id
    assert "LC_ALL" not in dump["env"]  # ours is for our tools only
    assert dump["umask"] == _umask()
    assert not Path("/tmp/eagletui-pwned").exists()
    assert run.profile == "hostile ; 'name'"
    assert run.argv[3:-1] == tuple(HOSTILE)


@pytest.mark.fault(
    "J6",
    "a program or directory is missing, or may not be run",
    sees="code 127, 126 or 72, and the reason in the log",
    holds="never counted as a start",
)
async def test_exit_codes_and_reasons(make_host, shell, tmp_path):
    host = make_host(shell)
    plain = tmp_path / "plain"
    plain.write_text("no program\n")
    plain.chmod(0o644)
    cases = [
        (sh("exit 0"), None, 0, ""),
        (sh("echo last words; exit 7"), None, 7, "last words"),
        (sh("kill -9 $$"), None, 137, ""),
        (("no-such-program-anywhere",), None, 127, "no-such-program-anywhere: command not found"),
        (("/no/such/program",), None, 127, "/no/such/program: no such file"),
        ((str(plain),), None, 126, "not executable"),
        ((str(tmp_path),), None, 126, "not executable"),
        (sh("exit 0"), "/no/such/place", 72, "cannot change to /no/such/place: no such directory"),
    ]
    started = [
        (await launch(host, request(argv, cwd=cwd, kind="bench")), code, said) for argv, cwd, code, said in cases
    ]
    for run, code, said in started:
        run = await exited(host, run)
        assert (run.exit_code, run.stopped_by_us, run.orphans) == (code, False, ())
        assert said in Path(run.log_path).read_text()
        assert run.ended_at is not None
        assert run.ended_at >= run.started_at


@pytest.mark.fault("J9", "a profile has secrets", sees="`***`", holds="in no argv, log, record or export")
async def test_files_are_private_and_hold_no_secret(make_host, shell, state):
    host = make_host(shell)
    secrets = ("t0ken-in-env", "k3y-in-file")
    run = await launch(
        host,
        request(
            sh('cat "$2"; echo "$#"; exec sleep 300'),
            secret_env={"HF_TOKEN": secrets[0]},
            secret_args={"api-key": secrets[1]},
            extra={"demo_speed": 20},
            notes=("a note",),
        ),
    )
    directory = Path(run.directory)
    await until(lambda: "2\n" in Path(run.log_path).read_text(), "the job's output")
    # `--config FILE` was put at the end, and the file is what SGLang reads.
    assert Path(run.log_path).read_text() == f'api-key: "{secrets[1]}"\n2\n'
    for path in [*state.rglob("*"), state]:
        if path.is_symlink():
            continue
        mode = stat.S_IMODE(path.stat().st_mode)
        assert mode == (0o700 if path.is_dir() else 0o600), path
        if path.is_file() and path.name not in ("secret.yaml", "log"):
            text = path.read_text()
            assert not any(secret in text for secret in secrets), path
    assert not (directory / "secret").exists()
    command_lines = b""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it has ended since
            command_lines += path.read_bytes()
    assert not any(secret.encode() in command_lines for secret in secrets)
    document = json.loads((directory / "cmd.json").read_text())
    assert document["secret_env"] == ["HF_TOKEN"]
    assert document["secret_args"] == ["api-key"]
    assert run.extra == {"demo_speed": 20}
    assert run.notes == ("a note",)
    assert (directory / "secret.yaml").exists()
    os.kill(run.pid, signal.SIGTERM)
    await exited(host, run)
    assert not (directory / "secret.yaml").exists()


async def test_files_of_a_launch_are_there_before_the_start(make_host, shell):
    files = {f"file{at}.txt": text.encode() for at, text in enumerate([*HOSTILE, "no end of line", "\n\n"])}
    files |= {"program.sh": b'ls -l >&2; cat "$1"; pwd', "big.json": ("é'" * 300_000).encode(), "a/b/part.py": b"pass"}
    host = make_host(shell)
    argv = ("sh", InRunDir("program.sh"), InRunDir("file1.txt"))
    run = await exited(host, await launch(host, request(argv, files=files)))
    assert run.exit_code == 0
    directory = Path(run.directory)
    for name, data in files.items():
        assert (directory / name).read_bytes() == data, name
        assert stat.S_IMODE((directory / name).stat().st_mode) == 0o600
    said = Path(run.log_path).read_text()
    assert "big.json" in said  # there when it started, in its working directory
    assert said.endswith(f"plain{directory}\n")


@pytest.mark.fault("F4")
async def test_a_secret_inside_another_value_is_masked_in_cmd_json(make_host):
    host = make_host()
    run = await launch(
        host,
        request(("true", "--header=Bearer abc123"), env={"URL": "http://x/?k=abc123"}, secret_env={"KEY": "abc123"}),
    )
    assert "abc123" not in (Path(run.directory) / "cmd.json").read_text()
    assert run.argv == ("true", "--header=Bearer ***")


@pytest.mark.fault("J1", "a launch is asked for many times at once", sees="one run", holds="one start an id")
async def test_twelve_simultaneous_launches_start_once(make_host, shell, tmp_path):
    host = make_host(shell)
    count = tmp_path / "count"
    wanted = request(sh(f"echo x >> {shlex.quote(str(count))}; exec sleep 300"), port=free_port(), gpus=(0, 1))
    found = await asyncio.gather(*(launch(host, wanted) for _ in range(12)))
    assert {run.run_id for run in found} == {wanted.run_id}
    assert len({run.pid for run in found}) == 1
    await until(count.exists, "the start")
    assert count.read_text() == "x\n"


async def test_of_simultaneous_launches_on_one_gpu_one_starts(make_host, shell):
    host = make_host(shell)

    async def attempt(number: int):
        try:
            return await launch(host, request(sh("exec sleep 300"), gpus=(number, 7)), who=f"user{number}@there")
        except RunBusy as busy:
            return busy

    results = await asyncio.gather(*(attempt(n) for n in range(6)))
    started = [r for r in results if isinstance(r, Run)]
    refused = [r for r in results if isinstance(r, RunBusy)]
    assert len(started) == 1
    assert len(refused) == 5
    assert all(busy.run_id == started[0].run_id for busy in refused if busy.what == "gpus")
    # What was refused leaves nothing behind.
    assert [run.run_id for run in await control.list_runs(host)] == [started[0].run_id]


@pytest.mark.fault("E8", "the host's clock jumps", sees="the same durations", holds="they are of the time since boot")
async def test_a_reservation_keeps_others_out_until_it_is_started_released_or_old(make_host, shell, state):
    host = make_host(shell)
    kept, other = request(sh("exec sleep 300"), gpus=(1,)), request(sh("exec sleep 300"), gpus=(0, 1))
    await control.reserve(host, kept)
    (run,) = await control.list_runs(host)
    assert (run.state, run.extra) == (RunState.STAGED, {})
    for ask in (launch, control.reserve):
        with pytest.raises(RunBusy, match=f"GPU 1 is in use by {kept.run_id}"):
            await ask(host, other)
    await control.release(host, [kept.run_id, "never-seen"])
    assert await control.list_runs(host) == ()
    await control.reserve(host, kept)
    (mark,) = state.glob("*/runs/*/reserved")
    boot, second, who = mark.read_text().split()
    mark.write_text(f"{boot} {int(second) - control.RESERVED_S - 1} {who}\n")
    await control.reserve(host, other)  # in its place, of which nothing stays
    assert [run.run_id for run in await control.list_runs(host)] == [other.run_id]
    assert (await launch(host, other)).state is RunState.RUNNING
    await control.release(host, [other.run_id])
    assert (await seen(host, await launch(host, other))).state is RunState.RUNNING


async def test_of_simultaneous_reservations_one_holds(make_host, shell):
    host = make_host(shell)
    asked = [request(sh("exec sleep 300"), gpus=(number, 7)) for number in range(6)]
    answers = await asyncio.gather(*(control.reserve(host, one) for one in asked), return_exceptions=True)
    assert answers.count(None) == 1
    assert sum(isinstance(answer, RunBusy) for answer in answers) == 5
    assert [run.run_id for run in await control.list_runs(host)] == [asked[answers.index(None)].run_id]


async def test_a_stop_of_what_is_only_reserved_keeps_it_from_starting(make_host):
    host = make_host()
    wanted = request(sh("exec sleep 300"))
    await control.reserve(host, wanted)
    await control.stop(host, wanted.run_id, 0)
    await until(lambda: stop_over(host, wanted), "the end of the stop")
    assert (await launch(host, wanted)).state is RunState.EXITED


@pytest.mark.fault("J8", "port or GPU are taken", sees="by whom", holds="nothing is started")
async def test_a_taken_port_is_refused_and_the_holder_named(make_host, shell):
    host = make_host(shell)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(RunBusy, match=f"port {port} is in use by PID {os.getpid()}") as caught:
            await launch(host, request(sh("exit 0"), port=port))
    assert caught.value.what == "listener"
    assert caught.value.holder.pid == os.getpid()
    assert await control.list_runs(host) == ()


async def test_our_run_on_the_port_is_refused_and_named_before_it_listens(make_host):
    host = make_host()
    port = free_port()
    first = await launch(host, request(sh("exec sleep 300"), port=port))
    with pytest.raises(RunBusy, match=first.run_id):
        await launch(host, request(sh("exit 0"), port=port))


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (
            {"argv": ("a", "--model-path", "x\0y")},
            r"Argument 2 \(after --model-path\) holds the control character 0x00",
        ),
        ({"argv": ("a",), "env": {"NCCL": "x\x1b[2J"}}, "Environment variable NCCL holds the control character 0x1b"),
        ({"argv": ("a",), "env": {"A B": "x"}}, "Environment variable 'A B' has a bad name"),
        ({"argv": ("a",), "env": {"UID": "x"}}, "Environment variable UID cannot be set"),
        ({"argv": ("a",), "secret_env": {"T": "\r"}}, "Secret variable T holds"),
        ({"argv": ("a",), "secret_args": {"api-key": "\x07"}}, "Secret flag --api-key holds"),
        ({"argv": ("a", "\udcff")}, "Argument 1 is not valid text"),
        ({"argv": ("a", "x" * 131_072)}, "Argument 1 is 131072 bytes long"),
        ({"argv": ("a", *["x" * 100_000] * 10)}, "at most 1000000 can be passed"),
        ({"argv": ()}, "The command is empty"),
        ({"argv": ("a",), "cwd": "relative"}, "'relative' is not an absolute path"),
        ({"argv": ("a",), "port": 65536}, "Port 65536"),
        ({"argv": (InRunDir("../x"),)}, "Bad file name"),
        ({"argv": ("a",), "files": {"../x": b""}}, "Bad file name '../x'"),
        ({"argv": ("a",), "files": {"cmd.json": b""}}, "Bad file name 'cmd.json'"),
        ({"argv": ("a",), "files": {"stop.grace": b""}}, "Bad file name 'stop.grace'"),
        ({"argv": ("a",), "files": {"x": b"\xff"}}, "The file x is not UTF-8 text"),
        ({"argv": ("a",), "files": {"x": b"a\0b"}}, "The file x is not UTF-8 text"),
        ({"argv": ("a",), "files": {"x": b"x" * (4 << 20), "y": b"y"}}, "at most 4194304 are sent"),
    ],
)
@pytest.mark.fault(
    "J5", "NUL or control characters in a value", sees="the field's name", holds="refused before anything is sent"
)
async def test_values_that_cannot_be_passed_are_refused_here_by_name(make_host, fields, named):
    with pytest.raises(UsageError, match=named):
        await launch(make_host(), request(fields.pop("argv"), **fields))


@pytest.mark.fault(
    "J12",
    "values larger than the kernel passes",
    sees="the limit, and whose value it is",
    holds="what is let through really passes",
)
async def test_the_largest_value_that_is_let_through_really_passes(make_host, shell):
    host = make_host(shell)
    run = await exited(host, await launch(host, request(("true", *["x" * 131_071] * 7))))
    assert run.exit_code == 0


@pytest.mark.parametrize("bad", ["../x", "a/b", "", ".hidden", "x" * 101, "-x", "a b", "ü"])
async def test_ids_that_are_no_file_names_are_refused(make_host, bad):
    assert not valid_run_id(bad)
    with pytest.raises(EagletuiError, match="Bad run id"):
        await control.status(make_host(), [bad])


def test_run_ids_are_short_and_tell_profile_and_time():
    run_id = new_run_id("kimi k2.5/eagle3!" + "x" * 80, 1_700_000_000)
    assert valid_run_id(run_id)
    name, stamp, digits = run_id.rsplit("-", 2)
    assert len(name) <= 50
    assert name.startswith("kimi-k2.5-eagle3-xxx")
    assert stamp == "20231114T221320Z"
    assert len(digits) == 6
    assert valid_run_id(new_run_id("..."))


async def test_a_later_client_finds_the_run_with_all_that_was_said_at_its_launch(make_host, shell, tmp_path):
    port = free_port()
    run = await launch(
        make_host(shell), request(sh("exec sleep 300"), port=port, gpus=(3, 1), env={"A": "b c"}), who="anna@laptop"
    )
    other = make_host(shell)
    (found,) = await control.list_runs(other)
    assert found == await seen(other, run) == run
    assert (found.state, found.port, found.gpus, found.env) == (RunState.RUNNING, port, (1, 3), {"A": "b c"})
    assert found.supervised is True
    assert await control.status(other, ["absent-id"]) == ()


# -- what may go wrong on the host --------------------------------------------------------------------------------


def _cut_points(size: int, every: int = 13) -> list[int]:
    points = list(range(0, size - 1, every))  # without its last newline a script is whole
    return [*random.Random(13).sample(points, len(points) // 10), size - 2, size - 3]


@pytest.mark.fault(
    "J3", "an upload is cut at any byte", sees="the launch goes on by itself", holds="half a script runs nothing"
)
async def test_an_upload_cut_anywhere_has_no_effect(make_host, shell, state, monkeypatch):
    """A tenth of every 13th byte, by a fixed seed; benchmarks/upload_cut.py does them all."""
    sent: list[str] = []

    class Recorder:
        host = "recorder"

        async def run(self, script, **_):
            sent.append(script)
            raise EagletuiError("only recorded")

    with pytest.raises(EagletuiError, match="only recorded"):
        await launch(Recorder(), request(sh("exec sleep 300"), port=free_port(), gpus=(0,), files={"a": b"it's\n"}))
    whole = scripts.wrap(sent[0], "et" + "0" * 32, scripts.Input.LINE_ENDS)
    env = {"PATH": os.environ["PATH"], "HOME": "/", "EAGLETUI_STATE": str(state), "ER_SH": shell}
    for size in _cut_points(len(whole)):
        done = subprocess.run([shell, "-s"], input=whole[:size], env=env, capture_output=True, check=False, timeout=60)
        assert b"begin" not in done.stdout, size
        assert not state.exists(), size
    done = subprocess.run([shell, "-s"], input=whole, env=env, capture_output=True, check=False, timeout=60)
    assert b"st=running" in done.stdout  # whole, it does start


def _mount(kind: str, where: Path, options: str):
    where.mkdir()
    done = subprocess.run(
        ["mount", "-t", kind, "-o", options, kind, where], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip(f"mount is not permitted here: {done.stderr.strip()}")


@pytest.fixture
def tmpfs(tmp_path):
    """tmpfs(options): a file system of its own; needs root."""
    mounted = []

    def make(options: str) -> Path:
        where = tmp_path / f"mount{len(mounted)}"
        _mount("tmpfs", where, options)
        mounted.append(where)
        return where

    yield make
    for where in mounted:
        subprocess.run(["umount", "-l", where], check=False)


@pytest.mark.fault(
    "J10",
    "the host's disk is full, out of inodes, read-only or noexec",
    sees="where it could not be written",
    holds="another directory, or no launch; never half of one",
)
async def test_a_full_disk_at_launch_starts_nothing(make_host, tmpfs, shell):
    disk = tmpfs("size=64k")
    (disk / "filler").write_bytes(b"x" * 60_000)
    host = make_host(shell, EAGLETUI_STATE=str(disk / "state"))
    marker = disk.parent / "started"
    with pytest.raises(EagletuiError) as caught:
        await launch(host, request(sh(f"touch {marker}"), env={"BIG": "x" * 30_000}))
    assert caught.value.slug in ("disk_full", "no_state_dir")
    with pytest.raises(EagletuiError) as caught:
        await launch(host, request(sh(f"touch {marker}"), files={"big": b"x" * 30_000}))
    assert caught.value.slug in ("disk_full", "no_state_dir")
    assert not marker.exists()
    assert await control.list_runs(host) == ()
    (disk / "filler").unlink()
    run = await exited(host, await launch(host, request(("true",))))
    assert run.exit_code == 0


@pytest.mark.fault("J10")
async def test_a_disk_without_inodes_at_launch_starts_nothing(make_host, tmpfs):
    disk = tmpfs("size=1m,nr_inodes=8")
    host = make_host(EAGLETUI_STATE=str(disk / "state"))
    with pytest.raises(EagletuiError) as caught:
        await launch(host, request(("true",)))
    assert caught.value.slug in ("disk_full", "no_state_dir")
    assert caught.value.hint


async def test_a_full_disk_does_not_keep_a_run_from_being_stopped(make_host, tmpfs, shell):
    disk = tmpfs("size=256k")
    host = make_host(shell, EAGLETUI_STATE=str(disk / "state"))
    run = await launch(host, request(sh("sleep 300 & exec sleep 300")))
    with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
        while True:
            filler.write(b"x" * 4096)
    await control.stop(host, run.run_id, 1)

    async def gone():
        now = await seen(host, run)
        return now.state is not RunState.RUNNING and not now.orphans

    await until(gone, "the end of the tree")
    (disk / "filler").unlink()
    assert (await exited(host, run)).exit_code == 143


@pytest.mark.fault("J10")
async def test_a_read_only_or_noexec_home(make_host, tmpfs, shell, tmp_path):
    disk = tmpfs("size=1m")
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    # The next directory of the list takes over.
    host = make_host(shell, EAGLETUI_STATE="", XDG_STATE_HOME=str(disk))
    run = await exited(host, await launch(host, request(("true",))))
    assert run.directory.startswith(str(tmp_path / "home" / ".local" / "state" / "eagletui"))
    assert [r.run_id for r in await control.list_runs(host)] == [run.run_id]
    noexec = tmpfs("size=1m,noexec")
    host = make_host(shell, EAGLETUI_STATE=str(noexec / "state"))
    assert (await exited(host, await launch(host, request(sh("exit 3"))))).exit_code == 3


@pytest.mark.fault("F13", "no state directory can be written", sees="all that were tried", holds="nothing is started")
async def test_directories_of_others_and_symbolic_links_are_refused(make_host, tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    with pytest.raises(EagletuiError, match="no directory for the state of runs") as caught:
        await launch(make_host(EAGLETUI_STATE=str(link)), request(("true",)))
    assert caught.value.slug == "no_state_dir"
    assert list(real.iterdir()) == []


def test_every_directory_that_was_tried_is_named(shell, tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).symlink_to(tmp_path)
    helper = resources.files("tui.remote").joinpath("eaglerun.sh").read_text()
    call = f"er_init; ER_ROOTS='{tmp_path}/a'$ER_NL'{tmp_path}/b'; er_new_root"
    done = subprocess.run([shell, "-s"], input=f"{helper}\n{call}\n", capture_output=True, text=True, timeout=60)
    assert done.stdout == f"error\tno-state-dir\t{tmp_path}/a {tmp_path}/b\n"


@pytest.fixture
def busybox_path(tmp_path) -> str:
    """A PATH with BusyBox's applets only, without setsid, stat and find."""
    busybox = subprocess.run(["which", "busybox"], capture_output=True, text=True, check=False).stdout.strip()
    if not busybox:
        pytest.skip("no busybox: apt-get install busybox")
    directory = tmp_path / "applets"
    directory.mkdir()
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name not in ("setsid", "stat", "find", "busybox"):
            (directory / name).symlink_to(busybox)
    return str(directory)


@pytest.mark.fault("E2", "BusyBox alone: no bash, no Python, no setsid", sees="fewer figures", holds="runs work")
async def test_busybox_alone_is_enough(make_host, busybox_path):
    host = make_host(f"{busybox_path}/sh", PATH=busybox_path)
    run = await launch(host, request(sh("sleep 300 & sleep 301; exit 5"), gpus=(0,)))
    assert run.state is RunState.RUNNING
    with pytest.raises(RunBusy):
        await launch(host, request(("true",), gpus=(0,)))
    await control.stop(host, run.run_id, 1)
    over = await exited(host, run)
    await until(lambda: stop_over(host, run), "the stop")
    assert over.stopped_by_us
    assert (await seen(host, run)).orphans == ()


# -- states -------------------------------------------------------------------------------------------------------


@pytest.mark.fault(
    "E7", "a run of another PID namespace (a container)", sees="unknown, and why", holds="no signal is sent"
)
async def test_states_that_only_the_files_tell(make_host, shell):
    host = make_host(shell)
    run = await launch(host, request(sh("exec sleep 300")))
    words = record(run)
    other_boot = [*words[:2], "00000000-0000-0000-0000-000000000000", *words[3:]]
    write_record(run, other_boot)
    found = await seen(host, run)
    assert (found.state, found.why, found.exit_code) == (RunState.LOST, "rebooted", None)
    write_record(run, [*words[:3], "pid:[1]", *words[4:]])
    found = await seen(host, run)
    assert (found.state, found.why) == (RunState.UNKNOWN, "other pid namespace")
    with pytest.raises(EagletuiError, match="another PID namespace"):
        await control.stop(host, run.run_id)
    write_record(run, words)
    assert (await seen(host, run)).state is RunState.RUNNING
    os.kill(int(words[4]), signal.SIGKILL)  # the supervisor

    async def unsupervised():
        return (await seen(host, run)).supervised is False

    await until(unsupervised, "the end of the supervisor")
    assert (await seen(host, run)).state is RunState.RUNNING
    os.kill(run.pid, signal.SIGKILL)

    async def lost():
        now = await seen(host, run)
        return now if now.state is RunState.LOST else None

    assert (await until(lost, "lost")).why == "supervisor killed"


async def test_staged_is_no_start_and_a_repeated_launch_starts_it(make_host, shell, state):
    host = make_host(shell)
    wanted = request(sh("exec sleep 300"))
    first = await launch(host, wanted)
    # What a launch leaves that was cut off before its supervisor came to life.
    staged = Path(first.directory).with_name(new_run_id("staged"))
    staged.mkdir(mode=0o700)
    (staged / "spec").write_text("set -- false\n")
    (found,) = await control.status(host, [staged.name])
    assert found.state is RunState.STAGED
    run = await launch(host, LaunchRequest(staged.name, "server", "test", sh("exec sleep 300")))
    assert run.state is RunState.RUNNING
    claimed = staged.with_name(new_run_id("claimed"))
    (claimed / "claim").mkdir(parents=True)
    claimed.chmod(0o700)
    (claimed / "claim" / "who").write_text(f"{record(first)[2]} {record(first)[3]} {2**22 - 1} 1\n")
    (found,) = await control.status(host, [claimed.name])
    assert (found.state, found.why) == (RunState.LOST, "died before start")


@pytest.mark.fault(
    "U4",
    "a run of a newer eagletui",
    sees="its state, as far as it is known",
    holds="watched and stopped; what is not known stays",
)
async def test_a_newer_version_s_files_are_read_and_its_run_is_stopped(make_host):
    host = make_host()
    run = await launch(host, request(sh("exec sleep 300")))
    directory = Path(run.directory)
    write_record(run, [*record(run), "future", "fields"])
    meta = (directory / "meta").read_text().split(" ", 1)
    (directory / "meta").write_text("99 " + meta[1])
    document = json.loads((directory / "cmd.json").read_text())
    (directory / "cmd.json").write_text(json.dumps(document | {"version": 99, "unheard": {"of": 1}}, indent=1))
    (directory / "unheard").write_text("of\n")
    other = make_host()
    (found,) = await control.list_runs(other)
    assert (found.state, found.argv, found.kind) == (RunState.RUNNING, run.argv, "server")
    await control.stop(other, run.run_id, 1)
    await until(lambda: stop_over(other, run), "the stop")
    assert json.loads((directory / "cmd.json").read_text())["unheard"] == {"of": 1}


async def test_damaged_files_hide_no_other_run(make_host):
    host = make_host()
    good = await launch(host, request(sh("exec sleep 300")))
    bad = await exited(host, await launch(host, request(("true",))))
    directory = Path(bad.directory)
    for name in ("meta", "cmd.json", "pid", "exit", "stop"):
        (directory / name).write_bytes(b"\xff\xfe\t\0junk\n.\nend\n")
    found = {run.run_id: run for run in await control.list_runs(make_host())}
    assert found[good.run_id].state is RunState.RUNNING
    assert bad.run_id in found


async def test_of_the_runs_that_are_over_the_newest_200_stay(make_host):
    host = make_host()
    live = await launch(host, request(sh("exec sleep 300")))
    old = Path(live.directory)
    words = " ".join(record(live)[2:4])
    for n in range(205):
        directory = old.with_name(f"old-{n}")
        (directory / "claim").mkdir(parents=True)
        directory.chmod(0o700)
        (directory / "pid").write_text(f"{2**22 - 1} 1 {words} {2**22 - 1} 1 {n}\n")
        (directory / "exit").write_text(f"0 {n}\n")
        os.utime(directory, (n, n))
    os.utime(old, (0, 0))  # lives, so it stays however old it is
    newest = await launch(host, request(("true",)))

    async def pruned():
        found = await control.list_runs(host)
        return found if len(found) <= 201 else None

    found = {run.run_id for run in await until(pruned, "the old runs to go")}
    assert {live.run_id, newest.run_id, "old-204"} <= found
    assert "old-0" not in found


# -- locks --------------------------------------------------------------------------------------------------------


def _helper(shell: str, script: str, state: Path, **popen) -> subprocess.Popen:
    text = f"ER_SELF=x\n{shell_program('eaglerun.sh')}\ner_init\nER_ROOT={shlex.quote(str(state))}\n{script}"
    process = subprocess.Popen(
        [shell, "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **popen
    )
    process.stdin.write(text.encode())
    process.stdin.close()
    process.stdin = None
    return process


def test_a_lock_excludes_under_stress(shell, tmp_path):
    critical = tmp_path / "critical"
    script = f"""
er_nap() {{ sleep 0.01; }}
n=0
while [ $n -lt 12 ]; do
  er_lock {tmp_path}/lock w 4000 || {{ echo NOT-TAKEN; exit 1; }}
  mkdir {critical} || echo OVERLAP
  echo x
  rmdir {critical} || echo OVERLAP
  er_unlock {tmp_path}/lock
  n=$((n+1))
done
"""
    contenders = [_helper(shell, script, tmp_path) for _ in range(5)]
    outputs = [process.communicate(timeout=200) for process in contenders]
    assert [out for out, _ in outputs] == [b"x\n" * 12] * 5, outputs
    assert len(list(tmp_path.glob("lock.*"))) == 1


@pytest.mark.fault("U3", "the holder of a lock died", sees="nothing", holds="taken by exactly one, and only if dead")
def test_the_lock_of_a_holder_that_died_is_taken_by_one(shell, tmp_path):
    holder = _helper(shell, f"er_lock {tmp_path}/lock dead 1 && echo held; exec sleep 300", tmp_path)
    assert holder.stdout.readline() == b"held\n"
    taker = f"er_lock {tmp_path}/lock next 1 && echo held || echo by=$L_WHO; exec sleep 300"
    takers = [_helper(shell, taker, tmp_path)]
    assert takers[0].stdout.readline() == b"by=dead\n"  # alive: not broken, and named
    holder.kill()
    holder.wait()
    takers += [_helper(shell, taker, tmp_path) for _ in range(4)]
    said = [process.stdout.readline() for process in takers[1:]]
    for process in takers:
        process.kill()
    assert said.count(b"held\n") == 1, said


@pytest.mark.parametrize("moment", range(6))
def test_a_holder_killed_at_any_moment_blocks_nobody(tmp_path, moment):
    shell = "/bin/sh"
    loop = f"while :; do er_lock {tmp_path}/lock a 9999 && er_unlock {tmp_path}/lock; echo; done"
    holder = _helper(shell, loop, tmp_path)
    for _ in range(moment + 1):
        holder.stdout.readline()
    holder.kill()
    holder.wait()
    out, err = _helper(shell, f"er_lock {tmp_path}/lock b 50 && echo held", tmp_path).communicate(timeout=60)
    assert out == b"held\n", err


async def test_who_is_launching_is_named(make_host, state):
    host = make_host()
    first = await launch(host, request(("true",)))
    locks = Path(first.directory).parent.parent
    holder = _helper("/bin/sh", 'er_lock "$ER_ROOT"/locks/gpu-2 anna@laptop 1 && echo held; exec sleep 300', locks)
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(RunBusy, match=r"anna@laptop is launching on gpu 2 right now") as caught:
        await launch(host, request(("true",), gpus=(1, 2)))
    assert (caught.value.what, caught.value.by) == ("lock", "anna@laptop")
    holder.kill()
    holder.communicate()
    assert (await launch(host, request(("true",), gpus=(1, 2)))).run_id
