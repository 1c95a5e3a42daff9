"""What a shell makes of words: quotes, variables, braces, blanks.

What only running could tell (command substitutions, variables that nobody set) stays as text, with a remark.
"""

import fnmatch
import operator
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from tui.core.profiles.importing.bash_tree import (
    BLANK,
    CLOSE,
    EXPANSIONS,
    OPEN,
    as_written,
    hidden,
    parsed,
    text_of,
    unreadable,
    written,
)
from tui.core.profiles.importing.call import Reading
from tui.core.profiles.importing.unresolved import Unresolved, is_plain, unresolved

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_EXPANDED = 1024 * 1024  # characters of all values
MAX_FIELDS = 1000  # that braces make of one word

# In a word that is being expanded, one private character stands for each part that is quoted or expanded.
_PART_0 = 0xF0000
_PART = re.compile("([\U000f0000-\U000fffff])")
_PLAIN = re.compile(rf"\\\n|\\(.)|({OPEN}[^{CLOSE}]*{CLOSE})|{BLANK}", re.DOTALL)
_SPAN = re.compile(f"{OPEN}[^{CLOSE}]*{CLOSE}")

Value = str | list[str]
_Part = tuple[list[str], bool]  # values, and whether blanks split them further


class Words:
    """The variables of a shell, and the words that it makes of a tree's nodes.

    What stays unresolved is hidden in values (`bash_tree.hidden`), so that it is never split; it is shown again by
    `as_written`. `substitute` is asked for what a command substitution prints, None where only running could tell.
    """

    def __init__(self, reading: Reading, variables: dict[str, str], substitute: "Callable[[Node], str | None]") -> None:
        self.reading = reading
        self.variables: dict[str, Value] = {**variables}
        self.remarks: dict[str, Unresolved] = {}  # by the text that stayed
        self.arguments: list[str] | None = None  # $0, $1, …; None: those of the script itself, which nobody knows
        self.raw = b""  # the text that the nodes are of
        self._substitute = substitute
        self._expanded = 0
        self._assigning = ""

    def joined(self, nodes: Iterable["Node"]) -> list[list["Node"]]:
        """Nodes by the words they are: the grammar ends a word at an escaped newline, and before some a $."""
        words: list[list[Node]] = []
        end = 0
        for node in nodes:
            if words and end <= node.start_byte and self.raw[end : node.start_byte] in (b"", b"\\\n"):
                words[-1].append(node)
            else:
                words.append([node])
            end = node.end_byte
        return words

    def expand(self, *nodes: "Node") -> list[str]:
        """One word as the fields a shell makes of it."""
        parts: list[_Part] = []
        pattern = self._pattern(nodes, parts)
        if re.match(r"~(?:/|$)", pattern):
            pattern = _put(parts, self.reading.home) + pattern[1:]
        return [field for choice in _braces(pattern) for field in _fields(choice, parts)]

    def scalar(self, nodes: Iterable["Node"], assigned: str = "") -> str:
        """Nodes as one text, as an assignment to a variable takes it."""
        parts: list[_Part] = []
        self._assigning = assigned
        pattern = self._pattern(nodes, parts)
        self._assigning = ""
        pattern = re.sub(r"(?:^|(?<=:))~(?=/|:|$)", lambda _: _put(parts, self.reading.home), pattern)
        return _PART.sub(lambda match: " ".join(parts[ord(match[0]) - _PART_0][0]), pattern)

    def _pattern(self, nodes: Iterable["Node"], parts: list[_Part]) -> str:
        """A word's unquoted text, with one character for each part that is quoted or expanded; `parts` has those."""

        def missed(match: re.Match[str]) -> str:
            values, splits = self._variable(match[1], None, match[0])
            return _put(parts, *values, splits=splits)

        # Behind a brace and a quote the grammar takes a $ for itself.
        return re.sub(r"\$([A-Za-z_]\w*)", missed, "".join(self._piece(node, parts) for node in nodes))

    def _piece(self, node: "Node", parts: list[_Part]) -> str:
        text = text_of(node)
        match node.type:
            case "string" | "translated_string":
                return self._string(node, parts)
            case "raw_string":
                return _put(parts, self._literal(text.strip()[1:-1]))
            case "ansi_c_string":
                return _put(parts, _ansi_c(written(node)[2:-1]))
            case kind if kind in EXPANSIONS:
                values, splits = self._expansion(node)
                return _put(parts, *([" ".join(values)] if splits else values), splits=splits)
            case "concatenation" | "command_name":
                return "".join(self._piece(child, parts) for child in node.children)

        def plain(match: re.Match[str]) -> str:
            if match[2] is not None:
                return _put(parts, self._placeholder(match[2]))
            return _put(parts, match[1] or " ") if match[1] or match[0] == BLANK else ""

        return _PLAIN.sub(plain, text)

    def _placeholder(self, span: str) -> str:
        """What was given for a hidden placeholder, or itself."""
        source = as_written(span)
        given = self.reading.value_of(source)
        if given is None:
            self.remarks[source] = unresolved(source, "is a placeholder")
        return span if given is None else given

    def _literal(self, text: str) -> str:
        """Quoted text. A <word> in quotes may be meant as it is; a {{ template }} is not."""
        text = text.replace(BLANK, "\\ ")
        return _SPAN.sub(lambda m: self._placeholder(m[0]) if "{" in as_written(m[0]) else as_written(m[0]), text)

    def _string(self, node: "Node", parts: list[_Part]) -> str:
        """A double-quoted string: its text without escapes, and its expansions, unsplit."""
        pattern, at = "", self.raw.index(b'"', node.start_byte) + 1
        inner = [child for child in node.children if child.type == "string"] or [node]

        def literal(end: int) -> str:
            text = re.sub(r'\\([$`"\\\n])', lambda m: m[1].strip("\n"), self.raw[at:end].decode())
            return _put(parts, self._literal(text)) if text else ""

        for child in inner[0].named_children:
            if child.type in EXPANSIONS:
                # The grammar counts blanks in front of an expansion to it.
                pattern += literal(child.end_byte - len(text_of(child).lstrip().encode()))
                pattern += _put(parts, *self._expansion(child, quoted=True)[0])
                at = child.end_byte
        return (pattern + literal(node.end_byte - 1)) or _put(parts, "")

    def _expansion(self, node: "Node", quoted: bool = False) -> _Part:
        """Values of what begins with $, ` or <(."""
        source = written(node)
        if node.type == "command_substitution" and source.startswith("$((") and source.endswith("))"):
            # Behind ${X:- the grammar takes it for a subshell.
            again = parsed(f": {source}".encode())
            while again.named_children and again.type != "arithmetic_expansion":
                again = again.named_children[-1]
            node = again if again.type == "arithmetic_expansion" else node
        if node.type == "arithmetic_expansion":
            try:
                return [str(self._number(node))], False
            except (ValueError, ArithmeticError):
                return self._unresolved(source, "is not computed")
        children = [child for child in node.children if child.type not in ("$", "${", "}")]
        if node.type == "command_substitution" and (printed := self._substitute(node)) is not None:
            return [printed], True
        called = re.fullmatch(r"\$\(([A-Z_]\w*)\)", source)
        if called and self.lookup(called[1], None) is not None:
            return self._variable(called[1], None, source, quoted)  # of a Makefile, of Kubernetes
        if node.type not in ("simple_expansion", "expansion") or not children:
            return self._unresolved(source, "is not set in this text" if is_plain(source) else "is not run")
        first, rest = children[0], children[1:]
        if first.type in ("!", "#") and rest and (keys := self._keys(first.type, written(rest[0]))) is not None:
            return keys, not quoted
        if first.type not in ("variable_name", "special_variable_name", "subscript"):
            return self._unresolved(source, "is not computed")
        name, _, index = written(first).rstrip("]\\\n").partition("[")
        if rest:
            return self._operated(name, index, rest, source)
        return self._variable(name, index, source.rstrip("\\\n"), quoted)

    def _variable(self, name: str, index: str | None, source: str, quoted: bool = False) -> _Part:
        value = self.lookup(name, index)
        if value is None and name == self._assigning:
            value = ""  # PATH=$PATH:/x
        if value is None:
            return self._unresolved(source, "is not set in this text")
        self._expanded += sum(map(len, value)) + 1
        if self._expanded > MAX_EXPANDED:
            raise unreadable(f"its variables make more than {MAX_EXPANDED // 1024} KiB of text")
        if isinstance(value, list):
            apart = quoted and "*" not in (name, index)
            return (value if apart else [" ".join(value)]), not quoted
        if not all(is_plain(as_written(span)) for span in _SPAN.findall(value)):
            # The name says what is meant, and is what can be given; the command that would find it out is told.
            short = " ".join(as_written(value).split())
            short = short if len(short) <= 100 else short[:99] + "…"
            return self._unresolved(source, f"is {short}, which is not run")
        return [value], not quoted

    def lookup(self, name: str, index: str | None) -> Value | None:
        """What a variable holds; None where nobody set it."""
        if name in ("@", "*"):
            return self._all_arguments()
        if (given := self.reading.given(name)) is not None:
            return given
        if name == "#":
            return str(max(len(self.arguments or ()) - 1, 0))
        if name.isdigit():
            number = int(name[:6])
            if self.arguments is None:
                return None
            return self.arguments[number] if number < len(self.arguments) else ""
        if index and index not in ("@", "*"):
            index = self._index(index)
            if index is None or f"{name}[{index}]" in self.variables:
                return self.variables.get(f"{name}[{index}]")
        value: Value | None = {"HOME": self.reading.home}.get(name) or self.variables.get(name)
        if isinstance(value, list) and index not in ("@", "*"):
            if len(value) == 1 and _SPAN.fullmatch(value[0]):
                return None  # NAMES=($(scontrol ...)): how many, nobody knows
            number = int(index or 0) if re.fullmatch(r"\d{0,6}", index or "") else len(value)
            return value[number] if number < len(value) else None
        return value

    def _keys(self, how: str, text: str) -> list[str] | None:
        """${!A[@]}, ${#A[@]} and ${!NAME}."""
        name, _, index = text.rstrip("]").partition("[")
        value = self.variables.get(name)
        if index not in ("@", "*"):
            meant = self.lookup(value, None) if how == "!" and isinstance(value, str) else None
            return [meant] if isinstance(meant, str) else None
        named = [key[len(name) + 1 : -1] for key in self.variables if key.startswith(f"{name}[")]
        keys = named or [str(number) for number in range(len(value))] if isinstance(value, list) else named
        return keys if how == "!" else [str(len(keys))]

    def _index(self, text: str) -> str | None:
        """What stands between the brackets of NAME[...]; None where nobody knows."""
        text = text.strip("\"'")
        variable = re.fullmatch(r"\$?\{?([A-Za-z_]\w*)\}?", text)
        value = self.lookup(variable[1], None) if variable else None
        if value is None:
            return None if "$" in text else text
        return value if isinstance(value, str) and OPEN not in value else None

    def _all_arguments(self) -> list[str]:
        if self.arguments is not None:
            return self.arguments[1:]
        given = self.reading.given("@", "*")
        if given is None:
            self.remarks["$@"] = Unresolved("@", "$@", "is what the script is called with, which is not in this text")
            return []
        try:
            return shlex.split(given)
        except ValueError:
            return given.split()

    def _operated(self, name: str, index: str, rest: Sequence["Node"], source: str) -> _Part:
        """${x:-word} and its like."""
        value = self.lookup(name, index)
        text = " ".join(value) if isinstance(value, list) else value
        how = rest[0].type
        empty = text is None or (how.startswith(":") and not text)
        match how.removeprefix(":"):
            case "-" | "=" | "?" if not empty:
                return self._variable(name, index, f"${{{name}}}")
            case "-" | "=":
                text = self.scalar(rest[1:])
                if how.endswith("="):
                    self.variables[name] = text
                return [text], True
            case "+":
                return ([] if empty else [self.scalar(rest[1:])]), True
            case "#" | "##" | "%" | "%%" if text is not None and OPEN not in text:
                return [_strip(text, how, self.scalar(rest[1:]))], True
        return self._unresolved(source, "is not set in this text" if text is None else "is not computed")

    def _unresolved(self, source: str, why: str) -> _Part:
        given = self.reading.value_of(source)
        if given is not None:
            return [given], True
        self.remarks[source] = unresolved(source, why)
        return [hidden(source)], False

    def holds(self, node: "Node") -> bool | None:
        """What (( )) says, which sets what it assigns; None where only running could tell."""
        try:
            return self._number(node) != 0
        except (ValueError, ArithmeticError):
            return None

    def _number(self, node: "Node") -> int:
        """The value of $(( )) and (( )) over whole numbers. Raises ValueError, ArithmeticError."""
        brackets = ("$((", "((", "))", "(", ")", "$", "${", "}")
        children = [child for child in node.children if child.type not in brackets]
        match [child.type for child in children]:
            case []:
                text = text_of(node).strip()
                value = text if node.type == "number" else self.lookup(text, None)
                return int(str(value)[:20])
            case [_]:
                return self._number(children[0])
            case ["-", _]:
                return -self._number(children[1])
            case ["!", _]:
                return int(not self._number(children[1]))
            case [_, "++" | "--" as step] | ["++" | "--" as step, _]:
                first = children[0].type == step
                before = self._number(children[first])
                after = before + (1 if step == "++" else -1)
                self.variables[written(children[first])] = str(after)
                return after if first else before
            case [_, "=" | "+=" | "-=" | "*=" | "/=" | "%=" as assigns, _]:
                name = written(children[0])
                old = 0 if assigns == "=" else self._number(children[0])
                self.variables.pop(name, None)  # where the rest is not known, it isn't either
                number = _OPERATIONS[assigns[:-1] or "+"](old, self._number(children[2]))
                self.variables[name] = str(number)
                return number
            case [_, operation, _] if operation in _OPERATIONS:
                return _OPERATIONS[operation](self._number(children[0]), self._number(children[2]))
        raise ValueError


