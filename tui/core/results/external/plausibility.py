"""What speaks against a record of another tool, what a reader should doubt, and what is worth a note."""

import itertools
from collections.abc import Callable

from tui.core.results.external.posted import Posted

ROUNDING = 0.006  # of figures that are printed with two digits
COUNTS_REQUESTED = "SGLang's benchmark counts the requested length there, too much where replies stop early"
_FASTEST_MS = 0.05  # a token: 20,000 tokens a second of one user


def no_latencies(posted: Posted) -> bool:
    """Whether its latencies are of no request at all: zeros that mean nothing."""
    return posted.count("successful") == 0 or any(key.endswith("_ms") for key in posted.broken)


def reasons_against(posted: Posted) -> list[str]:
    """Why the record must not count."""
    reasons = []
    successful, failed = posted.count("successful"), posted.count("failed")
    if successful == 0:
        reasons.append("no request succeeded")
    if posted.broken:
        some = ", ".join(sorted(posted.broken)[:3]) + (" …" if len(posted.broken) > 3 else "")
        reasons.append(f"not a number: {some}")
    negative = sorted(key for key in posted.figures if (posted.number(key) or 0) < 0)
    if negative:
        reasons.append(f"negative: {', '.join(negative[:3])}")
    if posted.number("duration_s") == 0:
        reasons.append("it took no time")
    if successful and posted.count("output_tokens") == 0 and posted.kind == "serving":
        reasons.append("no token was generated")
    if failed and successful is not None and failed > successful:
        reasons.append(f"{failed} requests failed, {successful} succeeded")
    return reasons


def doubts(posted: Posted) -> list[str]:
    """What a reader should know although the record counts."""
    return [said for doubt in _DOUBTS if (said := doubt(posted)) is not None]


def _doubt_counted(posted: Posted) -> str | None:
    backend, output = posted.figures.get("backend"), posted.count("output_tokens")
    if posted.tool != "sglang" or not isinstance(backend, str) or output == posted.count("successful"):
        return None
    if not backend.startswith(("sglang-oai", "vllm", "lmdeploy")) or output is None:
        return None
    return f"backend {backend}: {COUNTS_REQUESTED}"


def _doubt_failures(posted: Posted) -> str | None:
    successful, prompts, failed = (posted.count(key) for key in ("successful", "num_prompts", "failed"))
    if not successful:
        return None
    if failed:
        return f"{failed} requests failed"
    if prompts is not None and successful < prompts:
        return f"{successful} of {prompts} requests succeeded"
    return None


def _doubt_concurrency(posted: Posted) -> str | None:
    limit, mean = posted.count("max_concurrency"), posted.number("concurrency")
    if limit and mean is not None and mean > limit * 1.01:
        return f"a mean concurrency of {mean:g} above the limit of {limit}"
    return None


def _doubt_sums(posted: Posted) -> str | None:
    duration = posted.number("duration_s")
    if posted.kind not in ("serving", "offline") or not duration:
        return None
    for tokens, rate in (
        ("successful", "req_per_s"),
        ("input_tokens", "input_tok_s"),
        ("output_tokens", "output_tok_s"),
    ):
        said, count = posted.number(rate), posted.number(tokens)
        if said is None or count is None:
            continue
        computed = count / duration
        # Both sides are rounded to two digits.
        if abs(computed - said) > ROUNDING + 0.01 * computed + count * ROUNDING / duration**2:
            return f"{rate} is {said:g}, but {tokens} over duration_s is {computed:.4g}"
    return None


def _doubt_order(posted: Posted) -> str | None:
    for name in ("ttft", "tpot", "itl", "e2e"):
        points = [
            (point, value)
            for point in ("median", "p90", "p95", "p99", "max")
            if (value := posted.number(f"{point}_{name}_ms")) is not None
        ]
        for (low, a), (high, b) in itertools.pairwise(points):
            if a > b + ROUNDING:
                return f"{low} {name} is above {high} {name}"
    ttft, e2e = posted.number("mean_ttft_ms"), posted.number("mean_e2e_ms")
    if ttft is not None and e2e is not None and ttft > e2e + ROUNDING and posted.count("successful"):
        return "the first token comes after the whole reply"
    return None


def _doubt_stream(posted: Posted) -> str | None:
    successful, output = posted.count("successful"), posted.count("output_tokens")
    if not successful or output is None or output <= successful:
        return None
    if posted.number("mean_ttft_ms") == 0:
        return "a first token after 0 ms: the replies were not streamed, or were empty"
    return None


def _doubt_pace(posted: Posted) -> str | None:
    """A time between tokens that no server has: chunks that came together, or replies that were not streamed."""
    successful, output = posted.count("successful"), posted.count("output_tokens")
    if no_latencies(posted) or (successful is not None and output is not None and output <= successful):
        return None
    for name in ("tpot", "itl"):
        for point in ("median", "mean"):
            value = posted.number(f"{point}_{name}_ms")
            if value is not None and 0 <= value < _FASTEST_MS:
                return (
                    f"a {point} {name} of {value:g} ms, which no server has: "
                    "tokens came together, or the replies were not streamed"
                )
    return None


def _doubt_acceptance(posted: Posted) -> str | None:
    accept_length = posted.number("accept_length")
    if accept_length is None:
        return None
    if 0 < accept_length < 1:
        return f"an accept length of {accept_length:g}: without the bonus token it cannot be compared"
    if accept_length > 1 and (posted.dataset or "").startswith("random"):
        return "an accept length on random tokens says nothing about text"
    return None


def _doubt_cache(posted: Posted) -> str | None:
    rate = posted.number("cache_hit_rate_pct")
    return f"{rate:g} % of the prompt tokens came from the cache" if rate is not None and rate > 1 else None


def _doubt_model(posted: Posted) -> str | None:
    if posted.kind != "speculative":
        return None
    return "its speed is accept length over a fast step time: a model, not a measurement"


_DOUBTS: tuple[Callable[[Posted], str | None], ...] = (
    _doubt_counted,
    _doubt_failures,
    _doubt_concurrency,
    _doubt_sums,
    _doubt_order,
    _doubt_stream,
    _doubt_pace,
    _doubt_acceptance,
    _doubt_cache,
    _doubt_model,
)


def notes(posted: Posted) -> tuple[str, ...]:
    notes = []
    if posted.tool == "sglang" and posted.kind == "serving" and posted.number("accept_length") is not None:
        notes.append("its accept length is the server's average since the last flush of its cache")
    peak, mean = posted.number("peak_output_tok_s"), posted.number("output_tok_s")
    if peak is not None and mean is not None and peak < mean * 0.99:
        notes.append(f"its peak of {peak:g} tok/s is below its mean of {mean:g}: a peak counts chunks, not tokens")
    limit, most = posted.count("max_concurrency"), posted.number("peak_concurrent")
    if limit and most is not None and most > limit:
        notes.append(f"its peak of {most:g} requests at once is above the limit of {limit}: it counts whole seconds")
    if posted.kind == "one_batch":
        notes.append("without a server: one batch straight through the model")
    return tuple(notes)
