"""Profiles: found, merged, checked all at once, turned into a command."""

import json
from pathlib import Path

import pytest

from tui.core.config import HostEntry, shipped_profiles_dir
from tui.core.errors import UsageError
from tui.core.model.profile import LoadPoint
from tui.core.profiles.command import METRICS_NOTE, build_command, render_command
from tui.core.profiles.difference import profile_difference
from tui.core.profiles.errors import ProfileBroken
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import discover, load_bench, load_experiment, load_launch
from tui.core.profiles.secrets import is_secret_env, public_sets
from tui.core.profiles.toml_text import save_profile
from tui.core.sglang.flags import flags_of

HOST = HostEntry("gpu1", "gpu1", "/opt/sglang/bin/python", {"HF_HOME": "/data/hf"})
BASE = """
kind = "launch"
description = "base"
[env]
NCCL_DEBUG = "WARN"
[args]
model-path = "/m"
tp = 8
cuda-graph-max-bs = 512
json-model-override-args = { rope = { factor = 2.0 } }
trust-remote-code = true
"""


@pytest.fixture
def folder(tmp_path):
    """Writes profiles by name and returns the directory list."""

    def write(directory: str = "p", /, **files: str) -> Path:
        path = tmp_path / directory
        path.mkdir(exist_ok=True)
        for name, text in files.items():
            (path / f"{name}.toml").write_text(text, encoding="utf-8")
        return path

    return write


def errors_of(directory: Path, name: str = "x") -> dict[str | None, tuple[str, str | None]]:
    entry = next(entry for entry in discover([directory]) if entry.name == name)
    return {error.key: (error.message, error.suggestion) for error in entry.errors}


def command(profile: LaunchProfile, version: str | None = "0.5.23"):
    return build_command(profile, HOST, version, flags_of(version))


# Errors ----------------------------------------------------------------------------------------------------------


def test_all_errors_at_once_with_key_and_what_was_meant(folder):
    found = errors_of(
        folder(
            x="""
            kind = "launch"
            descripton = "x"
            tp = 3
            gpus = 3
            startup_timeout_s = "x"
            cwd = "here"
            [env]
            A = true
            [args]
            mem-fraction-statc = 0.3
            tp = "eight"
            tp-size = 2
            mem-fraction-static = 88
            trust-remote-code = "yes"
            dtype = ["a"]
            served-model-name = true
            random-seed = 2026-01-01
            [requires]
            sglan = "1"
            sglang = "new"
            """
        )
    )
    assert found == {
        "descripton": ("unknown key", "did you mean description?"),
        "tp": ("unknown key", "flags belong under [args]"),
        "gpus": ("must be a list", "write gpus = [3]"),
        "startup_timeout_s": ("must be a number", "write it without quotes"),
        "cwd": ("must be an absolute path", "begin it with / or ~/"),
        "env.A": ("must be text", 'write A = "1"'),
        "args.mem-fraction-statc": ("unknown flag", "did you mean mem-fraction-static?"),
        "args.tp": ("must be a whole number", "write tp = 8"),
        "args.tp-size": ("is the same flag as tp", "keep one of the two"),
        "args.mem-fraction-static": ("is a share of the memory, between 0 and 1", "write mem-fraction-static = 0.88"),
        "args.trust-remote-code": ("is a switch: true or false", "write trust-remote-code = true"),
        "args.served-model-name": ("needs a value", None),
        "args.random-seed": ("must be a whole number", None),
        "requires.sglan": ("unknown requirement", "did you mean sglang?"),
        "requires.sglang": ('"new" is not a version condition', 'write it like ">=0.5.10" or ">=0.5,<0.6"'),
    }


def experiment(keys: str = "", arms: int = 2, first: str = "", last: str = "") -> str:
    """An experiment with so many arms; `keys`, `first` and `last` are lines of it and of its first and last arm."""
    lines = ["", *[""] * (arms - 2), ""]
    lines[0], lines[-1] = first, last
    tables = "".join(f'[[arms]]\nprofile = "base"\n{line}\n' for line in lines)
    return f'kind = "experiment"\nbench = "b"\n{keys}\n{tables}'


