"""`eagletui experiment --dry-run`: the plan of one as it is asked for, on the simulated host; and what is not begun."""

import pytest

from tests.support.shell import Shell

pytestmark = pytest.mark.timeout(180)

BASE, TUNED, EAGLE = "kimi-k2.5-baseline-bs512", "kimi-k2.5-baseline-bs128", "kimi-k2.5-eagle3-mem088"


@pytest.fixture
def user(demo: Shell, port: str) -> Shell:
    directory = demo.cwd / "profiles"
    directory.mkdir(exist_ok=True)
    (directory / "quick.toml").write_text('kind = "bench"\noutput_len = 64\nduration_s = 20\nruns = 2\n')
    (directory / "ids.toml").write_text('kind = "bench"\ndataset = "random-ids"\n')
    for name, b in (("x", TUNED), ("same", BASE), ("drafts", EAGLE)):
        arms = "".join(f'[[arms]]\nprofile = "{one}"\nset = {{ {port.replace("=", " = ")} }}\n' for one in (BASE, b))
        (directory / f"{name}.toml").write_text(f'kind = "experiment"\nbench = "quick"\nbudget_h = 6\n{arms}')
    return demo


def test_the_plan_as_json_and_what_is_changed_for_this_once(user: Shell) -> None:
    asked = ["--set", "B:mem-fraction-static=0.8", "--set", "runs=3", "--pairs", "4", "--budget", "90m", "--seed", "7"]
    said = user("experiment", "x", "--host", "demo", "--dry-run", "--json", *asked)
    plan = said.json
    assert (said.code, plan["error"], plan["blocked"]) == (0, None, False), said.err
    assert (plan["name"], plan["host"], plan["bench"], plan["launches"]) == ("x", "demo", "quick", 8)
    assert [(arm["arm"], arm["profile"], arm["blocked"]) for arm in plan["arms"]] == [
        ("A", BASE, False),
        ("B", TUNED, False),
    ]
    assert plan["overrides"] == "--pairs 4 --budget 1.5 --set B:mem-fraction-static=0.8 --set runs=3"
    assert "".join(one["arm"] for one in plan["schedule"]) in ("ABBAABBA", "BAABBAAB")
    assert plan["schedule"][-1]["ends_s"] == plan["total_s"]
    assert plan["schedule"][0]["measured_s"] - plan["schedule"][0]["ready_s"] == 10 + 3 * 24
    assert [(sight["pairs"], sight["effect"]) for sight in plan["sees"]] == [(n, None) for n in (1, 2, 3, 4, 5, 8)]
    assert plan["arms"][0]["start_estimate"] == "no start of its model is known here"
    again = user("experiment", "x", "--host", "demo", "--dry-run", "--json", *asked).json
    assert again["schedule"] == plan["schedule"]  # of one seed


def test_the_plan_for_people(user: Shell) -> None:
    said = user("experiment", "x", "--host", "demo", "--dry-run")
    assert said.code == 0, said.err
    for words in (
        "x on demo: 6 launches, ~", f"A {BASE} on demo: can be launched; ready after 5:00, an estimate",
        " #  arm  profile", "of the time is start-up", "▸ 3 pairs, ~", "no noise is known here yet",
    ):  # fmt: skip
        assert words in said.out.decode(), said.out


@pytest.mark.parametrize(
    ("words", "blocks"),
    [
        (["same"], " same: B launches exactly what A does"),
        (["drafts", "--bench", "ids"], "B draft: it decodes with a draft"),
        (["x", "--set", "duration_s=8"], " window: a window of 8 s"),
        (["x", "--set", "context-length=40"], "A context: quick asks for 64 tokens a request"),
        (["x", "--set", "B:model-path=/nowhere"], "B model: /nowhere is not there"),
    ],
)
def test_what_can_give_no_verdict_is_blocked(user: Shell, words: list[str], blocks: str) -> None:
    dry = user("experiment", *words, "--host", "demo", "--dry-run", "--json")
    assert (dry.code, dry.json["blocked"], dry.json["error"]) == (1, True, "preflight")
    found = [one for one in dry.json["findings"] if one["level"] == "block"]
    assert [blocks for one in found if blocks in f"{one.get('arm', '')} {one['check']}: {one['text']}"]


def test_and_not_begun(user: Shell) -> None:
    begun = user("experiment", "same", "--host", "demo", "--json")
    document = begun.refused(1, "preflight")
    assert "nothing was launched: same: B launches exactly what A does" in document["message"]
    assert document["findings"][0]["level"] == "block"
    assert user("ps", "demo", "--json").json == []
    user("experiment", "same", "--host", "demo", "--resume", "--json").refused(2, "nothing_to_resume")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--set", "Z:tp=4"], "bad_value"),
        (["--set", "tpp=4"], "bad_profile"),
        (["--budget", "soon"], "usage"),
        (["--dry-run", "--resume"], "bad_value"),
    ],
)
def test_what_is_no_override_is_said_at_once(user: Shell, words: list[str], error: str) -> None:
    user("experiment", "x", "--host", "demo", "--json", *words).refused(2, error)
