"""Reads shell text the way bash would, and never executes any of it.

tree-sitter parses; `Shell` walks the tree and gives the simple commands in order, with the words that a shell would
hand to each program. What only running could tell (command substitutions, variables that nobody set) stays as text,
with a warning. Text of any kind ends in commands or in a UsageError: size, depth and expansion are bounded.
"""

import ast
import fnmatch
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from tui.core.errors import Slug, UsageError

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# The parser needs time that grows with the square of what is nested.
MAX_BYTES = 32 * 1024
MAX_NESTED = 2000  # characters that nest: | ( { [
MAX_EXPANDED = 1024 * 1024  # characters of all values
MAX_FIELDS = 1000  # that brace expansion makes of one word

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_PLACEHOLDER = re.compile(r"""<([A-Za-z_](?:[\w .:/-]*[\w./-])?)>(?=[\s"/:.,)\\]|$)""")
_ESCAPED_BLANK = re.compile(r"(?<!\\)((?:\\\\)*)\\([ \t])")
_EXPANSIONS = frozenset(
    ["simple_expansion", "expansion", "command_substitution", "arithmetic_expansion", "process_substitution"]
)
_REDIRECTS = frozenset(["file_redirect", "heredoc_redirect", "herestring_redirect"])
_WORDS = _EXPANSIONS | frozenset(
    [
        "word",
        "number",
        "string",
        "raw_string",
        "ansi_c_string",
        "translated_string",
        "concatenation",
        "brace_expression",
        "array",
        "variable_name",
        "special_character",
        "extglob_pattern",
        "regex",
        "test_operator",
        "$",
    ]
)
# Private characters: the grammar drops an escaped blank and takes <name> for two redirections, so both are parsed as
# letters; and in a word that is being expanded, one character stands for each quoted or expanded part.
_OPEN, _CLOSE, _GAP, _BLANK, _TAB = "\ue000\ue001\ue002\ue003\ue004"
_SHOWN = str.maketrans({_OPEN: "<", _CLOSE: ">", _GAP: " ", _BLANK: "\\ ", _TAB: "\\\t"})
_PRIVATE = re.compile("[\0\ue000-\uf8ff\U000f0000-\U0010ffff]")
_FIRST_PART = 0xF0000
_PART = re.compile("([\U000f0000-\U000fffff])")
_PLAIN = re.compile(rf"\\\n|\\(.)|{_OPEN}([^{_CLOSE}]*){_CLOSE}|([{_BLANK}{_TAB}])", re.DOTALL)

_Value = str | list[str]
_Part = tuple[list[str], bool]  # values, and whether blanks split them further


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


def _unreadable(what: str, line: int) -> UsageError:
    return UsageError(f"line {line}: {what}", "complete the command", slug=Slug.UNREADABLE_COMMAND)


def _too_long(what: str) -> UsageError:
    return UsageError(what, "cut the text to the command", slug=Slug.UNREADABLE_COMMAND)


@cache
def _parser() -> "Parser":
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def _encoded(text: str) -> bytes:
    """A text as the parser gets it. Raises UsageError where it is too long."""
    text = _PRIVATE.sub("\ufffd", text)
    text = _PLACEHOLDER.sub(lambda match: _OPEN + match[1].replace(" ", _GAP) + _CLOSE, text)
    text = _ESCAPED_BLANK.sub(lambda match: match[1] + (_BLANK if match[2] == " " else _TAB), text)
    raw = text.encode("utf-8", "replace")
    if len(raw) > MAX_BYTES or sum(map(raw.count, b"|({[")) > MAX_NESTED:
        raise _too_long(f"the text is too long to be a command: more than {MAX_BYTES // 1024} KiB, or too nested")
    return raw


def _parsed(raw: bytes) -> "Node":
    """The root of a text's tree. Raises UsageError where a quote or parenthesis stays open."""
    root = _parser().parse(raw).root_node
    stack = [root] if root.has_error else []
    while stack:
        node = stack.pop()
        if left_open := _left_open(node):
            raise _unreadable(f"{left_open} is never closed", node.start_point.row + 1)
        stack += [child for child in node.children if child.has_error or child.is_missing]
    return root


