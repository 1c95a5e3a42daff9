"""~/.ssh/config as `ssh -G` reads it, and by asyncssh where there is no ssh."""

import getpass
import os
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from tui.core.config import HostEntry
from tui.core.errors import HostError
from tui.core.link import ssh_config
from tui.core.link.hosts import open_transport
from tui.core.link.ssh_config import HostSpec, resolve
from tui.core.link.ssh_target import HostKeyPolicy
from tui.core.link.transport import SilentAsker

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="no ssh: apt-get install openssh-client")


@pytest.fixture
def config(own_home: Path):
    """config(text) writes ~/.ssh/config of this test's HOME."""

    def write(text: str) -> Path:
        file = own_home / ".ssh" / "config"
        file.parent.mkdir(mode=0o700, exist_ok=True)
        file.write_text(text)
        return file

    return write


@pytest.mark.parametrize(
    ("text", "host", "user", "port"),
    [
        ("gpu1", "gpu1", None, None),
        ("me@gpu1", "gpu1", "me", None),
        ("me@gpu1:2222", "gpu1", "me", 2222),
        ("gpu1:2222", "gpu1", None, 2222),
        ("ssh://me@gpu1:2222/", "gpu1", "me", 2222),
        ("me@corp@gpu1", "gpu1", "me@corp", None),
        ("[::1]:2222", "::1", None, 2222),
        ("[::1]", "::1", None, None),
        ("fe80::1%eth0", "fe80::1%eth0", None, None),
        ("  gpu1 ", "gpu1", None, None),
    ],
)
def test_hosts_as_they_are_typed(text, host, user, port):
    assert HostSpec.parse(text) == HostSpec(host, user, port)


@pytest.mark.parametrize(
    "text", ["", "-oProxyCommand=touch /tmp/x", "me@-oX", "a b", "a\nb", "@gpu1", "gpu1:0", "gpu1:70000"]
)
def test_what_is_no_host(text):
    with pytest.raises(HostError) as caught:
        HostSpec.parse(text)
    assert caught.value.slug == "host_unknown"
    assert "\n" not in caught.value.message


@needs_ssh
async def test_what_openssh_takes_and_asyncssh_alone_would_not(config, own_home):
    config(
        "Host gpu1  # the big one\n"
        "  HostName 10.0.0.1\n"
        "  Port 2222 # my port\n"
        "  ConnectTimeout 7s\n"
        "  ServerAliveInterval 1m\n"
        "  User=alice\n"
        '  Match originalhost gpu1 exec "test %n = gpu1"\n'
        "  IdentityFile ~/.ssh/%r-%h\n"
        "  IdentityFile %d/missing\n"
        "  UserKnownHostsFile ~/.ssh/mine ~/.ssh/missing\n"
        "  HostKeyAlias cluster\n"
        "  IdentitiesOnly yes\n"
        "  StrictHostKeyChecking accept-new\n"
        "  HashKnownHosts yes\n"
        "  IdentityAgent none\n"
        "  PasswordAuthentication no\n"
    )
    target = await resolve("gpu1", name="big")
    assert (target.address, target.port, target.user, target.name) == ("10.0.0.1", 2222, "alice", "big")
    assert target.connect_timeout_s == 7
    assert target.identity_files == (own_home / ".ssh/alice-10.0.0.1", own_home / "missing")
    assert target.known_hosts == (own_home / ".ssh/mine", own_home / ".ssh/missing")
    assert target.host_key_alias == "cluster"
    assert target.identities_only
    assert target.policy is HostKeyPolicy.ACCEPT_NEW
    assert target.hash_known_hosts
    assert target.agent is None
    assert target.methods == ("publickey", "keyboard-interactive")


@needs_ssh
async def test_without_a_configuration(own_home, monkeypatch):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    target = await resolve("gpu1.lab:2200")
    assert (target.address, target.port, target.user) == ("gpu1.lab", 2200, getpass.getuser())
    assert target.known_hosts[0] == own_home / ".ssh/known_hosts"
    assert own_home / ".ssh/id_ed25519" in target.identity_files
    assert target.agent == "/run/agent"
    assert target.policy is HostKeyPolicy.ASK
    assert target.via is None
    assert target.proxy_command is None


