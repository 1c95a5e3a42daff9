"""Servers that somebody else started, and who listens on a port."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.run_lab import free_port, request, until
from tui.core.model.run import RunState
from tui.core.runs import control
from tui.core.runs.control import launch
from tui.core.runs.foreign import foreign_servers, is_server, listener, port_belongs_to
from tui.core.runs.helper import helper_script

# A server by its command line: `python .../sglang serve --port N`, with a rank under a title as setproctitle makes it.
SERVER = """
import os, socket, sys, time
port = int(sys.argv[sys.argv.index("--port") + 1])
if os.fork() == 0:
    os.execv("/bin/sh", ["sglang::scheduler_TP0", "-c", "sleep 300; exit"])
listener = socket.create_server(("127.0.0.1", port))
print("fired up", flush=True)
time.sleep(300)
"""


@pytest.fixture
def server(tmp_path):
    """server(port, log): such a server as somebody's process; returns its pid."""
    program = tmp_path / "bin" / "sglang"
    program.parent.mkdir()
    program.write_text(SERVER)
    started = []

    def start(port: int, log: Path | None = None) -> int:
        out = log.open("wb") if log else subprocess.PIPE
        process = subprocess.Popen(
            [sys.executable, program, "serve", "--model-path", "m\x1b[2Jodel", "--port", str(port)],
            stdout=out,
            start_new_session=True,
        )
        started.append(process)
        return process.pid

    start.program = program
    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _title_is_there(parent: int) -> bool:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes().startswith(b"sglang::scheduler_TP0") and f") S {parent} " in (
                path.parent / "stat"
            ).read_text().replace(") R ", ") S "):
                return True
    return False


async def test_a_server_started_by_hand_is_found_and_only_watched(make_host, shell, server, tmp_path):
    host = make_host(shell)
    log, port = tmp_path / "by hand.log", free_port()
    pid = server(port, log)
    await until(lambda: log.exists() and log.read_text() == "fired up\n" and _title_is_there(pid), "the server")
    found = {run.pid: run for run in await foreign_servers(host)}
    run = found[pid]
    assert (run.run_id, run.state, run.kind, run.port) == (f"foreign-{pid}", RunState.FOREIGN, "server", port)
    assert run.log_path == str(log)
    assert run.owner
    assert run.started_at is not None
    assert run.argv[-2:] == ("--port", str(port))
    assert "\x1b" not in "".join(run.argv)
    # The rank is part of it, not a server of its own.
    assert not any(other.argv[0].startswith("sglang::") for other in found.values() if other.port == port)
    assert await port_belongs_to(host, run) is True
    assert await control.refresh(host, run) == run
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)  # noqa: ASYNC222

    async def gone():
        return (await control.refresh(host, run)).state is RunState.EXITED

    await until(gone, "its end to be seen")


async def test_ranks_whose_launcher_died_are_one_server(make_host, server, tmp_path):
    host = make_host()
    script = """
for n in 0 1; do
  sh -c 'exec -a "sglang::scheduler_TP$1" sleep 300' sh $n 2>/dev/null ||
  python3 -c 'import os,sys; os.execv("/bin/sleep", ["sglang::scheduler_TP"+sys.argv[1], "300"])' $n &
done
echo $!
"""
    launcher = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=subprocess.PIPE)
    launcher.stdout.readline()
    launcher.wait()
    try:

        async def one():
            found = [run for run in await foreign_servers(host) if run.argv[0].startswith("sglang::")]
            return found if len(found) == 1 else None

        (run,) = await until(one, "the ranks")
        assert run.port is None
    finally:
        os.killpg(launcher.pid, signal.SIGKILL)


async def test_our_runs_are_not_foreign(make_host, shell, server):
    host = make_host(shell)
    port = free_port()
    run = await launch(host, request((sys.executable, str(server.program), "serve", "--port", str(port)), port=port))
    await until(lambda: Path(run.log_path).read_text(), "the server")
    assert run.pid not in {other.pid for other in await foreign_servers(host)}
    assert await port_belongs_to(host, run) is True
    holder = await listener(host, port)
    assert (holder.port, holder.pid, holder.run_id) == (port, run.pid, run.run_id)
    assert str(holder) == f"run {run.run_id}"


async def test_another_server_on_our_port_is_never_ours(make_host, shell, server):
    """What makes SGLang print "fired up" just before it dies."""
    host = make_host(shell)
    port = free_port()
    run = await launch(host, request(("sleep", "300"), port=port))
    assert await port_belongs_to(host, run) is False  # nobody listens yet
    assert await listener(host, port) is None
    with socket.create_server(("127.0.0.1", port)):
        assert await port_belongs_to(host, run) is False
        holder = await listener(host, port)
        assert (holder.pid, holder.run_id) == (os.getpid(), None)
        assert "pytest" in holder.command or "python" in holder.command


async def test_a_listener_on_all_addresses_and_on_ipv6(make_host):
    host = make_host()
    run = await launch(host, request(("sleep", "300"), port=free_port()))
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::"), (socket.AF_INET6, "::1")):
        try:
            server = socket.create_server((address, run.port), family=family)
        except OSError:
            continue  # no IPv6 here
        with server:
            assert (await listener(host, run.port)).pid == os.getpid()
            assert await port_belongs_to(host, run) is False


