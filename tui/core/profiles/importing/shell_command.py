"""A posted launch command, script or manifest becomes a profile. Nothing in it is ever executed.

`posted` finds what kind of text it is and every server in it, `servers` and `wrappers` take off what stands around a
server's call, `written` writes its flags as a profile. Here one server is chosen, and what is said about it is collected.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tui.core.errors import Slug, UsageError
from tui.core.masking.written import mask_text
from tui.core.profiles.importing import batch_job
from tui.core.profiles.importing.bash_tree import unreadable
from tui.core.profiles.importing.call import Call, Reading
from tui.core.profiles.importing.posted import blocks, servers_in, tidied
from tui.core.profiles.importing.servers import flags_start, model_word, names_model
from tui.core.profiles.importing.unresolved import Unresolved, named
from tui.core.profiles.importing.written import profile_text
from tui.core.profiles.secrets import MASK, is_secret_arg, is_secret_env
from tui.core.profiles.toml_text import masked_profile
from tui.core.sglang.flags import normalise
from tui.core.text import one_line

MAX_TEXT = 128 * 1024  # of a manifest; a shell text has at most MAX_BYTES
MAX_FLAGS = 500
MAX_MISSED = 40  # sentences about what was not understood

_OTHERS = {
    "vLLM": r"\bvllm[ \t]+serve\b|vllm\.entrypoints|vllm/vllm-openai",
    "SGLang's router": r"sglang_router|sglang\.srt\.disaggregation\.mini_lb|sgl-router",
    "Dynamo": r"dynamo\.(?:sglang|vllm|frontend)",
    "TensorRT-LLM": r"\btrtllm-serve\b",
    "llama.cpp": r"\bllama-server\b",
    "a benchmark of SGLang": r"sglang\.bench_\w+",
}

# Lines that only set variables.
_SETTINGS = re.compile(r"(?:[ \t]*(?:\$ )?(?:(?:export[ \t]+)?[A-Za-z_]\w*=[^\n]*|#[^\n]*)?(?:\n|\Z))+")


_TEXT = r"""("[^"]*"?|'[^']*'?|[^\s,;]+)"""
_NAMED = re.compile(r"\b([A-Za-z_]\w*)=(?!\$)" + _TEXT)
_FLAGGED = re.compile(
    r"(--?(?:[\w-]{0,40}(?:token|password|passwd|secret|api[-_]?key|access[-_]?key))[= ])(?!\$)" + _TEXT
)


@dataclass(frozen=True)
class Server:
    """One of the servers in a text."""

    number: int  # what --pick takes; from 1
    where: str  # a line, a container, a program
    differs: str  # its flags that the chosen one has not


@dataclass(frozen=True)
class ImportedCommand:
    """A launch command taken apart."""

    env: Mapping[str, str]  # what the call itself gets beyond the caller's environment
    argv: tuple[str, ...]  # of the innermost server call, flags as typed
    profile: str  # TOML, with whole, present-day flag names
    warnings: tuple[str, ...]  # sentences, those of the next two among them; no secret is in them
    unresolved: tuple[Unresolved, ...]
    not_understood: tuple[str, ...]
    picked: int  # the number of the server
    others: tuple[Server, ...]

    def masked(self) -> "ImportedCommand":
        """The same as a terminal may show it, without its secrets."""
        mask = _Mask(self.argv, self.env, self.unresolved)
        env = {name: MASK if is_secret_env(name, value) else value for name, value in self.env.items()}
        return replace(self, env=env, argv=tuple(map(mask, self.argv)), profile=masked_profile(self.profile))


