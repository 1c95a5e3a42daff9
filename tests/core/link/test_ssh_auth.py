"""Logging in: keys, agents, passphrases, passwords, two factors. What sshd cannot be made to do, a scripted server does."""

import asyncio
import os
import subprocess
from pathlib import Path

import asyncssh
import pytest

from tui.core.errors import HostError
from tui.core.link.reconnect import Timing
from tui.core.link.ssh_target import SshTarget
from tui.core.link.transport import LinkState


async def denied(transport) -> HostError:
    with pytest.raises(HostError) as caught:
        await transport.connect()
    assert caught.value.slug == "auth_failed"
    assert "\n" not in caught.value.message
    assert transport.status().state is LinkState.REFUSED
    return caught.value


# Keys


async def test_a_key_that_is_not_let_in(sshd, make_ssh_transport, new_key, tmp_path):
    other = new_key(tmp_path / "other")
    error = await denied(make_ssh_transport(sshd.target(identity_files=(tmp_path / "missing", other))))
    assert "gpu1" in error.message
    assert sshd.user in error.message


@pytest.fixture
def locked_key(sshd, new_key, tmp_path) -> Path:
    """An encrypted key that the sshd lets in; its passphrase is `open sesame`."""
    key = new_key(tmp_path / "locked", passphrase="open sesame")
    sshd.let_in(key)
    return key


async def test_a_passphrase_is_asked_for_once_and_kept_for_reconnects(
    sshd, tcp_proxy, make_ssh_transport, make_asker, locked_key
):
    asker = make_asker(answers=[("wrong",), ("open sesame",)])
    transport = make_ssh_transport(sshd.target(tcp_proxy.port, identity_files=(locked_key,)), asker)
    await transport.connect()
    assert len(asker.prompts) == 2
    assert str(locked_key) in asker.prompts[0].text
    assert asker.prompts[0].fields == (("Passphrase", False),)
    assert asker.prompts[0].host == "gpu1"
    tcp_proxy.reset()
    assert (await transport.run("echo back", timeout_s=60)).stdout == b"back\n"
    assert tcp_proxy.accepted == 2
    assert len(asker.prompts) == 2


@pytest.mark.parametrize("public", ["beside", "missing"])
@pytest.mark.parametrize("kind", ["ed25519", "rsa"])
async def test_encrypted_keys_of_all_forms(sshd, make_ssh_transport, make_asker, new_key, tmp_path, kind, public):
    key = new_key(tmp_path / "key", kind=kind, passphrase="open sesame")
    sshd.let_in(key)
    if public == "missing":
        key.with_suffix(".pub").unlink()
    asker = make_asker(answers=[("open sesame",)])
    await make_ssh_transport(sshd.target(identity_files=(key,)), asker).connect()
    assert len(asker.prompts) == 1


async def test_an_old_pem_key_without_its_public_part(sshd, make_ssh_transport, make_asker, new_key, tmp_path):
    key = new_key(tmp_path / "key", kind="rsa")
    sshd.let_in(key)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-m", "PEM", "-N", "open sesame", "-f", key], check=True, capture_output=True
    )
    key.with_suffix(".pub").unlink()
    assert b"Proc-Type" in key.read_bytes()
    asker = make_asker(answers=[("wrong",), ("open sesame",)])
    await make_ssh_transport(sshd.target(identity_files=(key,)), asker).connect()
    assert len(asker.prompts) == 2


@pytest.mark.parametrize("answers", [[("a",), ("b",), ("c",), ("open sesame",)], [None], []])
@pytest.mark.fault(
    "A7", "a passphrase is wrong", sees="the question three times, then the end", holds="the agent is asked first"
)
async def test_wrong_passphrases_end_after_three(sshd, make_ssh_transport, make_asker, locked_key, answers):
    asker = make_asker(answers=answers)
    target = sshd.target(identity_files=(locked_key,), methods=("publickey",))
    error = await denied(make_ssh_transport(target, asker))
    assert len(asker.prompts) == (3 if len(answers) > 1 else 1)
    assert str(locked_key) in error.message


