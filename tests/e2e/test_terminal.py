"""The terminal helper itself: a test that reads the screen must be able to trust it."""

import pytest


def test_keys_arrive_and_the_screen_is_read(terminal):
    shell = terminal(["sh", "-c", "printf 'ready\\n'; read line; printf 'got %s\\n' \"$line\"; read line"], {})
    shell.wait_for("^ready")
    shell.type("two words")
    shell.keys("Enter")
    shell.wait_for("^got two words$")
    assert shell.exit_status() is None


def test_a_program_that_ends_leaves_its_screen_and_status(terminal):
    shell = terminal(["sh", "-c", "echo last words; exit 7"], {})
    shell.wait_for("last words")
    assert shell.wait_exit() == 7
    with pytest.raises(pytest.fail.Exception, match="ended \\(7\\)"):
        shell.wait_for("never")
