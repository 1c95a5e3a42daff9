"""Commands in Kubernetes and compose files, as far as they are written in the usual ways; no YAML library needed."""

import json
import re
import shlex
from collections.abc import Iterator

_KEY = re.compile(r"^(?P<indent>\s*(?:-\s+)?)(?P<key>command|args|entrypoint)\s*:\s*(?P<rest>.*)$")
_ITEM = re.compile(r"^(?P<indent>\s*)-\s+(?P<rest>.*)$")
_SCALAR = re.compile(r"""\s*(?:"((?:\\.|[^"\\])*)"|'((?:''|[^'])*)'|([^,\[\]"'][^,\]]*))\s*(?:,|$)""", re.DOTALL)


def yaml_calls(text: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """(argv, environment) of every command in the text: entrypoint or command, followed by args, as they are combined."""
    lines = text.split("\n")
    env = _environment(lines)
    pending: list[str] = []
    at = 0
    while at < len(lines):
        match = _KEY.match(lines[at])
        if not match:
            at += 1
            continue
        words, at = _value(lines, at, len(match["indent"]), match["rest"])
        words = [re.sub(r"\$\((\w+)\)", lambda name: env.get(name.group(1), name.group()), word) for word in words]
        if match["key"] == "args" or (match["key"] == "command" and pending and pending[0] != "-"):
            yield [*pending, *words], env
            pending = []
        else:
            if pending:
                yield pending, env
            pending = words
    if pending:
        yield pending, env


def _value(lines: list[str], at: int, indent: int, rest: str) -> tuple[list[str], int]:
    """The words of a value that begins behind `key:` in line `at`, and the line after it."""
    rest = rest.strip()
    if rest.startswith("["):
        flow = rest
        while flow.count("[") > flow.count("]") and at + 1 < len(lines):
            at += 1
            flow += "\n" + lines[at]
        return _flow(flow[1 : flow.rfind("]")]), at + 1
    if re.fullmatch(r"[|>][+-]?\d*", rest):
        block, at = _block(lines, at + 1, indent, folded=rest[0] == ">")
        return ["sh", "-c", block], at
    following = lines[at + 1] if at + 1 < len(lines) else ""
    if not rest and following.strip() and _depth(following) > indent and not _ITEM.match(following):
        rest, at = following.strip(), at + 1  # plain text that begins on the next line
    if rest and not rest.startswith("#"):
        while at + 1 < len(lines) and lines[at + 1].strip() and _depth(lines[at + 1]) > indent:
            at += 1
            rest += " " + lines[at].strip()
        return _split(rest), at + 1
    items = []
    at += 1
    while at < len(lines):
        item = _ITEM.match(lines[at])
        if not lines[at].strip() or lines[at].lstrip().startswith("#"):
            at += 1
            continue
        if not item or len(item["indent"]) < indent - 2:
            break
        scalar = item["rest"].strip()
        if re.fullmatch(r"[|>][+-]?\d*", scalar):
            block, at = _block(lines, at + 1, len(item["indent"]), folded=scalar[0] == ">")
            items.append(block)
            continue
        if re.match(r"[A-Za-z_][\w.-]*:(\s|$)", scalar):
            break  # the next list of mappings, not an argument
        at += 1
        while (
            at < len(lines)
            and lines[at].strip()
            and not _ITEM.match(lines[at])
            and _depth(lines[at]) > len(item["indent"])
        ):
            scalar += " " + lines[at].strip()
            at += 1
        items += _flow(scalar, whole=True)
    return items, at


def _block(lines: list[str], at: int, indent: int, *, folded: bool) -> tuple[str, int]:
    """A block scalar (| or >) and the line after it."""
    block = []
    while at < len(lines) and (not lines[at].strip() or _depth(lines[at]) > indent):
        block.append(lines[at])
        at += 1
    margin = min((_depth(line) for line in block if line.strip()), default=0)
    body = [line[margin:] for line in block]
    return (" " if folded else "\n").join(body).strip(), at


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _flow(text: str, *, whole: bool = False) -> list[str]:
    """The scalars of a flow list, or the one scalar of a list item."""
    if whole and text[:1] not in "\"'":
        return [re.sub(r"\s+#.*$", "", text)]
    found = []
    at = 0
    while at < len(text) and (match := _SCALAR.match(text, at)):
        double, single, plain = match.groups()
        if double is not None:
            try:
                found.append(str(json.loads(f'"{double}"')))
            except ValueError:
                found.append(double)
        else:
            found.append(single.replace("''", "'") if single is not None else plain.strip())
        at = match.end()
    return found


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _environment(lines: list[str]) -> dict[str, str]:
    """env: as Kubernetes writes it (name and value), environment: as compose does (a map or NAME=value items)."""
    env: dict[str, str] = {}
    name = None
    inside: int | None = None
    for line in lines:
        if match := re.match(r"^\s*-\s+name:\s*[\"']?([A-Za-z_]\w*)[\"']?\s*$", line):
            name = match.group(1)
        elif name and (match := re.match(r"^\s*value:\s*(.*)$", line)):
            env[name] = "".join(_flow(match.group(1).strip(), whole=True))
            name = None
        elif match := re.match(r"^(\s*)environment:\s*$", line):
            inside = len(match.group(1))
        elif inside is not None and line.strip():
            item = re.match(r"^\s*-?\s*[\"']?([A-Za-z_]\w*)\s*[:=]\s*(.*?)[\"']?\s*$", line)
            if (_depth(line) <= inside and not line.lstrip().startswith("-")) or not item:
                inside = None
            else:
                env[item.group(1)] = item.group(2).strip("\"'")
    return env
