"""Files of profiles: all errors at once, with key and what was meant."""

import pytest

from tests.support.profiles import BASE, errors_of
from tui.core.profiles.files import ProfileBroken
from tui.core.profiles.load import discover, load_launch


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
        ('kind = "launch"\n[args]\nmodel-path = "a\\u0000b"', "args.model-path", "U+0000"),
        ('kind = "launch"\nextends = "nowhere"', "extends", "there is no profile"),
        (BASE.replace("description", "gpus = [0, 0]\ndescription"), "gpus", "twice"),
        (BASE.replace('NCCL_DEBUG = "WARN"', 'CUDA_VISIBLE_DEVICES = "0"').replace("desc", "gpus=[0]\ndesc", 1),
         "gpus", "duplicates env.CUDA_VISIBLE_DEVICES"),
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
        (experiment(arms=33), "arms", "room for 32"),
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


@pytest.mark.fault(
    "F5", "a profile that no parser takes", sees="it in the list of what is broken", holds="the others load"
)
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


def test_toml_1_1(folder):
    text = 'kind = "launch"\nargs = {\n  model-path = "/m", # comment\n  tp = 2,\n}\n'
    assert load_launch("x", [folder(x=text)]).arg("tp") == 2


@pytest.mark.parametrize(
    ("line", "key", "message"),
    [
        (r'description = "a\u001b]52;c;aGFo\u0007"', "description", "U+001B at character 2"),
        (r'hypothesis = "\u009b31m"', "hypothesis", "U+009B at character 1"),
        (r'wrapper = ["nice", "a\u007f"]', "wrapper.1", "U+007F at character 2"),
        (r'env = { A = "x\u202e" }', "env.A", "U+202E at character 2"),
        (r'args = { "tp\u001b[0m" = 1 }', "args.tp", "U+001B in its name"),
        (r'args = { dtype = "\r" }', "args.dtype", "U+000D at character 1"),
    ],
)
@pytest.mark.fault("F3", "escape sequences in a profile", sees="file, key and place", holds="refused on load")
def test_what_a_terminal_would_obey_is_refused(folder, line, key, message):
    found = errors_of(folder(x=f'kind = "launch"\n{line}\n'))
    assert {name: message in said[0] for name, said in found.items()} == {key: True}


def test_a_newline_and_a_tab_are_text(folder):
    directory = folder(base=BASE, x='kind = "launch"\nextends = "base"\nhypothesis = "one\\n\\ttwo"\n')
    assert load_launch("x", [directory]).hypothesis == "one\n\ttwo"


def test_an_override_is_text_of_a_stranger_too(folder):
    with pytest.raises(ProfileBroken, match=r"dtype: holds the control character U\+001B at character 7"):
        load_launch("base", [folder(base=BASE)], ["dtype=\x1b[31m"])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("9" * 5000, "holds a number of thousands of digits"),
        ("[" * 3000 + "]" * 3000, "is nested too deeply"),
        ("{a=" * 3000 + "1" + "}" * 3000, "is nested too deeply"),
    ],
)
def test_a_file_that_cannot_be_read_hides_no_other(folder, value, message):
    directory = folder(base=BASE, x=f'kind = "launch"\nargs = {{ tp = {value} }}\n')
    broken = {entry.name: [error.message for error in entry.errors] for entry in discover([directory])}
    assert broken == {"base": [], "x": [message]}


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 3000 + "]" * 3000])
def test_an_override_that_no_toml_reader_takes_is_text(folder, value):
    with pytest.raises(ProfileBroken) as caught:
        load_launch("base", [folder(base=BASE)], [f"tp={value}"])
    assert caught.value.errors[0].key == "tp"
