"""Exports: what they say, and that no cell becomes a formula, a column, markup or a secret."""

import csv
import io
import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from tui.cli import cli
from tui.core.experiment import history
from tui.core.experiment.export.formats import FORMATS, Format, format_named
from tui.core.experiment.export.groups import groups
from tui.core.model.result import Guard, GuardStatus, Throughput
from tui.core.results import store
from tui.core.results.external.reading import read_posted
from tui.panel.bench_view import compare

COMMAND = Path(sys.executable).parent / "eagletui"
ARGV = ("python", "-m", "sglang.launch_server", "--tp", "8", "--api-key", "sk-secret-secret")


@pytest.fixture
def measured(make_launch):
    """Three launches of a baseline and of EAGLE-3, interleaved; one invalid run beside them."""
    found = []
    for pair in range(3):
        found += make_launch("base", 2 * pair, [82.0 + pair * 0.1, 82.2], experiment="e1", arm="A", pair=pair + 1,
                             argv=ARGV, gpus=("H200",) * 8, driver="570.1")  # fmt: skip
        found += make_launch("eagle", 2 * pair + 1, [89.0 + pair * 0.1, 89.4], experiment="e1", arm="B", pair=pair + 1,
                             tau=2.4, cycle_ms=26.9, argv=ARGV, sets={"cuda-graph-max-bs": 128})  # fmt: skip
    guard = Guard("cache", GuardStatus.FAILED, "3.0% of the prompt tokens came from the prefix cache", 0.03, 0.01)
    found.append(replace(found[-1], result_id="bench-bad", valid=False, guards=(guard,)))
    return found


