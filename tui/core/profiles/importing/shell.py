"""Reads shell text the way bash would, and never executes any of it.

`Shell` walks the tree of a text and gives the simple commands in order, with the words that a shell would hand to each
program. Size, depth and expansion are bounded: any text ends in commands or in a UsageError.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tui.core.profiles.importing import bash_tree
from tui.core.profiles.importing.bash_tree import REDIRECTS, WORDS, as_written, text_of, unreadable, written
from tui.core.profiles.importing.words import Value, Words

if TYPE_CHECKING:
    from tree_sitter import Node

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


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


class Shell:
    """Variables and exports while a text is read from top to bottom. `home` is the caller's, for ~ and $HOME."""

    def __init__(self, home: str, variables: dict[str, str] | None = None) -> None:
        self.home = home
        self.cwd: str | None = None
        self._words = Words(home, variables or {})
        self._exported = set(variables or {})
        self._export_all = False
        self._status: bool | None = None  # of the last command, where it can be told
        self._all_branches = False
        self._redirects: dict[int, list[Node]] = {}  # by the command that they belong to
        self._found: list[Command] = []

    def warnings(self, values: Iterable[str]) -> list[str]:
        """Sentences about what in `values` stayed as text because only a running shell could tell."""
        together = "\n".join(values)
        return [sentence for source, sentence in self._words.remarks.items() if source in together]

    def commands(self, text: str, *, branches: bool = True) -> list[Command]:
        """The simple commands of a text, in order; with `branches`, only those of the branches a shell would take.

        A condition that only running could decide counts as met. Raises UsageError for text that cannot be read.
        """
        self._all_branches = not branches
        self._found = []
        self._words.raw = bash_tree.encoded(text)
        try:
            self._run(bash_tree.parsed(self._words.raw))
        except RecursionError:
            raise unreadable("the text is nested too deeply") from None
        return self._found

    # Statements ----------------------------------------------------------------------------------------------------

    def _run(self, node: "Node") -> None:
        match node.type:
            case "command":
                self._command(node)
            case "redirected_statement":
                self._redirected(node)
            case "variable_assignment":
                self._assign(*self._assigned(node))
            case "declaration_command":
                self._declare(node)
            case "unset_command":
                self._unset(map(written, node.named_children))
            case "test_command":
                self._status = self._test(list(_operands(node)))
            case "negated_command":
                self._each(node)
                self._status = None if self._status is None else not self._status
            case "if_statement":
                self._if(node)
            case "for_statement":
                self._for(node)
            case kind if kind not in WORDS and kind != "comment":
                self._each(node)

    def _each(self, node: "Node") -> None:
        """The statements of a node. Loose words of a part that did not parse are commands too, one a line."""
        skip = False
        loose: list[Node] = []
        for child in node.children:
            if loose and (child.type not in WORDS or child.start_point.row != loose[-1].end_point.row):
                self._simple(loose, ())
                loose = []
            if child.type in ("&&", "||"):
                skip = not self._all_branches and self._status is (child.type == "||")
            elif child.type in (";", "&", ";;", "\n"):
                skip = False
            elif child.type in WORDS and node.is_error:
                loose.append(child)
            elif not skip:
                self._run(child)
        self._simple(loose, ())

    def _if(self, node: "Node") -> bool:
        """if and elif: condition and body; whether one of the bodies is the one that runs."""
        self._status = None
        taken, condition = False, True
        for child in node.children:
            if child.type == "then":
                taken, condition = self._status is not False, False
            elif child.type == "elif_clause":
                if not taken or self._all_branches:
                    taken = self._if(child) or taken
            elif condition or self._all_branches or taken != (child.type == "else_clause"):
                self._run(child)
        return taken

    def _for(self, node: "Node") -> None:
        """for NAME in A B C: the first value stands for all."""
        name = next(written(child) for child in node.children_by_field_name("variable"))
        values = [field for child in node.children_by_field_name("value") for field in self._words.expand(child)]
        if values:
            self._words.variables[name] = values[0]
        if len(values) > 1:
            self._words.remarks[values[0]] = f"of the loop over {name} only {values[0]} was taken"
        for body in node.children_by_field_name("body"):
            self._run(body)

    def _redirected(self, node: "Node") -> None:
        redirects = [child for child in node.children if child.type in REDIRECTS]
        bodies = node.children_by_field_name("body")
        for last in bodies:
            while last.type in ("list", "pipeline", "negated_command"):
                last = last.named_children[-1]
            self._redirects[last.id] = redirects
        for statement in [*bodies, *(child for child in redirects if child.type == "heredoc_redirect")]:
            self._run(statement)  # cat <<X && ..., cat <<X | ...: the rest is inside the redirection

    def _command(self, node: "Node") -> None:
        words = [child for child in node.children if child.type in WORDS or child.type == "variable_assignment"]
        for at, (first, second) in enumerate(pairwise(words), 1):
            # The grammar takes A=1 B=2 on a line of their own for the beginning of the next line's command.
            gap = self._words.raw[first.end_byte : second.start_byte].replace(b"\\\n", b"")
            if first.type == "variable_assignment" and b"\n" in gap:
                self._simple(words[:at], ())
                words = words[at:]
                break
        redirects = [child for child in node.children if child.type in REDIRECTS]
        self._simple(words, redirects + self._redirects.pop(node.id, []))

    def _simple(self, nodes: Sequence["Node"], redirects: Sequence["Node"]) -> None:
        """A command of assignments and words; alone, assignments are the shell's own."""
        assigned = [self._assigned(node) for node in nodes if node.type == "variable_assignment"]
        words = [node for node in nodes if node.type != "variable_assignment"]
        targets: list[str] = []
        for redirect in redirects:
            operators = {child.type for child in redirect.children}
            places = redirect.children_by_field_name("destination")
            if places and operators & {">", ">>", "&>", "&>>", ">|"} and written(places[0]) != "/dev/null":
                targets += self._words.expand(places[0])
            # The grammar ends no redirection before a word.
            words += [*redirect.children_by_field_name("argument"), *places[1:]]
        argv = [field for word in self._words.joined(words) for field in self._words.expand(*word)]
        for name, value in assigned if not words else ():
            self._assign(name, value)
        if not argv or self._builtin(argv, words):
            return
        env = {name: value for name, value in self._words.variables.items() if name in self._exported} | dict(assigned)
        texts = {name: value for name, value in env.items() if isinstance(value, str)}
        here = next((text for text in map(self._here, redirects) if text is not None), None)
        line, source = words[0].start_point.row + 1, " ".join(map(written, words))
        self._found.append(Command(tuple(argv), texts, line, source, self.cwd, tuple(targets), here))

    def _builtin(self, argv: list[str], words: Sequence["Node"]) -> bool:
        """Whether the words are a command that acts on the shell itself, which is done then."""
        self._status = {"true": True, ":": True, "false": False}.get(argv[0])
        match argv:
            case ["test" | "[", *_]:
                self._status = self._test([word for word in words[1:] if written(word) != "]"])
            case ["unset", *names]:
                self._unset(names)
            case ["set", *_]:
                if "-a" in argv or "allexport" in argv:
                    self._export_all = "+o" not in argv
            case ["cd" | "pushd", *_, path]:
                self.cwd = path if path.startswith(("/", "~", "$")) or not self.cwd else f"{self.cwd}/{path}"
            case _:
                return argv[0] in ("source", ".")
        return True

    def _here(self, redirect: "Node") -> str | None:
        """The text of a here-document or here-string; in an unquoted one known variables are replaced."""
        children = {child.type: child for child in redirect.children}
        if redirect.type == "herestring_redirect":
            return " ".join(self._words.expand(redirect.children[-1]))
        if redirect.type == "file_redirect":
            return None
        text = as_written(text_of(children["heredoc_body"])) if "heredoc_body" in children else ""
        if "<<-" in children:
            text = re.sub(r"(?m)^\t+", "", text)
        if re.search(r"[\\'\"]", written(children["heredoc_start"])):
            return text

        def known(match: re.Match[str]) -> str:
            value = self._words.variables.get(match[1] or match[2])
            return value if isinstance(value, str) else match[0]

        return re.sub(r"(?<!\\)\$(?:(\w+)|\{(\w+)\})", known, text).replace("\\$", "$")

    def _assign(self, name: str, value: Value, *, export: bool = False) -> None:
        self._words.variables[name] = value
        if export or self._export_all:
            self._exported.add(name)

    def _assigned(self, node: "Node") -> tuple[str, Value]:
        """Name and value of NAME=value, NAME+=value, NAME=( ... ): no splitting, ~ also behind colons."""
        name = written(node.children[0])
        old = self._words.variables.get(name) if node.children[1].type == "+=" else None
        values = node.children_by_field_name("value")
        if values and values[0].type == "array":
            items = [field for child in values[0].named_children for field in self._words.expand(child)]
            return name, [*(old if isinstance(old, list) else []), *items]
        return name, (old if isinstance(old, str) else "") + self._words.scalar(values, assigned=name)

    def _declare(self, node: "Node") -> None:
        """export, declare, typeset, readonly, local."""
        export = node.children[0].type == "export"
        for child in node.children[1:]:
            if child.type == "variable_assignment":
                self._assign(*self._assigned(child), export=export)
            for text in self._words.expand(child) if child.type in WORDS else ():
                if text.startswith("-"):
                    export = export or (node.children[0].type in ("declare", "typeset") and "x" in text)
                elif assignment := _ASSIGNMENT.fullmatch(text):  # export "A=1 2"
                    self._assign(assignment[1], assignment[2], export=export)
                elif export:
                    self._exported.add(text)

    def _unset(self, names: Iterable[str]) -> None:
        for name in names:
            self._words.variables.pop(name, None)
            self._exported.discard(name)

    def _test(self, words: Sequence["Node"]) -> bool | None:
        """What [ -n X ], [ -z X ] and [ A = B ] say; None where only running could tell."""
        match [written(word) for word in words]:
            case ["!", *_]:
                inner = self._test(words[1:])
                return None if inner is None else not inner
            case ["-n" | "-z" as operator, _]:
                value = self._known(words[1])
                return None if value is None else (value == "") == (operator == "-z")
            case [_, "=" | "==" | "!=" as operator, _]:
                left, right = self._known(words[0]), self._known(words[2])
                return None if right is None or not left else (left == right) == (operator != "!=")
        return None

    def _known(self, word: "Node") -> str | None:
        """The value of a word of a test; a variable that nobody set is empty there."""
        variable = re.fullmatch(r'"?\$\{?([A-Za-z_]\w*)\}?"?', written(word))
        if variable and self._words.lookup(variable[1], None) is None:
            return ""
        value = " ".join(self._words.expand(word))
        return None if any(source in value for source in self._words.remarks) else value


def _operands(node: "Node") -> Iterator["Node"]:
    """The words and operators of a test, in order."""
    if node.type in WORDS or not node.children:
        if node.type not in ("[", "]", "[[", "]]"):
            yield node
        return
    for child in node.children:
        yield from _operands(child)
