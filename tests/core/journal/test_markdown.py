"""The journal as Markdown: what others wrote is text and nothing else."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from tests.support.journal_scenes import crash, experiment, ready, result, verdict
from tui.core.experiment.record import Cell
from tui.core.journal import markdown, reading, writing
from tui.core.journal.model import Status
from tui.core.model.experiment import ArmStatus
from tui.core.model.profile import DiffLine
from tui.core.model.verdict import VerdictKind
from tui.core.server.launch_records import Card

RENDER = MarkdownIt("commonmark").enable(["table", "strikethrough"]).render
HOSTILE = [
    "<script>alert(1)</script><img src=x onerror=y>",
    "@octocat please, and mail a@b.com",
    "see https://evil.example/x and www.evil.example, #123, GH-4",
    "[click](http://x) ![i](y) <http://z>",
    "| a | b |\n|---|---|",
    "a\\|b \\\\| c ``|``",
    "`tick` ``two`` \\` `",
    "# heading",
    "- item",
    "1. item",
    "1) item",
    "> quote",
    "--- ",
    "***bold*** __under__ ~~gone~~ $x^2$",
    "&lt;b&gt; &#64;octocat &amp;",
    "\x1b[31mred\x1b[0m \u202eevil",
    "```\nfence",
    "    indented",
    "=====",
]
LIVE = re.compile(r"@\w|https?://|www\.|#\d|GH-\d")


def shown(html: str) -> str:
    """The text of what was rendered outside of code, where GitHub looks for names and links."""
    return re.sub(r"<[^>]*>", "", re.sub(r"<code>.*?</code>", "", html, flags=re.DOTALL))


@pytest.mark.parametrize("text", HOSTILE)
def test_text_of_others_is_text(text):
    html = RENDER(f"- before {markdown.plain(text)}\n- {markdown.plain(text)}\n")
    assert set(re.findall(r"</?(\w+)", html)) <= {"ul", "li"}
    assert not LIVE.search(shown(html))
    wanted = text.split()[0].strip("\x1b")
    if wanted.isalnum():
        assert wanted in html


@pytest.mark.parametrize("text", HOSTILE)
def test_a_table_keeps_its_columns_whatever_stands_in_it(text):
    made = "\n".join(markdown.table(("a", "b", "c"), [(markdown.plain(text), markdown.code(text), "end")]))
    html = RENDER(made)
    assert html.count("<td>") == 3
    assert html.count("<td>end</td>") == 1
    assert set(re.findall(r"</?(\w+)", html)) <= {"table", "thead", "tbody", "tr", "th", "td", "code"}


@given(st.text(alphabet="`|\\<>@#[]()*_~-=+1. a\n&;:/w$!", max_size=40))
def test_no_text_becomes_more_than_text(text):
    html = RENDER(
        "\n".join([f"- {markdown.plain(text)}", "", *markdown.table(("a", "b"), [(markdown.code(text), "end")])])
    )
    assert set(re.findall(r"</?(\w+)", html)) <= {"ul", "li", "table", "thead", "tbody", "tr", "th", "td", "code"}
    assert "<td>end</td>" in html
    assert not LIVE.search(shown(html))


def test_plain_words_stay_readable():
    text = "EAGLE-3 with mem_fraction_static=0.88 is 19.4 % slower (95 % CI 17.7 … 21.1), 89.5 → 72.1 tok/s"
    assert markdown.plain(text) == text


def journal_text() -> str:
    writing.sync()
    return markdown.markdown(reading.read())


def test_the_whole_says_what_was_tried_what_came_of_it_and_how_sure_that_is():
    difference = (DiffLine("+", "enable-symm-mem", None, "true"), DiffLine("~", "mem-fraction-static", "0.84", "0.76"))
    failed = crash(1, "eagle3", "oom_kv_pool", difference=difference, extends="base", gpu_names=("H200",) * 8)
    run = ready(2, "eagle3", sets={"tp": 4}, args={"tp": 4}, gpu_names=("H200",) * 8, driver="580.95.05", torch="2.9.1")
    result(run, 3, 72.1)
    record = experiment(
        4,
        verdict(VerdictKind.SLOWER, facts=("accept length 2.31",)),
        cells=(Cell(1, "B", 1, ArmStatus.MEASURED, run.run_id),),
    )
    writing.note("German prompts", [f"experiment:{record.experiment_id}"], "user1")
    writing.note("about nothing", author="agent")
    done, _ = writing.idea("fp8", author="user1"), writing.idea("again with SM120", author="user1")
    writing.tick(done.id, "done", "it holds", "user1")
    text = journal_text()
    for line in (
        "# Journal",
        "1 hypothesis · 1 settled · 2 dead ends · 2 launches, 1 crashed · best so far 72.1 tok/s per user: `eagle3` (L0)",
        "### ≠ refuted (L2): EAGLE-3 beats the baseline",
        "- B: `eagle3 tp=4`",
        "- **B is slower (95 % CI 17.7 … 21.1 %, 3 launch pairs, paired ABBA)** (L2)",
        "- accept length 2.31",
        "- measured with 8 × H200, driver 580.95.05, torch 2.9.1",
        "## Dead ends",
        "- [ ] again with SM120",
        "## Runs",
    ):
        assert line in text.splitlines()
    assert "`base`: `~mem-fraction-static 0.84 → 0.76, +enable-symm-mem`" in text
    assert "line 1,412: `RuntimeError: no kernel image`" in text
    assert "- [x] fp8 (" in text
    assert text.count("user1: German prompts") == 1
    assert text.index("about nothing") > text.index("## Notes")
    assert failed.run_id[-6:] in text
    html = RENDER(text)
    assert set(re.findall(r"</?(\w+)", html)) <= set("h1 h2 h3 p ul li strong code table thead tbody tr th td".split())


def test_a_hostile_log_profile_and_note_are_only_text():
    for number, text in enumerate(HOSTILE, 1):
        crash(
            number,
            f"p{number}",
            card=Card(text, text, 1, (text,), (text,), {text: text}),
            sets={"x": text},
            stopped_by=text,
        )
        writing.note(text, [text], text)
        writing.settle(writing.hypothesis(text, author=text).id, Status.HELD, text)
        writing.tick(writing.idea(text).id, "done", text)
    html = RENDER(journal_text() + "\n".join(markdown.run(reading.read().runs[0])))
    assert set(re.findall(r"</?(\w+)", html)) <= set(
        "h1 h2 h3 p ul li strong code table thead tbody tr th td br".split()
    )
    assert not LIVE.search(shown(html))
    for row in re.findall(r"<tr>.*?</tr>", html, re.DOTALL):
        assert len(re.findall("<t[dh]>", row)) in (6, 7)


@pytest.mark.parametrize("status", Status)
def test_every_status_has_its_mark(status):
    assert markdown.MARKS[status]


def test_a_run_reopened_shows_its_card():
    run = crash(1, exit_code=1, phase="memory_pool")
    writing.note("as I feared", [f"run:{run.run_id}"], "user1")
    writing.sync()
    text = "\n".join(markdown.run(reading.read().runs[0]))
    for part in (
        run.run_id,
        "phase memory pool, exit code 1",
        "**no kernel for SM120** (TP0)",
        "line 1,412",
        "RuntimeError",
    ):
        assert part in text
    assert "- another backend" in text
    assert "- try `attention-backend=triton`" in text
    assert "as I feared" in text


def test_an_empty_journal():
    assert journal_text() == "# Journal\n\n0 hypotheses · 0 settled · 0 dead ends · 0 launches, 0 crashed\n"