def export(form: str, results, stored=()) -> str:
    return format_named(form).export(results, stored).decode()


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_table_says_what_was_compared_and_on_what_it_rests(measured):
    text = export("markdown", measured, measured)
    table = [line for line in text.splitlines() if line.startswith("| A |") or line.startswith("| B |")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert cells[0][:5] == ["A", "base", "decode-bs1", "conc 1", "82.1"]
    assert cells[0][6:8] == ["L2", "3 × 2"]
    low, high = map(float, cells[0][5].split(" … "))
    assert low < 82.15 < high
    assert cells[1][1] == "eagle (cuda-graph-max-bs=128)"
    assert cells[1][-1] == "2.40"
    assert "- B is 8." in text
    assert "% faster than A" in text
    assert "B: 1 run left out: 3.0% of the prompt tokens came from the prefix cache" in text
    assert "8 × H200; driver 570.1" in text
    assert "server 0.5.23" in text
    assert "python -m sglang.launch_server --tp 8 --api-key" in text


def test_one_launch_has_no_interval(make_launch):
    text = export("markdown", make_launch("base", 1, [82.0, 82.5]))
    row = next(line for line in text.splitlines() if line.startswith("| A |"))
    assert "| – | L1 | 1 × 2 |" in row
    single = export("markdown", make_launch("base", 1, [82.0]))
    assert "| L0 | 1 × 1 |" in single


def test_a_csv_has_a_row_a_result_and_the_flat_columns(measured):
    rows = rows_of(export("csv", measured))
    assert len(rows) == len(measured)
    assert float(rows[0]["per_user_tok_s"]) == 82.0
    assert (rows[0]["level"], rows[0]["launches"]) == ("L2", "3")
    assert float(rows[0]["per_user_tok_s_low"]) < 82.2 < float(rows[0]["per_user_tok_s_high"])
    assert rows[0]["accept_length"] == ""
    assert rows[-1]["valid"] == "false"
    assert rows[-1]["level"] == ""
    assert json.loads(rows[2]["sets"]) == {"cuda-graph-max-bs": 128}


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_no_secret_leaves(measured, form: Format):
    server = replace(measured[0].server, env={"HF_TOKEN": "hf_abcdefghijklmnopqrst"},
                     args={"api_key": "sk-other-secret"}, sets={"api-key": "sk-third-secret"})  # fmt: skip
    noted = replace(measured[0], server=server, notes=("see https://u:hunter2@example.org/",))
    text = form.export([noted, *measured[1:]], ()).decode()
    assert not any(secret in text for secret in ("sk-secret", "sk-other", "sk-third", "hf_abcdef"))
    if form.name != "jsonl":  # whole records keep what a person wrote
        assert "hunter2" not in text


@pytest.mark.parametrize("evil", ["=HYPERLINK(1)", "+1+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_no_cell_is_a_formula(measured, evil):
    result = replace(measured[0], bench=evil, server=replace(measured[0].server, profile=evil))
    (row,) = rows_of(export("csv", [result]))
    assert row["bench"].startswith("'")
    assert row["profile"].startswith("'")


def test_numbers_are_no_formulas(measured):
    (row,) = rows_of(export("csv", [replace(measured[0], throughput=Throughput(per_user_tok_s=-1.5))]))
    assert row["per_user_tok_s"] == "-1.5"


def test_no_text_becomes_markup(measured):
    evil = "a|b<img src=x>`c`[d](http://e)@team\n| x |"
    server = replace(measured[0].server, profile=evil, argv=("echo", "```\n# heading", "</sub>"))
    text = export("markdown", [replace(measured[0], bench=evil, server=server)])
    row = next(line for line in text.splitlines() if line.startswith("| A |"))
    assert len(row.replace("\\|", "").strip("|").split("|")) == 12
    assert not any(bad in row for bad in ("<img", "`", "@team", "'[d]"))
    assert "\n````sh\n" in text  # a fence that its content cannot end
    assert "\n# heading" not in text


class Page(HTMLParser):
    """What a browser would find in a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.texts.append(data)


def test_a_page_has_verdicts_every_run_and_the_break_even(measured):
    page = Page(export("html", measured))
    text = " ".join(" ".join(page.texts).split())
    assert "B is 8.6 % faster" in text
    assert "B pays from accept length 2.21" in text
    assert "1 run left out: 3.0% of the prompt tokens came from the prefix cache" in text
    dots = [attributes for tag, attributes in page.tags if tag == "circle" and attributes["r"] == "5"]
    assert len(dots) == sum(result.valid for result in measured)
    assert "8 × H200" in text
    data = re.search('id="results">(.*)</script>', export("html", measured))
    assert [each["result"] for each in json.loads(data[1])] == [
        result.result_id for result in sorted_by_group(measured)
    ]


def sorted_by_group(results):
    return [result for group in groups(results) for result in group.results]


def test_a_page_fetches_nothing_and_runs_nothing(measured):
    evil = "</script><script>alert(1)</script><img src=http://evil/x onerror=alert(1)>\x1b[31m"
    server = replace(measured[0].server, profile=evil, argv=("echo", evil, "&lt;"))
    text = export("html", [replace(measured[0], bench=evil, server=server), *measured[1:]])
    page = Page(text)
    names = {tag for tag, _ in page.tags}
    assert not names & {"img", "link", "iframe", "object", "base", "a", "form"}
    assert [attributes["type"] for tag, attributes in page.tags if tag == "script"] == ["application/json"]
    assert not any(key.startswith("on") or key in ("src", "href") for _, attributes in page.tags for key in attributes)
    assert "default-src 'none'" in text
    assert "\x1b" not in text
    assert "url(" not in text


def test_a_page_of_one_run_and_of_none_that_counts(measured):
    assert "Every run" in export("html", measured[:1])
    text = export("html", measured[-1:])
    assert "Every run" not in text
    assert "1 run left out" in text


def test_whole_records_come_back(measured):
    assert [found.result for found in read_posted(export("jsonl", measured)).records] == [
        store.without_secrets(result) for result in measured
    ]


# -- the command ------------------------------------------------------------------------------------------------------


def eagletui(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_the_command_lists_imports_and_exports(measured, tmp_path):
    for result in measured:
        store.write(result)
    listed = json.loads(eagletui("results", "--json").stdout)
    assert len(listed) == len(measured)
    assert json.loads(eagletui("results", "list", "--profile", "eagle", "--json").stdout)[0]["profile"] == "eagle"
    assert json.loads(eagletui("results", "--host", "nowhere", "--json").stdout) == []
    shown = eagletui("results").stdout.splitlines()
    assert len(shown) == len(measured) + 1
    assert any("✗ invalid: 3.0% of the prompt tokens" in line for line in shown)

    file = tmp_path / "out.csv"
    eagletui("results", "export", "--format", "csv", "--output", str(file), "base")
    assert {row["profile"] for row in rows_of(file.read_text())} == {"base"}
    assert "| A | base |" in eagletui("results", "export", "base", "eagle").stdout
    unknown = eagletui("results", "export", "nothing", code=2)
    assert "not a stored result" in unknown.stderr


def test_the_command_imports(tmp_path):
    data = Path(__file__).parents[2] / "data" / "bench" / "inputs"
    file = data / "bench-recorded-details.jsonl"
    dry = json.loads(eagletui("results", "import", str(file), "--dry-run", "--json").stdout)
    assert json.loads(eagletui("results", "--json").stdout) == []
    done = eagletui("results", "import", str(file), "--host", "gpu1", "--profile", "base")
    assert "1 result stored" in done.stderr
    (stored,) = json.loads(eagletui("results", "--json").stdout)
    assert (stored["host"], stored["profile"]) == ("gpu1", "base")
    assert stored["output_tok_s"] == dry[0]["output_tok_s"]
    assert len(store.rows(stored["result"])) == 24
    piped = subprocess.run([COMMAND, "results", "import", "-", "--json"], input=file.read_bytes(),
                           capture_output=True, timeout=60)  # fmt: skip
    assert json.loads(piped.stdout)[0]["result"] == stored["result"]
    strange = eagletui("results", "import", str(data.parent / "foreign" / "perf-analyzer.txt"), code=2)
    assert "perf-analyzer.txt: it is perf_analyzer's report; " in strange.stderr
    assert len(strange.stderr.splitlines()) == 1
    assert len(store.read_all()) == 1
    nothing = tmp_path / "nothing.txt"
    nothing.write_text("no benchmark\n")
    refused = eagletui("results", "import", str(nothing), "--json", code=2)
    document = json.loads(refused.stdout)
    assert document["error"] == "nothing_recognised"
    assert str(nothing) in document["message"]
    assert "Serving Benchmark Result" in document["hint"]
    assert "unknown_file" in eagletui("results", "import", str(tmp_path / "gone"), "--json", code=2).stdout


def test_what_says_no_time_is_listed_exported_compared_and_shown():
    for profile, rate, date in (("base", 80.0, None), ("base", 80.0, "20250828-224128"), ("eagle", 90.0, None)):
        text = json.dumps({"completed": 9, "duration": 11.0 if date else 10.0, "max_concurrency": 1, "output_throughput": rate,
                           "mean_tpot_ms": 1000 / rate, "median_tpot_ms": 1000 / rate, "date": date})  # fmt: skip
        store.write(read_posted(text, host="gpu1", profile=profile).records[0].result)
    listed = CliRunner().invoke(cli, ["results"], catch_exceptions=False).stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["started", "2025-08-28", "–", "–"]
    for form in FORMATS:
        done = CliRunner().invoke(cli, ["results", "export", "--format", form.name], catch_exceptions=False)
        assert done.exit_code == 0
        assert "None" not in done.stdout
    stored = store.read_all()
    assert {row["started"] for row in rows_of(export("csv", stored))} == {"", stored[0].started_at}
    compared = CliRunner().invoke(
        cli, ["compare", "base", "eagle", "--host", "gpu1", "--metric", "output_tok_s"], catch_exceptions=False
    )
    assert "12.5 %" in compared.stdout
    state = history.newest("gpu1")
    assert state is not None
    assert state.started_at == stored[0].started_at
    assert len(compare(state).arms) == 2


def test_damaged_rows_of_one_result_keep_no_other_from_being_computed(tmp_path):
    file = Path(__file__).parents[2] / "data" / "bench" / "inputs" / "bench-recorded-details.jsonl"
    eagletui("results", "import", str(file))
    whole = store.read_all()[0]
    damaged = replace(whole, result_id="damaged")
    store.write(damaged, b"no gzip")
    assert json.loads(eagletui("results", "recompute", "damaged", "--json", code=1).stdout)["error"] == "broken_rows"
    done = eagletui("results", "recompute", "--json", code=1)
    assert json.loads(done.stdout) == []
    assert "the rows of damaged are damaged" in done.stderr
