"""Blocks and lines that SGLang's and vLLM's benchmarks print, read from whatever they were pasted into.

A line may carry a log's prefix; a block may lack its banner, its end or any line; several may follow one another.
"""

import re
from collections.abc import Iterable

from tui.core.results.external.labels import ANYWHERE, MILLISECONDS, figure_of, label_of
from tui.core.results.external.posted import DATA, Posted, number_of, times
from tui.core.results.external.shapes import value_of
from tui.core.text import one_line

_BANNER = re.compile(r"={3,}\s*([A-Za-z][\w .&-]*?)\s*={3,}")
_END = re.compile(r"={20,}\s*$")
_SECTION = re.compile(r"-{3,}\s*([A-Za-z][^-]*(?:-[A-Za-z][^-]*)*?)\s*-{3,}")
# A label, its value, and perhaps the value's unit; between them a colon, or the bar of a table.
_PAIR = re.compile(r"^(?P<label>.*[\w)%])\s*(?::|\|)\s*(?P<value>[^\s|](?:[^|]*[^\s|])?)\s*\|?\s*$")
_LAST_WORD = re.compile(r"([\w%]+)(?:\s*\([^)]*\))?$")
_POINTS = "mean median std max min p50 p90 p95 p99"  # alone under the title of a section
_POSITION = re.compile(r"position (\d{1,2})$", re.IGNORECASE)  # of a draft token, in vLLM's acceptance
_LAST_WORDS = frozenset(_POINTS.split()) | frozenset(
    label.rsplit(None, 1)[-1] for labels in (ANYWHERE, *DATA["labels"].values()) for label in labels
)
# What stands before a label is a log's prefix and not the first words of another label.
_PREFIX = re.compile(r"^\s*$|[^\w\s]\s*$|\d\d?Z\s+$|\d\s+$|\s{2,}$")
_NAMESPACE = re.compile(r"Namespace\((.*)\)\s*$")
_NAMESPACE_ITEM = re.compile(r"(\w+)=('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[^,()\[\]{}]*)")

_ONE_BATCH = re.compile(
    r"\b(Warmup \.\.\.|Benchmark \.\.\.|Prefill\.|Decode\s+\d+\.|Decode\.\s+median|Total\.)"
    r"(?:\s*Batch size: (\d+),)?(?:\s*latency:\s*([\d.]+|nan) (ms|s),\s*(?:median )?throughput:\s*([\d.]+|nan) token/s)?"
)
_SERVER_CASE = re.compile(
    r"(?P<label>#input tokens|#output tokens|batch size|input_len|output_len|latency|(?:last_)?ttft|input throughput|output throughput"
    r"|\(input \+ output\) throughput|overall throughput|last generation throughput|acc_length|cache hit rate)"
    r":\s*(?P<number>-?[\d.]+)\s*(?:s|tok/s|token/s)?\s*$",
    re.IGNORECASE,
)
# Lines that only these tools print, before the title of the block.
_BEFORE_A_BLOCK = ("traffic request rate", "maximum request concurrency", "max request concurrency")
_OF_VLLM = frozenset(("maximum request concurrency", "request rate configured", "failed requests"))
_OF_VLLM_ALONE = frozenset(("maximum request concurrency", "request rate configured"))  # whoever wrote the table
_OF_SGLANG = frozenset(("backend", "max request concurrency", "max reqeuest concurrency"))
_ONE_LINE = [(re.compile(form["pattern"]), form) for form in DATA["lines"]]
_SWEPT = re.compile(r"\bFinish i=\d+:\s*(.*)")  # a line of a speculation sweep
_SWEPT_ITEM = re.compile(r"(\w+)=([\d.eE+-]+|nan|None)")
_LINE_LIMIT = 2000  # characters; no line of ours is longer
_RATES = frozenset(["req_per_s", "output_tok_s", "total_tok_s", "mean_e2e_ms", "mean_ttft_ms", "mean_tpot_ms"])
_CONTEXT = frozenset(["request_rate", "max_concurrency", "backend", "num_prompts"])


