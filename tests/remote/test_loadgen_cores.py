"""The load generator keeps off the cores that the server was bound to."""

import os
import subprocess

import pytest

from tui.remote.loadgen import cores


@pytest.fixture
def machine(monkeypatch):
    """machine(ours, {pid: its cores}, siblings=…): one with these; gives where the generator bound itself."""
    bound: list[set[int]] = []

    def make(ours, of, siblings=None):
        affinities = {0: ours, **of}
        monkeypatch.setattr(cores.os, "sched_getaffinity", affinities.__getitem__)
        monkeypatch.setattr(cores.os, "sched_setaffinity", lambda _, mask: bound.append(mask))
        monkeypatch.setattr(cores, "family", lambda pid: set(of))
        monkeypatch.setattr(cores, "with_siblings", siblings or (lambda found: found))
        return bound

    return make


ALL = set(range(8))


def test_it_keeps_off_what_the_ranks_are_bound_to(machine):
    bound = machine(ALL, {1: ALL, 2: {0, 1}, 3: {2, 3}})  # the launcher is bound to nothing
    assert cores.keep_off([1]) == [4, 5, 6, 7]
    assert bound == [{4, 5, 6, 7}]


def test_and_off_their_hyperthreads_where_there_is_room(machine):
    machine(ALL, {2: {0, 1}}, siblings=lambda found: found | {core + 4 for core in found})
    assert cores.keep_off([2]) == [2, 3, 6, 7]
    machine({0, 1, 4, 5, 6}, {2: {0, 1}}, siblings=lambda found: found | {core + 4 for core in found})
    assert cores.keep_off([2]) == [4, 5, 6]


@pytest.mark.parametrize(
    ("ours", "of", "pids"),
    [
        (ALL, {1: ALL, 2: ALL}, [1]),  # nothing is bound
        (ALL, {1: set(range(7))}, [1]),  # one core is left
        (ALL, {1: {0}}, []),  # it is not known which processes are the server
    ],
)
def test_else_nothing_is_changed(machine, ours, of, pids):
    bound = machine(ours, of)
    assert cores.keep_off(pids) is None
    assert bound == []


def test_a_real_process_and_lists_of_the_kernel():
    assert cores.cores_of("0-3,8,10-11\n") == {0, 1, 2, 3, 8, 10, 11}
    ours = os.sched_getaffinity(0)
    if len(ours) < 2:
        pytest.skip("one core")
    one = min(ours)
    with subprocess.Popen(["sleep", "600"], preexec_fn=lambda: os.sched_setaffinity(0, {one})) as server:
        try:
            assert cores.bound([server.pid], ours) == {one}
            assert one in cores.with_siblings({one})
        finally:
            server.kill()
