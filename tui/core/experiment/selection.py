"""From what a user names to a side of a comparison: stored results, or the launches that never gave any."""

from collections.abc import Iterable, Sequence

from tui.core.errors import Slug, UsageError
from tui.core.experiment import record as experiment_record
from tui.core.experiment.record import ExperimentRecord
from tui.core.experiment.so_far import side_of_arm
from tui.core.model.result import Result
from tui.core.results import store
from tui.core.server.launch_records import LaunchRecord
from tui.core.text import one_line
from tui.core.verdicts.pairing import Side


def side_of(
    name: str, ref: str, results: Sequence[Result], records: Iterable[LaunchRecord], host: str | None = None
) -> Side:
    """The side that `ref` names: a profile (all its runs, those that do not count too), `EXPERIMENT:ARM`, a run, a result.

    EXPERIMENT is the id of one, or a name: the newest of that name on the host. A profile without results, and an arm, is
    also its failed launches.

    Raises UsageError where nothing fits, or several do (slug ambiguous_host: experiments of that name on several hosts).
    """
    if of_profile := [result for result in results if result.server.profile == ref]:
        return Side(name, ref, tuple(of_profile))
    experiment, _, arm = ref.rpartition(":")
    if experiment and (side := _of_arm(name, ref, experiment, arm.upper(), results, host)):
        return side
    try:
        return Side(name, ref, tuple(store.resolve(ref, results)))
    except UsageError:
        failed = tuple(
            record
            for record in records
            if record.kind == "server"
            and record.profile == ref
            and record.outcome == "crashed"
            and record.ready_after_s is None
            and (host is None or record.host == host)
        )
        if not failed:
            raise
        return Side(name, ref, failures=failed)


def _of_arm(
    name: str, ref: str, experiment: str, letter: str, results: Sequence[Result], host: str | None
) -> Side | None:
    record = _record(experiment, host)
    if record is None:  # of another machine: its results alone were imported
        own = tuple(result for result in results if result.experiment == experiment and result.arm == letter)
        return Side(name, ref, own) if own else None
    letters = [arm.letter for arm in record.profile.arms]
    if letter not in letters:
        raise UsageError(
            f"{one_line(record.name, 60)} has no arm {one_line(letter, 20)}",
            f"it has {', '.join(letters)}",
            slug=Slug.UNKNOWN_RESULT,
        )
    own = tuple(result for result in results if result.experiment == record.experiment_id)
    return side_of_arm(record, letter, own, name, ref)


def _record(experiment: str, host: str | None) -> ExperimentRecord | None:
    """The experiment of this id, else the newest of this name."""
    if found := experiment_record.read(experiment):
        return found
    named = [
        record for record in experiment_record.read_all() if record.name == experiment and host in (None, record.host)
    ]
    hosts = sorted({record.host for record in named})
    if len(hosts) > 1:
        raise UsageError(
            f"{one_line(experiment, 60)} was run on {', '.join(one_line(one, 60) for one in hosts)}",
            "choose with --host",
            slug=Slug.AMBIGUOUS_HOST,
        )
    return named[0] if named else None
