"""What ~/.ssh/config says about a host, asked of OpenSSH itself (`ssh -G`).

`ssh -G` evaluates Host, Match (with exec), Include and /etc/ssh, and prints one normalised `key value` a line; it
leaves the percent tokens of most values as they are, so those are expanded here (ssh_config(5), TOKENS). Unlike ssh
we follow $HOME where it differs from the account's home directory, so that a try-out leaves the real one alone;
`EAGLETUI_SSH_CONFIG` names another file, like `ssh -F`.
"""

import asyncio
import getpass
import hashlib
import os
import pwd
import re
import shlex
import shutil
import socket
from dataclasses import dataclass, replace
from pathlib import Path

from tui.core.errors import HostError, Slug
from tui.core.link.ssh_target import HostKeyPolicy, SshTarget
from tui.core.text import one_line

_TIMEOUT_S = 10.0  # Match exec may take its time
_MAX_HOPS = 8
_METHODS = {
    "publickey": "pubkeyauthentication",
    "keyboard-interactive": "kbdinteractiveauthentication",
    "password": "passwordauthentication",
}
_DEFAULT_KEYS = ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk")  # ssh_config(5), IdentityFile
_MULTIPLE = frozenset({"identityfile", "certificatefile"})

Settings = dict[str, list[str]]


@dataclass(frozen=True)
class HostSpec:
    """A host as typed: alias, user@host, user@host:port, [v6]:port, ssh://user@host:port."""

    host: str
    user: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str) -> "HostSpec":
        """Raises HostError for what cannot be a host."""
        rest = text.strip().removeprefix("ssh://").rstrip("/")
        user, at, rest = rest.rpartition("@")
        found = re.fullmatch(r"\[([^\]]+)\](?::(\d+))?|([^:]+):(\d+)|(.+)", rest)
        host = next((part for part in found.group(1, 3, 5) if part), "") if found else ""
        port = next((part for part in found.group(2, 4) if part), None) if found else None
        if not host or host.startswith("-") or re.search(r"[\s\x00-\x1f]", text.strip()) or (at and not user):
            raise HostError(
                f"{one_line(text) or 'an empty text'} is not a host",
                "give an alias of ~/.ssh/config, or user@host:port",
                slug=Slug.HOST_UNKNOWN,
            )
        if port is not None and not 0 < int(port) < 65536:
            raise HostError(
                f"{one_line(text)}: there is no port {port}", "ports are 1 to 65535", slug=Slug.HOST_UNKNOWN
            )
        return cls(host, user or None, int(port) if port else None)


def _account_home() -> str:
    return pwd.getpwuid(os.getuid()).pw_dir


def _config_file() -> Path | None:
    """The file to read in place of the account's own, or None."""
    given = os.environ.get("EAGLETUI_SSH_CONFIG")
    if given:
        return Path(given).expanduser()
    home = os.environ.get("HOME")
    if home and os.path.realpath(home) != os.path.realpath(_account_home()):
        own = Path(home) / ".ssh" / "config"
        return own if own.is_file() else None
    return None


def _parse(output: str) -> Settings:
    settings: Settings = {}
    for line in output.splitlines():
        key, _, value = line.partition(" ")
        if key in settings and key not in _MULTIPLE:
            continue
        settings.setdefault(key.lower(), []).append(value.strip())
    return settings


