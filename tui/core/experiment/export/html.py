"""One page that opens from disk without a network: verdicts, figures, every run, launches, environment, commands.

Nothing in it is executed or fetched; the flat records of its runs are in it as JSON.
"""

import html
import json
import math
import shlex
from collections.abc import Callable, Sequence
from importlib.resources import files

import tui
from tui.core.errors import UsageError
from tui.core.experiment import record as experiment_record
from tui.core.experiment.export.groups import Group, groups
from tui.core.experiment.export.said import environment, said
from tui.core.experiment.record import Cell, ExperimentRecord
from tui.core.masking.written import mask_text
from tui.core.model.result import Result
from tui.core.results.flat import READS, flat
from tui.core.results.store import without_secrets
from tui.core.speculation.economics import Economics, curve
from tui.core.speculation.from_results import payoff
from tui.core.text import epoch_of, one_line
from tui.core.verdicts.pairing import Side, setting
from tui.core.verdicts.sentences import count, load_words, sets_words

_COLOURS = "abcd"  # classes of the style sheet; further groups share the last
_LEFT, _RIGHT = 110.0, 660.0  # of a plot, in units of its view box


def export(results: Sequence[Result], stored: Sequence[Result] = ()) -> bytes:
    found = groups([without_secrets(result) for result in results])
    record = _record(results)
    sentences = said(found, tuple(stored))
    title = record.profile.hypothesis or record.name if record is not None else "What was measured"
    parts = [
        f"<h1>{_t(title)}</h1>",
        f'<p class="muted">{_t(_subtitle(found, record))}</p>',
        *([f'<div class="said">{"".join(f"<p>{_t(line)}</p>" for line in sentences)}</div>'] if sentences else ()),
        _head("Configurations", "tok/s per user: geometric mean over launches; interval of 95 %"),
        f'<div class="cards">{"".join(_card(group, at) for at, group in enumerate(found))}</div>',
        '<div class="two">' + _runs(found) + _pays(found) + "</div>",
        *(_launches(record) if record is not None else ()),
        *(_commands(found)),
        f"<footer>One file: no network, nothing is executed. The {count(len(results), 'run')} are in it as JSON. Secrets are masked. "
        f"eagletui {_t(tui.__version__)}</footer>",
    ]
    style = (files("tui.data") / "report.css").read_text(encoding="utf-8")
    data = json.dumps([_masked(flat(result)) for group in found for result in group.results]).replace("<", "\\u003c")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{_t(title)}</title><style>\n{style}</style></head><body><main>\n"
        + "\n".join(parts)
        + f'\n</main><script type="application/json" id="results">{data}</script></body></html>\n'
    ).encode()


def _t(text: object) -> str:
    return html.escape(mask_text(one_line(str(text), 20_000)))


def _masked(value: object) -> object:
    if isinstance(value, str):
        return mask_text(value)
    if isinstance(value, dict):
        return {key: _masked(item) for key, item in value.items()}
    return [_masked(item) for item in value] if isinstance(value, list | tuple) else value


def _head(text: str, aside: str = "") -> str:
    return f"<h2>{_t(text)}<small>{_t(aside)}</small></h2>"


def _record(results: Sequence[Result]) -> ExperimentRecord | None:
    """Of the one experiment that all of them are of."""
    names = {result.experiment for result in results}
    name = names.pop() if len(names) == 1 else None
    return experiment_record.read(name) if name is not None else None


def _subtitle(found: Sequence[Group], record: ExperimentRecord | None) -> str:
    every = [result for group in found for result in group.results]
    facts = [f"experiment {record.name}, {len(record.cells)} launches, order {''.join(record.order)}"] if record else []
    facts += [" and ".join(sorted({result.server.host for result in every}))]
    facts += sorted({result.bench for result in every})
    if times := sorted(result.started_at for result in every if result.started_at):
        facts.append(f"{_minute(times[0])} to {_minute(times[-1])} UTC")
    return " · ".join(filter(None, facts))


def _minute(stamp: str) -> str:
    return stamp[:16].replace("T", " ")


def _colour(at: int) -> str:
    return _COLOURS[min(at, len(_COLOURS) - 1)]