def _quotient(dividend: int, divisor: int) -> int:
    """As a shell divides: towards 0."""
    quotient = abs(dividend) // abs(divisor)
    return quotient if (dividend < 0) == (divisor < 0) else -quotient


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": _quotient,
    "%": lambda left, right: left - right * _quotient(left, right),
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "&&": lambda left, right: int(bool(left and right)),
    "||": lambda left, right: int(bool(left or right)),
}


def _put(parts: list[_Part], *values: str, splits: bool = False) -> str:
    """The character that stands for values in a pattern."""
    parts.append((list(values), splits))
    return chr(_PART_0 + len(parts) - 1)  # a text that is short enough has no more parts than there are characters


def _fields(pattern: str, parts: list[_Part]) -> list[str]:
    """The fields of a pattern: unquoted expansions are split at blanks, and are none where they are empty."""
    fields: list[str] = []
    current: str | None = None
    for chunk in filter(None, _PART.split(pattern)):
        values, splits = parts[ord(chunk) - _PART_0] if _PART.fullmatch(chunk) else ([chunk], False)
        for number, piece in enumerate(re.split(r"\s+", values[0]) if splits and values else values):
            if number and current is not None:
                fields.append(current)
                current = None
            if piece or not splits:
                current = (current or "") + piece
    return fields if current is None else [*fields, current]


