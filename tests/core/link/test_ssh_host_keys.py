"""Who a host is: unknown, changed, revoked, swapped; against a real sshd with known_hosts as users have it."""

import asyncio
import subprocess
from pathlib import Path

import pytest

from tui.core.errors import HostError
from tui.core.link.ssh_target import HostKeyPolicy
from tui.core.link.transport import HostKeyChanged, LinkState


def shown(sshd) -> str:
    return subprocess.run(
        ["ssh-keygen", "-l", "-f", sshd.host_key], capture_output=True, text=True, check=True
    ).stdout.split()[1]


async def refused(transport, slug: str) -> HostError:
    with pytest.raises(HostError) as caught:
        await transport.connect()
    assert caught.value.slug == slug
    assert "\n" not in caught.value.message
    assert transport.status().state is LinkState.REFUSED
    return caught.value


@pytest.mark.fault(
    "A1",
    "an unknown host key",
    sees="its fingerprint, and a question",
    holds="on no, nothing is written and nothing sent",
)
async def test_unknown_and_no(sshd, make_ssh_transport, make_asker, tmp_path):
    asker, file = make_asker(host_keys=False), tmp_path / "known_hosts"
    transport = make_ssh_transport(sshd.target(known_hosts=(file,)), asker)
    await refused(transport, "host_key_unknown")
    assert not file.exists()
    (question,) = asker.host_keys
    assert question.fingerprint == shown(sshd)
    assert question.key_type == "ssh-ed25519"
    assert question.host == "gpu1"
    assert question.address == f"{sshd.user}@127.0.0.1:{sshd.port}"
    assert question.hop is None


async def test_unknown_and_yes(sshd, make_ssh_transport, make_asker, tmp_path):
    asker, file = make_asker(host_keys=True), tmp_path / "known_hosts"
    transport = make_ssh_transport(sshd.target(known_hosts=(file,)), asker)
    await transport.connect()
    assert file.read_text() == sshd.known_line(sshd.port)
    assert len(asker.host_keys) == 1
    again = make_ssh_transport(sshd.target(known_hosts=(file,)), make_asker())
    await again.connect()
    assert file.read_text() == sshd.known_line(sshd.port)


async def test_nothing_is_written_before_the_login_worked(sshd, make_ssh_transport, make_asker, new_key, tmp_path):
    file, other = tmp_path / "known_hosts", new_key(tmp_path / "other")
    target = sshd.target(known_hosts=(file,), identity_files=(other,))
    await refused(make_ssh_transport(target, make_asker(host_keys=True)), "auth_failed")
    assert not file.exists()


async def test_the_state_is_waiting_while_a_person_decides(sshd, make_ssh_transport, make_asker, tmp_path):
    asker = make_asker(host_keys=True)
    asker.gate = asyncio.Event()
    transport = make_ssh_transport(sshd.target(known_hosts=(tmp_path / "known_hosts",)), asker)
    connecting = asyncio.create_task(transport.connect())
    await asyncio.wait_for(asker.asked.wait(), 30)
    assert transport.status().state is LinkState.WAITING
    asker.gate.set()
    await connecting
    assert transport.status().state is LinkState.UP


@pytest.mark.fault(
    "A2", "a changed host key", sees="both fingerprints, file, line, how to remove the old one", holds="no way through"
)
async def test_changed_cannot_be_accepted(sshd, make_ssh_transport, make_asker, new_key, tmp_path):
    asker, file, other = make_asker(host_keys=True), tmp_path / "known_hosts", new_key(tmp_path / "other")
    file.write_text("# mine\n" + sshd.known_line(sshd.port, other))
    before = file.read_bytes()
    transport = make_ssh_transport(sshd.target(known_hosts=(file,)), asker)
    error = await refused(transport, "host_key_changed")
    assert asker.host_keys == []
    assert file.read_bytes() == before
    assert isinstance(error, HostKeyChanged)
    assert error.fingerprint == shown(sshd)
    assert error.where == f"{file}:2"
    for words in (error.fingerprint, error.known_fingerprint, error.where):
        assert words in error.message
    assert error.remedy is not None
    subprocess.run(error.remedy, shell=True, check=True, capture_output=True)  # the command that it names
    transport.reconnect()
    async for status in transport.watch():
        if status.state is LinkState.UP:
            break
    assert file.read_text() == "# mine\n" + sshd.known_line(sshd.port)


async def test_a_known_host_with_another_type_of_key_is_changed(
    start_sshd, make_ssh_transport, make_asker, new_key, tmp_path
):
    server, asker = start_sshd(), make_asker(host_keys=True)
    other, file = new_key(tmp_path / "other", kind="ecdsa"), tmp_path / "known_hosts"
    file.write_text(server.known_line(server.port, other))
    await refused(make_ssh_transport(server.target(known_hosts=(file,)), asker), "host_key_changed")
    assert asker.host_keys == []