@pytest.mark.parametrize(
    ("text", "key", "words"),
    [
        ("kind = ", None, "not valid TOML"),
        ("", "kind", "is missing"),
        ('kind = "lunch"', "kind", "must be one of"),
        ('kind = "launch"', "args.model-path", "is missing"),
        ('kind = "launch"\nargs = 1', "args", "must be a table"),
        ('kind = "launch"\n[args]\nmodel-path = "a\\u0000b"', "args.model-path", "NUL"),
        ('kind = "launch"\nextends = "nowhere"', "extends", "there is no profile"),
        (BASE.replace("description", "gpus = [0, 0]\ndescription"), "gpus", "twice"),
        (BASE.replace('NCCL_DEBUG = "WARN"', 'CUDA_VISIBLE_DEVICES = "0"').replace("desc", "gpus=[0]\ndesc", 1),
         "gpus", "says the same as env.CUDA_VISIBLE_DEVICES"),
        ('kind = "bench"\nconcurrency = [1]\nrate = [2.0]', None, "exclude each other"),
        ('kind = "bench"\ndataset = "sharegpt"', None, "is unknown"),
        ('kind = "bench"\ndriver = "aiperf"', "driver", "must be 'eagletui'"),
        ('kind = "bench"\nconcurrency = [0]', "concurrency.0", "at least 1"),
        ('kind = "bench"\nconcurrency = [1, 4, 1]', None, "twice"),
        ('kind = "bench"\nrate = [2, 2.0]', None, "twice"),
        ('kind = "bench"\nconcurrency = [99999999]', "concurrency.0", "at most 10,000"),
        ('kind = "bench"\nrate = [1e9]', "rate.0", "at most 10,000"),
        ('kind = "bench"\nduration_s = 1e9', "duration_s", "at most 604,800"),
        ('kind = "bench"\nruns = "3"', "runs", "must be a whole number"),
        ('kind = "experiment"\nbench = "nowhere"\narms = [{profile = "x"}]', "arms", "at least 2"),
        (experiment(arms=5), "arms", "room for 4"),
        (experiment("looks = [3, 3]"), None, "looks must grow"),
        (experiment("looks = [2, 5]"), "looks.0", "at least 3"),
        (experiment("looks = [3, 5]\npairs = 4"), None, "the last look is at 5"),
        (experiment("margin = 1.0"), "margin", "less than 1"),
        (experiment("budget_h = 0"), "budget_h", "more than 0"),
        (experiment("budget_h = 1e300"), "budget_h", "at most 8,760"),
        ('kind = "launch"\nstartup_timeout_s = inf\n[args]\nmodel-path = "/m"', "startup_timeout_s", "at most 604,800"),
        (experiment("looks = [3, 1000000000]"), "looks.1", "at most 1,000"),
        (experiment(first='against = "B"'), "arms.0.against", "arm A is the reference"),
        (experiment(last='against = "C"'), "arms.1.against", "arm B can be compared with an earlier arm only, not with 'C'"),
        (experiment(last='against = ""'), "arms.1.against", "not with ''"),
        (experiment(last='againts = "A"'), "arms.1.againts", "unknown key"),
    ],
)  # fmt: skip
def test_one_error_of_each_sort(folder, text, key, words):
    found = errors_of(folder(x=text))
    assert key in found, found
    assert words in found[key][0]


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ('kind = "bench"\nruns = 0\nconcurrency = [2, 2]\nrate = [1.0]\ndataset = "x"', ["runs", None, None, None]),
        ('kind = "bench"\nslo = { share = 2.0 }\nduration_s = "1"', ["duration_s", "slo.share", "slo", None]),
        (
            experiment("margin = 2.0\nlooks = [5, 3]", first='against = "B"', last="set = { foo = 1 }"),
            ["margin", None, "arms.0.against", "arms.1.set"],
        ),
    ],
)
def test_bench_profiles_and_experiments_report_all_their_errors_at_once(folder, text, keys):
    directory = folder(x=text, base=BASE, b='kind = "bench"')
    entry = next(entry for entry in discover([directory]) if entry.name == "x")
    assert [error.key for error in entry.errors] == keys


