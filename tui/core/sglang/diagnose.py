"""Who is to blame for a death, and what a living server should be looked at for."""

from collections.abc import Iterable

from tui.core.model.phases import Outcome, Phase
from tui.core.sglang.advice import evidence_of, explain
from tui.core.sglang.diagnosis import Diagnosis, Evidence, ExitEvidence
from tui.core.sglang.observations import observations
from tui.core.sglang.patterns import patterns
from tui.core.sglang.state import Clue, StartupState
from tui.core.text import one_line

_WINDOW = 50  # lines before the first fatal one in which a line outside any traceback counts as a cause
_NATIVE_SIGNALS = (4, 6, 7, 8, 11)
_LAST_TIER = 10
_OF_PEERS = ("nccl", "disaggregation")  # causes that lie on another side, or between them
_KILLED = ("exit_sigkill", "exit_sigterm", "exit_native")
_IMPORTS = ("import", "import_missing", "import_name", "import_not_installed")


def diagnose(
    state: StartupState, *, exit: ExitEvidence | None = None
) -> tuple[Diagnosis | None, tuple[Diagnosis, ...]]:
    """The root cause of a death, and observations about a server that lives.

    Args:
        state: what the log says.
        exit: what the host says; without it the log alone decides.

    Returns:
        (None, observations) where nothing failed.
    """
    if _died(state, exit):
        return _cause(state, exit), ()
    return None, observations(state)


def _died(state: StartupState, exit: ExitEvidence | None) -> bool:
    if state.outcome == Outcome.STOPPED or (exit is not None and exit.stopped_by_us):
        return False
    if state.outcome == Outcome.CRASHED:
        return True
    if exit is None or exit.alive:
        return False
    return exit.exit_code is None or exit.exit_code not in (0, 130, -2)


def _tier(clue: Clue, near: bool) -> float:
    """How good a clue is at naming the cause, the best first: communication trouble gives way to a root on any rank."""
    inside = clue.marked or clue.fatal
    match clue.level:
        case "root" if clue.id in _IMPORTS:
            return 2 if clue.traceback else 9  # often handled by a fallback: any other root comes before it
        case "root":
            return 0 if inside else 1 if clue.traceback else 3 if near else 9
        case "exception" if clue.id == "kind_process_gone":
            return 9  # that a process is gone says less than its exit code
        case "exception" if clue.cause == "unknown" and not clue.frames:
            return 7  # a line that a person put in front, or the rest of a traceback
        case "comm":
            return 4 if inside or clue.traceback else 5 if near else 9
        case "exit" if clue.cause == "unknown":
            return 8.5  # that a process died says less than how
        case level:
            return {"exception": 6, "wrapper": 7, "exit": 8}.get(level, _LAST_TIER)


def _blamed(clues: Iterable[Clue]) -> Clue | None:
    """The clue that names the cause; of equals the first."""
    clues = [clue for clue in clues if clue.level != "observation"]
    fatal = min((clue.line for clue in clues if clue.fatal), default=0)
    return min(clues, key=lambda clue: (_tier(clue, clue.line >= fatal - _WINDOW), clue.line), default=None)


def lost_its_peers(state: StartupState) -> bool:
    """Whether a log says no more of its death than that others were lost: of several logs, another may know why."""
    clue = _blamed(state.clues)
    if clue is not None and (clue.level == "comm" or clue.cause in _OF_PEERS):
        return True
    has_cause = clue is not None and (clue.level in ("root", "exception", "wrapper") or clue.id in _KILLED)
    return not has_cause and any(other.id == "gloo" for other in state.clues)


def _cause(state: StartupState, exit: ExitEvidence | None) -> Diagnosis:
    clue = _blamed(state.clues)
    if clue is None or clue.level not in ("root", "comm", "exception", "wrapper"):
        from_host = _from_exit(state, exit, clue) if exit is not None else None
        if from_host is not None:
            return from_host
    if clue is None:
        title, advice = patterns().words["silent"]
        return Diagnosis("unknown", title, state.phase, None, None, advice)
    alone = all(item.level in ("end", "observation") for item in state.clues)
    if clue.level == "end" and "Killed" in clue.text and alone:
        # A shell's "Killed" and nothing else: signal 9 came from outside.
        title, advice = patterns().words_for("host_oom")
        return Diagnosis("host_oom", title, state.phase, None, evidence_of(clue), advice)
    if clue.level in ("marker", "end"):  # says that it died; the loss of another rank says why
        clue = next((item for item in state.clues if item.id == "gloo"), clue)
    return explain(clue, state)


def _from_exit(state: StartupState, exit: ExitEvidence, clue: Clue | None) -> Diagnosis | None:
    """What the host knows where the log names no cause."""
    code, words = exit.exit_code, patterns().words
    evidence = f"exit code {code}"

    def died(cause: str, title: str, advice: tuple[str, ...]) -> Diagnosis:
        rank = clue.rank if clue is not None else None
        advice = advice or patterns().words_for(cause).advice
        return Diagnosis(cause, title, state.phase, rank, Evidence(0, one_line(evidence)), advice)

    if exit.dmesg_oom is not None:
        evidence = exit.dmesg_oom
        return died("host_oom", *words["kernel_oom"])
    if clue is not None and clue.level == "exit":
        return None
    if exit.dmesg_xid is not None:
        evidence = exit.dmesg_xid
        return died("cuda_error", *words["xid"])
    match -code if code is not None and code < 0 else code - 128 if code is not None and code > 128 else None:
        # SGLang's main process kills itself with signal 9 whenever a child fails, so 137 says nothing where the log does.
        case 9 if any(item.fatal for item in state.clues):
            return None
        case 9:
            return died("host_oom", *(words["killed"] if exit.kernel_silent else patterns().causes["host_oom"]))
        case 3:
            return died("unknown", *words["sigquit"])
        case 15:
            return died("unknown", *words["sigterm"])
        case signal if signal in _NATIVE_SIGNALS:
            native = patterns().failure("exit_native")
            return died("unknown", native.title or "", native.advice) if native is not None else None
    if code == 2 and state.phase == Phase.LAUNCH:
        return died("bad_flag", *patterns().causes["bad_flag"])
    return None
