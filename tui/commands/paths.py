"""`eagletui paths`: where files are."""

import click

from tui.commands.options import json_option
from tui.commands.output import emit
from tui.core.config import config_dir, data_dir, shipped_profiles_dir, state_dir
from tui.core.results.store import results_dir
from tui.core.server.launch_records import launches_dir


@click.command()
@json_option
def command(as_json: bool) -> int:
    """Where files are."""
    places = {
        "config": config_dir() / "config.toml",
        "profiles": config_dir() / "profiles",
        "shipped_profiles": shipped_profiles_dir(),
        "patterns": config_dir() / "patterns",
        "launches": launches_dir(),
        "results": results_dir(),
        "data": data_dir(),
        "state": state_dir(),
    }
    if as_json:
        emit({name: str(path) for name, path in places.items()})
        return 0
    for name, path in places.items():
        print(f"{name:<17} {path}{'' if path.exists() else '  (not there yet)'}")
    return 0
