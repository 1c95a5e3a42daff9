"""Reads shell text the way a POSIX shell (with bash's arrays and braces) would, and never executes any of it.

`Shell.commands` gives the simple commands of a text in order, with the words a shell would hand to each program.
What only running could tell (command substitutions, variables nobody set) stays as text, with a warning.
"""

import ast
import fnmatch
import operator
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from tui.core.errors import Slug, UsageError

_NAME = re.compile(r"[A-Za-z_]\w*")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=")
_PLACEHOLDER = re.compile(r"""<[A-Za-z_](?:[\w .:/-]*[\w./-])?>(?=[\s"/:.,)\\]|$)""")
_OPERATORS = (
    "&>>",
    "<<<",
    "<<-",
    "&&",
    "||",
    ";;",
    "|&",
    "&>",
    ">>",
    "<<",
    ">&",
    "<&",
    ">|",
    "<>",
    ";",
    "&",
    "|",
    "(",
    ")",
    "<",
    ">",
)
_REDIRECTS = frozenset({"&>>", "<<<", "<<-", "&>", ">>", "<<", ">&", "<&", ">|", "<>", "<", ">"})
_RESERVED = frozenset(
    {"if", "then", "elif", "else", "fi", "while", "until", "do", "done", "{", "}", "!", "time", "in", "esac"}
)


@dataclass(frozen=True)
class _Lit:
    text: str
    quoted: bool


@dataclass(frozen=True)
class _Var:
    name: str
    quoted: bool
    source: str
    index: str | None = None  # @, * or a number
    op: str = ""
    arg: str = ""  # unexpanded text behind the operator


@dataclass(frozen=True)
class _Raw:
    """Something only a running shell could tell; kept as it was written."""

    source: str
    quoted: bool


_Part = _Lit | _Var | _Raw
_Word = tuple[_Part, ...]


@dataclass(frozen=True)
class _Token:
    kind: str  # word, op, newline
    text: str  # source of a word, or the operator
    line: int
    start: int = 0  # offsets in the text
    end: int = 0
    parts: _Word = ()
    array: tuple[_Word, ...] | None = None  # of name=( ... )
    body: str | None = None  # of a here-document
    body_quoted: bool = False


@dataclass(frozen=True)
class Command:
    """One simple command as a shell would start it."""

    argv: tuple[str, ...]
    env: dict[str, str]  # exported before it, and the assignments in front of it; only what the text itself sets
    line: int  # 1-based, of its first word
    source: str  # its words as written
    cwd: str | None = None
    redirects: tuple[str, ...] = ()  # targets of output redirections
    here: str | None = None  # text of a here-document
    background: bool = False


def _unreadable(what: str, line: int) -> UsageError:
    return UsageError(f"line {line}: {what}", "complete the command", slug=Slug.UNREADABLE_COMMAND)


