"""The shape of profile files, checked by pydantic so that all errors of a file are found at once.

What concerns several keys, or flags, is in `checks`. Only `files` imports this, and only when a file is read: pydantic
takes a tenth of a second to load.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from tui.core.model.profile import DRIVERS, METHODS, MOST_ARMS
from tui.core.profiles.checks import Problem, did_you_mean, one_or_more
from tui.core.sglang.flags import flag_table

Text = Annotated[str, Field(strict=True)]
Words = list[Text]
# Beyond these somebody mistyped, and the host would pay for it: each user is a connection there, each run a file.
Users = Annotated[int, Field(strict=True, ge=1, le=10_000)]
Rate = Annotated[float, Field(strict=True, gt=0, le=10_000)]
Tokens = Annotated[int, Field(strict=True, ge=1, le=10_000_000)]
Repeats = Annotated[int, Field(strict=True, ge=1, le=1000)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=604_800)]  # a week
Milliseconds = Annotated[float, Field(strict=True, gt=0, le=86_400_000)]  # a day
Port = Annotated[int, Field(strict=True, ge=1, le=65535)]
GpuNumbers = Annotated[list[Annotated[int, Field(strict=True, ge=0)]], Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Profile(_Table):
    description: Text | None = None
    hypothesis: Text | None = None
    known: Text | None = None


class Container(_Table):
    """`[container]`; `image` may come from the profile that is extended."""

    image: Text | None = None
    engine: Text | Annotated[Words, Field(min_length=1)] | None = None
    options: Words | None = None
    mounts: Words | None = None
    gpus: Annotated[bool, Field(strict=True)] | None = None


class Nodes(_Table):
    """`[nodes]`; `hosts` may come from the profile that is extended."""

    hosts: Annotated[Words, Field(min_length=2, max_length=256)] | None = None
    interface: Text | None = None
    dist_port: Annotated[int, Field(strict=True, ge=1, le=65535)] | None = None


class Slurm(_Table):
    """`[slurm]`: the server is a job of the host's Slurm; every key has a default."""

    partition: Text | None = None
    account: Text | None = None
    qos: Text | None = None
    constraint: Text | None = None
    nodes: Annotated[int, Field(strict=True, ge=1, le=256)] | None = None
    gpus_per_node: Annotated[int, Field(strict=True, ge=0, le=64)] | None = None
    time: Text | None = None
    image: Text | None = None
    image_runner: Literal["pyxis", "apptainer", "singularity"] | None = None
    mounts: Words | None = None
    dist_port: Port | None = None
    options: Words | None = None
    hold: bool | None = None


class _Member(_Table):
    host: Text | None = None
    port: Port | None = None
    args: dict[str, Any] | None = None
    env: dict[str, Any] | None = None


class Decode(_Member):
    """`[group.decode]`."""

    hosts: Annotated[Words, Field(min_length=1)] | None = None
    address: Text | None = None
    gpus: GpuNumbers | None = None


class Prefill(Decode):
    """`[group.prefill]`."""

    bootstrap_port: Port | None = None


class Router(_Member):
    """`[group.router]`."""

    policy: Text | None = None
    command: Annotated[Words, Field(min_length=1)] | None = None


class Group(_Table):
    """`[group]`; any of its tables may come from the profile that is extended."""

    prefill: Annotated[list[Prefill], BeforeValidator(one_or_more), Field(min_length=1)] | None = None
    decode: Annotated[list[Decode], BeforeValidator(one_or_more), Field(min_length=1)] | None = None
    router: Router | None = None


class Launch(_Profile):
    """`kind = "launch"`."""

    kind: Literal["launch"]
    extends: Text | None = None
    gpus: GpuNumbers | None = None
    cwd: Text | None = None
    host: Text | None = None
    wrapper: Words | None = None
    container: Container | None = None
    nodes: Nodes | None = None
    slurm: Slurm | None = None
    group: Group | None = None
    command: Words | None = None
    startup_timeout_s: Seconds | None = None
    secrets: Words | None = None
    requires: dict[str, Any] | None = None
    env: dict[str, Any] | None = None
    args: dict[str, Any] | None = None


class Slo(_Table):
    """Limits that a load must hold."""

    ttft_ms: Milliseconds | None = None
    tpot_ms: Milliseconds | None = None
    e2e_ms: Milliseconds | None = None
    share: Annotated[float, Field(strict=True, ge=0.5, le=0.999)] | None = None


