"""Do two configurations answer alike? Replies held against each other, and what verdicts and exports say of it."""

import gzip
import json
import random
from dataclasses import replace

import pytest
from click.testing import CliRunner
from scipy import stats as oracle

from tests.support.rows import row
from tui.cli import cli
from tui.core.experiment import record as experiment_record
from tui.core.experiment.export.formats import FORMATS
from tui.core.experiment.history import configurations, side_by_side
from tui.core.experiment.record import ExperimentRecord, all_rounds
from tui.core.experiment.so_far import verdicts_of
from tui.core.model.experiment import ArmStatus
from tui.core.model.profile import BenchProfile, ExperimentArm, ExperimentProfile, LoadPoint
from tui.core.results import store
from tui.core.verdicts import same_text as module
from tui.core.verdicts.same_text import fact, reason, replies, same_text


def line(prompt, ids=None, texts=None, *, toks=None, k1=1, finish="stop", err=None, item=7):
    """A row of the load generator, as it writes it."""
    toks = [1] * (len(texts or ids) - 1) if toks is None else toks
    answered = {"item": item, "prompt": prompt, "ids": ids, "texts": texts}
    document = row(k1=k1, gaps_ms=[1.0] * len(toks), toks=toks, finish=finish, err=err) | answered
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def run(*answers, **more):
    """A run whose n-th prompt got the n-th answer: token ids, or the texts of chunks."""
    kind = "texts" if isinstance(answers[0][0], str) else "ids"
    return list(replies(line(f"{at:016x}", **{kind: list(one)}, **more) for at, one in enumerate(answers)))


def compared(a, b):
    return same_text([[a]], [[b]])


def first_token(a, b):
    return compared(a, b).between.first_token


# ---- two replies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "token"),
    [
        ([5, 6, 7], [5, 6, 7], None),
        ([5, 6, 7], [5, 67, 8], 2),  # a number that begins like the other
        ([5, 6, 7], [50, 6, 7], 1),
        ([5, 6], [5, 6, 7], 3),  # one stops where the other goes on
    ],
)
def test_ids_part_at_a_token(a, b, token):
    assert first_token(run(a), run(b)) == first_token(run(b), run(a)) == token


def test_chunks_of_any_length_hold_the_same_text():
    """What looks like the end of a piece may be in it: `",` is one token of much code."""
    plain = run(['{"a', '",', ' "\\', '\\"', '",é', "\n"])
    drafted = run(['{"a', '", "\\\\"', '",é\n'], toks=[3, 2])
    assert compared(plain, drafted).between.differ == 0


def test_texts_part_at_the_finer_sides_token():
    plain = run(["one", " two", " three", " four", " five"])
    drafted = run(["one", " two three four six"], toks=[4])
    assert first_token(plain, drafted) == first_token(drafted, plain) == 5
    assert first_token(drafted, run(["one two three four seven"], k1=5)) == 2  # not before that
    assert first_token(plain, run(["one two"], k1=2)) == 3
    uncounted = [replace(reply, tokens=None) for reply in drafted]
    assert first_token(plain, uncounted) == 5
    assert compared(uncounted, uncounted).between.differ == 0


def test_a_cut_reply_is_compared_up_to_its_end():
    whole = run([5, 6, 7, 8])
    assert compared(run([5, 6], finish="length"), whole).between.differ == 0
    assert compared(whole, run([5, 6], finish="length")).between.differ == 0
    assert first_token(run([5, 9], finish="length"), whole) == 2
    assert first_token(run([5, 6]), run([5, 6, 7, 8], finish="length")) == 3


def test_errors_and_rows_without_replies_are_left_out():
    lines = [
        line("a" * 16, [1], err="reset"),
        line("b" * 16, [1], finish=None),
        json.dumps(row()).encode(),
        b'{"meta": {}}\n',
    ]
    assert [reply.prompt for reply in replies(lines)] == ["b" * 16]
    assert compared(run([1]), run(["text"])) is None
    assert compared([], run([1])) is None


def test_a_row_may_have_its_keys_in_any_order_and_spaces():
    document = json.loads(line("a" * 16, [5, 6], item=3))
    turned = json.dumps(dict(reversed(document.items())), indent=1).replace("\n", " ").encode()
    assert list(replies([turned])) == list(replies([line("a" * 16, [5, 6], item=3)]))
    assert list(replies([b'{"err": null, "ids": "x", "texts": null}', b"[1]", b"{"])) == []