class _Lexer:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.tokens: list[_Token] = []
        self._here: list[tuple[int, str, bool, bool]] = []  # token index, delimiter, quoted, strip tabs

    def run(self) -> list[_Token]:
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r":
                self.at += 1
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
                self.line += 1
            elif char == "\n":
                self.tokens.append(_Token("newline", "\n", self.line))
                self.at += 1
                self.line += 1
                self._read_here()
            elif char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif op := self._operator():
                self.tokens.append(_Token("op", op, self.line, self.at, self.at + len(op)))
                self.at += len(op)
            else:
                self._word()
        self._read_here()
        return self.tokens

    def _operator(self) -> str | None:
        if self.text[self.at] == "<" and (
            self.text.startswith("<(", self.at) or _PLACEHOLDER.match(self.text, self.at)
        ):
            return None
        if self.text.startswith(">(", self.at):
            return None
        return next((op for op in _OPERATORS if self.text.startswith(op, self.at)), None)

    def _word(self) -> None:
        start, line = self.at, self.line
        parts = self._parts(lambda char: char in " \t\n\r;&|()")
        source = self.text[start : self.at]
        array = None
        if self.at < len(self.text) and self.text[self.at] == "(" and _ASSIGNMENT.fullmatch(source):
            array = self._array()
        token = _Token("word", source, line, start, self.at, parts, array)
        previous = self.tokens[-1] if self.tokens else None
        if previous and previous.kind == "op" and previous.text in ("<<", "<<-"):
            quoted = any(not isinstance(part, _Lit) or part.quoted for part in parts)
            delimiter = "".join(part.text if isinstance(part, _Lit) else part.source for part in parts)
            self._here.append((len(self.tokens), delimiter, quoted, previous.text == "<<-"))
        self.tokens.append(token)

    def _array(self) -> tuple[_Word, ...]:
        line = self.line
        self.at += 1
        items: list[_Word] = []
        while True:
            if self.at >= len(self.text):
                raise _unreadable("an array is never closed", line)
            char = self.text[self.at]
            if char == ")":
                self.at += 1
                return tuple(items)
            if char == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif char in " \t\r\n":
                self.at += 1
                self.line += char == "\n"
            elif self.text.startswith("\\\n", self.at):
                self.at += 2
                self.line += 1
            else:
                before = self.at
                items.append(self._parts(lambda c: c in " \t\n\r)"))
                if self.at == before:
                    raise _unreadable("an array cannot be read", line)

    def _read_here(self) -> None:
        for index, delimiter, quoted, strip in self._here:
            lines = []
            while self.at < len(self.text):
                end = self.text.find("\n", self.at)
                end = len(self.text) if end < 0 else end
                row = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                self.line += 1
                row = row.lstrip("\t") if strip else row
                if row.rstrip("\r") == delimiter:
                    break
                lines.append(row)
            old = self.tokens[index]
            self.tokens[index] = replace(old, body="\n".join(lines) + "\n", body_quoted=quoted)
        self._here.clear()

    def _parts(self, ends: Callable[[str], bool]) -> _Word:
        """Reads one word up to an unquoted character for which `ends` holds."""
        parts: list[_Part] = []
        plain = ""
        while self.at < len(self.text):
            char = self.text[self.at]
            placeholder = _PLACEHOLDER.match(self.text, self.at) if char == "<" else None
            if placeholder:
                parts += [_Lit(plain, False), _Raw(placeholder.group(), True)]
                plain = ""
                self.at = placeholder.end()
                continue
            if char in "<>" and self.text.startswith("(", self.at + 1):  # process substitution
                parts += [_Lit(plain, False), self._raw_parens(2, True)]
                plain = ""
                continue
            if ends(char) or char in "<>":
                break
            if char == "\\":
                if self.at + 1 >= len(self.text):
                    self.at += 1
                elif self.text[self.at + 1] == "\n":
                    self.at += 2
                    self.line += 1
                else:
                    parts += [_Lit(plain, False), _Lit(self.text[self.at + 1], True)]
                    plain = ""
                    self.at += 2
            elif char == "'":
                parts += [_Lit(plain, False), _Lit(self._single(), True)]
                plain = ""
            elif char == '"':
                parts.append(_Lit(plain, False))
                plain = ""
                parts += self._double()
            elif char in "$`":
                parts.append(_Lit(plain, False))
                plain = ""
                parts.append(self._dollar(False))
            else:
                plain += char
                self.at += 1
        parts.append(_Lit(plain, False))
        return tuple(part for part in parts if not isinstance(part, _Lit) or part.quoted or part.text)

    def _single(self) -> str:
        end = self.text.find("'", self.at + 1)
        if end < 0:
            raise _unreadable("a single quote is never closed", self.line)
        inner = self.text[self.at + 1 : end]
        self.line += inner.count("\n")
        self.at = end + 1
        return inner

    def _double(self) -> list[_Part]:
        line = self.line
        self.at += 1
        parts: list[_Part] = []
        text = ""
        while True:
            if self.at >= len(self.text):
                raise _unreadable("a double quote is never closed", line)
            char = self.text[self.at]
            following = self.text[self.at + 1 : self.at + 2]
            if char == '"':
                self.at += 1
                # "" is a word, "$@" without arguments is none
                return [*parts, _Lit(text, True)] if text or not parts else parts
            if char == "\\" and following and following in '$`"\\\n':
                text += "" if following == "\n" else following
                self.line += following == "\n"
                self.at += 2
            elif char == "`" or (char == "$" and (following.isalnum() or following in "_{(@*#?$!-")):
                parts += [*([_Lit(text, True)] if text else []), self._dollar(True)]
                text = ""
            else:
                text += char
                self.line += char == "\n"
                self.at += 1

    def _raw_parens(self, skip: int, quoted: bool) -> _Raw:
        """From the present position over balanced parentheses, `skip` characters being the opening."""
        start, line = self.at, self.line
        self.at += skip
        depth = 1
        while depth:
            if self.at >= len(self.text):
                raise _unreadable("a parenthesis is never closed", line)
            char = self.text[self.at]
            if char == "'":
                self._single()
                continue
            if char == "\\":
                self.at += 1
            depth += (char == "(") - (char == ")")
            self.line += char == "\n"
            self.at += 1
        return _Raw(self.text[start : self.at], quoted)

    def _dollar(self, quoted: bool) -> _Part:
        start = self.at
        rest = self.text[self.at :]
        if rest.startswith("`"):
            end = re.compile(r"(?:\\.|[^`\\])*`", re.DOTALL).match(self.text, self.at + 1)
            if not end:
                raise _unreadable("a backquote is never closed", self.line)
            self.at = end.end()
            source = self.text[start : self.at]
            self.line += source.count("\n")
            return _Raw(source, quoted)
        if rest.startswith("$(("):
            raw = self._raw_parens(2, quoted)
            return _Var("", quoted, raw.source, op="((", arg=raw.source[3:-2]) if raw.source.endswith("))") else raw
        if rest.startswith("$("):
            return self._raw_parens(2, quoted)
        if rest.startswith("$'") and not quoted:
            end = re.compile(r"(?:\\.|[^'\\])*'", re.DOTALL).match(self.text, self.at + 2)
            if not end:
                raise _unreadable("a single quote is never closed", self.line)
            self.at = end.end()
            inner = self.text[start + 2 : self.at - 1]
            self.line += inner.count("\n")
            return _Lit(_ansi_c(inner), True)
        if rest.startswith('$"') and not quoted:
            self.at += 1
            parts = self._double()
            return parts[0] if len(parts) == 1 else _Raw(self.text[start : self.at], True)
        if rest.startswith("${"):
            return self._braced(quoted)
        name = _NAME.match(rest, 1)
        special = re.match(r"\$[@*#?$!\d-]", rest)
        if not name and not special:
            self.at += 1
            return _Lit("$", True)
        source = "$" + name.group() if name else rest[:2]
        self.at += len(source)
        return _Var(source[1:], quoted, source, index=source[1:] if source[1:] in "@*" else None)

    def _braced(self, quoted: bool) -> _Part:
        start, line = self.at, self.line
        self.at += 2
        depth = 1
        while depth:
            if self.at >= len(self.text):
                raise _unreadable("${ is never closed", line)
            char = self.text[self.at]
            if char == "\\":
                self.at += 1
            elif char == "'" and not quoted:
                self._single()
                continue
            depth += (char == "{") - (char == "}")
            self.line += char == "\n"
            self.at += 1
        source = self.text[start : self.at]
        match = re.fullmatch(
            r"\$\{([A-Za-z_]\w*|\d+|[@*#?$!-])(?:\[([@*]|\d+)\])?(?:(:?[-=+?]|##?|%%?)(.*))?\}", source, re.DOTALL
        )
        if not match:
            return _Raw(source, quoted)
        name, index, op, arg = match.groups()
        return _Var(name, quoted, source, index or (name if name in "@*" else None), op or "", arg or "")


