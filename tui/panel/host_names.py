"""Names of hosts that can be connected to: configured, of ~/.ssh/config, and typed before."""

import contextlib
from pathlib import Path

from tui.core.config import DEMO_HOSTS
from tui.core.text import one_line

_TYPED_KEPT = 20


def known_hosts() -> list[tuple[str, str]]:
    """Names that can be connected to, and where they come from."""
    from tui.core.config import load_settings
    from tui.core.errors import EagletuiError

    found: dict[str, str] = {}
    with contextlib.suppress(EagletuiError):  # a broken config.toml is reported where it matters
        found.update({name: "config.toml" for name in load_settings().hosts})
    try:
        text = (Path.home() / ".ssh" / "config").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    for line in text.splitlines():
        words = line.replace("=", " ", 1).split()
        if len(words) > 1 and words[0].lower() == "host":
            for name in words[1:]:
                if not set(name) & set('*?!"'):
                    found.setdefault(name, "~/.ssh/config")
    for name in _typed_before():
        found.setdefault(name, "typed here before")
    found.setdefault("local", "this machine")
    for name in DEMO_HOSTS:
        found.setdefault(name, "simulated, 8 GPUs")
    return list(found.items())


def _typed_path() -> Path:
    from tui.core.config import state_dir

    return state_dir() / "typed-hosts"


def _typed_before() -> list[str]:
    try:
        lines = _typed_path().read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return []
    return [name for line in lines if (name := one_line(line, 200))]


def remember_host(name: str) -> None:
    """Keeps the name of a host that was connected to and stands in no file of the user; newest first."""
    from tui.core.config import write_whole

    if name in dict(known_hosts()):
        return
    kept = [name, *_typed_before()][:_TYPED_KEPT]
    with contextlib.suppress(OSError):  # remembering is a convenience
        write_whole(_typed_path(), "\n".join(kept) + "\n")
