"""`eagletui diagnose` on files and streams: following, and pattern files of the user's own."""

import json
import signal
import subprocess

import pytest

pytestmark = pytest.mark.timeout(120)

BEGIN = b"[2026-10-06 20:01:15 TP0] Load weight begin. avail mem=94.50 GB\n"
MORE = b"[2026-10-06 20:02:01 TP0] Memory pool end. avail mem=11.20 GB\n"
DEATH = (
    b"[2026-10-06 20:02:05 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    b'  File "/x/sglang/srt/model_executor/cuda_graph_runner.py", line 1, in capture\n'
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB.\n"
    b"\n"
    b"[2026-10-06 20:02:06] Received sigquit from a child process. It usually means the child failed.\n"
)


def next_report(process) -> dict[str, object]:
    return json.loads(process.stdout.readline())


@pytest.mark.parametrize("source", ["file", "pipe"])
def test_following_says_each_change(eagletui, source):
    log = eagletui.home / "server.log"
    log.write_bytes(b"")
    what = "./server.log" if source == "file" else "-"
    process = eagletui.popen("diagnose", what, "-f", "--json", stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def write(data: bytes) -> None:
        if source == "pipe":
            process.stdin.write(data)
            process.stdin.flush()
        else:
            with log.open("ab") as out:
                out.write(data)

    try:
        for data, phase, outcome in (
            (BEGIN, "load_weights", "starting"),
            (MORE, "memory_pool", "starting"),
            (DEATH, "cuda_graph", "crashed"),
        ):
            write(data)
            found = next_report(process)
            while found["phase"] != phase or (outcome == "crashed" and found["cause"] is None):
                found = next_report(process)  # it may have read a part only
            assert found["outcome"] == outcome
        assert found["cause"] == "oom_cuda_graph"
        if source == "pipe":
            process.stdin.close()
            assert process.wait(30) == 0
        else:
            assert process.poll() is None  # somebody may write on
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 130
    finally:
        process.kill()
        process.wait()


def test_a_wrong_pattern_is_one_line_and_the_others_work(eagletui):
    directory = eagletui.home / ".config/eagletui/patterns"
    directory.mkdir(parents=True)
    (directory / "mine.toml").write_text(
        '[[failure]]\nid = "broken"\nregex = "(unclosed"\n'
        '[[failure]]\nid = "licence"\ncause = "import_error"\nfatal = true\n'
        "regex = 'licence for (?P<what>\\w+) has expired'\n"
        'title = "The licence for {what} has expired."\nadvice = ["Renew it."]\n'
    )
    (eagletui.home / "died.log").write_bytes(BEGIN + b"licence for warp has expired\n")
    done = eagletui.run("diagnose", "./died.log")
    assert done.returncode == 0
    (line,) = done.stderr.splitlines()
    assert "mine.toml: failure 1 (broken): regex: missing )" in line
    assert "The licence for warp has expired." in done.stdout
    document = eagletui.json("diagnose", "./died.log")
    assert document["advice"] == ["Renew it."]
    shown = eagletui.json("doctor", "local", code=None)
    assert "mine.toml: failure 1 (broken)" in json.dumps(shown)
