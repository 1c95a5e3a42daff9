"""What the states of its members say of a group: every rule, by states made up here."""

from dataclasses import replace

import pytest

from tests.support import fakes
from tests.support.groups import GROUP, ID, LOST_PEER, OUT_OF_MEMORY, RANK0, RANK1, dead, run_of, state
from tui.core.groups.group_state import Condition, GroupState, MemberState
from tui.core.groups.membership import group_of, groups_among, member_named, starts, stops
from tui.core.groups.merge import AFTER, mark_of, merge, stopped_for
from tui.core.model.group import Group, Member, Role, group_id_of
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import RunState
from tui.core.server.server_state import ServerState


def at(state: ServerState | MemberState, phase: Phase) -> MemberState:
    assert isinstance(state, MemberState)
    assert state.state is not None
    return replace(state, state=replace(state.state, phase=phase))


def failure(merged: GroupState) -> tuple[str | None, str | None]:
    cause = merged.failure.diagnosis.cause if merged.failure and merged.failure.diagnosis else None
    return (merged.failed.name if merged.failed else None), cause


# ---- readiness


def test_ready_by_rank_0_alone() -> None:
    merged = merge(GROUP, [state(RANK0, fakes.ready), state(RANK1)])
    assert merged.outcome is Outcome.READY
    assert [one.state.outcome for one in merged.members if one.state] == [Outcome.READY] * 2
    assert merged.members[1].state.phase is Phase.SERVING
    assert merged.ready_after_s == merged.members[0].state.ready_after_s


def test_the_other_ranks_answer_200_long_before_and_count_for_nothing() -> None:
    merged = merge(GROUP, [state(RANK0), state(RANK1, fakes.ready)])
    assert merged.outcome is Outcome.STARTING
    assert merged.members[1].state.outcome is Outcome.STARTING
    assert merged.members[1].state.phase is Phase.WARMUP
    assert merged.phase is Phase.LOAD_WEIGHTS
    assert merged.ready_after_s is None


@pytest.mark.parametrize("outcome", [Outcome.STARTING, Outcome.READY])
def test_a_fatal_line_in_any_log_is_not_ready(outcome: Outcome) -> None:
    other = state(RANK1, outcome=Outcome.CRASHED)
    other = replace(other, state=replace(other.state, startup=replace(other.state.startup, outcome=Outcome.CRASHED)))
    merged = merge(GROUP, [state(RANK0, fakes.ready, outcome=outcome), other])
    assert merged.outcome is Outcome.CRASHED
    assert [one.holds for one in merged.conditions][1] is False


def test_a_member_nothing_was_heard_of_yet_keeps_it_starting() -> None:
    merged = merge(GROUP, [state(RANK0, fakes.ready), MemberState(RANK1)])
    assert (merged.outcome, merged.phase) == (Outcome.STARTING, Phase.LAUNCH)


@pytest.mark.parametrize(
    ("holds", "outcome"), [(True, Outcome.READY), (False, Outcome.STARTING), (None, Outcome.STARTING)]
)
def test_what_else_must_hold(holds: bool | None, outcome: Outcome) -> None:
    merged = merge(GROUP, [state(RANK0, fakes.ready), state(RANK1)], (Condition("/readiness of the router", holds),))
    assert merged.outcome is outcome


def test_the_phase_is_that_of_the_member_furthest_behind() -> None:
    merged = merge(GROUP, [at(state(RANK0), Phase.CUDA_GRAPH), at(state(RANK1), Phase.DISTRIBUTED_INIT)])
    assert merged.phase is Phase.DISTRIBUTED_INIT


# ---- links


def test_a_lost_link_is_unknown_and_not_dead() -> None:
    merged = merge(GROUP, [state(RANK0, fakes.ready), replace(state(RANK1, stale=True), link_lost=True)])
    assert (merged.outcome, merged.failed) == (Outcome.UNKNOWN, None)
    assert merged.conditions[0].holds is None
    assert "gpu4" in (merged.conditions[0].detail or "")


def test_a_dead_member_is_told_through_a_lost_link() -> None:
    merged = merge(GROUP, [replace(state(RANK0), link_lost=True), dead(RANK1, OUT_OF_MEMORY, 55)])
    assert failure(merged) == ("rank 1", "oom_weights") or merged.failed == RANK1


# ---- who is to blame


@pytest.mark.parametrize("after_s", [70, 40])
def test_who_only_lost_the_peer_is_not_the_cause(after_s: int) -> None:
    """Even where the host's clocks, or a slow tail, let it die first."""
    merged = merge(GROUP, [dead(RANK0, LOST_PEER, after_s), dead(RANK1, OUT_OF_MEMORY, 55)])
    assert merged.outcome is Outcome.CRASHED
    assert merged.failed == RANK1
    assert "out of memory" in str(merged.failure.diagnosis.evidence.text)