def _left_open(node: "Node") -> str | None:
    """What a node that the parser could not complete leaves open."""
    if node.is_missing:
        return {")": "a parenthesis", "}": "${", '"': "a double quote", "`": "a backquote"}.get(node.type)
    if not node.is_error:
        return None
    kinds = [child.type for child in node.children]
    if not kinds and _source(node).startswith("'"):
        return "a single quote"
    if kinds.count('"') % 2:
        return "a double quote"
    if kinds.count("`") % 2:
        return "a backquote"
    if "${" in kinds and "}" not in kinds:
        return "${"
    return "a parenthesis" if kinds.count("$(") + kinds.count("<(") > kinds.count(")") else None


def _source(node: "Node") -> str:
    return (node.text or b"").decode().translate(_SHOWN).strip()


class Shell:
    """Variables and exports while a text is read from top to bottom. `home` is the caller's, for ~ and $HOME."""

    def __init__(self, home: str, variables: dict[str, str] | None = None) -> None:
        self.home = home
        self.cwd: str | None = None
        self._variables: dict[str, _Value] = {**(variables or {})}
        self._exported = set(variables or {})
        self._export_all = False
        self._remarks: dict[str, str] = {}  # what stayed as text, and the sentence about it
        self._expanded = 0
        self._status: bool | None = None  # of the last command, where it can be told
        self._branches = True
        self._assigning = ""
        self._redirects: dict[int, list[Node]] = {}  # that stand behind a list, by the command that they belong to
        self._raw = b""
        self._found: list[Command] = []

    def warnings(self, values: Iterable[str]) -> list[str]:
        """Sentences about what in `values` stayed as text because only a running shell could tell."""
        together = "\n".join(values)
        return [sentence for source, sentence in self._remarks.items() if source in together]

    def commands(self, text: str, *, branches: bool = True) -> list[Command]:
        """The simple commands of a text, in order; with `branches`, only those of the branches a shell would take.

        A condition that only running could decide counts as met. Raises UsageError for text that cannot be read.
        """
        self._branches = branches
        self._found = []
        self._raw = _encoded(text)
        try:
            self._run(_parsed(self._raw))
        except RecursionError:
            raise _too_long("the text is nested too deeply") from None
        return self._found

    # Statements ----------------------------------------------------------------------------------------------------

    def _run(self, node: "Node") -> None:
        match node.type:
            case "command":
                self._command(node)
            case "redirected_statement":
                self._redirected(node)
            case "variable_assignment":
                self._assign(node, export=False)
            case "declaration_command":
                self._declare(node)
            case "unset_command":
                self._unset([_source(child) for child in node.named_children])
            case "test_command":
                self._status = self._test(_operands(node))
            case "negated_command":
                self._status = None
                self._each(node)
                self._status = None if self._status is None else not self._status
            case "if_statement":
                self._if(node)
            case "for_statement":
                self._for(node)
            case kind if kind not in _WORDS and kind not in ("comment", "case_item_pattern"):
                self._each(node)

    def _each(self, node: "Node") -> None:
        """The statements of a node. Loose words of a part that did not parse are commands too, one a line."""
        skip = False
        loose: list[Node] = []
        for child in node.children:
            if loose and (child.type not in _WORDS or child.start_point.row != loose[-1].end_point.row):
                self._simple(loose, ())
                loose = []
            if child.type in ("&&", "||"):
                skip = self._branches and self._status is (child.type == "||")
            elif child.type in (";", "&", ";;", "\n"):
                skip = False
            elif child.type in _WORDS and node.type == "ERROR":
                loose.append(child)
            elif not skip:
                self._run(child)
        if loose:
            self._simple(loose, ())

    def _if(self, node: "Node") -> bool:
        """if and elif: condition and body; whether one of the bodies is the one that runs."""
        self._status = None
        taken, condition = False, True
        for child in node.children:
            if child.type == "then":
                taken, condition = self._status is not False, False
            elif child.type == "elif_clause":
                if not taken or not self._branches:
                    taken = self._if(child) or taken
            elif condition or (taken != (child.type == "else_clause")) or not self._branches:
                self._run(child)
        return taken

    def _for(self, node: "Node") -> None:
        """for NAME in A B C: the first value stands for all."""
        name = node.child_by_field_name("variable")
        values = [field for child in node.children_by_field_name("value") for field in self._expand(child)]
        if name is not None and values:
            self._variables[_source(name)] = values[0]
            if len(values) > 1:
                self._remarks[values[0]] = f"of the loop over {_source(name)} only {values[0]} was taken"
        body = node.child_by_field_name("body")
        if body is not None:
            self._each(body)

    def _redirected(self, node: "Node") -> None:
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        last = body = node.child_by_field_name("body")
        while last is not None and last.type in ("list", "pipeline", "negated_command"):
            last = last.named_children[-1]
        if last is None:
            self._simple([], redirects)
        else:
            self._redirects[last.id] = redirects
        if body is not None:
            self._run(body)
        for redirect in redirects:
            if redirect.type == "heredoc_redirect":  # cat <<X && ..., cat <<X | ...
                self._each(redirect)

    def _command(self, node: "Node") -> None:
        words = [child for child in node.children if child.type in _WORDS | {"variable_assignment", "command_name"}]
        for first, second in pairwise(words):
            # The grammar takes A=1 B=2 on a line of their own for the beginning of the next line's command.
            gap = self._raw[first.end_byte : second.start_byte]
            if first.type == "variable_assignment" and b"\n" in gap.replace(b"\\\n", b""):
                at = words.index(second)
                self._simple(words[:at], ())
                words = words[at:]
                break
        redirects = [child for child in node.children if child.type in _REDIRECTS]
        self._simple(words, redirects + self._redirects.pop(node.id, []))

    def _simple(self, nodes: Sequence["Node"], redirects: Sequence["Node"]) -> None:
        """A command of assignments and words."""
        assignments = [node for node in nodes if node.type == "variable_assignment"]
        words = [node for node in nodes if node.type != "variable_assignment"]
        for redirect in redirects:  # what follows a target is the command's
            skipped = {"file_redirect": 1, "herestring_redirect": 1}.get(redirect.type)
            targets = redirect.children_by_field_name("argument") if skipped is None else _targets(redirect)[skipped:]
            words += targets
        if not words:
            for node in assignments:
                self._assign(node, export=self._export_all)
            return
        argv = [field for word in self._joined(words) for field in self._expand(*word)]
        self._status = None
        if not argv or self._builtin(argv, words):
            return
        env = {name: text for name, text in self._variables.items() if name in self._exported and isinstance(text, str)}
        for node in assignments:
            name, value = self._assigned(node)
            if isinstance(value, str):
                env[name] = value
        outputs = [
            " ".join(self._expand(_targets(redirect)[0]))
            for redirect in redirects
            if redirect.type == "file_redirect" and _targets(redirect) and _writes(redirect)
        ]
        source = " ".join(_source(node) for node in words)
        line = words[0].start_point.row + 1
        here = next((text for text in map(self._here, redirects) if text is not None), None)
        self._found.append(Command(tuple(argv), env, line, source, self.cwd, tuple(outputs), here))

    def _builtin(self, argv: list[str], words: Sequence["Node"]) -> bool:
        """Whether the words are a command that acts on the shell itself, which is done then."""
        name, rest = argv[0], argv[1:]
        if name in ("test", "["):
            self._status = self._test([word for word in words[1:] if _source(word) != "]"])
        elif name in ("true", ":", "false"):
            self._status = name != "false"
            return False
        elif name == "unset":
            self._unset(rest)
        elif name == "set":
            if "-a" in argv or "allexport" in argv:
                self._export_all = "+o" not in argv
        elif name in ("cd", "pushd") and rest:
            self.cwd = rest[-1] if rest[-1].startswith(("/", "~", "$")) or not self.cwd else f"{self.cwd}/{rest[-1]}"
        else:
            return name in ("source", ".")
        return True

    def _here(self, redirect: "Node") -> str | None:
        """The text of a here-document or here-string; in an unquoted one known variables are replaced."""
        if redirect.type == "herestring_redirect":
            return " ".join(field for node in _targets(redirect)[:1] for field in self._expand(node))
        if redirect.type != "heredoc_redirect":
            return None
        kinds = {child.type: child for child in redirect.children}
        body, start = kinds.get("heredoc_body"), kinds.get("heredoc_start")
        if body is None or start is None:
            return ""
        text = (body.text or b"").decode().translate(_SHOWN)
        if "<<-" in kinds:
            text = re.sub(r"(?m)^\t+", "", text)
        if re.search(r"[\\'\"]", _source(start)):
            return text

        def known(match: re.Match[str]) -> str:
            value = self._variables.get(match[1] or match[2])
            return value if isinstance(value, str) else match[0]

        return re.sub(r"(?<!\\)\$(?:(\w+)|\{(\w+)\})", known, text).replace("\\$", "$")

    # Variables -----------------------------------------------------------------------------------------------------

    def _assign(self, node: "Node", *, export: bool) -> None:
        name, value = self._assigned(node)
        self._variables[name] = value
        if export or self._export_all:
            self._exported.add(name)

    def _assigned(self, node: "Node") -> tuple[str, _Value]:
        """Name and value of NAME=value, NAME+=value, NAME=( ... ): no splitting, ~ also behind colons."""
        name = _source(node.children[0])
        append = any(child.type == "+=" for child in node.children)
        old = self._variables.get(name)
        value = node.child_by_field_name("value")
        if value is not None and value.type == "array":
            items = [field for child in value.named_children if child.type in _WORDS for field in self._expand(child)]
            return name, [*(old if isinstance(old, list) else []), *items] if append else items
        self._assigning = name
        text = "" if value is None else self._scalar([value])
        self._assigning = ""
        return name, (old if append and isinstance(old, str) else "") + text

    def _declare(self, node: "Node") -> None:
        """export, declare, typeset, readonly, local."""
        head = node.children[0].type
        export = head == "export"
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self._assign(child, export=export)
                continue
            for text in [_source(child)] if child.type == "variable_name" else self._expand(child):
                if text.startswith("-"):
                    export = export or (head in ("declare", "typeset") and "x" in text)
                elif assignment := _ASSIGNMENT.fullmatch(text):  # export "A=1 2"
                    self._variables[assignment[1]] = assignment[2]
                    text = assignment[1]
                if export and not text.startswith("-"):
                    self._exported.add(text)

    def _unset(self, names: Iterable[str]) -> None:
        for name in names:
            self._variables.pop(name, None)
            self._exported.discard(name)

    def _test(self, words: Sequence["Node"]) -> bool | None:
        """What [ -n X ], [ -z X ] and [ A = B ] say; None where only running could tell."""
        operators = [_source(word) for word in words]
        if operators[:1] == ["!"]:
            inner = self._test(words[1:])
            return None if inner is None else not inner
        if len(words) == 2 and operators[0] in ("-n", "-z"):
            value = self._known(words[1])
            return None if value is None else (value == "") == (operators[0] == "-z")
        if len(words) == 3 and operators[1] in ("=", "==", "!="):
            left, right = self._known(words[0]), self._known(words[2])
            return None if right is None or not left else (left == right) == (operators[1] != "!=")
        return None

    def _known(self, word: "Node") -> str | None:
        """The value of a word of a test; a variable that nobody set is empty there."""
        variable = re.fullmatch(r'"?\$\{?([A-Za-z_]\w*)\}?"?', _source(word))
        if variable and variable[1] != "HOME" and variable[1] not in self._variables:
            return ""
        value = " ".join(self._expand(word))
        return None if any(source in value for source in self._remarks) else value

    # Words ---------------------------------------------------------------------------------------------------------

    def _joined(self, nodes: Iterable["Node"]) -> list[list["Node"]]:
        """Nodes by the words they are: the grammar ends a word at an escaped newline, and before some a $."""
        words: list[list[Node]] = []
        end = 0
        for node in nodes:
            if words and self._raw[end : node.start_byte] in (b"", b"\\\n") and end <= node.start_byte:
                words[-1].append(node)
            else:
                words.append([node])
            end = node.end_byte
        return words

    def _expand(self, *nodes: "Node") -> list[str]:
        """One word as the fields a shell makes of it."""
        parts: list[_Part] = []
        pattern = self._patterns(nodes, parts)
        if re.match(r"~(?:/|$)", pattern):
            pattern = _put(parts, self.home) + pattern[1:]
        return [field for choice in _braces(pattern, nodes[0]) for field in _fields(choice, parts)]

    def _scalar(self, nodes: Iterable["Node"]) -> str:
        """Nodes as one text, as an assignment takes it."""
        parts: list[_Part] = []
        pattern = self._patterns(nodes, parts)
        pattern = re.sub(r"(?:^|(?<=:))~(?=/|:|$)", lambda _: _put(parts, self.home), pattern)
        return _PART.sub(lambda match: " ".join(parts[ord(match[0]) - _FIRST_PART][0]), pattern)

    def _patterns(self, nodes: Iterable["Node"], parts: list[_Part]) -> str:
        def variable(match: re.Match[str]) -> str:
            values, splits = self._variable(match[1], None, match[0])
            return _put(parts, *values, splits=splits)

        # Behind a brace and a quote the grammar takes a $ for itself.
        return re.sub(r"\$([A-Za-z_]\w*)", variable, "".join(self._pattern(node, parts) for node in nodes))

    def _pattern(self, node: "Node", parts: list[_Part]) -> str:
        """A word's unquoted text, with one character for each part that is quoted or expanded; `parts` has those."""
        text = (node.text or b"").decode()
        match node.type:
            case "string" | "translated_string":
                return self._string(node, parts)
            case "raw_string":
                return _put(parts, text.translate(_SHOWN).strip()[1:-1])
            case "ansi_c_string":
                return _put(parts, _ansi_c(text.translate(_SHOWN).strip()[2:-1]))
            case kind if kind in _EXPANSIONS:
                values, splits = self._expansion(node)
                return _put(parts, *([" ".join(values)] if splits else values), splits=splits)
            case "concatenation" | "command_name":
                return "".join(self._pattern(child, parts) for child in node.children)

        def plain(match: re.Match[str]) -> str:
            if match[1] is not None:
                return _put(parts, match[1])
            if match[2] is not None:
                placeholder = f"<{match[2].replace(_GAP, ' ')}>"
                self._remarks[placeholder] = f"{placeholder} is a placeholder: fill it in"
                return _put(parts, placeholder)
            return _put(parts, " " if match[3] == _BLANK else "\t") if match[3] else ""

        return _PLAIN.sub(plain, text)

    def _string(self, node: "Node", parts: list[_Part]) -> str:
        """A double-quoted string: its text without escapes, and its expansions, unsplit."""
        if node.type == "translated_string":
            node = next((child for child in node.children if child.type == "string"), node)
        pattern, at = "", node.start_byte + (node.text or b"").index(b'"') + 1

        def literal(end: int) -> str:
            text = re.sub(r'\\([$`"\\\n])', lambda m: m[1].strip("\n"), self._raw[at:end].decode())
            return _put(parts, text.translate(_SHOWN)) if text else ""

        for child in node.named_children:
            if child.type in _EXPANSIONS:
                # The grammar counts blanks in front of an expansion to it.
                blanks = len(child.text or b"") - len((child.text or b"").lstrip())
                pattern += literal(child.start_byte + blanks)
                pattern += _put(parts, *self._expansion(child, quoted=True)[0])
                at = child.end_byte
        return (pattern + literal(node.end_byte - 1)) or (_put(parts, "") if not node.named_child_count else "")

    def _expansion(self, node: "Node", quoted: bool = False) -> tuple[list[str], bool]:
        """Values of what begins with $, ` or <(, and whether blanks split them further."""
        source = _source(node)
        if node.type == "arithmetic_expansion":
            number = _arithmetic(source.removeprefix("$((").removesuffix("))"), self._variables)
            return self._unresolved(source, "is not computed") if number is None else ([str(number)], False)
        children = [child for child in node.children if child.type not in ("$", "${", "}")]
        if node.type not in ("simple_expansion", "expansion") or not children:
            return self._unresolved(source, "is not run")
        first, rest = children[0], children[1:]
        name, index = _source(first).rstrip("\\\n"), None
        if first.type == "subscript":
            name, _, index = name.removesuffix("]").partition("[")
        elif first.type not in ("variable_name", "special_variable_name"):
            return self._unresolved(source, "is not computed")
        if rest:
            return self._operated(name, self._lookup(name, index), rest, source)
        return self._variable(name, index, source, quoted)

    def _variable(self, name: str, index: str | None, source: str, quoted: bool = False) -> tuple[list[str], bool]:
        value = self._lookup(name, index)
        if value is None and name == self._assigning:
            value = ""  # PATH=$PATH:/x
        if value is None:
            return self._unresolved(source, "is not set in this text")
        self._expanded += sum(map(len, value)) + 1
        if self._expanded > MAX_EXPANDED:
            raise _too_long(f"its variables make more than {MAX_EXPANDED // 1024} KiB of text")
        if isinstance(value, list):
            apart = quoted and "*" not in (name, index)
            return (value if apart else [" ".join(value)]), not quoted
        # A value that only a running shell could tell is one value, whatever blanks its text has.
        whole = any(text in value for text in self._remarks if text[0] in "$`<")
        return [value], not quoted and not whole

    def _lookup(self, name: str, index: str | None) -> _Value | None:
        """What a variable holds; None where nobody set it."""
        if name in ("@", "*"):
            return []  # a script without arguments
        value: _Value | None = {"HOME": self.home, "#": "0"}.get(name) or self._variables.get(name)
        if isinstance(value, list) and index not in ("@", "*"):
            number = int(index) if index and re.fullmatch(r"\d{1,6}", index) else 0
            return value[number] if number < len(value) else None
        return value

    def _operated(self, name: str, value: _Value | None, rest: Sequence["Node"], source: str) -> tuple[list[str], bool]:
        """${x:-word} and its like."""
        how = rest[0].type
        empty = value is None or (value in ("", []) and how.startswith(":"))
        text = " ".join(value) if isinstance(value, list) else value
        if how in (":-", "-", ":=", "="):
            if empty:
                text = self._scalar(rest[1:])
                if how.endswith("="):
                    self._variables[name] = text
            return [text or ""], True
        if how in (":+", "+"):
            return ([] if empty else [self._scalar(rest[1:])]), True
        if text is None:
            return self._unresolved(source, "is not set in this text")
        if how in ("#", "##", "%", "%%"):
            return [_strip(text, how, self._scalar(rest[1:]))], True
        return ([text], True) if how in (":?", "?") else self._unresolved(source, "is not computed")

    def _unresolved(self, source: str, why: str) -> tuple[list[str], bool]:
        short = " ".join(source.split())
        short = short if len(short) <= 60 or why.endswith("text") else short[:59] + "…"
        self._remarks[source] = f"{short} {why}: it stays as text"
        return [source], False


