"""Saved and pasted output of GPU tools: the figures in it are the figures of the rows, however it was pasted."""

import json
import random
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.core.host.gpu_csv import smi_text
from tui.core.host.gpus import gpu_table, gpus_json, sample_error
from tui.core.host.saved import reading
from tui.core.host.saved.named import NAMED
from tui.core.host.saved.reading import FORMS, read_saved

DATA = Path(__file__).parents[3] / "data" / "smi"
CASES = [json.loads(line) for line in (DATA / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
ids = [case["id"] for case in CASES]


def text_of(case):
    return smi_text((DATA / case["file"]).read_bytes())


def document(text, query=None, exit_code=None):
    return gpus_json(*read_saved(text, query, exit_code))


@pytest.mark.parametrize("exit_known", [True, False])
@pytest.mark.parametrize("case", CASES, ids=ids)
def test_public_reports(case, exit_known):
    truth = case["truth"]
    sample, samples = read_saved(text_of(case), truth.get("query"), truth.get("exit_code", 0) if exit_known else None)
    found = gpus_json(sample, samples)
    assert found["kind"] == truth.get("kind", None if "error" in truth else "nvidia-smi --query-gpu")
    if "error" in truth:
        assert (found["error"], found["gpus"], found["samples"]) == (truth["error"], [], 0)
        error = sample_error(sample, "gpu1")
        assert error is not None
        assert (error.slug, error.exit_code) == (truth["error"], 2 if truth["error"] == "no_figures" else 1)
        assert "\n" not in error.message
        assert error.hint
        return
    assert found["error"] is None
    assert found["samples"] == truth.get("samples", 1)
    assert len(found["gpus"]) == len(truth["gpus"])
    for got, wanted in zip(found["gpus"], truth["gpus"], strict=True):
        if "util_series" in truth:
            wanted = {**wanted, "util_pct": truth["util_series"][-1]}
        wanted = {key: pytest.approx(value) if isinstance(value, float) else value for key, value in wanted.items()}
        assert {key: got[key] for key in wanted} == wanted
        assert got["health"] == wanted.get("health")
    assert gpu_table(sample)


# CSV without a header is read by --query; a prefix of JSON or of a table drawn as one is cut off for all forms alike.
READ = [case for case in CASES if "error" not in case["truth"] and "query" not in case["truth"]]
WRAPPINGS = {
    "crlf": lambda line: line + "\r",
    "padded": lambda line: line.ljust(200),
    "indented": lambda line: "    " + line,
    "quoted": lambda line: "> > " + line,
    "docker": lambda line: "gpu-watch-1  | " + line,
    "ci": lambda line: "2026-07-01T09:10:11.1234567Z " + line,
    "rank": lambda line: "[rank0]: " + line,
    "coloured": lambda line: "\x1b[32m" + line + "\x1b[0m",
    "host": lambda line: "gpu-1: " + line,
    "html": lambda line: line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"),
}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
@pytest.mark.parametrize("case", READ, ids=lambda case: case["id"])
def test_how_it_was_pasted_changes_no_figure(case, wrapping):
    plain = text_of(case)
    if wrapping in ("docker", "ci", "rank") and any(mark in plain for mark in ("gpu-watch-1", "monitor-1")):
        pytest.skip("it has such a prefix")
    wrapped = "\n".join(WRAPPINGS[wrapping](line) for line in plain.splitlines())
    assert document(wrapped) == document(plain)


@pytest.mark.parametrize("case", READ, ids=lambda case: case["id"])
def test_numbered_lines_and_strings_of_json_change_no_figure(case):
    plain = text_of(case).replace("\t", "    ")
    numbered = "\n".join(f"{number:4}  {line}" for number, line in enumerate(plain.splitlines(), 1))
    assert document(numbered) == document(plain)
    if "\\" not in plain and not case["file"].endswith(".json"):
        assert document(json.dumps({"output": plain}, ensure_ascii=False)) == document(plain)


@pytest.mark.parametrize("width", [80, 72])
def test_a_table_that_a_narrow_terminal_broke(width):
    plain = (DATA / "inputs" / "smi-h200-table.txt").read_text(encoding="utf-8")
    broken = [line[at : at + width] for line in plain.splitlines() for at in range(0, max(len(line), 1), width)]
    assert document("\n".join(broken)) == document(plain)


@pytest.mark.parametrize("delimiter", ["\t", ";", " | "])
def test_csv_from_a_spreadsheet_or_markdown(delimiter):
    plain = "index, name, memory.used [MiB], utilization.gpu [%]\n0, NVIDIA H200, 5 MiB, 1 %\n1, NVIDIA H200, 6 MiB, [N/A]\n"
    rows = [line.replace(", ", delimiter) for line in plain.splitlines()]
    if delimiter == " | ":
        rows = [f"| {row} |" for row in rows]
        rows.insert(1, "|---|---|---|---|")
    assert document("\n".join(rows)) == document(plain)


@pytest.mark.parametrize("case", READ, ids=lambda case: case["id"])
def test_words_around_it_change_no_figure(case):
    before = "Hi all,\n\nthe server (4 GPUs, tp 4) hangs | see below: it was 12 GiB / 80 GiB at 10:11:12.\n\n```text\n"
    plain, around = text_of(case), f"{before}{text_of(case)}\n```\n\nAny idea? It has index 0, I think.\n"
    assert document(around) == document(plain)


@pytest.mark.parametrize("case", READ, ids=lambda case: case["id"])
def test_the_same_twice_is_two_samples(case):
    if case["file"].endswith(".json"):
        pytest.skip("two documents are told apart by their GPUs")
    plain = text_of(case)
    once, twice = document(plain), document(plain + "\n" + plain)
    assert twice["gpus"] == once["gpus"]
    assert twice["samples"] > once["samples"]


def test_several_forms_are_named_and_the_one_with_figures_is_read():
    table = (DATA / "inputs" / "smi-h200-table.txt").read_text(encoding="utf-8")
    topology = (DATA / "inputs" / "smi-topo.txt").read_text(encoding="utf-8")
    listed = (DATA / "inputs" / "smi-L-mig.txt").read_text(encoding="utf-8")
    sample, _ = read_saved(topology + table + listed)
    assert (sample.kind, len(sample.gpus)) == ("nvidia-smi", 2)
    assert set(sample.also) == {"nvidia-smi -L", "nvidia-smi topo -m"}
    assert "nvidia-smi topo -m" in gpu_table(sample).splitlines()[-1]


def test_a_gpu_that_is_lost_stands_behind_the_others():
    table = (DATA / "inputs" / "smi-h200-table.txt").read_text(encoding="utf-8")
    lost = "Unable to determine the device handle for GPU 0000:5E:00.0: GPU is lost.  Reboot the system\n"
    assert [gpu.health for gpu in read_saved(lost + table)[0].gpus] == [None, None, "lost"]


def test_a_failure_of_the_tool_outranks_the_name_of_its_form():
    text = "Failed to initialize NVML: Driver/library version mismatch\nCUDA available: False\n"
    assert read_saved(text)[0].error == "driver_mismatch"


def test_a_column_of_names_is_not_made_of_another_form():
    table = (DATA / "inputs" / "smi-table-collapsed.txt").read_text(encoding="utf-8")
    sample, _ = read_saved(table, "name")
    assert ([gpu.name for gpu in sample.gpus], sample.also) == (["NVIDIA A100 80GB PCIe"], ())
    assert [gpu.name for gpu in read_saved("NVIDIA H200\nNVIDIA H200\n", "name")[0].gpus] == ["NVIDIA H200"] * 2


def test_no_entity_of_a_document_is_expanded():
    bomb = '<!DOCTYPE x [<!ENTITY a "GGGG"><!ENTITY b "&a;&a;"><!ENTITY f SYSTEM "file:///etc/passwd">]>'
    xml = f'{bomb}<nvidia_smi_log><gpu id="00000000:01:00.0"><product_name>&b;&f;</product_name></gpu></nvidia_smi_log>'
    sample, _ = read_saved(xml)
    assert [gpu.name for gpu in sample.gpus] == ["&b;&f;"]


def test_a_hostile_name_is_text():
    row = "|   0  \x1b[31mred\x1b]0;title\x07 [b]x[/b]   On  | 00000000:03:00.0 Off |                    0 |"
    assert read_saved(row)[0].gpus[0].name == "red [b]x[/b]"


def test_arguments_of_programs_are_left_out():
    for case in READ:
        assert "hidden" not in json.dumps(document(text_of(case))), case["id"]


def test_every_form_is_read_in_a_case_and_every_name_can_be_told_apart():
    assert {form.kind for form in FORMS} - {case["truth"].get("kind") for case in CASES} == {"eagletui gpus --json"}
    assert len({form.kind for form in NAMED}) == len(NAMED)


def test_processes_of_one_gpu_are_not_gpus():
    rows = "".join(f"GPU-1, NVIDIA H200, {pid}, python3, {pid} MiB\n" for pid in range(10, 20))
    sample, samples = read_saved("gpu_uuid, gpu_name, pid, process_name, used_gpu_memory [MiB]\n" + rows)
    assert (sample.kind, samples, len(sample.gpus)) == ("nvidia-smi --query-compute-apps", 1, 1)
    assert [process.memory_used_mib for process in sample.gpus[0].processes or ()] == list(range(10, 20))


def test_a_row_of_rocm_smi_with_fewer_cells_than_columns():
    text = "GPU  Temp  AvgPwr  SCLK  MCLK  a  b  c  d  e  f  VRAM%  GPU%\n0  41c  5W  1  2  3  0%  7%\n"
    assert [(gpu.utilization_pct, gpu.sm_clock_mhz) for gpu in read_saved(text)[0].gpus] == [(7, None)]


def test_dmon_as_csv():
    text = "#gpu, pwr, gtemp, mtemp, sm, mem\n#Idx, W, C, C, %, %\n0, 27, 46, -, 5, 1\n1, 28, 47, -, 0, 0\n"
    sample, _ = read_saved(text)
    assert sample.kind == "nvidia-smi dmon"
    assert [(gpu.power_w, gpu.temperature_c, gpu.utilization_pct) for gpu in sample.gpus] == [(27, 46, 5), (28, 47, 0)]


def test_pmon_with_dates():
    text = """#Date       Time        gpu        pid  type    sm   mem   enc   dec   command
#YYYYMMDD   HH:MM:SS    Idx          #   C/G     %     %     %     %   name
 20251103   10:02:11      0      51230     C    97    41     -     -   python3 -m x --api-key hidden
 20251103   10:02:11      1          -     -     -     -     -     -   -
"""
    sample, samples = read_saved(text)
    assert (sample.kind, samples) == ("nvidia-smi pmon", 1)
    assert [[process.name for process in gpu.processes or ()] for gpu in sample.gpus] == [["python3"], []]


def test_our_own_document_is_read_again():
    first = document((DATA / "inputs" / "smi-q-full-580.txt").read_text(encoding="utf-8"))
    again = document("$ eagletui gpus --json\n" + json.dumps(first))
    keys = ("index", "name", "uuid", "mem_used_mib", "mem_total_mib", "util_pct", "power_w", "temp_c", "sm_clock_mhz")
    assert again["kind"] == "eagletui gpus --json"
    assert [{key: gpu[key] for key in keys} for gpu in again["gpus"]] == [
        {key: gpu[key] for key in keys} for gpu in first["gpus"]
    ]


PIECES = st.sampled_from(
    [
        *'|\n,017"{}[]<>\r\x1b\u2028\ud800é│%WC',
        *(
            "GPU",
            "GPU ",
            "0000:01:00.0",
            "GPU[0]",
            ": ",
            " / ",
            "MiB",
            "N/A",
            "ERR!",
            "    ",
            "<gpu id=",
            "</gpu>",
            '"card0":',
        ),
        *("# gpu", " pid ", "Device ", "VRAM%", "Processes:", "> ", "&lt;", "On", "MEM[", "SCLK MCLK", "index", "name"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=120).map("".join), st.sampled_from([None, "index,name", "name"]))
def test_any_text_is_read_or_refused(text, query):
    sample, samples = read_saved(text, query)
    assert (samples == 0) == (not sample.gpus) == (sample.error is not None)
    json.dumps(gpus_json(sample, samples))
    gpu_table(sample)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(CASES), st.randoms(use_true_random=False))
def test_a_text_with_pieces_missing_or_moved_is_read_or_refused(case, chance: random.Random):
    text = text_of(case)
    for _ in range(chance.randint(1, 6)):
        at, size = chance.randrange(len(text) + 1), chance.randint(0, 200)
        piece, text = text[at : at + size], text[:at] + text[at + size :]
        if chance.random() < 0.5:
            at = chance.randrange(len(text) + 1)
            text = text[:at] + piece + text[at:]
    sample, samples = read_saved(text)
    assert (samples == 0) == (not sample.gpus)
    json.dumps(gpus_json(sample, samples))


HOSTILE = [
    *("| " * 990, "|" + " " * 1990 + "x", "GPU " * 490, "[0] N|" * 300, "GPU[0] : " * 200, "# gpu pid " * 190),
    *('{"card0":' * 200, "<gpu id=" * 200, "gpu," * 490, "> " * 990, "a-1 | " * 300, "GPU  POWER GFX%" * 120),
    *("MEM[" * 490, "N/A " * 490, "|  0  1  0  0  |" * 120, "Device 0 [x] " * 150, "GPU[" + "9%" * 900, "0 " * 990),
    *("    " * 490 + "x: y", "&lt;" * 490),
]


@pytest.mark.parametrize("line", HOSTILE)
def test_work_grows_with_the_length_and_not_with_its_square(line):
    """Counted in steps of the interpreter, which patterns take no part in: those are bounded by the length of a line."""
    assert reading._LINE == 2000
    steps = [_steps("\n".join([line] * count)) for count in (4, 16)]
    assert steps[1] < 5.5 * steps[0]


def _steps(text: str) -> int:
    count = 0

    def trace(frame, event, arg):
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        read_saved(text)
    finally:
        sys.settrace(before)
    return count