def _card(group: Group, at: int) -> str:
    first, valid = group.results[0], [result for result in group.results if result.valid]
    name = first.server.profile or first.server.model or "server"
    about = ", ".join(filter(None, (sets_words(first.server.sets), load_words(first.point))))

    def median(key: str, digits: int, unit: str = "") -> str:
        values = sorted(value for result in valid if (value := READS[key](result)) is not None)
        return f"{values[len(values) // 2]:,.{digits}f}{unit}" if values else "–"

    rows = (
        ("95 %", f"{group.interval[0]:,.1f} … {group.interval[1]:,.1f}" if group.interval else "–"),
        ("launches, runs that count", f"{len(group.launches)}, {len(valid)} of {len(group.results)}"),
        ("level", group.level if valid else "invalid"),
        ("TPOT, median", median("median_tpot_ms", 2, " ms")),
        ("TTFT, median", median("median_ttft_ms", 0, " ms")),
        ("accept length", median("accept_length", 2)),
        ("verify cycle", median("cycle_ms", 2, " ms")),
        ("power", median("power_w", 0, " W")),
    )
    cells = "".join(f'<tr><th>{_t(key)}<td class="n">{_t(value)}' for key, value in rows if value != "–")
    rate = f"{group.rate:,.1f}" if group.rate is not None else "–"
    return (
        f'<section><p><b class="{_colour(at)}">{group.name}</b> <b>{_t(name)}</b><span class="muted"> {_t(about)}</span></p>'
        f'<p class="big">{rate} <small>tok/s per user</small></p><table>{cells}</table></section>'
    )


# -- plots -------------------------------------------------------------------------------------------------------------


