"""The shape of profile files, checked by pydantic so that all errors of a file are found at once.

Only `tui.core.profiles.profiles` imports this, and only when a file is read: pydantic takes a tenth of a second to load.
"""

import difflib
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tui.core.model.profile import ARM_LETTERS

Text = Annotated[str, Field(strict=True)]
Words = list[Text]
# Beyond these somebody mistyped, and the host would pay for it: each user is a connection there, each run a file.
Users = Annotated[int, Field(strict=True, ge=1, le=10_000)]
Rate = Annotated[float, Field(strict=True, gt=0, le=10_000)]
Tokens = Annotated[int, Field(strict=True, ge=1, le=10_000_000)]
Repeats = Annotated[int, Field(strict=True, ge=1, le=1000)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=604_800)]  # a week


class _Common(BaseModel):
    model_config = ConfigDict(extra="forbid")

    description: Text | None = None
    hypothesis: Text | None = None
    known: Text | None = None


class Launch(_Common):
    """`kind = "launch"`. The contents of args, env and requires are checked flag by flag in `profiles`."""

    kind: Literal["launch"]
    extends: Text | None = None
    gpus: Annotated[list[Annotated[int, Field(strict=True, ge=0)]], Field(min_length=1)] | None = None
    cwd: Text | None = None
    host: Text | None = None
    wrapper: Words = Field(default_factory=list)
    command: Words = Field(default_factory=list)
    startup_timeout_s: Seconds = 3600.0
    requires: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, Any] = Field(default_factory=dict)
    args: dict[str, Any] = Field(default_factory=dict)


Milliseconds = Annotated[float, Field(strict=True, gt=0, le=86_400_000)]  # a day


class Slo(BaseModel):
    """Limits that a load must hold."""

    model_config = ConfigDict(extra="forbid")

    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None
    e2e_ms: Milliseconds | None = None
    share: Annotated[float, Field(strict=True, ge=0.5, le=0.999)] = 0.95

    @model_validator(mode="after")
    def _some(self) -> "Slo":
        if all(limit is None for limit in (self.ttft_ms, self.tpot_ms, self.e2e_ms)):
            raise ValueError("names no limit|add ttft_ms, tpot_ms or e2e_ms")
        return self


class Bench(_Common):
    """`kind = "bench"`."""

    kind: Literal["bench"]
    driver: Literal["eagletui", "sglang", "command"] = "eagletui"
    dataset: Text = "prompts"
    concurrency: Annotated[list[Users], Field(min_length=1)] | None = None
    rate: Annotated[list[Rate], Field(min_length=1)] | None = None
    input_len: Tokens | None = None
    output_len: Tokens | None = None
    duration_s: Seconds | None = None
    runs: Repeats = 3
    slo: Slo | None = None
    command: Words = Field(default_factory=list)

    @model_validator(mode="after")
    def _together(self) -> "Bench":
        if self.concurrency is not None and self.rate is not None:
            raise ValueError("concurrency and rate exclude each other|keep one of the two")
        # As the ids of results name them.
        loads = [f"c{users}" for users in self.concurrency or ()] + [f"r{rate:g}" for rate in self.rate or ()]
        if len(set(loads)) < len(loads):
            raise ValueError("the same load is in it twice|runs says how often each is measured")
        if self.slo is not None:
            if self.driver != "eagletui":
                raise ValueError(f"driver {self.driver} cannot search for limits|leave driver or slo out")
            bounds = self.concurrency or self.rate or []
            if len(bounds) != 2 or bounds[0] >= bounds[1]:
                raise ValueError(
                    "with slo, concurrency or rate is the lowest and the highest load of the search"
                    "|write concurrency = [1, 256] or rate = [0.5, 32.0]"
                )
        if self.driver == "command" and not self.command:
            raise ValueError('driver = "command" needs a command|add command = ["program", "argument"]')
        if self.driver != "command" and self.command:
            raise ValueError('command is for driver = "command" only|remove it, or set the driver')
        if self.dataset not in ("prompts", "random-ids") and not self.dataset.endswith(".jsonl"):
            raise ValueError(
                f'dataset "{self.dataset}" is unknown|write "prompts", "random-ids" or a path ending in .jsonl'
            )
        return self


class Arm(BaseModel):
    """One configuration of an experiment."""

    model_config = ConfigDict(extra="forbid")

    profile: Text
    set: dict[str, Any] = Field(default_factory=dict)
    against: Text | None = None


