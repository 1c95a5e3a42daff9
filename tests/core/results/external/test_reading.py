"""Posted benchmarks: figures in a file are the figures of the record, however the file came about."""

import contextlib
import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.core.errors import UsageError
from tui.core.model.result import Result
from tui.core.records import from_json, to_json
from tui.core.results import store
from tui.core.results.external import foreign
from tui.core.results.external.posted import TOOLS
from tui.core.results.external.reading import decode, read_posted
from tui.core.results.flat import flat

TOOLS_READ = {tool: about for tool, about in TOOLS.items() if "what" in about}
DATA = Path(__file__).parents[3] / "data" / "bench"
CASES = [json.loads(line) for line in (DATA / "cases.jsonl").read_text(encoding="utf-8").splitlines()]


def parse(text: str, **of: str) -> list[Result]:
    return [found.result for found in read_posted(text, **of).records]


def records(data: bytes) -> list[dict[str, object]]:
    return [flat(result) for result in parse(decode(data))]


def expected(truth: dict) -> list[dict]:
    return truth.get("records") or truth.get("mtbench") or [truth]


def same(got: object, wanted: object) -> bool:
    if isinstance(wanted, float) and isinstance(got, int | float):
        return math.isclose(got, wanted, rel_tol=1e-9)
    return got == wanted


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_what_is_in_the_file_is_in_the_record(case):
    truth, data = case["truth"], (DATA / case["file"]).read_bytes()
    if "error" in truth:
        with pytest.raises(UsageError) as caught:
            records(data)
        assert caught.value.slug == truth["error"]
        assert "Serving Benchmark Result" in (caught.value.hint or "")
        return
    found = records(data)
    if "count" in truth:
        assert len(found) == truth["count"]
    for got, wanted in zip(found, expected(truth), strict=False):
        for key, value in wanted.items():
            if key in ("count", "records", "mtbench", "spec"):
                continue
            if key == "suspicious":
                assert bool(got["suspicious"]) is value
            else:
                assert same(got.get(key), value), f"{key}: {got.get(key)} is not {value}"


def test_a_finished_pair_is_a_record_in_its_place():
    case = next(case for case in CASES if case["id"] == "bench-speculative-stdout")
    found = records((DATA / case["file"]).read_bytes())
    wanted = case["truth"]["spec"]
    assert len(found) == 3
    assert {key: found[2][key] for key in wanted} == wanted


TEXTS = [
    case
    for case in CASES
    if case["file"].endswith((".txt", ".stdout")) and "utf16" not in case["id"] and "error" not in case["truth"]
]
WRAPPINGS = {
    "crlf": lambda line: line + "\r",
    "padded": lambda line: line.ljust(200),
    "indented": lambda line: "    " + line,
    "quoted": lambda line: "> > " + line,
    "docker": lambda line: "bench-1  | " + line,
    "ci": lambda line: "2026-07-01T09:10:11.1234567Z " + line,
    "logger": lambda line: "\x1b[32mINFO\x1b[0m 2026-08-30 10:11:12,345 [bench.py:42] " + line,
    "rank": lambda line: "[rank0]: " + line,
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("case", TEXTS, ids=lambda case: case["id"])
def test_how_it_was_pasted_changes_no_figure(case, wrapping):
    text = (DATA / case["file"]).read_text(encoding="utf-8")
    wrapped = "\n".join(WRAPPINGS[wrapping](line) for line in text.splitlines())
    plain, again = records(text.encode()), records(wrapped.encode())
    assert again == plain


BLOCKS = [case for case in TEXTS if "Serving Benchmark Result" in (DATA / case["file"]).read_text(encoding="utf-8")]


@pytest.mark.parametrize("case", BLOCKS, ids=lambda case: case["id"])
def test_a_missing_line_takes_its_own_figure_only(case):
    lines = (DATA / case["file"]).read_text(encoding="utf-8").splitlines()
    whole = records("\n".join(lines).encode())[0]
    for left_out, line in enumerate(lines):
        without = records("\n".join(lines[:left_out] + lines[left_out + 1 :]).encode())[0]
        changed = {key for key, value in without.items() if value not in (None, whole.get(key))}
        # Who printed it is told by its lines; what rests on a line that is gone is taken from the next best one.
        assert changed <= {"result", "tool", "suspicious", "valid", "notes"} | {
            "Traffic request rate": {"request_rate", "load"},
            "Drafts": {"accept_length"},
            "Accepted tokens": {"accept_length"},
            "Namespace": {"bench", "dataset"},
        }.get(line.split(":")[0].split("(")[0].strip(), set()), line


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from('{}[]":,=-#.|>()\n\r\x1b 019 aeEnsSfi%\u2028\ud800'), max_size=300))
def test_any_text_is_read_or_refused(text):
    lines = (DATA / "inputs/bench-33108-peaks-p90-p95.txt").read_text().splitlines()
    middle = len(lines) // 2
    for whole in (text, "\n".join([*lines[:middle], text, *lines[middle:]])):
        with contextlib.suppress(UsageError):
            for result in parse(whole):
                json.dumps(to_json(result), allow_nan=False)