def _axis(low: float, high: float) -> tuple[Callable[[float], float], list[float]]:
    """Where a value stands, and round values for the axis."""
    step = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(step * by for by in (1, 2, 5, 10) if (high - low) / (step * by) <= 6)
    ticks = [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return (lambda value: _LEFT + (value - low) / (high - low) * (_RIGHT - _LEFT)), ticks


def _runs(found: Sequence[Group]) -> str:
    """Every run that counts as a dot, a row a launch."""
    rows = [
        (f"{group.name} launch {number}", at, [math.exp(value) for value in launch.values])
        for at, group in enumerate(found)
        for number, launch in enumerate(group.launches, 1)
    ]
    values = [value for _, _, dots in rows for value in dots]
    if not values:
        return ""
    spread = max(max(values) - min(values), 0.02 * max(values))
    place, ticks = _axis(min(values) - 0.1 * spread, max(values) + 0.1 * spread)
    bottom = 14 + 24 * len(rows)
    drawn = [
        f'<line class="grid" x1="{place(tick):.1f}" x2="{place(tick):.1f}" y1="6" y2="{bottom}"/>'
        f'<text x="{place(tick):.1f}" y="{bottom + 18}" text-anchor="middle">{tick:,g}</text>'
        for tick in ticks
    ]
    for row, (name, at, dots) in enumerate(rows):
        y = 22 + 24 * row
        drawn.append(f'<text x="4" y="{y + 4}">{_t(name)}</text>')
        drawn += [
            f'<circle class="{_colour(at)}" cx="{place(dot):.1f}" cy="{y}" r="5"><title>{dot:.1f} tok/s</title></circle>'
            for dot in dots
        ]
    plot = f'<svg viewBox="0 0 680 {bottom + 28}" role="img" aria-label="every run">{"".join(drawn)}</svg>'
    return f"<div>{_head('Every run', 'tok/s per user, a row a launch')}{plot}</div>"


def _pays(found: Sequence[Group]) -> str:
    """Speedup over accept length of each configuration with speculation, beside the first one without."""
    shown: list[tuple[int, Economics]] = []
    for at, group in enumerate(found):
        same = [other for other in found if setting(other.results[0]) == setting(group.results[0])]
        base = next((other for other in same if other.results[0].speculation is None and other.launches), None)
        if group.results[0].speculation is None or base is None or not group.launches:
            continue
        try:
            sides = (Side(one.name, one.name, one.results) for one in (base, group))
            shown.append((at, payoff(*sides).economics))
        except UsageError:
            continue
    if not shown:
        return ""
    right = max(max(e.ceiling or 0.0, 1.15 * e.breakeven_tau, 1.15 * (e.tau or 0.0)) for _, e in shown)
    top = 1.1 * max(1.2, *(e.speedup_at(min(right, e.ceiling or right)) for _, e in shown))
    place, ticks = _axis(1.0, right)

    def y(speedup: float) -> float:
        return 180 - speedup / top * 170

    drawn = [
        f'<line class="one" x1="{_LEFT}" x2="{_RIGHT}" y1="{y(1):.1f}" y2="{y(1):.1f}"/><text x="4" y="{y(1) + 4:.1f}">1.00×</text>'
    ]
    drawn += [f'<text x="{place(tick):.1f}" y="200" text-anchor="middle">{tick:g}</text>' for tick in ticks]
    words = []
    for at, e in shown:
        points = " ".join(
            f"{place(tau):.1f},{y(speedup):.1f}" for tau, speedup in curve(e, min(right, e.ceiling or right))
        )
        drawn.append(f'<polyline class="{_colour(at)}" points="{points}"/>')
        drawn.append(f'<path class="{_colour(at)}" d="M{place(e.breakeven_tau):.1f} {y(1) - 7:.1f}l7 7-7 7-7-7z"/>')
        text = f"{found[at].name} pays from accept length {e.breakeven_tau:.2f}"
        if e.tau is not None and e.speedup is not None:
            drawn.append(f'<circle class="{_colour(at)}" cx="{place(e.tau):.1f}" cy="{y(e.speedup):.1f}" r="6"/>')
            text += f", has {e.tau:.2f}: {e.speedup:.2f}×"
        words.append(text)
    plot = f'<svg viewBox="0 0 680 206" role="img" aria-label="speedup over accept length">{"".join(drawn)}</svg>'
    return f"<div>{_head('Does speculation pay?', 'speedup over accept length; ◆ break-even, ● measured')}{plot}<p>{_t('; '.join(words))}</p></div>"


# -- tables ------------------------------------------------------------------------------------------------------------


def _launches(record: ExperimentRecord) -> list[str]:
    rows = []
    for cell in record.cells:
        ready = (
            f"{cell.ready_after_s / 60:.0f}:{cell.ready_after_s % 60:02.0f}" if cell.ready_after_s is not None else "–"
        )
        words = [
            str(cell.number),
            cell.arm,
            (cell.run_id or "–")[-6:],
            cell.started_at or "–",
            ready,
            cell.status.value,
        ]
        about = f"{cell.cause}: {cell.reason}" if cell.cause else count(len(cell.result_ids), "run")
        rows.append("<tr>" + "".join(f"<td>{_t(word)}" for word in words) + f'<td class="wide">{_t(about)}')
    heads = "".join(f"<th>{word}" for word in ("#", "arm", "run", "started", "ready in", "", ""))
    spent = f"{record.spent_s / 3600:.1f} h of launching and measuring"
    return [_head("Launches", spent), _times(record.cells), f"<table><tr>{heads}{''.join(rows)}</table>"]


def _times(cells: Sequence[Cell]) -> str:
    """Launches in time: dots for the start-up, solid while it was measured."""
    spans = [
        (cell, begun, ended)
        for cell in cells
        if (begun := epoch_of(cell.started_at)) is not None and (ended := epoch_of(cell.ended_at)) is not None
    ]
    if not spans or (total := spans[-1][2] - spans[0][1]) <= 0:
        return ""
    letters = list(dict.fromkeys(cell.arm for cell in cells))
    drawn = []
    for cell, begun, ended in spans:
        ready = begun + cell.ready_after_s if cell.ready_after_s is not None else ended
        x = [10 + (at - spans[0][1]) / total * 1380 for at in (begun, min(ready, ended), ended)]
        drawn.append(f'<line class="start" x1="{x[0]:.1f}" x2="{x[1]:.1f}" y1="22" y2="22"/>')
        drawn.append(
            f'<rect class="{_colour(letters.index(cell.arm))}" x="{x[1]:.1f}" y="8" width="{max(0.0, x[2] - x[1] - 2):.1f}" height="28"/>'
            f'<text x="{x[0]:.1f}" y="54">{cell.number} {_t(cell.arm)}</text>'
        )
    return f'<svg viewBox="0 0 1400 62" role="img" aria-label="launches in time">{"".join(drawn)}</svg>'


def _commands(found: Sequence[Group]) -> list[str]:
    parts = [_head("Environment and commands")]
    for group in found:
        server = group.results[0].server
        parts.append(f"<p><b>{group.name}</b> {_t(environment(group))}</p>")
        if server.argv:
            words = [f"{name}={shlex.quote(value)}" for name, value in server.env.items()]
            parts.append(f"<pre>{_t(' '.join([*words, shlex.join(server.argv)]))}</pre>")
    return parts
