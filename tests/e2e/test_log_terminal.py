"""`eagletui logs` in a real terminal: hostile lines, files that change under it, a link that is lost, what it prints without."""

import re
from pathlib import Path

import pytest

HOSTILE = (
    b"[2026-10-06 20:00:00 TP0] markup [bold red]x[/] [/x] list[int] $var %s {0}",
    b"[2026-10-06 20:00:01 TP0] ansi \x1b[31mred\x1b[0m \x1b[2J\x1b[H \x1b]0;owned\x07title \x1b]52;c;b3duZWQ=\x07clipboard",
    b"[2026-10-06 20:00:02 TP0] c1 \xc2\x9b31mcsi \xc2\x9d0;owned\x07osc",
    "[2026-10-06 20:00:03 TP0] bidi \u202eabc\u202c \u2066x\u2069 done".encode(),
    "[2026-10-06 20:00:04 TP0] wide 重み 한국어 e\u0301 \u200b\u200d\ufeff done".encode(),
    b"[2026-10-06 20:00:05 TP0] nul \x00\x01 bell \x07 back\x08space del \x7f done",
    b"[2026-10-06 20:00:06 TP0] broken \xff\xfe \xc3\x28 \xed\xa0\x80 utf",
    b"[2026-10-06 20:00:07 TP0] tab\tone\ttwo",
    b"[2026-10-06 20:00:08 TP0] server_args=ServerArgs(api_key='sk-very-secret-1', tp=8)",
    b"\x1b[?1049l\x1b[?25h private \x1bP+q\x1b\\ \x1b_apc\x1b\\ modes",
)  # fmt: skip
CLOCK = r"20:00:\d\d TP0 +"


def decode_line(second: int) -> str:
    clock = f"{20 + second // 3600}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"[2026-10-06 {clock} TP0] Decode batch, #running-req: 1, #token: {second}, accept len: 2.31, gen throughput (token/s): 72.10, #queue-req: 0\n"


@pytest.fixture
def view(terminal, eagletui):
    """view(FILE…) opens the view on files of this machine."""

    def start(*files: Path | str, **options: object):
        env = {"HOME": str(eagletui.home)}
        return terminal([*eagletui.argv, "logs", *map(str, files)], env, cwd=eagletui.home, **options)

    return start


def test_hostile_lines_are_shown_and_do_nothing(view, tmp_path):
    log = tmp_path / "hostile.log"
    with log.open("wb") as file:
        for line in HOSTILE:
            file.write(line + b"\n")
        file.write(b"[2026-10-06 20:00:09 TP0] huge ")
        for _ in range(100):
            file.write(b"y" * 1_000_000)
        file.write(b"\n[2026-10-06 20:00:10 TP0] the last line\n")
    screen = view(log)
    screen.wait_for(CLOCK + "the last line", 60)
    screen.wait_for(CLOCK + r"markup \[bold red\]x\[/\] \[/x\] list\[int\] \$var %s \{0\}", 60)
    shown = screen.screen()
    for text in (
        "ansi red  title clipboard", "c1 csi osc", "bidi �abc� �x� done", "重み 한국어", "nul ␀␁ bell ␇ back␈space del ␡ done",
        "broken �� �( ��� utf", "tab     one     two", "api_key='***'", "private", "modes", "100.0 MB",
    ):  # fmt: skip
        assert text in shown
    assert "very-secret" not in shown
    # Rows under one another: nothing moved the cursor, switched screens or set a title.
    rows = [row for row in shown.split("\n") if re.search(CLOCK, row)]
    assert len(rows) == len(HOSTILE) - 1 + 2
    assert shown.startswith(" eagletui logs")
    title, buffer = screen._run("display-message", "-p", "#{pane_title}"), screen._run("list-buffers")
    assert "owned" not in title + buffer
    screen.keys("k", "k", "Enter")  # the line of 100 MB, whole as far as it is kept
    screen.wait_for("Esc back")
    screen.keys("Escape")
    screen.wait_gone("Esc back")
    screen.keys("w")
    screen.wait_for(CLOCK + "huge y+")
    screen.keys("w", "/")
    screen.wait_for("Enter done")
    screen.type("list[int]")
    screen.wait_for("1 hits")
    screen.keys("Enter", "V", "j", "j", "y")
    screen.wait_for("Copied the 3 rows")
    screen.keys("q")
    assert screen.wait_exit() == 0


def test_what_was_copied_is_in_a_file_and_in_the_terminals_clipboard(view, eagletui, tmp_path):
    log = tmp_path / "x.log"
    log.write_bytes(b"\n".join(HOSTILE) + b"\n")
    screen = view(log)
    screen._run("set", "-s", "set-clipboard", "on")
    screen.wait_for(CLOCK + "tab +one")
    screen.keys("g", "V", "j", "y")
    screen.wait_for("Copied the 2 rows, also in")
    copied = next(eagletui.home.rglob("copied.txt")).read_text().splitlines()
    assert copied[0] == "[2026-10-06 20:00:00 TP0] markup [bold red]x[/] [/x] list[int] $var %s {0}"
    assert copied[1] == "[2026-10-06 20:00:01 TP0] ansi red  title clipboard"
    assert "list[int]" in screen._run("show-buffer")
    screen.keys("g")
    _write(screen, "saved.log")
    screen.wait_for("wrote 10 lines to")
    saved = (eagletui.home / "saved.log").read_text()
    assert len(saved.splitlines()) == 10
    assert "\x1b" not in saved
    assert "very-secret" not in saved
    _write(screen, "saved.log")
    screen.wait_for("give another name")


