"""Which flags, variables and overrides are secrets: handed over by file, and masked wherever they are shown or stored."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tui.core.masking.known import holds_known, learn_names, named_secret
from tui.core.masking.names import secret_name
from tui.core.masking.written import learn_value, learn_words, secret_value, secrets_in
from tui.core.sglang.flags import flag_table

MASK = "••••••••"


def is_secret_env(name: str, value: str = "") -> bool:
    """Whether an environment variable is handed over by file and never shown: its name says so, or its value is one."""
    return secret_name(name) or named_secret(name) or secret_value(value) or holds_known(value)


def is_secret_arg(name: str, value: object) -> bool:
    """Whether a flag's value is handed over by file and never shown."""
    if flag_table().is_secret(name) or named_secret(name):
        return True
    return any(secret_value(text) or holds_known(text) for text in _texts(value))


def _texts(value: object) -> Iterator[str]:
    """Every text in a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _of_member(key: str) -> str:
    """`group.decode.1.args.x` -> `args.x`."""
    return next((f"{head}.{key.partition(f'.{head}.')[2]}" for head in ("args", "env") if f".{head}." in key), "")


def _is_secret_set(key: str, value: object) -> bool:
    head, _, rest = (key if not key.startswith("group.") else _of_member(key)).partition(".")
    if head == "env" and rest:
        return is_secret_env(rest, str(value))
    return is_secret_arg(rest if head == "args" and rest else key, value)


def public_sets(sets: Mapping[str, object]) -> dict[str, object]:
    """`--set` values as they may be stored and shown: secrets masked."""
    return {key: MASK if _is_secret_set(key, value) else value for key, value in sets.items()}


def public_env(env: Mapping[str, str]) -> dict[str, str]:
    """Environment variables as they may be stored and shown: secrets masked."""
    return {name: MASK if is_secret_env(name, value) else value for name, value in env.items()}


def learn_secrets(table: Mapping[str, Any]) -> None:
    """What a profile's table gives as secrets is masked from now on wherever it stands; the table may be broken."""
    named = table.get("secrets")
    learn_names(name for name in named if isinstance(name, str)) if isinstance(named, list) else None
    for name, value in table.items():
        if name in ("wrapper", "command") and isinstance(value, list):
            learn_words(word for word in value if isinstance(word, str))
        elif name == "container" and isinstance(value, dict):
            learn_words(word for word in value.get("options") or () if isinstance(word, str))
        elif name == "env" and isinstance(value, dict):
            learn_named((key, inner) for key, inner in value.items() if is_secret_env(str(key), str(inner)))
        elif name in ("args", "set") and isinstance(value, dict):
            learn_named((key, inner) for key, inner in value.items() if _is_secret_set(str(key), inner))
            _learn_inside(value)
        elif name in ("group", "prefill", "decode", "router", "arms"):
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, dict):
                    learn_secrets(inner)


def learn_named(pairs: Iterable[tuple[str, object]]) -> None:
    """Values of names that mean a secret."""
    for _, value in pairs:
        for text in _texts(value):
            learn_value(text)


def _learn_inside(value: object) -> None:
    """Of tables within a flag, and of JSON that is one's value."""
    if isinstance(value, Mapping):
        learn_named((str(key), inner) for key, inner in value.items() if secret_name(str(key)))
        for inner in value.values():
            _learn_inside(inner)
    elif isinstance(value, str):
        for text in secrets_in(value):
            learn_value(text)
