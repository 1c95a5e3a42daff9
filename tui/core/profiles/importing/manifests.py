"""Commands in Kubernetes, compose, Helm and other YAML or JSON files: what each container runs, and its environment."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import yaml

from tui.core.profiles.importing.bash_tree import as_written, templates_hidden
from tui.core.profiles.importing.call import SHELLS, Call, Reading, filled
from tui.core.profiles.importing.servers import MENTIONED, server_calls
from tui.core.profiles.importing.unresolved import Unresolved
from tui.core.sglang.flags import flag_table
from tui.core.text import one_line

MAX_ALIASES = 200
MAX_MERGED = 1000  # keys of one mapping
MAX_NESTED = 100
MAX_LEFT = 12  # names in one sentence

# Keys of a compose service, as options of `docker run`.
_BOX_OPTIONS = {
    "network_mode": "--network",
    "ipc": "--ipc",
    "shm_size": "--shm-size",
    "ports": "-p",
    "devices": "--device",
    "runtime": "--runtime",
    "cap_add": "--cap-add",
    "group_add": "--group-add",
    "security_opt": "--security-opt",
    "working_dir": "--workdir",
}
_IN_BOX = frozenset("image volumes privileged deploy restart".split())
_COPIES = ("replicas", "replicaCount", "scale")
_MODELS = ("modelname", "modelpath", "model_path", "model_name", "modelid", "model_id", "model")  # of a chart's values
_COMMANDS = ("entrypoint", "command", "args", "cmd", "module")
# Said of a container elsewhere, or of no meaning for its server.
_QUIET = frozenset(
    """name container_name command args entrypoint cmd module env environment envfrom env_file workingdir working_dir
    imagepullpolicy restart depends_on extends ports networks logging healthcheck livenessprobe readinessprobe startupprobe
    lifecycle stdin tty stdin_open labels hostname securitycontext program type request console path""".split()
)


class _Loader(yaml.SafeLoader):
    """Scalars stay text, as a command line has them; aliases and merges stay few, because they multiply."""

    yaml_implicit_resolvers = {  # noqa: RUF012
        "<": [("tag:yaml.org,2002:merge", re.compile("<<"))],
        "": [("tag:yaml.org,2002:null", re.compile("$"))],
    }
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


_Loader.add_multi_constructor("!", lambda loader, suffix, node: _untagged(loader, node))


def _untagged(loader: yaml.SafeLoader, node: yaml.Node) -> Any:
    """A value with a tag of its own (!Ref, !reset) as if it had none."""
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    return loader.construct_sequence(node, deep=True) if isinstance(node, yaml.SequenceNode) else node.value


def servers_of_manifest(text: str, reading: Reading, depth: int = 0) -> list[Call]:
    """Every server that the containers of a text start, in order: its entry point, followed by its arguments."""
    text, missed = _without_tags(text)
    documents = _documents(templates_hidden(text), missed, reading)
    maps = _config_maps(documents)
    found: list[Call] = []
    others: list[str] = []
    for document in documents:
        before = len(found)
        for call in _calls(document, maps, reading):
            inside = server_calls(call, reading, depth)
            found += [inner.warn("paths are those inside the container") for inner in inside]
            others += [call.where] if call.where and not inside else []
        if len(found) == before and isinstance(document, dict) and isinstance(document.get("kind"), str):
            others.append(as_written(document["kind"]))
    if others := list(dict.fromkeys(others)):
        shown = ", ".join(others[:MAX_LEFT]) + (f" and {len(others) - MAX_LEFT} more" if len(others) > MAX_LEFT else "")
        missed.append(f"other things in the text: {one_line(shown, 300)}")
    return [call.miss(*missed) for call in found]


def _calls(document: Any, maps: Mapping[str, Mapping[str, str]], reading: Reading) -> Iterator[Call]:
    """What each container runs; and scripts under any other key, with the environment that stands beside them."""
    seen: set[int] = set()
    stack: list[tuple[Any, str, Call]] = [(document, "", Call((), {}))] if isinstance(document, dict | list) else []
    while stack:
        value, key, around = stack.pop()
        if isinstance(value, str):
            if MENTIONED.search(value) and not value.lstrip().startswith("{"):
                script = Call(("sh", "-c", as_written(value)), around.env, where=key, inside=True)
                yield script.leave(*around.unresolved).miss(*around.missed).warn(*around.warnings)
            continue
        if not isinstance(value, dict | list) or id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, list):
            script_lines = [item for item in value if isinstance(item, str)]
            if len(script_lines) == len(value) and MENTIONED.search("\n".join(script_lines)):
                stack.append(("\n".join(script_lines), key, around))
            else:
                stack += [(item, key, around) for item in value[::-1]]
            continue
        container = _Container(value, key, maps, reading)
        around = around.warn(*_copies(value))
        calls = [call.warn(*around.warnings) for call in (*container.calls(), *container.of_values())]
        yield from calls
        inner = container.environment(Call((), around.env, warnings=around.warnings))
        used = container.used if calls else set()
        stack += [(item, str(name), inner) for name, item in list(value.items())[::-1] if name not in used]


def _copies(table: Mapping[Any, Any]) -> Iterator[str]:
    """What is said of how many of them there are, where that is not one."""
    for name in _COPIES:
        if isinstance(value := table.get(name), str | int) and str(value) != "1":
            yield f"{name} {one_line(as_written(str(value)), 40)} was left out: a profile is one server"


class _Container:
    """A mapping that may be a container: Kubernetes has command and args, compose entrypoint and command, Docker Cmd."""

    def __init__(
        self, table: dict[Any, Any], key: str, maps: Mapping[str, Mapping[str, str]], reading: Reading
    ) -> None:
        self._table = {str(name).lower(): value for name, value in table.items()}
        self.used = {name for name in table if str(name).lower() in _COMMANDS}
        self._maps = maps
        self._reading = reading
        name = self._table.get("name") or self._table.get("container_name")
        self._where = as_written(name if isinstance(name, str) else key)
        self._compose = not any(name in self._table for name in ("args", "env")) or "entrypoint" in self._table
        self._flavour = "compose" if self._compose else "kubernetes"

    def calls(self) -> Iterator[Call]:
        """The command of the container, where it has one."""
        argv = self._argv()
        if not argv and not isinstance(self._table.get("image"), str):
            return
        call = self.environment(Call(tuple(argv), {}, where=self._where, inside=True, container=self._box()))
        if call.container is not None and (gpus := self._reserved_gpus()):
            call = replace(call, env={"CUDA_VISIBLE_DEVICES": gpus, **call.env})
        known = {} if self._compose else call.env
        if call.program not in SHELLS:
            call = call.filled(self._reading, known, self._flavour)
        elif self._compose:  # what it leaves is the shell's to fill
            call = replace(call, argv=tuple(filled(word, self._reading, {}, [], self._flavour) for word in argv))
        else:
            script = [re.sub(r"(?<!\$)\$\((\w+)\)", lambda m: known.get(m[1], m[0]), word) for word in argv]
            call = replace(call, argv=tuple(word.replace("$$(", "$(") for word in script))
        directory = self._table.get("workingdir") or self._table.get("working_dir")
        if isinstance(directory, str) and call.container is None:
            call = replace(call, cwd=as_written(directory))
        yield self._told(call)

    def of_values(self) -> Iterator[Call]:
        """The server that a chart's values describe without a command: a model, and a list of SGLang's flags."""
        model = next((value for name in _MODELS if isinstance(value := self._table.get(name), str) and value), None)
        if model is None:
            return
        for name, value in self._table.items():
            words = _words(value) if isinstance(value, list) else []
            flags = [word.lstrip("-").partition("=")[0] for word in words if word.startswith("--")]
            if flags and words[0].startswith("--") and name not in _COMMANDS and any(map(flag_table().known, flags)):
                self.used.add(name)
                argv = ("python3", "-m", "sglang.launch_server", "--model-path", as_written(model), *words)
                yield Call(argv, {}, where=self._where, inside=True).filled(self._reading, {}, "helm")
                return

    def _box(self) -> dict[str, object] | None:
        """The `[container]` table of a compose service; None of anything else."""
        image = self._table.get("image")
        if not self._compose or not isinstance(image, str):
            return None
        options: list[str] = []
        for name, option in _BOX_OPTIONS.items():
            value = self._table.get(name)
            for item in value if isinstance(value, list) else [] if value is None else [value]:
                if isinstance(item, str | int) and not isinstance(item, bool) and item != "host":
                    options += [option, as_written(str(item))]
        if self._table.get("privileged") is True:
            options.append("--privileged")
        volumes = self._table.get("volumes")
        mounts = [as_written(item) for item in volumes if isinstance(item, str)] if isinstance(volumes, list) else []
        return {
            "image": as_written(image),
            **({"mounts": mounts} if mounts else {}),
            **({"options": options} if options else {}),
        }

    def _reserved_gpus(self) -> str:
        """The numbers of the GPUs that a compose service reserves: "0,1"; "" where it names none."""
        at: Any = self._table.get("deploy")
        for key in ("resources", "reservations", "devices"):
            at = at.get(key) if isinstance(at, dict) else None
        named = [item.get("device_ids") for item in at if isinstance(item, dict)] if isinstance(at, list) else []
        ids = [str(number) for numbers in named if isinstance(numbers, list) for number in numbers]
        return ",".join(ids) if ids and all(number.isdigit() for number in ids) else ""

    def _told(self, call: Call) -> Call:
        left = []
        restart = self._table.get("restart")
        if call.container is not None and isinstance(restart, str) and restart not in ("no", "never", ""):
            call = call.warn(f"restart {one_line(as_written(restart), 40)} was left out: a run is started once")
        if isinstance(deploy := self._table.get("deploy"), dict):
            call = call.warn(*_copies(deploy))
            if call.container is not None and deploy.get("restart_policy"):
                call = call.warn("restart_policy was left out: a run is started once")
        for name, value in self._table.items():
            if call.container is not None and (name in _BOX_OPTIONS or name in _IN_BOX):
                continue
            if name not in _QUIET and value not in (None, [], {}):
                left.append(f"{name} {as_written(value)}" if isinstance(value, str) else name)
        if left:
            shown = ", ".join(left[:MAX_LEFT]) + (f" and {len(left) - MAX_LEFT} more" if len(left) > MAX_LEFT else "")
            call = call.warn(f"of the container these were left out: {one_line(shown, 300)}")
        return call

    def _argv(self) -> list[str]:
        table = self._table
        entry, rest = table.get("entrypoint"), table.get("command", table.get("cmd"))
        if entry is None:
            entry, rest = rest, table.get("args")
        if isinstance(table.get("module"), str):  # launch.json of an editor
            return ["python3", "-m", table["module"], *_words(table.get("args"))]
        if isinstance(table.get("path"), str) and isinstance(table.get("args"), list) and entry is None:
            return [table["path"], *_words(table["args"])]  # of docker inspect
        if isinstance(entry, str) and rest is None and not isinstance(table.get("args"), list):
            # compose splits it at blanks; a shell does that too, and reads a script
            return ["sh", "-c", as_written(entry)]
        return [*_words(entry), *_words(rest)]

    def environment(self, call: Call) -> Call:
        """The call with what `env` (name and value), `environment` (a mapping, or NAME=value) and their like set."""
        env = dict(call.env)
        for key in ("env", "environment", "envs", "environment_variables"):
            values = self._table.get(key)
            items = list(values.items()) if isinstance(values, dict) else values if isinstance(values, list) else ()
            for item in items:
                name, value, why = self._variable(item)
                given = self._reading.given(name) if name else None
                if (text := value if given is None else given) is not None:
                    found: list[Unresolved] = []
                    known = env if key == "env" else {}
                    env[name] = filled(text, self._reading, known, found, self._flavour)
                    call = call.leave(*found)
                elif why:
                    call = call.leave(Unresolved(name, name, f"{why}: it is left out"))
        for key in ("env_file", "envfrom"):
            sources = self._table.get(key)
            for item in [sources] if isinstance(sources, str | dict) else sources if isinstance(sources, list) else ():
                source = _source(item)
                if source in self._maps:
                    env = {**self._maps[source], **env}
                else:
                    call = call.miss(f"the variables of {one_line(source, 80)}, which is not in this text")
        return replace(call, env=env)

    def _variable(self, item: Any) -> tuple[str, str | None, str]:
        """Name, value and, where the text has no value, the place that it comes from."""
        if isinstance(item, str):
            name, equals, rest = item.partition("=")
            item = (name, rest if equals else None)
        if isinstance(item, tuple):
            key, value = item
            text = as_written(value) if isinstance(value, str) else None
            return as_written(str(key)), text, "comes from the environment of compose"
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            return "", None, ""
        name, value, source = item["name"], item.get("value"), item.get("valueFrom")
        if isinstance(value, str):
            return as_written(name), as_written(value), ""
        if not isinstance(source, dict):
            return as_written(name), None, "has no value"
        kind, at = next(iter(source.items()), ("", None))
        table = at if isinstance(at, dict) else {}
        whole = self._maps.get(str(table.get("name")), {}).get(str(table.get("key")))
        place = "/".join(str(table[k]) for k in ("name", "key", "fieldPath", "resource") if k in table)
        return as_written(name), whole, one_line(f"comes from {kind} {as_written(place)}", 100)


def _source(item: Any) -> str:
    """The name of an env file, a ConfigMap or a Secret."""
    if isinstance(item, dict):
        inner = next((value for value in item.values() if isinstance(value, dict)), item)
        item = inner.get("name") or inner.get("path") or "another file"
    return as_written(str(item))


def _config_maps(documents: list[Any]) -> dict[str, dict[str, str]]:
    """The values of the ConfigMaps of a text, by their names."""
    found = {}
    for document in documents:
        if isinstance(document, dict) and document.get("kind") in ("ConfigMap", "Secret"):
            metadata = document.get("metadata")
            data = document.get("data") if document["kind"] == "ConfigMap" else document.get("stringData")
            if isinstance(metadata, dict) and isinstance(data, dict):
                values = {str(name): value for name, value in data.items() if isinstance(value, str)}
                found[str(metadata.get("name"))] = {name: value for name, value in values.items() if "\n" not in value}
    return found


def _words(value: Any) -> list[str]:
    """A command as words; a text is split while what stands for one value in it is hidden."""
    if isinstance(value, list):
        return [as_written(item) for item in value if isinstance(item, str)]
    if not isinstance(value, str):
        return []
    text = value.replace("\\\n", " ")
    try:
        return list(map(as_written, shlex.split(text)))
    except ValueError:
        return list(map(as_written, text.split()))


# Text to documents -----------------------------------------------------------------------------------------------

_TAG_LINE = re.compile(r"[ \t]*(?:\{\{[^{}\n]*\}\}[ \t]*)+|[ \t]*\{%[^%\n]*%\}[ \t]*")
_TAG = re.compile(r"\{[{%][-+~]?[ \t]*(/\*|#|\$\w+ *:=|\w+)?")


def _without_tags(text: str) -> tuple[str, list[str]]:
    """A template without its lines of control; of alternatives the first stays. Also what was not understood."""
    if "{{" not in text and "{%" not in text:
        return text, []
    lines: list[str] = []
    missed: list[str] = []
    skipping, depths = 0, [False]  # in the other branches of how many blocks; whether each block is in one
    for line in text.split("\n"):
        match = _TAG_LINE.fullmatch(line)
        word = (_TAG.search(line) or [None, None])[1] if match else None
        if word in ("if", "range", "with", "define", "block", "for"):
            depths.append(False)
            if word in ("range", "for"):
                missed.append(f"{one_line(line.strip(), 80)} repeats what stands below it: it was taken once")
        elif word in ("else", "elif"):
            skipping += not depths[-1]
            depths[-1] = True
            missed.append(f"{one_line(line.strip(), 80)} was not taken: the branch before it was")
        elif word in ("end", "endif", "endfor", "endwith") and len(depths) > 1:
            skipping -= depths.pop()
        elif not match and not skipping:
            lines.append(line)
        elif match and not skipping and word is None and re.search(r"\{\{-?[ \t]*\.", line):
            lines.append(line)  # a value
        elif match and not skipping and word not in ("/*", "#", None) and ":=" not in line:
            missed.append(f"{one_line(line.strip(), 80)} is filled in by the template engine")
    inline = r"\{\{-?[ \t]*(?:if|else|end|with)\b[^{}\n]*\}\}|\{%[^%\n]*%\}"
    return re.sub(inline, "", "\n".join(lines)), missed


_KEY = re.compile(
    r"(?m)^[ \t]*(?:- +)*(apiVersion|kind|metadata|spec|services|containers|image|command|args|entrypoint|env|environment|"
    r"ports|volumes|resources|template|name)[ \t]*:"
)


def _place(error: BaseException, text: str) -> str:
    """Where and why YAML does not parse: its line, as it stands there, and the parser's words; "" of what is no manifest."""
    mark = getattr(error, "problem_mark", None)
    if mark is None or len(set(_KEY.findall(text))) < 2:
        return ""
    rows = text.split("\n")
    line = rows[mark.line] if mark.line < len(rows) else ""
    at = f"line {mark.line + 1}" + (f" ({one_line(as_written(line).strip(), 60)})" if line.strip() else "")
    return one_line(f"{at}: {getattr(error, 'problem', None) or 'it cannot be read'}", 200)