def _operands(node: "Node") -> list["Node"]:
    """The words and operators of a test, in order."""
    if node.type in _WORDS or not node.children:
        return [] if node.type in ("[", "]", "[[", "]]") else [node]
    return [leaf for child in node.children for leaf in _operands(child)]


def _targets(redirect: "Node") -> list["Node"]:
    """The words behind a redirection's operator; the first is its target."""
    return [child for child in redirect.children if child.type in _WORDS]


def _writes(redirect: "Node") -> bool:
    kinds = {child.type for child in redirect.children}
    return bool(kinds & {">", ">>", "&>", "&>>", ">|"}) and _source(_targets(redirect)[0]) != "/dev/null"


def _put(parts: list[_Part], *values: str, splits: bool = False) -> str:
    """The character that stands for values in a pattern."""
    if len(parts) >= 0xFFFF:
        raise _too_long("a word has too many parts")
    parts.append((list(values), splits))
    return chr(_FIRST_PART + len(parts) - 1)


def _fields(pattern: str, parts: list[_Part]) -> list[str]:
    """The fields of a pattern: unquoted expansions are split at blanks, and are none where they are empty."""
    fields: list[str] = []
    current: str | None = None
    for chunk in _PART.split(pattern):
        if not chunk:
            continue
        values, splits = parts[ord(chunk) - _FIRST_PART] if _PART.fullmatch(chunk) else ([chunk], False)
        pieces = re.split(r"\s+", values[0]) if splits and values else values
        for number, piece in enumerate(pieces):
            if number and current is not None:
                fields.append(current)
                current = None
            if piece or not splits:
                current = (current or "") + piece
    return fields if current is None else [*fields, current]


