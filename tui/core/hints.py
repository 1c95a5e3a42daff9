"""What the reader can do next, where each face has its own way to it: the command line a command, the panel a key.

The core says the action and what it is about; `str()` of a hint is the command line's way, which is also what is
stored and what scripts read. The panel has its own table (`tui/panel/hints.py`).
"""

from enum import StrEnum
from typing import NamedTuple


class Action(StrEnum):
    """Something that can be done about an error or a finding."""

    SET = "set"  # subject: KEY=VALUE
    CORRECT_SET = "correct_set"
    CORRECT_FILE = "correct_file"
    FIX_FINDINGS = "fix_findings"
    REPLACE = "replace"
    STOP_OR_REPLACE = "stop_or_replace"  # subject: a run
    WAIT = "wait"  # subject: a run
    WAIT_OR_STOP = "wait_or_stop"  # subject: a run
    WAIT_FOR_LEASE = "wait_for_lease"  # subject: the command that has it
    LAUNCH = "launch"
    LOGS = "logs"  # subject: a run
    LIST_RUNS = "list_runs"  # subject: a host
    LIST_PROFILES = "list_profiles"
    LIST_RESULTS = "list_results"
    BENCH = "bench"
    PATHS = "paths"


_COMMANDS = {
    Action.SET: "choose another with --set {}",
    Action.CORRECT_SET: "correct that --set",
    Action.CORRECT_FILE: "correct the file, then try again",
    Action.FIX_FINDINGS: "fix that; --json lists all findings",
    Action.REPLACE: "--replace stops our server first; otherwise fix that; --json lists all findings",
    Action.STOP_OR_REPLACE: "stop it first (eagletui stop {}) or launch with --replace",
    Action.WAIT: "eagletui wait {} waits until it is ready",
    Action.WAIT_OR_STOP: "eagletui wait {0} --for exit waits for its end, eagletui stop {0} ends it",
    Action.WAIT_FOR_LEASE: "wait for its end, or stop it where it runs: eagletui {} --stop now",
    Action.LAUNCH: "eagletui launch NAME --wait starts one; --url measures one that somebody else started",
    Action.LOGS: "eagletui logs {} shows all of its output",
    Action.LIST_RUNS: "eagletui ps {} lists them",
    Action.LIST_PROFILES: "eagletui profiles lists them",
    Action.LIST_RESULTS: "eagletui results lists them",
    Action.BENCH: "measure it first: eagletui bench",
    Action.PATHS: "eagletui paths shows where files go",
}


class Hint(NamedTuple):  # not a dataclass: `eagletui --help` would import that for it
    """One next step; `subject` is one line, sanitized."""

    action: Action
    subject: str = ""

    def __str__(self) -> str:
        return _COMMANDS[self.action].format(self.subject)
