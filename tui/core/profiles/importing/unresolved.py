"""Values that only a shell, a cluster or a template engine can know, and what they are called.

Each stays one value of text and is named, with the name that `--define NAME=VALUE` takes.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_PLAIN = re.compile(r"\$\w+|\$\{\w+\}|\$\([A-Z_][A-Z0-9_]*\)|<[^<>]*>|\$?\{\{.*\}\}|%.*", re.DOTALL)
_NAMES = (
    re.compile(r"\$\{([A-Za-z_]\w*(?:\.\w+)+)\}"),  # of Terraform
    re.compile(r"\$\{?(\w+|@)(?:\}|[^\w(].*)?", re.DOTALL),  # $X, ${X}, ${X:?why}
    re.compile(r"\$\(\s*([A-Za-z_]\w*)\s*\)"),  # $(X), as Kubernetes has it; also a command without arguments
    re.compile(r"\$?\{\{-?\s*\.?([A-Za-z_][\w.]*)[^{}]*\}\}"),  # {{ .Values.x | quote }}
    re.compile(r"\{([A-Za-z_][\w.]*)\}"),  # of a Python f-string
    re.compile(r"<([^<>]*)>"),
    re.compile(r"%\(ENV_(\w+)\)s"),  # supervisord
)


@dataclass(frozen=True)
class Unresolved:
    """A value that stayed as text."""

    name: str  # what --define takes
    text: str  # as it stands in the source
    why: str

    @property
    def sentence(self) -> str:
        """What it is and why it stayed."""
        short = " ".join(self.text.split())
        return f"{short if len(short) <= 60 else short[:59] + '…'} {self.why}"


def unresolved(text: str, why: str) -> Unresolved:
    """The record of a text that stays."""
    name = next((match[1] for pattern in _NAMES if (match := pattern.fullmatch(text))), text)
    return Unresolved(name, text, f"{why}: it stays as text")


def is_plain(text: str) -> bool:
    """Whether a text is a name only, so that it says by itself what is missing; a command to run is not."""
    return _PLAIN.fullmatch(text) is not None


def named(items: Iterable[Unresolved], values: Iterable[str]) -> list[Unresolved]:
    """Those of the items that stand in the values."""
    together = "\n".join(values)
    return [item for item in items if item.text in together]
