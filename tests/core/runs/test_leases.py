"""Leases on the GPUs of a host, under three shells: who has them, who gets them, what is refused meanwhile."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.run_lab import request
from tui.core.errors import EagletuiError
from tui.core.link.local import LocalTransport
from tui.core.runs import control, leases
from tui.core.runs.leases import Held

MakeHost = Callable[..., LocalTransport]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    made = tmp_path / "public of ü"
    made.mkdir()
    return made


def link_of(place: Path, lease_id: str) -> Path:
    return place / f"eagletui-leases-{os.getuid()}" / lease_id


def rewrite(link: Path, **fields: str) -> None:
    """Other fields of a lease: those of `er_lease_put`."""
    names = "lease state boot host ns up since at gpus who pid words pids".split()
    found = dict(zip(names, os.readlink(link).split("/"), strict=True)) | fields
    link.unlink()
    link.symlink_to("/".join(found[name] for name in names))


def aged(link: Path, **fields: str) -> None:
    up = int(float(Path("/proc/uptime").read_text().split()[0]))
    if up < 400:
        pytest.skip("this machine has just started")
    rewrite(link, up=str(up - 400), **fields)


async def test_it_names_its_holder_and_keeps_others_out(make_host: MakeHost, shell: str, place: Path) -> None:
    host = make_host(shell, EAGLETUI_LEASES=str(place))
    assert await leases.take(host, "x-1", (0, 1), "experiment x") == ()
    (lease,) = await leases.on_host(host)
    assert (lease.lease_id, lease.gpus, lease.words, lease.pid) == ("x-1", (0, 1), "experiment x", os.getpid())
    assert lease.since
    assert lease.idle_s in range(5)
    with pytest.raises(Held, match=r"GPUs 0,1 are held by experiment x \(x-1\) of .*, last sign of life") as refused:
        await leases.take(host, "y-1", (1, 2), "experiment y")
    assert "eagletui experiment x --stop now" in str(refused.value.hint)
    with pytest.raises(Held):
        await leases.take(host, "y-1", (), "experiment y")  # all of them
    assert await leases.take(host, "y-1", (2, 3), "experiment y") == ()  # others than those
    assert await leases.take(host, "x-1", (0, 1), "experiment x") == ()  # resumed, or renewed
    assert {lease.lease_id for lease in await leases.on_host(host)} == {"x-1", "y-1"}
    await leases.give_back(host, "x-1")
    assert await leases.take(host, "z-1", (0,), "experiment z") == ()


async def test_launches_and_measurements_of_others_are_refused(make_host: MakeHost, shell: str, place: Path) -> None:
    host = make_host(shell, EAGLETUI_LEASES=str(place))
    await leases.take(host, "x-1", (0, 1), "experiment x")
    for refused in (
        request(("sleep", "60"), gpus=(1,)),
        request(("sleep", "60"), kind="bench", measures=("s-1",), uses=(0,)),
    ):
        with pytest.raises(Held, match="held by experiment x"):
            await control.launch(host, refused)
    with pytest.raises(Held):
        await control.reserve(host, request(("sleep", "60"), gpus=(0,)))
    assert await control.list_runs(host) == ()
    await control.launch(host, request(("sleep", "60"), gpus=(2,)))
    leases.holding.set("x-1")
    assert (await control.launch(host, request(("sleep", "60"), gpus=(1,)))).active


async def test_one_that_is_not_renewed_lapses_unless_something_of_it_runs(
    make_host: MakeHost, shell: str, place: Path
) -> None:
    host = make_host(shell, EAGLETUI_LEASES=str(place))
    await leases.take(host, "x-1", (0,), "experiment x")
    leases.holding.set("x-1")
    run = await control.launch(host, request(("sleep", "60"), gpus=(0,)))
    leases.holding.set("")
    aged(link_of(place, "x-1"))
    with pytest.raises(Held, match=r"last sign of life 40[0-9] s ago"):
        await leases.take(host, "y-1", (0,), "experiment y")
    await control.stop(host, run.run_id, 0)
    async with asyncio.timeout(30):
        while not (await control.status(host, [run.run_id]))[0].over:  # noqa: ASYNC110 - it happens on the host
            await asyncio.sleep(0.05)
    (gone,) = await leases.take(host, "y-1", (0,), "experiment y")
    assert gone.lease_id == "x-1"
    assert gone.holder.startswith("experiment x (x-1) of ")
    with pytest.raises(Held, match="held by experiment y"):
        await leases.take(host, "x-1", (0,), "experiment x")  # its holder comes back: too late


async def test_a_restart_of_the_host_gives_it_time_to_be_renewed(make_host: MakeHost, place: Path) -> None:
    host = make_host(EAGLETUI_LEASES=str(place))
    await leases.take(host, "x-1", (0,), "experiment x")
    aged(link_of(place, "x-1"), boot="another-boot", pids=f"{os.getpid()}:1")
    (gone,) = await leases.take(host, "y-1", (0,), "experiment y")  # it has been up for longer than that
    assert gone.lease_id == "x-1"


@pytest.mark.skipif(os.getuid() != 0, reason="another user's lease can be made by root alone")
async def test_other_users_are_seen_and_cannot_plant_anything(make_host: MakeHost, shell: str, place: Path) -> None:
    host = make_host(shell, EAGLETUI_LEASES=str(place))
    await leases.take(host, "x-1", (0,), "experiment x")
    text = os.readlink(link_of(place, "x-1"))
    await leases.give_back(host, "x-1")
    theirs = place / "eagletui-leases-4242"
    theirs.mkdir(mode=0o755)
    (theirs / "x-2").symlink_to(text)
    assert await leases.on_host(host) == ()  # its directory is not that user's
    os.chown(theirs, 4242, 4242)
    (lease,) = await leases.on_host(host)
    assert lease.lease_id == "x-2"
    with pytest.raises(Held, match=r"experiment x \(x-2\)"):
        await leases.take(host, "x-2", (0,), "experiment x")  # no id makes somebody else's lease ours
    theirs.chmod(0o777)
    assert await leases.on_host(host) == ()
    theirs.chmod(0o755)
    aged(theirs / "x-2")
    (gone,) = await leases.take(host, "y-1", (0,), "experiment y")
    assert gone.lease_id == "x-2"
    assert (theirs / "x-2").is_symlink()  # their file stays theirs
    # What is no lease is none: a file, a pipe that nobody writes to, words that a shell would compute with.
    (theirs / "f").write_text(text)
    os.mkfifo(theirs / "p")
    (theirs / "w").symlink_to(text.replace("/0/", "/0\nlease\tid=z/"))
    (theirs / "n").symlink_to("lease/held/b/h/n/a[$(touch${IFS}x)]/1/1/all/w/1/x/")
    (place / "eagletui-leases-4343").symlink_to(theirs)
    assert [lease.lease_id for lease in await leases.on_host(host)] == ["y-1"]


@pytest.mark.skipif(os.getuid() != 0, reason="another user's lease can be made by root alone")
async def test_of_two_users_who_ask_at_once_the_lower_number_goes_first(make_host: MakeHost, place: Path) -> None:
    host = make_host(EAGLETUI_LEASES=str(place))
    await leases.take(host, "x-1", (0,), "experiment x")
    rewrite(link_of(place, "x-1"), state="asking")
    theirs = place / "eagletui-leases-4242"
    theirs.mkdir(mode=0o755)
    (theirs / "x-2").symlink_to(os.readlink(link_of(place, "x-1")))
    os.chown(theirs, 4242, 4242)
    asking = asyncio.create_task(leases.take(host, "x-1", (0,), "experiment x"))
    done, _ = await asyncio.wait([asking], timeout=1)
    assert not done  # root is 0: it waits until the other has seen that
    (theirs / "x-2").unlink()
    assert await asking == ()


async def test_many_at_once_and_one_gets_it(make_host: MakeHost, shell: str, place: Path) -> None:
    host = make_host(shell, EAGLETUI_LEASES=str(place))
    asked = [leases.take(host, f"x-{n}", (n % 2, 2), f"experiment x{n}") for n in range(6)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(answer == () for answer in answers) == 1
    assert all(isinstance(answer, Held) for answer in answers if answer != ())
    assert len(await leases.on_host(host)) == 1


async def test_one_whose_process_here_has_ended_is_abandoned(make_host: MakeHost, place: Path) -> None:
    host = make_host(EAGLETUI_LEASES=str(place))
    await leases.take(host, "x-1", (0,), "experiment x")
    (lease,) = await leases.on_host(host)
    assert not lease.abandoned
    ended = subprocess.Popen(["true"])
    ended.wait()
    link = link_of(place, "x-1")
    namespace = os.readlink(link).split("/")[10].partition(":")[2]
    rewrite(link, pid=f"{ended.pid}:{namespace}")
    (lease,) = await leases.on_host(host)
    assert lease.abandoned
    rewrite(link, pid=f"{ended.pid}:1")  # of another container, say
    (lease,) = await leases.on_host(host)
    assert not lease.abandoned


async def test_two_measurements_of_one_server_at_once_are_one(make_host: MakeHost, shell: str) -> None:
    host = make_host(shell)
    asked = [
        control.launch(host, request(("sleep", "60"), kind="bench", measures=(f"s-{n}", "http://127.0.0.1:1")))
        for n in range(3)
    ]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    (started,) = [answer for answer in answers if not isinstance(answer, Exception)]
    for answer in answers:
        if isinstance(answer, Exception):
            assert isinstance(answer, EagletuiError)
            assert answer.slug == "busy"
            assert f"the server is being measured by {started.run_id}" in answer.message
    assert (await control.launch(host, request(("sleep", "60"), kind="bench", measures=("s-9",)))).active
