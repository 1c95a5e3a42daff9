"""Keys of SSH: what of an identity file can be read without its passphrase, and key pairs that can sign.

Functions on files block; they raise OSError, and ValueError for bad content.
"""

import asyncio
import base64
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import asyncssh


class NeedsPassphrase(Exception):
    """The key file is encrypted."""


def public_part(path: Path) -> asyncssh.SSHKey | None:
    """The public key of an identity file without its passphrase: from `.pub`, the file itself, or its open part."""
    for name in (f"{path}.pub", str(path)):
        with contextlib.suppress(OSError, ValueError):
            return asyncssh.read_public_key(name)
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = path.read_bytes().split(b"-----")
        if lines[1] != b"BEGIN OPENSSH PRIVATE KEY":
            return None
        # openssh-key-v1 (PROTOCOL.key of OpenSSH): magic, cipher, kdf, kdf options, number of keys, public key
        data = base64.b64decode(lines[2])
        at = len(b"openssh-key-v1\0")
        for _ in range(3):
            at += 4 + int.from_bytes(data[at : at + 4], "big")
        at += 4
        blob = data[at + 4 : at + 4 + int.from_bytes(data[at : at + 4], "big")]
        name_length = int.from_bytes(blob[:4], "big")
        return asyncssh.import_public_key(blob[4 : 4 + name_length] + b" " + base64.b64encode(blob))
    return None


def private_key(path: Path, passphrase: str | None) -> asyncssh.SSHKey:
    """The private key. Raises NeedsPassphrase, ValueError for a wrong one, ImportError for a missing helper."""
    try:
        return asyncssh.read_private_key(path, passphrase)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        if "bcrypt" in str(error):  # an optional helper of asyncssh
            raise ImportError("encrypted keys need the Python package bcrypt: pip install bcrypt") from None
        if passphrase is None and "assphrase" in str(error):
            raise NeedsPassphrase from None
        raise


def key_pairs(
    source: Any,
    passphrase: Callable[[str], Awaitable[str]],
    certificates: Sequence[Path],
    loop: asyncio.AbstractEventLoop,
) -> Sequence[asyncssh.SSHKeyPair]:
    """A private key, or (path, public key) of one that is read when it is to sign; alone and with certificates."""
    if isinstance(source, tuple):
        source = (str(source[0]), source[1])
    load: Any = asyncssh.load_keypairs  # takes a coroutine function too, which its types leave out
    pairs: Sequence[asyncssh.SSHKeyPair] = load(
        [source], passphrase, [str(file) for file in certificates], True, loop=loop
    )
    return pairs


def generate_key() -> tuple[str, str]:
    """A new ed25519 key: (private in OpenSSH's format, public as `type base64`)."""
    key = asyncssh.generate_private_key("ssh-ed25519")
    return key.export_private_key().decode(), " ".join(key.export_public_key().decode().split()[:2])
