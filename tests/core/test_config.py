"""config.toml and directories."""

import os
import stat
import threading

import pytest

from tui.core import config
from tui.core.errors import UsageError


@pytest.fixture(autouse=True)
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("EAGLETUI_HOME", str(tmp_path))
    config.load_settings.cache_clear()
    yield tmp_path
    config.load_settings.cache_clear()


def write(home, text: str) -> None:
    (home / "config").mkdir(exist_ok=True)
    (home / "config" / "config.toml").write_text(text)


def test_without_a_file_everything_has_a_default():
    settings = config.load_settings()
    assert settings.default_host == "local"
    assert settings.host("tuner@gpu1:2222") == config.HostEntry("tuner@gpu1:2222", "tuner@gpu1:2222")


@pytest.mark.parametrize(
    ("name", "kind"), [("local", "local"), ("demo", "demo"), ("demo2", "demo"), ("gpu1", "ssh"), ("ssh", "ssh")]
)
def test_a_name_says_how_a_host_is_reached(name, kind):
    assert config.load_settings().host(name).kind == kind


def test_a_host_entry_is_read(home):
    write(
        home,
        'default_host = "gpu1"\n[hosts.gpu1]\nssh = "tuner@10.0.0.1"\npython = "/opt/sglang/bin/python"\n'
        'env = { HF_HOME = "/data/hf" }\n',
    )
    entry = config.load_settings().host("gpu1")
    assert (entry.ssh, entry.python, entry.env) == ("tuner@10.0.0.1", "/opt/sglang/bin/python", {"HF_HOME": "/data/hf"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"x = {'9' * 5000}", "holds a number of thousands of digits"),
        (f"x = {'[' * 3000}", "is nested too deeply"),
        ("default_host = 3", "default_host must be a string"),
        ("[hosts.gpu1]\npyton = 'x'", "unknown key hosts.gpu1.pyton"),
        ("[hosts.gpu1]\nenv = { A = 1 }", "hosts.gpu1.env must be a table of strings"),
        ("[hosts.demo]\nssh = 'x'", "hosts.demo is reserved"),
        ("colour = 'x'", "unknown key colour"),
        ("theme = 'pink'", 'theme must be "dark", "light", "high-contrast" or "colour-blind"'),
        ("default_host = ", "Invalid value"),
    ],
)
def test_a_wrong_setting_is_one_line_with_file_and_key(home, text, says):
    write(home, text)
    with pytest.raises(UsageError, match=r"config\.toml") as error:
        config.load_settings()
    assert says in error.value.message
    assert "\n" not in error.value.message
    assert error.value.hint


def test_directories_follow_xdg_and_our_own_variable(monkeypatch, tmp_path):
    assert config.config_dir() == tmp_path / "config"
    monkeypatch.delenv("EAGLETUI_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "xdg"))
    monkeypatch.setenv("XDG_STATE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert config.data_dir() == tmp_path / "xdg" / "eagletui"
    assert config.state_dir() == tmp_path / "me" / ".local" / "state" / "eagletui"


def test_private_directories_are_private(tmp_path):
    path = config.private_dir(tmp_path / "a" / "b")
    assert stat.S_IMODE(path.stat().st_mode) == 0o700


def test_profiles_are_shipped():
    assert (config.shipped_profiles_dir() / "kimi-k2.5-eagle3-mem088.toml").is_file()


def test_a_file_is_whole_or_not_at_all_and_leaves_nothing_else(tmp_path):
    config.write_whole(tmp_path / "new" / "a.json", "one")
    assert [path.read_text() for path in (tmp_path / "new").iterdir()] == ["one"]
    with pytest.raises(IsADirectoryError, match="new"):
        config.write_whole(tmp_path / "new", "two")
    with pytest.raises(UnicodeEncodeError):
        config.write_whole(tmp_path / "new" / "a.json", "\ud800")
    assert [path.read_text() for path in (tmp_path / "new").iterdir()] == ["one"]


def test_a_pipe_is_written_to_and_a_link_stays_one(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    config.write_whole(pipe, "through")
    reader.join(20)
    assert read == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    link.symlink_to(tmp_path / "there" / "file")
    config.write_whole(link, "behind")
    assert link.is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "behind"


def test_threads_that_write_one_file_do_not_meet(tmp_path):
    failed: list[BaseException] = []

    def write_often() -> None:
        try:
            for number in range(200):
                config.write_whole(tmp_path / "same", str(number))
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=write_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert (tmp_path / "same").read_text() == "199"
