"""Labels of figures: statistic, name and unit, however a tool writes them."""

import pytest

from tui.core.results.external.labels import Label, figure_of, label_of, point_of


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("Mean TTFT (ms)", Label("ttft", "mean", "ms")),
        ("**P99 TTFT (ms)**", Label("ttft", "p99", "ms")),
        ("Avg Lat.(s)", Label("lat", "mean", "s")),
        ("p99_ttft_ms", Label("ttft", "p99", "ms")),
        ("ttft_s_quantiles_p99", Label("ttft", "p99", "s")),
        ("50.00 percentile first token latency (ns)", Label("first token latency", "median", "ns")),
        ("99.90 percentile latency (ns)", Label("latency", "p99.9", "ns")),
        ("10% percentile latency", Label("latency", "p10")),
        ("[TPOT] MINIMUM", Label("tpot", "min")),
        ("Average time-to-first-token [TTFT] (ms)", Label("time to first token", "mean", "ms")),
        ("Request Latency Sec Mdn", Label("request latency", "median", "sec")),
        ("Requests Per Sec Mean", Label("requests /s", "mean")),
        ("Completed Requests Per Minute", Label("completed requests /min")),
        ("Per User Output Throughput [w/ ctx] (tps/user)", Label("per user output throughput", "", "tps/user")),
        ("Throughput(average tokens/s)", Label("throughput", "", "average tokens/s")),
        ("# of req.", Label("# of req")),
        ("Median", Label("", "median")),
        ("cache hit rate", Label("cache hit rate")),
        ("", Label("")),
    ],
)
def test_a_label_is_taken_apart(text, label):
    assert label_of(text) == label


@pytest.mark.parametrize(
    ("word", "point"),
    [
        ("avg", "mean"),
        ("Mdn", "median"),
        ("p50", "median"),
        ("50%", "median"),
        ("p999", "p99.9"),
        ("p001", "p0.1"),
        ("p100", "p100"),
        ("p05", "p5"),
        ("StdDev", "std"),
        ("50", ""),
        ("p", ""),
        ("total", ""),
    ],
)
def test_a_statistic_by_any_of_its_names(word, point):
    assert point_of(word) == point


def test_what_a_name_means_is_said_by_its_tool_first():
    itl = label_of("P99 Inter Token Latency (s)")
    assert figure_of(itl, {}) == ("p99_itl_ms", 1000)
    assert figure_of(itl, {"inter token latency": "tpot_ms"}) == ("p99_tpot_ms", 1000)
    assert figure_of(label_of("Latency"), {"latency": ["e2e_ms", 1000]}, "max") == ("max_e2e_ms", 1000)
    assert figure_of(label_of("schema version"), {"schema version": ""}) is None


def test_a_unit_tells_two_figures_of_one_name_apart():
    names = {"tput req/s": "req_per_s", "tput tok/s": "total_tok_s"}
    assert figure_of(label_of("Tput (req/s)"), names) == ("req_per_s", 1)
    assert figure_of(label_of("Tput (tok/s)"), names) == ("total_tok_s", 1)


def test_a_figure_without_a_name_of_ours_keeps_its_own():
    label = label_of("Output Sequence Length (tokens)")
    assert figure_of(label, {}, "p90") == ("p90_output_sequence_length_tokens", 1)
    assert figure_of(label, {}, "p90", own=False) is None
