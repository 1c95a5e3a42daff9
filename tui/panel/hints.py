"""Hints of the core in the panel's words: keys instead of commands."""

from tui.core.hints import Action, Hint

KEYS = {
    Action.SET: "o {} chooses another",
    Action.CORRECT_SET: "correct that line",
    Action.CORRECT_FILE: "correct the file, then try again",
    Action.FIX_FINDINGS: "fix that; l shows all findings",
    Action.REPLACE: "r stops our server first; otherwise fix that; l shows all findings",
    Action.STOP_OR_REPLACE: "r stops it first",
    Action.WAIT: "1 shows its start",
    Action.WAIT_OR_STOP: "wait for its end, or stop it: 1, then S",
    Action.WAIT_FOR_LEASE: "wait for its end, or stop it where it runs ({})",
    Action.LAUNCH: "3, then l starts one",
    Action.LOGS: "2 shows all of its output",
    Action.LIST_RUNS: "1 shows what runs",
    Action.LIST_PROFILES: "3 lists them",
    Action.LIST_RESULTS: "4, then c lists them",
    Action.BENCH: "measure it first: 4, then b",
    Action.PATHS: "eagletui paths shows where files go",
}


def with_hint(text: str, hint: Hint | str | None) -> str:
    """What happened, and what to do about it."""
    return f"{text}; {in_panel(hint)}" if hint else text


def in_panel(hint: Hint | str) -> str:
    """A hint as the panel shows it."""
    return hint if isinstance(hint, str) else KEYS[hint.action].format(hint.subject)
