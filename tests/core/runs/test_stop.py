"""Stopping: the whole tree and nothing else, whoever asks and however often."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest

from tests.support.run_lab import exited, record, request, seen, sh, stop_over, until, write_record
from tui.core.errors import UsageError
from tui.core.model.run import RunState
from tui.core.runs import control
from tui.core.runs.control import launch
from tui.core.runs.request import LaunchRequest, new_run_id

# A tree as a server's can become: a child that ignores SIGTERM, one in a session of its own, one that was forked twice
# and belongs to nobody, one with a name made to confuse a parser of /proc, and one that cleared its environment.
TREE = """
import ctypes, os, signal, sys, time
out = sys.argv[1]
def note(what):
    with open(out, "a") as file:
        file.write(f"{what} {os.getpid()}\\n")
def child(what, before):
    if os.fork() == 0:
        before()
        note(what)
        time.sleep(300)
        os._exit(0)
def twice():
    os.setsid()
    if os.fork():
        os._exit(0)
def renamed():
    ctypes.CDLL(None).prctl(15, b"x) R (y\\nz) )", 0, 0, 0)
child("ignores", lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
child("session", os.setsid)
child("twice", twice)
child("renamed", renamed)
if os.fork() == 0:
    note("bare")
    os.execve("/bin/sleep", ["sleep", "300"], {})
note("main")
time.sleep(300)
"""


def _alive(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(") ")[2][0] not in "ZX"


async def tree(host, tmp_path, count: int = 6):
    out = tmp_path / "tree"
    run = await launch(host, request((sys.executable, "-c", TREE, str(out))))
    await until(lambda: out.exists() and out.read_text().count("\n") == count, "the tree")
    pids = dict(line.split() for line in out.read_text().splitlines())
    return run, {name: int(pid) for name, pid in pids.items()}


@pytest.mark.fault(
    "P1",
    "a stop of a server that drains",
    sees="each step, then its exit code",
    holds="its main process alone is asked first",
)
async def test_a_graceful_stop_asks_the_main_process_alone(make_host, shell, tmp_path):
    told = tmp_path / "told"
    script = f"""
import os, signal, sys, time
def note(word):
    with open({str(told)!r}, "a") as file: file.write(word + "\\n")
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda *_: note("child was told"))
    while os.path.exists({str(told)!r} + ".go") is False: time.sleep(0.02)
    note("child drained")
    os._exit(0)
def drain(*_):
    note("main was told")
    open({str(told)!r} + ".go", "w").close()
    os.wait()
    note("main drained")
    sys.exit(0)