_SEQUENCE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?")


def _braces(pattern: str) -> list[str]:
    """Brace expansion of unquoted {1,2,4} and {1..4}."""
    for start in [at for at, char in enumerate(pattern) if char == "{"][:100]:
        depth, cuts = 0, [start]
        for end in range(start, len(pattern)):
            depth += (pattern[end] == "{") - (pattern[end] == "}")
            if pattern[end] == "," and depth == 1:
                cuts.append(end)
            if not depth:
                break
        else:
            continue
        choices: list[str] = []
        if len(cuts) > 1:
            choices = [head for a, b in pairwise([*cuts, end]) for head in _braces(pattern[a + 1 : b])]
        elif numbers := _SEQUENCE.fullmatch(pattern, start + 1, end):
            first, last, step = int(numbers[1]), int(numbers[2]), abs(int(numbers[3] or 1)) or 1
            sequence = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
            choices = [str(number) for number in sequence[: MAX_FIELDS + 1]]
        if choices:
            tails = _braces(pattern[end + 1 :])
            if len(choices) * len(tails) > MAX_FIELDS:
                raise unreadable(f"braces make more than {MAX_FIELDS} words")
            return [pattern[:start] + choice + tail for choice in choices for tail in tails]
    return [pattern]


def _ansi_c(text: str) -> str:
    """The inside of $'...' without its escapes."""
    try:
        return text.replace("\\e", "\x1b").encode("latin-1", "backslashreplace").decode("unicode_escape")
    except UnicodeDecodeError:
        return text


def _strip(value: str, how: str, pattern: str) -> str:
    """${x#p}, ${x##p}, ${x%p}, ${x%%p}: the shortest or longest match taken off the front or the end."""
    cuts = range(len(value) + 1) if how in ("#", "%%") else range(len(value), -1, -1)
    for cut in cuts if len(value) * len(pattern) < 1_000_000 else ():
        taken, left = (value[:cut], value[cut:]) if how[0] == "#" else (value[cut:], value[:cut])
        if fnmatch.fnmatchcase(taken, pattern):
            return left
    return value
