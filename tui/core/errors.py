"""Errors that reach a user: one clear line that says what, where and how to mend it.

Every error carries the slug that `--json` prints as `error`, and the exit code of the command line:
1 the thing asked about failed, 2 unknown run, profile, file, flag or value, 3 host, 4 timed out.
"""

import errno
from collections.abc import Mapping


class EagletuiError(Exception):
    """Base of everything we raise on purpose.

    Args:
        message: one line, no trailing full stop; text of a host in it is already sanitised.
        hint: how to mend it, one line, or None.
        slug: machine-readable name, overrides the class's own.
    """

    slug = "failed"
    exit_code = 1
    details: Mapping[str, object] = {}  # further keys of the JSON document

    def __init__(self, message: str, hint: str | None = None, *, slug: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if slug is not None:
            self.slug = slug


class UsageError(EagletuiError):
    """The caller named something that does not exist or cannot be read (exit code 2)."""

    slug = "usage"
    exit_code = 2


class HostError(EagletuiError):
    """The host cannot be reached or used (exit code 3).

    Slugs: host_unknown, refused, no_answer, dropped, unreachable, not_ssh, auth_failed, host_key_unknown,
    host_key_changed, host_key_revoked, link_lost, proxy_failed, ssh_config, unsupported_host, no_python.
    """

    slug = "host"
    exit_code = 3


class LinkLost(HostError):
    """The link died while something was under way; what was asked may or may not have happened."""

    slug = "link_lost"


class TimedOut(EagletuiError):
    """Our own deadline passed (exit code 4); never raised for a dead link."""

    slug = "timeout"
    exit_code = 4


def of_system(error: OSError) -> EagletuiError:
    """What this machine refused: a full disk, a directory that cannot be written."""
    where = f"{error.filename}: " if error.filename else ""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "free some space" if full else "eagletui paths says where files go"
    return EagletuiError(f"{where}{error.strerror or error}", hint, slug="os_error")
