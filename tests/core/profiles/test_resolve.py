"""Profiles that extend others, and overrides."""

import pytest

from tests.support.profiles import BASE, command, errors_of
from tui.core.profiles.files import ProfileBroken
from tui.core.profiles.load import discover, load_launch


def test_extends_merges_tables_replaces_scalars_and_knows_aliases(folder):
    child = """
    kind = "launch"
    extends = "base"
    [env]
    NCCL_DEBUG = false
    A = 1
    [args]
    tensor-parallel-size = 4
    cuda-graph-max-bs-decode = 64
    json-model-override-args = { rope = { kind = "yarn" }, b = 2 }
    trust-remote-code = false
    """
    profile = load_launch("child", [folder(base=BASE, child=child)])
    assert dict(profile.env) == {"A": "1"}
    assert command(profile).argv[3:] == (
        "--model-path", "/m", "--tensor-parallel-size", "4", "--cuda-graph-max-bs-decode", "64",
        "--json-model-override-args", '{"rope":{"factor":2.0,"kind":"yarn"},"b":2}', "--port", "30000",
        "--enable-metrics",
    )  # fmt: skip
    # Words about one file are not words about another.
    assert profile.description is None


def test_cycles_are_named(folder):
    directory = folder(
        a='kind = "launch"\nextends = "b"', b='kind = "launch"\nextends = "c"', c='kind = "launch"\nextends = "a"'
    )
    assert errors_of(directory, "a")["extends"][0] == "is circular: a -> b -> c -> a"
    assert "is circular" in errors_of(folder("self", a='kind = "launch"\nextends = "a"'), "a")["extends"][0]


def test_a_profile_may_extend_the_one_it_hides(folder):
    mine = folder("mine", x='kind = "launch"\nextends = "x"\n[args]\ntp = 2')
    shipped = folder("shipped", x=BASE)
    profile = load_launch("x", [mine, shipped])
    assert profile.arg("tp") == 2
    assert profile.arg("model-path") == "/m"


def test_errors_of_the_base_are_errors_of_the_child(folder):
    directory = folder(base='kind = "launch"\n[args]\nfoo = 1', child='kind = "launch"\nextends = "base"')
    entry = next(entry for entry in discover([directory]) if entry.name == "child")
    assert [error.path.name for error in entry.errors] == ["base.toml"]


def test_set_reads_toml_else_text(folder):
    directory = folder(x=BASE)
    profile = load_launch(
        "x",
        [directory],
        ["tp=4", "model-path=/data/a b", "served-model-name=8", "mem_fraction_static=0.9", "env.N=01", "gpus=[2,3]",
         "trust-remote-code=false", 'tokenizer-path="/t"', "requires.sglang=>=0.5", "cuda-graph-bs=[1,2]",
         "revision=2026-01-01", "args.dp=2"],
    )  # fmt: skip
    assert profile.args == {
        "model-path": "/data/a b", "tp": 4, "cuda-graph-max-bs": 512, "trust-remote-code": False,
        "json-model-override-args": {"rope": {"factor": 2.0}}, "served-model-name": "8", "mem-fraction-static": 0.9,
        "tokenizer-path": "/t", "cuda-graph-bs": [1, 2], "revision": "2026-01-01", "dp": 2,
    }  # fmt: skip
    assert profile.gpus == (2, 3)
    assert profile.env["N"] == "01"
    assert profile.requires == {"sglang": ">=0.5"}


def test_set_takes_a_mapping_too(folder):
    profile = load_launch("x", [folder(x=BASE)], {"tp": 2, "env.A": "b", "gpus": [1]})
    assert (profile.arg("tp"), profile.env["A"], profile.gpus) == (2, "b", (1,))


def test_set_errors_come_all_at_once(folder):
    with pytest.raises(ProfileBroken) as caught:
        load_launch("x", [folder(x=BASE)], ["tp=eight", "novalue", "bar=1", "x.y=2", "gpus=a", "env.A b=1"])
    error = caught.value
    assert error.exit_code == 2
    assert len(error.errors) == 6
    assert "\n" not in error.message
    for words in ("; tp: must be a whole number (write tp = 8)", "write novalue=VALUE", "bar: unknown flag",
                  "x.y: unknown key", "write gpus=[0,1]", "env.A b: is not a name"):  # fmt: skip
        assert words in error.message


def test_the_later_word_about_gpus_holds(folder):
    directory = folder(
        base=BASE.replace('NCCL_DEBUG = "WARN"', 'CUDA_VISIBLE_DEVICES = "7"'),
        child='kind = "launch"\nextends = "base"\ngpus = [1]',
    )
    assert command(load_launch("child", [directory])).env["CUDA_VISIBLE_DEVICES"] == "1"
    assert command(load_launch("base", [directory], ["gpus=[2]"])).env["CUDA_VISIBLE_DEVICES"] == "2"
    last = load_launch("child", [directory], ["env.CUDA_VISIBLE_DEVICES=3"])
    assert command(last).env["CUDA_VISIBLE_DEVICES"] == "3"
