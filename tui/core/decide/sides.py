"""From what a user names to a side of a comparison: stored results, or the launches that never gave any."""

from collections.abc import Iterable, Sequence

from tui.core.decide.pairing import Side
from tui.core.errors import UsageError
from tui.core.measure.model import Result
from tui.core.records import LaunchRecord
from tui.core.results import store


def side_of(
    name: str, ref: str, results: Sequence[Result], records: Iterable[LaunchRecord], host: str | None = None
) -> Side:
    """The side that `ref` names: a profile (all its runs, those that do not count too), `EXPERIMENT:ARM`, a run, a result.

    A profile without results is the side of its failed launches. Raises UsageError where nothing fits, or several do.
    """
    if of_profile := [result for result in results if result.server.profile == ref]:
        return Side(name, ref, tuple(of_profile))
    experiment, _, arm = ref.rpartition(":")
    if experiment and (of_arm := [r for r in results if r.experiment == experiment and r.arm == arm.upper()]):
        return Side(name, ref, tuple(of_arm))
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
