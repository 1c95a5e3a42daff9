"""Reads shell text the way bash would, and never executes any of it.

`Shell` walks the tree of a text and gives the simple commands in order, with the words that a shell would hand to each
program. Size, depth and expansion are bounded: any text ends in commands or in a UsageError.
"""

import fnmatch
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tui.core.profiles.importing import bash_tree
from tui.core.profiles.importing.bash_tree import OPEN, REDIRECTS, WORDS, as_written, text_of, unreadable, written
from tui.core.profiles.importing.call import Reading
from tui.core.profiles.importing.unresolved import Unresolved, named
from tui.core.profiles.importing.words import Value, Words

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_CALLS = 200  # of functions
MAX_ROUNDS = 16  # of one loop
MAX_COMMANDS = 5000

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Command:
    """One simple command as a shell would start it."""

    argv: tuple[str, ...]
    env: dict[str, str]  # exported before it, and the assignments in front of it; only what the text itself sets
    line: int  # 1-based, of its first word
    end_line: int  # of its last word
    source: str  # its words as written
    cwd: str | None = None
    redirects: tuple[str, ...] = ()  # targets of output redirections
    here: str | None = None  # text of a here-document


class Shell:
    """Variables, functions and exports while a text is read from top to bottom."""

    def __init__(self, reading: Reading, variables: dict[str, str] | None = None) -> None:
        self.reading = reading
        self.cwd: str | None = None
        self.guesses: list[tuple[int, str]] = []  # line and sentence: what was taken for granted there
        self._words = Words(reading, variables or {}, self._printed)
        self._exported = set(variables or {})
        self._export_all = False
        self._status: bool | None = None  # of the last command, where it can be told
        self._all_branches = False
        self._functions: dict[str, Node] = {}
        self._called: set[str] = set()
        self._calls = 0
        self._redirects: dict[int, list[Node]] = {}  # by the command that they belong to
        self._found: list[Command] = []

    def with_arguments(self, arguments: Sequence[str]) -> "Shell":
        """The same, called with $0, $1 and so on."""
        self._words.arguments = list(arguments)
        return self

    def unresolved(self, values: Iterable[str]) -> list[Unresolved]:
        """What in `values` stayed as text because only a running shell could tell, and the arguments of the script."""
        remarks = self._words.remarks
        arguments = [remarks["$@"]] if "$@" in remarks else []
        return arguments + [item for item in named(remarks.values(), values) if item.text != "$@"]

    def commands(self, text: str, *, branches: bool = True) -> list[Command]:
        """The simple commands of a text, in order; with `branches`, only those of the branches a shell would take.

        A condition that only running could decide counts as met. Raises UsageError for text that cannot be read.
        """
        self._all_branches = not branches
        self._found = []
        self._words.raw = bash_tree.encoded(text)
        try:
            self._run(bash_tree.parsed(self._words.raw))
            for name, body in list(self._functions.items()):
                if name not in self._called:  # somebody else calls it
                    self._run(body)
        except RecursionError:
            raise unreadable("the text is nested too deeply") from None
        return self._found

    def _printed_by(self, argv: list[str], words: Sequence["Node"]) -> str | None:
        """What a function of the text prints; None where it starts programs whose output nobody knows."""
        before, self._found = self._found, []
        self._call(argv, words, [])
        printed, self._found = self._found, before
        if not printed or any(command.argv[0] != "echo" for command in printed):
            return None
        return "\n".join(" ".join(command.argv[1:]) for command in printed)

    # Statements ----------------------------------------------------------------------------------------------------

    def _run(self, node: "Node") -> None:
        match node.type:
            case "command":
                self._command(node)
            case "redirected_statement":
                self._redirected(node)
            case "variable_assignment":
                self._assign(*self._assigned(node))
            case "compound_statement" if node.children[0].type == "((":
                self._status = self._words.holds(node)
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
            case "while_statement":
                self._while(node)
            case "case_statement":
                self._case(node)
            case "function_definition":
                self._functions[written(node.children_by_field_name("name")[0])] = node.children_by_field_name("body")[
                    0
                ]
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
                if self._status is None:
                    self._guess(node)
            elif child.type == "elif_clause":
                if not taken or self._all_branches:
                    taken = self._if(child) or taken
            elif condition or self._all_branches or taken != (child.type == "else_clause"):
                self._run(child)
        return taken

    def _guess(self, node: "Node") -> None:
        """Notes a branch that was taken without knowing, where it sets something."""
        text = written(node)
        if "sglang" in text or re.search(r"\w\+?=", text.partition("\n")[2] or text.partition("then")[2]):
            head = " ".join(re.split(r"\n|;", text, maxsplit=1)[0].split())[:80]
            sentence = f"only running could tell which branch of `{head}` holds: the first was taken"
            self.guesses.append((node.start_point.row + 1, sentence))

    def _for(self, node: "Node") -> None:
        """for NAME in A B C: one round a value, as far as they are few."""
        name = next(written(child) for child in node.children_by_field_name("variable"))
        given = node.children_by_field_name("value")
        values = [field for word in self._words.joined(given) for field in self._words.expand(*word)]
        if len(values) > MAX_ROUNDS:
            self.guesses.append((node.start_point.row + 1, f"of the loop over {name} only {values[0]} was taken"))
            values = values[:1]
        rounds: list[str | None] = [*(values if given else (self._words.arguments or [])[1:])]
        for value in rounds or [None]:
            if value is not None:
                self._assign(name, value)
            for body in node.children_by_field_name("body"):
                self._run(body)

    def _while(self, node: "Node") -> None:
        """while and until: one round, unless the condition is known not to hold."""
        self._status = None
        for condition in node.children_by_field_name("condition"):
            self._run(condition)
        until = node.children[0].type == "until"
        if self._status is None or self._status is not until or self._all_branches:
            for body in node.children_by_field_name("body"):
                self._run(body)

    def _case(self, node: "Node") -> None:
        """case WORD in: the item that matches; the first where nobody knows the word."""
        word = self._known(node.children_by_field_name("value")[0])
        items = [child for child in node.named_children if child.type == "case_item"]
        chosen = items
        if not self._all_branches:
            chosen = [item for item in items if word and self._matches(word, item)][:1] or items[:1]
            if not word:
                self._guess(node)
        for item in chosen:
            patterns = {child.id for child in item.children_by_field_name("value")}
            for child in item.named_children:
                if child.id not in patterns:
                    self._run(child)

    def _matches(self, word: str, item: "Node") -> bool:
        patterns = [written(child).strip("\"'") for child in item.children_by_field_name("value")]
        return any(fnmatch.fnmatchcase(word, pattern) for pattern in patterns if len(pattern) < 100)

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
        groups = self._words.joined(nodes)
        assigned = [self._assigned(*group) for group in groups if group[0].type == "variable_assignment"]
        words = [node for group in groups if group[0].type != "variable_assignment" for node in group]
        targets: list[str] = []
        for redirect in redirects:
            operators = {child.type for child in redirect.children}
            places = redirect.children_by_field_name("destination")
            if places and operators & {">", ">>", "&>", "&>>", ">|"} and written(places[0]) != "/dev/null":
                targets += self._words.expand(places[0])
            # The grammar ends no redirection before a word.
            words += [*redirect.children_by_field_name("argument"), *places[1:]]
        argv = [as_written(field) for word in self._words.joined(words) for field in self._words.expand(*word)]
        for name, value in assigned if not words else ():
            self._assign(name, value)
        if not argv or self._call(argv, words, assigned) or self._builtin(argv, words):
            return
        env = {name: value for name, value in self._words.variables.items() if name in self._exported} | dict(assigned)
        texts = {name: as_written(value) for name, value in env.items() if isinstance(value, str)}
        here = next((text for text in map(self._here, redirects) if text is not None), None)
        first, last = words[0].start_point.row + 1, words[-1].end_point.row + 1
        source = " ".join(map(written, words))
        targets = list(map(as_written, targets))
        self._found.append(Command(tuple(argv), texts, first, last, source, self.cwd, tuple(targets), here))
        if len(self._found) > MAX_COMMANDS:
            raise unreadable(f"its loops and functions make more than {MAX_COMMANDS} commands")

    def _call(self, argv: list[str], words: Sequence["Node"], assigned: list[tuple[str, Value]]) -> bool:
        """Whether the words call a function of the text, which is run then."""
        body = self._functions.get(argv[0])
        if body is None or self._calls >= MAX_CALLS:
            return False
        self._called.add(argv[0])
        self._calls += 1
        before = self._words.arguments
        outside = {name: self._words.variables.get(name) for name, _ in assigned}
        for name, value in assigned:
            self._assign(name, value, export=True)
        passed_on = before is None and any(written(word) in ('"$@"', "$@", '"$*"', "$*") for word in words)
        self._words.arguments = None if passed_on and len(argv) == 1 else argv
        self._run(body)
        self._words.arguments = before
        for name, old in outside.items():
            if old is None:
                self._unset([name])
            else:
                self._words.variables[name] = old
        return True

    def _printed(self, node: "Node") -> str | None:
        """What a command substitution prints, where the text says it: $(cat <<X ...), $(echo ...), $(a_function 1)."""
        inner = node.named_children[0] if len(node.named_children) == 1 else None
        if inner is not None and inner.type == "redirected_statement":
            body = inner.children_by_field_name("body")
            if [written(child) for child in body] == ["cat"]:
                return next((text.rstrip("\n") for text in map(self._here, inner.children) if text is not None), None)
        if inner is None or inner.type != "command":
            return None
        name, *words = [child for child in inner.named_children if child.type in WORDS] or [inner]
        fields = [field for word in self._words.joined(words) for field in self._words.expand(*word)]
        if written(name) in self._functions:
            return self._printed_by([written(name), *fields], words)
        if written(name) not in ("echo", "seq"):
            return None
        if written(name) == "echo":
            return " ".join(fields[1:] if fields[:1] == ["-n"] else fields)
        if not 1 <= len(fields) <= 2 or not all(re.fullmatch(r"\d{1,4}", field) for field in fields):
            return None
        first, last = (1, int(fields[0])) if len(fields) == 1 else map(int, fields)
        return " ".join(map(str, range(first, last + 1)))

    def _builtin(self, argv: list[str], words: Sequence["Node"]) -> bool:
        """Whether the words are a command that acts on the shell itself, which is done then."""
        self._status = {"true": True, ":": True, "false": False}.get(argv[0])
        match argv:
            case ["test" | "[", *_]:
                self._status = self._test([word for word in words[1:] if written(word) != "]"])
            case ["unset", *names]:
                self._unset(names)
            case ["set", "--", *arguments]:
                self._words.arguments = [*(self._words.arguments or ["bash"])[:1], *arguments]
            case ["shift", *count]:
                number = int(count[0]) if count and count[0].isdigit() else 1
                if self._words.arguments is not None:
                    del self._words.arguments[1 : number + 1]
            case ["getopts", *_] if len(self._words.arguments or ()) < 2:
                self._status = False
            case ["set", *_]:
                if "-a" in argv or "allexport" in argv:
                    self._export_all = "+o" not in argv
            case ["cd" | "pushd", *_, path]:
                self.cwd = path if path.startswith(("/", "~", "$")) or not self.cwd else f"{self.cwd}/{path}"
            case _:
                return False
        return True

    def _here(self, redirect: "Node") -> str | None:
        """The text of a here-document or here-string; in an unquoted one known variables are replaced."""
        children = {child.type: child for child in redirect.children}
        if redirect.type == "herestring_redirect":
            return as_written(" ".join(self._words.expand(redirect.children[-1])))
        if redirect.type != "heredoc_redirect":
            return None
        text = as_written(text_of(children["heredoc_body"])) if "heredoc_body" in children else ""
        if "<<-" in children:
            text = re.sub(r"(?m)^\t+", "", text)
        if re.search(r"[\\'\"]", written(children["heredoc_start"])):
            return text

        def known(match: re.Match[str]) -> str:
            value = self._words.lookup(match[1] or match[2], None)
            return as_written(value) if isinstance(value, str) else match[0]

        text = re.sub(r"(?<!\\)((?:\\\\)*)\\\n", r"\1", text)
        return re.sub(r"(?<!\\)\$(?:(\w+)|\{(\w+)\})", known, text).replace("\\$", "$")

    def _assign(self, name: str, value: Value, *, export: bool = False) -> None:
        given = self.reading.given(name)
        self._words.variables[name] = value if given is None else given
        if export or self._export_all:
            self._exported.add(name)

    def _assigned(self, node: "Node", *more: "Node") -> tuple[str, Value]:
        """Name and value of NAME=value, NAME+=value, NAME=( ... ): no splitting, ~ also behind colons.

        Args:
            more: the nodes right behind it, which the grammar cut off.
        """
        name = written(node.children[0])
        old = self._words.variables.get(name) if node.children[1].type == "+=" else None
        values = node.children_by_field_name("value")
        if values and values[0].type == "array":
            words = self._words.joined(values[0].named_children)
            items = [field for word in words for field in self._words.expand(*word)]
            keyed = [re.fullmatch(r"\[([^\]]*)\]=(.*)", item, re.DOTALL) for item in items]
            self._words.variables |= {f"{name}[{match[1]}]": match[2] for match in keyed if match}
            items = [match[2] if match else item for match, item in zip(keyed, items, strict=True)]
            return name, [*(old if isinstance(old, list) else []), *items]
        return name, (old if isinstance(old, str) else "") + self._words.scalar([*values, *more], assigned=name)

    def _declare(self, node: "Node") -> None:
        """export, declare, typeset, readonly, local."""
        export = node.children[0].type == "export"
        for child, *more in self._words.joined(node.children[1:]):
            if child.type == "variable_assignment":
                self._assign(*self._assigned(child, *more), export=export)
            for text in self._words.expand(child, *more) if child.type in WORDS else ():
                if text.startswith("-"):
                    export = export or (node.children[0].type in ("declare", "typeset") and "x" in text)
                elif assignment := _ASSIGNMENT.fullmatch(text):  # export "A=1 2"
                    self._assign(assignment[1], assignment[2], export=export)
                elif export and OPEN in text:
                    line = child.start_point.row + 1
                    self.guesses.append((line, f"what {as_written(text)[:80]} exports is not in this text"))
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
            case ["-n" | "-z" as how, _]:
                value = self._known(words[1])
                return None if value is None else (value == "") == (how == "-z")
            case [_, "=" | "==" | "!=" as how, _]:
                left, right = self._known(words[0]), self._known(words[2])
                # A variable that nobody set is empty here, but may well be set where the text runs.
                return (
                    None if right is None or left is None or (right and not left) else (left == right) == (how != "!=")
                )
            case [_, "-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" as how, _]:
                sides = [self._known(words[0]) or "", self._known(words[2]) or ""]
                if not all(re.fullmatch(r"-?\d{1,18}", side) for side in sides):
                    return None
                left_number, right_number = map(int, sides)
                return bool(_NUMBER_TESTS[how](left_number, right_number))
        return None

    def _known(self, word: "Node") -> str | None:
        """The value of a word of a test; a variable that nobody set is empty there."""
        variable = re.fullmatch(r'"?\$\{?([A-Za-z_]\w*|\d)\}?"?', written(word))
        if variable and self._words.lookup(variable[1], None) is None:
            return ""
        value = " ".join(self._words.expand(word))
        return None if OPEN in value else value


_NUMBER_TESTS: dict[str, Callable[[int, int], bool]] = {
    "-eq": operator.eq,
    "-ne": operator.ne,
    "-lt": operator.lt,
    "-le": operator.le,
    "-gt": operator.gt,
    "-ge": operator.ge,
}


def _operands(node: "Node") -> Iterator["Node"]:
    """The words and operators of a test, in order."""
    if node.type in WORDS or not node.children:
        if node.type not in ("[", "]", "[[", "]]"):
            yield node
        return
    for child in node.children:
        yield from _operands(child)