async def _ask_ssh(ssh: str, spec: HostSpec) -> Settings:
    arguments = [ssh, "-G"]
    file = _config_file()
    if file is not None:
        arguments += ["-F", str(file)]
    if spec.user:
        arguments += ["-l", spec.user]
    if spec.port:
        arguments += ["-p", str(spec.port)]
    process = await asyncio.create_subprocess_exec(
        *arguments,
        "--",
        spec.host,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            output, errors = await process.communicate()
    except TimeoutError:
        raise HostError(
            f"{spec.host}: ssh -G gave no answer within {_TIMEOUT_S:g} s",
            "look at the Match exec lines in ~/.ssh/config",
            slug=Slug.SSH_CONFIG,
        ) from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        lines = errors.decode("utf-8", "replace").strip().splitlines()
        # The first line has file and number, the last one only counts them.
        said = one_line(lines[0]) if lines else f"ssh -G ended with status {process.returncode}"
        raise HostError(
            f"{one_line(spec.host)}: the SSH configuration cannot be used: {said}",
            "fix that line, or give user@host:port with EAGLETUI_SSH_CONFIG=/dev/null",
            slug=Slug.SSH_CONFIG,
        )
    return _parse(output.decode("utf-8", "replace"))


def _parse_without_ssh(path: Path, host: str, user: str | None, port: int | None) -> Settings:
    """~/.ssh/config by asyncssh's parser, where there is no `ssh` to ask; keys in lower case as `ssh -G` prints them.

    Raises HostError (slug ssh_config) where the parser, which is stricter than OpenSSH, cannot read the file.
    """
    if not path.is_file():
        return {}
    from asyncssh.config import SSHClientConfig  # takes a while to import

    try:
        options = SSHClientConfig.load(
            None, [path], False, False, False, getpass.getuser(), user or (), host, port or ()
        ).get_options(False)
    except (OSError, ValueError, RecursionError) as error:
        raise HostError(
            f"{host}: the SSH configuration cannot be used: {one_line(str(error))}",
            "fix that line, or give user@host:port with EAGLETUI_SSH_CONFIG=/dev/null",
            slug=Slug.SSH_CONFIG,
        ) from None
    found: Settings = {}
    for name, value in options.items():
        if isinstance(value, bool):
            found[name.lower()] = ["yes" if value else "no"]
        elif name in ("ProxyJump", "ProxyCommand") and isinstance(value, list):
            found[name.lower()] = [shlex.join(map(str, value))]
        else:
            found[name.lower()] = [str(part) for part in value] if isinstance(value, list) else [str(value)]
    return found


def _expand(text: str, tokens: dict[str, str]) -> str:
    """Percent tokens and ${VARIABLES}; an unknown one stays as it is."""
    text = re.sub(r"%(.)", lambda found: tokens.get(found.group(1), found.group()), text)
    return re.sub(r"\$\{(\w+)\}", lambda found: os.environ.get(found.group(1), found.group()), text)


def _path(text: str, tokens: dict[str, str]) -> Path:
    home = os.environ.get("HOME") or _account_home()
    path = _expand(text.strip('"'), tokens)
    if path.startswith("~"):
        path = os.path.expanduser(path)
    ours, account = os.path.realpath(home), _account_home()
    if ours != os.path.realpath(account) and path.startswith(f"{account}/.ssh/") and "%" not in text:
        path = f"{home}/.ssh/{path.removeprefix(f'{account}/.ssh/')}"  # a default of ssh, which knows no $HOME
    return Path(path)


def _files(values: list[str], tokens: dict[str, str]) -> tuple[Path, ...]:
    """Files that stand one a line."""
    return tuple(_path(value, tokens) for value in values if value not in ("none", "/dev/null"))


def _file_list(values: list[str], tokens: dict[str, str]) -> tuple[Path, ...]:
    """Files that stand together on a line; names with spaces are printed unquoted, so the whole may be one name."""
    found: list[str] = []
    for value in values:
        found += [value] if _path(value, tokens).exists() else value.split()
    return _files(found, tokens)


def _agent(value: str, tokens: dict[str, str]) -> str | None:
    """The socket of the agent that IdentityAgent names."""
    if value == "none":
        return None
    if value == "SSH_AUTH_SOCK" or value.startswith("$"):
        return os.environ.get(value.lstrip("$").strip("{}")) or None
    return str(_path(value, tokens)) if value else None


def _target(spec: HostSpec, settings: Settings, name: str) -> SshTarget:
    def one(key: str, default: str = "") -> str:
        values = settings.get(key)
        return values[0] if values else default

    local_user = getpass.getuser()
    user = spec.user or one("user", local_user)
    address = one("hostname", spec.host).replace("%h", spec.host)
    port = int(one("port", str(spec.port or 22)))
    host_name = socket.gethostname()
    tokens = {
        "%": "%",
        "h": address,
        "n": spec.host,
        "p": str(port),
        "r": user,
        "u": local_user,
        "d": os.environ.get("HOME") or _account_home(),
        "i": str(os.getuid()),
        "l": host_name,
        "L": host_name.partition(".")[0],
        "k": one("hostkeyalias") or spec.host,
        "j": one("proxyjump"),
        "C": hashlib.sha1(
            f"{host_name}{address}{port}{user}{one('proxyjump')}".encode(), usedforsecurity=False
        ).hexdigest(),
    }
    timeout = one("connecttimeout", "none")
    preferred = [method for method in one("preferredauthentications").split(",") if method in _METHODS]
    enabled = [m for m in preferred or _METHODS if one(_METHODS[m], "yes") not in ("no", "false")]
    policy = {"accept-new": HostKeyPolicy.ACCEPT_NEW, "yes": HostKeyPolicy.STRICT, "true": HostKeyPolicy.STRICT}.get(
        one("stricthostkeychecking"), HostKeyPolicy.ASK
    )
    proxy = one("proxycommand", "none")
    bind = one("bindaddress", "none")
    return SshTarget(
        address=address,
        port=port,
        user=user,
        name=name,
        identity_files=() if one("pubkeyauthentication") == "no" else _files(settings.get("identityfile", []), tokens),
        certificate_files=_files(settings.get("certificatefile", []), tokens),
        identities_only=one("identitiesonly") in ("yes", "true"),
        agent=_agent(one("identityagent", "SSH_AUTH_SOCK").strip('"'), tokens),
        known_hosts=_file_list(settings.get("userknownhostsfile", ["~/.ssh/known_hosts"]), tokens),
        system_known_hosts=_file_list(settings.get("globalknownhostsfile", []), tokens),
        host_key_alias=one("hostkeyalias") or None,
        hash_known_hosts=one("hashknownhosts") in ("yes", "true"),
        policy=policy,
        proxy_command=None if proxy == "none" else _expand(proxy, tokens),
        family=one("addressfamily", "any"),
        bind_address=None if bind == "none" else bind,
        connect_timeout_s=float(timeout) if timeout.isdigit() and int(timeout) else 10.0,
        methods=tuple(enabled),
    )


async def _settings(spec: HostSpec) -> Settings:
    ssh = shutil.which("ssh")
    if ssh is not None:
        return await _ask_ssh(ssh, spec)
    file = _config_file() or Path(os.environ.get("HOME") or _account_home()) / ".ssh" / "config"
    found = await asyncio.to_thread(_parse_without_ssh, file, spec.host, spec.user, spec.port)
    found.setdefault("identityfile", [f"~/.ssh/id_{kind}" for kind in _DEFAULT_KEYS])
    return found


async def resolve(text: str, *, name: str | None = None) -> SshTarget:
    """Where a host as typed leads, with its jump hosts.

    Args:
        text: alias, or user@host:port.
        name: what the user calls it, for messages; `text` where None.

    Raises:
        HostError: slug ssh_config with file and line, or host_unknown for what cannot be a host.
    """
    return await _resolve(HostSpec.parse(text), name or text, 0)


async def _resolve(spec: HostSpec, name: str, depth: int) -> SshTarget:
    if depth > _MAX_HOPS:
        raise HostError(
            f"{name}: more than {_MAX_HOPS} jump hosts",
            "does a ProxyJump in ~/.ssh/config lead back to itself?",
            slug=Slug.SSH_CONFIG,
        )
    settings = await _settings(spec)
    target = _target(spec, settings, name)
    jumps = [part for part in settings.get("proxyjump", ["none"])[0].split(",") if part and part != "none"]
    if not jumps:
        return target
    via: SshTarget | None = None
    for jump in jumps:
        hop_spec = HostSpec.parse(jump)
        if via is None:
            via = await _resolve(hop_spec, jump, depth + 1)  # the first one may have its own way in
        else:
            via = replace(_target(hop_spec, await _settings(hop_spec), jump), via=via, proxy_command=None)
    return replace(target, via=via, proxy_command=None)
