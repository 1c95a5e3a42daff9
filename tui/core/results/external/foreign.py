"""Benchmarks that are not read: told by a line or by the keys of an object that only they print, and refused by name.

A form that a reader takes loses its entry here, and nothing else changes.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_ANOTHER = (
    "eagletui reads what SGLang's and vLLM's own benchmarks print or write: measure with sglang.benchmark.serving, "
    "vllm bench serve or eagletui bench"
)
_LINE_LIMIT = 2000  # characters of a line that are looked at


@dataclass(frozen=True)
class Foreign:
    """One form of one tool.

    Attributes:
        what: as it is named to a reader.
        lines: patterns of lines that it alone prints, by a word of each: looked for first, as that costs little.
        objects: keys that its JSON object has, one tuple a version; `a>b` is the key b of the object, or of the first
            object of the list, under a.
        examples: lines and objects by which every one of these is known.
        advice: what to do instead.
    """

    what: str
    lines: Mapping[str, str] = field(default_factory=dict)
    objects: tuple[tuple[str, ...], ...] = ()
    examples: tuple[str, ...] = ()
    advice: str = _ANOTHER


EVALSCOPE_PERCENTILES = Foreign(
    "evalscope's percentiles",
    objects=(("Percentiles", "Latency (s)"),),
    examples=('[{"Percentiles": "10%", "TTFT (s)": 0.04, "Latency (s)": 0.5}]',),
    advice="its summary (benchmark_summary.json) is read",
)

# The first that fits is the name.
FOREIGN = (
    Foreign(
        "AIPerf's console table",
        lines={"NVIDIA AIPerf": r"\bNVIDIA AIPerf(?: \||\s*$)", "Metric": r"\| *Metric *\| *avg *\| *min *\|"},
        examples=("   NVIDIA AIPerf | LLM Metrics", "┃        Metric ┃    avg ┃    min ┃    max ┃    p99 ┃"),
    ),
    Foreign(
        "AIPerf's CSV",
        lines={"Metric,avg,min": r"\bMetric,avg,min,max,(?!p99\b)"},
        examples=("Metric,avg,min,max,p1,p5,p10,p25,p50,p75,p90,p95,p99,std",),
    ),
    Foreign(
        "AIPerf's JSON",
        objects=(
            ("aiperf_version",),
            ("request_latency", "benchmark_duration>unit"),
            ("metadata>benchmark_phase", "metrics"),
        ),
        examples=(
            '{"schema_version": "1.0", "aiperf_version": "0.13.0", "request_throughput": {"unit": "requests/sec", "avg": 5}}',
            '{"request_latency": {"unit": "ms", "avg": 200}, "benchmark_duration": {"unit": "sec", "avg": 1}}',
            '{"metadata": {"session_num": 0, "benchmark_phase": "profiling"}, "metrics": {}, "error": null}',
        ),
    ),
    Foreign(
        "GenAI-Perf's console table",
        lines={"NVIDIA GenAI-Perf": r"\bNVIDIA GenAI-Perf \|", "Statistic": r"\| *Statistic *\| *avg *\| *min *\|"},
        examples=("   NVIDIA GenAI-Perf | LLM Metrics", "┃     Statistic ┃    avg ┃    min ┃    max ┃    p99 ┃"),
    ),
    Foreign(
        "GenAI-Perf's CSV",
        lines={"Metric,avg,min": r"\bMetric,avg,min,max,p99\b"},
        examples=("Metric,avg,min,max,p99,p95,p90,p75,p50,p25",),
    ),
    Foreign(
        "GenAI-Perf's JSON",
        objects=(("request_throughput>unit", "request_latency>unit"),),
        examples=(
            '{"request_throughput": {"unit": "requests/sec", "avg": 1}, "request_latency": {"unit": "ms", "avg": 2}}',
        ),
    ),
    Foreign(
        "llmperf's output",
        lines={
            "Results for token benchmark": r"\bResults for token benchmark for \S+ queried with",
            "request_output_throughput": r"\brequest_output_throughput_token_per_s\b",
        },
        objects=(
            ("results_ttft_s_mean",),
            ("results>ttft_s", "results>end_to_end_latency_s"),
            ("inter_token_latency_s", "ttft_s", "end_to_end_latency_s"),
        ),
        examples=(
            "Results for token benchmark for m queried with the openai api.",
            "request_output_throughput_token_per_s",
            '{"version": "2023-08-31", "name": "m_summary", "results_ttft_s_mean": 0.2}',
            '{"version": "2023-08-31", "results": {"ttft_s": {"mean": 0.2}, "end_to_end_latency_s": {"mean": 2}}}',
            '[{"error_code": null, "inter_token_latency_s": 0.01, "ttft_s": 0.2, "end_to_end_latency_s": 2.0}]',
        ),
    ),
    Foreign(
        "GuideLLM's console table",
        lines={
            "Benchmarks": r"(?:^|\s)Benchmarks (?:Metadata|Info|Stats):",
            "Run Summary Info": r"\bRun Summary Info\s*$",
            "Statistics": r"\bStatistics \((?:Completed|All) Requests\)",
        },
        examples=("Benchmarks Stats:", "ℹ Run Summary Info", "ℹ Request Latency Statistics (Completed Requests)"),
    ),
    Foreign(
        "GuideLLM's CSV",
        lines={"Run Info": r"\bRun Info\W*,\W*Run Info\b", "Type,Run Id": r"\bType,Run Id,Id,Name,"},
        examples=("Run Info,Run Info,Run Info,Benchmark,Benchmark", "Type,Run Id,Id,Name,Start Time,End Time"),
    ),
    Foreign(
        "GuideLLM's JSON or YAML",
        lines={
            "guidellm_version": r"\bguidellm_version\W*:",
            "generative_benchmark": r"\btype_\W*: *\W*generative_benchmark",
        },
        objects=(("metadata>guidellm_version",), ("benchmarks>type_",), ("benchmarks>run_stats",)),
        examples=(
            "  guidellm_version: 0.8.1",
            "- type_: generative_benchmark",
            '{"metadata": {"version": 1, "guidellm_version": "0.8.1"}, "benchmarks": []}',
            '{"benchmarks": [{"type_": "generative_benchmark", "duration": 1.0}]}',
            '{"benchmarks": [{"run_id": "a", "run_stats": {"start_time": 1.0}}]}',
        ),
    ),
    Foreign(
        "evalscope's summary of 2026",
        lines={"Total / Success": r"\| *Total / Success / Failed *\|", "Conc.": r"\| *Conc\. *\| *Rate *\|"},
        objects=(("Test Duration (s)", "Success Requests"),),
        examples=(
            "│ Total / Success / Failed │ 500 / 500 / 0 │",
            "┃ Conc. ┃ Rate ┃ Num ┃ RPS ┃",
            '{"Test Duration (s)": 71.6, "Concurrency": 20, "Success Requests": 500}',
        ),
    ),
    EVALSCOPE_PERCENTILES,
    Foreign(
        "MLPerf's summary",
        lines={"MLPerf Results": r"\bMLPerf Results Summary\b", ":::MLLOG": r"(?:^|\s):::MLLOG \{"},
        examples=("MLPerf Results Summary", ':::MLLOG {"key": "loadgen_version", "value": "4.1"}'),
    ),
    Foreign(
        "a table with several runs side by side",
        lines={
            "|": r"\|[ *]*(?:Successful requests|Benchmark duration|Request throughput|Output token throughput"
            r"|Total token throughput|(?:Mean|Median|P\d\d) (?:TTFT|TPOT|ITL|E2EL|E2E Latency))\b[^|]*"
            r"\|[^|]*\d[^|]*\|[^|]*\d",
            "/s):": r"[Tt]hroughput \((?:tok|req)/s\): +[\d.,]+ +[\d.,]+",
            "Test name": r"\| *Test name *\|.*\b(?:Tput|TTFT|[Ll]atency)\b",
        },
        examples=(
            "| **Output token throughput (tok/s)** | 3063.85 | 2901.66 | +5.6 % |",
            "Output token throughput (tok/s):      3063.85    2901.66",
            "| Test name | GPU | # of req. | Tput (req/s) | Mean TTFT (ms) |",
        ),
        advice="paste each run's own block, or give the JSON file that its tool wrote",
    ),
    Foreign(
        "vLLM's latency benchmark",
        lines={"Avg latency": r"\bAvg latency: [\d.]+ seconds\s*$"},
        objects=(("avg_latency", "latencies", "percentiles"),),
        examples=("Avg latency: 2.31 seconds", '{"avg_latency": 2.3, "latencies": [2.3], "percentiles": {"50": 2.3}}'),
        advice="it measures one batch without streaming: vllm bench serve and vllm bench throughput are read",
    ),
    Foreign(
        "Locust's statistics",
        lines={
            "# reqs": r"\bName\s+# reqs\s+# fails\b",
            "Type": r'\bType"?,"?Name"?,"?(?:# requests|Request Count|Requests/s)\b',
        },
        objects=(("num_requests", "num_failures", "total_response_time"),),
        examples=(
            "Type     Name      # reqs      # fails |    Avg     Min     Max    Med |   req/s  failures/s",
            "Type,Name,Request Count,Failure Count,Median Response Time",
            '[{"name": "/v1/completions", "num_requests": 9, "num_failures": 0, "total_response_time": 1.0}]',
        ),
        advice=f"it measures HTTP requests, not tokens; {_ANOTHER}",
    ),
    Foreign(
        "k6's summary",
        lines={"http_req_duration": r"\bhttp_req_duration\.+:"},
        objects=(("root_group", "metrics"), ("type", "metric", "data>tags")),
        examples=(
            "http_req_duration..............: avg=47.92ms min=280µs med=48.37ms max=98.17ms",
            '{"root_group": {"name": ""}, "metrics": {"http_reqs": {"count": 9}}}',
            '{"type": "Point", "metric": "http_reqs", "data": {"value": 1, "tags": {}}}',
        ),
        advice=f"it measures HTTP requests, not tokens; {_ANOTHER}",
    ),
    Foreign(
        "lm-eval's scores",
        lines={"Version": r"\| *Tasks? *\| *Version *\| *(?:Filter|Metric) *\|"},
        objects=(("results", "versions", "n-shot"), ("results", "versions", "config")),
        examples=(
            "|Tasks|Version|Filter|n-shot| Metric |   |Value |   |Stderr|",
            '{"results": {"gsm8k": {}}, "versions": {"gsm8k": 3}, "n-shot": {"gsm8k": 5}}',
            '{"results": {"gsm8k": {}}, "versions": {"gsm8k": 0}, "config": {"limit": null}}',
        ),
        advice="it measures accuracy, not speed",
    ),
    Foreign(
        "llama.cpp's benchmark",
        lines={
            "t/s": r"\| *test *\| *t/s *\|",
            "build_commit": r'\bbuild_commit"?,"?build_number\b',
            "N_KV": r"\| *PP *\| *TG *\| *B *\| *N_KV *\|",
            "llama_": r"\bllama_(?:print_timings|perf_context_print):",
        },
        objects=(("n_prompt", "n_gen", "avg_ts"),),
        examples=(
            "| model         |       size |     params | backend    | ngl |            test |                  t/s |",
            "build_commit,build_number,cpu_info,gpu_info",
            "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |",
            "llama_perf_context_print:        eval time =    1000.00 ms /    99 runs",
            '[{"build_commit": "ab12", "n_prompt": 512, "n_gen": 0, "avg_ts": 1234.5, "stddev_ts": 12.3}]',
        ),
    ),
    Foreign(
        "trtllm-bench's report",
        lines={
            "= ": r"(?:^|\s)= (?:PERFORMANCE OVERVIEW|STREAMING STATISTICS)\s*$",
            "] ": r"\[(?:TPOT|TTFT)\] (?:MINIMUM|MAXIMUM|AVERAGE):",
            "Output Throughput": r"\bPer (?:User|GPU) Output Throughput \(tokens/sec/(?:user|gpu)\):",
        },
        objects=(("performance>system_output_throughput_tok_s",),),
        examples=(
            "= PERFORMANCE OVERVIEW",
            "[TPOT] MINIMUM: 32.8005",
            "Per User Output Throughput (tokens/sec/user):     2.0563",
            '{"engine": {}, "performance": {"system_output_throughput_tok_s": 5530.7}}',
        ),
    ),
    Foreign(
        "perf_analyzer's report",
        lines={
            "Measurement Settings": r"\*\*\* Measurement Settings \*\*\*",
            "Inferences/Second": r"\bInferences/Second vs\. Client\b",
            "Concurrency,Inf": r"\bConcurrency,Inferences/Second,",
        },
        examples=(
            "*** Measurement Settings ***",
            "Inferences/Second vs. Client Average Batch Latency",
            "Concurrency,Inferences/Second,Client Send,Network+Server Send/Recv",
        ),
        advice=f"it measures inferences, not tokens; {_ANOTHER}",
    ),
)

_BARS = str.maketrans("│┃║", "|||")  # of drawn tables
_LINES = [(word, re.compile(pattern), one) for one in FOREIGN for word, pattern in one.lines.items()]


def of_line(line: str) -> Foreign | None:
    """The tool that alone prints such a line."""
    line = line[:_LINE_LIMIT]
    if not line.isascii():
        line = line.translate(_BARS)
    return next((one for word, pattern, one in _LINES if word in line and pattern.search(line)), None)


def of_object(raw: Mapping[str, Any]) -> Foreign | None:
    """The tool that alone writes such a JSON object."""
    for one in FOREIGN:
        if any(all(_has(raw, path.split(">")) for path in paths) for paths in one.objects):
            return one
    return None


def _has(value: Any, path: list[str]) -> bool:
    for key in path:
        if isinstance(value, list):
            value = value[0] if value else None
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return True