def _ansi_c(text: str) -> str:
    simple = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}

    def one(match: re.Match[str]) -> str:
        body = match.group(1)
        if body[0] in "xuU" and len(body) > 1:
            return chr(int(body[1:], 16))
        if body[0] in "01234567":
            return chr(int(body, 8) & 0xFF)
        return simple.get(body, body)

    return re.sub(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|[0-7]{1,3}|.)", one, text, flags=re.DOTALL)


_CHOICE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_Cell = tuple[str, bool] | _Var | _Raw  # a character and whether it was quoted, or an expansion


def _braces(cells: list[_Cell]) -> list[list[_Cell]]:
    """Brace expansion: {1,2,4} and {1..4}, unquoted."""
    for start, cell in enumerate(cells):
        if cell != ("{", False):
            continue
        depth, commas = 0, []
        for at in range(start, len(cells)):
            if cells[at] == ("{", False):
                depth += 1
            elif cells[at] == ("}", False):
                depth -= 1
            elif cells[at] == (",", False) and depth == 1:
                commas.append(at)
            if depth == 0:
                break
        else:
            continue
        inner = cells[start + 1 : at]
        choices: list[list[_Cell]] = []
        if commas:
            edges = [start, *commas, at]
            choices = [cells[a + 1 : b] for a, b in pairwise(edges)]
        elif all(isinstance(c, tuple) and not c[1] for c in inner):
            text = "".join(c[0] for c in inner if isinstance(c, tuple))
            if numbers := _CHOICE.fullmatch(text):
                first, last = int(numbers.group(1)), int(numbers.group(2))
                step = abs(int(numbers.group(3) or 1)) or 1
                run = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
                choices = [[(c, False) for c in str(number)] for number in run[:1000]]
        if choices:
            done = [[_closed(cell) for cell in head] for choice in choices for head in _braces(choice)]
            return [whole for head in done for whole in _braces([*cells[:start], *head, *cells[at + 1 :]])]
    return [cells]


