"""Errors that reach a user: one clear line that says what, where and how to fix it.

Every error carries the slug that `--json` prints as `error`, and the exit code of the command line:
1 the thing asked about failed, 2 unknown run, profile, file, flag or value, 3 host, 4 timed out.
"""

import errno
from collections.abc import Mapping
from enum import StrEnum

from tui.core.hints import Action, Hint


class Slug(StrEnum):
    """What went wrong, as scripts read it: `error` of every JSON document. Programs on a host may name others."""

    AMBIGUOUS_HOST = "ambiguous_host"
    AMBIGUOUS_RESULT = "ambiguous_result"
    AMBIGUOUS_RUN = "ambiguous_run"
    AUTH_FAILED = "auth_failed"
    BAD_ANSWER = "bad_answer"
    BAD_CONFIG = "bad_config"
    BAD_DATASET = "bad_dataset"
    BAD_HTTP = "bad_http"
    BAD_NAME = "bad_name"
    BAD_PROFILE = "bad_profile"
    BAD_REGEX = "bad_regex"
    BAD_SEARCH = "bad_search"
    BAD_VALUE = "bad_value"
    BROKEN_ROWS = "broken_rows"
    BUSY = "busy"
    CANNOT_WRITE = "cannot_write"
    CHANGED = "changed"
    DEMO = "demo"
    DISK_FULL = "disk_full"
    DROPPED = "dropped"
    EXISTS = "exists"
    FAILED = "failed"
    FOREIGN = "foreign"
    FOREIGN_BENCHMARK = "foreign_benchmark"
    FORWARDING_PROHIBITED = "forwarding_prohibited"
    GENERATOR_FAILED = "generator_failed"
    HOST = "host"
    HOST_KEY_CHANGED = "host_key_changed"
    HOST_KEY_REVOKED = "host_key_revoked"
    HOST_KEY_UNKNOWN = "host_key_unknown"
    HOST_UNKNOWN = "host_unknown"
    INTERNAL = "internal"
    INTERRUPTED = "interrupted"
    KILLED = "killed"
    LINK_LOST = "link_lost"
    LOOKS = "looks"
    LOST = "lost"
    MEASURED = "measured"
    NOTHING_RECOGNISED = "nothing_recognised"
    NOTHING_TO_RESUME = "nothing_to_resume"
    NOT_COLLECTABLE = "not_collectable"
    NOT_COMPARABLE = "not_comparable"
    NOT_GENERATING = "not_generating"
    NOT_READY = "not_ready"
    NOT_SSH = "not_ssh"
    NOT_STARTED = "not_started"
    NO_ANSWER = "no_answer"
    NO_COMMAND = "no_command"
    NO_ENDPOINT = "no_endpoint"
    NO_LOG = "no_log"
    NO_MODEL = "no_model"
    NO_PYTHON = "no_python"
    NO_RATE = "no_rate"
    NO_STATE_DIR = "no_state_dir"
    NO_TERMINAL = "no_terminal"
    OS_ERROR = "os_error"
    OTHER_NAMESPACE = "other_namespace"
    PREFLIGHT = "preflight"
    PROXY_FAILED = "proxy_failed"
    REFUSED = "refused"
    SAME_LAUNCHES = "same_launches"
    SEARCH_FAILED = "search_failed"
    SERVER_LOST = "server_lost"
    SSH_CONFIG = "ssh_config"
    STOPPED = "stopped"
    TIMEOUT = "timeout"
    TOO_LARGE = "too_large"
    TOO_LONG = "too_long"
    TOO_MUCH_OUTPUT = "too_much_output"
    UNAUTHORIZED = "unauthorized"
    UNKNOWN_ENTRY = "unknown_entry"
    UNKNOWN_FILE = "unknown_file"
    UNKNOWN_PROFILE = "unknown_profile"
    UNKNOWN_RESULT = "unknown_result"
    UNKNOWN_RUN = "unknown_run"
    UNREACHABLE = "unreachable"
    UNREADABLE = "unreadable"
    UNREADABLE_COMMAND = "unreadable_command"
    UNREADABLE_FILE = "unreadable_file"
    UNSUPPORTED = "unsupported"
    UNSUPPORTED_HOST = "unsupported_host"
    USAGE = "usage"
    WRITE_FAILED = "write_failed"
    WRONG_API = "wrong_api"
    WRONG_DRIVER = "wrong_driver"
    WRONG_KIND = "wrong_kind"


class EagletuiError(Exception):
    """Base of everything we raise on purpose.

    Args:
        message: one line, no trailing full stop; text of a host in it is already sanitised.
        hint: what to do about it, or None; a `Hint` where each face has its own way to it.
        slug: machine-readable name, overrides the class's own.
    """

    slug: str = Slug.FAILED
    exit_code = 1
    details: Mapping[str, object] = {}  # further keys of the JSON document

    def __init__(self, message: str, hint: str | Hint | None = None, *, slug: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if slug is not None:
            self.slug = slug


class UsageError(EagletuiError):
    """The caller named something that does not exist or cannot be read (exit code 2)."""

    slug = Slug.USAGE
    exit_code = 2


class HostError(EagletuiError):
    """The host cannot be reached or used (exit code 3)."""

    slug = Slug.HOST
    exit_code = 3


class LinkLost(HostError):
    """The link died while something was under way; what was asked may or may not have happened."""

    slug = Slug.LINK_LOST


class TimedOut(EagletuiError):
    """Our own deadline passed (exit code 4); never raised for a dead link."""

    slug = Slug.TIMEOUT
    exit_code = 4


def of_system(error: OSError) -> EagletuiError:
    """What this machine refused: a full disk, a directory that cannot be written."""
    where = f"{error.filename}: " if error.filename else ""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "free some space" if full else Hint(Action.PATHS)
    return EagletuiError(f"{where}{error.strerror or error}", hint, slug=Slug.OS_ERROR)
