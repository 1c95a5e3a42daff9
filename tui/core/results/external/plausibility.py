"""Whether a record of another tool can be right: why it must not count, what a reader should doubt, what is worth a note."""

import itertools
from collections.abc import Iterator

from tui.core.results.external.posted import TOOLS, Posted

ROUNDING = 0.006  # of figures that are printed with two digits
COUNTS_REQUESTED = "SGLang's benchmark counts the requested length there, too much where replies stop early"
_FASTEST_MS = 0.05  # a token: 20,000 tokens a second of one user


def no_latencies(posted: Posted) -> bool:
    """Whether its latencies are of no request at all: zeros that mean nothing."""
    return posted.count("successful") == 0 or any(key.endswith("_ms") for key in posted.broken)


def reasons_against(posted: Posted) -> Iterator[str]:
    """Why the record must not count."""
    successful, failed = posted.count("successful"), posted.count("failed")
    if posted.against is not None:
        yield f"it says itself: {posted.against}"
    if successful == 0:
        yield "no request succeeded"
    if posted.broken:
        some = ", ".join(sorted(posted.broken)[:3]) + (" …" if len(posted.broken) > 3 else "")
        yield f"not a number: {some}"
    negative = sorted(key for key in posted.figures if (posted.number(key) or 0) < 0)
    if negative:
        yield f"negative: {', '.join(negative[:3])}"
    if posted.number("output_tok_s") == 0 and posted.number("req_per_s") and posted.kind == "serving":
        yield "no token a second, although requests were answered"
    if posted.number("duration_s") == 0:
        yield "it took no time"
    if successful and posted.count("output_tokens") == 0 and posted.kind == "serving":
        yield "no token was generated"
    if failed and successful is not None and failed > successful:
        yield f"{failed} requests failed, {successful} succeeded"


def doubts(posted: Posted) -> list[str]:
    """What a reader should know although the record counts."""
    return [*_of_counts(posted), *_of_latencies(posted), *_of_speculation(posted)]


def _of_counts(posted: Posted) -> Iterator[str]:
    successful, prompts, failed = (posted.count(key) for key in ("successful", "num_prompts", "failed"))
    backend, output = posted.figures.get("backend"), posted.count("output_tokens")
    counts_requested = isinstance(backend, str) and backend.startswith(("sglang-oai", "vllm", "lmdeploy"))
    if posted.tool == "sglang" and counts_requested and output not in (None, successful):
        yield f"backend {backend}: {COUNTS_REQUESTED}"
    if successful and failed:
        yield f"{failed} requests failed"
    elif successful and prompts is not None and successful < prompts:
        yield f"{successful} of {prompts} requests succeeded"
    limit, mean = posted.count("max_concurrency"), posted.number("concurrency")
    if limit and mean is not None and mean > limit * 1.01:
        yield f"a mean concurrency of {mean:g} above the limit of {limit}"
    duration = posted.number("duration_s")
    rates = (("successful", "req_per_s"), ("input_tokens", "input_tok_s"), ("output_tokens", "output_tok_s"))
    checked = posted.kind in ("serving", "offline") and "rates" not in TOOLS.get(posted.tool or "", {})
    for tokens, rate in rates if checked and duration else ():
        stated, count = posted.number(rate), posted.number(tokens)
        if stated is None or count is None or not duration:
            continue
        computed = count / duration
        # Both sides are rounded to two digits.
        if abs(computed - stated) > ROUNDING + 0.01 * computed + count * ROUNDING / duration**2:
            yield f"{rate} is {stated:g}, but {tokens} over duration_s is {computed:.4g}"
            break


def _of_latencies(posted: Posted) -> Iterator[str]:
    successful, output = posted.count("successful"), posted.count("output_tokens")
    ttft, e2e = posted.number("mean_ttft_ms"), posted.number("mean_e2e_ms")
    if (disorder := _disorder(posted)) is not None:
        yield disorder
    elif ttft is not None and e2e is not None and ttft > e2e + ROUNDING and successful:
        yield "the first token comes after the whole reply"
    if successful and output is not None and output > successful and ttft == 0:
        yield "a first token after 0 ms: the replies were not streamed, or were empty"
    if no_latencies(posted) or (successful is not None and output is not None and output <= successful):
        return
    for name, point in itertools.product(("tpot", "itl"), ("median", "mean")):
        pace = posted.number(f"{point}_{name}_ms")
        if pace is not None and 0 <= pace < _FASTEST_MS:
            yield (
                f"a {point} {name} of {pace:g} ms, which no server has: "
                "tokens came together, or the replies were not streamed"
            )
            return


def _disorder(posted: Posted) -> str | None:
    for name in ("ttft", "tpot", "itl", "e2e"):
        points = [(point, posted.number(f"{point}_{name}_ms")) for point in ("median", "p90", "p95", "p99", "max")]
        known = [(point, value) for point, value in points if value is not None]
        for (low, a), (high, b) in itertools.pairwise(known):
            if a > b + ROUNDING:
                return f"{low} {name} is above {high} {name}"
    return None


def _of_speculation(posted: Posted) -> Iterator[str]:
    accept_length = posted.number("accept_length") or 0.0
    if 0 < accept_length < 1:
        yield f"an accept length of {accept_length:g}: without the bonus token it cannot be compared"
    if accept_length > 1 and (posted.dataset or "").startswith("random"):
        yield "an accept length on random tokens says nothing about text"
    if (cached := posted.number("cache_hit_rate_pct") or 0.0) > 1:
        yield f"{cached:g} % of the prompt tokens came from the cache"
    if posted.kind == "speculative":
        yield "its speed is accept length over a fast step time: a model, not a measurement"


def notes(posted: Posted) -> Iterator[str]:
    if posted.tool == "sglang" and posted.kind == "serving" and posted.number("accept_length") is not None:
        yield "its accept length is the server's average since the last flush of its cache"
    peak, mean = posted.number("peak_output_tok_s"), posted.number("output_tok_s")
    if peak is not None and mean is not None and peak < mean * 0.99:
        yield f"its peak of {peak:g} tok/s is below its mean of {mean:g}: a peak counts chunks, not tokens"
    limit, most = posted.count("max_concurrency"), posted.number("peak_concurrent")
    if limit and most is not None and most > limit:
        yield f"its peak of {most:g} requests at once is above the limit of {limit}: it counts whole seconds"
    yield from TOOLS.get(posted.tool or "", {}).get("notes", ())
    if posted.kind == "one_batch":
        yield "without a server: one batch straight through the model"