def test_an_empty_reply_is_a_reply():
    assert compared(run(["text"], ["text"]), run([""], ["text"])).between.differ == 1
    assert compared(run([""]), run([""])).between.differ == 0


# ---- beyond A's own ---------------------------------------------------------------------------------------------------


def answers(changed=(), prompts=40, at=100):
    """A run in which some prompts get another answer from a token on."""
    return run(*([n] * (at - 1) + [9 if n in changed else 8] * 5 for n in range(prompts)))


def test_b_changes_the_text_where_more_differs_than_a_by_itself():
    steady = [[answers()], [answers()], [answers()]]
    found = same_text(steady, [[answers(range(12))], [answers(range(14))], [answers(range(12))]])
    assert (found.between.replies, found.between.differ, found.between.prompts) == (120, 38, 40)
    assert (found.own.replies, found.own.differ, found.own_of) == (80, 0, "launches")
    assert found.changes
    assert found.p == pytest.approx(oracle.fisher_exact([[12, 28], [0, 40]], "greater").pvalue)
    assert fact(found, "A") == "replies: 38 of 120 differ (A against itself: 0 of 80), first at token 100, median 100"
    assert reason(found, "A", "B") == (
        "B changes the text: 38 of 120 replies differ, A against itself 0 of 80 (p < 0.001, over prompts), "
        "first at token 100, median 100: rounding in other kernels can be the cause"
    )
    alike = same_text(steady, steady)
    assert (alike.changes, alike.between.differ, fact(alike, "A")) == (
        False,
        0,
        "replies: 0 of 120 differ (A against itself: 0 of 80)",
    )


def test_what_a_does_by_itself_is_no_change():
    noisy = [[answers(range(10))], [answers(range(5, 15))], [answers(range(10, 20))]]
    found = same_text(noisy, [[answers(range(5, 15))], [answers(range(10, 20))], [answers(range(20, 30))]])
    assert found.own.differ
    assert found.between.differ
    assert found.changes is False


def test_one_launch_that_answers_as_a_does_clears_b():
    """Where launches draw another kernel now and then, prompts alone would accuse B."""
    steady = [[answers()], [answers()], [answers()]]
    found = same_text(steady, [[answers(range(30))], [answers(range(30))], [answers()]])
    assert found.p < 0.001
    assert found.changes is False


def test_runs_of_a_single_launch_are_a_yardstick():
    found = same_text([[answers(), answers({1})]], [[answers(range(20)), answers(range(20))]])
    assert (found.own_of, found.own.replies, found.own.differ, found.changes) == ("runs", 40, 1, True)
    assert "(A against itself: 1 of 40, runs of one launch)" in fact(found, "A")


def test_without_a_yardstick_only_much_and_early_is_a_change():
    late = compared(answers(), answers(range(30)))
    assert (late.own, late.p, late.changes) == (None, None, None)
    assert fact(late, "A") == "replies: 30 of 40 differ (A against itself: not known), first at token 100, median 100"
    early = compared(answers(at=3), answers(range(30), at=3))
    assert early.changes
    assert reason(early, "A", "B").endswith("first at token 3, median 3: too early for rounding alone")
    assert compared(answers(at=3), answers(range(10), at=3)).changes is None
    assert compared(answers(at=3, prompts=9), answers(range(9), at=3, prompts=9)).changes is None


def test_chance_alone_is_rarely_a_change():
    draw = random.Random(1)

    def launch():
        return [[answers({n for n in range(40) if draw.random() < 0.3})] for _ in range(3)]

    wrong = sum(bool(same_text(launch(), launch()).changes) for _ in range(80))
    assert wrong <= 0.05 * 80


def test_examples_are_the_earliest_and_safe():
    a = run(*([" same"] * n + [" yes"] for n in range(1, 9)))
    b = run(*([" same"] * n + ["\x1b[31m\n no"] for n in range(1, 9)))
    examples = compared(a, b).examples
    assert [(example.item, example.token) for example in examples] == [(7, 2), (7, 3), (7, 4)]
    assert (examples[0].a, examples[0].b) == ("same yes", "same no")


def test_what_is_held_of_a_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 3 * answers()[0].size)
    assert same_text([[answers()], [answers()]], [[answers()], [answers()]]).between.prompts == 3


# ---- with a verdict ---------------------------------------------------------------------------------------------------

SECRET = "the reply of a private prompt"


