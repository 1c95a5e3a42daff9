"""What goes wrong before anything works: one clear line, the right exit code, never a traceback."""

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

PROFILE = 'kind = "launch"\n[args]\nmodel-path = "/nowhere/model"\n'


def one_line(done: subprocess.CompletedProcess[str], code: int, *words: str) -> str:
    """The only line of a failed command; checks the exit code and that the words are in it."""
    assert done.returncode == code, done.stdout + done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("eagletui: ")
    for word in words:
        assert word in lines[0]
    return lines[0]


def slug(done: subprocess.CompletedProcess[str], code: int, error: str) -> dict[str, object]:
    """The document of a failed command with --json; checks exit code and slug."""
    assert done.returncode == code, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["error"] == error
    assert "\n" not in document["message"]
    return document


def test_unknown_host(eagletui):
    one_line(eagletui.run("ps", "no-such-host.invalid"), 3, "no-such-host.invalid")
    slug(eagletui.run("ps", "no-such-host.invalid", "--json"), 3, "host_unknown")


def test_refused_port(gpu_host):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    gpu_host.ssh_config(Port=port)
    one_line(gpu_host.eagletui.run("ps", "gpu1"), 3, f"127.0.0.1:{port}")
    slug(gpu_host.eagletui.run("ps", "gpu1", "--json"), 3, "refused")


def test_not_an_ssh_server(gpu_host):
    with socket.create_server(("127.0.0.1", 0)) as web:
        web.settimeout(60)
        gpu_host.ssh_config(Port=web.getsockname()[1])
        command = gpu_host.eagletui.popen("ps", "gpu1", "--json", stdout=subprocess.PIPE)
        connection, _ = web.accept()
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        connection.close()
        out, _ = command.communicate(timeout=60)
    assert command.returncode == 3
    assert json.loads(out)["error"] == "not_ssh"


def test_wrong_key(gpu_host):
    other = gpu_host.ssh / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    gpu_host.ssh_config(IdentityFile=other, PasswordAuthentication="no")
    one_line(gpu_host.eagletui.run("ps", "gpu1"), 3, "gpu1")
    slug(gpu_host.eagletui.run("ps", "gpu1", "--json"), 3, "auth_failed")


def test_changed_host_key(gpu_host):
    other = gpu_host.ssh / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    gpu_host.trust(other.with_suffix(".pub").read_text())
    before = (gpu_host.ssh / "known_hosts").read_bytes()
    one_line(gpu_host.eagletui.run("ps", "gpu1"), 3, "gpu1")
    slug(gpu_host.eagletui.run("ps", "gpu1", "--json"), 3, "host_key_changed")
    assert (gpu_host.ssh / "known_hosts").read_bytes() == before


def own_runs(host):
    """What runs there of ours: other tests' servers on this machine are foreign."""
    return [row for row in host.eagletui.json("ps", "gpu1") if row["state"] != "foreign"]


def test_unknown_host_key_without_a_terminal(gpu_host):
    (gpu_host.ssh / "known_hosts").write_text("")
    one_line(gpu_host.eagletui.run("ps", "gpu1"), 3, "gpu1")
    slug(gpu_host.eagletui.run("ps", "gpu1", "--json"), 3, "host_key_unknown")
    assert (gpu_host.ssh / "known_hosts").read_text() == ""


def test_no_nvidia_smi(gpu_host):
    if shutil.which("nvidia-smi"):
        gpu_host.python("/usr/bin/python3")
        pytest.skip("this machine has nvidia-smi")
    one_line(gpu_host.eagletui.run("gpus", "gpu1"), 1, "nvidia-smi")
    document = gpu_host.eagletui.json("gpus", "gpu1", code=1)
    assert document["gpus"] == []
    assert document["error"] == "nvidia_smi_missing"
    assert own_runs(gpu_host) == []  # the rest works


def test_no_python_on_the_host(gpu_host):
    gpu_host.python("/nowhere/python")
    gpu_host.profile("mine", PROFILE)
    document = slug(gpu_host.eagletui.run("launch", "mine", "--host", "gpu1", "--json"), 1, "preflight")
    python = [finding for finding in document["findings"] if finding["check"] == "python"]
    assert python
    assert python[0]["level"] == "block"
    assert "/nowhere/python" in python[0]["text"]
    assert own_runs(gpu_host) == []


@pytest.mark.parametrize("shell", ["fish", "tcsh", "zsh"])
def test_other_login_shells_work(gpu_hosts, shell):
    path = shutil.which(shell) or pytest.skip(f"no {shell}: apt-get install {shell}")
    # What sshd does with a login shell: it runs `shell -c COMMAND`.
    host = gpu_hosts(f'ForceCommand exec {path} -c "$SSH_ORIGINAL_COMMAND"\n')
    assert own_runs(host) == []
    assert host.eagletui.json("gpus", "gpu1", code=None)["error"] != "unreadable"