_SEQUENCE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?")


def _braces(pattern: str, node: "Node") -> list[str]:
    """Brace expansion of unquoted {1,2,4} and {1..4}."""
    if pattern.count("{") > 100:
        return [pattern]
    for start in (at for at, char in enumerate(pattern) if char == "{"):
        depth, cuts, end = 0, [start], None
        for at in range(start, len(pattern)):
            depth += (pattern[at] == "{") - (pattern[at] == "}")
            if pattern[at] == "," and depth == 1:
                cuts.append(at)
            if not depth:
                end = at
                break
        if end is None:
            continue
        choices: list[str] = []
        if len(cuts) > 1:
            choices = [head for a, b in pairwise([*cuts, end]) for head in _braces(pattern[a + 1 : b], node)]
        elif numbers := _SEQUENCE.fullmatch(pattern, start + 1, end):
            first, last, step = int(numbers[1]), int(numbers[2]), abs(int(numbers[3] or 1)) or 1
            sequence = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
            choices = [str(number) for number in sequence[: MAX_FIELDS + 1]]
        if choices:
            tails = _braces(pattern[end + 1 :], node)
            if len(choices) * len(tails) > MAX_FIELDS:
                raise _unreadable(f"braces make more than {MAX_FIELDS} words", node.start_point.row + 1)
            return [pattern[:start] + choice + tail for choice in choices for tail in tails]
    return [pattern]