signal.signal(signal.SIGTERM, drain)
note("up")
while True: time.sleep(300)
"""
    host = make_host(shell)
    run = await launch(host, request((sys.executable, "-c", script)))
    await until(told.exists, "the server")
    asked = await control.stop(host, run.run_id, 60, who="anna@laptop")
    assert asked.step in ("requested", "term", "done")
    over = await until(lambda: stop_over(host, run), "the stop")
    assert told.read_text().split("\n") == ["up", "main was told", "child drained", "main drained", ""]
    assert (over.step, over.by, over.run.state, over.run.exit_code) == ("done", "anna@laptop", RunState.EXITED, 0)
    assert over.over
    assert over.requested_at is not None
    assert over.run.stopped_by_us
    assert over.run.stop_by == "anna@laptop"


@pytest.mark.fault(
    "P2",
    "children ignore the signal, leave the session, clear their environment",
    sees="that all have ended",
    holds="the whole tree goes, nothing else",
)
async def test_the_whole_tree_goes_and_other_runs_stay(make_host, shell, tmp_path):
    host = make_host(shell)
    other = await launch(host, request(sh("exec sleep 300")))
    run, pids = await tree(host, tmp_path)
    await control.stop(host, run.run_id, 1)
    over = await until(lambda: stop_over(host, run), "the stop")
    assert over.step == "done"
    assert {name for name, pid in pids.items() if _alive(pid)} == set()
    assert over.run.orphans == ()
    assert over.run.exit_code == 143
    assert (await seen(host, other)).state is RunState.RUNNING


@pytest.mark.fault(
    "P6", "the main process is dead, others hold the GPUs", sees="them, by number", holds="a stop removes them"
)
async def test_orphans_of_a_killed_main_process_are_listed_and_removed(make_host, shell, tmp_path):
    host = make_host(shell)
    run, pids = await tree(host, tmp_path)
    os.kill(run.pid, signal.SIGKILL)
    dead = await exited(host, run)
    survivors = set(pids.values()) - {run.pid}
    assert (dead.exit_code, set(dead.orphans)) == (137, survivors)
    assert dead.active
    listed = {r.run_id: r for r in await control.list_runs(host)}
    assert set(listed[run.run_id].orphans) == survivors
    await control.stop(host, run.run_id, 1)
    over = await until(lambda: stop_over(host, run), "the stop")
    assert (over.step, over.run.orphans) == ("done", ())
    assert not over.run.stopped_by_us  # it had died by itself
    assert over.run.exit_code == 137


async def test_orphans_block_a_launch_on_their_gpus(make_host):
    host = make_host()
    run = await launch(host, request(sh("sleep 300 & exit 3"), gpus=(4,)))
    dead = await exited(host, run)
    assert len(dead.orphans) == 1
    with pytest.raises(control.RunBusy, match=run.run_id):
        await launch(host, request(("true",), gpus=(4,)))
    await control.stop(host, run.run_id, 0)
    await until(lambda: stop_over(host, run), "the stop")
    await launch(host, request(("true",), gpus=(4,)))


@pytest.mark.fault(
    "P3", "a process number was used again", sees="the run as over", holds="the other process is untouched"
)
async def test_a_process_that_has_the_number_of_one_of_ours_is_untouched(make_host, shell):
    host = make_host(shell)
    run = await exited(host, await launch(host, request(("true",))))
    victims = [subprocess.Popen(["sleep", "300"], start_new_session=True) for _ in range(2)]
    child = subprocess.Popen(["sh", "-c", "sleep 300 & echo; wait"], start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()
    try:
        words = record(run)
        for victim in (victims[0].pid, child.pid):
            # The run is over and its number belongs to another process, with a session and a child.
            (Path(run.directory) / "exit").unlink(missing_ok=True)
            write_record(run, [str(victim), "12345", *words[2:]])
            found = await seen(host, run)
            assert (found.state, found.orphans) == (RunState.LOST, ())
            await control.stop(host, run.run_id, 0)
            (Path(run.directory) / "stop").unlink(missing_ok=True)
        assert all(_alive(p.pid) for p in [*victims, child])
    finally:
        for process in [*victims, child]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.fault(
    "P5", "a stop is asked for twice", sees="the same stop", holds="one stop; a shorter patience is heard"
)
async def test_asking_twice_and_by_two_clients_is_one_stop(make_host, shell, tmp_path):
    out = tmp_path / "terms"
    script = f"""
import signal, time
def term(*_):
    with open({str(out)!r}, "a") as file: file.write("x")