async def test_a_host_with_several_keys_is_taken_by_the_one_that_is_known(start_sshd, make_ssh_transport, tmp_path):
    server, file = start_sshd(host_keys=("ed25519", "ecdsa", "rsa")), tmp_path / "known_hosts"
    for key in server.host_keys:
        file.write_text(server.known_line(server.port, key))
        await make_ssh_transport(server.target(known_hosts=(file,))).connect()


async def test_an_unknown_host_shows_the_key_that_openssh_would_store(
    start_sshd, make_ssh_transport, make_asker, tmp_path
):
    server, asker = start_sshd(host_keys=("rsa", "ecdsa", "ed25519")), make_asker(host_keys=True)
    await make_ssh_transport(server.target(known_hosts=(tmp_path / "kh",)), asker).connect()
    assert [question.key_type for question in asker.host_keys] == ["ssh-ed25519"]


@pytest.mark.fault("A3", "a revoked key", sees="that it is revoked", holds="no way through")
async def test_revoked(sshd, make_ssh_transport, make_asker, tmp_path):
    asker, file = make_asker(host_keys=True), tmp_path / "known_hosts"
    file.write_text(f"@revoked * {sshd.known_line(sshd.port).split(' ', 1)[1]}{sshd.known_line(sshd.port)}")
    error = await refused(make_ssh_transport(sshd.target(known_hosts=(file,)), asker), "host_key_revoked")
    assert asker.host_keys == []
    assert f"{file}:1" in error.message


@pytest.mark.fault("A4")
async def test_swapped_between_answer_and_connection(
    sshd, start_sshd, tcp_proxy, make_ssh_transport, make_asker, tmp_path
):
    impostor, asker, file = start_sshd(), make_asker(host_keys=True), tmp_path / "known_hosts"
    impostor.let_in(sshd.client_key)
    asker.gate = asyncio.Event()
    transport = make_ssh_transport(sshd.target(tcp_proxy.port, known_hosts=(file,)), asker)
    connecting = asyncio.create_task(transport.connect())
    await asyncio.wait_for(asker.asked.wait(), 30)
    tcp_proxy.target_port = impostor.port
    asker.gate.set()
    with pytest.raises(HostError) as caught:
        await connecting
    assert caught.value.slug == "host_key_changed"
    assert shown(sshd) in caught.value.message
    assert shown(impostor) in caught.value.message
    assert not file.exists()
    assert len(asker.host_keys) == 1


@pytest.mark.fault(
    "A4",
    "the key changes between question and connection, or on a reconnect",
    sees="refused",
    holds="only the key that was accepted is connected to",
)
async def test_swapped_on_a_reconnect(sshd, start_sshd, tcp_proxy, make_ssh_transport, make_asker):
    impostor, asker = start_sshd(), make_asker(host_keys=True)
    impostor.let_in(sshd.client_key)
    transport = make_ssh_transport(sshd.target(tcp_proxy.port, known_hosts=()), asker)  # nothing is kept on disk
    await transport.connect()
    tcp_proxy.target_port = impostor.port
    tcp_proxy.reset()
    async for status in transport.watch():
        if status.state is LinkState.REFUSED:
            break
    assert status.error is not None
    assert status.error.slug == "host_key_changed"
    assert len(asker.host_keys) == 1
    with pytest.raises(HostError):
        await transport.run("true")  # does not wait for a link that nobody will make


@pytest.mark.parametrize("state", ["hashed", "malformed", "latin-1", "missing"])
@pytest.mark.fault(
    "A5",
    "known_hosts is hashed, damaged, in another encoding or missing",
    sees="what its good lines mean",
    holds="no line hides another",
)
async def test_known_hosts_in_every_state(sshd, make_ssh_transport, make_asker, tmp_path, state):
    file, missing = tmp_path / "known_hosts", tmp_path / "missing"
    line = sshd.known_line(sshd.port)
    file.write_text(line)
    if state == "hashed":
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
        assert "127.0.0.1" not in file.read_text()
    elif state == "malformed":
        file.write_text(f"garbage\n|1|xx|yy ssh-ed25519 AAAA\nhost ssh-ed25519\n{line}")
    elif state == "latin-1":
        file.write_bytes(b"# caf\xe9\n" + line.encode().rstrip() + b" caf\xe9\n")
    files = (missing, file) if state == "missing" else (file,)
    await make_ssh_transport(sshd.target(known_hosts=files), make_asker()).connect()
    assert not missing.exists()