KEYS = (
    "backend request_rate max_concurrency completed failed duration total_output_tokens output_throughput"
    " mean_ttft_ms itls ttfts output_lens errors server_info cache_report date accept_length"
)


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(KEYS.split()),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            max_leaves=6,
        ),
    )
)
def test_any_values_in_a_record_are_read_or_left_out(values):
    text = json.dumps({"completed": 1, "duration": 1.0} | values)
    for result in parse(text):
        store.write(result)
        assert store.read(result.result_id) == store.without_secrets(result)


@pytest.mark.parametrize(
    ("figures", "told"),
    [
        ({"median_tpot_ms": 0.002}, True),
        ({"mean_itl_ms": 0.002}, True),
        ({"median_itl_ms": 0.0}, True),
        ({"median_itl_ms": 0.0, "total_output_tokens": 9}, False),  # a token each: there is nothing between
        ({"median_tpot_ms": 0.05, "mean_itl_ms": 0.4}, False),
    ],
)
def test_a_pace_that_no_server_has_is_suspicious(figures, told):
    record = {"completed": 9, "duration": 10.0, "total_output_tokens": 900, "mean_ttft_ms": 9.0}
    (found,) = parse(json.dumps(record | figures))
    assert found.valid
    assert any("which no server has" in text for text in found.suspicious) is told


# -- other tools' results ----------------------------------------------------------------------------------------------

STRANGE = DATA / "foreign"
NAMES = json.loads((STRANGE / "names.json").read_text(encoding="utf-8"))
KNOWN = (DATA / "inputs/bench-6681.txt").read_text(encoding="utf-8").strip()
KNOWN_JSON = (DATA / "inputs/bench-vllm-2024.json").read_text(encoding="utf-8").strip()
UNTITLED = (DATA / "inputs/bench-table-rows.md").read_text(encoding="utf-8").strip()


def strange(name: str) -> str:
    return (STRANGE / name).read_text(encoding="utf-8").strip()


def refusal(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize("form", foreign.FOREIGN, ids=lambda form: form.what)
def test_a_form_is_known_by_each_of_its_examples_and_has_one_for_each_pattern(form):
    written = [example for example in form.examples if example.startswith(("{", "[{"))]
    objects = [each[0] if isinstance(each, list) else each for each in map(json.loads, written)]
    lines = [example for example in form.examples if example not in written]
    assert [foreign.of_object(each) for each in objects] == [form] * len(objects)
    assert [foreign.of_line(line) for line in lines] == [form] * len(lines)
    assert len(objects) == len(form.objects)
    for word, pattern in form.lines.items():
        assert any(word in line and re.search(pattern, line.replace("┃", "|").replace("│", "|")) for line in lines)
    for example in form.examples:
        assert form.what in refusal(example).message


@pytest.mark.parametrize("name", NAMES)
def test_another_tools_result_is_refused_by_its_name(name):
    error = refusal(strange(name))
    assert (error.slug, error.message) == ("foreign_benchmark", NAMES[name])
    assert error.hint


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith((".json", ".jsonl"))])
def test_another_tools_result_is_refused_however_it_was_pasted(name, wrapping):
    text = "\n".join(WRAPPINGS[wrapping](line) for line in strange(name).splitlines())
    assert refusal(text).message == NAMES[name]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("known", [KNOWN, KNOWN_JSON], ids=["block", "json"])
