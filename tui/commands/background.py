"""`eagletui experiment --detach`, `--attach` and `--stop`: one that another process of this machine runs."""

import shlex
import sys
from collections.abc import Callable
from contextlib import aclosing

from tui.commands.output import Interrupted, emit, run_async, say
from tui.core.errors import EagletuiError, Slug
from tui.core.experiment import background, elsewhere
from tui.core.experiment import record as experiment_record
from tui.core.experiment.elsewhere import Stop
from tui.core.experiment.record import ExperimentRecord
from tui.core.model.experiment import ExperimentState
from tui.core.text import one_line

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


def attach(name: str, host: str | None, tell: Tell) -> tuple[ExperimentRecord, ExperimentState]:
    """Follows one to its end. Raises EagletuiError where nobody runs it, or its process ends before."""
    record = _driven(name, host)

    async def follow() -> ExperimentState | None:
        last: ExperimentState | None = None
        async with aclosing(elsewhere.follow(record.experiment_id)) as states:
            async for state in states:
                if last is None:
                    say(f"following PID {state.driver}; Ctrl-C ends the following only")
                last = state
                tell(state)
        return last

    try:
        last = run_async(follow())
    except KeyboardInterrupt:
        raise Interrupted(f"{name} goes on", _again(name, "--attach")) from None
    found = experiment_record.read(record.experiment_id)
    if last is None or found is None or found.ended_at is None:
        raise EagletuiError(f"the process that ran {name} has ended", _again(name, "--resume"), slug=Slug.LOST)
    return found, last


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
    return [record for record in records if record is not None and record.name == name and host in (None, record.host)]


def _again(name: str, words: str) -> str:
    return f"eagletui experiment {shlex.quote(name)} {words}"
