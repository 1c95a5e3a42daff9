"""What the frames of a traceback say: the phase of the server, and the feature whose code raised."""

import re
from collections.abc import Iterable, Iterator
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
    blind: bool = False  # counts where the log's own lines do not tell how far its start was

    def matches(self, module: str, function: str) -> bool:
        """Whether a frame in this module, below sglang/ or of another package, and this function is one of them."""
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


_PACKAGES = re.compile(r".*(?:site|dist)-packages/|.*/lib/python3\.\d+/")
_CALL = re.compile(r"([A-Za-z_]\w{0,80})\(")
_BATCH = re.compile(r"\b(?:forward_batch|hidden_states)\b")
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


def place_of(frame: Frame) -> str:
    """Where a frame is: "srt/managers/scheduler.py:run_batch", "torch/nn/modules/module.py:_call_impl"."""
    return f"{_path_of(frame)}:{frame.function}"


def _path_of(frame: Frame) -> str:
    return module_of(frame.file) or _PACKAGES.sub("", frame.file)


def _calls(frames: tuple[Frame, ...]) -> Iterator[tuple[str, str]]:
    """Paths and functions of frames; behind each what its line calls, because the next frames may be left out.

    Of a frame without a function its line tells: what it calls, and that it works on a batch. What a module calls while it is
    imported is no work of the server.
    """
    for at, frame in enumerate(frames, 1):
        path = _path_of(frame)
        yield path, frame.function
        if frame.source is None or frame.function == "<module>":
            continue
        if not frame.function and _BATCH.search(frame.source):
            yield path, "forward"
        if at < len(frames) or not frame.function:
            yield from ((path, name) for name in _CALL.findall(frame.source))


def phase_of(frames: Iterable[Frame], rules: Iterable[FrameRule], *, blind: bool = True) -> Phase | None:
    """The phase that a traceback was in; None where no table knows any of its frames.

    Args:
        frames: the outermost first; those of a chain as if it were one traceback.
        blind: the log's own lines do not tell how far its start was.
    """
    rules = tuple(rule for rule in rules if blind or not rule.blind)
    found: FrameRule | None = None
    draft = False
    for path, function in _calls(tuple(frames)):
        draft = draft or path.startswith("srt/speculative/")
        rule = next((item for item in rules if item.matches(path, function)), None)
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
