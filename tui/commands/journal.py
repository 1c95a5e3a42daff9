"""`eagletui journal`: what was tried and what came of it; notes, ideas and hypotheses."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tui.commands import completing
from tui.commands.options import json_option
from tui.commands.output import emit, say
from tui.core.config import write_whole
from tui.core.errors import Slug, UsageError
from tui.core.journal import markdown, reading, references, writing
from tui.core.journal.model import Entry, Hypothesis, Journal, Kind, RunRow, Status
from tui.core.journal.words import configured
from tui.core.records import to_json
from tui.core.text import aligned, one_line
from tui.core.verdicts.sentences import count

_STATUS = {"held": Status.HELD, "refuted": Status.REFUTED, "parked": Status.PARKED, "dead-end": Status.DEAD_END}

_author = click.option("--author", metavar="A", help="Who says so, instead of $USER.")
_on = click.option(
    "--on", "about", multiple=True, metavar="REF", help="A run, result, experiment, profile, host, entry."
)
_why = click.option("--why", default="", metavar="TEXT", help="For whoever asks later.")


def _written_by_a_person(command: Callable[..., int]) -> Callable[..., int]:
    return json_option(_author(command))


@click.group(invoke_without_command=True)
@click.option("--host", metavar="H", shell_complete=completing.hosts, help="Only what is about host H.")
@click.option("--model", metavar="M", help="Only what is about models with M in their name.")
@click.option("--since", metavar="D", help="Not older than 2026-11-20, 20Nov, 7d, 12h, today.")
@click.option("--search", metavar="TEXT", help="Only what has all these words.")
@click.option("--output", metavar="F", type=click.Path(path_type=Path), help="Write a file.")
@json_option
@click.pass_context
def command(
    ctx: click.Context,
    host: str | None,
    model: str | None,
    since: str | None,
    search: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """What was tried and what came of it; as Markdown. `note`, `idea` and `hypothesis` add to it."""
    if ctx.invoked_subcommand is None:
        found = reading.narrowed(_read(host), model=model, since=since, search=search)
        ctx.exit(_print(found, output, as_json))


def _read(host: str | None = None) -> Journal:
    """With what is not written yet; lines that cannot be read are said."""
    writing.sync_quietly()
    journal = reading.read(host)
    if journal.left_out:
        say(journal.left_out)
    return journal


def _print(journal: Journal, output: Path | None, as_json: bool) -> int:
    if as_json and output is None:
        emit(_json(journal))
        return 0
    text = markdown.markdown(journal)
    if output is None:
        print(text, end="")
        return 0
    write_whole(output, text)
    say(f"{output}: {count(len(journal.entries), 'entry', 'entries')}")
    if as_json:
        emit({"file": str(output), "error": None})
    return 0


def _json(journal: Journal) -> dict[str, Any]:
    return {
        "host": journal.host,
        "hypotheses": [_hypothesis_json(one) for one in journal.hypotheses],
        **{name: to_json(getattr(journal, name)) for name in ("dead_ends", "ideas", "notes", "runs")},
        "best": journal.best.run_id if journal.best is not None else None,
        "left_out": journal.left_out,
        "error": None,
    }


def _hypothesis_json(one: Hypothesis) -> dict[str, Any]:
    """With the ids of its runs, which stand beside it."""
    return {**to_json(one), "runs": [row.run_id for row in one.runs]}


@command.command()
@click.argument("text")
@_on
@_written_by_a_person
def note(text: str, about: tuple[str, ...], author: str | None, as_json: bool) -> int:
    """Write a note, about something or about nothing."""
    return _say_written(writing.note(text, _references(about), author), as_json)


@command.command()
@click.argument("text")
@_on
@_written_by_a_person
def idea(text: str, about: tuple[str, ...], author: str | None, as_json: bool) -> int:
    """Write down what is to be tried."""
    return _say_written(writing.idea(text, _references(about), author), as_json)


@command.command()
@click.argument("text")
@_on
@_written_by_a_person
def hypothesis(text: str, about: tuple[str, ...], author: str | None, as_json: bool) -> int:
    """Write a hypothesis; with --on EXPERIMENT it has the status of its verdicts."""
    return _say_written(writing.hypothesis(text, _references(about), author), as_json)


@command.command()
@click.argument("entry", metavar="ID")
@click.option("--drop", "state", flag_value="dropped", help="It will not be tried.")
@click.option("--open", "state", flag_value="open", help="It is to be tried after all.")
@_why
@_written_by_a_person
def tick(entry: str, state: str | None, why: str, author: str | None, as_json: bool) -> int:
    """An idea is done."""
    meant = references.entry_named(entry, (Kind.IDEA,), _read())
    return _say_written(writing.tick(meant.id, state or "done", why, author), as_json)


@command.command()
@click.argument("entry", metavar="ID")
@click.argument("status", type=click.Choice(list(_STATUS)))
@_why
@_written_by_a_person
def settle(entry: str, status: str, why: str, author: str | None, as_json: bool) -> int:
    """Your word on a hypothesis, written or an experiment's; it counts more than the verdicts'."""
    meant = references.hypothesis_named(entry, _read())
    return _say_written(writing.settle(meant.entry_id, _STATUS[status], why, author), as_json)


@command.command()
@click.argument("entry", metavar="ID")
@_why
@_written_by_a_person
def retract(entry: str, why: str, author: str | None, as_json: bool) -> int:
    """Take back a note, an idea or a hypothesis; it stays in the file."""
    meant = references.entry_named(entry, (Kind.NOTE, Kind.IDEA, Kind.HYPOTHESIS), _read())
    return _say_written(writing.retract(meant.id, why, author), as_json)


def _references(about: tuple[str, ...]) -> list[str]:
    journal = _read() if about else None
    return [references.canonical(one, journal) for one in about] if journal is not None else []


def _say_written(entry: Entry, as_json: bool) -> int:
    if as_json:
        emit(to_json(entry) | {"error": None})
    else:
        print(entry.id)
    return 0


@command.command()
@click.argument("words", metavar="[FILTER]...", nargs=-1)
@json_option
def runs(words: tuple[str, ...], as_json: bool) -> int:
    """All launches, newest first; FILTER: words, and host: profile: outcome: cause: since: flag: level:."""
    journal = _read()
    found = reading.all_runs(" ".join(words), journal)
    if as_json:
        emit(to_json(found))
    elif found:
        print("\n".join(aligned([_HEADS, *map(_row, found)], range(5))))
    say(f"{len(found)} of {count(len(journal.runs), 'launch', 'launches')}")
    return 0


_HEADS = ("started", "run", "host", "profile", "outcome", "tok/s user", "level")


def _row(row: RunRow) -> tuple[str, ...]:
    return (
        row.started_at[:16].replace("T", " "),
        one_line(row.run_id, 60),
        one_line(row.host, 30),
        configured(row.profile, row.sets),
        one_line(markdown.outcome_words(row), 90),
        f"{row.tok_s:,.1f}" if row.tok_s is not None else "–",
        row.level or "–",
    )


@command.command()
@click.argument("reference", metavar="REF", shell_complete=completing.runs)
@json_option
def show(reference: str, as_json: bool) -> int:
    """One launch with its crash card, a hypothesis, or an entry."""
    journal = _read()
    meant = references.canonical(reference, journal)
    name = meant.partition(":")[2]
    found: RunRow | Hypothesis | Entry | None = next(
        (row for row in journal.runs if meant in (f"run:{row.run_id}", row.entry_id)), None
    )
    lines = markdown.run(found) if isinstance(found, RunRow) else []
    if found is None:
        found = next((one for one in journal.hypotheses if meant == one.entry_id or name in one.experiments), None)
        lines = markdown.hypothesis(found) if isinstance(found, Hypothesis) else []
    if found is None:
        found = next((one for one in journal.entries if meant in (one.id, one.id.partition("#")[0])), None)
        lines = (
            [f"{one_line(found.at, 40)} {markdown.plain(found.by)}: {markdown.plain(found.text, 4000)}"]
            if found
            else []
        )
    if found is None:
        raise UsageError(
            f"the journal has no entry of {one_line(meant, 100)}",
            "eagletui journal runs lists launches",
            slug=Slug.UNKNOWN_ENTRY,
        )
    if as_json:
        emit((_hypothesis_json(found) if isinstance(found, Hypothesis) else to_json(found)) | {"error": None})
    else:
        print("\n".join(lines).rstrip())
    return 0
