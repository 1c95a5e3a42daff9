"""The journal as Markdown that a pull request can take: tables, a task list, and no text of others that is more than text.

What hosts, models and people wrote is either in a code span or has every character escaped that Markdown, or GitHub's
mentions, references and links, would read (`plain`).
"""

import re
from collections.abc import Iterable, Sequence

from tui.core.journal.model import (
    ITSELF,
    SETTLED,
    DeadEnd,
    Environment,
    Hypothesis,
    Idea,
    Journal,
    Note,
    RunRow,
    Status,
)
from tui.core.journal.words import clock, configured, day, difference_words
from tui.core.masking.written import mask_text
from tui.core.model.run import short_id
from tui.core.text import one_line
from tui.core.verdicts.sentences import count

_NONE = "–"
_SPECIAL = re.compile(r"[\\`*\[<|~$]|&(?=#?\w+;)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
# @name, ://, www., #1 and GH-1 mean something to GitHub even when they are escaped; a word joiner keeps them text.
_LIVE = re.compile(r"@(?=\w)|#(?=\d)|\bGH-(?=\d)|\bwww(?=\.)|:(?=//)", re.IGNORECASE)
_BEGINS_A_BLOCK = re.compile(r"(?=[-+=>#])|\d{1,9}(?=[.)])")
_JOINER = "\u2060"

MARKS = {
    Status.RUNNING: "running",
    Status.HELD: "✓ held",
    Status.REFUTED: "≠ refuted",
    Status.EQUAL: "≈ equal",
    Status.EARLY: "early",
    Status.OPEN: "open",
    Status.PARKED: "parked",
    Status.DEAD_END: "∅ dead end",
}


def plain(text: str, limit: int = 1000) -> str:
    """Text of others as Markdown that shows it and does nothing else."""
    text = _LIVE.sub(lambda match: match[0] + _JOINER, one_line(text, limit))
    text = _SPECIAL.sub(lambda match: "\\" + match[0], text)
    begins = _BEGINS_A_BLOCK.match(text)
    return f"{text[: begins.end()]}\\{text[begins.end() :]}" if begins is not None else text


def code(text: str, limit: int = 300) -> str:
    """Text of others as a code span, also within a table."""
    text = re.sub(r"\\*\|", r"\\|", one_line(text, limit)).replace(_JOINER, "")
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}" if text else _NONE


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table; none without a row."""
    body = [f"| {' | '.join(cell or _NONE for cell in row)} |" for row in rows]
    return [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|", *body, ""] if body else []


def markdown(journal: Journal) -> str:
    """The whole journal, or what was chosen of it."""
    lines = [f"# Journal{f' of {plain(journal.host)}' if journal.host else ''}", "", _summary(journal), ""]
    if journal.left_out:
        lines += [plain(journal.left_out), ""]
    if journal.hypotheses:
        lines += ["## Hypotheses", ""]
        for one in journal.hypotheses:
            lines += hypothesis(one)
    if journal.dead_ends:
        lines += ["## Dead ends", ""]
        lines += table(("tried", "on", "cause", "what happened", "evidence", "note"), map(_dead_end, journal.dead_ends))
    if journal.ideas:
        lines += ["## Ideas", "", *map(_idea, journal.ideas), ""]
    shown = {note.entry_id for one in journal.hypotheses for note in one.notes}
    others = [note for note in journal.notes if note.entry_id not in shown]
    for title, own in (("Tunes", True), ("Notes", False)):
        if found := [note for note in others if (note.by == ITSELF) is own]:
            lines += [f"## {title}", "", *map(_note, found), ""]
    if journal.runs:
        lines += ["## Runs", "", *runs(journal.runs)]
    return mask_text("\n".join(lines).rstrip() + "\n")


def _summary(journal: Journal) -> str:
    settled = sum(one.status in SETTLED for one in journal.hypotheses)
    crashed = sum(row.outcome == "crashed" for row in journal.runs)
    parts = [
        count(len(journal.hypotheses), "hypothesis", "hypotheses"),
        f"{settled} settled",
        count(len(journal.dead_ends), "dead end"),
        f"{count(len(journal.runs), 'launch', 'launches')}, {crashed} crashed",
    ]
    if (best := journal.best) is not None:
        parts.append(f"best so far {best.tok_s:,.1f} tok/s per user: {code(best.profile)} ({best.level})")
    return " · ".join(parts)


def hypothesis(one: Hypothesis) -> list[str]:
    """A hypothesis with its verdicts, launches, evidence, environment and notes."""
    verdict = one.verdict
    level = f" ({verdict.level})" if verdict is not None and one.status not in (Status.RUNNING, Status.OPEN) else ""
    lines = [f"### {MARKS[one.status]}{level}: {plain(one.text)}", ""]
    when = f"asked {day(one.asked_at)} by {plain(one.by, 60)}"
    when += f", settled {day(one.settled_at)}" if one.settled_at else ""
    if one.launches is not None:
        when += f", {one.launches[0]} of {one.launches[1]} launches"
    lines.append(f"- {when}" + (f", on {plain(one.host, 100)}" if one.host else ""))
    lines += [f"- {plain(one.why)}"] if one.why else []
    lines += [f"- {arm.letter}: {code(configured(arm.profile, arm.sets))}" for arm in one.arms]
    lines += [f"- **{plain(each.text)}** ({each.level})" for each in one.verdicts]
    lines += [f"- {plain(failed)}" for failed in one.failed]
    lines += [f"- {plain(fact)}" for each in one.verdicts for fact in each.facts]
    if environment := environment_words(one.environment):
        lines.append(f"- measured with {plain(environment)}")
    lines += [f"- since then: {plain(text)}" for text in one.since_then]
    lines.append("")
    lines += runs(one.runs)
    return lines + ([*map(_note, one.notes), ""] if one.notes else [])


def environment_words(environment: Environment) -> str:
    """ "8 × RTX PRO 6000, driver 580.95.05, SGLang 0.5.23, torch 2.9.1"; what is not known is left out."""
    gpus = [f"{environment.gpus.count(name)} × {name}" for name in dict.fromkeys(environment.gpus)]
    named = (("driver", environment.driver), ("SGLang", environment.sglang), ("torch", environment.torch))
    return ", ".join([*gpus, *(f"{name} {version}" for name, version in named if version)])


def runs(rows: Sequence[RunRow]) -> list[str]:
    """A table of launches."""
    heads = ("started", "run", "profile", "difference to its parent", "outcome", "ready after", "tok/s per user")
    return table(heads, map(_run, rows))


def _run(row: RunRow) -> tuple[str, ...]:
    parent = f"{code(row.parent)}: " if row.parent else ""
    return (
        day(row.started_at),
        code(short_id(row.run_id)),
        code(configured(row.profile, row.sets)) + f" on {plain(row.host, 60)}",
        parent + code(difference_words(row.difference)) if row.difference else _NONE,
        plain(outcome_words(row)),
        clock(row.ready_after_s) if row.ready_after_s is not None else _NONE,
        f"{row.tok_s:,.1f} ({row.level})" if row.tok_s is not None else _NONE,
    )


def outcome_words(row: RunRow) -> str:
    """ "crashed after 9:21: oom_kv_pool, the KV pool has no room", "stopped by user1@laptop, served 29:10"."""
    if row.outcome in ("crashed", "lost"):
        after = f" after {clock(row.ran_s)}" if row.ran_s is not None else ""
        title = f", {row.card.title}" if row.card is not None else ""
        return f"{row.outcome}{after}: {row.cause or 'unknown'}{title}"
    by = f" by {row.stopped_by}" if row.stopped_by else ""
    served = f", served {clock(row.served_s)}" if row.served_s is not None else ""
    return f"{row.outcome}{by}{served}"


def _dead_end(one: DeadEnd) -> tuple[str, ...]:
    line = f", line {one.line:,}" if one.line else f", {count(one.tries, 'launch', 'launches')}"
    difference = f" {code(difference_words(one.difference))}" if one.difference else ""
    return (
        code(configured(one.profile, one.sets)) + difference,
        plain(one.host, 60),
        code(one.cause) + (f" ({one.level})" if one.level else ""),
        plain(one.what),
        day(one.at) + line + (f": {code(one.evidence, 200)}" if one.evidence else ""),
        plain(one.note) if one.note else _NONE,
    )


def _idea(one: Idea) -> str:
    box = {"done": "[x]", "open": "[ ]"}.get(one.state, "[x] (dropped)")
    ticked = f" ({day(one.ticked_at)}{': ' + plain(one.why) if one.why else ''})" if one.ticked_at else ""
    return f"- {box} {plain(one.text)}{ticked}"


def _note(note: Note) -> str:
    about = ", ".join(code(ref) for ref in note.about)
    return f"- {day(note.at)} {plain(note.by, 60)}: {plain(note.text, 4000)}" + (f" ({about})" if about else "")


def run(row: RunRow) -> list[str]:
    """One launch with its crash card, as the journal keeps it."""
    lines = [f"### {code(row.run_id)}", "", f"- {plain(outcome_words(row))}"]
    lines.append(f"- {code(configured(row.profile, row.sets))} on {plain(row.host, 100)}, {plain(row.started_at, 40)}")
    if row.difference:
        lines.append(f"- difference to {code(row.parent or '')}: {code(difference_words(row.difference, 2000), 2000)}")
    if environment := environment_words(row.environment):
        lines.append(f"- {plain(environment)}")
    if row.phase:
        code_words = f", exit code {row.exit_code}" if row.exit_code is not None else ""
        lines.append(f"- phase {plain(row.phase.replace('_', ' '), 40)}{code_words}")
    if (card := row.card) is not None:
        lines.append(f"- **{plain(card.title)}**" + (f" ({plain(card.rank, 40)})" if card.rank else ""))
        lines += [f"- line {card.line:,}"] if card.line else []
        lines += [f"  {code(line)}  " for line in card.evidence]
        lines += [f"- {plain(text)}" for text in card.advice]
        lines += [f"- try {code(', '.join(f'{key}={value}' for key, value in card.change.items()))}"] * bool(
            card.change
        )
    if row.tok_s is not None:
        lines.append(f"- {row.tok_s:,.1f} tok/s per user ({row.level}, {count(len(row.results), 'result')})")
    return [*lines, "", *map(_note, row.notes)]
