"""Where an SSH connection goes and how: the outcome of ~/.ssh/config, or given outright."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path


class HostKeyPolicy(StrEnum):
    """StrictHostKeyChecking, without its "off": a changed key is never taken."""

    ASK = "ask"
    ACCEPT_NEW = "accept-new"
    STRICT = "strict"


@dataclass(frozen=True)
class SshTarget:
    """One SSH server. Paths are absolute, tokens expanded.

    Attributes:
        address: name or IP address to connect to.
        name: as the user names it, for messages; the address where empty.
        identity_files: private keys, tried after those of the agent; missing ones are skipped.
        identities_only: the agent may only use keys of `identity_files`.
        agent: socket of the agent, None for no agent.
        pinned_host_key: `type base64`; only this key is taken, and no known_hosts file is read or written.
        known_hosts: files read, and the first of them written; empty: kept in memory only.
        via: the jump host before this one.
        proxy_command: run in place of a TCP connection.
    """

    address: str
    port: int = 22
    user: str = ""
    name: str = ""
    identity_files: tuple[Path, ...] = ()
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: str | None = None
    pinned_host_key: str | None = None
    known_hosts: tuple[Path, ...] = ()
    system_known_hosts: tuple[Path, ...] = ()
    host_key_alias: str | None = None
    hash_known_hosts: bool = False
    policy: HostKeyPolicy = HostKeyPolicy.ASK
    via: "SshTarget | None" = None
    proxy_command: str | None = None
    family: str = "any"  # any, inet, inet6
    bind_address: str | None = None
    connect_timeout_s: float = 10.0
    methods: tuple[str, ...] = field(
        default=("publickey", "keyboard-interactive", "password"), kw_only=True
    )  # authentication, in this order

    @property
    def label(self) -> str:
        """The name for messages."""
        return self.name or self.address

    @property
    def where(self) -> str:
        """user@address:port."""
        return f"{self.user}@{self.address}:{self.port}" if self.user else f"{self.address}:{self.port}"
