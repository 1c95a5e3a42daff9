"""Hosts that lack what runs need, share a home, or have processes that nothing ends."""

from pathlib import Path

import pytest

from tests.support.run_lab import request, stop_over, until
from tui.core.errors import HostError
from tui.core.runs import control, helper
from tui.core.runs.control import launch


@pytest.fixture
def changed(monkeypatch):
    """changed(old, new): the helper's text with something else in it."""

    def change(*pairs):
        text = helper.shell_program("eaglerun.sh")
        for old, new in pairs:
            assert old in text
            text = text.replace(old, new)
        monkeypatch.setattr(helper, "shell_program", lambda _: text)

    return change


@pytest.mark.fault(
    "E5", "a host without /proc", sees="that runs need Linux; logs can still be read", holds="nothing is guessed"
)
async def test_a_host_without_proc_is_said_with_what_still_works(make_host, changed):
    changed(("/proc/self/stat", "/nowhere/stat"))
    with pytest.raises(HostError, match="/proc is missing; runs need Linux") as caught:
        await control.list_runs(make_host())
    assert (caught.value.slug, "logs can still be read" in str(caught.value.hint)) == ("unsupported_host", True)


@pytest.mark.fault(
    "E6",
    "a home that several hosts share",
    sees="each host's own runs",
    holds="no process of one is looked for on another",
)
async def test_two_hosts_with_one_home_see_only_their_own_runs(make_host, state, tmp_path, changed):
    run = await launch(make_host(), request(("sleep", "300")))
    (tmp_path / "name").write_text("other\n")
    changed(("/proc/sys/kernel/hostname", str(tmp_path / "name")))
    other = make_host()
    assert await control.list_runs(other) == ()
    assert await control.status(other, [run.run_id]) == ()
    there = await launch(other, request(("sleep", "300")))
    assert [one.run_id for one in await control.list_runs(other)] == [there.run_id]
    assert Path(there.directory).relative_to(state).parts[0] == "other"


@pytest.mark.fault("P7", "a process in the kernel's D state", sees="stuck, and its number", holds="no endless loop")
async def test_what_no_signal_ends_is_named_and_not_waited_for_for_ever(make_host, changed):
    """As a process in the kernel's D state: it is signalled, and lives."""
    host = make_host()
    run = await launch(host, request(("sleep", "300")))
    changed(
        ('kill -s "$1" "${_e%%:*}"', ': "$1"'),
        ('kill -s "$1" "$R_PID"', ': "$1"'),
        ("er_wait_gone 12", "er_wait_gone 1"),
        ("[ $_i -lt 40 ]", "[ $_i -lt 3 ]"),
    )
    await control.stop(host, run.run_id, 0)
    stopped = await until(lambda: stop_over(host, run), "the end of the stop")
    assert (stopped.step, run.pid in stopped.pids) == ("stuck", True)
