"""Conditions without which a run does not count: pure functions of what was measured.

Each says one sentence with its figure and its limit. Where its input does not exist (no GPU, no graphs, no metrics) it
is `not_applicable`, never a failure. `suspicious` is what a reader should know although the run counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tui.core.bench.metrics import Figures, Meta, Row, counter
from tui.core.bench.server_args_check import Difference
from tui.core.model.result import Guard, GuardStatus
from tui.core.sglang.server_info import FORCED_ACCEPT_LENGTH, forced_accept_length
from tui.core.text import one_line

TOKEN_MISMATCH = 0.005
CACHE_SHARE = 0.01
# A chat template, or the mark that keeps a repeated prompt out of the cache, is shared by all prompts: that many tokens
# of each may come from the cache. What they save is nothing beside a request.
CACHE_FREE_TOKENS = 64
CLIENT_CPU = 0.8
WINDOW_S = 10.0
WINDOW_TOKENS = 500
WINDOW_REPLIES = 5  # that TTFT and end-to-end times need (`yardsticks`); a rate needs none
LOST_SHARE = 0.005  # of the window, by freezes; of a reply's time, by stamps that are late
LATE_ONCE_MS = 50.0
SEND_LAG_MS = 2.0  # that an open loop may send late by on average, on any machine
SEND_LAG_SHARE = 0.02  # of the mean TTFT
TAIL_SHARE = 0.05  # of the longest TTFT: a client that was later once may be in a tail
STEADY_SHARE = 0.02
EAGER_SHARE = 0.01
# A power cap is how these cards always work under load: it is reported; the others mean another machine than yesterday's.
_THROTTLED = ("hardware slowdown", "thermal, by software", "thermal, by hardware", "power brake")
_TOLD = ("power cap",)
_ADJUSTED = "SGLang made it so: "
_WHOSE = "whose processes are on the GPUs is not known"


@dataclass(frozen=True)
class ServerChecks:
    """What is known of the server beside the run itself.

    `differences` is None where nobody said what it should be; `env` where its environment cannot be read.
    """

    differences: tuple[Difference, ...] | None = None
    version_meant: str | None = None
    version: str | None = None
    env: Mapping[str, str] | None = None
    no_graphs: str | None = None  # why it has none: switched off on purpose, no GPU


@dataclass(frozen=True)
class Judgement:
    """Whether a run counts."""

    guards: tuple[Guard, ...]
    suspicious: tuple[str, ...] = ()
    valid: bool = field(init=False)

    def __post_init__(self) -> None:
        failed = any(guard.status is GuardStatus.FAILED for guard in self.guards)
        object.__setattr__(self, "valid", not failed)


def judge(rows: Sequence[Row], meta: Meta, found: Figures, server: ServerChecks) -> Judgement:
    """All guards of a run, in the order in which they are shown."""
    return Judgement(
        (
            _errors(meta, found),
            _window(found),
            _tokens(found),
            _chunks(rows),
            _cache(rows, meta, found),
            _client_cpu(found),
            _client_lag(rows, found),
            _steady(meta, found),
            _overload(meta, found),
            _foreign(meta),
            _clocks(found),
            _server(meta, server),
            _graph(meta, server),
            simulated(server.env),
        ),
        _suspicious(rows, meta, found, server),
    )


def judge_again(rows: Sequence[Row], meta: Meta, found: Figures, before: Judgement) -> Judgement:
    """The guards of a stored run by the rules of today.

    Of its server and its launch a result keeps the guards alone, and an older run says less of itself: a guard that has
    nothing to judge by now stays as it was.
    """
    kept = {guard.id: guard for guard in before.guards}
    graph = kept.get("graph")
    no_graphs = graph.text if graph and graph.status is GuardStatus.NOT_APPLICABLE else None
    anew = judge(rows, meta, found, ServerChecks(no_graphs=no_graphs))
    guards = (
        kept.get(guard.id, guard) if guard.status is GuardStatus.NOT_APPLICABLE else guard for guard in anew.guards
    )
    adjusted = (said for said in before.suspicious if said.startswith(_ADJUSTED))
    return Judgement(tuple(guards), (*anew.suspicious, *adjusted))


def _guard(
    name: str, failed: bool, text: str, value: float | str | None = None, limit: float | str | None = None
) -> Guard:
    return Guard(name, GuardStatus.FAILED if failed else GuardStatus.OK, text, value, limit)


def _missing(name: str, text: str) -> Guard:
    return Guard(name, GuardStatus.NOT_APPLICABLE, text)


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _errors(meta: Meta, found: Figures) -> Guard:
    failed, begun = found.counts.errors or 0, (found.counts.ok or 0) + (found.counts.errors or 0)
    if not begun:
        return _guard("errors", True, "no request was begun", 0, 0)
    text = f"{failed} of {_count(begun, 'request')} failed (limit 0)"
    reasons = meta.get("errors") or {}
    if failed and reasons:
        first = max(reasons, key=lambda reason: reasons[reason])
        text += f", most by: {one_line(str(first), 120)}"
    return _guard("errors", failed > 0, text, failed / begun, 0)


def _window(found: Figures) -> Guard:
    window = found.window
    if window is None or window.kind != "steady":
        return _guard("window", True, "there was no time with all users busy", 0, WINDOW_S)
    tokens = found.counts.tokens_in_window or 0
    text = (
        f"{window.duration_s:.1f} s with all users busy, {_count(tokens, 'token')} "
        f"(at least {WINDOW_S:g} s and {WINDOW_TOKENS} tokens)"
    )
    short = window.duration_s < WINDOW_S or tokens < WINDOW_TOKENS
    return _guard("window", short, text, window.duration_s, WINDOW_S)


def _tokens(found: Figures) -> Guard:
    server, ours = found.counts.server_output_tokens, found.counts.output_tokens
    if server is None:
        return _missing("tokens", "the server serves no /metrics to hold the count against")
    if server < 0:
        text = f"the server's own count fell by {-server} tokens: it was restarted"
        return _guard("tokens", True, text, None, TOKEN_MISMATCH)
    if not server or ours is None:
        return _guard(
            "tokens", bool(ours), f"{ours or 0} tokens counted here, none by the server", None, TOKEN_MISMATCH
        )
    share = abs(ours - server) / server
    text = f"{ours} tokens counted here, {server} by the server: {share:.2%} apart (limit {TOKEN_MISMATCH:.1%})"
    if share > TOKEN_MISMATCH and ours < server and not found.counts.errors:
        text += "; somebody else may be using it"
    return _guard("tokens", share > TOKEN_MISMATCH, text, share, TOKEN_MISMATCH)


def _chunks(rows: Sequence[Row]) -> Guard:
    """What the chunks of a reply say is what the reply says: rates in the window are of the former, TPOT of the latter."""
    told = [row for row in rows if not row["err"] and None not in (row["toks"], row["k1"], row["out"])]
    if not told:
        return _missing("chunks", "the server counts tokens only at the end of a reply")
    apart = [row for row in told if row["k1"] + sum(row["toks"]) != row["out"]]
    if apart:
        chunks, whole = sum(row["k1"] + sum(row["toks"]) for row in apart), sum(row["out"] for row in apart)
        text = (
            f"{len(apart)} of {_count(len(told), 'reply', 'replies')} were counted wrongly by chunk: "
            f"{chunks} tokens in their chunks, {whole} in the replies (limit 0)"
        )
        return _guard("chunks", True, text, len(apart), 0)
    text = f"the chunks of each of {_count(len(told), 'reply', 'replies')} hold its tokens"
    by_chunks = sum(sum(row["gaps_us"]) for row in told) / 1e6
    by_reply = sum(row["t_last"] - row["t_first"] for row in told)
    share = abs(by_chunks - by_reply) / by_reply if by_reply else 0.0
    if share > TOKEN_MISMATCH:
        text += f", but not its time: {by_chunks:.3f} s between chunks, {by_reply:.3f} s from first to last"
    return _guard("chunks", share > TOKEN_MISMATCH, text, share, TOKEN_MISMATCH)


def _cache(rows: Sequence[Row], meta: Meta, found: Figures) -> Guard:
    told = [row for row in rows if row["cached"] is not None and row["in"]]
    if told:
        asked = sum(row["in"] for row in told)
        # Of a short prompt half at most: one that is known by heart is warm, however short.
        hits = sum(max(0, row["cached"] - min(CACHE_FREE_TOKENS, row["in"] // 2)) for row in told)
    else:
        cached = counter(meta, "cached_tokens_total", "prefix_cache_hits_total")
        prompts = counter(meta, "prompt_tokens_total")
        if cached is None or not prompts:
            return _missing("cache", "neither replies nor /metrics say what came from the prefix cache")
        asked = round(prompts)
        hits = max(0, round(cached) - CACHE_FREE_TOKENS * ((found.counts.ok or 0) + (found.counts.errors or 0)))
    share = hits / asked
    text = (
        f"{share:.1%} of the prompt tokens came from the prefix cache, the first {CACHE_FREE_TOKENS} of a prompt "
        f"not counted (limit {CACHE_SHARE:.0%})"
    )
    return _guard("cache", share > CACHE_SHARE, text, share, CACHE_SHARE)


def _client_cpu(found: Figures) -> Guard:
    load = found.client.cpu_fraction if found.client else None
    if load is None:
        return _missing("client_cpu", "the load of the generator is not known")
    text = f"the load generator used {load:.0%} of a core (limit {CLIENT_CPU:.0%})"
    return _guard("client_cpu", load > CLIENT_CPU, text, load, CLIENT_CPU)


def _client_lag(rows: Sequence[Row], found: Figures) -> Guard:
    """What the generator missed while it did not run: freezes of any length count by their length, and nothing else."""
    client, window = found.client, found.window
    if client is None or client.lost_s is None or window is None:
        return _missing("client_lag", "how long the generator stood still is not known")
    share = client.lost_s / window.duration_s
    text = f"the load generator stood still for {share:.2%} of the window (limit {LOST_SHARE:.1%})"
    if client.loop_lag_max_ms is not None and client.lost_s:
        text += f", for {client.loop_lag_max_ms:.0f} ms at most"
    if share > LOST_SHARE:
        return _guard("client_lag", True, text, share, LOST_SHARE)
    took = [row["t_last"] - row["t_first"] for row in rows if not row["err"] and row["gaps_us"]]
    late_ms, sent_ms, ttft = client.late_mean_ms, client.send_lag_mean_ms, found.latencies.ttft
    if late_ms is not None and took:
        limit = LOST_SHARE * 1000 * sum(took) / len(took)
        if late_ms > limit:
            text = f"chunks were stamped {late_ms:.2f} ms late on average (limit {limit:.2f} ms, {LOST_SHARE:.1%} of a reply)"
            return _guard("client_lag", True, text, late_ms, limit)
    if found.backlog is not None and sent_ms is not None and ttft and ttft.mean:
        limit = max(SEND_LAG_MS, SEND_LAG_SHARE * ttft.mean)
        text += f"; requests were sent {sent_ms:.1f} ms late on average (limit {limit:.1f} ms)"
        return _guard("client_lag", sent_ms > limit, text, sent_ms, limit)
    return _guard("client_lag", False, text, share, LOST_SHARE)


def _steady(meta: Meta, found: Figures) -> Guard:
    if found.change is None:
        why = (
            "a change of pace is looked for with a fixed number of users only"
            if (meta.get("point") or {}).get("rate") is not None
            else "too few replies one after the other to tell a change"
        )
        return _missing("steady", why)
    share, at = found.change.share, found.change.at_s
    if not share:
        return _guard("steady", False, "the server kept its pace through the window", 0, STEADY_SHARE)
    way = "longer" if share > 0 else "shorter"
    when = "drifting through the window" if at is None else f"from {at:.0f} s into the window on"
    text = f"the time between chunks became {abs(share):.1%} {way}, {when} (limit {STEADY_SHARE:.0%})"
    return _guard("steady", abs(share) > STEADY_SHARE, text, share, STEADY_SHARE)


def _overload(meta: Meta, found: Figures) -> Guard:
    queue = found.backlog
    if queue is None:
        why = (
            "overload is checked only with a request rate"
            if (meta.get("point") or {}).get("rate") is None
            else "nothing was due in the window"
        )
        return _missing("overload", why)
    text = f"{queue.offered_req_s:.2f} requests/s offered, {queue.served_req_s:.2f} served"
    if queue.grows:
        text += f"; {queue.growth:.0f} more under way at the end: the load is above what the server holds"
    return _guard("overload", queue.grows, text, queue.served_req_s, queue.offered_req_s)


def _foreign(meta: Meta) -> Guard:
    gpu = meta.get("gpu") or {}
    hosts = gpu.get("hosts")
    if hosts is not None:
        return _foreign_on(hosts)
    pids = gpu.get("foreign_pids")
    if pids is None:
        return _missing("foreign", _WHOSE if gpu else "no GPU figures")
    text = "nobody else was on the GPUs"
    if pids:
        text = f"{_count(len(pids), 'process', 'processes')} of others on the GPUs: PID {_listed(pids)} (limit 0)"
    return _guard("foreign", bool(pids), text, len(pids), 0)


def _foreign_on(hosts: Mapping[str, Mapping[str, Any]]) -> Guard:
    """Of a group: a stranger on any of its hosts counts, also where another of them was not looked at."""
    found = {host: told["foreign_pids"] for host, told in hosts.items() if told.get("foreign_pids")}
    if found:
        number = sum(map(len, found.values()))
        where = "; ".join(f"PID {_listed(pids)} of {one_line(host, 60)}" for host, pids in found.items())
        text = f"{_count(number, 'process', 'processes')} of others on the GPUs: {where} (limit 0)"
        return _guard("foreign", True, text, number, 0)
    unknown = {host: told.get("missing", _WHOSE) for host, told in hosts.items() if told.get("foreign_pids") is None}
    if unknown:
        return _missing("foreign", _not_checked(unknown))
    return _guard("foreign", False, f"nobody else was on the GPUs of {', '.join(one_line(h, 60) for h in hosts)}", 0, 0)


def _listed(pids: Sequence[int]) -> str:
    return ", ".join(map(str, pids[:5])) + (" …" if len(pids) > 5 else "")


def _not_checked(why: Mapping[str, str]) -> str:
    return "; ".join(f"not checked on {one_line(host, 60)}: {one_line(text, 120)}" for host, text in why.items())


def _clocks(found: Figures) -> Guard:
    gpu = found.gpu
    if gpu is None:
        return _missing("clocks", "no GPU figures")
    slow = [reason for reason in gpu.throttle if reason in _THROTTLED]
    if slow:
        where = [one_line(one.host, 60) for one in gpu.hosts if set(one.throttle) & set(slow)]
        text = f"the GPUs{' of ' if where else ''}{', '.join(where)} were slowed down: {', '.join(slow)}"
        return _guard("clocks", True, text, ", ".join(slow))
    if unknown := {one.host: one.missing for one in gpu.hosts if one.missing}:
        return _missing("clocks", _not_checked(unknown))
    return _guard("clocks", False, "no thermal or power throttling")


def _server(meta: Meta, server: ServerChecks) -> Guard:
    """The server that was meant, from the first request to the last."""
    meant, version = server.version_meant, server.version
    if meant and version and meant != version:
        return _guard("server", True, f"the server is {version}, launched was {meant}", version, meant)
    if replaced := _replaced(meta.get("server")):
        return _guard("server", True, replaced)
    if server.differences is None:
        return _missing("server", "not launched from a profile: nothing says what it should be")
    other = [difference for difference in server.differences if not difference.adjusted]
    if other:
        said = "; ".join(map(str, other[:3])) + (" …" if len(other) > 3 else "")
        return _guard("server", True, f"not the server that was launched: {said}", len(other), 0)
    return _guard("server", False, "the server runs with the arguments it was launched with", 0, 0)


_IDENTITY = (
    ("model", "its model"),
    ("version", "its version"),
    ("args_sha", "its arguments"),
    ("pid_started", "its process"),
)


def _replaced(seen: Mapping[str, Mapping[str, object] | None] | None) -> str | None:
    """Whether another server answered after a run than at the start of the bench, in words; None where it is the same."""
    first, after = (seen.get("first"), seen.get("after")) if seen else (None, None)
    if not first:
        return None
    if not after:
        return "the server did not answer after the run"
    for key, name in _IDENTITY:
        if first.get(key) != after.get(key):
            values = f"{one_line(str(first.get(key)), 60)} became {one_line(str(after.get(key)), 60)}"
            said = values if key in ("model", "version") else "changed"
            return f"another server answered after the run than at the start of the bench: {name} {said}"
    return None


def _graph(meta: Meta, server: ServerChecks) -> Guard:
    graph = meta.get("graph")
    lines = graph["on"] + graph["off"] if graph else 0
    if server.no_graphs:
        return _missing("graph", server.no_graphs)
    if not graph or not lines:
        return _missing("graph", "the log says nothing of graphs")
    share = graph["off"] / lines
    text = f"{graph['off']} of {lines} decode lines ran without a graph (limit {EAGER_SHARE:.0%})"
    return _guard("graph", share > EAGER_SHARE, text, share, EAGER_SHARE)


def simulated(env: Mapping[str, str] | None) -> Guard:
    """Acceptance that SGLang makes up: good for the curve of speed over acceptance, for no comparison."""
    if env is None:
        return _missing("simulated_acceptance", "the server's environment cannot be read")
    if forced_accept_length(env) is None:
        return _guard("simulated_acceptance", False, "acceptance was not simulated")
    value = one_line(env[FORCED_ACCEPT_LENGTH], 20)
    text = f"simulated acceptance: {FORCED_ACCEPT_LENGTH}={value} forces it, and the text is garbage"
    return _guard("simulated_acceptance", True, text, value)


def _suspicious(rows: Sequence[Row], meta: Meta, found: Figures, server: ServerChecks) -> tuple[str, ...]:
    said = []
    warmup = meta.get("warmup") or {}
    if warmup.get("stable") is False:
        said.append(f"the time between chunks was not steady after {warmup.get('seconds') or 0:.0f} s of warm-up")
    if (meta.get("flush") or {}).get("ok") is False:
        said.append("the prefix cache could not be emptied before the run")
    if found.gpu and (told := [reason for reason in found.gpu.throttle if reason in _TOLD]):
        said.append(f"clocks were held down by the {', '.join(told)}")
    if (meta.get("counters") or {}).get("after") and not meta["counters"].get("idle", True):
        said.append("the server was not idle before and after the run")
    lag, ttft = found.client.loop_lag_max_ms if found.client else None, found.latencies.ttft
    if lag and ttft and ttft.max and lag > max(LATE_ONCE_MS, TAIL_SHARE * ttft.max):
        said.append(f"the load generator was late by {lag:.0f} ms once: a tail of the latencies may be its own")
    if any(row["toks"] is None and row["gaps_us"] for row in rows):
        said.append(
            "the server counts tokens only at the end of a reply: in the window they are spread evenly behind the first"
        )
    said += [f"{_ADJUSTED}{difference}" for difference in server.differences or () if difference.adjusted]
    return tuple(said)