def test_a_known_result_beside_another_tools_is_read_alone_and_whole(name, known):
    alone = parse(known)
    for text in (
        f"{strange(name)}\n{known}",
        f"{known}\n{strange(name)}",
        f"{strange(name)}\n\n{known}\n{strange(name)}",
    ):
        if text.startswith("["):
            continue  # an array is a file of its own
        found = read_posted(text)
        assert [record.result for record in found.records] == alone
        named = re.sub("^it is (a part of )?|, without .*", "", NAMES[name])
        assert [problem for problem in found.problems if named in problem]


@pytest.mark.parametrize("name", ["llama-bench.md", "columns-cut.md", "k6.txt", "locust.csv"])
def test_figures_without_a_title_are_ours_only_apart_from_another_tools(name):
    assert refusal(f"{UNTITLED}\n{strange(name)}").message == NAMES[name]
    assert [record.result for record in read_posted(f"{UNTITLED}\n\n{strange(name)}").records] == parse(UNTITLED)
    assert refusal(f"{strange(name)}\n\n{UNTITLED}").message == NAMES[name]


def test_several_tools_are_all_named():
    error = refusal(strange("k6.txt") + "\n" + strange("guidellm.csv") + "\n" + strange("locust.txt"))
    assert error.message == "it is k6's summary, GuideLLM's CSV and Locust's statistics"


def test_a_copy_of_a_known_block_by_another_tool_has_that_tools_name():
    lines = (DATA / "inputs/bench-vllm-2024.txt").read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("Output token throughput"))
    lines.insert(at, "User throughput (tok/s):                  61.20")
    (found,) = records("\n".join(lines).encode())
    assert (found["tool"], found["user_tok_s"]) == ("tensorrt_llm", 61.2)


OTHERS = [
    case
    for case in CASES
    if expected(case["truth"])[0].get("tool") in TOOLS_READ and not case["file"].endswith(("json", "yaml"))
]


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case["id"])
def test_another_tools_result_beside_a_known_one_keeps_its_name(case):
    other = (DATA / case["file"]).read_bytes().decode().strip()
    alone, known = parse(other), parse(KNOWN)
    assert parse(f"{other}\n\n{KNOWN}") == alone + known
    assert parse(f"{KNOWN}\n\n{other}") == known + alone


@pytest.mark.parametrize("name", ["bench-aiperf.txt", "bench-evalscope-2026.txt", "bench-genai-perf.txt"])
def test_a_table_behind_a_logs_prefix_in_other_text(name):
    text = (DATA / "inputs" / name).read_text(encoding="utf-8").strip()
    prefixed = "\n".join(f"[rank0]: {line}" for line in text.splitlines())
    assert parse(f"Some words first.\n{prefixed}\nAnd some behind.") == parse(text)


def test_yaml_is_read_as_a_file_of_its_own_and_without_merges():
    text = (DATA / "inputs/bench-guidellm.yaml").read_text(encoding="utf-8")
    assert "a part of GuideLLM's output" in refusal(text.replace("duration: 60.0", "")).message
    for other in (f"{text}\n<<: *a\n", f"Some words.\n{text}", text.replace("metrics:", "metrics: [")):
        assert refusal(other).message == "it is GuideLLM's output"


def test_two_tables_of_nearly_the_same_figures_are_two_runs():
    text = (DATA / "inputs/bench-aiperf-wrapped.md").read_text(encoding="utf-8")
    assert len(parse(text + text.replace("7.12", "7.13"))) == 2
    assert len(parse(text + text)) == 1


@pytest.mark.parametrize("case", OTHERS, ids=lambda case: case["id"])
def test_a_part_of_another_tools_result_is_never_half_a_record(case):
    """Wherever it is cut: what is read then is what the whole says of its first figures."""
    lines = (DATA / case["file"]).read_bytes().decode().strip().splitlines()
    whole = [flat(result) for result in parse("\n".join(lines))]
    for length in range(len(lines)):
        with contextlib.suppress(UsageError):
            for got, wanted in zip(parse("\n".join(lines[:length])), whole, strict=False):
                record = flat(got)
                for choice in TOOLS_READ[got.tool.name].get("whole", ()):
                    assert any(key == "verdict" or record[key] is not None for key in choice.split("|")), length
                shared = {key for key, value in record.items() if value is not None} - {"result", "suspicious", "valid"}
                assert {key: record[key] for key in shared} == {key: wanted.get(key) for key in shared}, length