@needs_ssh
async def test_checking_is_never_switched_off(config):
    config("Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n")
    target = await resolve("gpu1")
    assert target.policy is HostKeyPolicy.ASK
    assert target.known_hosts == ()


@needs_ssh
async def test_what_is_typed_wins(config):
    config("Host gpu1\n  User alice\n  Port 2222\n")
    target = await resolve("bob@gpu1:2200")
    assert (target.user, target.port) == ("bob", 2200)


@needs_ssh
async def test_proxy_command_with_its_tokens(config):
    config("Host gpu1\n  HostName 10.0.0.1\n  User alice\n  ProxyCommand relay --to %h:%p --as %r --from '%n' 100%%\n")
    assert (await resolve("gpu1")).proxy_command == "relay --to 10.0.0.1:22 --as alice --from 'gpu1' 100%"


@needs_ssh
async def test_jump_hosts_each_with_its_own_entry(config):
    config(
        "Host gpu1\n  ProxyJump alice@outer:2200,inner\n"
        "Host outer\n  HostName 192.0.2.1\n"
        "Host inner\n  HostName 10.0.0.9\n  User bob\n  ProxyJump elsewhere\n"
        "Host chain\n  ProxyJump gpu1\n"
    )
    target = await resolve("gpu1")
    inner = target.via
    assert inner is not None
    assert (inner.name, inner.address, inner.user, inner.port) == ("inner", "10.0.0.9", "bob", 22)
    outer = inner.via  # what was given before it outranks its own ProxyJump
    assert outer is not None
    assert (outer.address, outer.user, outer.port) == ("192.0.2.1", "alice", 2200)
    assert outer.via is None
    chain = (await resolve("chain")).via
    assert chain is not None
    assert chain.name == "gpu1"
    assert chain.via is not None
    assert chain.via.name == "inner"


@needs_ssh
async def test_a_jump_host_that_leads_to_itself(config):
    config("Host a\n  ProxyJump b\nHost b\n  ProxyJump a\n")
    with pytest.raises(HostError) as caught:
        await resolve("a")
    assert caught.value.slug == "ssh_config"


@needs_ssh
@pytest.mark.fault("C17")
async def test_a_bad_line_is_named(config):
    file = config("Host gpu1\n  Port 22\n  Prot 22\n  Nonsense yes\n")
    with pytest.raises(HostError) as caught:
        await resolve("gpu1")
    assert caught.value.slug == "ssh_config"
    assert str(file) in caught.value.message
    assert "3" in caught.value.message
    assert "\n" not in caught.value.message


@needs_ssh
async def test_a_name_is_never_an_option(config, tmp_path):
    mark = tmp_path / "mark"
    with pytest.raises(HostError):
        await resolve(f"-oProxyCommand=touch {mark}")
    assert not mark.exists()


@needs_ssh
async def test_another_file_may_be_named(config, tmp_path, monkeypatch):
    config("Host gpu1\n  Port 1\n")
    other = tmp_path / "other config"
    other.write_text("Host gpu1\n  Port 2\n")
    monkeypatch.setenv("EAGLETUI_SSH_CONFIG", str(other))
    assert (await resolve("gpu1")).port == 2


@needs_ssh
async def test_file_names_with_spaces(config, own_home):
    spaced = own_home / "my keys"
    spaced.mkdir()
    (spaced / "known").touch()
    config(f'Host gpu1\n  UserKnownHostsFile "{spaced}/known"\n  IdentityFile "{spaced}/id"\n')
    target = await resolve("gpu1")
    assert target.known_hosts == (spaced / "known",)
    assert target.identity_files == (spaced / "id",)