class BlockReader:
    """Takes lines in order, gives the records that have ended."""

    def __init__(self) -> None:
        self._block: Posted | None = None
        self._in_banner = False  # the block began with a banner: it ends at its end only
        # The last block that ended may be added to: SGLang prints its steady state in one of its own.
        self._last: Posted | None = None
        self._steady = False
        self._section = ""
        self._context: dict[str, str] = {}  # what the tool said about itself before its block
        self._batch: Posted | None = None  # of bench_one_batch, or of its server variant
        self._counts: dict[str, float] = {}  # tokens, which the server variant prints before its case
        self._warming = False
        self._strange = False  # in another tool's block: what has no title of ours is not ours
        self._apart = False  # a blank line came after the last figure

    def feed(self, line: str) -> list[Posted]:
        """The records that this line ends; a line that says nothing to us is passed over."""
        found: list[Posted] = []
        if not line.strip():
            self._apart = True
            return found
        if len(line) > _LINE_LIMIT:
            if (arguments := _NAMESPACE.search(line[:100_000])) is not None:
                self._read_arguments(arguments.group(1))
            return found
        if (banner := _BANNER.search(line)) is not None:
            found += self.flush()  # before a warm-up is over
            title = banner.group(1).lower()
            self._warming = title == "warmup begin"
            self._steady = title == "steady-state result"
            if "benchmark result" in title:
                self._section, self._block = "", Posted(kind="offline" if "offline" in title else "serving")
                self._in_banner, self._strange = True, False
        elif _END.search(line):
            found += self.flush()
            self._steady = False
        elif (one := _of_line(line)) is not None:
            found += self.flush()
            found.append(one)
        elif (arguments := _NAMESPACE.search(line)) is not None:
            self._read_arguments(arguments.group(1))
        elif self._steady:
            self._take_steady(line)
        elif self._strange:
            pair = _labelled(line, "")
            if pair is not None and pair[2] in _BEFORE_A_BLOCK:
                self._context[pair[0]] = pair[1]
        else:
            found += self._one_batch(line)
            if (case := _SERVER_CASE.search(line)) is not None and self._server_case(case, found):
                return found
            if (section := _SECTION.search(line)) is not None:
                self._name_section(section.group(1))
            elif (pair := _labelled(line, self._section)) is not None:
                self._take_figure(*pair, found)
        return found

    def leave(self) -> list[Posted]:
        """Another tool's block begins, and lasts until a title or a line of ours: the record that this ends.

        Figures without a title that stand right before it may be its own.
        """
        if not (self._in_banner or self._apart):
            self._block = None
        self._strange = True
        return self.flush()

    def flush(self) -> list[Posted]:
        """The record that ends here, or with the text."""
        if self._warming and self._batch is not None and self._batch.kind == "one_batch_server":
            self._batch = None
        ended = [posted for posted in (self._batch, self._block) if posted is not None and _is_record(posted)]
        if self._block is not None and ended and ended[-1] is self._block:
            self._complete(self._block)
            self._last = self._block
        self._block = self._batch = None
        self._in_banner = False
        self._section = ""
        return ended

    def _read_arguments(self, arguments: str) -> None:
        """What the tool printed of its own command line."""
        self._context = {key: value.strip("'\"") for key, value in _NAMESPACE_ITEM.findall(arguments)}

    def _name_section(self, title: str) -> None:
        title = re.sub(r"\s*\(.*", "", title).strip()
        self._section = DATA["sections"].get(title.lower(), "")
        if title == "Inter-token Latency" and self._block is not None:  # SGLang writes Inter-Token
            self._block.tool = self._block.tool or "vllm"

    def _take_figure(self, key: str, value: str, label: str, found: list[Posted]) -> None:
        self._apart = False
        if self._block is not None and not self._in_banner and key in self._block.figures:
            found += self.flush()  # the same figure again: the next block
        if self._block is None:
            if key in _CONTEXT:  # printed before the banner
                self._context[key] = value
                return
            self._section, self._block = "", Posted()
        if label in _OF_VLLM:
            self._block.tool = self._block.tool or "vllm"
        elif label == "user throughput":  # the block of vLLM, in TensorRT-LLM's copy
            self._block.tool = "tensorrt_llm"
        self._block.put(key, value)

    def _take_steady(self, line: str) -> None:
        """A figure of the span with all users busy, which stands in a block of its own behind the run's."""
        if self._last is None or (pair := _PAIR.match(line)) is None:
            return
        figure = figure_of(label_of(pair["label"]), {})
        if figure is not None and (number := value_of(pair["value"])[0]) is not None:
            self._last.put(f"steady_{figure[0]}", number)

    def _complete(self, block: Posted) -> None:
        """What the tool said of itself before, where the block does not."""
        context = self._context
        if block.tool is None:
            tells = {"backend", "input_tok_s", "concurrency"} & block.figures.keys()
            of_sglang = tells or context.get("backend", "").startswith("sglang")
            block.tool = "sglang" if of_sglang else "vllm"
        for key in _CONTEXT:
            if key not in block.figures and context.get(key) is not None:
                block.put(key, context[key])
        for key, name in (("input_len", "random_input_len"), ("output_len", "random_output_len")):
            if context.get("dataset_name", "").startswith("random"):
                block.put(key, context.get(name))
        if (dataset := context.get("dataset_name")) is not None:
            block.dataset = one_line(dataset, 80)
        if (model := context.get("model")) not in (None, "None", ""):
            block.model = one_line(str(model), 200)
        if re.fullmatch("[0-9]{1,18}", seed := context.get("seed", "")):
            block.seed = int(seed)
        if (temperature := number_of(context.get("temperature"))) is not None:
            block.temperature = temperature
        if "disable_ignore_eos" in context:
            block.ignore_eos = context["disable_ignore_eos"] != "True"
        elif "ignore_eos" in context:
            block.ignore_eos = context["ignore_eos"] == "True"
        self._context = {}

    def _one_batch(self, line: str) -> list[Posted]:
        if (matched := _ONE_BATCH.search(line)) is None:
            return []
        what, batch, latency, unit, rate = matched.groups()
        if what.startswith("Warmup"):
            self._warming = True
            return self.flush()
        if what.startswith("Benchmark"):
            self._warming, self._batch = False, None  # what stood before it was the warm-up, whether it was said or not
            return []
        if latency is None:
            return []
        seconds = (number_of(latency) or 0.0) / (1000 if unit == "ms" else 1)
        ended: list[Posted] = []
        if what == "Prefill." or self._batch is None or self._batch.kind != "one_batch":
            ended = self.flush()
            self._batch = Posted("sglang", "one_batch")
        if what == "Prefill.":
            self._batch.put("prefill_latency_ms", seconds * 1000)
            self._batch.put("input_tok_s", rate)
        elif what.startswith("Decode.") and "median" in what:
            self._batch.put("step_time_ms", latency if latency == "nan" else seconds * 1000)
            self._batch.put("output_tok_s", rate)
        elif what == "Total.":
            self._batch.put("duration_s", seconds)
            self._batch.put("total_tok_s", rate)
            if self._warming:
                self._batch = None  # else it is flushed by what comes next, or at the end
        elif batch:
            self._batch.put("batch_size", batch)
        return ended

    def _server_case(self, matched: re.Match[str], found: list[Posted]) -> bool:
        """A line of bench_one_batch_server, whose cases begin with the batch size."""
        label, number = matched["label"].lower(), number_of(matched["number"])
        if label.startswith("#"):
            if self._batch is None or self._batch.kind == "one_batch_server":
                self._counts[label[1:].replace(" ", "_")] = number or 0
            return False
        if label == "batch size":
            found += self.flush()
            self._batch = Posted("sglang", "one_batch_server")
            for key, count in {"batch_size": number, **self._counts}.items():
                self._batch.put(key, count)
            self._counts = {}
            return True
        if self._batch is None or self._batch.kind != "one_batch_server" or number is None:
            return False
        key, factor = DATA["one_batch_server"][label]
        if key != "accept_length" or number > 0:
            self._batch.put(key, number * factor)
        return True


