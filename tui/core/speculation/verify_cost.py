"""Why a verify step may be too expensive: what to suspect, the evidence for and against it, how to check.

Thresholds are from public tables by rho = tau / S: dense models with chains of three drafts 1.12 to 1.29, a 30B-A3B mixture
of experts 1.49, deep trees on one H100 about 2.0 to 2.3. A small all-reduce takes 23 to 33 µs in NCCL's ring, about 8 µs
one-shot over NVLink (sgl-project/sglang#32461).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tui.core.model.result import AllReduce, GuardStatus, Result
from tui.core.speculation.economics import Economics
from tui.core.speculation.prediction import Prediction, V
from tui.core.verdicts.sentences import two

NORMAL = 1.5  # decode steps that a verify step costs at most, of chains
NORMAL_TREE = 2.3  # of trees and long chains
DEEP_STEPS = 5  # a chain this long is compared with trees
HEALTHY_US = 33.0  # an all-reduce of one to six tokens
PER_LAYER = 2  # all-reduces of a layer under tensor parallelism


class Weight(StrEnum):
    """How strong the evidence for a suspect is."""

    LIKELY = "likely"
    POSSIBLE = "possible"
    RULED_OUT = "ruled out"


# By the id of a suspect: its title, and what tells.
_CHECKS = {
    "all_reduce": (
        "all-reduces",
        "time one all-reduce at both message sizes; nvidia-smi topo -m says which way it goes",
    ),
    "graphs": ("CUDA graphs", 'the log says "cuda graph: True" on each decode line'),
    "batch": (
        "experts and weights that more tokens touch",
        "the baseline's own step at concurrency × draft tokens: eagletui breakeven BASELINE",
    ),
    "sampling": ("top-p renormalisation in verify", "measure at temperature 0 (sgl-project/sglang#6949)"),
    "draft": ("the draft model", "its share is the cycle less the verify step; it all-reduces too where it is sharded"),
}


@dataclass(frozen=True)
class Suspect:
    """One reason why a verify step may be expensive."""

    id: str
    title: str
    weight: Weight
    evidence: str  # with figures, where there are any
    check: str  # what tells


@dataclass(frozen=True)
class VerifyCost:
    """A verify step against a decode step."""

    ratio: float  # in decode steps
    normal: float
    text: str
    suspects: tuple[Suspect, ...]  # likely ones first


def verify_cost(
    found: Economics,
    spec: Sequence[Result] = (),
    *,
    layers: int | None = None,
    all_reduce: AllReduce | None = None,
    predicted: Prediction | None = None,
) -> VerifyCost | None:
    """What a verify step costs and why that may be; None where it is not more than normal.

    Args:
        spec: results with speculation, those that do not count too: a run without graphs is evidence.
        layers: of the model.
        all_reduce: of the micro-benchmark on this host.
        predicted: from the baseline's sweep at the same load.
    """
    of_verify = found.t_verify_ms is not None
    step_ms = found.t_verify_ms if found.t_verify_ms is not None else found.t_cycle_ms
    ratio = step_ms / found.t_base_ms
    deep = (found.steps or 0) >= DEEP_STEPS or (found.ceiling is not None and not found.chain)
    normal = NORMAL_TREE if deep else NORMAL
    if ratio <= normal:
        return None
    what = "A verify step" if of_verify else "A cycle (drafts and verify)"
    ranks = _tensor_parallel(spec)
    said = {
        "all_reduce": _all_reduce(found, step_ms, layers, all_reduce, ranks),
        "graphs": _graphs(spec),
        "batch": _batch(found, ratio, predicted),
        "sampling": _sampling(spec),
        "draft": _draft(found, ranks),
    }
    suspects = [Suspect(id, _CHECKS[id][0], *weighed, _CHECKS[id][1]) for id, weighed in said.items()]
    suspects.sort(key=lambda suspect: list(Weight).index(suspect.weight))
    check = ", ".join(suspect.title for suspect in suspects if suspect.weight is not Weight.RULED_OUT)
    text = f"{what} is {ratio:.1f}× a decode step; normal is at most {normal:g}×; check {check}"
    return VerifyCost(ratio, normal, text, tuple(suspects))


def _tensor_parallel(spec: Sequence[Result]) -> int | None:
    for result in spec:
        value = result.server.args.get("tp_size", result.server.args.get("tp-size"))
        if type(value) is int:
            return value
    return None


def _all_reduce(
    found: Economics, step_ms: float, layers: int | None, measured: AllReduce | None, ranks: int | None
) -> tuple[Weight, str]:
    if ranks == 1:
        return Weight.RULED_OUT, "one GPU: there are none"
    if layers is None:
        return Weight.POSSIBLE, "two a layer; how many layers the model has is not known"
    calls = PER_LAYER * layers
    if measured is not None:
        extra_ms = calls * (measured.verify_us - measured.decode_us) / 1000
        share = extra_ms / (step_ms - found.t_base_ms)
        evidence = (
            f"measured: {measured.verify_us:.0f} µs each in verify, {measured.decode_us:.0f} µs in decode; {calls} of "
            f"them explain {max(0.0, share) * 100:.0f} % of the difference"
        )
        return Weight.LIKELY if share > 1 / 3 else Weight.POSSIBLE, evidence
    each, in_decode = step_ms * 1000 / calls, found.t_base_ms * 1000 / calls
    evidence = (
        f"{step_ms:.1f} ms over {calls} of them leaves at most {each:.0f} µs each, {in_decode:.0f} µs in a decode step; "
        f"{HEALTHY_US:.0f} µs is healthy"
    )
    return Weight.LIKELY if each - in_decode > HEALTHY_US else Weight.POSSIBLE, evidence


def _graphs(spec: Sequence[Result]) -> tuple[Weight, str]:
    guards = [guard for result in spec for guard in result.guards if guard.id == "graph"]
    known = [guard for guard in guards if guard.status is not GuardStatus.NOT_APPLICABLE]
    failed = [guard for guard in known if guard.status is GuardStatus.FAILED]
    weight = Weight.LIKELY if failed else Weight.RULED_OUT if known else Weight.POSSIBLE
    return weight, (failed or known)[0].text if known else "no decode line says whether a graph was used"


def _batch(found: Economics, ratio: float, predicted: Prediction | None) -> tuple[Weight, str]:
    if predicted is None or predicted.t_batch_ms is None:
        most = f"{found.ceiling} tokens" if found.chain and found.ceiling else "N draft tokens"
        sweep = (
            "the baseline's sweep is not there to tell"
            if predicted is None or predicted.calibrated
            else f"the baseline's sweep ends before {predicted.concurrency * predicted.draft_tokens} users"
        )
        return Weight.POSSIBLE, f"{most} at once touch up to as many times the experts; {sweep}"
    of_batch = predicted.t_batch_ms / predicted.t_base_ms
    evidence = (
        f"the baseline takes {two(of_batch)} decode steps for {predicted.concurrency * predicted.draft_tokens} users, "
        f"verify takes {two(ratio)} for as many tokens of {predicted.concurrency}"
    )
    grown, half = of_batch - 1, (ratio - 1) / 2
    # As many users cost no less than as many tokens of fewer; of their growth a verify step has V, at most twice that.
    return Weight.RULED_OUT if grown <= half else Weight.LIKELY if 2 * V * grown > half else Weight.POSSIBLE, evidence


def _sampling(spec: Sequence[Result]) -> tuple[Weight, str]:
    temperatures = {result.load.temperature for result in spec}
    if temperatures == {0.0}:
        return Weight.RULED_OUT, "measured at temperature 0"
    known = sorted(f"{value:g}" for value in temperatures if value is not None)
    return Weight.POSSIBLE, f"measured at temperature {', '.join(known)}" if known else "the temperature is not known"


def _draft(found: Economics, ranks: int | None) -> tuple[Weight, str]:
    if found.t_draft_ms is not None:
        share = found.t_draft_ms / found.t_cycle_ms
        weight = Weight.LIKELY if share > 1 / 3 else Weight.RULED_OUT if share < 0.1 else Weight.POSSIBLE
        return weight, f"drafts take {found.t_draft_ms:.1f} ms of the cycle, {share * 100:.0f} %"
    if found.t_verify_ms is not None:
        return Weight.RULED_OUT, "the time of the verify step alone was given"
    steps = f"{found.steps} steps of it are in each cycle" if found.steps else "its steps are in each cycle"
    sharded = "" if ranks in (None, 1) else f", on {ranks} ranks"
    return Weight.POSSIBLE, steps + sharded
