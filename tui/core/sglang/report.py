"""The answer of `eagletui diagnose`: as a JSON object, and as text."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from tui.core.model.phases import Outcome
from tui.core.sglang.diagnose import diagnose
from tui.core.sglang.diagnosis import Diagnosis, ExitEvidence
from tui.core.sglang.observations import BUSY
from tui.core.sglang.state import PARTS, Paste, StartupState
from tui.core.sglang.tracker import LogTracker
from tui.core.sglang.wrapping.engines import SGLANG, name_of
from tui.core.text import one_line

_NOT_OURS = "no line of it is one that a server of SGLang writes"
_ALONE = Paste()


class Report(dict[str, Any]):
    """The JSON object of `eagletui diagnose`; `title` is for people and not a part of it."""

    title: str | None = None
    found: Diagnosis | None = None  # of a death
    memory_of = "GPU"  # whose memory a server of one rank has


def report_of(
    tracker: LogTracker,
    *,
    exit: ExitEvidence | None = None,
    prefer: Callable[[Diagnosis, StartupState], Diagnosis] | None = None,
) -> Report:
    """The JSON object of `eagletui diagnose` for what a tracker has read.

    Args:
        exit: what the host says about the process.
        prefer: knows better advice, from earlier starts on that host (`forecast.prefer_worked`).
    """
    state = tracker.state()
    if tracker.paste.engine not in (None, SGLANG):
        state = StartupState(recognised=True)  # what another engine says is not for us to judge
    found, observations = diagnose(state, exit=exit)
    if found is not None and prefer is not None:
        found = prefer(found, state)
    return report_with(state, found, observations, alive=exit is not None, paste=tracker.paste)


def report_with(
    state: StartupState,
    found: Diagnosis | None,
    observations: tuple[Diagnosis, ...] = (),
    *,
    alive: bool = False,
    paste: Paste = _ALONE,
) -> Report:
    """The same for a diagnosis that is made.

    Args:
        alive: a run is there, whatever its log says: an empty one is that of a start.
        paste: what was around the log.
    """
    unknown = not state.recognised and not alive and found is None
    faults = (item for item in observations if state.outcome == Outcome.READY and item.cause not in BUSY)
    named = found or next(faults, None)
    decode = state.last_decode
    made = Report(
        phase=state.phase.value,
        outcome=(Outcome.UNKNOWN if unknown else state.outcome).value,
        cause=named.cause if named else None,
        rank=named.rank if named else None,
        evidence=asdict(named.evidence) if named and named.evidence else None,
        advice=list(named.advice) if named else [],
        set=dict(named.set) if named else {},
        progress=asdict(state.progress) if state.progress else None,
        ranks_seen=state.ranks_seen,
        last_decode={name: getattr(decode, name) for name in ("running", "gen_tok_s", "accept_len")}
        if decode
        else None,
        ledger=[asdict(row) for row in state.ledger],
        observations=[
            {"cause": item.cause, "title": item.title, "evidence": asdict(item.evidence) if item.evidence else None}
            | {"advice": list(item.advice), "set": dict(item.set)}
            for item in observations
        ],
        source=[asdict(item) for item in named.source] if named else [],
        engine=paste.engine,
        wrapping=list(paste.wrapping),
        container=paste.container,
        other_containers=list(paste.others),
        note=None,
    )
    made.title = named.title if named else _NOT_OURS if unknown else None
    made.found = found
    made.memory_of = "host" if state.host_memory else "GPU"
    return made


def report_text(found: Mapping[str, Any]) -> str:
    """The same for people: outcome, cause, evidence, advice, change, ledger."""
    engine = found.get("engine")
    if engine not in (None, SGLANG):
        return f"a log of {name_of(engine)}, not of a server of SGLang: nothing of it is judged"
    title = getattr(found, "title", None)
    phase = str(found["phase"]).replace("_", " ")
    where = "" if found["outcome"] == Outcome.UNKNOWN else f" in {phase}"
    lines = [f"{str(found['outcome']).upper()}{where}" + (f": {title}" if title else "")]
    progress, evidence, decode = found.get("progress"), found.get("evidence"), found.get("last_decode")
    if progress:
        lines.append(f"  progress  {progress['what']} {progress['done']}/{progress['total']}")
    if found.get("cause"):
        lines.append(f"  cause     {found['cause']}" + (f", first on {found['rank']}" if found.get("rank") else ""))
    if evidence:
        where = f"line {evidence['line']}: " if evidence["line"] else ""
        lines.append(f"  evidence  {where}{evidence['text']}")
        more = [line for line in evidence["lines"] if line.strip() and line.strip() not in evidence["text"]]
        lines += [f"            {one_line(line, 200)}" for line in more]
    for part in found.get("source", ()):
        lines.append(f"  source    {part['file']}:{part['line']}")
        for number, line in enumerate(part["lines"], part["first"]):
            lines.append(f"          {'>' if number == part['line'] else ' '} {number:>5} {line}")
    lines += [f"  advice    {text}" for text in found.get("advice", ())]
    lines += [f"  set       {key} = {value}" for key, value in found.get("set", {}).items()]
    for item in found.get("observations", ()):
        if item["title"] != title:
            where = f"line {item['evidence']['line']}: " if item["evidence"] and item["evidence"]["line"] else ""
            lines += [f"  observed  {where}{item['title']}", *(f"            {text}" for text in item["advice"])]
    if decode:
        formats = {"running": "{} running", "gen_tok_s": "{:g} tok/s", "accept_len": "accept length {:.2f}"}
        parts = [text.format(decode[name]) for name, text in formats.items() if decode[name] is not None]
        lines.append("  decode    " + ", ".join(parts))
    if found.get("ranks_seen"):
        lines.append(f"  ranks     {found['ranks_seen']} seen")
    names = {"before_gib": "before", **PARTS, "free_gib": "free"}
    for row in found.get("ledger", ()):
        figures = [f"{name} {row[key]:.2f}" for key, name in names.items() if row.get(key) is not None]
        lines.append(f"  memory    {row['rank'] or getattr(found, 'memory_of', 'GPU')}: {', '.join(figures)} GiB")
        if row.get("contradiction"):
            lines.append(f"            its parts are more than what is gone from {row['contradiction']}")
    if found.get("other_containers"):
        left = ", ".join(map(str, found["other_containers"]))
        lines.append(f"  container {found['container']} was read; left out: {left}")
    if found.get("note"):
        lines.append(f"  note      {found['note']}")
    return "\n".join(lines)
