"""What the frames of a traceback say: the phase of the server, and the feature whose code raised."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tui.core.model.phases import Phase
from tui.core.sglang.traceback import Frame

_FINAL = (Phase.SERVING, Phase.WARMUP)


@dataclass(frozen=True)
class FrameRule:
    """Frames that belong to a phase: see tui/data/frames.toml."""

    phase: Phase
    module: re.Pattern[str] | None = None
    function: re.Pattern[str] | None = None
    within_draft: Phase | None = None
    weak: bool = False  # counts where no other rule knows a frame

    def matches(self, module: str, function: str) -> bool:
        """Whether a frame in this module below sglang/ and this function is one of them."""
        return (self.module is None or self.module.fullmatch(module) is not None) and (
            self.function is None or self.function.fullmatch(function) is not None
        )


@dataclass(frozen=True)
class Feature:
    """A part of SGLang that can be done without, or chosen differently."""

    name: str
    module: re.Pattern[str]
    advice: tuple[str, ...]
    causes: tuple[str, ...] = ()  # the advice is for these alone; empty: for any


# A path whose beginning a person left out: ".../layers/attention/triton_backend.py", "srt/managers/scheduler.py".
_ELIDED = re.compile(
    r"(?:(?:\.{3}|\u2026)/)?(?P<root>srt/)?(?P<rest>(?:batch_overlap|compilation|configs|constrained|disaggregation|distributed|"
    r"entrypoints|eplb|layers|lora|managers|mem_cache|model_executor|model_loader|models|multimodal|speculative)/.+)"
)


def module_of(path: str) -> str | None:
    """A source file's path below sglang/: "srt/managers/scheduler.py"; None for a file of another package."""
    at = path.rfind("sglang/srt/")
    at = path.rfind("sglang/") if at < 0 else at
    if at >= 0 and path[at - 1 : at] in ("", "/"):
        return path[at + len("sglang/") :]
    elided = _ELIDED.fullmatch(path)
    return "srt/" + elided["rest"] if elided is not None and (elided["root"] or not path[0].isalpha()) else None


def phase_of(frames: Iterable[Frame], rules: Iterable[FrameRule]) -> Phase | None:
    """The phase that a traceback was in; None where no table knows any of its frames.

    Args:
        frames: the outermost first; those of a chain as if it were one traceback.
    """
    rules = tuple(rules)
    found: FrameRule | None = None
    draft = False
    for frame in frames:
        module = module_of(frame.file)
        draft = draft or (module or "").startswith("srt/speculative/")
        rule = next((item for item in rules if module and item.matches(module, frame.function)), None)
        if rule is None or (rule.weak and found is not None):
            continue
        found = rule
        if rule.weak:
            continue
        if rule.phase in _FINAL:
            break
        draft = draft or rule.phase == Phase.DRAFT_MODEL
    if found is None:
        return None
    return (found.within_draft if draft else None) or found.phase


def feature_of(frames: Iterable[Frame], features: Iterable[Feature]) -> Feature | None:
    """The feature whose code the innermost frames are of."""
    features = tuple(features)
    for frame in reversed(tuple(frames)):
        module = module_of(frame.file)
        found = next((item for item in features if module and item.module.fullmatch(module)), None)
        if found is not None:
            return found
    return None
