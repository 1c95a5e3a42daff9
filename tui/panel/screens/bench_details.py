"""Facts behind the bench screen: a verdict with what it rests on, and the runs of an arm with their guards."""

from collections.abc import Sequence

from tui import format as fmt
from tui.core.model.result import GuardStatus, Result
from tui.core.model.verdict import Verdict
from tui.core.text import one_line
from tui.core.verdicts.sentences import answer_words
from tui.panel.bench_view import ArmEconomics, ArmView, Comparison
from tui.panel.widgets.bench.arm_card import run_place
from tui.panel.widgets.bench.verdict_strip import GLYPHS, pending
from tui.panel.widgets.paint import Run, join
from tui.panel.widgets.rows import AnyRow, facts_of

_LEVELS = {
    "L0": "a single run: no error bar at all",
    "L1": "repeats, but no three launch pairs: how much a restart changes is not measured",
    "L2": "three launch pairs or more, measured alternately: restarts are in the interval",
}
_MARK = {GuardStatus.OK: ("✓", "ok"), GuardStatus.FAILED: ("✗", "err"), GuardStatus.NOT_APPLICABLE: ("–", "muted")}


def verdict_rows(comparison: Comparison, view: ArmView) -> list[AnyRow]:
    """What is known of an arm against the one it is compared with, and what that rests on."""
    verdict = view.verdict
    if view.arm.against is None:
        rows: list[AnyRow] = [[(f"{view.letter} is the reference: the others are compared with it.", "text")]]
    elif verdict is None:
        rows = [[(pending(view, max(1, comparison.state.pairs)), "strong!")]]
    else:
        rows = _of_verdict(comparison, verdict)
    for one in comparison.economics:
        if one.view is view:
            rows += [[], [("Does speculation pay?", "strong!")], *economics_rows(one)]
    return rows


def _of_verdict(comparison: Comparison, verdict: Verdict) -> list[AnyRow]:
    glyph, color = GLYPHS[verdict.verdict]
    sentences = [one_line(part) for part in verdict.text.splitlines() if part.strip()]
    rows: list[AnyRow] = []
    head, *rest = sentences or [""]
    rows += [[(f"{glyph} ", f"{color}!"), (head, "strong!")], *([(part, "muted")] for part in rest)]
    pairs: list[tuple[str, str]] = []
    for figure in (verdict.a, verdict.b):
        named = comparison.arm(figure.ref)
        title = f"{named.arm.profile}{', ' + named.changes if named.changes else ''}" if named else figure.ref
        launches = "1 launch" if figure.launches == 1 else f"{figure.launches} launches"
        counted = f"{launches}, {fmt.plural(figure.runs, 'run')}"
        value = comparison.metric.show(figure.tok_s) if figure.tok_s is not None else fmt.NONE
        pairs.append((f"arm {figure.ref}", f"{value} {comparison.metric.unit} from {counted}: {one_line(title, 160)}"))
    if verdict.ratio is not None:
        span = ""
        if verdict.ci is not None:
            low, high = verdict.ci
            span = f", {verdict.confidence * 100:g} % interval {low:.3f} … {high:.3f}"
        pairs.append(("ratio", f"{verdict.ratio:.3f}{span}"))
    pairs.append(("level", f"{verdict.level}: {_LEVELS.get(verdict.level, '')}"))
    pairs.append(("pairs", str(verdict.n_pairs)))
    if verdict.mde is not None:
        pairs.append(("finds", f"an effect of {verdict.mde * 100:.1f} %, nine times out of ten, with so many pairs"))
    if verdict.noise_floor is not None:
        pairs.append(("noise floor", f"two launches of the same differ by ±{verdict.noise_floor * 100:.1f} % here"))
    rows += [[], *facts_of(pairs)]
    for title, texts in (("Measured", verdict.facts), ("Reasons", verdict.reasons)):
        if texts:
            rows += [[], [(title, "strong!")]]
            rows += [[(one_line(text), "text")] for text in texts]
    if verdict.same_text is not None and verdict.same_text.examples:
        rows += [[], [("Where replies diverge", "strong!")]]
        for example in verdict.same_text.examples:
            item = "" if example.item is None else f" of the reply to item {example.item}"
            rows.append([(f"token {example.token:,}{item}", "muted")])
            for figure, text in ((verdict.a, example.a), (verdict.b, example.b)):
                rows.append([(f"  {figure.ref}  ", "muted"), (one_line(text), "text")])
    return rows


def economics_rows(one: ArmEconomics) -> list[AnyRow]:
    """A cycle against a decode step, what follows, and why a cycle may be too expensive."""
    from tui.core.bench import allreduce
    from tui.core.speculation.verify_cost import Weight, verify_cost

    e = one.economics
    rows: list[AnyRow] = [[(one_line(e.text), "strong!")]]
    if e.alpha_text is not None:
        rows += [[(one_line(e.alpha_text), "text")]]
    span = f", 95 % interval {e.interval[0]:.2f} … {e.interval[1]:.2f} over {e.basis}" if e.interval else ""
    pairs = [
        ("accept", f"{fmt.accept(e.tau)} tokens a verify step, bonus token counted"),
        ("cycle", f"{fmt.decimals(e.t_cycle_ms, 1)} ms of draft and verify"),
        ("decode step", f"{fmt.decimals(e.t_base_ms, 2)} ms in {one.base.letter}, without speculation"),
        ("break-even", f"{fmt.accept(e.breakeven_tau)}: a cycle takes as long as so many decode steps{span}"),
    ]
    if e.best_speedup is not None:
        pairs.append(("at best", f"{fmt.ratio(e.best_speedup)} with all of {e.ceiling} tokens accepted"))
    rows += [[], *facts_of(pairs)]
    rows += [[(one_line(reason), "muted")] for reason in e.reasons]
    layers, measured = allreduce.of_results(one.view.results)
    cost = verify_cost(e, one.view.results, layers=layers, all_reduce=measured)
    if cost is None:
        return rows
    rows += [[], [("▲ ", "warn"), ("A cycle costs more than is normal", "strong!")], [(one_line(cost.text), "text")]]
    marks = {Weight.LIKELY: ("▲", "warn"), Weight.POSSIBLE: ("?", "muted"), Weight.RULED_OUT: ("✓", "ok")}
    for suspect in cost.suspects:
        glyph, color = marks[suspect.weight]
        rows += [
            [],
            [(f"{glyph} ", color), (suspect.title, "strong!"), (f", {suspect.weight}", "muted")],
            [("  ", "text"), (one_line(suspect.evidence), "text")],
            [("  check:  ", "muted"), (one_line(suspect.check), "text")],
        ]
    return rows


