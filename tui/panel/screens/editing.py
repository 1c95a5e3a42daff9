"""A profile's file in the user's editor; a shipped one is copied into the user's directory first."""

import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from tui.core.config import config_dir, shipped_profiles_dir
from tui.panel.protocol import Panel
from tui.panel.screens.profile_rows import home_path

if TYPE_CHECKING:
    from textual.app import App


def edited(panel: Panel, app: "App[None]", original: Path) -> Path | None:
    """The file that the user has had open; None where none could be. What went wrong is said."""
    path, copied = original, False
    if _not_ours(original):
        try:
            path, copied = _copied(panel, original)
        except OSError as error:
            panel.say(f"{error.filename} cannot be written: {error.strerror}", severity="error")
            return None
    editor = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    try:
        with app.suspend():
            subprocess.run([*editor, str(path)], check=False)
    except OSError as error:
        panel.say(f"{editor[0]} cannot be started: {error.strerror}; set EDITOR", severity="error")
    except SuspendNotSupported:  # a browser, a test
        panel.say("this terminal cannot be handed to an editor", severity="error")
    if copied and path.read_bytes() == original.read_bytes():
        path.unlink()  # it would hide what later versions ship
        panel.say(f"{original.stem} is unchanged; no copy of it is kept")
        return original
    return path


def _not_ours(path: Path) -> bool:
    """True for a file that came with the program, or that cannot be written."""
    here = path.parent.resolve()
    own = [directory.resolve() for directory in (Path("profiles"), config_dir() / "profiles")]
    return (here == shipped_profiles_dir().resolve() and here not in own) or not os.access(path, os.W_OK)


def _copied(panel: Panel, path: Path) -> tuple[Path, bool]:
    """The user's copy of a profile, and whether it was made now: there was none. Raises OSError."""
    directory = config_dir() / "profiles"
    searched = [place.resolve() for place in panel.profile_dirs()]
    here = path.parent.resolve()
    # Of two files of one name the directory that is searched first wins: there the copy needs another name.
    hidden = here in searched and here != shipped_profiles_dir().resolve()
    copy = directory / (f"{path.stem}-copy.toml" if hidden else path.name)
    new = not copy.exists()
    if new:
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    panel.say(f"{home_path(path)} is unchanged; your copy of it is {home_path(copy)}")
    return copy, new
