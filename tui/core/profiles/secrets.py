"""Which flags, variables and overrides are secrets: handed over by file, and masked wherever they are shown or stored."""

import re
from collections.abc import Mapping

from tui.core.sglang.flags import flag_table

MASK = "••••••••"

_SECRET_NAME = re.compile(
    r"(^|_)(TOKEN|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|PASS(WD|WORD|PHRASE)?|SECRET(_\w+)?|CREDENTIALS?)$", re.IGNORECASE
)
_SECRET_VALUE = re.compile(r"://[^/\s@:]+:[^/\s@]+@")  # user:password@ in an address


def is_secret_env(name: str, value: str = "") -> bool:
    """Whether an environment variable is handed over by file and never shown: tokens, keys, passwords, user:password@."""
    return bool(_SECRET_NAME.search(name) or _SECRET_VALUE.search(value))


def public_sets(sets: Mapping[str, object]) -> dict[str, object]:
    """`--set` values as they may be stored and shown: secrets masked."""

    def secret(key: str, value: object) -> bool:
        head, _, rest = key.partition(".")
        if head == "env" and rest:
            return is_secret_env(rest, str(value))
        return flag_table().is_secret(rest if head == "args" and rest else key)

    return {key: MASK if secret(key, value) else value for key, value in sets.items()}
