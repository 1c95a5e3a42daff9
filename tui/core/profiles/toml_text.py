"""Values as TOML text, and new profile files."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tui.core.errors import Slug, UsageError
from tui.core.profiles.secrets import MASK, is_secret_arg, is_secret_env
from tui.core.text import one_line, read_toml


def toml_value(value: object) -> str:
    """A value as TOML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_toml_key(str(k))} = {toml_value(v)}" for k, v in value.items()) + " }"
    text = str(value)
    if ('"' in text or "\\" in text) and "'" not in text and text.isprintable():
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_lines(table: Mapping[str, object]) -> str:
    """A table's keys and values as TOML, one a line."""
    return "\n".join(f"{_toml_key(key)} = {toml_value(value)}" for key, value in table.items())


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _secrets(table: Mapping[str, Any]) -> list[str]:
    """Names of the variables and flags of a profile's table that hold secrets."""
    names = [name for name, value in table.get("env", {}).items() if is_secret_env(name, str(value))]
    return names + [name for name, value in table.get("args", {}).items() if is_secret_arg(name, value)]


def masked_profile(text: str) -> str:
    """A profile's TOML with its secrets masked."""
    table = read_toml(text)
    names = _secrets(table)
    rows = []
    for row in text.splitlines():
        key = row.partition("=")[0].strip().strip('"')
        rows.append(f'{row.partition("=")[0]}= "{MASK}"' if "=" in row and key in names else row)
    return "\n".join(rows)


def save_profile(text: str, name: str, directory: Path) -> Path:
    """Writes a new profile file (0600 where it holds a secret) and returns its path; never replaces a file.

    Raises UsageError where the name is not a file name, the text is not TOML, or the file exists.
    """
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]{0,99}", name):
        message = f'"{one_line(name)}" is not a name for a profile'
        raise UsageError(message, "use letters, digits, dots and dashes", slug=Slug.BAD_NAME)
    try:
        table = read_toml(text)
    except ValueError as error:
        raise UsageError(f"the profile {error}", "fix it", slug=Slug.BAD_PROFILE) from None
    path = directory / f"{name}.toml"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        created = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if _secrets(table) else 0o666)
        try:
            with os.fdopen(created, "w", encoding="utf-8") as file:
                file.write(text if text.endswith("\n") else text + "\n")
        except BaseException:  # a full disk: half a profile is none
            path.unlink(missing_ok=True)
            raise
    except FileExistsError:
        hint = "choose another name, or remove the file"
        raise UsageError(f"{path} exists already", hint, slug=Slug.EXISTS) from None
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror or error}"
        raise UsageError(message, "choose another directory", slug=Slug.CANNOT_WRITE) from None
    return path