async def test_a_name_is_written_hashed_where_the_file_is(sshd, make_ssh_transport, make_asker, tmp_path):
    file = tmp_path / "known_hosts"
    file.write_text("other ssh-ed25519 " + sshd.known_line(sshd.port).split()[2] + "\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    await make_ssh_transport(sshd.target(known_hosts=(file,)), make_asker(host_keys=True)).connect()
    assert "127.0.0.1" not in file.read_text()
    found = subprocess.run(["ssh-keygen", "-F", f"[127.0.0.1]:{sshd.port}", "-f", file], capture_output=True)
    assert found.returncode == 0


@pytest.mark.fault("A13", "known_hosts cannot be written", sees="that the key was not saved", holds="the session works")
async def test_known_hosts_that_cannot_be_written(sshd, make_ssh_transport, make_asker):
    file = Path("/proc/known_hosts")  # not even for root
    transport = make_ssh_transport(sshd.target(known_hosts=(file,)), make_asker(host_keys=True))
    await transport.connect()
    assert (await transport.run("echo works")).stdout == b"works\n"
    assert str(file) in str(transport.status().notice)


@pytest.mark.parametrize(
    ("policy", "slug"), [(HostKeyPolicy.STRICT, "host_key_unknown"), (HostKeyPolicy.ACCEPT_NEW, None)]
)
async def test_policies_ask_nobody(sshd, make_ssh_transport, make_asker, tmp_path, policy, slug):
    asker, file = make_asker(host_keys=True), tmp_path / "known_hosts"
    transport = make_ssh_transport(sshd.target(known_hosts=(file,), policy=policy), asker)
    if slug:
        await refused(transport, slug)
        assert not file.exists()
    else:
        await transport.connect()
        assert file.read_text() == sshd.known_line(sshd.port)
    assert asker.host_keys == []


async def test_accept_new_takes_no_changed_key(sshd, make_ssh_transport, new_key, tmp_path):
    other, file = new_key(tmp_path / "other"), tmp_path / "known_hosts"
    file.write_text(sshd.known_line(sshd.port, other))
    target = sshd.target(known_hosts=(file,), policy=HostKeyPolicy.ACCEPT_NEW)
    await refused(make_ssh_transport(target), "host_key_changed")


@pytest.mark.fault(
    "A6", "a jump host is unknown", sees="the same question, naming the hop", holds="judged like the target"
)
async def test_an_unknown_jump_host_is_asked_about_by_name(sshd, start_sshd, make_ssh_transport, make_asker, tmp_path):
    jump, asker = start_sshd(), make_asker(host_keys=False)
    file = tmp_path / "known_hosts"
    file.write_text(sshd.known_line(sshd.port))
    target = sshd.target(known_hosts=(file,), via=jump.target(name="bastion", known_hosts=(file,)))
    transport = make_ssh_transport(target, asker)
    error = await refused(transport, "host_key_unknown")
    assert "bastion" in error.message
    assert [question.hop for question in asker.host_keys] == ["bastion"]
    asker.accept = True
    transport.reconnect()
    assert (await transport.run("echo through", timeout_s=60)).stdout == b"through\n"
    assert file.read_text() == sshd.known_line(sshd.port) + jump.known_line(jump.port)


async def test_a_changed_jump_host_is_named(sshd, start_sshd, make_ssh_transport, make_asker, tmp_path):
    jump, file = start_sshd(), tmp_path / "known_hosts"
    file.write_text(sshd.known_line(jump.port))
    via = jump.target(name="bastion", known_hosts=(file,))
    transport = make_ssh_transport(sshd.target(via=via), make_asker(host_keys=True))
    assert "bastion" in (await refused(transport, "host_key_changed")).message


async def test_host_certificates(start_sshd, make_ssh_transport, make_asker, new_key, tmp_path):
    authority, asker = new_key(tmp_path / "ca"), make_asker(host_keys=True)
    server = start_sshd()
    subprocess.run(
        ["ssh-keygen", "-q", "-s", authority, "-I", "gpu1", "-h", "-n", "127.0.0.1", f"{server.host_key}.pub"],
        check=True,
        capture_output=True,
    )
    certified = start_sshd(f"HostKey {server.host_key}\nHostCertificate {server.host_key}-cert.pub\n")
    certified.let_in(server.client_key)
    public = authority.with_suffix(".pub").read_text()
    file = tmp_path / "known_hosts"
    file.write_text(f"@cert-authority [127.0.0.1]:* {public}")
    target = server.target(port=certified.port, known_hosts=(file,))
    await make_ssh_transport(target, asker).connect()
    assert asker.host_keys == []
    file.write_text(f"@cert-authority [127.0.0.1]:* {public}@revoked * {public}")
    await refused(make_ssh_transport(target, asker), "host_key_revoked")
    assert asker.host_keys == []
