"""Who a host is: the decision about its key, the question to a person, the words of a refusal."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path

from tui.core.errors import HostError, Slug
from tui.core.link import known_hosts
from tui.core.link.known_hosts import HostKeys, KnownKey, Verdict, fingerprint
from tui.core.link.ssh_target import SshTarget
from tui.core.link.transport import HostKeyChanged, HostKeyQuestion

# What OpenSSH prefers for a host it does not know; asyncssh alone would store an RSA key where ssh stores another.
_PREFERRED = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
_RSA = ("rsa-sha2-512", "rsa-sha2-256")
_CERTIFICATES = tuple(f"{name}-cert-v01@openssh.com" for name in (*_PREFERRED, *_RSA))


@dataclass(frozen=True)
class OfferedKey:
    """The key that a server showed. `blob` is its wire form."""

    key_type: str
    blob: bytes

    @property
    def fingerprint(self) -> str:
        """SHA256:…"""
        return fingerprint(self.blob)


def _key_from_text(text: str, where: str) -> KnownKey:
    parsed = known_hosts.parse_line(f"pinned {text}")
    if parsed is None:
        raise HostError(f"{where}: the pinned host key cannot be read", slug=Slug.SSH_CONFIG)
    return KnownKey(Path(where), 0, "", parsed[2], parsed[3])


@dataclass
class HostCheck:
    """Judges the key of one connection; `offered`, `verdict` and `line` tell afterwards what happened."""

    target: SshTarget
    keys: HostKeys
    accepted: OfferedKey | None = None  # a person said yes to this very key
    offered: OfferedKey | None = field(default=None, init=False)
    verdict: Verdict | None = field(default=None, init=False)
    line: KnownKey | None = field(default=None, init=False)

    @classmethod
    def load(cls, target: SshTarget, accepted: OfferedKey | None = None) -> "HostCheck":
        """Reads the files that name the target; a pinned key stands for all of them."""
        if target.pinned_host_key is not None:
            key = _key_from_text(target.pinned_host_key, target.label)
            return cls(target, HostKeys(known_hosts.host_name(target.address, target.port), (key,)))
        keys = known_hosts.lookup(
            (*target.known_hosts, *target.system_known_hosts), target.address, target.port, alias=target.host_key_alias
        )
        return cls(target, keys, accepted)

    def accept(self, key_type: str, blob: bytes) -> bool:
        """Whether the connection may go on with this key."""
        self.offered = OfferedKey(key_type, blob)
        self.verdict, self.line = self.keys.judge(blob, key_type)
        if self.verdict is Verdict.UNKNOWN and self.accepted is not None:
            self.verdict = Verdict.TRUSTED if self.accepted.blob == blob else Verdict.CHANGED
        return self.verdict is Verdict.TRUSTED

    def algorithms(self) -> list[str]:
        """Signature algorithms to ask for: of the keys we know first, so that the server shows one of those.

        The others follow, so that a host that dropped its old key is told from one that speaks no common language.
        """
        known = [self.accepted.key_type] if self.accepted else [key.key_type for key in self.keys.trusted]
        names = [name for kind in known for name in (_RSA if kind == "ssh-rsa" else (kind,))]
        certificates = _CERTIFICATES if self.keys.authorities else ()
        return list(dict.fromkeys((*certificates, *names, *_PREFERRED, *_RSA)))

    def question(self, hop: str | None, ip: str | None) -> HostKeyQuestion:
        """What to ask about an unknown key."""
        assert self.offered is not None
        return HostKeyQuestion(
            host=self.target.label,
            address=self.target.where,
            ip=ip if ip != self.target.address else None,
            key_type=self.offered.key_type,
            fingerprint=self.offered.fingerprint,
            hop=hop,
        )

    def refusal(self, hop: str | None) -> HostError:
        """Why the key was not taken."""
        assert self.offered is not None
        who = f"jump host {self.target.label}" if hop else self.target.label
        if self.verdict is Verdict.UNKNOWN:
            return HostError(
                f"{who}: the host key is not known ({self.offered.key_type} {self.offered.fingerprint})",
                "compare the fingerprint with one from a trusted source, then connect again and accept it",
                slug=Slug.HOST_KEY_UNKNOWN,
            )
        if self.verdict is Verdict.REVOKED:
            assert self.line is not None
            return HostError(
                f"{who}: the host shows a revoked key ({self.offered.fingerprint}, revoked in {self.line.where})",
                "do not connect; ask whoever runs the host",
                slug=Slug.HOST_KEY_REVOKED,
            )
        if self.line is None:  # the accepted key and the next one differ
            assert self.accepted is not None
            return HostKeyChanged(
                f"{who}: the host key changed between your answer and the connection:"
                f" accepted {self.accepted.fingerprint}, shown now {self.offered.fingerprint}",
                "someone may be between you and the host; do not connect",
                key_type=self.offered.key_type,
                fingerprint=self.offered.fingerprint,
                known_type=self.accepted.key_type,
                known_fingerprint=self.accepted.fingerprint,
                where=None,
                remedy=None,
            )
        pinned = self.target.pinned_host_key is not None
        remedy = (
            None if pinned else f"ssh-keygen -f {shlex.quote(str(self.line.path))} -R {shlex.quote(self.keys.name)}"
        )
        return HostKeyChanged(
            f"{who}: the host key has changed: {self.offered.key_type} {self.offered.fingerprint} is shown,"
            f" {fingerprint(self.line.blob)} is known" + ("" if pinned else f" ({self.line.where})"),
            f"only if you know why it changed: {remedy}" if remedy else "start the host again",
            key_type=self.offered.key_type,
            fingerprint=self.offered.fingerprint,
            known_type=self.line.key_type,
            known_fingerprint=fingerprint(self.line.blob),
            where=None if pinned else self.line.where,
            remedy=remedy,
        )

    def remember(self) -> str | None:
        """Writes an accepted key to the user's first known_hosts file; a notice where that fails."""
        if self.accepted is None or not self.target.known_hosts:
            return None
        path = self.target.known_hosts[0]
        try:
            known_hosts.append(
                path, self.keys.name, self.accepted.key_type, self.accepted.blob, hashed=self.target.hash_known_hosts
            )
        except OSError as error:
            return f"the host key could not be saved in {path}: {error.strerror or error}"
        return None
