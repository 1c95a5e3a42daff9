"""Commands in Kubernetes and compose files: what each container runs, and its environment."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import yaml

MAX_ALIASES = 200
MAX_MERGED = 1000  # keys of one mapping


class _Loader(yaml.SafeLoader):
    """Scalars stay text, as a command line has them; aliases and merges stay few, because they multiply."""

    yaml_implicit_resolvers = {"<": [("tag:yaml.org,2002:merge", re.compile("<<"))]}  # noqa: RUF012
    aliases = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self.aliases += self.check_event(yaml.AliasEvent)
        if self.aliases > MAX_ALIASES:
            raise yaml.YAMLError("too many aliases")
        return super().compose_node(parent, index)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > MAX_MERGED:
            raise yaml.YAMLError("a mapping is too long")


def container_commands(text: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """(argv, environment) of every container in the text, in order: its entry point, followed by its arguments."""
    seen: set[int] = set()
    stack = _documents(text)[::-1]
    while stack:
        value = stack.pop()
        if not isinstance(value, dict | list) or id(value) in seen:
            continue
        seen.add(id(value))
        stack += list(value.values() if isinstance(value, dict) else value)[::-1]
        if isinstance(value, dict) and (argv := _argv(value)):
            env = _environment(value)
            yield [_substituted(word, env) for word in argv], env


def _substituted(word: str, env: dict[str, str]) -> str:
    """$(NAME) as Kubernetes replaces it; what the container does not set stays."""
    return re.sub(r"\$\((\w+)\)", lambda name: env.get(name[1], name[0]), word)


def _argv(container: dict[Any, Any]) -> list[str]:
    """Kubernetes has command and args, compose has entrypoint and command."""
    entry, rest = container.get("entrypoint"), container.get("command")
    if entry is None:
        entry, rest = rest, container.get("args")
    if isinstance(entry, str) and rest is None:
        return ["sh", "-c", entry]  # compose splits it at blanks; a shell does that too, and reads a script
    return [*_words(entry), *_words(rest)]


def _words(value: Any) -> list[str]:
    if isinstance(value, list):
        return [item for item in value if isinstance(item, str)]
    if not isinstance(value, str):
        return []
    text = value.replace("\\\n", " ")
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _environment(container: dict[Any, Any]) -> dict[str, str]:
    """`env` is a list of name and value, `environment` a mapping or a list of NAME=value."""
    env: dict[Any, Any] = {}
    for values in (container.get("env"), container.get("environment")):
        if isinstance(values, dict):
            env |= values
        for item in values if isinstance(values, list) else ():
            if isinstance(item, dict):
                env[item.get("name")] = item.get("value")
            elif isinstance(item, str) and "=" in item:
                name, _, env[name] = item.partition("=")
    return {name: value for name, value in env.items() if isinstance(name, str) and isinstance(value, str)}


def _documents(text: str) -> list[Any]:
    """What the text holds; where it is not a whole file (a fragment, a template), the blocks that have a command."""
    try:
        return list(yaml.load_all(text, _Loader))
    except (yaml.YAMLError, RecursionError):
        documents = []
        for block in _blocks(text.split("\n")):
            with suppress(yaml.YAMLError, RecursionError):
                documents.append(yaml.load(block, _Loader))
        return documents


def _blocks(lines: list[str]) -> Iterator[str]:
    """The lines around each command, as far as they are indented at least as it is."""
    blank = 10_000
    depths = [len(line) - len(line.lstrip()) if line.strip() else blank for line in lines]
    columns = [depth + 2 * line.lstrip().startswith("- ") for depth, line in zip(depths, lines, strict=True)]
    end = 0
    for at, line in enumerate(lines):
        if at < end or not re.match(r" *(?:- )?(?:command|args|entrypoint) *:", line):
            continue
        start = at
        # Up to the "- " that the mapping begins with.
        while start > end and columns[start - 1] >= columns[at] and not depths[start] < columns[start] == columns[at]:
            start -= 1
        end = next((below for below in range(at + 1, len(lines)) if depths[below] < columns[at]), len(lines))
        yield "\n".join([lines[start].replace("- ", "  ", 1), *lines[start + 1 : end]])