def _documents(text: str, missed: list[str], reading: Reading) -> list[Any]:
    """What the text holds; where it is not a whole file (a fragment, a template), the blocks that have a command."""
    if _depth(text) > MAX_NESTED:
        return []
    with suppress(ValueError, RecursionError):
        return [json.loads(text, parse_int=str, parse_float=str)]  # as a command line has them
    wrong = (yaml.YAMLError, RecursionError, ValueError, TypeError)
    # Tabs that indent, and comments of JSON, are none of YAML's.
    text = re.sub(r"(?m)^[ \t]*//.*$|^[ \t]+", lambda m: "" if "/" in m[0] else m[0].replace("\t", "  "), text)
    try:
        documents = list(yaml.load_all(text, _Loader))
    except wrong as error:
        place = _place(error, text)
        reading.broken = reading.broken or place
        documents = []
        for block in _blocks(text.split("\n")):
            with suppress(*wrong):
                documents.append(yaml.load(block, _Loader))
        if documents:
            why = f" ({place})" if place else ""
            missed.append(f"the text is not YAML as a whole{why}: only the parts around a command were read")
    return [_extended(document) for document in documents]


def _depth(text: str) -> int:
    """How deep the brackets of a text are nested: the loader's time grows with the square of that."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", text):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _extended(document: Any) -> Any:
    """A compose file whose services have what the ones that they extend have."""
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict):
        return document

    def whole(service: Any, depth: int = 0) -> Any:
        extends = service.get("extends") if isinstance(service, dict) else None
        if extends is None or depth > 8:
            return service
        name = extends.get("service") if isinstance(extends, dict) else extends
        elsewhere = isinstance(extends, dict) and "file" in extends
        base = None if elsewhere or not isinstance(name, str) else whole(services.get(name), depth + 1)
        if not isinstance(base, dict):
            return {**service, "env_file": [f"the service {name} of another file"]}
        merged = {**base, **service}
        for key in ("environment", "env_file"):
            if key in base and key in service:
                merged[key] = [*_pairs(base[key]), *_pairs(service[key])]
        return merged

    return {**document, "services": {name: whole(service) for name, service in services.items()}}


def _pairs(values: Any) -> list[Any]:
    """NAME=value texts of a mapping or a list."""
    if isinstance(values, dict):
        return [f"{name}={value}" if isinstance(value, str) else str(name) for name, value in values.items()]
    return values if isinstance(values, list) else [values]


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
