"""Commands in Python text: lists that go to subprocess, strings that go to a shell. Nothing is run.

Names are followed as far as the text gives their values; what it does not give stays one value, `{name}`.
"""

import ast
import re
import shlex
import warnings

from tui.core.profiles.importing.call import Call, Reading
from tui.core.profiles.importing.servers import MENTIONED, server_calls
from tui.core.profiles.importing.unresolved import Unresolved, unresolved
from tui.core.text import one_line

MAX_STATEMENTS = 2000
MAX_CHARACTERS = 64 * 1024  # of one value
MAX_DEPTH = 40  # of one expression
_HINT = re.compile(r"\bimport\b|\bsubprocess\b|\bPopen\b|launch_server_cmd|[\[(]\s*f?[\"']|sys\.executable")

_Value = str | list[str] | bool | None


def servers_of_python(text: str, reading: Reading) -> list[Call]:
    """Every server call that a Python text makes, in order; none where the text is not Python."""
    if not _HINT.search(text):
        return []
    reader = _Reader(reading)
    try:
        with warnings.catch_warnings(action="ignore"):  # of escapes in strings: the text is not ours
            tree = ast.parse(text)
        reader.run(tree.body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return reader.servers()


def servers_of_lists(text: str, reading: Reading) -> list[Call]:
    """The servers in lists of quoted words, in brackets or braces, whatever stands around them."""
    found: list[Call] = []
    for match in re.finditer(r"[\[{]([^\[\]{}]*)[\]}]", text):
        line = text.count("\n", 0, match.start())
        for call in servers_of_python(f"[{match[1]}]", reading) if MENTIONED.search(match[1]) else ():
            found.append(call.filled(reading, {}).without(0, line=call.line + line))
    return found


class _Reader:
    """Follows assignments from top to bottom; a condition that the text does not settle counts as met."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._values: dict[str, _Value] = {}
        self._env: dict[str, str] = {}
        self._gone: list[Unresolved] = []
        self._missed: list[str] = []
        self._calls: list[Call] = []
        self._lines: dict[str, int] = {}  # where each name was first set
        self._left = MAX_STATEMENTS

    def servers(self) -> list[Call]:
        """The calls that were made; where none was, those that were only put together."""
        calls = self._calls or [
            call
            for name, value in self._values.items()
            if isinstance(value, str | list)
            for call in self._servers_in(value, self._lines.get(name, 1))
        ]
        return list({(call.argv, call.line): call for call in calls}.values())

    def _servers_in(self, value: str | list[str], line: int) -> list[Call]:
        if not MENTIONED.search(value if isinstance(value, str) else " ".join(value)):
            return []
        argv = ("sh", "-c", value) if isinstance(value, str) else tuple(value)
        found = server_calls(Call(argv, dict(self._env), line=line), self._reading)
        return [
            call.miss(*self._missed).leave(*(item for item in self._gone if item.text in "\n".join(call.argv)))
            for call in found
        ]

    def run(self, body: list[ast.stmt]) -> None:
        """The statements of a body."""
        for statement in body:
            self._left -= 1
            if self._left > 0:
                self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names = node.args.posonlyargs + node.args.args
                defaults = zip(names[len(names) - len(node.args.defaults) :], node.args.defaults, strict=True)
                for name, default in [*defaults, *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]:
                    if default is not None:
                        self._set(name.arg, self._value(default), node.lineno)
                self.run(node.body)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign() if node.value is not None:
                self._calls_in(node.value)
                value = self._value(node.value)
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    self._assign(target, value, isinstance(node, ast.AugAssign))
            case ast.Expr():
                self._calls_in(node.value)
                if isinstance(node.value, ast.List):
                    self._record(self._value(node.value), node.lineno)
            case ast.If():
                self._if(node)
            case ast.Return() if node.value is not None:
                self._calls_in(node.value)
                self._record(self._value(node.value), node.lineno)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self._calls_in(item.context_expr)
                self.run(node.body)
            case ast.Try():
                self.run([*node.body, *node.orelse, *node.finalbody])
            case ast.ClassDef() | ast.For() | ast.AsyncFor() | ast.While():
                self.run(node.body)

    def _if(self, node: ast.If) -> None:
        test = self._value(node.test) if isinstance(node.test, ast.Name | ast.Constant) else ""
        known = isinstance(node.test, ast.Constant) or (
            isinstance(node.test, ast.Name) and node.test.id in self._values
        )
        if known and not test:
            self.run(node.orelse)
            return
        if not known and MENTIONED.search(" ".join(map(str, self._values.values()))):
            self._missed.append(f"line {node.lineno}: `{one_line(ast.unparse(node.test), 60)}` was taken as true")
        self.run(node.body)

    def _set(self, name: str, value: _Value, line: int) -> None:
        if isinstance(value, str | list) and sum(map(len, value)) > MAX_CHARACTERS:
            raise ValueError
        given = self._reading.given(name)
        self._values[name] = value if given is None else given
        self._lines.setdefault(name, line)

    def _assign(self, target: ast.expr, value: _Value, added: bool) -> None:
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            if "env" in ast.unparse(target.value).lower() and isinstance(value, str):
                self._env[str(target.slice.value)] = value
        elif isinstance(target, ast.Name):
            old = self._values.get(target.id)
            if added and isinstance(old, list):
                value = [*old, *(value if isinstance(value, list) else [])]
            elif added and isinstance(old, str) and isinstance(value, str):
                value = old + value
            self._set(target.id, value, target.lineno)

    def _calls_in(self, node: ast.expr) -> None:
        """Takes what the calls of an expression do: commands that they start, words that they add to a list."""
        for call in ast.walk(node):
            if not isinstance(call, ast.Call):
                continue
            method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
            on = call.func.value if isinstance(call.func, ast.Attribute) else None
            old = self._values.get(on.id) if isinstance(on, ast.Name) else None
            if method in ("append", "extend") and isinstance(old, list) and call.args:
                value = self._value(call.args[0])
                old += [value] if isinstance(value, str) else value if isinstance(value, list) else []
                continue
            if method in ("join", "split", "format", "copy", "print") or ast.unparse(call.func) in ("print", "str"):
                continue
            for keyword in call.keywords:
                if keyword.arg == "env" and isinstance(keyword.value, ast.Dict):
                    self._environment(keyword.value)
            for argument in [*call.args[:2], *(k.value for k in call.keywords if k.arg in ("args", "cmd", "command"))]:
                self._record(self._value(argument), call.lineno)

    def _environment(self, table: ast.Dict) -> None:
        for key, value in zip(table.keys, table.values, strict=True):
            text = self._value(value)
            if isinstance(key, ast.Constant) and isinstance(text, str):
                self._env[str(key.value)] = text

    def _record(self, value: _Value, line: int) -> None:
        if isinstance(value, str | list):
            self._calls += self._servers_in(value, line)

    def _value(self, node: ast.expr, depth: int = 0) -> _Value:
        """What an expression gives: text, words, or a value that stays as `{source}`."""
        if depth > MAX_DEPTH:
            return self._stays("…")
        match node:
            case ast.Constant(value=bool() | None as constant):
                return constant
            case ast.Constant(value=str() | int() | float()):
                return str(node.value)
            case ast.List() | ast.Tuple():
                return self._words(node.elts, depth)
            case ast.JoinedStr():
                return "".join(self._text(part, depth) for part in node.values)
            case ast.FormattedValue():
                return self._text(node.value, depth)
            case ast.Name() if node.id in self._values:
                value = self._values[node.id]
                return list(value) if isinstance(value, list) else value
            case ast.Attribute() if ast.unparse(node) == "sys.executable":
                return "python3"
            case ast.BinOp(op=ast.Add()):
                left, right = self._value(node.left, depth + 1), self._value(node.right, depth + 1)
                if isinstance(left, list) and isinstance(right, list):
                    return left + right
                if isinstance(left, str) and isinstance(right, str):
                    return left + right
            case ast.Call(args=[ast.Constant(value=str() as name), *default]) if _is_environment(node.func):
                given = self._reading.given(name)
                if given is None and default:
                    return self._value(default[0], depth + 1)
                return self._stays(name) if given is None else given
            case ast.Subscript(slice=ast.Constant(value=str() as name)) if _is_environment(node.value):
                return self._stays(name)
            case ast.Call(func=ast.Name(id="str" | "int" | "float" | "list" | "tuple"), args=[argument]):
                return self._value(argument, depth + 1)
            case ast.Call(func=ast.Attribute(attr="split"), args=[]) if isinstance(node.func, ast.Attribute):
                return self._text(node.func.value, depth).split()
            case ast.Call(func=ast.Attribute(attr="split"), args=[argument]) if "shlex" in ast.unparse(node.func):
                return shlex.split(self._text(argument, depth))
            case ast.Call(func=ast.Attribute(attr="join"), args=[argument]):
                words = self._value(argument, depth + 1)
                return shlex.join(words) if isinstance(words, list) else words
        return self._stays(one_line(ast.unparse(node), 80))

    def _text(self, node: ast.expr, depth: int) -> str:
        value = self._value(node, depth + 1)
        return " ".join(value) if isinstance(value, list) else str(value)

    def _words(self, nodes: list[ast.expr], depth: int) -> list[str]:
        words: list[str] = []
        for node in nodes:
            if not isinstance(node, ast.Starred):
                words.append(self._text(node, depth))
                continue
            value = self._value(node.value, depth + 1)
            if isinstance(value, list):
                words += value
            else:
                self._missed.append(f"line {node.lineno}: {one_line(ast.unparse(node), 80)} in the list of words")
        return words

    def _stays(self, source: str) -> str:
        text = "{" + source + "}" if re.fullmatch(r"[\w.]+", source) else "{{ " + re.sub(r"[{}\n]", "", source) + " }}"
        given = self._reading.value_of(text)
        if given is None:
            self._gone.append(unresolved(text, "is not given in this text"))
        return text if given is None else given


def _is_environment(node: ast.expr) -> bool:
    """os.environ, os.environ.get, os.getenv."""
    return ast.unparse(node).removeprefix("os.") in ("environ", "environ.get", "getenv")