def test_noise_from_bashrc_shifts_nothing(gpu_host):
    (gpu_host.remote_home / ".bashrc").write_text("echo Welcome to $(hostname)\nprintf 'no newline' \necho oops >&2\n")
    assert own_runs(gpu_host) == []
    log = gpu_host.remote_home / "server.log"
    log.write_bytes(b"first line\nsecond line\n")
    done = gpu_host.eagletui.run("logs", f"gpu1:{log}")
    assert done.stdout == "first line\nsecond line\n"


def test_a_shell_that_runs_nothing_is_named(gpu_hosts):
    host = gpu_hosts("ForceCommand echo This account is not available; exit 1\n")
    one_line(host.eagletui.run("ps", "gpu1"), 3, "gpu1")


@pytest.fixture
def full_disk(tmp_path: Path):
    """A file system without a free byte."""
    if os.geteuid() != 0:
        pytest.skip("a full disk is made by mounting one: needs root")
    mount = tmp_path / "full"
    mount.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mount], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount: {done.stderr.strip()}")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def fill(directory: Path) -> None:
    with (directory / "filler").open("wb", buffering=0) as filler:
        try:
            while True:
                filler.write(bytes(4096))
        except OSError:
            pass


def test_full_disk_here(eagletui, full_disk):
    (eagletui.home / "profiles").mkdir()
    (eagletui.home / "profiles/mine.toml").write_text('kind = "launch"\ncommand = ["sleep", "100"]\n')
    fill(full_disk)
    eagletui.env["EAGLETUI_HOME"] = str(full_disk)
    document = eagletui.json("launch", "mine", "--host", "local", code=1)
    assert "space" in (document["message"] + str(document["hint"])).lower() or any(
        "space" in finding["text"] or "disk" in finding["check"] for finding in document.get("findings", ())
    )


def test_broken_toml(eagletui):
    (eagletui.home / "profiles").mkdir()
    (eagletui.home / "profiles/broken.toml").write_text('kind = "launch"\n[args\nmodel-path = 1\n')
    (eagletui.home / "profiles/fine.toml").write_text(PROFILE)
    one_line(eagletui.run("profiles", "show", "broken"), 2, "broken.toml", "line")
    listed = {entry["name"]: entry for entry in eagletui.json("profiles", "list")}
    assert listed["broken"]["errors"]
    assert listed["fine"]["errors"] == []  # one broken file blocks nothing


def test_all_errors_of_a_profile_at_once(eagletui):
    (eagletui.home / "profiles").mkdir()
    (eagletui.home / "profiles/wrong.toml").write_text(
        'kind = "launch"\ngpu = [0]\nstartup_timeout_s = "soon"\n[args]\nmodel-path = "/m"\nmem-fraction-statik = 0.8\n'
    )
    listed = {entry["name"]: entry for entry in eagletui.json("profiles", "list")}
    errors = " ".join(str(error) for error in listed["wrong"]["errors"])
    for wanted in ("gpu", "gpus", "startup_timeout_s", "mem-fraction-statik", "mem-fraction-static"):
        assert wanted in errors


def test_broken_config(eagletui):
    config = eagletui.home / ".config/eagletui/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("default_host = \n")
    one_line(eagletui.run("ps"), 2, str(config))
    config.write_text("defalt_host = 'x'\n")
    one_line(eagletui.run("ps"), 2, str(config), "defalt_host")


def test_unknown_names(eagletui):
    one_line(eagletui.run("launch", "no-such-profile", "--host", "local"), 2, "no-such-profile")
    one_line(eagletui.run("stop", "abcdef", "--host", "local"), 2, "abcdef")
    one_line(eagletui.run("ps", "--no-such-flag"), 2, "--no-such-flag")
    one_line(eagletui.run("logs", "/no/such/file"), 2, "/no/such/file")
    one_line(eagletui.run("diagnose", "/no/such/file"), 2, "/no/such/file")
    one_line(eagletui.run("--profiles", "/no/such/directory", "profiles"), 2, "/no/such/directory")
    one_line(eagletui.run("wait", "abcdef", "--for", "lunch", "--host", "local"), 2, "lunch")


def test_unknown_set_flag(eagletui):
    (eagletui.home / "profiles").mkdir()
    (eagletui.home / "profiles/mine.toml").write_text(PROFILE)
    line = one_line(
        eagletui.run("profiles", "show", "mine", "--set", "mem-fraction-statc=0.8"), 2, "mem-fraction-statc"
    )
    assert "mem-fraction-static" in line


def test_the_panel_needs_a_terminal(eagletui):
    one_line(eagletui.run("demo"), 2, "terminal")
