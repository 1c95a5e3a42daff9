"""The core says what can be done; the command line and the panel each have words for all of it."""

import pytest

from tui.core.hints import Action, Hint
from tui.panel.hints import in_panel


@pytest.mark.parametrize("action", list(Action))
def test_every_action_has_words_on_both_faces(action):
    assert str(Hint(action, "x"))
    shown = in_panel(Hint(action, "x"))
    assert shown
    assert "--" not in shown  # no flag can be typed here