def import_command(
    text: str, home: str, defines: Mapping[str, str] | None = None, pick: int | None = None
) -> ImportedCommand:
    """Takes shell text apart, or a file that starts a server; `home` is what `~` means.

    `defines` gives values to names that the text leaves open. `pick` chooses among several servers, from 1; the first that
    names a model otherwise. Raises UsageError: no server call in it (slug no_command), none that names a model (no_model),
    no such server (bad_value), or it cannot be read (unreadable_command).
    """
    if len(text) > MAX_TEXT:
        raise unreadable(f"the text is longer than {MAX_TEXT // 1024} KiB")
    warnings: list[str] = []
    reading = Reading(home, dict(defines or {}))
    servers, nameless = _servers(tidied(text, warnings), reading)
    picks = [number for number, one in enumerate(servers, 1) if not any(word.startswith("<") for word in one.argv)]
    number = next(iter(picks), 1) if pick is None else pick
    if not 1 <= number <= len(servers):
        message = f"the text has {len(servers)} servers: there is no number {number}"
        raise UsageError(message, "choose one of them", slug=Slug.BAD_VALUE)
    call = servers[number - 1]
    if sum(word.startswith("-") for word in call.argv) > MAX_FLAGS:
        raise unreadable(f"the command has more than {MAX_FLAGS} flags")
    env = {k: v for k, v in call.env.items() if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", k) and k != "PATH"}
    missed = [*call.missed, *(f"{_where(one)}: a server call that names no model" for one in nameless)]
    warnings += call.warnings
    if call.slurm is not None:  # what stands in the flags that it sets is nobody's to give
        given = [*batch_job.without_nodes(call.argv), *env.values(), *call.wrapper, call.cwd or ""]
        call = replace(call, unresolved=tuple(named(call.unresolved, given)))
    profile = profile_text(call, _server_flags(call, warnings), env, warnings, missed)
    mask = _Mask(call.argv, env, call.unresolved)
    others = _others(servers, number, mask)
    if others:
        warnings.append(_choice(servers, number, others))
    unused = [name for name in reading.defines if name not in reading.used]
    missed += [f"{name} was given a value, but nothing in the text is called that" for name in unused]
    missed = list(dict.fromkeys(mask(one_line(text)) for text in missed))
    if len(missed) > MAX_MISSED:
        missed = [*missed[:MAX_MISSED], f"and {len(missed) - MAX_MISSED} more"]
    said = [*warnings, *(item.sentence for item in call.unresolved)]
    said = [mask(one_line(text)) for text in said] + missed
    return ImportedCommand(
        env, call.argv, profile, tuple(dict.fromkeys(said)), call.unresolved, tuple(missed), number, others
    )


def _server_flags(call: Call, warnings: list[str]) -> list[str]:
    """A call's words as the server's own flags; `sglang serve` takes the model as a word, and has --model-type."""
    words = list(call.argv[flags_start(call.argv) or 0 :])
    for at, word in enumerate(words):
        if word.partition("=")[0] == "--model-type":
            del words[at : at + 1 + ("=" not in word)]
            warnings.append("--model-type is of sglang serve, not of the server: it was left out")
            break
    return ["--model-path", *words] if model_word(call.argv) else words


def _servers(text: str, reading: Reading) -> tuple[list[Call], list[Call]]:
    """The servers of a text that name a model, and the calls that don't."""
    found: list[Call] = []
    failure: UsageError | None = None
    prelude = ""
    for block, line in blocks(text):
        if _SETTINGS.fullmatch(block):  # what later blocks are run with
            prelude += block + "\n"
            continue
        line -= prelude.count("\n")
        try:
            for call in servers_in(prelude + block, reading):
                found.append(call.without(0, line=call.line + line if call.line else line + 1))
        except UsageError as error:
            failure = failure or error
    if not found:
        try:
            found = servers_in(text, reading)
        except UsageError as error:
            failure = failure or error
    if reading.broken and not any(map(names_model, found)):
        place = _without_secrets(reading.broken)
        raise unreadable(f"the text is YAML that does not parse, {place}", "correct it there")
    if not found and failure:
        raise failure
    if not found:
        raise _no_command(text)
    found = list({(call.argv, tuple(sorted(call.env.items())), call.where): call for call in found}.values())
    whole = [call for call in found if names_model(call)]
    if not whole:
        names = ", ".join(item.name for item in found[0].unresolved)
        hint = (
            f"it may be in {one_line(names, 80)}: give it with --define" if names else "complete it: --model-path PATH"
        )
        raise UsageError(f"{_where(found[0])}: the launch command names no model", hint, slug=Slug.NO_MODEL)
    return whole, [call for call in found if not names_model(call)]


def _no_command(text: str) -> UsageError:
    other = next((name for name, pattern in _OTHERS.items() if re.search(pattern, text)), None)
    message = "there is no SGLang launch command in this text" + (f": it starts {other}" if other else "")
    hint = "it must call python -m sglang.launch_server or sglang serve"
    return UsageError(message, hint, slug=Slug.NO_COMMAND)


def _where(call: Call) -> str:
    place = f"line {call.line}" if call.line else ""
    return ", ".join(filter(None, (place, one_line(call.where, 60)))) or "the text"


def _others(servers: Sequence[Call], number: int, mask: "_Mask") -> tuple[Server, ...]:
    chosen = set(_pairs(servers[number - 1]))
    return tuple(
        Server(at, _where(call), mask(one_line(" ".join(pair for pair in _pairs(call) if pair not in chosen), 120)))
        for at, call in enumerate(servers, 1)
        if at != number
    )


def _pairs(call: Call) -> list[str]:
    """A call's flags, each with its values."""
    pairs: list[str] = []
    for word in call.argv[flags_start(call.argv) or 0 :]:
        if word.startswith("--") or not pairs:
            pairs.append(word)
        else:
            pairs[-1] += f" {word}"
    return pairs


def _choice(servers: Sequence[Call], number: int, others: Sequence[Server]) -> str:
    shown = "; ".join(f"{one.number} ({one.where}) {one.differs or 'with the same flags'}" for one in others[:8])
    more = f" and {len(others) - 8} more" if len(others) > 8 else ""
    chosen = f"number {number}, {_where(servers[number - 1])}, was taken"
    return f"the text has {len(servers)} server calls; {chosen}; the others: {shown}{more}"


class _Mask:
    """Sentences without the secrets of a call."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], stayed: Sequence[Unresolved]) -> None:
        values = [value for name, value in env.items() if is_secret_env(name, value)]
        for word, value in zip(argv, [*argv[1:], ""], strict=True):
            name, equals, attached = word.partition("=")
            given = attached if equals else value
            if name.startswith("--") and is_secret_arg(normalise(name), given):
                values.append(given)
        secret = {value for value in values if len(value) > 3} - {item.text for item in stayed}
        self._values = sorted(secret, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for value in self._values:
            text = text.replace(value, MASK)
            if len(value) > 8:  # one that was cut
                text = re.sub(re.escape(value[:8]) + r"\S*", MASK, text)
        return _without_secrets(text)


def _without_secrets(text: str) -> str:
    """A text without what its own words call a secret."""
    text = _NAMED.sub(lambda m: f"{m[1]}={MASK if is_secret_env(m[1], m[2]) else m[2]}", text)
    return mask_text(_FLAGGED.sub(rf"\1{MASK}", text))
