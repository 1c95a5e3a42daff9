"""`[grid]`: which arms it makes, in which order, and what is said of one that is wrong or too large."""

import pytest

from tui.core.errors import UsageError
from tui.core.model.profile import MOST_ARMS, arm_letters
from tui.core.profiles.load import experiment_table, load_experiment
from tui.core.profiles.toml_text import toml_lines

LAUNCH = 'kind = "launch"\n[args]\nmodel-path = "m"\n'
HEAD = 'kind = "experiment"\nbench = "b"\n'


@pytest.fixture
def load(tmp_path):
    (tmp_path / "b.toml").write_text('kind = "bench"\n')
    (tmp_path / "base.toml").write_text(LAUNCH)

    def load(text, name="x"):
        (tmp_path / f"{name}.toml").write_text(HEAD + text)
        return load_experiment(name, [tmp_path])

    return load


def test_each_combination_is_an_arm_after_the_profile_itself(load):
    found = load(
        '[grid]\nprofile = "base"\nexclude = [{ tp = 2, context-length = 512 }]\n'
        "[grid.vary]\ntp = [1, 2]\n"
        "[[grid.linked]]\ncontext-length = [256, 512]\nmax-running-requests = [8, 4]\n"
    )
    assert [(arm.letter, dict(arm.sets)) for arm in found.arms] == [
        ("A", {}),
        ("B", {"tp": 1, "context-length": 256, "max-running-requests": 8}),
        ("C", {"tp": 1, "context-length": 512, "max-running-requests": 4}),
        ("D", {"tp": 2, "context-length": 256, "max-running-requests": 8}),
    ]
    assert found.method == "whole"
    assert {arm.against for arm in found.arms} == {None, "A"}


def test_given_arms_come_first_and_more_than_four_are_halved(load):
    arms = '[[arms]]\nprofile = "base"\nset = { tp = 8 }\n'
    grid = '[grid]\nprofile = "base"\n[grid.vary]\ntp = [1, 2, 3, 4]\n'
    found = load(arms + grid)
    assert [arm.sets["tp"] for arm in found.arms] == [8, 1, 2, 3, 4]
    assert found.method == "halving"
    assert load('method = "whole"\n' + arms + grid).method == "whole"
    assert load("looks = [3, 5]\n" + arms + grid).method == "whole"


def test_letters_go_on_after_z():
    assert arm_letters(28) == (*"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "AA", "AB")
    assert len(set(arm_letters(60))) == 60


def test_what_it_prints_loads_to_the_same(load):
    found = load('[grid]\nprofile = "base"\n[grid.vary]\ntp = [1, 2, 3, 4, 5]\n')
    table = experiment_table(found)
    arms = table.pop("arms")
    text = toml_lines(table) + "".join(f"\n[[arms]]\n{toml_lines(arm)}" for arm in arms)
    again = load(text.removeprefix(HEAD))
    assert (again.arms, again.method) == (found.arms, found.method)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[grid]\nprofile = "base"\n[grid.vary]\ntp = [1, 2, 3, 4, 5]\ncontext-length = ' + str(list(range(1, 101))),
            f"grid: gives 501 arms; an experiment has at most {MOST_ARMS}",
        ),
        ('[grid]\nprofile = "base"\n[grid.vary]\ntp = 2\n', "grid.vary.tp: must be a list"),
        (
            '[grid]\nprofile = "base"\n[grid.vary]\n'
            + "".join(f"{key} = {list(range(1, 100))}\n" for key in ("tp", "context-length", "port")),
            "grid: has 970,299 combinations; at most 10,000 are looked at",
        ),
        (
            '[grid]\nprofile = "base"\n[[grid.linked]]\ntp = [1, 2]\ncontext-length = [256]\n',
            "grid.linked.0: lists that go together are of one length; tp has 2, context-length has 1",
        ),
        (
            '[grid]\nprofile = "base"\n[grid.vary]\ntp = [1, 2]\n[[grid.linked]]\ntp = [1]\n',
            "grid.linked.0.tp: has a list already",
        ),
        (
            '[grid]\nprofile = "base"\nexclude = [{ tp = 3 }]\n[grid.vary]\ntp = [1, 2]\n',
            "grid.exclude.0: fits no combination",
        ),
        (
            '[grid]\nprofile = "nowhere"\n[grid.vary]\ntp = [1, 2]\n',
            'grid.profile: there is no launch profile "nowhere"',
        ),
        ('[grid]\nprofile = "base"\n', "grid: gives no arm"),
        ("", "arms: is missing"),
        (
            'method = "halving"\nlooks = [3]\n[[arms]]\nprofile = "base"\n[[arms]]\nprofile = "base"\n',
            'looks: is for method "whole"',
        ),
        (
            'method = "halving"\n[[arms]]\nprofile = "base"\n[[arms]]\nprofile = "base"\n'
            '[[arms]]\nprofile = "base"\nagainst = "B"\n',
            'arms.2.against: is for method "whole"',
        ),
    ],
)
def test_what_is_wrong_is_one_line(load, text, said):
    with pytest.raises(UsageError) as caught:
        load(text)
    assert said in str(caught.value)


def test_a_value_that_no_launch_takes_is_said_once(load):
    with pytest.raises(UsageError) as caught:
        load('[grid]\nprofile = "base"\n[grid.vary]\ntp = ["many"]\ncontext-length = [256, 512, 1024]\n')
    assert str(caught.value).count("tp") == 1