class Experiment(_Common):
    """`kind = "experiment"`."""

    kind: Literal["experiment"]
    bench: Text
    pairs: Repeats | None = None
    looks: Annotated[list[Annotated[Repeats, Field(ge=3)]], Field(min_length=1)] | None = None
    margin: Annotated[float, Field(strict=True, gt=0, lt=1)] = 0.02
    budget_h: Annotated[float, Field(strict=True, gt=0, le=8760)] | None = None  # a year
    arms: Annotated[list[Arm], Field(min_length=2, max_length=len(ARM_LETTERS))]

    @model_validator(mode="after")
    def _together(self) -> "Experiment":
        if self.looks is not None:
            if sorted(set(self.looks)) != self.looks:
                raise ValueError("looks must grow, each number once|write looks = [3, 5, 8]")
            if self.pairs is not None and self.pairs != self.looks[-1]:
                raise ValueError(f"pairs is {self.pairs}, but the last look is at {self.looks[-1]}|leave pairs out")
        for number, arm in enumerate(self.arms):
            earlier = ARM_LETTERS[:number]
            if arm.against is None or arm.against in tuple(earlier):
                continue
            letter = ARM_LETTERS[number]
            if not earlier:
                raise ValueError("arm A is the reference: it has no against|remove it")
            raise ValueError(
                f"arm {letter} can be compared with an earlier arm only, not with {arm.against!r}"
                f"|write against = {' or '.join(repr(other) for other in earlier)}"
            )
        return self


KINDS: dict[str, type[_Common]] = {"launch": Launch, "bench": Bench, "experiment": Experiment}

_WANTED = {
    "string_type": ("must be text", "put it in quotes"),
    "int_type": ("must be a whole number", "write it without quotes"),
    "int_from_float": ("must be a whole number", None),
    "int_parsing": ("must be a whole number", "write it without quotes"),
    "float_type": ("must be a number", "write it without quotes"),
    "float_parsing": ("must be a number", "write it without quotes"),
    "list_type": ("must be a list", "write it in [ ]"),
    "dict_type": ("must be a table", None),
    "model_type": ("must be a table", None),
    "finite_number": ("must be a finite number", None),
}


def check(kind: str, table: dict[str, Any]) -> list[tuple[str | None, str, str | None]]:
    """All errors of the file's shape as (dotted key, message, suggestion); [] where it is right."""
    try:
        KINDS[kind].model_validate(table)
    except ValidationError as error:
        return [_words(kind, table, item) for item in error.errors(include_url=False)]
    return []


def _words(kind: str, table: dict[str, Any], item: Any) -> tuple[str | None, str, str | None]:
    location = [str(part) for part in item["loc"]]
    key = ".".join(location) or None
    sort, context = item["type"], item.get("ctx", {})
    if sort == "extra_forbidden":
        nested: dict[str, type[BaseModel]] = {"arms": Arm, "slo": Slo}
        fields = (nested.get(location[0]) or KINDS[kind]).model_fields
        near = difflib.get_close_matches(location[-1], fields, n=1, cutoff=0.6)
        if near:
            return key, "unknown key", f"did you mean {near[0]}?"
        from tui.core.sglang.flags import flag_table

        if kind == "launch" and flag_table().known(location[-1]):
            return key, "unknown key", "flags belong under [args]"
        return key, "unknown key", f"known keys: {', '.join(fields)}"
    if sort == "missing":
        return key, "is missing", None
    if sort == "value_error":
        message, _, suggestion = str(context.get("error", item["msg"])).partition("|")
        return key, message, suggestion or None
    if sort == "literal_error":
        return key, f"must be {context.get('expected', '')}", None
    if sort in ("less_than_equal", "less_than"):
        bound = context.get("le", context.get("lt"))
        return key, f"must be {'at most' if 'le' in context else 'less than'} {bound:,}", None
    if sort in ("greater_than_equal", "greater_than"):
        bound = context.get("ge", context.get("gt"))
        least = f"at least {bound:g}" if "ge" in context else f"more than {bound:g}"
        return key, f"must be {least}", None
    if sort == "too_short":
        least = context.get("min_length", 1)
        return key, "must not be empty" if least == 1 else f"needs at least {least} entries", None
    if sort == "too_long":
        return key, f"has room for {context['max_length']} entries", None
    message, suggestion = _WANTED.get(sort, (item["msg"], None))
    if sort == "list_type" and kind != "experiment":
        value = table.get(location[0])
        if isinstance(value, int | float) and not isinstance(value, bool):
            suggestion = f"write {location[0]} = [{value}]"
    return key, message, suggestion