def _closed(cell: _Cell) -> _Cell:
    """A brace that was looked at already is an ordinary character."""
    return (cell[0], True) if isinstance(cell, tuple) and cell[0] in "{}" else cell


class _Flow:
    """Which branch of if, && and || is being read."""

    def __init__(self, follow: bool) -> None:
        self.status: bool | None = None
        self._follow = follow
        self._frames: list[list[bool]] = []  # outer running, some branch taken, this one running
        self._skip = False
        self._negate = False

    @property
    def running(self) -> bool:
        return not self._follow or (not self._skip and all(frame[2] for frame in self._frames))

    def word(self, text: str) -> None:
        """A reserved word at the beginning of a command."""
        if text == "if":
            self._frames.append([self.running, False, True])
        elif text == "!":
            self._negate = True
        elif not self._frames:
            return
        elif text == "then":
            met = not self._frames[-1][1] and self.status is not False
            self._frames[-1][1:] = [self._frames[-1][1] or met, met]
        elif text in ("elif", "else"):
            self._frames[-1][2] = not self._frames[-1][1]
        elif text == "fi":
            self._frames.pop()

    def end(self, operator_text: str) -> None:
        """A command ended with this operator."""
        if self._negate and self.status is not None:
            self.status = not self.status
        self._negate = False
        self._skip = (operator_text == "&&" and self.status is False) or (operator_text == "||" and self.status is True)