def _write(screen, name: str) -> None:
    screen.keys("W")
    screen.wait_for("eagletui-x-")  # the name that is offered
    screen.keys("C-u")
    screen.wait_gone("eagletui-x-")
    screen.type(name)
    screen.wait_for(rf"│ +{name} +│")
    screen.keys("Enter")


def test_a_file_that_is_truncated_replaced_and_gone_is_told_and_read_on(view, tmp_path):
    log = tmp_path / "x.log"
    log.write_text("[2026-10-06 20:00:00 TP0] alpha\n")
    screen = view(log)
    screen.wait_for(CLOCK + "alpha")
    with log.open("a") as file:
        file.write("[2026-10-06 20:00:01 TP0] beta\n")
    screen.wait_for(CLOCK + "beta")
    log.write_text("[2026-10-06 20:00:02 TP0] c\n")
    screen.wait_for(r"\[eagletui\] the file was truncated")
    screen.wait_for(CLOCK + "c$|" + CLOCK + r"c\s")
    log.rename(tmp_path / "x.log.1")
    screen.wait_for("the file is gone")
    log.write_text("[2026-10-06 20:00:03 TP0] delta\n")
    screen.wait_for(r"\[eagletui\] the file was replaced")
    screen.wait_for(CLOCK + "delta")
    screen.wait_gone("the file is gone")
    shown = screen.screen()
    assert [len(re.findall(CLOCK + word, shown)) for word in ("alpha", "beta", "c ", "delta")] == [1, 1, 1, 1]


def test_a_link_lost_in_the_middle_is_told_and_no_byte_is_missing(terminal, gpu_host):
    log = gpu_host.remote_home / "x.log"
    log.write_text("".join(decode_line(second) for second in range(300)))
    env = {"HOME": str(gpu_host.eagletui.home)}
    screen = terminal([*gpu_host.eagletui.argv, "logs", f"gpu1:{log}"], env)
    screen.wait_for("#token: 299")
    screen.wait_for(r"300 lines.*read to the end")
    gpu_host.link.freeze()
    gpu_host.link.cut()
    with log.open("a") as file:
        file.writelines(decode_line(second) for second in range(300, 340))
    screen.wait_for("link lost", 60)
    gpu_host.link.thaw()
    screen.wait_for("#token: 339", 60)
    screen.wait_for(r"\[eagletui\] the link was lost for .*no byte of the log is missing")
    screen.keys("z", ":")
    screen.wait_for("Enter done")
    screen.type("301")
    screen.keys("Enter")
    screen.wait_for(r"▌ *301 .*#token: 300\b")
    shown = screen.screen()
    tokens = [int(number) for number in re.findall(r"#token: (\d+)", shown)]
    assert tokens == list(range(tokens[0], tokens[0] + len(tokens)))


def test_two_logs_stand_side_by_side(view, tmp_path):
    for name, day, word in (("a", "06", "left"), ("b", "07", "right")):
        lines = [f"[2026-10-{day} 20:00:{n:02d} TP0] {word} says {chr(97 + n % 26) * 5}\n" for n in range(40)]
        (tmp_path / f"{name}.log").write_text("".join(lines))
    screen = view(tmp_path / "a.log", tmp_path / "b.log")
    screen.wait_for("left says nnnnn.*│.*right says nnnnn")
    screen.wait_for(r"\+0:00:39 ")
    screen.keys("|")
    screen.wait_gone("right says")
    screen.wait_for("left says nnnnn")
    screen.keys("q")
    assert screen.wait_exit() == 0
    small = view(tmp_path / "a.log", tmp_path / "b.log", columns=80, rows=24)
    small.wait_for("left says nnnnn.*│.*right says nnnnn")
    narrow = view(tmp_path / "a.log", tmp_path / "b.log", columns=70, rows=24)
    narrow.wait_for("left says nnnnn")
    narrow.keys("|")
    narrow.wait_for("Side by side needs 80 columns")
    assert "right says" not in narrow.screen()


def test_what_cannot_be_opened_is_one_line(view, tmp_path, eagletui):
    for what, word in ((tmp_path / "nosuch.log", "is not there"), (tmp_path, "is a directory")):
        screen = view(what)
        assert screen.wait_exit() == 2
        lines = [line for line in screen.screen().split("\n") if line.strip()]
        assert len(lines) == 1
        assert lines[0].startswith("eagletui: ")
        assert word in lines[0]


def test_a_pipe_gets_the_bytes_and_no_screen(eagletui, tmp_path):
    log = tmp_path / "x.log"
    log.write_bytes(HOSTILE[0] + b"\n")
    done = eagletui.run("logs", str(log))
    assert done.stdout == HOSTILE[0].decode() + "\n"
    done = eagletui.run("logs", str(log), str(log))
    assert done.returncode == 2
    assert "need a terminal" in done.stderr