ALL_LINES = sorted(
    {
        line
        for path in (*STRANGE.iterdir(), *(DATA / "inputs").iterdir())
        if path.suffix in (".txt", ".md", ".csv", ".yaml", ".stdout")
        for line in path.read_bytes().decode("utf-8", "replace").splitlines()
        if len(line) < 300
    }
)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_any_mixture_of_lines_is_read_or_refused(data):
    lines = data.draw(st.lists(st.sampled_from(ALL_LINES), max_size=30))
    for _ in range(data.draw(st.integers(0, 6)) if lines else 0):
        at = data.draw(st.integers(0, len(lines) - 1))
        cut = data.draw(st.integers(0, len(lines[at])))
        lines[at] = lines[at][:cut] + data.draw(st.sampled_from(["", "|", "nan", "-1", "9" * 400, "\x00", "{", "\u2028", "│", "1e999"])) + lines[at][cut:]  # fmt: skip
    with contextlib.suppress(UsageError):
        for found in read_posted("\n".join(lines)).records:
            json.dumps(to_json(found.result), allow_nan=False)
            json.dumps(flat(found.result), allow_nan=False)
            assert to_json(from_json(Result, to_json(found.result))) == to_json(found.result)


OBJECTS = [
    json.loads((DATA / case["file"]).read_text(encoding="utf-8")) for case in CASES if case["file"].endswith(".json")
]
JUNK = [
    None,
    True,
    -1,
    10**400,
    math.nan,
    math.inf,
    "",
    "x",
    "1e999",
    [],
    {},
    [[]],
    {"": {}},
    {"percentiles": {"p": []}},
]


def mutated(value, draw):
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(JUNK))
    if isinstance(value, dict):
        return {key: mutated(inner, draw) for key, inner in value.items() if draw(st.integers(0, 19))}
    return [mutated(inner, draw) for inner in value] if isinstance(value, list) else value


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_change_of_a_tools_json_is_read_or_refused(data):
    text = json.dumps(mutated(data.draw(st.sampled_from(OBJECTS)), data.draw))
    with contextlib.suppress(UsageError):
        for found in read_posted(text).records:
            json.dumps(flat(found.result), allow_nan=False)
            assert to_json(from_json(Result, to_json(found.result))) == to_json(found.result)


def test_an_array_of_records_and_a_record_of_ours():
    rows = (DATA / "inputs/bench-speculative-output-jsonl.jsonl").read_text().splitlines()
    assert len(parse("[" + ",".join(rows) + "]")) == 3
    ours = parse(rows[1], host="gpu1")[0]
    assert parse(json.dumps(to_json(ours))) == [ours]


def test_host_profile_and_id():
    text = (DATA / "inputs/bench-2805-partial-failures.txt").read_text()
    first, other = parse(text), parse(text, host="gpu1", profile="base")
    assert (first[0].server.host, first[0].server.profile) == ("posted", None)
    assert (other[0].server.host, other[0].server.profile) == ("gpu1", "base")
    assert other[0].result_id == first[0].result_id  # imported again, it replaces itself
    twice = parse(text + "\n" + text)
    assert [result.result_id for result in twice] == [first[0].result_id, f"{first[0].result_id}-2"]


def test_a_record_without_a_date_has_none():
    undated, dated = parse(
        '{"completed": 1, "duration": 1.0}\n{"completed": 2, "duration": 1.0, "date": "20250828-224128"}'
    )
    assert flat(undated)["started"] is None
    assert str(flat(dated)["started"]).startswith("2025-08-2")
    assert parse(json.dumps(to_json(undated))) == [undated]


def test_rows_of_a_detailed_record():
    found = read_posted((DATA / "inputs/bench-recorded-details.jsonl").read_text())
    rows = found.records[0].rows
    assert len(rows) == 24
    assert all(len(row["gaps_us"]) < row["out"] for row in rows)  # a first chunk may carry two tokens
    assert sum(row["out"] for row in rows) == found.records[0].result.counts.output_tokens


