"""A command on the way to a server's call, what holds while a text is read, and words that no shell reads."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any

from tui.core.errors import Slug, UsageError
from tui.core.profiles.importing.unresolved import Unresolved, unresolved


@dataclass
class Reading:
    """What holds while one text is read: the caller's home, what ~ means, and the values that the caller gives."""

    home: str
    defines: Mapping[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)  # the names that the text had
    broken: str = ""  # where and why a manifest does not parse
    # Reads a text that stands inside another, a here-document: (text, reading, exported variables, depth).
    inner: "Callable[[str, Reading, dict[str, str], int], list[Call]] | None" = None

    def given(self, *names: str) -> str | None:
        """The value given for one of the names; None where there is none."""
        for name in names if self.defines else ():
            if name in self.defines:
                self.used.add(name)
                return self.defines[name]
        return None

    def value_of(self, text: str) -> str | None:
        """The value given for what stands in a text as `$NAME`, `{{ .name }}` and the like."""
        return self.given(text, unresolved(text, "").name) if self.defines else None


@dataclass(frozen=True)
class Call:
    """A command while its wrappers are taken off."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None
    line: int = 0  # 1-based; 0: not known
    where: str = ""  # the container, unit or file that it is in
    wrapper: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()  # what was not understood, or belongs to something else
    unresolved: tuple[Unresolved, ...] = ()
    inside: bool = False  # of a container
    slurm: Mapping[str, object] | None = None  # the `[slurm]` table of the job that it is in
    container: Mapping[str, object] | None = None  # the `[container]` table of a profile that runs it so

    @property
    def program(self) -> str:
        """The name of the program, without its directory."""
        return PurePosixPath(self.argv[0]).name if self.argv else ""

    def without(self, count: int, **changes: Any) -> "Call":
        """The call without its first words."""
        return replace(self, argv=self.argv[count:], **changes)

    def warn(self, *texts: str) -> "Call":
        """The call with more to say about it, once each."""
        return replace(self, warnings=tuple(dict.fromkeys((*self.warnings, *texts))))

    def miss(self, *texts: str) -> "Call":
        """The call with more that was not understood, once each."""
        return replace(self, missed=tuple(dict.fromkeys((*self.missed, *texts))))

    def leave(self, *items: Unresolved) -> "Call":
        """The call with more values that stayed as text, once each."""
        return replace(self, unresolved=tuple(dict.fromkeys((*self.unresolved, *items))))

    def filled(self, reading: Reading, known: Mapping[str, str], where: str = "") -> "Call":
        """The call with the values that stand in its words as `$(NAME)`, `${NAME}` or `{{ .name }}`."""
        found: list[Unresolved] = []
        dollars = self.program not in SHELLS  # a shell fills its script itself
        argv = tuple(filled(word, reading, known, found, where, dollars=dollars) for word in self.argv)
        return replace(self, argv=argv).leave(*found)


SHELLS = frozenset(["bash", "sh", "zsh", "dash", "ash", "ksh"])
MAX_VALUE = 64 * 1024  # characters
_SPOTS = re.compile(
    r"(?P<escaped>\$\$)|(?P<ref>\$\((?P<kube>[A-Za-z_]\w*)\)"
    r"|\$\{(?P<name>[A-Za-z_]\w*)(?::?(?P<how>[-=?+])(?P<word>[^{}]*))?\}|\$(?P<bare>[A-Za-z_]\w*)"
    r"|\$\{\w+(?:\.\w+)+\}|%\(ENV_(?P<env>\w+)\)s|%\((?!ENV_)\w+\)s"
    r"|\$?\{\{-?[ \t]*[\w.$(\"'][^{}\n]*\}\}|<[A-Za-z_](?:[\w .-]*\w)?>)"
)


def filled(
    text: str,
    reading: Reading,
    known: Mapping[str, str],
    found: list[Unresolved],
    where: str = "",
    *,
    dollars: bool = True,
) -> str:
    """A word that no shell reads, with what stands in it for values: `$(NAME)`, `${NAME:-default}`, `$NAME`, `{{ }}`.

    `known` is what the file around it sets. What is not known stays, and is added to `found`. Where `where` is compose,
    kubernetes or systemd, `$$` is a `$`; Kubernetes replaces `$(NAME)` only.
    """

    def value(match: re.Match[str]) -> str:
        if not dollars and match[0][0] == "$":
            return match[0]
        if match["escaped"]:
            return "$" if where else "$$"
        name = match["kube"] or match["name"] or match["bare"] or match["env"] or ""
        given = reading.value_of(match[0])
        if given is None and (match["kube"] or where != "kubernetes"):
            given = known.get(name)
        if match["how"] == "+":
            return match["word"] if given else ""
        if given is None and match["how"] in ("-", "="):
            given = match["word"]
        if given is not None:
            return given
        why = "is a placeholder" if match[0][0] in "<{" else "is not set in this text"
        found.append(unresolved(match[0], why))
        return match[0]

    result = _SPOTS.sub(value, text)
    if len(result) > MAX_VALUE:
        raise UsageError("a value is too long", "cut the text to the command", slug=Slug.UNREADABLE_COMMAND)
    return result
