"""What earlier launches say of one that is to be made."""

from collections.abc import Mapping, Sequence

from tui.core.journal.dead_ends import PASSING
from tui.core.journal.model import Known, RunRow
from tui.core.journal.sources import PLACES, configuration
from tui.core.journal.words import clock, day
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.secrets import public_env, public_sets
from tui.core.sglang.flags import flag_table
from tui.core.text import one_line

_MOST = 3  # earlier launches that are named
# Crashes that another value of one flag would not have had: memory is a matter of all flags together.
_OF_A_FEATURE = frozenset(
    "unsupported_arch bad_flag unsupported_model quant_mismatch import_error draft_config cuda_graph jit_compile"
    " piecewise_cuda_graph engine_bug".split()
)


def known(profile: LaunchProfile, sets: Mapping[str, object], host: str, rows: Sequence[RunRow]) -> tuple[Known, ...]:
    """See `reading.knows`; `rows` are newest first."""
    env = public_env(profile.env)
    own = configuration(profile.name, profile.public_args, env, public_sets(sets))
    here = [row for row in rows if row.host == host]
    if same := next((row for row in here if row.configuration == own and _says_something(row)), None):
        return (_known(same),)
    asked = _values(profile.public_args, env)
    found: list[Known] = []
    for at, row in enumerate(here):
        if row.outcome == "crashed" and row.cause in _OF_A_FEATURE:
            worked = [_values(later.args, later.env) for later in here[:at] if later.ready_after_s is not None]
            shared = {name: value for name, value in _tried(row).items() if asked.get(name) == value}
            alone = [name for name, value in shared.items() if not any(one.get(name) == value for one in worked)]
            if alone:
                found.append(_known(row, tuple(f"{name}={shared[name]}" for name in alone)))
    return tuple(found[:_MOST])


def _says_something(row: RunRow) -> bool:
    """Whether it reached ready, or died of what it is."""
    return row.ready_after_s is not None or (row.outcome == "crashed" and row.cause not in PASSING)


def _values(args: Mapping[str, object], env: Mapping[str, str]) -> dict[str, str]:
    """Flags under their usual names, and variables; where it listens is none."""
    canonical = flag_table().canonical
    flags = {canonical(name): str(value) for name, value in args.items() if value is not False and name not in PLACES}
    return flags | {f"env.{name}": value for name, value in env.items()}


def _tried(row: RunRow) -> dict[str, str]:
    """What a launch had beside its parent, or was given for itself."""
    canonical = flag_table().canonical
    names = {*(line.key for line in row.difference if line.sign != "-"), *row.sets}
    names = {name if name.startswith("env.") else canonical(name) for name in names}
    return {name: value for name, value in _values(row.args, row.env).items() if name in names}


def _known(row: RunRow, flags: tuple[str, ...] = ()) -> Known:
    """ "tried 3 Nov: crashed, no kernel for SM120"."""
    if row.outcome == "crashed":
        came = f"crashed, {row.card.title if row.card is not None else row.cause or 'for an unknown cause'}"
    else:
        came = f"ready after {clock(row.ready_after_s or 0.0)}"
        came += f", {row.tok_s:,.1f} tok/s per user ({row.level})" if row.tok_s is not None else ""
    with_flags = f"with {', '.join(flags)} " if flags else ""
    text = one_line(f"{with_flags}tried {day(row.started_at)}: {came}".rstrip("."))
    return Known(text, row.entry_id, row.run_id, row.started_at, row.outcome, row.cause, flags)
