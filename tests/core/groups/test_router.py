"""What a router says of its workers, held against what they are."""

import json
from dataclasses import replace

import pytest

from tests.support import fakes
from tui.core.groups.group_state import Condition, MemberState
from tui.core.groups.merge import merge
from tui.core.groups.router import Worker, listed_right, told_to, workers_in, wrong_bootstrap_port
from tui.core.groups.session import new_group
from tui.core.model.group import Member, Role
from tui.core.model.phases import Outcome

PREFILL = Member(Role.PREFILL, 0, "gpu1", "x-0")
DECODE = Member(Role.DECODE, 1, "gpu2", "x-1")
P, D = "http://10.0.0.1:30001", "http://10.0.0.2:30002"
# As sglang-router 0.3.2 answers.
LISTED = json.dumps(
    {"workers": [
        {"id": "cc", "url": D, "model_id": "m", "worker_type": "decode", "is_healthy": True, "load": 0},
        {"id": "bb", "url": P, "worker_type": "prefill", "is_healthy": True, "bootstrap_port": 8998, "metadata": {}},
    ], "total": 2, "stats": {"prefill_count": 1, "decode_count": 1, "regular_count": 0}}
).encode()  # fmt: skip


def test_what_a_command_line_tells_a_router():
    argv = ("python3", "-m", "sglang_router.launch_router", "--pd-disaggregation", "--prefill", f"{P}/", "8998", "--prefill", D,
            "none", "--prefill=http://c:1", "--decode", D, "--decode=http://e:2", "--port", "30000")  # fmt: skip
    assert told_to(argv) == (
        Worker(P, "prefill", 8998), Worker(D, "prefill"), Worker("http://c:1", "prefill"),
        Worker(D, "decode"), Worker("http://e:2", "decode"),
    )  # fmt: skip


def test_what_it_answers():
    assert workers_in(LISTED) == (Worker(D, "decode", None, True), Worker(P, "prefill", 8998, True))


@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"workers": {}}', b'{"workers": 3}', b"Unauthorized"])
def test_another_answer_is_no_list_of_workers(body):
    with pytest.raises(ValueError, match=r"workers|char|JSON"):
        workers_in(body)


def test_odd_workers_are_none_of_ours():
    odd = b'{"workers": [3, null, {}, {"url": 3, "worker_type": [], "is_healthy": "yes", "bootstrap_port": "8998"}]}'
    assert workers_in(odd) == (Worker("", "unknown", None, False), Worker("", "unknown", None, False))


@pytest.mark.parametrize(
    ("member", "told", "own", "listed", "says"),
    [
        (PREFILL, Worker(P, "prefill", 8998), 8998, workers_in(LISTED), None),
        (DECODE, Worker(D, "decode"), None, workers_in(LISTED), None),
        (PREFILL, None, 8998, workers_in(LISTED), "the router was launched without it"),
        (PREFILL, Worker(P, "prefill", 8998), 8998, (), f"{P} is not among its workers yet"),
        (PREFILL, Worker(P, "prefill", 8998), 8998, (Worker(P, "regular", None, True),), f"{P} is a regular worker there"),
        (PREFILL, Worker(P, "prefill", 8998), 8998, (Worker(P, "prefill", 8998, False),), f"{P} is not healthy there"),
        (PREFILL, Worker(P, "prefill", 8999), 8998, (Worker(P, "prefill", 8999, True),),
         "the router sends bootstrap port 8999 along, prefill 0 listens on 8998"),
        (PREFILL, Worker(P, "prefill"), 9000, (Worker(P, "prefill", None, True),),
         "the router sends no bootstrap port along, prefill 0 listens on 9000"),
    ],
)  # fmt: skip
def test_a_worker_as_the_router_knows_it(member, told, own, listed, says):
    found = listed_right(member, told, own, listed)
    assert found.text == f"{member.name} as the router knows it"
    assert (found.holds, found.detail) == ((True, told.url) if says is None else (False, says))


def test_without_a_word_of_its_own_a_prefill_has_the_default_port():
    assert wrong_bootstrap_port(PREFILL, 8998, None) is None
    assert wrong_bootstrap_port(PREFILL, 9000, None) == (
        "the router sends bootstrap port 9000 along, prefill 0 listens on 8998"
    )


def test_a_group_is_ready_after_the_last_of_its_members_and_not_after_its_router():
    roles = ((Role.PREFILL, 0.0, 400.0), (Role.DECODE, 1.0, 90.0), (Role.ROUTER, 2.0, 3.0))
    group = new_group("split", [(role, 0, "gpu1") for role, _, _ in roles])
    seen = [
        MemberState(member, fakes.ready(started_s=1000.0 + began, ready_after_s=took))
        for member, (_, began, took) in zip(group.members, roles, strict=True)
    ]
    assert merge(group, seen).ready_after_s == 400.0
    assert [one.text for one in merge(group, seen).conditions][-1] == "the router answers"
    waits = merge(group, seen, (Condition("a request through the router", False, "503"),))
    assert (waits.outcome, waits.ready_after_s) == (Outcome.STARTING, None)
    assert waits.waits_for == "a request through the router: 503"
    starting = [seen[0], replace(seen[1], state=fakes.starting()), seen[2]]
    assert (
        merge(group, starting, (Condition("a request through the router", None),)).waits_for is None
    )  # it is a member
