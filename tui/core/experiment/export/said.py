"""What an export says in sentences: verdicts between its configurations, what does not count, what it ran on."""

import itertools
from collections.abc import Sequence

from tui.core.errors import UsageError
from tui.core.experiment import planned
from tui.core.experiment.export.groups import Group
from tui.core.model.result import Result
from tui.core.results.flat import SIMULATED, simulated
from tui.core.verdicts.judging import screened_words
from tui.core.verdicts.metric import default_for, metric
from tui.core.verdicts.pairing import Setting, Side, setting
from tui.core.verdicts.same_text import fact
from tui.core.verdicts.sentences import count


def said(groups: Sequence[Group], stored: tuple[Result, ...]) -> list[str]:
    """Each configuration against the first one of its setting; and what does not count, with the reason."""
    on_demo = any(simulated(result) for group in groups for result in group.results)
    sentences = [SIMULATED] if on_demo else []
    by_setting: dict[Setting, list[Group]] = {}
    for group in groups:
        by_setting.setdefault(setting(group.results[0]), []).append(group)
    for first, *others in by_setting.values():
        asked = [
            (Side(first.name, first.name, first.results), Side(other.name, other.name, other.results))
            for other in others
            if first.launches and other.launches
        ]
        try:
            verdicts = planned.verdicts(asked, metric(default_for(setting(first.results[0]).point)), stored)
        except UsageError as error:  # a launch is on both sides
            sentences.append(f"no verdict: {error.message}")
            continue
        for verdict in verdicts:
            sentences.append(verdict.text)
            if verdict.same_text is not None:
                sentences.append(f"{verdict.b.ref} against {first.name}, {fact(verdict.same_text, first.name)}")
        if screened := screened_words(verdicts):
            sentences.append(screened)
    for group in groups:
        if invalid := [result for result in group.results if not result.valid]:
            reasons = dict.fromkeys(_why(result) for result in invalid)
            sentences.append(f"{group.name}: {count(len(invalid), 'run')} left out: {'; '.join(reasons)}")
    return sentences


def _why(result: Result) -> str:
    failed = [guard.text for guard in result.failed_guards]
    return "; ".join(failed or result.suspicious) or "invalid"


def environment(group: Group) -> str:
    """Versions, GPUs, model and host of a configuration, and what measured it."""
    server = group.results[0].server
    gpus = [f"{len(list(same))} × {name}" for name, same in itertools.groupby(server.gpus)]
    versions = sorted({result.server.version for result in group.results if result.server.version})
    tools = sorted({" ".join(filter(None, (r.tool.name, r.tool.version))) for r in group.results})
    facts = [
        f"server {', '.join(versions)}" if versions else "",
        ", ".join(gpus),
        f"driver {server.driver}" if server.driver else "",
        f"model {server.model}" if server.model else "",
        f"on {server.host}" + (" (SIMULATED)" if simulated(group.results[0]) else ""),
        f"measured by {', '.join(tools)}",
    ]
    return "; ".join(filter(None, facts))