async def test_without_ssh_asyncssh_reads_the_file(config, own_home, monkeypatch):
    config(
        "Host gpu1\n  HostName 10.0.0.1\n  Port 2222\n  User alice\n  IdentityFile ~/.ssh/mine\n"
        "  IdentitiesOnly yes\n  UserKnownHostsFile ~/.ssh/mine_hosts\n  ProxyJump outer\nHost outer\n  Port 2200\n"
    )
    monkeypatch.setattr(ssh_config.shutil, "which", lambda name: None)
    target = await resolve("gpu1")
    assert (target.address, target.port, target.user) == ("10.0.0.1", 2222, "alice")
    assert target.identity_files == (own_home / ".ssh/mine",)
    assert target.identities_only
    assert target.known_hosts == (own_home / ".ssh/mine_hosts",)
    assert target.via is not None
    assert (target.via.address, target.via.port) == ("outer", 2200)


async def test_without_ssh_and_without_a_file(own_home, monkeypatch):
    monkeypatch.setattr(ssh_config.shutil, "which", lambda name: None)
    target = await resolve("me@gpu1:2222")
    assert (target.address, target.port, target.user) == ("gpu1", 2222, "me")
    assert own_home / ".ssh/id_ed25519" in target.identity_files
    assert target.known_hosts == (own_home / ".ssh/known_hosts",)


async def test_without_ssh_a_bad_line_is_named(config, monkeypatch):
    file = config("Host gpu1\n  Port 22 # mine\n")
    monkeypatch.setattr(ssh_config.shutil, "which", lambda name: None)
    with pytest.raises(HostError) as caught:
        await resolve("gpu1")
    assert caught.value.slug == "ssh_config"
    assert f"{file}" in caught.value.message
    assert "2" in caught.value.message


# From the name to the answer


@needs_ssh
async def test_an_alias_logs_in(sshd, config):
    config(sshd.ssh_config.read_text())
    transport = open_transport(HostEntry("gpu1", "gpu1"), SilentAsker())
    try:
        assert (await transport.run("echo in", timeout_s=60)).stdout == b"in\n"
        assert transport.status().address == f"{sshd.user}@127.0.0.1:{sshd.port}"
    finally:
        await transport.close()


@needs_ssh
async def test_an_alias_behind_a_jump_host_and_one_behind_a_command(sshd, start_sshd, config, tmp_path):
    jump = start_sshd()
    known = tmp_path / "known"
    known.write_text(sshd.known_line(sshd.port) + jump.known_line(jump.port))
    hop = f"{shutil.which('ssh')} -F {shlex.quote(str(tmp_path / 'inner'))} -W %h:%p hop"
    text = (
        f"Host gpu1 gpu2\n  HostName 127.0.0.1\n  Port {sshd.port}\n  IdentityFile {sshd.client_key}\n"
        f"Host gpu1\n  ProxyJump hop\nHost gpu2\n  ProxyCommand {hop}\n"
        f"Host hop\n  HostName 127.0.0.1\n  Port {jump.port}\n  IdentityFile {jump.client_key}\n"
        f"Host *\n  User {sshd.user}\n  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n"
    )
    config(text)
    (tmp_path / "inner").write_text(text)
    for name in ("gpu1", "gpu2"):
        transport = open_transport(HostEntry(name, name), SilentAsker())
        try:
            assert (await transport.run("echo in", timeout_s=60)).stdout == b"in\n"
        finally:
            await transport.close()


@pytest.mark.fault("C17", "a line of ~/.ssh/config is wrong", sees="file and line", holds="mended, `r` connects")
async def test_a_broken_configuration_is_a_refusal_that_mending_ends(sshd, config):
    config("Host gpu1\n  Prot 22\n")
    transport = open_transport(HostEntry("gpu1", "gpu1"), SilentAsker())
    try:
        with pytest.raises(HostError) as caught:
            await transport.connect()
        assert caught.value.slug == "ssh_config"
        config(sshd.ssh_config.read_text())
        transport.reconnect()
        assert (await transport.run("echo in", timeout_s=60)).stdout == b"in\n"
    finally:
        await transport.close()


def test_only_ssh_imports_asyncssh():
    import subprocess

    code = "import sys, tui.core.link.hosts, tui.core.link.local, tui.core.link.ssh_config, tui.core.link.http; print('asyncssh' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert out.stdout.strip() == "False"