def test_errors_of_a_file_and_of_its_overrides_are_reported_together(folder):
    with pytest.raises(ProfileBroken) as caught:
        load_launch("x", [folder(x=BASE + "foo = 1\n")], ["bar=1", "x"])
    assert [(error.path.name, error.key) for error in caught.value.errors] == [
        ("x.toml", "args.foo"), ("--set", "x"), ("--set", "bar"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "suggestion"), [("88", "write mem-fraction-static = 0.88"), ("2", None), ("100", None)]
)
def test_a_suggestion_is_plausible_or_absent(folder, value, suggestion):
    with pytest.raises(ProfileBroken) as caught:
        load_launch("x", [folder(x=BASE)], [f"mem-fraction-static={value}"])
    assert caught.value.errors[0].suggestion == suggestion


def test_a_broken_file_blocks_nothing_else(folder):
    directory = folder(bad="kind = [", good=BASE, latin="x")
    (directory / "latin.toml").write_bytes(b'kind = "launch" # \xe9')
    (directory / "dir.toml").mkdir()
    entries = {entry.name: entry for entry in discover([directory])}
    assert [name for name, entry in entries.items() if entry.errors] == ["bad", "dir", "latin"]
    assert load_launch("good", [directory]).arg("tp") == 8


def test_an_error_in_a_file_from_somewhere_never_reaches_the_terminal_raw(folder):
    found = errors_of(folder(x='kind = "launch"\n[args]\nmodel-path = "/m"\n"a\\u001b[31m" = 1'))
    assert not any("\x1b" in str(part) for item in found.items() for part in item)


def test_experiments_name_what_they_need(folder):
    bench = 'kind = "bench"\nconcurrency = [1]'
    good = """
    kind = "experiment"
    bench = "b"
    [[arms]]
    profile = "base"
    [[arms]]
    profile = "base"
    set = { cuda-graph-max-bs = 128 }
    """
    bad = """
    kind = "experiment"
    bench = "bb"
    [[arms]]
    profile = "bas"
    [[arms]]
    profile = "base"
    set = { cuda-graph-max-bz = 128 }
    """
    directory = folder(b=bench, base=BASE, good=good, bad=bad)
    assert errors_of(directory, "good") == {}
    found = errors_of(directory, "bad")
    assert found["bench"] == ('there is no bench profile "bb"', "did you mean b?")
    assert found["arms.0.profile"][1] == "did you mean base?"
    assert "did you mean cuda-graph-max-bs" in found["arms.1.set"][0]


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
    directory = folder(b='kind = "bench"\nconcurrency = [1]', base=BASE, x=text, plain=experiment())
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
    broken = folder("broken", b='kind = "bench"\nconcurrency = [1]', x=experiment())
    with pytest.raises(ProfileBroken, match='no launch profile "base"'):
        load_experiment("x", [broken])


# Finding and merging ---------------------------------------------------------------------------------------------


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
    assert errors_of(directory, "a")["extends"][0] == "goes in a circle: a -> b -> c -> a"
    assert "goes in a circle" in errors_of(folder("self", a='kind = "launch"\nextends = "a"'), "a")["extends"][0]


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


def test_toml_1_1(folder):
    text = 'kind = "launch"\nargs = {\n  model-path = "/m", # comment\n  tp = 2,\n}\n'
    assert load_launch("x", [folder(x=text)]).arg("tp") == 2


# --set -----------------------------------------------------------------------------------------------------------


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


# The command -----------------------------------------------------------------------------------------------------