def test_a_cut_record_is_said():
    found = read_posted((DATA / "inputs/bench-truncated.jsonl").read_text())
    assert found.problems == ("line 2 is not a whole JSON object: left out",)


def test_escape_sequences_of_a_record_reach_nobody():
    text = json.dumps({"completed": 1, "duration": 1.0, "backend": "sg\x1b]0;x\x07lang", "tag": "\x1b[31mred"})
    record = flat(parse(text)[0])
    assert "\x1b" not in json.dumps(record)
    assert record["bench"] == "red"


def test_secrets_of_a_server_stay_out_of_the_store():
    text = json.dumps({"completed": 1, "duration": 1.0, "server_info": {"api_key": "sk-very-secret", "version": "1"}})
    result = parse(text)[0]
    store.write(result)
    stored = (store.FILES.directory / f"{result.result_id}.json").read_text()
    assert "sk-very-secret" not in stored


DETAILED = {"backend": "sglang", "completed": 1, "duration": 1.0, "output_lens": [3], "errors": [""]}


@pytest.mark.parametrize(
    "values",
    [
        {"ttfts": [0.1], "itls": [[math.nan, math.inf]]},
        {"ttfts": [10**400], "itls": [[10**400, 1]]},
        {"ttfts": [math.nan], "itls": [[1e308, 1e308]]},
        {"ttfts": [-0.1], "itls": [[1e-320, 0.0]]},
        {"duration": 1e308, "completed": 10**400, "total_output_tokens": 1e300, "output_throughput": 1.0},
        {"model_id": "vllm", "request_goodput": 10**400},
        {"server_info": {"version": "1", "speculative_algorithm": "EAGLE", "speculative_num_steps": 10**400}},
    ],
)
def test_what_no_clock_can_give_is_no_figure(values):
    for found in read_posted(json.dumps(DETAILED | values)).records:
        json.dumps(flat(found.result), allow_nan=False)
        json.dumps(found.rows, allow_nan=False)
        store.write(found.result)
        assert store.read(found.result.result_id) is not None
        assert "per_user_tok_s" not in values or flat(found.result)["per_user_tok_s"] is None


def test_a_seed_in_other_digits_is_none():
    text = (DATA / "inputs/bench-2805-partial-failures.txt").read_text()
    assert [result.load.seed for result in parse("Namespace(seed=²)\n" + text)] == [None]


def test_a_result_of_ours_that_cannot_be_stored_is_said_and_hides_no_other():
    posted = '{"completed": 1, "duration": 1.0}'
    ours = to_json(parse(posted)[0])
    for changed in (
        {"result_id": "../evil"},
        {"result_id": ""},
        {"schema": 99},
        {"load": None},
        {"throughput": {"per_user_tok_s": 1e300}},
        {"load": {"kind": "closed", "concurrency": 10**30}},
    ):
        bad = json.dumps(ours | changed)
        for text in (f"{bad}\n{posted}", f"[{bad}, {posted}]"):
            found = read_posted(text)
            assert len(found.records) == 1
            assert re.match(r"(line|entry) 1 is not a result of this version", found.problems[0])
        with pytest.raises(UsageError, match="not a result of this version"):
            parse(bad)


def test_many_openings_of_nothing_cost_no_more_than_their_length(monkeypatch):
    read = []
    decode_piece = json.JSONDecoder.raw_decode
    monkeypatch.setattr(
        json.JSONDecoder, "raw_decode", lambda self, text, at=0: read.append(len(text)) or decode_piece(self, text, at)
    )
    with pytest.raises(UsageError):
        parse('{"a": [1, 2, 3\n' * 3000)
    assert max(read) < 10_000  # characters, of 45,000


def test_an_object_of_any_length_and_layout_is_read_whole():
    record = {"completed": 1, "duration": 1.0, "tag": "ä" * 5000, "errors": ["x" * 4097, "\ud83d\ude00" * 4000]}
    for indent in (None, 1):
        for shift in range(20):
            text = json.dumps(record | {"label": "y" * shift}, indent=indent)
            assert len(parse(f"{text}\n{text}")) == 2