class Shell:
    """Variables and exports while a text is read from top to bottom. `home` is the caller's, for ~ and $HOME."""

    def __init__(self, home: str, variables: dict[str, str] | None = None) -> None:
        self.home = home
        self.variables: dict[str, str | list[str]] = {**(variables or {})}
        self.exported: set[str] = set(variables or {})
        self._remarks: list[tuple[str, str]] = []  # what stayed as text, and the sentence about it
        self.cwd: str | None = None
        self._export_all = False

    def warnings(self, values: Iterable[str]) -> list[str]:
        """Sentences about what in `values` stayed as text because only a running shell could tell."""
        together = "\n".join(values)
        return list(dict.fromkeys(sentence for source, sentence in self._remarks if source in together))

    def commands(self, text: str, *, branches: bool = True) -> Iterator[Command]:
        """The simple commands of a text, in order; with `branches`, only those of the branches a shell would take.

        A condition that only running could decide counts as met. Raises UsageError for an open quote or parenthesis.
        """
        words: list[_Token] = []
        redirects: list[tuple[str, _Token]] = []
        tokens = iter([*_Lexer(text).run(), _Token("newline", "\n", 0)])
        flow = _Flow(branches)
        for token in tokens:
            if token.kind == "op" and token.text in _REDIRECTS:
                if words and words[-1].text.isdigit() and words[-1].end == token.start:
                    words.pop()  # 2>file
                target = next(tokens, None)
                if target is not None and target.kind == "word":
                    redirects.append((token.text, target))
                continue
            if token.kind == "word":
                if words or token.text not in _RESERVED:
                    words.append(token)
                else:
                    flow.word(token.text)
                continue
            if words and flow.running:
                if words[0].text in ("for", "select"):
                    self._loop(words)
                elif words[0].text in ("[", "[[", "test"):
                    flow.status = self._test(words[1:])
                else:
                    flow.status = {"true": True, ":": True, "false": False}.get(words[0].text)
                    found = self._simple(words, redirects, token.text == "&")
                    if found:
                        yield found
            if words:
                flow.end(token.text)
            words, redirects = [], []

    def _test(self, words: list[_Token]) -> bool | None:
        """What [ -n X ], [ -z X ] and [ A = B ] say; None where only running could tell."""
        if words and words[-1].text in ("]", "]]"):
            words = words[:-1]
        if words and words[0].text == "!":
            inner = self._test(words[1:])
            return None if inner is None else not inner

        def text(token: _Token) -> str | None:
            parts = [part for part in token.parts if not isinstance(part, _Lit) or part.text]
            if (
                len(parts) == 1
                and isinstance(parts[0], _Var)
                and not parts[0].op
                and parts[0].name not in self.variables
            ):
                return ""
            before = len(self._remarks)
            value = " ".join(self.expand(token.parts))
            return value if len(self._remarks) == before else None

        if len(words) == 2 and words[0].text in ("-n", "-z"):
            value = text(words[1])
            return None if value is None else (value == "") == (words[0].text == "-z")
        if len(words) == 3 and words[1].text in ("=", "==", "!="):
            left, right = text(words[0]), text(words[2])
            if left is None or right is None or not left:
                return None
            return (left == right) == (words[1].text != "!=")
        return None

    def _remark(self, source: str, sentence: str) -> None:
        self._remarks.append((source, sentence))

    def _loop(self, words: list[_Token]) -> None:
        """for NAME in A B C: the first value stands for all."""
        if len(words) >= 4 and words[2].text == "in":
            values = [field for word in words[3:] for field in self.expand(word.parts)]
            if values:
                self.variables[words[1].text] = values[0]
                if len(values) > 1:
                    self._remark(values[0], f"of the loop over {words[1].text} only {values[0]} was taken")

    def _simple(self, words: list[_Token], redirects: list[tuple[str, _Token]], background: bool) -> Command | None:
        assigned: list[tuple[str, str | list[str]]] = []
        at = 0
        while at < len(words) and (match := self._assignment(words[at])):
            assigned.append(match)
            at += 1
        if at == len(words):
            for name, value in assigned:
                self.variables[name] = value
                if self._export_all:
                    self.exported.add(name)
            return None
        head = words[at].text
        if head in ("export", "declare", "typeset", "readonly", "local"):
            self._declare(head, words[at + 1 :])
            return None
        argv = [field for word in words[at:] for field in self.expand(word.parts)]
        if not argv:
            return None
        if argv[0] == "unset":
            for name in argv[1:]:
                self.variables.pop(name, None)
                self.exported.discard(name)
            return None
        if argv[0] == "set":
            if "-a" in argv or "allexport" in argv:
                self._export_all = "+o" not in argv
            return None
        if argv[0] in ("cd", "pushd") and len(argv) > 1:
            self.cwd = argv[-1] if argv[-1].startswith(("/", "~", "$")) or not self.cwd else f"{self.cwd}/{argv[-1]}"
            return None
        if argv[0] in ("source", "."):
            return None
        env = {name: text for name, text in self.variables.items() if name in self.exported and isinstance(text, str)}
        env |= {name: value for name, value in assigned if isinstance(value, str)}
        here = next((token.body for op, token in redirects if token.body is not None), None)
        quoted = any(token.body_quoted for _, token in redirects)
        if here is not None and not quoted:
            here = self._here_text(here)
        strings = [token for op, token in redirects if op == "<<<"]
        if strings:
            here = " ".join(self.expand(strings[0].parts))
        outputs = tuple(
            " ".join(self.expand(token.parts))
            for op, token in redirects
            if op in (">", ">>", "&>", "&>>", ">|") and token.text != "/dev/null"
        )
        return Command(
            tuple(argv),
            env,
            words[at].line,
            " ".join(word.text for word in words[at:]),
            self.cwd,
            outputs,
            here,
            background,
        )

    def _here_text(self, text: str) -> str:
        """An unquoted here-document: known variables are replaced, the rest stays."""

        def known(match: re.Match[str]) -> str:
            value = self.variables.get(match.group(1) or match.group(2))
            return value if isinstance(value, str) else match.group()

        return re.sub(r"(?<!\\)\$(?:(\w+)|\{(\w+)\})", known, text).replace("\\$", "$")

    def _declare(self, head: str, words: list[_Token]) -> None:
        export = head == "export"
        for token in words:
            assignment = self._assignment(token)
            if assignment:
                self.variables[assignment[0]] = assignment[1]
                if export:
                    self.exported.add(assignment[0])
            elif not token.text.startswith("-") and "=" in (text := " ".join(self.expand(token.parts))):
                name, _, value = text.partition("=")  # export "A=1 2"
                self.variables[name] = value
                if export:
                    self.exported.add(name)
            elif token.text.startswith("-"):
                export = export or (head in ("declare", "typeset") and "x" in token.text)
            elif export and _NAME.fullmatch(token.text):
                self.exported.add(token.text)

    def _assignment(self, token: _Token) -> tuple[str, str | list[str]] | None:
        match = _ASSIGNMENT.match(token.text)
        first = token.parts[0] if token.parts else None
        if not match or not isinstance(first, _Lit) or first.quoted or not first.text.startswith(match.group()):
            return None
        name, append = match.group(1), bool(match.group(2))
        old = self.variables.get(name)
        if token.array is not None:
            items = [field for word in token.array for field in self.expand(word)]
            return name, [*(old if isinstance(old, list) else []), *items] if append else items
        parts = (_Lit(first.text[match.end() :], False), *token.parts[1:])
        value = self._scalar(parts, name)
        return name, (old if append and isinstance(old, str) else "") + value

    def _scalar(self, parts: _Word, name: str) -> str:
        """The value of an assignment: no splitting, ~ also behind colons; the variable itself counts as empty if unset."""
        text = ""
        for number, part in enumerate(parts):
            if isinstance(part, _Lit):
                piece = part.text
                if not part.quoted:
                    piece = re.sub(
                        r"(?:(?<=:)|^)~(?=/|:|$)" if number == 0 else r"(?<=:)~(?=/|:|$)", lambda _: self.home, piece
                    )
                text += piece
            elif isinstance(part, _Var) and part.name == name and name not in self.variables and not part.op:
                continue
            else:
                text += " ".join(self._value(part))
        return text

    def expand(self, parts: _Word) -> list[str]:
        """One word as the fields a shell makes of it."""
        cells: list[_Cell] = []
        for part in parts:
            if isinstance(part, _Lit):
                cells += [(char, part.quoted) for char in part.text] or [("", True)]
            else:
                cells.append(part)
        return [field for choice in _braces(cells) for field in self._fields(choice)]

    def _fields(self, cells: list[_Cell]) -> list[str]:
        if cells and cells[0] == ("~", False) and (len(cells) == 1 or cells[1] == ("/", False)):
            cells = [(self.home, True), *cells[1:]]
        fields: list[str] = []
        current: str | None = None
        for cell in cells:
            if isinstance(cell, tuple):
                current = (current or "") + cell[0]
                continue
            values = self._value(cell)
            if isinstance(cell, _Raw) or (cell.quoted and cell.index != "@"):
                current = (current or "") + " ".join(values)
                continue
            joined = " ".join(values)
            pieces = values if cell.quoted else joined.split()
            if not cell.quoted and joined[:1].isspace() and current is not None:
                fields.append(current)
                current = None
            for number, piece in enumerate(pieces):
                if number:
                    fields.append(current or "")
                    current = None
                current = (current or "") + piece
            if not cell.quoted and joined[-1:].isspace() and current is not None:
                fields.append(current)
                current = None
        return [*fields, current] if current is not None else fields

    def _value(self, part: _Var | _Raw | _Lit) -> list[str]:
        if isinstance(part, _Lit):
            return [part.text]
        if isinstance(part, _Raw):
            if part.source.startswith("<"):
                self._remark(part.source, f"{part.source} is a placeholder: fill it in")
            else:
                self._remark(part.source, f"{_short(part.source)} is not run: it stays as text")
            return [part.source]
        if part.op == "((":
            number = _arithmetic(part.arg, self.variables)
            if number is None:
                self._remark(part.source, f"{_short(part.source)} is not computed: it stays as text")
                return [part.source]
            return [str(number)]
        value: str | list[str] | None = self.home if part.name == "HOME" else self.variables.get(part.name)
        if part.name in ("@", "*", "#"):
            value = [] if part.name != "#" else "0"  # a script without arguments
        if isinstance(value, list):
            if part.index in ("@", "*") or part.name in ("@", "*"):
                return value
            number_at = int(part.index or 0)
            value = value[number_at] if number_at < len(value) else None
        empty = value is None or (value == "" and part.op.startswith(":"))
        default = part.op.lstrip(":")
        if default in ("-", "="):
            if empty:
                value = self._nested(part.arg)
                if default == "=":
                    self.variables[part.name] = value
            return [value or ""]
        if default == "+":
            return [] if empty else [self._nested(part.arg)]
        if value is None:
            self._remark(part.source, f"{part.source} is not set in this text: it stays as text")
            return [part.source]
        if default and default[0] in "#%":
            return [_strip(value, default, self._nested(part.arg))]
        return [value]

    def _nested(self, text: str) -> str:
        lexer = _Lexer(text)
        return self._scalar(lexer._parts(lambda char: False), "")


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:59] + "…"


def _strip(value: str, how: str, pattern: str) -> str:
    """${x#p}, ${x##p}, ${x%p}, ${x%%p}: the shortest or longest match taken off the front or the end."""
    lengths = range(len(value) + 1)
    for length in reversed(lengths) if len(how) == 2 else lengths:
        piece = value[:length] if how[0] == "#" else value[len(value) - length :]
        if fnmatch.fnmatchcase(piece, pattern):
            return value[length:] if how[0] == "#" else value[: len(value) - length]
    return value


_BINARY: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: int(a / b),
    ast.Mod: operator.mod,
}


def _arithmetic(text: str, variables: dict[str, str | list[str]]) -> int | None:
    """The value of $(( )) over whole numbers with + - * / %; None for anything else."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name):
            known = variables.get(node.id)
            return int(known) if isinstance(known, str) and known.strip() else int("unset")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return _BINARY[type(node.op)](value(node.left), value(node.right))
        raise ValueError

    if len(text) > 200:
        return None
    try:
        return value(ast.parse(re.sub(r"\$\{?(\w+)\}?", r"\1", text).strip(), mode="eval").body)
    except (ValueError, SyntaxError, ZeroDivisionError, RecursionError):
        return None