def test_the_command_of_a_profile(folder):
    built = command(load_launch("x", [folder(x=BASE)], ["gpus=[0,1]"]))
    assert built.argv == (
        "/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "/m", "--tp", "8",
        "--cuda-graph-max-bs-decode", "512", "--json-model-override-args", '{"rope":{"factor":2.0}}',
        "--trust-remote-code", "--port", "30000", "--enable-metrics",
    )  # fmt: skip
    assert built.env == {
        "HF_HOME": "/data/hf", "NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }  # fmt: skip
    assert built.port == 30000
    assert "cuda-graph-max-bs is called --cuda-graph-max-bs-decode since SGLang 0.5.20" in built.notes[0]


def test_metrics_are_switched_on_unless_the_profile_says_otherwise(folder):
    newest = flags_of("0.5.23")

    def flags(sets=(), known=newest, version="0.5.23", text=BASE):
        built = build_command(load_launch("x", [folder(x=text)], sets), HOST, version, known)
        return built.argv.count("--enable-metrics"), METRICS_NOTE in built.notes

    assert flags() == (1, True)
    assert flags(known=None, version=None) == (1, True)  # every version read has it
    assert flags(known=frozenset({"model-path", "tp", "port"})) == (0, False)
    assert flags(["enable-metrics=true"]) == (1, False)
    assert flags(["enable_metrics=false"]) == (0, False)
    assert flags(text='kind = "launch"\ncommand = ["vllm", "serve", "/m"]') == (0, False)


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


def test_values_are_handed_over_byte_for_byte(folder):
    odd = "$HOME `id` 'a' \"b\" ; | * ~ \\ é"
    profile = load_launch("x", [folder(x=BASE)], {"served-model-name": odd, "env.A": odd, "chat-template": "-x"})
    built = command(profile)
    assert built.argv[built.argv.index("--served-model-name") + 1] == odd
    assert built.env["A"] == odd
    assert "--chat-template=-x" in built.argv  # argparse would take a value with a dash for a flag


def test_port_is_the_profiles_own(folder):
    built = command(load_launch("x", [folder(x=BASE)], ["port=30007"]))
    assert built.port == 30007
    assert built.argv.count("--port") == 1


def test_secrets_stay_out_of_argv_and_out_of_the_preview(folder):
    profile = load_launch(
        "x",
        [folder(x=BASE)],
        ["api-key=sk-1", "admin-api-key=sk-2", "env.HF_TOKEN=hf-3", "env.https_proxy=http://u:pw4@proxy:1"],
    )
    built = command(profile)
    shown = render_command(built) + repr(built.argv) + repr(built.env) + repr(built.notes)
    for value in ("sk-1", "sk-2", "hf-3", "pw4"):
        assert value not in shown
    assert built.secret_args == {"api-key": "sk-1", "admin-api-key": "sk-2"}
    assert set(built.secret_env) == {"HF_TOKEN", "https_proxy"}
    assert "HF_TOKEN=••••••••" in shown
    assert "(secret, handed over by file)" in shown
    assert built.open_args == {}


def test_an_old_version_shows_that_the_key_will_be_seen(folder):
    built = build_command(load_launch("x", [folder(x=BASE)], ["api-key=sk-1"]), HOST, "0.5.2", None)
    assert built.secret_args == {}
    assert built.open_words == ("--api-key=sk-1",)
    assert "sk-1" not in render_command(built)
    assert any("visible to everyone" in note for note in built.notes)


def test_a_config_of_the_profiles_own_leaves_no_room_for_ours(folder):
    built = command(load_launch("x", [folder(x=BASE)], ["api-key=sk-1", "config=/c.yaml"]))
    assert built.open_args == {"api-key": "sk-1"}


def test_what_is_stored_holds_no_secret(folder):
    sets = {"api-key": "sk-1", "args.admin_api_key": "sk-2", "env.HF_TOKEN": "hf-3", "tp": 4, "env.A": "b"}
    profile = load_launch("x", [folder(x=BASE)], sets)
    kept = repr(profile.public_args) + repr(public_sets(sets))
    assert not any(value in kept for value in ("sk-1", "sk-2", "hf-3"))
    assert profile.public_args["tp"] == 4
    assert public_sets(sets)["env.A"] == "b"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True), ("HUGGING_FACE_HUB_TOKEN", True), ("OPENAI_API_KEY", True), ("AWS_SECRET_ACCESS_KEY", True),
        ("DB_PASSWORD", True), ("MY_SECRET", True), ("TOKENIZERS_PARALLELISM", False), ("NCCL_DEBUG", False),
        ("SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", False), ("HF_TOKEN_PATH", False),
    ],
)  # fmt: skip
def test_names_of_secrets(name, secret):
    assert is_secret_env(name) is secret


