"""`eagletui paths`: where files are."""

import click

from tui.commands.options import json_option
from tui.commands.output import emit, say
from tui.core.config import config_dir, data_dir, shipped_profiles_dir, state_dir
from tui.core.journal import entries
from tui.core.results import store
from tui.core.server import launch_records


@click.command()
@json_option
def command(as_json: bool) -> int:
    """Where files are."""
    places = {
        "config": config_dir() / "config.toml",
        "profiles": config_dir() / "profiles",
        "shipped_profiles": shipped_profiles_dir(),
        "patterns": config_dir() / "patterns",
        "launches": launch_records.FILES.directory,
        "results": store.FILES.directory,
        "journal": entries.directory(),
        "data": data_dir(),
        "state": state_dir(),
    }
    if as_json:
        emit({name: str(path) for name, path in places.items()})
        return 0
    for name, path in places.items():
        print(f"{name:<17} {path}{'' if path.exists() else '  (not there yet)'}")
    for files in (launch_records.FILES, store.FILES):
        if (words := files.unreadable_words()) is not None:
            say(words)
    return 0
