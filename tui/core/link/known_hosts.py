"""The user's known_hosts files, line by line: one bad line never hides the others.

The format is that of sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT": `[marker] patterns keytype base64 [comment]`, patterns
separated by commas, with `*`, `?` and `!`, or hashed as `|1|salt|HMAC-SHA1`; `[host]:port` where the port is not 22.
Files are read as Latin-1, which maps every byte: a comment in another encoding is none of our business.
"""

import base64
import binascii
import contextlib
import fcntl
import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

SSH_PORT = 22


class Verdict(Enum):
    """What the files say about a key that a server offers."""

    TRUSTED = "trusted"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"


@dataclass(frozen=True)
class KnownKey:
    """One line that names the host we look for."""

    path: Path
    line: int  # from 1
    marker: str  # "", "@cert-authority" or "@revoked"
    key_type: str
    blob: bytes  # the public key in its wire form

    @property
    def where(self) -> str:
        """file:line."""
        return f"{self.path}:{self.line}"


@dataclass(frozen=True)
class HostKeys:
    """Everything the files say about one host."""

    name: str  # host or [host]:port, as a line about it is written and as `ssh-keygen -R` wants it
    keys: tuple[KnownKey, ...] = ()
    bad_lines: tuple[str, ...] = ()  # file:line of lines that are not in the format

    def _with(self, marker: str) -> tuple[KnownKey, ...]:
        return tuple(key for key in self.keys if key.marker == marker)

    @property
    def trusted(self) -> tuple[KnownKey, ...]:
        """Keys the host may show."""
        return self._with("")

    @property
    def authorities(self) -> tuple[KnownKey, ...]:
        """Keys that may sign the host's certificate."""
        return self._with("@cert-authority")

    @property
    def revoked(self) -> tuple[KnownKey, ...]:
        """Keys that must never be taken."""
        return self._with("@revoked")

    def judge(self, blob: bytes, key_type: str) -> tuple[Verdict, KnownKey | None]:
        """The verdict on an offered key and the line that decided it, None for an unknown host.

        A host of which any key is known and which shows another one is changed, of whatever type that one is.
        """
        for key in self.revoked:
            if key.blob == blob:
                return Verdict.REVOKED, key
        for key in self.trusted:
            if key.blob == blob:
                return Verdict.TRUSTED, key
        same_type = [key for key in self.trusted if key.key_type == key_type]
        others = same_type or list(self.trusted)
        return (Verdict.CHANGED, others[0]) if others else (Verdict.UNKNOWN, None)


def host_name(host: str, port: int) -> str:
    """The name under which known_hosts lists a host and port."""
    host = host.lower()
    return host if port == SSH_PORT else f"[{host}]:{port}"


def fingerprint(blob: bytes) -> str:
    """SHA256:…, as OpenSSH prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def _pattern_matches(pattern: str, name: str) -> bool:
    regex = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern.lower())
    return re.fullmatch(regex, name) is not None


def _hash_matches(field: str, name: str) -> bool:
    try:
        _, version, salt, digest = field.split("|")
        if version != "1":
            return False
        wanted = base64.b64decode(digest, validate=True)
        made = hmac.digest(base64.b64decode(salt, validate=True), name.encode(), "sha1")
    except (ValueError, binascii.Error):
        return False
    return hmac.compare_digest(wanted, made)


def _names_host(field: str, name: str) -> bool:
    if field.startswith("|"):
        return _hash_matches(field, name)
    named = False
    for pattern in field.split(","):
        if pattern.startswith("!"):
            if _pattern_matches(pattern[1:], name):
                return False
        elif pattern and _pattern_matches(pattern, name):
            named = True
    return named


def parse_line(line: str) -> tuple[str, str, str, bytes] | None:
    """(marker, host field, key type, blob) of a line, or None where it is not in the format."""
    words = line.split(None, 4) if line.startswith("@") else ["", *line.split(None, 3)]
    if len(words) < 4 or words[0] not in ("", "@cert-authority", "@revoked"):
        return None
    try:
        blob = base64.b64decode(words[3], validate=True)
    except (ValueError, binascii.Error):
        return None
    # The wire form repeats the type: it tells a whole key from a cut one that still is base64.
    length = int.from_bytes(blob[:4], "big")
    if blob[4 : 4 + length] != words[2].encode("latin-1"):
        return None
    return words[0], words[1], words[2], blob


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="latin-1")
    except OSError:
        return ""  # a missing or unreadable file is an empty one, as for OpenSSH


def lookup(files: Iterable[Path], host: str, port: int, *, alias: str | None = None) -> HostKeys:
    """What the files say about a host. With a non-default port, lines about the bare host are used if no other is.

    Args:
        files: user files first, then the system's; missing ones are empty.
        alias: HostKeyAlias, looked up in place of host and port.
    """
    names = [alias.lower(), host_name(alias, port)] if alias else [host_name(host, port), host.lower()]
    found: dict[str, list[KnownKey]] = {name: [] for name in names}
    bad: list[str] = []
    for path in files:
        for number, raw in enumerate(_read(path).split("\n"), start=1):
            line = raw.strip()
            if not line or line.startswith("#"):
                continue
            parsed = parse_line(line)
            if parsed is None:
                bad.append(f"{path}:{number}")
                continue
            marker, field, key_type, blob = parsed
            for name in found:
                if _names_host(field, name):
                    found[name].append(KnownKey(path, number, marker, key_type, blob))
    keys = next((keys for keys in found.values() if keys), [])
    return HostKeys(names[0], tuple(keys), tuple(bad))


def append(path: Path, name: str, key_type: str, blob: bytes, *, hashed: bool = False) -> None:
    """Adds one line; what is there stays untouched, and a last line without its newline is closed first.

    The name is hashed if asked for, or if the file already holds hashed names. Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(descriptor, "rb+", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        before = file.read()
        if hashed or re.search(rb"^\|1\|", before, re.MULTILINE):
            salt = secrets.token_bytes(20)
            digest = hmac.digest(salt, name.encode(), "sha1")
            name = f"|1|{base64.b64encode(salt).decode()}|{base64.b64encode(digest).decode()}"
        line = f"{name} {key_type} {base64.b64encode(blob).decode()}\n".encode()
        if before and not before.endswith(b"\n"):
            line = b"\n" + line
        if file.write(line) != len(line):
            with contextlib.suppress(OSError):
                file.truncate(len(before))
            raise OSError("short write")