def test_wrapper_and_other_servers(folder):
    text = """
    kind = "launch"
    wrapper = ["numactl", "--membind=0"]
    command = ["/opt/vllm/bin/vllm", "serve", "/m", "--port", "8000"]
    [args]
    tensor-parallel-size = 2
    some_flag = "x"
    """
    built = command(load_launch("x", [folder(x=text)]))
    assert built.argv == (
        "numactl", "--membind=0", "/opt/vllm/bin/vllm", "serve", "/m", "--port", "8000", "--tensor-parallel-size", "2",
        "--some_flag", "x",
    )  # fmt: skip
    assert built.port == 8000


def test_a_container_is_told_about_its_environment(folder):
    text = BASE.replace("description", 'wrapper = ["docker", "run", "-e", "HF_HOME", "img"]\ndescription')
    built = command(load_launch("x", [folder(x=text)]))
    assert built.argv[5] == "python3"
    assert any("docker does not pass on NCCL_DEBUG" in note for note in built.notes)


def test_a_home_in_the_interpreters_path_is_the_hosts(folder):
    entry = HostEntry("h", "h", "~/sg/bin/python")
    built = build_command(load_launch("x", [folder(x=BASE)]), entry, None, None, home="/home/a")
    assert built.argv[0] == "/home/a/sg/bin/python"


def test_rendering_reads_back_as_the_same_words(folder):
    import shlex

    built = command(load_launch("x", [folder(x=BASE)], {"served-model-name": "it's $mine"}))
    words = shlex.split(render_command(built).replace("\\\n", ""))
    assert tuple(words[len(built.env) :]) == built.argv


# Differences and saving ------------------------------------------------------------------------------------------


def test_difference(folder):
    directory = folder(x=BASE)
    a = load_launch("x", [directory])
    b = load_launch("x", [directory], ["tp-size=4", "api-key=sk-1", "trust-remote-code=false", "env.A=b", "gpus=[0]"])
    lines = [(line.sign, line.key, line.old, line.new) for line in profile_difference(a, b)]
    assert lines == [
        ("+", "api-key", None, "••••••••"),
        ("+", "env.A", None, '"b"'),
        ("+", "gpus", None, "[0]"),
        ("~", "tp-size", "8", "4"),
        ("-", "trust-remote-code", "true", None),
    ]
    assert profile_difference(a, a) == ()


def test_saving_never_replaces(tmp_path):
    path = save_profile(BASE, "mine", tmp_path / "new")
    assert load_launch("mine", [tmp_path / "new"]).arg("tp") == 8
    for name, text, slug in (("mine", BASE, "exists"), ("../x", BASE, "bad_name"), ("y", "a = ", "bad_profile")):
        with pytest.raises(UsageError) as caught:
            save_profile(text, name, tmp_path / "new")
        assert caught.value.slug == slug
    assert path.read_text(encoding="utf-8") == BASE


def test_a_saved_secret_is_the_owners_alone(tmp_path):
    path = save_profile(BASE + 'api-key = "sk"\n', "mine", tmp_path)
    assert path.stat().st_mode & 0o077 == 0


# Shipped ---------------------------------------------------------------------------------------------------------

SHIPPED = discover([shipped_profiles_dir()])
LAUNCH = [entry.name for entry in SHIPPED if entry.kind == "launch"]


def test_the_shipped_profiles_are_those_of_the_design():
    kimi = "baseline-bs512 baseline-bs128 eagle3-mem076 eagle3-mem088 flashinfer-fusion custom-allreduce nccl-tree symm-mem ep-a2a"
    assert set(LAUNCH) == {f"kimi-k2.5-{name}" for name in kimi.split()} | {"qwen3-0.6b-one-gpu"}
    bench = {entry.name for entry in SHIPPED if entry.kind == "bench"}
    loads = {"decode-bs1", "concurrency-sweep", "speculation-real-prompts", "prefill-heavy", "capacity-ttft-tpot"}
    assert bench == loads | {"all-reduce"}
    experiments = {entry.name for entry in SHIPPED if entry.kind == "experiment"}
    assert experiments == {"graphs-bs512-vs-bs128", "does-eagle-pay"}
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
