"""A record of another tool as a `Result`: each figure in its place, those that have none under their own names."""

import hashlib
import json
import re

from tui.core.model import result as model
from tui.core.model.result import Result
from tui.core.results.external.plausibility import doubts, no_latencies, notes, reasons_against
from tui.core.results.external.posted import TOOLS, Posted
from tui.core.sglang.server_info import args_sha
from tui.core.text import as_text

POSTED_HOST = "posted"  # the host of a record that says none

# Figures that have a place of their own in a result; the others are kept under their names.
_PLACED = frozenset(
    """backend request_rate max_concurrency num_prompts successful failed duration_s input_tokens output_tokens
req_per_s input_tok_s output_tok_s total_tok_s accept_length""".split()
)
_PLACED_LATENCY = re.compile(r"(mean|median|p90|p95|p99|max)_(ttft|tpot|itl|e2e)_ms")
_LATENCY_POINTS = ("mean", "p50", "p90", "p95", "p99", "max")
_LATENCIES = (("ttft", "ttft"), ("tpot", "tpot"), ("gap", "itl"), ("e2e", "e2e"))


def result_of(posted: Posted) -> Result:
    figures = posted.figures
    invalid = tuple(reasons_against(posted))
    load = _load(posted)
    tool = posted.tool or "unknown"
    content = json.dumps([tool, posted.kind, sorted(figures.items()), sorted(posted.broken)], default=str)
    return Result(
        result_id=f"import-{hashlib.sha256(content.encode('utf-8', 'backslashreplace')).hexdigest()[:12]}",
        bench=posted.tag or _bench_name(posted),
        started_at=posted.started_at,
        tool=model.Tool(tool, backend=as_text(figures.get("backend"))),
        server=model.MeasuredServer(
            POSTED_HOST,
            sets=_sets(posted),
            args=posted.server_args,
            args_sha=args_sha(posted.server_args),
            model=posted.model,
            version=posted.server_version,
            spec=posted.spec or _spec(posted),
        ),
        load=load,
        duration_s=posted.number("duration_s"),
        counts=model.Counts(
            ok=posted.count("successful"),
            errors=posted.count("failed"),
            input_tokens=posted.count("input_tokens"),
            output_tokens=posted.count("output_tokens"),
        ),
        throughput=model.Throughput(
            per_user_tok_s=_per_user(posted),
            output_tok_s_full=posted.number("output_tok_s") if "tok_s" not in figures else posted.number("tok_s"),
            input_tok_s=posted.number("input_tok_s"),
            total_tok_s=posted.number("total_tok_s"),
            req_s=posted.number("req_per_s"),
        ),
        latencies=model.Latencies(**{ours: _distribution(posted, name) for ours, name in _LATENCIES}),
        speculation=_speculation(posted),
        valid=not invalid,
        suspicious=(*invalid, *doubts(posted)),
        posted={key: value for key, value in figures.items() if _is_extra(posted, key)},
        notes=tuple(notes(posted)),
    )


def _bench_name(posted: Posted) -> str:
    name = posted.kind if posted.kind != "serving" else (posted.dataset or "serving")
    lengths = [posted.count(key) for key in ("input_len", "output_len")]
    return f"{name} {lengths[0]}/{lengths[1]}" if all(lengths) else name


def _load(posted: Posted) -> model.Load:
    rate = posted.figures.get("request_rate")
    batch = posted.count("batch_size")
    at_a_rate = posted.tag in TOOLS.get(posted.tool or "", {}).get("open", ())
    return model.Load(
        kind="open" if isinstance(rate, int | float) or rate == "trace" or at_a_rate else "closed",
        concurrency=batch if batch is not None else posted.count("max_concurrency"),
        rate=float(rate) if isinstance(rate, int | float) else None,
        dataset=posted.dataset or "",
        seed=posted.seed,
        requests=posted.count("num_prompts"),
        input_len=posted.count("input_len"),
        output_len=posted.count("output_len"),
        ignore_eos=posted.ignore_eos,
        temperature=posted.temperature,
    )


def _sets(posted: Posted) -> dict[str, object]:
    """What a sweep of speculation varied: each of its records is another configuration."""
    flags = {
        "speculative-num-steps": "steps",
        "speculative-eagle-topk": "topk",
        "speculative-num-draft-tokens": "num_draft_tokens",
    }
    return {flag: value for flag, key in flags.items() if (value := posted.count(key)) is not None}


def _spec(posted: Posted) -> model.SpecConfig | None:
    if not posted.count("steps"):
        return None  # not said, or 0: without speculation
    return model.SpecConfig(
        "", posted.count("steps"), posted.count("topk"), draft_tokens=posted.count("num_draft_tokens")
    )


def _speculation(posted: Posted) -> model.Speculation | None:
    accept_length = posted.number("accept_length")
    drafts, accepted = posted.count("drafts"), posted.count("accepted_tokens")
    if accept_length is None and not drafts:
        return None
    # vLLM's come from its counters, over this run; SGLang's is an average since the last flush of its cache.
    return model.Speculation(
        verify_steps=drafts,
        correct_drafts=accepted,
        proposed_drafts=posted.count("draft_tokens"),
        tau=(accepted + drafts) / drafts if drafts and accepted is not None else None,
        cycle_ms=posted.number("step_time_ms") if posted.kind == "speculative" else None,
        server_accept_length=accept_length,
    )


def _per_user(posted: Posted) -> float | None:
    if posted.token_times is not None:
        seconds, tokens = posted.token_times
        return tokens / seconds
    if posted.kind == "speculative":
        return posted.number("speed")
    if posted.kind == "one_batch" and (step := posted.number("step_time_ms")):
        return 1000 / step
    return None


def _distribution(posted: Posted, name: str) -> model.Distribution | None:
    if posted.count("successful") is None or no_latencies(posted):
        return None
    values = {point: posted.number(f"{'median' if point == 'p50' else point}_{name}_ms") for point in _LATENCY_POINTS}
    if name == "itl" and values["mean"] is None:  # a mean of means a reply is a mean gap; its other points are not
        values["mean"] = posted.number(f"mean_{TOOLS.get(posted.tool or '', {}).get('mean_itl')}_ms")
    if all(value is None for value in values.values()):
        return None
    return model.Distribution(posted.count("successful") or 0, **values)


def _is_extra(posted: Posted, key: str) -> bool:
    """Whether a figure has no place of its own in the result."""
    if _PLACED_LATENCY.fullmatch(key):
        # Without the count of requests they are not a distribution, only figures.
        return posted.count("successful") is None and not no_latencies(posted)
    return key not in _PLACED