async def test_behind_a_container_runtime_it_cannot_be_told(make_host, tmp_path):
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexec sleep 300\n")
    docker.chmod(0o755)
    host = make_host()
    run = await launch(host, request((str(docker), "run", "image"), port=free_port()))
    with socket.create_server(("127.0.0.1", run.port)):
        assert await port_belongs_to(host, run) is None


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ("python3 -m sglang.launch_server --model-path m", True),
        ("/venv/bin/python3.12 -u -X dev -m sglang.launch_server", True),
        ("python -m vllm.entrypoints.openai.api_server", True),
        ("python3 /venv/bin/sglang serve --model-path m", True),
        ("sglang serve", True),
        ("/venv/bin/python /venv/bin/vllm serve m", True),
        ("sglang::scheduler_TP3", True),
        ("VLLM::Worker_TP0", True),
        ("python -m sglang.bench_serving --port 30000", False),
        ("grep sglang.launch_server", False),
        ("bash -c python -m sglang.launch_server", False),
        ("ssh gpu1 python3 -m sglang.launch_server", False),
        ("vim sglang serve", False),
        ("python3 -c import sglang.launch_server", False),
        ("tail -f sglang.log", False),
        ("docker run lmsysorg/sglang python3 -m sglang.launch_server", False),
    ],
)
def test_what_is_a_server(argv, expected):
    assert is_server(argv.split(" ")) is expected


COUNT = """
i=0
while [ $i -lt "$1" ]; do sleep 600 & i=$((i + 1)); done
(exec -a sglang::scheduler sleep 600) &
read -r _ _ _ _ before < /proc/loadavg
$2 "$3" > "$4"
read -r _ _ _ _ after < /proc/loadavg
echo $((after - before))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a PID namespace needs root")
@pytest.mark.parametrize("shell", ["dash", "bash", "busybox sh"])
def test_a_look_starts_no_program_a_process(tmp_path, shell):
    """In a namespace of its own the last PID counts what was started."""
    (tmp_path / "count").write_text(COUNT)
    (tmp_path / "look").write_text(helper_script("look", "all", variables={"EAGLETUI_STATE": str(tmp_path / "state")}))
    namespace = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", tmp_path / "count"]
    started = []
    for processes in (5, 400):
        found = tmp_path / f"found-{processes}"
        done = subprocess.run(
            [*namespace, str(processes), shell, tmp_path / "look", found], capture_output=True, text=True, check=True
        )
        started.append(int(done.stdout))
        assert "sglang::scheduler" in found.read_text()
        assert found.read_text().endswith("\nend\n")
    assert started[1] <= started[0] + 2, started


async def test_one_look_tells_what_two_calls_tell(make_host, shell, server, tmp_path):
    host, port = make_host(shell), free_port()
    pid = server(port, tmp_path / "log")
    await until(lambda: (tmp_path / "log").read_text() == "fired up\n" and _title_is_there(pid), "the server")
    run = await launch(host, request(["sleep", "600"]))
    both = {one.run_id for one in (*await control.list_runs(host), *await foreign_servers(host))}
    seen = {one.run_id: one for one in await control.look(host)}
    assert {run.run_id, f"foreign-{pid}"} <= set(seen) & both
    assert seen[run.run_id].argv == ("sleep", "600")
    assert (seen[f"foreign-{pid}"].state, seen[f"foreign-{pid}"].port) == (RunState.FOREIGN, port)


async def test_a_look_tells_whether_a_run_of_ours_answers_on_its_port(make_host, shell, server, tmp_path):
    """So nobody asks once more: true of the one that listens, false of one whose port another has."""
    host, port = make_host(shell), free_port()
    words = [sys.executable, str(server.program), "serve", "--port", str(port)]
    run = await launch(host, request(words, port=port))
    await until(lambda: Path(run.log_path).read_text() == "fired up\n", "the server")
    other = free_port()
    waits = await launch(host, request(["sleep", "600"], port=other))
    with socket.create_server(("127.0.0.1", other)):
        seen = {one.run_id: one.answers for one in await control.look(host)}
    assert seen[run.run_id] is True
    assert seen[waits.run_id] is not True
    assert await port_belongs_to(host, run) is True
    assert {one.run_id: one.answers for one in await control.look(host)}[waits.run_id] is False


NAMES = ["a) S 1 1 (", "two\nlines", "1 (x) S 1", "\n\n", ")) Z 1 1 1"]  # of at most 15 bytes, as the kernel keeps them


@pytest.fixture
def oddly_named():
    """PIDs of processes with those names."""
    pids = []
    for name in NAMES:
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # PR_SET_NAME
            os.write(write, b"x")
            signal.pause()
        os.read(read, 1)
        os.close(read)
        os.close(write)
        pids.append(pid)
    yield pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("python", ["/usr/bin/python3", "/nonexistent"])
async def test_a_process_with_any_name_is_seen(make_host, shell, python, oddly_named):
    """The name stands in the middle of the line that the process table is read from; with the host's Python and without."""
    marked = subprocess.Popen(["sleep", "300"], env={"EAGLETUI_RUN": "a-run"})
    try:
        script = helper_script("list", variables={"ER_PYTHON": python}).replace(
            "er_main list", "er_init; er_scan; printf '%s\\n' $ER_SNAP; echo; printf '%s\\n' $ER_MARK"
        )
        snap, _, marks = (await make_host(shell).run(script)).stdout.decode().partition("\n\n")
        of = {line.split(":")[0]: line for line in snap.split("\n")}
        assert {str(pid) for pid in (*oddly_named, os.getpid())} <= set(of)
        fields = Path("/proc/self/stat").read_text().rpartition(") ")[2].split()
        assert of[str(os.getpid())] == ":".join([str(os.getpid()), fields[19], *fields[1:4]])
        assert (
            of[str(marked.pid)].split(":")[1]
            == (Path(f"/proc/{marked.pid}/stat").read_text().rpartition(") ")[2].split()[19])
        )
        assert f"{marked.pid}:{of[str(marked.pid)].split(':')[1]}:a-run" in marks.split("\n")
    finally:
        marked.kill()
        marked.wait()
