"""Which flags, variables and overrides are secrets: handed over by file, and masked wherever they are shown or stored."""

from collections.abc import Mapping

from tui.core.masking import secret_name, secret_value
from tui.core.sglang.flags import flag_table

MASK = "••••••••"


def is_secret_env(name: str, value: str = "") -> bool:
    """Whether an environment variable is handed over by file and never shown: tokens, keys, passwords, user:password@."""
    return secret_name(name) or secret_value(value)


def is_secret_arg(name: str, value: object) -> bool:
    """Whether a flag's value is handed over by file and never shown."""
    return flag_table().is_secret(name) or (isinstance(value, str) and secret_value(value))


def _of_member(key: str) -> str:
    """`group.decode.1.args.x` -> `args.x`."""
    return next((f"{head}.{key.partition(f'.{head}.')[2]}" for head in ("args", "env") if f".{head}." in key), "")


def public_sets(sets: Mapping[str, object]) -> dict[str, object]:
    """`--set` values as they may be stored and shown: secrets masked."""

    def secret(key: str, value: object) -> bool:
        head, _, rest = (key if not key.startswith("group.") else _of_member(key)).partition(".")
        if head == "env" and rest:
            return is_secret_env(rest, str(value))
        return is_secret_arg(rest if head == "args" and rest else key, value)

    return {key: MASK if secret(key, value) else value for key, value in sets.items()}