def test_who_has_a_cause_keeps_it_though_its_own_ranks_lost_each_other() -> None:
    both = dead(RANK1, [*OUT_OF_MEMORY[:-1], *LOST_PEER], 55)
    assert merge(GROUP, [dead(RANK0, LOST_PEER, 50), both]).failed == RANK1


def test_who_was_killed_without_a_word_is_the_cause_where_the_other_lost_its_peer() -> None:
    merged = merge(GROUP, [dead(RANK0, LOST_PEER, 60), dead(RANK1, [], 58)])
    assert merged.failed == RANK1
    assert merged.failure.diagnosis is not None


def test_of_two_causes_the_first_counts() -> None:
    assert merge(GROUP, [dead(RANK0, OUT_OF_MEMORY, 50), dead(RANK1, OUT_OF_MEMORY, 55)]).failed == RANK0
    assert merge(GROUP, [dead(RANK0, OUT_OF_MEMORY, 56), dead(RANK1, OUT_OF_MEMORY, 55)]).failed == RANK1


def test_clocks_of_hosts_that_differ_by_hours_change_nothing() -> None:
    far = dead(RANK1, OUT_OF_MEMORY, 55, started_at="2026-11-30T09:00:00+00:00", ended_at="2026-11-30T09:00:58+00:00")
    assert merge(GROUP, [dead(RANK0, OUT_OF_MEMORY, 55), far]).failed == RANK0


def test_where_all_lost_their_peers_the_first_counts() -> None:
    assert merge(GROUP, [dead(RANK0, LOST_PEER, 60), dead(RANK1, LOST_PEER, 59)]).failed == RANK1


@pytest.mark.parametrize("phase", [Phase.WARMUP, Phase.READY])
def test_a_follower_ends_in_the_phase_of_rank_0(phase: Phase) -> None:
    """What its own log says last is that its part of the start is done."""
    killed = at(dead(RANK1, [], 90), phase)
    for head, ended_in in ((Phase.READY, Phase.SERVING), (Phase.SERVING, Phase.SERVING), (Phase.WARMUP, Phase.WARMUP)):
        merged = merge(GROUP, [at(dead(RANK0, LOST_PEER, 95), head), killed])
        assert (merged.failed, merged.phase) == (RANK1, ended_in)
    assert merge(GROUP, [MemberState(RANK0, link_lost=True), killed]).phase is Phase.WARMUP
    early = at(dead(RANK1, [], 90), Phase.LOAD_WEIGHTS)
    assert merge(GROUP, [at(dead(RANK0, LOST_PEER, 95), Phase.LOAD_WEIGHTS), early]).phase is Phase.LOAD_WEIGHTS


# ---- stops


def test_a_stop_that_somebody_asked_for_is_no_failure() -> None:
    """Whatever the other rank says of the peer that left."""
    asked = dead(RANK0, [], 60, 0, stop="done", stopped_by_us=True, stop_by="li@desk")
    merged = merge(GROUP, [asked, dead(RANK1, LOST_PEER, 61)])
    assert (merged.outcome, merged.failed) == (Outcome.STOPPED, None)


def test_a_stop_under_way_is_no_failure_either() -> None:
    asked = state(RANK0, fakes.ready, run={"stop": "term", "stop_by": "li@desk"})
    assert merge(GROUP, [asked, dead(RANK1, LOST_PEER, 61)]).outcome is Outcome.STOPPED


def test_who_was_stopped_for_the_end_of_another_does_not_hide_it() -> None:
    stopped = dead(RANK0, [], 66, 137, stop="done", stopped_by_us=True, stop_by=mark_of(RANK1))
    merged = merge(GROUP, [stopped, dead(RANK1, OUT_OF_MEMORY, 55)])
    assert (merged.outcome, merged.failed) == (Outcome.CRASHED, RANK1)


def test_a_member_that_hung_until_it_was_stopped_is_still_named() -> None:
    both = {"stop": "done", "stopped_by_us": True, "stop_by": mark_of(RANK1)}
    merged = merge(GROUP, [dead(RANK0, [], 66, 137, **both), dead(RANK1, [], 66, 137, **both)])
    assert (merged.outcome, merged.failed) == (Outcome.CRASHED, RANK1)


def test_a_person_cannot_be_taken_for_the_end_of_a_member() -> None:
    assert stopped_for(f"{AFTER}work@desk") is None
    assert stopped_for(mark_of(RANK1)) == "rank-1"
    assert stopped_for(None) is None


