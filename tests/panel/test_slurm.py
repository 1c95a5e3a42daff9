"""A server as a job of Slurm on the panel: what it waits for, its time, its ends, its other jobs; launched and stopped by keys."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.panel.test_group import SIZES, line_with, session_of
from tests.support import fakes
from tests.support import job_scenes as scenes
from tests.support.driving import screen_text, shows, until
from tests.support.slurm import Slurm
from tui.core.config import load_settings
from tui.core.link.transport import LinkState
from tui.core.model.job import Job, JobState
from tui.core.model.phases import Outcome
from tui.core.server.session import HostSession
from tui.core.slurm import helper
from tui.core.slurm.board import JobBoard, Pace
from tui.job_words import asks_words, end_words, ending_words, gpus_words, queue_words
from tui.panel.app import EagleApp
from tui.panel.cluster_view import Cluster, Use, use_of

QUEUED = scenes.line("PENDING", "Priority", starts_s=9660)
NEVER = scenes.line("PENDING", "PartitionNodeLimit")
RUNNING = scenes.line("RUNNING", left_s=4300)
AWAY = replace(RUNNING, state=JobState.UNKNOWN, unknown="the controller does not answer: Unable to contact it")
SENTENCE = "it can never run: the partition gives no job so many nodes"


def panel(script: fakes.Script, *others: str, **more: object) -> EagleApp:
    scripts = {"login1": script, **{name: fakes.scene("ready") for name in others}}
    return EagleApp("login1", *others, open_session=fakes.Hosts(scripts), **more)  # type: ignore[arg-type]


def a_job(job: Job, base: str = "ready", others: tuple[Job, ...] = ()) -> EagleApp:
    return panel(scenes.script(scenes.states(job, base), others))


def told(pilot) -> str:
    return "\n".join(note.message for note in pilot.app._notifications)


# -- its states -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_a_queued_job_says_what_it_waits_for_and_when_it_could_start(size):
    async with a_job(QUEUED, "queued", scenes.OTHERS).run_test(size=size) as pilot:
        await shows(pilot, "QUEUED", "kimi-k2.5-tp16", "Waits: other jobs come first (Priority)", "could start at ")
        await shows(pilot, "in about 2 h", "2 nodes with 8 × h200 each", "partition gpu", "S cancel the job")
        await shows(pilot, "Your other jobs ──", "train-sft")
        text = screen_text(pilot.app)
        assert not [word for word in ("Log ──", "GPUs ──", "phase ", "fatal line") if word in text]


@pytest.mark.parametrize("size", SIZES)
async def test_a_job_that_can_never_run_says_so_and_offers_to_cancel_it(size):
    async with a_job(NEVER, "queued").run_test(size=size) as pilot:
        await shows(pilot, "✗ NEVER RUNS", "it can never run: the partition gives", "S cancels it")
        assert "could start" not in screen_text(pilot.app)
        await pilot.press("S")
        await shows(pilot, "Cancel job 7 on login1?", "Yes, cancel it", "No, let it wait", "scancel takes it out")
        await pilot.press("tab", "enter")
        await until(pilot, lambda: session_of(pilot, "login1").stopped)


@pytest.mark.parametrize("size", SIZES)
async def test_a_starting_job_names_its_ranks_by_their_nodes(size):
    async with a_job(scenes.line("RUNNING", left_s=13000), "starting").run_test(size=size) as pilot:
        await shows(pilot, "◐ STARTING", "kimi-k2.5-tp16", "allocation", "3 h 36 min left, ends ", "S stop the job")
        heads = line_with(pilot, "phase ")
        nodes = ("n1", "n2")
        assert all(node in heads for node in nodes) or all(line_with(pilot, node, "5:16") for node in nodes)


@pytest.mark.parametrize("size", SIZES)
async def test_a_ready_job_has_its_time_left_and_says_where_its_gpus_are(size):
    async with a_job(RUNNING).run_test(size=size) as pilot:
        await shows(pilot, "● READY", "1 h 11 min left", "rank 1", "n2", "b bench", "on n[1-2]", "S stop the job")
        text = screen_text(pilot.app)
        assert "nvidia-smi" not in text
        assert "no GPU" not in text
        if size[0] > 100:
            assert "8 × h200 on each of n[1-2]; what they do is not read" in text


@pytest.mark.parametrize("size", SIZES)
async def test_fifteen_minutes_before_the_end_it_warns(size):
    async with a_job(scenes.line("RUNNING", left_s=840)).run_test(size=size) as pilot:
        await shows(pilot, "● READY", "▲ job 7 has 14 min of its time left", "14 min left, ends ")
    async with a_job(scenes.line("RUNNING", left_s=960)).run_test(size=size) as pilot:
        await shows(pilot, "● READY", "16 min left, ends ")
        assert "of its time left" not in screen_text(pilot.app)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("how", "badge", "said"),
    [
        ("time limit", "✗ TIME LIMIT", "job 7: time limit"),
        ("node failure", "✗ NODE FAILURE", "job 7: node failure: n2 down Not responding"),
        ("preempted", "✗ PREEMPTED", "job 7: preempted"),
        ("out of memory", "✗ OUT OF MEMORY", "job 7: out of memory"),
        ("cancelled", "■ CANCELLED", "job 7: cancelled by user 1003"),
    ],
)
async def test_each_end_has_its_own_word(how, badge, said, size):
    async with a_job(scenes.ended(how)).run_test(size=size) as pilot:
        await shows(pilot, badge, said, "l launch")
        await until(pilot, lambda: "S stop" not in screen_text(pilot.app))
        assert "ended first" not in screen_text(pilot.app)


@pytest.mark.parametrize("size", SIZES)
async def test_a_controller_that_is_away_makes_it_unknown_and_not_over(size):
    async with a_job(AWAY).run_test(size=size) as pilot:
        await shows(pilot, "? UNKNOWN", "the controller does not answer", "S stop the job")
        assert "0 running" not in screen_text(pilot.app)


async def test_a_lost_link_is_unknown_too():
    async with a_job(RUNNING).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY")
        session_of(pilot, "login1").say_link(LinkState.LOST)
        await shows(pilot, "? UNKNOWN  kimi-k2.5-tp16", "the link is lost; unknown, not dead")


# -- what keys do -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_s_says_what_a_stop_does(size):
    async with a_job(RUNNING).run_test(size=size) as pilot:
        await shows(pilot, "● READY", "n2")
        await pilot.press("S")
        await shows(pilot, "Stop job 7 on login1?", "n1 · PID 48213", "n2 · PID 49213", "Rank 0 is asked to drain")
        await pilot.press("escape")
        assert not session_of(pilot, "login1").stopped


async def test_m_shows_a_ranks_own_log_and_its_dashboard_says_where_its_gpus_are():
    async with a_job(RUNNING).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "n2")
        await pilot.press("m")
        await shows(pilot, "rank 0 of 2 members m", "8 × h200 on n1; what they do is not read")
        await pilot.press("m", "2")
        await shows(pilot, "run 7c31d0-1")


async def test_brackets_go_from_job_to_job_and_not_from_rank_to_rank():
    other = replace(scenes.GROUP, group_id="small-20261006T190103Z-aaaaaa", profile="small", members=())
    members = tuple(
        replace(one, run_id=f"{other.group_id}-{at}", host="login1") for at, one in enumerate(scenes.GROUP.members)
    )
    other = replace(other, members=members)
    second = [
        replace(
            state,
            run=replace(
                state.run,
                run_id=member.run_id,
                profile="small",
                extra={"group": other.extra()},
                started_at="2026-10-06T19:01:03Z",
                job=replace(RUNNING, job_id="5", run_id=other.group_id),
            ),
        )
        for state, member in zip(scenes.states(RUNNING), members, strict=True)
    ]
    script = scenes.script(scenes.states(RUNNING))
    script.runs = (*script.runs, *(state.run for state in second))
    script.beside = {**script.beside, **{state.run.run_id: scenes.updates(state) for state in second}}
    async with panel(script).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "group 7c31d0", "[ ] servers", "◐ 2 running")
        await pilot.press("right_square_bracket")
        await shows(pilot, "job 5", "group aaaaaa", "small")


async def test_a_job_is_launched_from_its_batch_script(tmp_path, monkeypatch):
    async def estimate(transport, script):
        return True, "Job 8 to start at 2026-10-07T04:00:00 using 2 processors on nodes n[1-2] in partition gpu"

    monkeypatch.setattr(helper, "start_estimate", estimate)
    own = fakes.profiles_in(tmp_path / "own")
    (own / "aa-job.toml").write_text('kind = "launch"\nextends = "base"\n[slurm]\nnodes = 2\npartition = "gpu"\n')
    script = scenes.script()
    async with panel(script, profiles_dir=own).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("3", "g")
        await shows(pilot, "aa-job", "Batch script ──", "#SBATCH --partition=gpu", "Job 8 to start at")
        await pilot.press("enter")
        await shows(pilot, "◌ LAUNCH   aa-job  on login1", "#SBATCH --nodes=2", "submitted with sbatch, at most once")
        text = screen_text(pilot.app)
        assert text.index("Job 8 to start at") < text.index("#SBATCH")
        await pilot.press("y")
        assert pilot.app.clipboard.startswith("#!/bin/sh\n#SBATCH")
        await pilot.press("enter")
        await until(pilot, lambda: script.jobs is not None and script.jobs.requests)
        assert script.jobs is not None
        assert script.jobs.requests[0].ranks == 2


async def test_what_slurm_does_not_take_is_not_launched(tmp_path, monkeypatch):
    async def estimate(transport, script):
        return False, "Requested node configuration is not available"

    monkeypatch.setattr(helper, "start_estimate", estimate)
    script = scenes.script()
    app = panel(script, profiles_dir=fakes.profiles_in(tmp_path / "own"))
    async with app.run_test(size=(160, 48)) as pilot:
        await shows(pilot, "No server runs here.")
        await pilot.press("l", "enter")  # a profile without [slurm]: the host makes a job of it
        await shows(pilot, "blocked: slurm: Slurm does not take this job: Requested node configuration")
        await pilot.press("enter")
        assert script.jobs is not None
        assert not script.jobs.requests


async def test_a_job_that_was_launched_by_another_name_of_its_login_host_is_this_hosts():
    states = scenes.states(RUNNING)
    elsewhere = replace(scenes.GROUP, members=tuple(replace(one, host="login.example") for one in scenes.GROUP.members))
    states = tuple(replace(one, run=replace(one.run, extra={"group": elsewhere.extra()})) for one in states)
    async with panel(scenes.script(states)).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "● READY", "rank 1", "n2")
        assert [host.board.host for host in pilot.app.hosts] == ["login1"]


# -- the user's other jobs, and the overview --------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
async def test_a_login_host_without_a_server_of_ours_shows_the_users_other_jobs(size):
    async with panel(scenes.script((), scenes.OTHERS)).run_test(size=size) as pilot:
        await shows(pilot, "No server runs here.", "login host of the cluster hpc", "◐ 1 running, ◌ 1 queued, 16 GPUs")
        await shows(pilot, "train-sft", "eval-long")
        assert "RUNNING" in line_with(pilot, "train-sft", "16", "ends ")
        assert "PENDING" in line_with(pilot, "eval-long", "16", "starts ")
        await pilot.press("S")
        await until(pilot, lambda: "No server to stop" in told(pilot))


@pytest.mark.parametrize("size", [(160, 48), (80, 24)])
async def test_the_overview_has_a_clusters_jobs_in_its_row(size):
    app = panel(scenes.script(scenes.states(RUNNING), scenes.OTHERS), "gpu1")
    async with app.run_test(size=size) as pilot:
        await shows(pilot, "● 2 ready", "job 7, n[1-2]")
        await shows(pilot, "◐ 2 running, ◌ 1 queued, 32 GPUs" if size[0] > 100 else "◐ 2 ◌ 1")


@pytest.mark.parametrize(
    ("job", "said"),
    [(QUEUED, "job 7 is queued: waits: other jobs come first (Priority)"), (AWAY, AWAY.unknown), (NEVER, SENTENCE)],
)
async def test_the_overview_says_what_slurm_says(job, said):
    base = "queued" if job.state is JobState.QUEUED else "ready"
    async with panel(scenes.script(scenes.states(job, base)), "gpu1").run_test(size=(160, 48)) as pilot:
        await shows(pilot, said[:44])


# -- words and figures ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "nodes", "words", "count"),
    [
        ("gpu:h200:8", 2, "8 × h200", 16),
        ("gpu:4", 3, "4 GPUs", 12),
        ("gpu:1", 1, "1 GPU", 1),
        ("gpu", 2, "gpu", 2),
        (None, 2, "no GPU", None),
    ],
)
def test_gpus_of_a_job(gpus, nodes, words, count):
    job = replace(RUNNING, gpus=gpus, node_count=nodes)
    assert (gpus_words(job), job.gpu_count) == (words, count)


def test_one_place_for_words():
    assert asks_words(QUEUED) == "2 nodes with 8 × h200 each, partition gpu"
    assert queue_words(NEVER) == f"job 7 is queued: {SENTENCE} (PartitionNodeLimit)"
    assert queue_words(scenes.line("PENDING", "Unheard")) == "job 7 is queued: waits: Unheard"
    assert (ending_words(RUNNING), end_words(RUNNING)) == (None, None)
    assert end_words(scenes.ended("preempted")) == "job 7: preempted"


def test_what_is_not_known_is_not_counted():
    cluster = Cluster("hpc", scenes.OTHERS)
    assert use_of(cluster, [state.run for state in scenes.states(RUNNING)]) == Use(2, 1, 32)
    assert use_of(cluster, [state.run for state in scenes.states(scenes.ended("preempted"))]) == Use(1, 1, 16)
    assert use_of(cluster, [state.run for state in scenes.states(AWAY)]) is None
    assert use_of(None, []) is None


# -- the real Slurm ---------------------------------------------------------------------------------------------------


async def test_launched_by_keys_followed_to_ready_and_stopped_on_a_real_slurm(
    slurm: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    server = Path(__file__).parents[1] / "support/slurm_server.py"
    (tmp_path / "config").mkdir()
    (tmp_path / "config/config.toml").write_text(f'[hosts.local]\nslurm = true\npython = "{server}"\n')
    own = tmp_path / "profiles"
    own.mkdir()
    (own / "aa-two.toml").write_text(
        'kind = "launch"\n[slurm]\nnodes = 2\ngpus_per_node = 1\n[args]\nmodel-path = "/m"\ntp = 2\n'
    )
    monkeypatch.setenv("EAGLETUI_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(__file__).parents[1] / 'bin'}:{os.environ['PATH']}")  # steps take it along
    load_settings.cache_clear()
    request.addfinalizer(load_settings.cache_clear)
    quick = Pace(files_s=0.1, starting_s=0.3, steady_s=0.5)
    monkeypatch.setattr(HostSession, "jobs", lambda self, **_: _board(self, quick))
    async with EagleApp("local", profiles_dir=own).run_test(size=(160, 48)) as pilot:
        await shows(pilot, "cluster eagletest")
        await pilot.press("3", "g")
        await shows(pilot, "aa-two", "Batch script ──")
        await pilot.press("enter")
        await shows(pilot, "◌ LAUNCH   aa-two  on local", "to start at")
        await pilot.press("enter")
        await shows(pilot, "● READY", "aa-two", "n1 TP0", "n2 TP1", "min left, ends ")
        # Of each node's GPUs the one that is the job's.
        await until(pilot, lambda: screen_text(pilot.app).count("▆    1.6") == 2)
        job = pilot.app.group.job.job_id
        await pilot.press("S")
        await shows(pilot, f"Stop job {job} on local?")
        await pilot.press("tab", "enter")
        await until(pilot, lambda: "the job has ended" in told(pilot))
        await until(pilot, lambda: pilot.app.group.outcome is Outcome.STOPPED)
        await shows(pilot, "■ STOPPED")
    ended = slurm.wait(job)
    assert (ended["JobState"], ended["ExitCode"]) == ("COMPLETED", "0:0")


def _board(session, pace: Pace) -> JobBoard:
    if session._board is None:
        session._board = JobBoard(session.transport, pace)
    return session._board