def _is_record(posted: Posted) -> bool:
    known = posted.figures.keys() | posted.broken
    return bool(known & (_RATES | {"step_time_ms"})) and len(known) >= 3


def _of_line(line: str) -> Posted | None:
    """The record that a line by itself is."""
    for pattern, form in _ONE_LINE:
        if (matched := pattern.search(line)) is not None:
            posted = Posted(form["tool"], form["kind"], dataset=form.get("dataset"), part=form.get("part", False))
            for key, value in matched.groupdict().items():
                posted.put(key, value)
            return posted
    if (matched := _SWEPT.search(line)) is None:
        return None
    posted = Posted("sglang", "speculative")
    for key, value in _SWEPT_ITEM.findall(matched[1]):
        posted.put("step_time_ms" if key == "step_time" else key, value)
    return posted if "speed" in posted.figures or "speed" in posted.broken else None


def is_title(line: str) -> bool:
    """Whether a block of SGLang's or vLLM's begins with the line."""
    return "benchmark result" in line.lower() and _BANNER.search(line[:_LINE_LIMIT]) is not None


def figure_at(text: str, value: str, section: str = "") -> tuple[str, str] | None:
    """Our key and the figure behind a label that the blocks have; None of another label.

    Args:
        section: what a statistic alone is of.
    """
    label = label_of(text)
    if (position := _POSITION.fullmatch(label.name)) is not None:
        figure: tuple[str, float] | None = (f"acceptance_pct_position_{position[1]}", 1.0)
    elif label.name:
        figure = figure_of(label, {}, own=False, shared=ANYWHERE)
    else:
        figure = (f"{label.point}_{section}_ms", MILLISECONDS.get(label.unit, 1.0)) if label.point and section else None
    if figure is None or (figure[0].endswith("_ms") and not label.point):
        return None
    key, factor = figure
    number, unit = value_of(value)
    if key.endswith("_ms") and not label.unit:
        factor = MILLISECONDS.get(unit, factor)
    if number is None or factor == 1:
        return key, value if number is None else str(number)
    return key, str(times(number_of(number) or 0.0, factor))


def tool_of(labels: Iterable[str]) -> str | None:
    """Which tool has such labels; None where both do."""
    bare = {label.lower().split(" (")[0] for label in labels}
    return "sglang" if bare & _OF_SGLANG else "vllm" if bare & _OF_VLLM_ALONE else None


def _labelled(line: str, section: str) -> tuple[str, str, str] | None:
    """(key, value, label) of a line that holds a figure we know."""
    pair = _PAIR.match(line)
    if pair is None:
        return None
    before, value = pair["label"], pair["value"]
    ends = _LAST_WORD.search(before)
    if ends is None or not (ends.group(1).lower() in _LAST_WORDS or _POSITION.search(before)):
        return None  # most lines of a log
    # The label is the end of what stands before its value; what precedes it must look like a log's prefix.
    for start in [0, *(at.end() for at in re.finditer(r"[\s\]|>)]+|:(?=\w)|-(?=[A-Z])", before))]:
        if _PREFIX.search(before[:start]) and (figure := figure_at(before[start:], value, section)) is not None:
            return *figure, label_of(before[start:]).whole
    return None