# -- the runs of an arm ------------------------------------------------------------------------------------------------


def record_rows(view: ArmView) -> list[AnyRow]:
    """Every run of an arm with its figures, what does not count and why, all guards, and the server."""
    rows: list[AnyRow] = [[(f"{view.letter}  ", f"{view.color}!"), (one_line(view.arm.profile, 120), "strong!"),
                          (f"  {view.changes}" if view.changes else "", "muted")]]  # fmt: skip
    if view.arm.reason:
        rows += [[], *[[(one_line(view.arm.reason), "text")]]]
    if not view.results:
        return [*rows, [], [("no run is complete yet", "muted")]]
    rows += [[], [("Runs", "strong!")]]
    for result in view.results:
        rows += _run(view, result)
    rows += [[], [("Guards", "strong!"), ("  the last run's words, or those of the run that failed", "muted")]]
    rows += _guards(view.results)
    rows += [[], [("Server and load", "strong!")], *_server(view.results[-1])]
    return rows


def _run(view: ArmView, result: Result) -> list[AnyRow]:
    glyph: Run = ("✓ ", "ok") if result.valid else ("✗ ", "err")
    latencies, use = result.latencies, result.gpu
    facts: list[list[Run]] = [[(fmt.tok_s(result.throughput.per_user_tok_s), "strong!"), (" tok/s", "muted")]]
    if result.capacity is not None:
        facts.insert(0, [(answer_words(result.capacity), "strong!")])
    if latencies.tpot:
        facts.append([("TPOT ", "muted"), (fmt.decimals(latencies.tpot.p50, 2), "text"), (" ms", "muted")])
    if latencies.ttft:
        facts.append([("TTFT ", "muted"), (fmt.whole(latencies.ttft.p50), "text"), (" ms", "muted")])
    if result.speculation is not None:
        facts.append([("accept ", "muted"), (fmt.accept(result.speculation.tau), "text")])
    if use is not None and use.power_w is not None:
        facts.append([(fmt.whole(use.power_w), "text"), (" W", "muted")])
    rows: list[AnyRow] = [[glyph, (f"{run_place(view, result)}  ", "text"), *join(facts)]]
    for guard in result.guards:
        if guard.status is GuardStatus.FAILED:
            rows.append(
                [("    ✗  ", "err"), (f"{one_line(guard.id, 40)}: ", "strong!"), (one_line(guard.text), "text")]
            )
    for text in result.suspicious:
        rows.append([("    ▲  ", "warn"), (one_line(text), "text")])
    for text in result.notes:
        rows.append([("    ·  ", "muted"), (one_line(text), "muted")])
    return rows


def _guards(results: Sequence[Result]) -> list[AnyRow]:
    rows: list[AnyRow] = []
    names = list(dict.fromkeys(guard.id for result in results for guard in result.guards))
    wide = min(24, max((len(name) for name in names), default=0)) + 2
    for name in names:
        own = [guard for result in results for guard in result.guards if guard.id == name]
        failed = [guard for guard in own if guard.status is GuardStatus.FAILED]
        shown = failed[0] if failed else own[-1]
        glyph, color = _MARK[shown.status]
        count = f"{len(failed)} of {len(own)} runs: " if failed else ""
        text = f"{count}{one_line(shown.text)}"
        # two blanks after each label: what is long hangs under its text
        label = f"{one_line(name, wide - 2).replace('_', ' '):<{wide}}"
        rows.append([(f"{glyph}  ", color), (label, "text"), (text, "strong" if failed else "muted")])
    return rows


def _server(result: Result) -> list[AnyRow]:
    server, load = result.server, result.load
    pairs = [
        ("run", server.run_id or fmt.NONE),
        ("model", one_line(server.model or fmt.NONE, 200)),
        ("version", one_line(server.version or fmt.NONE, 80)),
        ("GPUs", f"{len(server.gpus)} × {one_line(server.gpus[0], 80)}" if server.gpus else fmt.NONE),
        (
            "load",
            f"{load.dataset}, {load.kind} loop, {load.requests if load.requests is not None else fmt.NONE} requests",
        ),
        ("window", f"{result.window.duration_s:.0f} s, {result.window.kind}" if result.window else fmt.NONE),
        ("tool", " ".join(part for part in (result.tool.name, result.tool.version, result.tool.backend) if part)),
        ("result", result.result_id),
    ]
    if server.spec is not None:
        spec = server.spec
        parts = [
            spec.algorithm,
            *(
                f"{name} {value}"
                for name, value in (("steps", spec.steps), ("top-k", spec.topk), ("draft tokens", spec.draft_tokens))
                if value is not None
            ),
        ]
        pairs.insert(4, ("speculation", one_line(", ".join(parts), 160)))
    return facts_of(pairs)