async def test_no_passphrase_is_asked_for_a_key_that_the_host_does_not_want(
    sshd, make_ssh_transport, make_asker, new_key, tmp_path
):
    asker, unwanted = make_asker(), new_key(tmp_path / "unwanted", passphrase="x")
    await make_ssh_transport(sshd.target(identity_files=(unwanted, sshd.client_key)), asker).connect()
    assert asker.prompts == []


@pytest.fixture
def agent(tmp_path_factory):
    """agent.path, agent.add(key): a real ssh-agent."""

    class Agent:
        path = str(tmp_path_factory.mktemp("a") / "s")

        def add(self, key: Path, passphrase: str = "") -> None:
            script = key.parent / "askpass"
            script.write_text(f"#!/bin/sh\necho '{passphrase}'\n")
            script.chmod(0o700)
            env = {**os.environ, "SSH_AUTH_SOCK": self.path, "SSH_ASKPASS": str(script), "SSH_ASKPASS_REQUIRE": "force"}
            subprocess.run(["ssh-add", "-q", key], env=env, check=True, stdin=subprocess.DEVNULL, capture_output=True)

    process = subprocess.Popen(["ssh-agent", "-D", "-a", Agent.path], stdout=subprocess.DEVNULL)
    while not Path(Agent.path).exists():
        assert process.poll() is None
    yield Agent()
    process.terminate()
    process.wait(10)


async def test_the_agent_is_asked_before_a_person(sshd, make_ssh_transport, make_asker, locked_key, agent):
    agent.add(locked_key, "open sesame")
    asker = make_asker()
    transport = make_ssh_transport(sshd.target(identity_files=(locked_key,), agent=agent.path), asker)
    await transport.connect()
    assert asker.prompts == []


async def test_identities_only_hides_the_other_keys_of_the_agent(
    sshd, make_ssh_transport, new_key, locked_key, agent, tmp_path
):
    agent.add(locked_key, "open sesame")
    other = new_key(tmp_path / "other")
    target = sshd.target(identity_files=(other,), agent=agent.path)
    await make_ssh_transport(target).connect()
    await denied(make_ssh_transport(sshd.target(identity_files=(other,), agent=agent.path, identities_only=True)))


@pytest.mark.fault("A8")
async def test_an_agent_that_is_gone_is_passed_over(sshd, make_ssh_transport, tmp_path):
    await make_ssh_transport(sshd.target(agent=str(tmp_path / "gone"))).connect()


@pytest.mark.fault(
    "A8",
    "the agent has too many keys, or is gone",
    sees="IdentitiesOnly as the way out",
    holds="without an agent files are tried",
)
async def test_too_many_keys_in_the_agent(start_sshd, make_ssh_transport, new_key, agent, tmp_path):
    server = start_sshd("MaxAuthTries 2\n")
    for number in range(4):
        agent.add(new_key(tmp_path / f"key{number}"))
    error = await denied(make_ssh_transport(server.target(agent=agent.path)))
    assert "IdentitiesOnly" in str(error.hint)
    only = server.target(agent=agent.path, identities_only=True)
    await make_ssh_transport(only).connect()


async def test_a_user_certificate(start_sshd, make_ssh_transport, new_key, tmp_path):
    authority, key = new_key(tmp_path / "ca"), new_key(tmp_path / "key")
    server = start_sshd(f"TrustedUserCAKeys {authority}.pub\n")
    subprocess.run(
        ["ssh-keygen", "-q", "-s", authority, "-I", "me", "-n", server.user, f"{key}.pub"],
        check=True,
        capture_output=True,
    )
    await make_ssh_transport(server.target(identity_files=(key,))).connect()


# Passwords and two factors, from a scripted server


