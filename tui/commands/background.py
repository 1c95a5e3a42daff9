"""`eagletui experiment --detach`, `--attach` and `--stop`: one that another process of this machine runs."""

import asyncio
import shlex
import sys
from collections.abc import Callable
from contextlib import aclosing

from tui.commands.output import Interrupted, emit, run_async, say
from tui.core.errors import EagletuiError, Slug, TimedOut
from tui.core.experiment import background, elsewhere
from tui.core.experiment import record as experiment_record
from tui.core.experiment.elsewhere import Stop
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.so_far import stored_state
from tui.core.model.experiment import ArmStatus, ExperimentState
from tui.core.text import one_line

UNDER_WAY = (ArmStatus.LAUNCHING, ArmStatus.RUNNING)
Tell = Callable[[ExperimentState], None]


def detach(name: str, as_json: bool) -> int:
    """This very command again as a process that outlives the terminal; returns when its first launch is next."""
    words = [word for word in sys.argv[1:] if word not in ("--detach", "--json")]
    try:
        started = run_async(background.start(words, name))
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted; {name} goes on in the background if its pre-flight is passed", _again(name, "--attach")
        ) from None
    if as_json:
        emit(
            {
                "experiment": started.experiment_id,
                "pid": started.pid,
                "log": str(started.log),
                "output": str(started.output),
            }
        )
    else:
        print(f"{started.experiment_id} runs in the background, PID {started.pid}")
        for what, how in (
            ("follow it", _again(name, "--attach")),
            ("stop it", _again(name, "--stop after-launch (or now)")),
            ("go on, should this machine go down", _again(name, "--resume")),
            ("what it says", str(started.log)),
        ):
            print(f"  {what}: {how}")
    return 0


def attach(
    name: str, host: str | None, tell: Tell, timeout_s: float | None = None
) -> tuple[ExperimentRecord, ExperimentState]:
    """Follows one, by its name or id, to its end; of one that has ended the end. Raises TimedOut, with how far it is, and
    EagletuiError where nobody runs it, or its process ends before.
    """
    record = _named(name, host)
    if record.ended_at is not None:
        return record, stored_state(record)
    seen: list[ExperimentState] = []

    async def follow() -> None:
        async with asyncio.timeout(timeout_s), aclosing(elsewhere.follow(record.experiment_id)) as states:
            async for state in states:
                if not seen:
                    say(f"following PID {state.driver}; Ctrl-C ends the following only")
                seen[:] = [state]
                tell(state)

    try:
        run_async(follow())
    except TimeoutError:
        late = TimedOut(f"{name} has not ended after {timeout_s:g} s", f"it goes on; {_again(name, '--attach')}")
        late.details = _progress(record, seen[-1] if seen else None)
        raise late from None
    except KeyboardInterrupt:
        raise Interrupted(f"{name} goes on", _again(name, "--attach")) from None
    found, last = experiment_record.read(record.experiment_id), seen[-1] if seen else None
    if last is None or found is None or found.ended_at is None:
        raise EagletuiError(f"the process that ran {name} has ended", _again(name, "--resume"), slug=Slug.LOST)
    return found, last


def _progress(record: ExperimentRecord, state: ExperimentState | None) -> dict[str, object]:
    """How far one is that goes on, as scripts read it."""
    about: dict[str, object] = {"experiment": record.experiment_id, "name": record.name, "host": record.host}
    if state is None:
        return about | {"outcome": record.outcome}
    busy = next((arm for arm in state.arms if arm.status in UNDER_WAY), None)
    return about | {
        "outcome": record.outcome,
        "launches_done": state.at,
        "launches": len(state.order),
        "arm": busy.letter if busy is not None else None,
        "phase": busy.phase or str(busy.status) if busy is not None else None,
        "left_s": state.left_s,
        "note": state.message,
    }


def stop(name: str, host: str | None, when: Stop, as_json: bool) -> int:
    """Asks its process to end it; `now` waits for that."""
    record = _driven(name, host)
    elsewhere.ask_to_stop(record.experiment_id, when)

    async def ended() -> None:
        async with aclosing(elsewhere.follow(record.experiment_id)) as states:
            async for _ in states:
                pass

    if when is Stop.NOW:
        run_async(ended())
    else:
        say(f"{name} stops when the launch under way is measured; {_again(name, '--attach')} follows it")
    found = experiment_record.read(record.experiment_id) or record
    over = found.ended_at is not None
    if as_json:
        emit({"experiment": found.experiment_id, "stop": str(when), "ended": over, "outcome": found.outcome})
    elif over:
        print(f"{found.experiment_id}: {found.message or found.outcome}")
    return 0


def is_driven(name: str, host: str | None) -> bool:
    return bool(_all_driven(name, host))


def _named(name: str, host: str | None) -> ExperimentRecord:
    """The one that a process runs, else the newest of this name or id that has ended; errors as of `_driven`."""
    if _all_driven(name, host):
        return _driven(name, host)
    every = (record for record in experiment_record.read_all() if name in (record.name, record.experiment_id))
    newest = next((record for record in every if host in (None, record.host)), None)
    return newest if newest is not None and newest.ended_at is not None else _driven(name, host)


def _driven(name: str, host: str | None) -> ExperimentRecord:
    found = _all_driven(name, host)
    if len(found) > 1:
        raise EagletuiError(
            f"{name} runs on {' and '.join(record.host for record in found)}",
            "say which with --host",
            slug=Slug.AMBIGUOUS_HOST,
        )
    if not found:
        raise EagletuiError(
            f"no process of this machine runs {one_line(name, 60)}",
            "--resume continues an unfinished one, --stop now ends what it left on the host",
            slug=Slug.NOTHING_TO_RESUME,
        )
    return found[0]


def _all_driven(name: str, host: str | None) -> list[ExperimentRecord]:
    records = map(experiment_record.read, experiment_record.drivers())
    named = [one for one in records if one is not None and name in (one.name, one.experiment_id)]
    return [record for record in named if host in (None, record.host)]


def _again(name: str, words: str) -> str:
    return f"eagletui experiment {shlex.quote(name)} {words}"