class Bench(_Profile):
    """`kind = "bench"`."""

    kind: Literal["bench"]
    driver: Literal[DRIVERS] | None = None  # type: ignore[valid-type]
    dataset: Text | None = None
    concurrency: Annotated[list[Users], Field(min_length=1)] | None = None
    rate: Annotated[list[Rate], Field(min_length=1)] | None = None
    input_len: Tokens | None = None
    output_len: Tokens | None = None
    duration_s: Seconds | None = None
    runs: Repeats | None = None
    slo: Slo | None = None
    command: Words | None = None


class Arm(_Table):
    """One configuration of an experiment."""

    profile: Text
    set: dict[str, Any] | None = None
    against: Text | None = None


class Grid(_Table):
    """`[grid]`: arms from lists of values."""

    profile: Text
    vary: dict[str, Annotated[list[Any], Field(min_length=1)]] | None = None
    linked: list[dict[str, Annotated[list[Any], Field(min_length=1)]]] | None = None
    exclude: list[dict[str, Any]] | None = None


class Experiment(_Profile):
    """`kind = "experiment"`."""

    kind: Literal["experiment"]
    bench: Text
    pairs: Repeats | None = None
    looks: Annotated[list[Annotated[Repeats, Field(ge=3)]], Field(min_length=1)] | None = None
    margin: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = None
    budget_h: Annotated[float, Field(strict=True, gt=0, le=8760)] | None = None  # a year
    method: Literal[METHODS] | None = None  # type: ignore[valid-type]
    arms: Annotated[list[Arm], Field(max_length=MOST_ARMS)] | None = None
    grid: Grid | None = None


KINDS: dict[str, type[_Table]] = {"launch": Launch, "bench": Bench, "experiment": Experiment}
_TABLES: dict[str, type[_Table]] = {  # inside a profile
    "arms": Arm,
    "grid": Grid,
    "slo": Slo,
    "container": Container,
    "nodes": Nodes,
    "slurm": Slurm,
    "group": Group,
    "group.prefill": Prefill,
    "group.decode": Decode,
    "group.router": Router,
}

_MESSAGES = {
    "missing": ("is missing", None),
    "literal_error": ("must be {expected}", None),
    "less_than_equal": ("must be at most {le:,}", None),
    "less_than": ("must be less than {lt:,}", None),
    "greater_than_equal": ("must be at least {ge:g}", None),
    "greater_than": ("must be more than {gt:g}", None),
    "too_short": ("needs at least {min_length} entries", None),
    "too_long": ("has room for {max_length} entries", None),
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


def check(kind: str, table: dict[str, Any]) -> list[Problem]:
    """Everything that is wrong with the shape of a profile's table."""
    try:
        KINDS[kind].model_validate(table)
    except ValidationError as error:
        return [_problem(kind, table, item) for item in error.errors(include_url=False)]
    return []


def _problem(kind: str, table: dict[str, Any], item: Any) -> Problem:
    location = [str(part) for part in item["loc"]]
    if location[0] == "group" and location[2:3] == ["0"] and isinstance(table["group"].get(location[1]), dict):
        del location[2]  # the only member of its role is written as a table
    key = ".".join(location) or None
    sort, context = item["type"], item.get("ctx", {})
    if sort == "extra_forbidden":
        return key, "unknown key", _known_key(kind, location)
    if sort == "too_short" and context["min_length"] == 1:
        return key, "must not be empty", None
    if sort not in _MESSAGES:
        return key, item["msg"], None
    message, suggestion = _MESSAGES[sort]
    value = table.get(location[0])
    if sort == "list_type" and type(value) in (int, float):
        suggestion = f"write {location[0]} = [{value}]"
    return key, message.format(**context), suggestion


def _known_key(kind: str, location: list[str]) -> str:
    inside = ".".join(part for part in location[:-1] if not part.isdigit())
    fields = _TABLES.get(inside, KINDS[kind]).model_fields
    flag = kind == "launch" and flag_table().known(location[-1])
    otherwise = "flags belong under [args]" if flag else f"known keys: {', '.join(fields)}"
    return did_you_mean(location[-1], fields) or otherwise
