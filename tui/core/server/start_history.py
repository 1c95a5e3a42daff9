"""What this machine's records say about one run before it is watched, and what watching it adds to them."""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from tui.core.masking.written import mask_text
from tui.core.model.phases import Outcome, Phase
from tui.core.model.run import Run
from tui.core.profiles.secrets import public_sets
from tui.core.server import forecast, launch_records
from tui.core.server.earlier_starts import LastReady, last_ready
from tui.core.server.launch_records import Card, LaunchRecord, PhaseHistory
from tui.core.server.server_state import ServerState
from tui.core.text import one_line

_CARD_LINES = 8


@dataclass(frozen=True)
class StartHistory:
    """Earlier starts beside a run."""

    usual: Mapping[Phase, PhaseHistory]
    usual_total: PhaseHistory | None
    args: Mapping[str, object]  # flags of the run itself
    ready_after_s: float | None  # of the run itself: whoever comes later than that moment knows it from the record only
    earlier: Sequence[LaunchRecord]  # newest first, without the run itself
    last_ready: LastReady | None
    version_changed: bool  # all starts of this profile here that reached ready had other versions of SGLang

    @classmethod
    def of(cls, run: Run) -> "StartHistory":
        """Reads the records."""
        known = launch_records.read(run.run_id)
        version = known.sglang if known else None
        by_phase, total = launch_records.usual(
            run.host,
            run.profile or "",
            run.extra.get("sets"),
            version,
            known.warm if known else None,
            known.part if known else None,
        )
        args = known.args if known else {}
        earlier = [record for record in launch_records.read_all() if record.run_id != run.run_id] if known else []
        versions = {
            record.sglang
            for record in earlier
            if record.host == run.host and record.profile == run.profile and record.ready_after_s is not None
        }
        return cls(
            {phase: by_phase[phase] for phase in Phase if phase in by_phase},
            total,
            args,
            known.ready_after_s if known else None,
            earlier,
            last_ready(run.host, args, earlier),
            version is not None and bool(versions) and version not in versions,
        )


def record_start(state: ServerState) -> None:
    """Writes what a start showed into this machine's record of it, where there is one."""
    known = launch_records.read(state.run.run_id)
    if known is None:
        return
    cause = state.diagnosis.cause if state.diagnosis else None
    # The first card stays: who launched knows more secrets than who looks later.
    card = known.card
    if card is None or known.cause != cause:
        card = card_of(state, quoted=launch_records.knows_secrets(known)) or card
    phases = {str(phase): round(seconds, 1) for phase, seconds in state.phase_took_s.items()}
    startup = state.startup
    with contextlib.suppress(OSError):  # a full disk here must not end the watching
        launch_records.write(
            replace(
                known,
                outcome=str(state.outcome),
                cause=cause,
                phase=str(state.phase),
                ready_after_s=state.ready_after_s,
                phase_took_s=phases if state.ready_after_s is not None else known.phase_took_s,
                exit_code=state.run.exit_code,
                ended_at=state.run.ended_at,
                ledger=() if startup.host_memory else tuple(asdict(row) for row in startup.ledger) or known.ledger,
                mem_fraction=forecast.mem_fraction(startup) or known.mem_fraction,
                graph_batch=forecast.graph_batch(startup) or known.graph_batch,
                card=card,
                stopped_by=state.run.stop_by or known.stopped_by,
            )
        )


def card_of(state: ServerState, *, quoted: bool = True) -> Card | None:
    """Why a server died, in few lines; None of one that lives, or was stopped.

    Args:
        quoted: with words of its log; without, only what is made of none.
    """
    if state.outcome not in (Outcome.CRASHED, Outcome.LOST) or state.diagnosis is None:
        return None
    found, evidence = state.diagnosis, state.diagnosis.evidence
    if not quoted:
        line = evidence.line or None if evidence is not None else None
        return Card(
            f"{found.cause or 'unknown'}; its log is not quoted, as a secret was given to this launch alone",
            found.rank,
            line,
        )
    lines = (evidence.lines or (evidence.text,)) if evidence is not None else ()
    return Card(
        title=mask_text(one_line(found.title)),
        rank=found.rank,
        line=evidence.line or None if evidence is not None else None,
        evidence=tuple(mask_text(one_line(line)) for line in lines[:_CARD_LINES]),
        advice=tuple(mask_text(one_line(text)) for text in found.advice[:_CARD_LINES]),
        change=public_sets(found.set),
    )
