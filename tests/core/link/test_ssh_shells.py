"""One shell takes script after script: nothing of one is seen by the next, and no fault of one is another's."""

import asyncio
import hashlib
import os
import shutil

import pytest

from tui.core.errors import HostError, LinkLost, TimedOut
from tui.core.link import scripts
from tui.core.link.scripts import Explainer, Input

SHELLS = [
    ["dash", "-s"],
    ["bash", "-s"],
    ["bash", "--posix", "-s"],
    ["busybox", "sh", "-s"],
    ["zsh", "--emulate", "sh", "-s"],
]


class PipeChannel:
    """A shell of this machine as a channel."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.used = self.waits = False

    @classmethod
    async def start(cls, *argv: str, env: dict[str, str] | None = None) -> "PipeChannel":
        if shutil.which(argv[0]) is None:
            pytest.skip(f"no {argv[0]}")
        piped = asyncio.subprocess.PIPE
        return cls(
            await asyncio.create_subprocess_exec(
                *argv, stdin=piped, stdout=piped, stderr=piped, env=env, start_new_session=True
            )
        )

    def write(self, data: bytes) -> None:
        self.process.stdin.write(data)

    def write_eof(self) -> None:
        self.process.stdin.close()

    async def drain(self) -> None:
        await self.process.stdin.drain()

    async def read_stdout(self, max_bytes: int) -> bytes:
        return await self.process.stdout.read(max_bytes)

    async def read_stderr(self, max_bytes: int) -> bytes:
        return await self.process.stderr.read(max_bytes)

    async def ended(self) -> int | str | None:
        return await self.process.wait()

    def close(self) -> None:
        self.process.stdin.close()

    async def run(self, script: str) -> tuple[int, bytes, bytes]:
        done = await scripts.run_script(self, script, explain=Explainer("here"), max_output_bytes=8 << 20)
        assert self.waits
        return done.exit_status, done.stdout, done.stderr


@pytest.fixture(params=SHELLS, ids=lambda argv: "-".join(argv[:2]))
async def shell(request):
    channel = await PipeChannel.start(*request.param)
    yield channel
    scripts.end(channel)
    async with asyncio.timeout(20):
        assert await channel.process.wait() == 0  # it was waiting for a script, and took its leave


async def test_nothing_of_a_script_reaches_the_next(shell):
    assert await shell.run("a=1; cd /; set -euf; trap 'echo bye' EXIT; umask 0; f() { :; }; exec 2>&1; echo out") == (
        0,
        b"out\nbye\n",
        b"",
    )
    left = "echo ${a-unset} $PWD $(umask) $-; command -v f; trap; echo err >&2"
    _, out, err = await shell.run(left)
    assert (out, err) == ((await shell.run(left))[1], b"err\n")
    assert out.split()[:2] == [b"unset", os.getcwd().encode()]
    assert b"0000" not in out
    assert b"bye" not in out
    assert await shell.run("exit 7") == (7, b"", b"")
    assert await shell.run("exec false") == (1, b"", b"")
    assert (await shell.run("set -u; echo $nothing_at_all; echo not reached"))[1] == b""
    assert await shell.run("cat; echo no input") == (0, b"no input\n", b"")  # what comes next is not the script's input
    assert await shell.run("printf 'no newline'; printf half >&2") == (0, b"no newline", b"half")
    assert await shell.run("") == (0, b"", b"")


async def test_bytes_are_exact_in_both_outputs_again_and_again(shell):
    script = "head -c 3000000 /dev/urandom > $F; cat $F; cat $F >&2; cksum < $F; rm $F"
    for _ in range(3):
        status, out, err = await shell.run(f"F=/tmp/eagletui-shells-$$\n{script}")
        assert (status, len(err)) == (0, 3_000_000)
        assert out[:3_000_000] == err
        at = await asyncio.create_subprocess_exec(
            "cksum", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
        )
        assert (await at.communicate(err))[0] == out[3_000_000:]


async def test_a_script_of_megabytes_arrives_whole(shell):
    text = "".join(f"{number:07d}é\n" for number in range(120_000))
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert (await shell.run(f"sha256sum <<'EAGLETUI_TEXT'\n{text}EAGLETUI_TEXT"))[1].split()[0].decode() == digest
    assert await shell.run("echo next") == (0, b"next\n", b"")


@pytest.mark.parametrize("argv", SHELLS[:4], ids=lambda argv: "-".join(argv[:2]))
async def test_a_second_upload_cut_at_any_byte_runs_nothing(argv, tmp_path):
    mark = tmp_path / "ran"
    first = scripts.wrap("true", "etfirst", Input.LINE_ENDS)
    second = scripts.wrap(f"touch {mark}", "etsecond", Input.LINE_ENDS)
    if shutil.which(argv[0]) is None:
        pytest.skip(f"no {argv[0]}")
    for cut in range(0, len(second) - 1, 11):  # the last newline may be missing
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
        process.stdin.write(first)
        await process.stderr.readuntil(b"etfirst end 0\n")
        process.stdin.write(second[:cut])
        process.stdin.close()
        await process.stderr.read()
        await process.wait()
        assert not mark.exists(), cut


async def test_a_host_without_setsid_gets_a_shell_for_each_script(tmp_path):
    for name in ("sh", "sleep", "cat"):
        (tmp_path / name).symlink_to(shutil.which(name))
    channel = await PipeChannel.start("/bin/sh", "-s", env={"PATH": str(tmp_path)})
    done = await scripts.run_script(channel, "echo out", explain=Explainer("here"), max_output_bytes=1000)
    assert (done.stdout, channel.waits) == (b"out\n", False)
    assert await channel.process.wait() == 0  # what it started might be in its process group


# Over a real sshd


@pytest.mark.fault("F14", "a login that takes seconds", sees="one wait", holds="calls share what was opened")
async def test_calls_one_after_another_share_a_shell(ssh_transport, sshd, until):
    await ssh_transport.connect()
    pids = {(await ssh_transport.run("echo $PPID $$")).stdout for _ in range(5)}
    assert len(pids) == 1
    await ssh_transport.run("true", alone=True)
    assert (await ssh_transport.run("echo $PPID $$")).stdout not in pids


async def test_a_script_that_hangs_delays_no_other(ssh_transport, tmp_path, until, gone):
    assert (await ssh_transport.run("echo first")).stdout == b"first\n"
    pid = tmp_path / "pid"
    hung = asyncio.create_task(ssh_transport.run(f"echo $$ > {pid}; sleep 600", timeout_s=600))
    await until(lambda: pid.exists() and pid.read_text())
    done = await asyncio.gather(*[ssh_transport.run(f"echo {n}") for n in range(6)])
    assert [int(one.stdout) for one in done] == list(range(6))
    hung.cancel()
    await asyncio.gather(hung, return_exceptions=True)
    await until(lambda: gone(int(pid.read_text())))
    with pytest.raises(TimedOut):
        await ssh_transport.run("sleep 600", timeout_s=1)
    assert (await ssh_transport.run("echo fine")).stdout == b"fine\n"


async def test_a_shell_that_ended_while_it_waited_is_replaced(ssh_transport, sshd, tmp_path, until, gone):
    """The script has not run, which is known: its first word would have come before the shell's end."""
    pid = int((await ssh_transport.run("echo $$")).stdout)
    os.kill(pid, 9)
    await until(lambda: gone(pid))
    mark = tmp_path / "mark"
    assert (await ssh_transport.run(f"echo once >> {mark}; echo fine")).stdout == b"fine\n"
    assert mark.read_text() == "once\n"
    pid = int((await ssh_transport.run("echo $$")).stdout)
    os.kill(pid, 9)
    async with ssh_transport.stream(f"echo twice >> {mark}; echo streamed") as stream:
        assert await stream.read() == b"streamed\n"
    assert mark.read_text() == "once\ntwice\n"