signal.signal(signal.SIGTERM, term)
open({str(out)!r}, "w").close()
while True: time.sleep(300)
"""
    one, two = make_host(shell), make_host(shell)
    run = await launch(one, request((sys.executable, "-c", script)))
    await until(out.exists, "the server")
    await asyncio.gather(
        control.stop(one, run.run_id, 600, who="anna@a"),
        control.stop(two, run.run_id, 600, who="ben@b"),
        control.stop(two, run.run_id, 600, who="ben@b"),
    )
    await until(out.read_text, "SIGTERM")

    async def after_asking():  # the signal may be there before its note is
        state = await control.stop_state(two, run.run_id)
        return state if state.step != "requested" else None

    state = await until(after_asking, "the step")
    assert (state.step, state.over) == ("term", False)
    assert state.by in ("anna@a", "ben@b")
    # A shorter patience is heard.
    hurried = await control.stop(two, run.run_id, 0)
    assert hurried.by == state.by
    over = await until(lambda: stop_over(one, run), "the stop")
    assert (over.step, over.by) == ("done", state.by)
    assert out.read_text() in ("x", "xx")  # main alone, then all: once each
    again = await control.stop(one, run.run_id, 5, who="cleo@c")
    assert (again.step, again.by, again.run.exit_code) == ("done", state.by, over.run.exit_code)


@pytest.mark.fault("P9", "a server of somebody else", sees="that it is watched only", holds="no signal is sent")
async def test_stop_of_what_is_over_unknown_or_not_ours(make_host):
    host = make_host()
    run = await exited(host, await launch(host, request(sh("exit 4"))))
    state = await control.stop(host, run.run_id)
    assert (state.step, state.over, state.run.exit_code, state.run.stopped_by_us) == (None, True, 4, False)
    state = await control.stop(host, "no-such-run")
    assert (state.run, state.step, state.over) == (None, None, True)
    other = subprocess.Popen(["sleep", "300"])
    try:
        with pytest.raises(UsageError, match="was not started by eagletui"):
            await control.stop(host, f"foreign-{other.pid}")
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


async def test_a_staged_run_that_is_stopped_never_starts(make_host, shell):
    host = make_host(shell)
    first = await launch(host, request(("true",)))
    staged = Path(first.directory).with_name(new_run_id("staged"))
    staged.mkdir(mode=0o700)
    (staged / "spec").write_text("set -- false\n")
    await control.stop(host, staged.name, 1)
    found = await until(lambda: stop_over(host, replace(first, run_id=staged.name)), "the stop")
    assert found.run.state is RunState.EXITED
    again = await launch(host, LaunchRequest(staged.name, "server", "test", ("true",)))
    assert (again.state, again.stopped_by_us) == (RunState.EXITED, True)
    assert not (staged / "pid").exists()


@pytest.mark.fault("U2", "one launches where another stops", sees="who it is", holds="one of them at a time")
async def test_a_launch_while_another_stops_is_told_who(make_host, shell, tmp_path):
    ready = tmp_path / "ready"
    script = f"import signal,time; signal.signal(15, signal.SIG_IGN); open({str(ready)!r}, 'w'); time.sleep(300)"
    host = make_host(shell)
    run = await launch(host, request((sys.executable, "-c", script), gpus=(0, 1)))
    await until(ready.exists, "the server")
    await control.stop(host, run.run_id, 600, who="anna@laptop")
    with pytest.raises(control.RunBusy, match=f"{run.run_id}, which anna@laptop is stopping") as caught:
        await launch(host, request(("true",), gpus=(1,)), who="ben@b")
    assert (caught.value.run_id, caught.value.by) == (run.run_id, "anna@laptop")
    await control.stop(host, run.run_id, 0)
    await until(lambda: stop_over(host, run), "the stop")
    await launch(host, request(("true",), gpus=(1,)))


async def test_a_run_without_its_supervisor_is_stopped_too(make_host, shell, tmp_path):
    host = make_host(shell)
    run, pids = await tree(host, tmp_path)
    os.kill(int(record(run)[4]), signal.SIGKILL)
    await control.stop(host, run.run_id, 1)
    over = await until(lambda: stop_over(host, run), "the stop")
    assert (over.step, over.run.state, over.run.exit_code) == ("done", RunState.LOST, None)
    assert not any(_alive(pid) for pid in pids.values())


async def test_a_stop_that_was_cut_off_is_taken_up_by_the_next(make_host, shell, tmp_path):
    host = make_host(shell)
    run, pids = await tree(host, tmp_path)
    # Its stopper was killed: the file says so far, and nobody holds the lock.
    words = record(run)
    (Path(run.directory) / "stop").write_text("term 5 5 1 anna@laptop\n")
    (Path(run.directory) / "stopper.1").symlink_to(f"{words[2]}/{words[3]}/{2**22 - 1}/1/5/anna@laptop")
    assert (await control.stop_state(host, run.run_id)).step == "term"
    await control.stop(host, run.run_id, 1, who="ben@b")
    over = await until(lambda: stop_over(host, run), "the stop")
    assert over.step == "done"
    assert not any(_alive(pid) for pid in pids.values())


LOOKS = """
er_load() { :; }
er_nap() { :; }
er_scan() { looks=$((looks + 1)); }
er_members() { M=; case " $seen " in *" $looks "*) M=" 7:1" ;; esac; }
er_glimpsed() { case " $glimpsed " in *" $looks "*) M=" 8:0" ;; esac; }
D=/x Q_ID=x looks=0
er_wait_gone 5
echo "$looks$M"
"""


@pytest.mark.fault(
    "F8",
    "children that fork on and change their session",
    sees="that they still run, and their numbers",
    holds="what is said to have ended has: two looks see nothing",
)
@pytest.mark.parametrize(
    ("seen", "glimpsed", "said"),
    [
        ("", "", "2"),  # two looks that see nothing
        ("1 3", "", "5"),  # one that sees nothing is not enough
        ("1", "2 3", "5"),  # nor is one that saw what was gone at once
        ("1 2 3 4 5 6 7", "", "6 7:1"),
    ],
)
def test_what_hops_from_process_to_process_is_not_said_to_have_ended(shell, seen, glimpsed, said):
    helper = resources.files("tui.remote").joinpath("eaglerun.sh").read_text()
    script = f"{helper}\nseen='{seen}' glimpsed='{glimpsed}'\n{LOOKS}"
    done = subprocess.run([shell, "-s"], input=script, capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == (said, "")


async def test_a_process_that_was_seen_by_its_mark_alone_counts(make_host, shell):
    run = await launch(make_host(shell), request(sh("exec sleep 300")))
    helper = resources.files("tui.remote").joinpath("eaglerun.sh").read_text()
    script = f"{helper}\ner_init; M=; er_glimpsed {run.run_id}; echo $M; M=; er_glimpsed {run.run_id[:-1]}; echo $M"
    done = subprocess.run([shell, "-s"], input=script, capture_output=True, text=True, timeout=60)
    assert [word.partition(":")[0] for word in done.stdout.split()] == [str(run.pid)]