def _ansi_c(text: str) -> str:
    """The inside of $'...' without its escapes."""
    simple = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}

    def one(match: re.Match[str]) -> str:
        body = match[1]
        if body[0] in "xu" and len(body) > 1:
            return chr(int(body[1:], 16))
        return chr(int(body, 8) & 0xFF) if body[0] in "01234567" else simple.get(body, body)

    return re.sub(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|[0-7]{1,3}|.)", one, text, flags=re.DOTALL)


def _strip(value: str, how: str, pattern: str) -> str:
    """${x#p}, ${x##p}, ${x%p}, ${x%%p}: the shortest or longest match taken off the front or the end."""
    if len(value) * len(pattern) > 1_000_000:
        return value
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


def _arithmetic(text: str, variables: dict[str, _Value]) -> int | None:
    """The value of $(( )) over whole numbers with + - * / %; None for anything else."""

    def value(node: ast.expr) -> int:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return node.value
        if isinstance(node, ast.Name):
            return int(str(variables.get(node.id)))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return _BINARY[type(node.op)](value(node.left), value(node.right))
        raise ValueError

    if len(text) > 200:
        return None
    try:
        return value(ast.parse(re.sub(r"\$\{?(\w+)\}?", r"\1", text).strip(), mode="eval").body)
    except (ValueError, SyntaxError, ArithmeticError, RecursionError):
        return None
