"""Profiles by name: launch, bench and experiment profiles, and those that are shipped."""

import json

import pytest

from tests.support.profiles import BASE, command
from tui.core.config import shipped_profiles_dir
from tui.core.errors import UsageError
from tui.core.model.profile import LoadPoint
from tui.core.profiles.files import ProfileBroken
from tui.core.profiles.load import discover, load_bench, load_experiment, load_launch
from tui.core.sglang.flags import flags_of


def test_the_first_directory_wins_and_unknown_names_are_guessed(folder):
    first = folder("a", x=BASE.replace("tp = 8", "tp = 1"))
    second = folder("b", x=BASE, kimi=BASE)
    assert load_launch("x", [first, second]).arg("tp") == 1
    assert [entry.path.parent.name for entry in discover([first, second])] == ["b", "a"]
    with pytest.raises(UsageError) as caught:
        load_launch("kimmi", [first, second])
    assert caught.value.slug == "unknown_profile"
    assert caught.value.hint == "did you mean kimi?"
    assert caught.value.exit_code == 2


def test_an_experiment_is_read_with_its_defaults(folder):
    text = """
    kind = "experiment"
    hypothesis = "h"
    bench = "b"
    looks = [3, 5, 8]
    margin = 0.01
    budget_h = 6
    [[arms]]
    profile = "base"
    [[arms]]
    profile = "base"
    set = { cuda-graph-max-bs = 128 }
    [[arms]]
    profile = "base"
    set = { tp = 4 }
    against = "B"
    """
    directory = folder(
        b='kind = "bench"\nconcurrency = [1]',
        base=BASE,
        x=text,
        plain='kind = "experiment"\nbench = "b"\n' + 2 * '[[arms]]\nprofile = "base"\n',
    )
    found = load_experiment("x", [directory])
    assert [(arm.letter, arm.against) for arm in found.arms] == [("A", None), ("B", "A"), ("C", "B")]
    assert found.arms[1].sets == {"cuda-graph-max-bs": 128}
    assert (found.pairs, found.looks, found.margin, found.budget_h) == (8, (3, 5, 8), 0.01, 6.0)
    plain = load_experiment("plain", [directory])
    assert (plain.pairs, plain.looks, plain.margin, plain.budget_h) == (3, (), 0.02, None)
    with pytest.raises(UsageError) as caught:
        load_experiment("base", [directory])
    assert caught.value.slug == "wrong_kind"
    assert caught.value.hint == "use eagletui launch base"
    broken = folder(
        "broken",
        b='kind = "bench"\nconcurrency = [1]',
        x='kind = "experiment"\nbench = "b"\n' + 2 * '[[arms]]\nprofile = "base"\n',
    )
    with pytest.raises(ProfileBroken, match='no launch profile "base"'):
        load_experiment("x", [broken])


BENCH = """
kind = "bench"
description = "decode"
dataset = "random-ids"
concurrency = [1, 4]
input_len = 128
duration_s = 20
"""


def test_a_bench_profile_and_what_set_changes_of_it(folder):
    where = [folder(b=BENCH)]
    bench = load_bench("b", where)
    assert [point.label for point in bench.points] == ["c1", "c4"]
    assert (bench.input_len, bench.output_len, bench.duration_s, bench.runs) == (128, 512, 20.0, 3)
    assert (bench.driver, bench.description) == ("eagletui", "decode")
    assert load_bench("b", where, ["concurrency=2", "runs=1"]).points == (LoadPoint(concurrency=2),)
    assert load_bench("b", where, {"rate": [0.5, 2]}).points == (LoadPoint(rate=0.5), LoadPoint(rate=2.0))
    assert load_bench("b", [folder(b='kind = "bench"')]).points == (LoadPoint(concurrency=1),)


def test_every_error_of_a_bench_and_its_sets_is_said_at_once(folder):
    with pytest.raises(ProfileBroken) as caught:
        load_bench("b", [folder(b=BENCH + "runs = 0")], ["duration_s=fast", "concurency=3", "x"])
    assert [(error.path.name, error.key) for error in caught.value.errors] == [
        ("b.toml", "runs"), ("--set", "x"), ("--set", "duration_s"), ("--set", "concurency"),
    ]  # fmt: skip
    with pytest.raises(UsageError, match="is a profile of kind launch"):
        load_bench("x", [folder(x=BASE)])
    with pytest.raises(UsageError, match='no profile "decod"'):
        load_bench("decod", [folder(b=BENCH)])


SHIPPED = discover([shipped_profiles_dir()])
LAUNCH = [entry.name for entry in SHIPPED if entry.kind == "launch"]


def test_the_shipped_profiles_are_those_of_the_design():
    kimi = "baseline-bs512 baseline-bs128 eagle3-mem076 eagle3-mem088 flashinfer-fusion custom-allreduce nccl-tree symm-mem ep-a2a"
    others = {"qwen3-0.6b-one-gpu", "qwen3-0.6b-split", "two-nodes-demo"}
    assert set(LAUNCH) == {f"kimi-k2.5-{name}" for name in kimi.split()} | others
    bench = {entry.name for entry in SHIPPED if entry.kind == "bench"}
    loads = {
        "decode-bs1",
        "concurrency-sweep",
        "speculation-real-prompts",
        "prefill-heavy",
        "capacity-ttft-tpot",
        "one-user-real-prompts",
    }
    assert bench == loads | {"all-reduce"}
    experiments = {entry.name for entry in SHIPPED if entry.kind == "experiment"}
    assert experiments == {"graphs-bs512-vs-bs128", "does-eagle-pay", "does-splitting-pay", "eagle3-pcie-blackwell"}
    assert all(load_experiment(name, [shipped_profiles_dir()]).hypothesis for name in experiments)
    assert [str(error) for entry in SHIPPED for error in entry.errors] == []
    assert all(entry.description for entry in SHIPPED)


@pytest.mark.parametrize("name", LAUNCH)
def test_shipped_profiles_say_what_is_hoped_and_known(name):
    profile = load_launch(name, [shipped_profiles_dir()])
    assert profile.hypothesis
    assert profile.known
    assert profile.requires
    built = command(profile)
    json.dumps(built.argv)
    # On the newest version every flag is known.
    names = [word.partition("=")[0][2:] for word in built.argv if word.startswith("--")]
    known = flags_of("0.5.23") | {"tp"}
    assert [flag for flag in names if flag not in known] == []
