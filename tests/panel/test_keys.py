"""The table of keys: every action of it exists, and places that take rows of it name real ones."""

import pytest

from tui.panel.app import EagleApp
from tui.panel.keys import KEYS, Key, bindings, keys
from tui.panel.screens import bench_dialogs, connecting, dialog, host_picker, import_dialog, launch
from tui.panel.screens.bench import Bench
from tui.panel.screens.dashboard import Dashboard
from tui.panel.screens.group import Group
from tui.panel.screens.logs import Logs, Search
from tui.panel.screens.overview import Overview
from tui.panel.screens.profiles import Profiles
from tui.panel.screens.tune import Tune
from tui.panel.widgets.log.head import RankLine
from tui.panel.widgets.log.view import LogView

OWNERS = {
    "everywhere": (EagleApp,),
    "overview": (Overview,),
    "dashboard": (Dashboard,),
    "group": (Group,),
    "logs": (Logs, LogView),
    "profiles": (Profiles,),
    "bench": (Bench,),
    "tune": (Tune,),
    "refused or lost link": (EagleApp,),
    "rank line": (RankLine,),
    "search field": (Search,),
    "dialog": (dialog.Facts,),
    "question": (dialog.Confirm,),
    "list": (dialog.Choices,),
    "text": (dialog.Box,),
    "help": (dialog.Help,),
    "host list": (host_picker.HostPicker,),
    "refused host key": (connecting.Refused,),
    "launch dialog": (launch.LaunchDialog,),
    "experiment dialog": (bench_dialogs.ExperimentDialog,),
    "stored results": (bench_dialogs.ArmsDialog,),
    "import dialog": (import_dialog.ImportDialog,),
}
SPACES = {"app": (EagleApp,), "screen": (Overview, Dashboard, Logs, Profiles, Bench)}


@pytest.mark.parametrize("key", KEYS, ids=lambda key: f"{key.where}: {key.key}")
def test_every_action_of_the_table_exists(key: Key):
    for action in key.actions.values():
        space, _, name = action.partition("(")[0].rpartition(".")
        owners = SPACES.get(space, OWNERS[key.where])
        assert any(hasattr(owner, f"action_{name}") for owner in owners), action


def test_a_place_has_a_key_once():
    named = [(key.where, key.key) for key in KEYS]
    assert len(named) == len(set(named))


def test_keys_that_no_row_has_are_refused():
    assert keys("l", "a", where="dashboard") == (("l", "launch"), ("a", "apply and relaunch"))
    with pytest.raises(KeyError):
        bindings("dashboard", "Z")
    with pytest.raises(KeyError):
        keys("Z")