class Scripted(asyncssh.SSHServer):
    """What the server asks for and takes."""

    password: str | None = None
    expired = False
    steps: tuple[tuple[str, str, list[tuple[str, bool]], list[str]], ...] = ()
    banner = ""

    def __init__(self) -> None:
        self._step = 0

    def connection_made(self, conn):
        self._conn = conn

    def begin_auth(self, username):
        if self.banner:
            self._conn.send_auth_banner(self.banner)
        return True

    def password_auth_supported(self):
        return self.password is not None

    def validate_password(self, username, password):
        if self.expired:
            raise asyncssh.PasswordChangeRequired("Your password \x1b[31mhas expired")
        return password == self.password

    def kbdint_auth_supported(self):
        return bool(self.steps)

    def get_kbdint_challenge(self, username, lang, submethods):
        self._step = 0
        return self._ask()

    def _ask(self):
        name, instructions, prompts, _ = self.steps[self._step]
        return name, instructions, "", prompts

    def validate_kbdint_response(self, username, responses):
        if list(responses) != self.steps[self._step][3]:
            return False
        self._step += 1
        return True if self._step == len(self.steps) else self._ask()


@pytest.fixture
async def scripted():
    """await scripted(**attributes of Scripted): the target of a server that runs scripts once one is logged in."""
    servers = []

    async def run(process):
        child = await asyncio.create_subprocess_exec(
            "/bin/sh", "-s", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

        async def pump(source, sink):
            while data := await source.read(65_536):
                sink.write(data)

        feeding = asyncio.create_task(pump(process.stdin, child.stdin))
        try:
            await asyncio.gather(pump(child.stdout, process.stdout), pump(child.stderr, process.stderr))
            process.exit(await child.wait())
        finally:
            feeding.cancel()
            child._transport.close()

    async def start(**attributes) -> SshTarget:
        key = asyncssh.generate_private_key("ssh-ed25519")
        kind = type("Server", (Scripted,), attributes)
        server = await asyncssh.listen(
            "127.0.0.1", 0, server_factory=kind, server_host_keys=[key], process_factory=run, encoding=None
        )
        servers.append(server)
        public = key.export_public_key().decode().strip()
        return SshTarget("127.0.0.1", server.get_port(), "me", name="gpu1", pinned_host_key=public)

    yield start
    for server in servers:
        server.close()


TWO_STEPS = (
    ("Cluster login", "Welcome", [("Password: ", False)], ["secret"]),
    ("", "", [("Code: ", True), ("Device: ", True)], ["123456", "phone"]),
)


async def test_two_factors(scripted, make_ssh_transport, make_asker):
    asker = make_asker(answers=[("secret",), ("123456", "phone")])
    transport = make_ssh_transport(await scripted(steps=TWO_STEPS), asker)
    await transport.connect()
    first, second = asker.prompts
    assert (first.title, first.text, first.fields) == ("Cluster login", "Welcome", (("Password:", False),))
    assert second.fields == (("Code:", True), ("Device:", True))
    assert first.host == second.host == "gpu1"
    assert (await transport.run("echo in")).stdout == b"in\n"


@pytest.mark.fault(
    "A9",
    "a person takes a minute for a code",
    sees="the question, as long as it takes",
    holds="no deadline of ours ends it",
)
async def test_a_slow_person_meets_no_deadline(scripted, make_ssh_transport, make_asker):
    asker = make_asker(answers=[("secret",), ("123456", "phone")])
    asker.gate = asyncio.Event()
    timing = Timing(login_s=2.0)
    transport = make_ssh_transport(await scripted(steps=TWO_STEPS), asker, timing)
    connecting = asyncio.create_task(transport.connect())
    await asyncio.wait_for(asker.asked.wait(), 30)
    assert transport.status().state is LinkState.WAITING
    await asyncio.sleep(2.5 * timing.login_s)  # the deadline of the login passes, were it running
    assert not connecting.done()
    asker.gate.set()
    await connecting


@pytest.mark.fault(
    "A10",
    "the link is lost after a one-time code",
    sees="WAITING for the person",
    holds="no code is asked for in a loop",
)
async def test_after_two_factors_a_lost_link_waits_for_the_person(
    scripted, make_tcp_proxy, make_ssh_transport, make_asker
):
    answers = [("secret",), ("123456", "phone")]
    asker = make_asker(answers=answers * 2)
    target = await scripted(steps=TWO_STEPS)
    proxy = await make_tcp_proxy(target.port)
    target = SshTarget(**{**target.__dict__, "port": proxy.port})
    transport = make_ssh_transport(target, asker)
    await transport.connect()
    proxy.reset()
    async for status in transport.watch():
        if status.state is LinkState.WAITING:
            break
    assert len(asker.prompts) == 2
    with pytest.raises(HostError):
        await transport.run("true")
    assert proxy.accepted == 1  # no code was asked for behind the person's back
    transport.reconnect()
    assert (await transport.run("echo back", timeout_s=60)).stdout == b"back\n"
    assert len(asker.prompts) == 4


@pytest.mark.parametrize("answers", [[None], [("secret",), None], [("wrong",)] * 9])
async def test_two_factors_refused(scripted, make_ssh_transport, make_asker, answers):
    asker = make_asker(answers=answers)
    await denied(make_ssh_transport(await scripted(steps=TWO_STEPS), asker))
    assert len(asker.prompts) <= 3


async def test_a_password_is_kept_for_reconnects(scripted, make_tcp_proxy, make_ssh_transport, make_asker):
    asker = make_asker(answers=[("wrong",), ("secret",)])
    target = await scripted(password="secret")
    proxy = await make_tcp_proxy(target.port)
    transport = make_ssh_transport(SshTarget(**{**target.__dict__, "port": proxy.port}), asker)
    await transport.connect()
    assert [prompt.fields for prompt in asker.prompts] == [(("Password", False),)] * 2
    proxy.reset()
    assert (await transport.run("echo back", timeout_s=60)).stdout == b"back\n"
    assert len(asker.prompts) == 2


async def test_wrong_passwords_end_after_three(scripted, make_ssh_transport, make_asker):
    asker = make_asker(answers=[("wrong",)] * 9)
    await denied(make_ssh_transport(await scripted(password="secret"), asker))
    assert len(asker.prompts) == 3


@pytest.mark.fault("A11", "the password has expired", sees="the server's words", holds="an end, not a hang")
async def test_an_expired_password_is_said(scripted, make_ssh_transport, make_asker):
    asker = make_asker(answers=[("secret",)])
    error = await denied(make_ssh_transport(await scripted(password="secret", expired=True), asker))
    assert "expired" in error.message
    assert "\x1b" not in error.message


@pytest.mark.fault(
    "A12", "a banner or prompt has escape sequences", sees="harmless text", holds="none reaches the terminal"
)
async def test_text_of_the_server_is_neutralised(scripted, make_ssh_transport, make_asker):
    evil = "\x1b]52;c;aGk=\x07\x1b[2Jhello\u202e\x9b31m"
    steps = ((evil, evil, [(evil, False)], ["x"]),)
    asker = make_asker(answers=[("x",)])
    transport = make_ssh_transport(await scripted(steps=steps, banner=evil), asker)
    await transport.connect()
    (prompt,) = asker.prompts
    for text in (prompt.title, prompt.text, prompt.fields[0][0]):
        assert "hello" in text
        assert not set(text) & set("\x1b\x07\x9b\u202e")


async def test_closing_while_a_person_is_asked(scripted, make_ssh_transport, make_asker):
    asker = make_asker(answers=[("secret",)])
    asker.gate = asyncio.Event()
    transport = make_ssh_transport(await scripted(steps=TWO_STEPS), asker)
    connecting = asyncio.create_task(transport.connect())
    await asyncio.wait_for(asker.asked.wait(), 30)
    await asyncio.wait_for(transport.close(), 30)
    with pytest.raises(HostError):
        await connecting


async def test_closing_while_a_passphrase_is_asked_for(sshd, make_ssh_transport, make_asker, locked_key, until):
    asker = make_asker()
    asker.gate = asyncio.Event()
    transport = make_ssh_transport(sshd.target(identity_files=(locked_key,)), asker)
    connecting = asyncio.create_task(transport.connect())
    await asyncio.wait_for(asker.asked.wait(), 30)
    await asyncio.wait_for(transport.close(), 30)
    with pytest.raises(HostError):
        await connecting

    def asking():
        return [task for task in asyncio.all_tasks() if "Client._passphrase" in str(task)]

    await until(lambda: not asking())
