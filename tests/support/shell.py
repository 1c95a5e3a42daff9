"""The real command in a process of its own, with a home of its own."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ME = [sys.executable, "-m", "tui"]


@dataclass
class Done:
    """A command that has ended."""

    code: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """The one document on stdout."""
        assert self.out.count(b"\n") == 1, self.out
        return json.loads(self.out)

    def refused(self, code: int, slug: str) -> Any:
        """The document of an error: exit code, slug, a line and a hint."""
        document = self.json
        assert (self.code, document["error"]) == (code, slug), (self.out, self.err)
        assert document["message"]
        assert "\n" not in document["message"]
        assert {"error", "message", "hint"} <= set(document)
        return document


class Shell:
    """Runs eagletui in an environment of its own."""

    def __init__(self, home: Path, cwd: Path, **extra: str) -> None:
        self.home = home
        self.cwd = cwd
        kept = {k: v for k, v in os.environ.items() if k in ("PYTHONPATH", "PATH", "LANG", "LC_ALL", "TERM", "TMPDIR")}
        self.env = {**kept, "HOME": str(home), "EAGLETUI_HOME": str(home / "eagletui"), **extra}

    def row(self, run: str, host: str = "local") -> Any:
        """What `ps` says about a run; other people's servers may be on this machine too."""
        return next(row for row in self("ps", host, "--json").json if row["run"] == run)

    def start(self, *args: str | bytes, **options: Any) -> subprocess.Popen[bytes]:
        env = {**self.env, **options.pop("env", {})}
        piped = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(
            [*ME, *args], cwd=self.cwd, env={k: v for k, v in env.items() if v is not None}, **piped | options
        )

    def __call__(self, *args: str | bytes, input: bytes | None = None, timeout: float = 90, **options: Any) -> Done:
        if input is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start(*args, **options)
        try:
            out, err = process.communicate(input, timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            pytest.fail(f"{args} hangs: {out[-500:]!r} {err[-500:]!r}")
        text = (err or b"").decode("utf-8", "replace")
        assert "Traceback" not in text, text
        return Done(process.returncode, out or b"", text)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, shell: Shell, *args: str, program: list[str] | None = None) -> None:
        self.shown = b""
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.chdir(shell.cwd)
            os.execve(sys.executable, program or [*ME, *args], shell.env)

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *exc: object) -> None:
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._fd)

    def _read(self, end: float) -> bytes:
        if not select.select([self._fd], [], [], max(0.0, end - time.monotonic()))[0]:
            pytest.fail(f"nothing more: {self.shown!r}")
        try:
            data = os.read(self._fd, 65_536)
        except OSError:  # Linux says EIO where the other side has ended
            data = b""
        self.shown += data
        return data

    def until(self, wanted: bytes) -> None:
        end = time.monotonic() + 60
        while wanted not in self.shown:
            if not self._read(end):
                pytest.fail(f"ended without {wanted!r}: {self.shown!r}")

    def read_to_end(self) -> bytes:
        end = time.monotonic() + 60
        while self._read(end):
            pass
        return self.shown

    def write(self, data: bytes) -> None:
        os.write(self._fd, data)

    def code(self) -> int:
        pid, self._pid = self._pid, 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
