"""Results, comparisons and exports on the command line: filters, what may be concluded, and where it was measured."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from tests.support.stored import measured
from tui.cli import cli
from tui.core.model.result import Counts, MeasuredServer, Throughput
from tui.core.model.verdict import ArmFigure, Verdict, VerdictKind
from tui.core.results import store

SIMULATED = "SIMULATED: measured on eagletui's simulated host"


def result(number: int, profile: str, bench: str = "decode", host: str = "demo", tok_s: float = 80.0):
    made = measured(number)
    server = MeasuredServer(host, profile=profile, run_id=f"{profile}-2026110{number}T090000Z-4f9c2{number}", model="m")
    return replace(
        made,
        result_id=f"{bench}-2026110{number}T100000Z-abc12{number}-c4-1",
        bench=bench,
        server=server,
        counts=Counts(ok=30),
        throughput=Throughput(per_user_tok_s=tok_s),
        guards=(),
        suspicious=(),
    )


@pytest.fixture
def stored():
    for one in (
        result(1, "base"),
        result(2, "eagle", tok_s=90.0),
        result(3, "base", "prompts"),
        result(4, "eagle", "prompts", tok_s=60.0),
        result(5, "other", "alone", "gpu1"),
    ):
        store.write(one)


def run(*words: str):
    return CliRunner().invoke(cli, words)


def test_a_comparison_is_of_the_bench_that_is_asked_for(stored):
    newest = json.loads(run("compare", "base", "eagle", "--json").stdout)
    older = json.loads(run("compare", "base", "eagle", "--bench", "decode", "--json").stdout)
    assert (newest["ratio"], older["ratio"]) == (pytest.approx(60 / 80), pytest.approx(90 / 80))
    refused = run("compare", "base", "eagle", "--bench", "alone", "--json")
    assert "A (base) was not measured with alone" in refused.exception.message
    assert refused.exception.hint == "it was with decode, prompts"
    nothing = run("breakeven", "base", "eagle", "--bench", "alone", "--json")
    assert "was not measured with alone" in nothing.exception.message


def test_a_screening_concludes_nothing(stored):
    said = json.loads(run("compare", "base", "eagle", "--json").stdout)
    assert (said["level"], said["verdict"], said["conclusion"]) == ("L0", "indistinct", "screening")


@pytest.mark.parametrize(
    ("kind", "mde", "said"),
    [
        (VerdictKind.INDISTINCT, 0.02, "indistinct"),
        (VerdictKind.FASTER, 0.02, "faster"),
        (VerdictKind.INVALID, None, "invalid"),
        (VerdictKind.LOOKS_FASTER, None, "screening"),
        (VerdictKind.INDISTINCT, None, "screening"),  # also an experiment that waits for its pairs
    ],
)
def test_what_may_be_concluded(kind, mde, said):
    figure = ArmFigure("a", 1.0, 3)
    assert Verdict("m", figure, figure, 1.0, None, 3, "L2", kind, "…", mde=mde).conclusion == said


def test_the_simulated_host_is_named_wherever_its_figures_are(stored):
    assert SIMULATED in run("results").output
    assert SIMULATED in run("compare", "base", "eagle").output
    assert json.loads(run("compare", "base", "eagle", "--json").stdout)["simulated_host"] is True
    rows = json.loads(run("results", "--json").stdout)
    assert {(row["host"], row["simulated_host"]) for row in rows} == {("demo", True), ("gpu1", False)}
    assert f"- {SIMULATED}" in run("results", "export", "base").output
    assert "SIMULATED: " in run("results", "export", "base", "--format", "html").output
    assert "on demo (SIMULATED)" in run("results", "export", "base").output
    assert "simulated_host" in run("results", "export", "--format", "csv").output.splitlines()[0]
    for real in (run("results", "--host", "gpu1"), run("results", "export", "other")):
        assert "SIMULATED" not in real.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bench", "nosuch"), "no stored result is of bench nosuch; there are of alone, decode, prompts"),
        (("--host", "gpu9"), "no stored result is of host gpu9; there are of demo, gpu1"),
        (("--profile", "other", "--host", "demo"), "no stored result is of host demo, profile other together"),
    ],
)
def test_a_filter_that_fits_nothing_says_which_and_what_would(stored, words, said):
    for more in ((), ("--json",)):
        done = run("results", *words, *more)
        assert (done.exit_code, done.stderr.strip()) == (0, said)
        assert done.stdout.strip() == ("[]" if more else "")


def test_nothing_stored_is_said():
    assert "nothing is stored" in run("results", "--bench", "x").stderr