def store_launch(make_launch, profile, at, texts, **more):
    """A launch whose run answered 20 prompts with these texts; the id of its result."""
    (result,) = make_launch(profile, at, [100.0 + at / 10], **more)
    result = replace(result, load=replace(result.load, temperature=0.0))
    lines = [line(f"{n:016x}", texts=[SECRET, texts, str(n)]) for n in range(20)]
    store.write(result, gzip.compress(b"".join(lines)), {"label": "c1"})
    return result.result_id


@pytest.fixture
def stored(make_launch):
    """stored(B's texts): three pairs, ABBAAB."""

    def write(texts, **more):
        for at, letter in enumerate("ABBAAB"):
            said = texts if letter == "B" else " plain"
            store_launch(make_launch, "base" if letter == "A" else "draft", at, said, **(more if letter == "B" else {}))

    return write


def compare_json(*words):
    done = CliRunner().invoke(cli, ["compare", "base", "draft", "--json", *words])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_compare_says_whether_the_text_is_the_same(stored):
    stored(" plain")
    said = compare_json()
    assert said["facts"][-1] == "replies: 0 of 60 differ (A against itself: 0 of 40)"
    assert said["same_text"]["between"] == {
        "replies": 60, "differ": 0, "prompts": 20, "prompts_differ": 0, "first_token": None, "median_token": None
    }  # fmt: skip
    assert (said["same_text"]["changes"], said["reasons"]) == (False, [])
    stored(" drafted")
    changed = compare_json()
    assert changed["verdict"] == said["verdict"]
    assert changed["text"] == said["text"] + " · B changes the text"
    assert changed["same_text"]["changes"] is True
    assert changed["same_text"]["examples"][0]["b"].endswith("drafted0")
    assert changed["reasons"] == [
        "B changes the text: 60 of 60 replies differ, A against itself 0 of 40 (p < 0.001, over prompts), "
        "first at token 2, median 2: too early for rounding alone"
    ]


def test_nothing_is_said_where_replies_need_not_be_alike(stored):
    stored(" drafted", env={"SGLANG_SIMULATE_ACC_LEN": "3"})
    done = CliRunner().invoke(cli, ["compare", "base", "draft", "--json"])
    assert json.loads(done.stdout)["same_text"] is None
    stored(" drafted")
    for result in store.read_all():
        store.write(replace(result, load=replace(result.load, temperature=0.7)))
    assert compare_json()["same_text"] is None


def test_damaged_rows_are_told(stored):
    stored(" plain")
    name = store.read_all()[0].result_id
    (store.FILES.directory / f"{name}.rows.jsonl.gz").write_bytes(b"no gzip")
    assert compare_json()["facts"][-1].startswith(f"replies: not compared, the rows of {name} are damaged")


def test_rows_are_read_once_for_each_pair_of_sides(stored, monkeypatch):
    stored(" drafted")
    [verdict] = side_by_side(configurations("gpu1")).verdicts
    assert verdict.same_text.changes
    monkeypatch.setattr(store, "row_lines", lambda name: pytest.fail(f"read {name} again"))
    assert side_by_side(configurations("gpu1")).verdicts == (verdict,)


def test_an_experiment_keeps_it_with_its_verdicts(make_launch):
    arms = (ExperimentArm("A", "base"), ExperimentArm("B", "draft", against="A"))
    profile = ExperimentProfile("x", "decode-bs1", arms)
    bench = BenchProfile("decode-bs1", (LoadPoint(1),))
    record = ExperimentRecord("x-1", "gpu1", profile, bench, 1, all_rounds(3, "AB", 1))
    for cell in record.cells:
        place = {"experiment": "x-1", "arm": cell.arm, "pair": cell.pair}
        name = store_launch(make_launch, "base", cell.number, " drafted" if cell.arm == "B" else " plain", **place)
        record = record.with_cell(replace(cell, status=ArmStatus.MEASURED, result_ids=(name,)))
    record = replace(record, verdicts=verdicts_of(record, {r.result_id: r for r in store.read_all()}))
    assert record.verdicts[0].same_text.changes
    assert record.verdicts[0].text.endswith(" · B changes the text")
    experiment_record.write(record)
    assert experiment_record.read("x-1").verdicts == record.verdicts


def test_exports_say_it_and_hold_no_reply(stored):
    stored(" drafted")
    results = store.read_all()[::-1]
    texts = {form.name: form.export(results, results).decode() for form in FORMATS}
    assert "B changes the text" in texts["markdown"]
    assert "B against A, replies: 60 of 60 differ" in texts["markdown"]
    for exported in texts.values():
        assert SECRET not in exported
        assert "drafted" not in exported
