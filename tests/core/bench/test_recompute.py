"""Stored results computed again from their rows."""

import contextlib
import gzip
import json
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.rows import meta, row
from tests.support.stored import measured
from tui.cli import cli
from tui.core.bench.guards import ServerChecks, judge
from tui.core.bench.metrics import figures
from tui.core.bench.recompute import recompute
from tui.core.bench.server_args_check import Difference
from tui.core.errors import EagletuiError
from tui.core.model.result import Guard, GuardStatus, Result, Throughput
from tui.core.records import to_json
from tui.core.results import store


def judged(number: int = 1, rows=None, checks=None, **told) -> Result:
    """A run as it is stored, with its rows: 20 replies of one user, a GPU to two of which the rate is shared."""
    rows = [row(n, send=0.6 * n, first=0.6 * n + 0.2, gaps_ms=[10] * 40) for n in range(20)] if rows is None else rows
    told = meta([0.2, 12.0], warmup={"stable": False}, **told)
    found = figures(rows, told, gpus=2)
    checks = checks or ServerChecks((Difference("max-running-requests", "64", "48", adjusted=True),), env={})
    verdict = judge(rows, told, found, checks)
    result = measured(
        number,
        window=found.window,
        duration_s=found.duration_s,
        counts=found.counts,
        throughput=found.throughput,
        latencies=found.latencies,
        speculation=found.speculation,
        gpu=found.gpu,
        client=found.client,
        guards=verdict.guards,
        valid=verdict.valid,
        suspicious=verdict.suspicious,
    )
    text = "".join(json.dumps(each) + "\n" for each in rows)
    store.write(result, gzip.compress(text.encode()), told)
    return result


def command(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, ["results", "recompute", *words], catch_exceptions=False, standalone_mode=False)
    return done.return_value, done.stdout, done.stderr


def without(result: Result, name: str) -> Result:
    """As it was stored when there was no such guard."""
    return replace(result, guards=tuple(guard for guard in result.guards if guard.id != name), valid=True)


def test_what_nothing_has_changed_for_stays_as_it_is():
    result = judged()
    before = (store.FILES.directory / f"{result.result_id}.json").stat()
    assert recompute(result) == result
    assert command() == (0, "", "1 looked at, 0 changed\n")
    assert (store.FILES.directory / f"{result.result_id}.json").stat() == before


def test_a_run_that_the_guards_of_today_refuse_is_no_longer_valid():
    rows = [row(n, send=0.6 * n, first=0.6 * n + 0.2, gaps_ms=[10] * 40, out=71 if n < 8 else 41) for n in range(20)]
    store.write(without(judged(1, rows), "chunks"))
    whole = judged(2)
    code, said, summary = command()
    assert code == 0
    assert said == (
        "decode-20261101T100000Z-abc121-c4-1 is no longer valid: 8 of 20 replies were counted wrongly by chunk: "
        "328 tokens in their chunks, 568 in the replies (limit 0)\n"
    )
    assert summary == "2 looked at, 1 changed, 1 no longer valid\n"
    first = store.read("decode-20261101T100000Z-abc121-c4-1")
    assert first is not None
    assert not first.valid
    assert store.read(whole.result_id) == whole
    assert command() == (0, "", "2 looked at, 0 changed\n")
    assert len(store.rows(first.result_id)) == 20


def test_a_run_may_be_valid_again_and_figures_are_computed_by_the_rows():
    result = judged()
    lag = Guard("client_lag", GuardStatus.FAILED, "late by 9.00 ms", 9.0, 5.0)
    old = Guard("gone", GuardStatus.FAILED, "a condition of old", 1.0, 0.0)
    store.write(replace(result, guards=(*result.guards, old), valid=False, throughput=Throughput(1.0, 2.0, output_tok_s_per_gpu=1.0)))  # fmt: skip
    code, said, _ = command("--json")
    (changed,) = json.loads(said)
    assert (code, changed["valid"], changed["before"]["valid"]) == (0, True, False)
    assert (changed["before"]["per_user_tok_s"], round(changed["per_user_tok_s"])) == (1.0, 100)
    assert changed["before"]["failed_guards"] == ["a condition of old"]
    assert store.read(result.result_id) == result
    # What cannot be judged any more stays as it was judged.
    kept = tuple(lag if guard.id == "client_lag" else guard for guard in result.guards)
    store.write(replace(result, guards=kept, valid=False))
    assert command() == (0, "", "1 looked at, 0 changed\n")


@pytest.mark.parametrize(
    "checks",
    [
        ServerChecks((Difference("tp-size", "4", "8", adjusted=False),), env={}),
        ServerChecks((), version_meant="0.5.22", version="0.5.23", env={}),
        ServerChecks((), env={"SGLANG_SIMULATE_ACC_LEN": "2.5"}),
        ServerChecks((), env={}, no_graphs="CUDA graphs are switched off for this server"),
        ServerChecks(None),
    ],
)
def test_what_was_judged_by_the_server_is_taken_over(checks):
    graph = {"on": 0, "off": 9} if checks.no_graphs else {"on": 9, "off": 0}
    result = judged(checks=checks, graph=graph)
    assert recompute(result) == result


def test_another_server_in_mid_bench_is_found_in_what_the_run_saw():
    seen = {"first": {"model": "a"}, "after": {"model": "b"}}
    result = judged(checks=ServerChecks((), env={}), server=seen)
    as_it_was = Guard("server", GuardStatus.OK, "the server runs with the arguments it was launched with", 0, 0)
    kept = tuple(as_it_was if guard.id == "server" else guard for guard in result.guards)
    assert recompute(replace(result, guards=kept, valid=True)) == result
    assert not result.valid


def test_imports_are_left_alone_and_damage_to_one_stops_no_other():
    store.write(measured(3))  # without rows
    store.write(measured(4), gzip.compress(b'{"i": 0, "out": 5}\n'))  # of an import
    store.write(measured(5), gzip.compress(b'{"i": 0}\n'), {"window": 5})
    store.write(measured(6), b"no gzip")
    rows = [row(n, send=0.6 * n, gaps_ms=[10] * 40, out=50) for n in range(20)]
    store.write(without(judged(1, rows), "chunks"))
    code, said, summary = command()
    assert code == 1
    assert "20 of 20 replies were counted wrongly by chunk" in said
    assert "the rows of decode-20261105T100000Z-abc125-c4-1 are not those of this version" in summary
    assert "the rows of decode-20261106T100000Z-abc126-c4-1 are damaged" in summary
    assert summary.splitlines()[-1] == (
        "5 looked at, 1 changed, 1 no longer valid, 2 left alone (imports, and results without raw rows), 2 damaged"
    )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_rows_are_computed_or_said_to_be_damaged(data):
    rows = [row(n, send=0.6 * n, gaps_ms=[10] * 4) for n in range(3)]
    told = meta([0.2, 2.0], counters={}, gpu=None, graph=None, warmup={}, client={})
    odd = st.sampled_from([None, -1, 0, 1e300, 10**400, "x", [], {}, [None], True])
    for _ in range(data.draw(st.integers(1, 3))):
        target = data.draw(st.sampled_from([*rows, told]))
        target[data.draw(st.sampled_from(sorted(target)))] = data.draw(odd)
    text = "".join(json.dumps(each) + "\n" for each in rows)
    store.write(measured(), gzip.compress(text.encode()), told)
    with contextlib.suppress(EagletuiError):
        anew = recompute(measured())
        assert anew is None or to_json(anew)