async def test_a_script_that_kills_its_shell_is_an_error_and_never_run_again(ssh_transport, tmp_path):
    mark = tmp_path / "mark"
    assert (await ssh_transport.run("echo first")).stdout == b"first\n"
    for script in ("kill -9 $$", "echo half; kill -9 0", "kill $$"):
        with pytest.raises(HostError) as caught:
            await ssh_transport.run(f"echo x >> {mark}; {script}")
        assert caught.value.slug == "killed"
    assert mark.read_text() == "x\nx\nx\n"
    assert (await ssh_transport.run("echo fine")).stdout == b"fine\n"


@pytest.mark.parametrize("cut", [1, 40, 300, 1200, 2500, 20_000])
async def test_a_link_cut_at_any_byte_of_a_later_script(sshd, make_tcp_proxy, make_ssh_transport, tmp_path, cut):
    proxy = await make_tcp_proxy(sshd.port)
    transport = make_ssh_transport(sshd.target(proxy.port))
    mark = tmp_path / "mark"
    assert (await transport.run("echo first")).stdout == b"first\n"
    proxy.cut_after(cut)
    with pytest.raises(LinkLost):
        await transport.run(f"echo x >> {mark}; head -c 30000 /dev/zero; : {'y' * 3000}")
    assert (await transport.run("echo back", timeout_s=60)).stdout == b"back\n"
    assert not mark.exists() or mark.read_text() == "x\n"  # never twice


async def test_a_program_that_ends_late_disturbs_no_other(ssh_transport, tmp_path, until):
    go, wrote = tmp_path / "go", tmp_path / "wrote"
    late = f"trap '' PIPE; (while [ ! -e {go} ]; do sleep 0.05; done; echo late; touch {wrote}) & echo now"
    assert (await ssh_transport.run(late, alone=True)).stdout == b"now\n"
    go.touch()
    await until(wrote.exists)
    assert (await ssh_transport.run("echo mine")).stdout == b"mine\n"