def test_an_end_with_code_0_is_a_stop() -> None:
    ended = dead(RANK0, [], 60, 0)
    ended = replace(ended, state=replace(ended.state, outcome=Outcome.STOPPED))
    assert merge(GROUP, [ended, state(RANK1)]).outcome is Outcome.STOPPED


# ---- the one they wait for


def test_the_shortest_wait_names_the_latecomer() -> None:
    waited = state(RANK0, phase_took_s={Phase.LAUNCH: 10.0, Phase.DISTRIBUTED_INIT: 35.5})
    came = state(RANK1, phase_took_s={Phase.LAUNCH: 39.0, Phase.DISTRIBUTED_INIT: 6.6})
    late = merge(GROUP, [waited, came]).late
    assert late == "rank 1 (gpu4) came last: the others waited 29 s for it"
    assert merge(GROUP, [replace(came, member=RANK0), came]).late is None
    assert merge(GROUP, [replace(waited, state=replace(waited.state, outcome=Outcome.READY)), came]).late is None


def test_who_has_not_come_yet_is_named_while_the_others_wait() -> None:
    waits, behind = at(state(RANK0), Phase.DISTRIBUTED_INIT), at(state(RANK1, phase_took_s={}), Phase.LAUNCH)
    late = merge(GROUP, [waits, behind]).late
    assert late is not None
    assert "rank 1 (gpu4)" in late
    assert merge(GROUP, [behind, replace(behind, member=RANK1)]).late is None


# ---- membership


def test_a_group_is_found_in_any_of_its_runs() -> None:
    found = groups_among([run_of(RANK1), fakes.run(), run_of(RANK0)])
    assert [one.group for one in found] == [GROUP]
    assert set(found[0].runs) == {RANK0.run_id, RANK1.run_id}


@pytest.mark.parametrize(
    "extra", [None, {}, {"group": 3}, {"group": {"id": 1, "profile": 2, "members": []}},
              {"group": {"id": "a", "profile": "b", "members": [{"role": "king", "number": 0, "host": "h", "run_id": "r"}]}},
              {"group": {"id": "a", "profile": "b", "members": 7}}],
)  # fmt: skip
def test_what_a_host_may_have_written_there(extra: dict[str, object] | None) -> None:
    assert group_of(extra) is None


def test_a_run_that_claims_a_group_without_it_is_none_of_it() -> None:
    assert groups_among([replace(fakes.run(), extra={"group": GROUP.extra()})]) == []


def test_names_of_a_member() -> None:
    assert member_named("7c31d0-1", GROUP) == member_named(f"{ID}-1", GROUP) == RANK1
    assert member_named("7c31d0", GROUP) is None
    assert member_named(ID, GROUP) is None


def test_ids() -> None:
    assert group_id_of(RANK1.run_id) == ID
    assert group_id_of(ID) is None
    assert run_of(RANK1).short_id == "7c31d0-1"


def test_orders_of_start_and_stop() -> None:
    assert [[one.name for one in stage] for stage in starts(GROUP)] == [["rank 0", "rank 1"]]
    assert [[one.name for one in stage] for stage in stops(GROUP)] == [["rank 0"], ["rank 1"]]
    split = Group(ID, "pd", tuple(Member(role, n, "h", f"{ID}-{at}") for at, (role, n) in enumerate(
        [(Role.PREFILL, 0), (Role.DECODE, 0), (Role.DECODE, 1), (Role.ROUTER, 0)])))  # fmt: skip
    assert [[one.name for one in stage] for stage in starts(split)] == [
        ["prefill 0", "decode 0", "decode 1"],
        ["router"],
    ]
    assert [[one.name for one in stage] for stage in stops(split)] == [
        ["router"],
        ["prefill 0"],
        ["decode 0", "decode 1"],
    ]
    assert split.serving.name == "router"


def test_a_rank_that_rank_0_told_to_end_did_not_crash_whatever_its_exit_code():
    ended = {"state": RunState.EXITED, "exit_code": 0, "stop": "done", "stopped_by_us": True, "stop_by": "me@here"}
    head = state(RANK0, fakes.ready, run=ended, outcome=Outcome.STOPPED)
    whole = merge(GROUP, [head, dead(RANK1, LOST_PEER, 400)])
    assert (whole.outcome, whole.failed) == (Outcome.STOPPED, None)
    assert [one.state.outcome for one in whole.members] == [Outcome.STOPPED, Outcome.STOPPED]
    assert whole.members[1].state.diagnosis is None
