"""The journal in rows: its entries in a list, one of them in depth, a run with its crash card, two runs side by side."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from tui import format as fmt
from tui.core.journal import words
from tui.core.journal.markdown import environment_words
from tui.core.journal.model import SETTLED, DeadEnd, Hypothesis, Idea, Known, Note, RunRow, Status
from tui.core.model.run import short_id
from tui.panel.server_view import LONG, outcome_badge
from tui.panel.widgets.bench.verdict_strip import sentence
from tui.panel.widgets.paint import Run, join
from tui.panel.widgets.row_list import column
from tui.panel.widgets.rows import AnyRow, Line, Row, Single, Title, sections

if TYPE_CHECKING:
    from tui.core.model.profile import DiffLine

Item = Hypothesis | Idea | DeadEnd | Note
"""What the cursor of the journal is on."""

STATES: Mapping[Status, tuple[str, str, str]] = {
    Status.RUNNING: ("◐", "RUNNING", "accent"),
    Status.HELD: ("✓", "HELD", "ok"),
    Status.REFUTED: ("≠", "REFUTED", "warn"),
    Status.EQUAL: ("≈", "EQUAL", "text"),
    Status.EARLY: ("▸", "EARLY", "accent"),
    Status.OPEN: ("○", "OPEN", "text"),
    Status.PARKED: ("□", "PARKED", "muted"),
    Status.DEAD_END: ("∅", "DEAD END", "muted"),
}
_TICKS = {"open": ("□", "text"), "done": ("✓", "ok"), "dropped": ("–", "muted")}
_LABEL = 13


def day(iso: str | None) -> str:
    """`26 Nov`; `–` where it is not known."""
    return words.day(iso) if iso is not None else fmt.NONE


def labelled(label: str, value: Line) -> Row:
    """A label and its value, which wraps under itself."""
    return Row([(f"{label:<{_LABEL - 1}} ", "muted"), *value], hang=_LABEL)


# -- rows of lists -----------------------------------------------------------------------------------------------------


def hypothesis_item(one: Hypothesis) -> Single:
    """`≠ REFUTED   EAGLE-3, 3 steps, beats baseline      0.81×  L2`."""
    glyph, word, color = STATES[one.status]
    verdict = one.verdict
    right: list[Run] = []
    if one.status is Status.RUNNING and one.launches is not None:
        right = [(f"{one.launches[0]} of {one.launches[1]}", "muted")]
    elif verdict is not None and verdict.ratio is not None:
        right = [(fmt.ratio(verdict.ratio), "text"), (f"  {verdict.level}", "muted")]
    elif one.runs:
        right = [(fmt.plural(len(one.runs), "run"), "muted")]
    faded = one.status in (Status.PARKED, Status.DEAD_END)
    return Single([(f"{glyph} ", color), (f"{word:<10}", f"{color}!"), (one.text, "muted" if faded else "")], right)


def idea_item(one: Idea) -> Single:
    """`□ fp8 KV cache: room for a larger batch`."""
    glyph, color = _TICKS.get(one.state, ("·", "muted"))
    ticked: list[Run] = [(f"{one.state} {day(one.ticked_at)}", "muted")] if one.state != "open" else []
    return Single([(f"{glyph} ", color), (one.text, "" if one.state == "open" else "muted")], ticked)


def note_item(one: Note) -> Single:
    """`27 Nov  user1  our prompts are German`."""
    return Single(
        [(f"{day(one.at):<8}", "muted"), *_author(one.by, 10), (one.text, "")], [(about_words(one.about[:1]), "muted")]
    )


def dead_end_item(one: DeadEnd, width: int) -> Single:
    """A row of the table of dead ends; on a narrow screen what and why."""
    tried = words.configured(one.profile, one.sets)
    if width < 100:
        return Single([("∅ ", "muted"), (tried, "")], [(one.cause, "warn")])
    where = f"{day(one.at)}, " + (f"line {one.line:,}" if one.line is not None else one.level or fmt.NONE)
    cause = one.cause + (f" ({one.tries}×)" if one.tries > 1 else "")
    cells = ((tried, ""), (cause, "warn"), (one.what, "muted"), (where, "muted"))
    table = [column(text, wide, spec) for (text, spec), wide in zip(cells, _widths(width), strict=True)]
    return Single([("∅ ", "muted"), *table, (one.note or "", "text")])


def dead_end_heads(width: int) -> Line:
    """The heads over `dead_end_item`."""
    heads = ("tried", "cause", "what happened", "evidence")
    table = [column(head, wide, "muted") for head, wide in zip(heads, _widths(width), strict=True)]
    return [*table[:1], ("  ", "muted"), *table[1:], ("note", "muted")]


def _widths(width: int) -> tuple[int, int, int, int]:
    """Columns of the table of dead ends; what is left is the note's."""
    tried = width * 28 // 100
    return tried, 24, max(22, (width - tried - 24 - 20) * 55 // 100), 20


def settled_item(one: Hypothesis) -> Single:
    """What a hypothesis was settled by, in one sentence."""
    glyph, _, color = STATES[one.status]
    verdict = one.verdict
    if verdict is None or one.why:
        why: list[Run] = [(f"   {one.why}", "muted")] if one.why else []
        return Single([(f"{glyph} ", color), (one.text, ""), *why], [(day(one.settled_at), "muted")])
    said, interval, rest = sentence(verdict.text)
    return Single(
        [
            (f"{glyph} ", color),
            (one.text, ""),
            (f"   {said}", "text"),
            (f" {interval}", "muted"),
            (f"   {rest}" if rest else "", "text"),
        ],
        [(f"{verdict.level}   {day(one.settled_at)}", "muted")],
    )


def _author(by: str, wide: int) -> list[Run]:
    """Who wrote it; what writes itself is muted."""
    return [column(by, wide - 1, "muted" if by == "eagletui" else "violet"), (" ", "")]


def about_words(about: Iterable[str]) -> str:
    """`run 5e10f3`, `profile base`, of references."""
    found = []
    for ref in about:
        kind, colon, name = ref.partition(":")
        found.append(f"{kind} {short_id(name) if kind == 'run' else name}" if colon else "")
    return ", ".join(filter(None, found))


# -- an entry in depth -------------------------------------------------------------------------------------------------


def entry_rows(item: Item, width: int) -> list[AnyRow]:
    """All that is known of what the cursor is on."""
    if isinstance(item, Hypothesis):
        return _hypothesis_rows(item, width)
    if isinstance(item, DeadEnd):
        return _dead_end_rows(item)
    if isinstance(item, Idea):
        glyph, color = _TICKS.get(item.state, ("·", "muted"))
        rows: list[AnyRow] = [
            Title("Idea", [(f"{item.by}, {fmt.day_clock(item.at)}", "muted")]),
            Row([(f"{glyph} ", color), (item.text, "strong!")], ground="surface"),
        ]
        if item.state != "open":
            rows.append(
                labelled(item.state, [(fmt.day_clock(item.ticked_at), "text"), (f"  {item.why or ''}", "muted")])
            )
        return [*rows, *_about_row(item.about)]
    return [
        Title("Note", [(f"{item.by}, {fmt.day_clock(item.at)}", "muted")]),
        Row([(item.text, "text")], ground="surface"),
        *_about_row(item.about),
    ]


def _about_row(about: Sequence[str]) -> list[AnyRow]:
    named = about_words(about)
    return [labelled("about", [(named, "text")])] if named else []


def _hypothesis_rows(one: Hypothesis, width: int) -> list[AnyRow]:
    facts = f"asked {day(one.asked_at)} by {one.by}"
    if one.settled_at is not None:
        facts += f" · settled {fmt.day_clock(one.settled_at)}"
    ran: list[AnyRow] = [
        Title("What was run", [("newest first · ", "muted"), ("Enter", "accent!"), (" opens them", "muted")]),
        *(run_item(run, width) for run in one.runs[:12]),
    ]
    if len(one.runs) > 12:
        ran.append([(f"  … and {len(one.runs) - 12} more", "muted")])
    notes: list[AnyRow] = [
        Title("Notes", [("n", "accent!"), (" adds one from any screen", "muted")]),
        *(Row([(f"{fmt.day_clock(note.at):<14}", "muted"), *_author(note.by, 11), (note.text, "text")], hang=25)
          for note in one.notes),
    ]  # fmt: skip
    evidence = _evidence(one)
    return sections(
        [Title(one.text, [(facts, "muted")]), *_band(one)],
        ran if one.runs else [],
        [Title("Evidence"), *evidence] if evidence else [],
        notes if one.notes else [],
    )


def _band(one: Hypothesis) -> list[AnyRow]:
    """The verdict on `surface`: what it says, the figures, why it is no more."""
    glyph, word, color = STATES[one.status]
    head: list[Run] = [(f"{glyph} {word}", f"{color}!"), (" " * max(2, 12 - len(word)), "")]
    hang = 14
    lines: list[list[Run]] = []
    if one.why or (not one.verdicts and not one.launches):
        lines.append([(one.why or _nothing_yet(one), "strong!" if one.why else "muted")])
    for verdict in one.verdicts:
        said, interval, rest = sentence(verdict.text)
        lines.append(
            [
                (said, "strong!"),
                (f" {interval}", "muted"),
                (f"  {rest}" if rest else "", "text"),
                (f"  {verdict.level}", "strong!"),
            ]
        )
        if verdict.a.tok_s is not None and verdict.b.tok_s is not None:
            lines.append([(f"{verdict.a.ref} ", "strong"), (_arm(one, verdict.a.ref), "muted"), (fmt.tok_s(verdict.a.tok_s), "text"),
                          (f" → {verdict.b.ref} ", "strong"), (_arm(one, verdict.b.ref), "muted"), (fmt.tok_s(verdict.b.tok_s), "text")])  # fmt: skip
        lines += [[(reason, "muted")] for reason in verdict.reasons]
    if not lines and one.launches is not None:
        lines.append([(f"{one.launches[0]} of {one.launches[1]} launches done", "text")])
    (first, *others) = lines
    return [Row([*head, *first], hang=hang, ground="surface"),
            *(Row([(" " * hang, ""), *line], hang=hang, ground="surface") for line in others)]  # fmt: skip


def _arm(one: Hypothesis, letter: str) -> str:
    """The configuration that a verdict calls by its letter."""
    return next((words.configured(arm.profile, arm.sets) + " " for arm in one.arms if arm.letter == letter), "")


def _nothing_yet(one: Hypothesis) -> str:
    return "settled without a word" if one.status in SETTLED else "nothing was measured for it yet"


def _evidence(one: Hypothesis) -> list[AnyRow]:
    rows: list[AnyRow] = [labelled("failed", [(text, "text")]) for text in one.failed]
    crashed = next((run for run in one.runs if run.card is not None and run.card.evidence), None)
    if crashed is not None and crashed.card is not None:
        rows.append(labelled("line", evidence_runs(crashed)))
    if environment := environment_words(one.environment):
        rows.append(labelled("environment", [(environment, "text")]))
    rows += [labelled("since then", [("▲ ", "warn"), (text, "text")]) for text in one.since_then]
    return rows


def evidence_runs(run: RunRow) -> list[Run]:
    """The line of the log that shows why a run died."""
    card = run.card
    where = f"{short_id(run.run_id)} " + (
        f"line {card.line:,}  " if card is not None and card.line is not None else " "
    )
    return [(where, "muted"), (card.evidence[0] if card is not None and card.evidence else "", "text")]


def _dead_end_rows(one: DeadEnd) -> list[AnyRow]:
    facts = f"{one.host} · {fmt.day_clock(one.at)}" + (f" · {one.tries} tries" if one.tries > 1 else "")
    rows: list[AnyRow] = [
        Title(words.configured(one.profile, one.sets), [(facts, "muted")]),
        Row(
            [("∅ DEAD END", "muted!"), ("    ", ""), (one.what, "strong!"), (f"  {one.level or ''}", "text")],
            hang=14,
            ground="surface",
        ),
        labelled("cause", [(one.cause, "warn")]),
    ]
    rows += difference_row(one.parent, one.difference)
    if one.evidence:
        where = f"line {one.line:,}  " if one.line is not None else ""
        rows.append(labelled("evidence", [(where, "muted"), (one.evidence, "text")]))
    if one.run_id is not None:
        rows.append(labelled("run", [(short_id(one.run_id), "text"), ("  Enter", "accent!"), (" opens it", "muted")]))
    return [*rows, *([labelled("note", [(one.note, "text")])] if one.note else [])]


def difference_row(parent: str | None, difference: "Sequence[DiffLine]") -> list[AnyRow]:
    """What a profile changes of its parent, in one wrapped row."""
    if not difference:
        return []
    parts = [[(f"{line.sign}", "muted"), (f"{line.key} ", "text"),
              (f"{line.old} → {line.new}" if line.sign == "~" else line.new or "", "strong" if line.sign != "-" else "muted")]
             for line in difference]  # fmt: skip
    return [labelled("difference", [(f"to {parent or 'its parent'}: ", "muted"), *join(parts)])]


# -- runs --------------------------------------------------------------------------------------------------------------


def outcome_words(run: RunRow) -> str:
    """What came of a run, behind the word of its outcome."""
    if run.outcome == "crashed":
        phase = next((text for name, text in LONG.items() if name == run.phase), None)
        parts = (run.cause, run.card.rank if run.card is not None else phase, _after(run.ran_s))
        return ", ".join(part for part in parts if part)
    by = f"by {run.stopped_by}" if run.stopped_by else ""
    served = f"served {fmt.duration(run.served_s)}" if run.served_s is not None else ""
    return ", ".join(filter(None, (by, served)))


def _after(seconds: float | None) -> str | None:
    return f"after {fmt.duration(seconds)}" if seconds is not None else None


def run_item(run: RunRow, width: int) -> Single:
    """A run of an entry: when, which, what was changed for it; what came out at the right."""
    badge = outcome_badge(run.outcome)
    sets = " ".join(fmt.overrides_of(run.sets))
    left: list[Run] = [
        (f"{badge.glyph} ", badge.color), (f"{fmt.day_clock(run.started_at):<14}", "muted"),
        (f"{short_id(run.run_id)}  ", "text"), (run.profile, "text"), (f" {sets}" if sets else "", "warn"),
    ]  # fmt: skip
    if run.tok_s is not None:
        return Single(left, [(f"{fmt.tok_s(run.tok_s)} tok/s", "strong"), (f"  {run.level or ''}", "muted")])
    return Single(left, [(run.cause or run.outcome, "text")])


def card_rows(run: RunRow, *, apart: bool = True) -> list[AnyRow]:
    """All that is kept of a run; of one that crashed its card first."""
    badge, card = outcome_badge(run.outcome), run.card
    band = "errbg" if run.outcome == "crashed" else "surface"
    said = card.title if card is not None else outcome_words(run) or fmt.NONE
    facts = [run.cause, LONG.get(run.phase or "", run.phase), card.rank if card is not None else None,  # type: ignore[call-overload]
             _after(run.ran_s), f"exit code {run.exit_code}" if run.exit_code is not None else None]  # fmt: skip
    head: list[AnyRow] = [
        Row([(f" {badge.glyph} {badge.word:<11}", f"{badge.color}!"), (said, "strong!")], hang=14, ground=band),
        Row([(" " * 14, ""), (" · ".join(part for part in facts if part), "text")], hang=14, ground=band),
    ]
    rows: list[AnyRow] = []
    if card is not None:
        for place, line in enumerate(card.evidence[:6]):
            where = f"line {card.line:,}  " if card.line is not None and not place else ""
            rows.append(
                labelled("" if place else "evidence", [(where, "muted"), (line, "err" if not place else "muted")])
            )
        rows += [labelled("" if place else "advice", [(text, "text")]) for place, text in enumerate(card.advice)]
        rows += [labelled("change", [(f"{key} = {fmt.value_text(value)}", "ok")]) for key, value in card.change.items()]
    return sections(head, rows, _facts_of(run), apart=apart)


def _facts_of(run: RunRow) -> list[AnyRow]:
    """What was launched, where, and what came of it, in labelled rows."""
    pairs: list[tuple[str, Line]] = [("profile", [(words.configured(run.profile, run.sets), "text")])]
    if run.ready_after_s is not None:
        pairs.append(("ready in", [(fmt.duration(run.ready_after_s), "text")]))
    if run.tok_s is not None:
        counted = fmt.plural(len(run.results), "result")
        pairs.append(
            ("measured", [(f"{fmt.tok_s(run.tok_s)} tok/s", "strong!"), (f"  {run.level or ''}, {counted}", "muted")])
        )
    if environment := environment_words(run.environment):
        pairs.append(("environment", [(environment, "text")]))
    pairs += [("note", [*_author(note.by, 10), (note.text, "text")]) for note in run.notes]
    rows: list[AnyRow] = [labelled(*pair) for pair in pairs]
    return [rows[0], *difference_row(run.parent, run.difference), *rows[1:]]


def compare_rows(a: RunRow, b: RunRow, flags: Sequence[tuple[str, object, object]]) -> list[AnyRow]:
    """Two runs side by side, and the flags in which they differ."""
    wide = 30

    def pair(label: str, left: object, right: object) -> AnyRow:
        same = left == right
        spec = "muted" if same else "strong!"
        return Row([column(label, 26, "muted"), column(_shown(left), wide, spec), (_shown(right), spec)], hang=26)

    figures = [
        ("started", fmt.day_clock(a.started_at), fmt.day_clock(b.started_at)),
        ("host", a.host, b.host),
        ("profile", a.profile, b.profile),
        ("outcome", a.cause or a.outcome, b.cause or b.outcome),
        ("ready in", fmt.duration(a.ready_after_s), fmt.duration(b.ready_after_s)),
        ("tok/s", fmt.tok_s(a.tok_s), fmt.tok_s(b.tok_s)),
        ("SGLang", a.environment.sglang, b.environment.sglang),
        ("driver", a.environment.driver, b.environment.driver),
    ]
    head = Row([column("", 26), column(short_id(a.run_id), wide, "strong!"), (short_id(b.run_id), "strong!")], hang=26)
    different = [pair(*flag) for flag in flags] or [[("the same flags", "muted")]]
    return sections([head, *(pair(*figure) for figure in figures)], [Title("Flags that differ"), *different])


def _shown(value: object) -> str:
    return fmt.NONE if value is None else fmt.value_text(value)


def known_rows(known: Sequence[Known]) -> list[AnyRow]:
    """What the journal knows of a launch that is to be made: two lines at most."""
    rows: list[AnyRow] = []
    for one in known[:2]:
        badge = outcome_badge(one.outcome)
        key: list[Run] = [("   J", "accent!"), (" opens it", "muted")] if not rows else []
        rows.append(Row([(f"{badge.glyph} ", badge.color), (one.text, "text"), *key], hang=2))
    return rows


def marked(run: Run, sought: Sequence[str]) -> list[Run]:
    """A run with the words in it as search hits."""
    text, spec = run
    lower = text.lower()
    found = [(lower.index(word), word) for word in sought if word and word in lower]
    if not found or len(lower) != len(text):
        return [run]
    at, word = min(found)
    hit = text[at : at + len(word)]
    return [(text[:at], spec), (hit, "hittext/hit"), *marked((text[at + len(word) :], spec), sought)]
