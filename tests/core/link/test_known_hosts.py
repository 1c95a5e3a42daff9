"""known_hosts as users have it: hashed, revoked, half broken, in any encoding."""

import base64
import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from tui.core.link import known_hosts
from tui.core.link.known_hosts import Verdict


def blob(seed: int, kind: str = "ssh-ed25519") -> bytes:
    name = kind.encode()
    key = bytes([seed]) * 32
    return len(name).to_bytes(4, "big") + name + len(key).to_bytes(4, "big") + key


def line(hosts: str, seed: int, *, marker: str = "", kind: str = "ssh-ed25519", comment: str = "") -> str:
    words = [marker, hosts, kind, base64.b64encode(blob(seed, kind)).decode(), comment]
    return " ".join(word for word in words if word) + "\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "known_hosts"


def judge(file: Path, host: str, port: int, seed: int, *, alias: str | None = None, kind: str = "ssh-ed25519"):
    return known_hosts.lookup([file], host, port, alias=alias).judge(blob(seed, kind), kind)


@pytest.mark.parametrize(
    ("hosts", "host", "port", "verdict"),
    [
        ("gpu1", "gpu1", 22, Verdict.TRUSTED),
        ("gpu1", "GPU1", 22, Verdict.TRUSTED),
        ("gpu1,10.0.0.1", "10.0.0.1", 22, Verdict.TRUSTED),
        ("[gpu1]:2222", "gpu1", 2222, Verdict.TRUSTED),
        ("[gpu1]:2222", "gpu1", 22, Verdict.UNKNOWN),
        ("gpu1", "gpu1", 2222, Verdict.TRUSTED),  # falls back, like OpenSSH
        ("*.lab", "gpu1.lab", 22, Verdict.TRUSTED),
        ("gpu?.lab", "gpu12.lab", 22, Verdict.UNKNOWN),
        ("*.lab,!gpu1.lab", "gpu1.lab", 22, Verdict.UNKNOWN),
        ("*.lab,!gpu1.lab", "gpu2.lab", 22, Verdict.TRUSTED),
        ("gpu1.lab", "gpu1xlab", 22, Verdict.UNKNOWN),  # a dot is a dot
        ("[::1]:2222", "::1", 2222, Verdict.TRUSTED),
    ],
)
def test_which_lines_name_a_host(file, hosts, host, port, verdict):
    file.write_text(line(hosts, 1))
    assert judge(file, host, port, 1)[0] is verdict


def test_another_key_of_a_known_host_is_changed_whatever_its_type(file):
    file.write_text("# comment\n" + line("gpu1", 1))
    verdict, known = judge(file, "gpu1", 22, 2)
    assert verdict is Verdict.CHANGED
    assert known is not None
    assert known.where == f"{file}:2"
    assert judge(file, "gpu1", 22, 2, kind="ecdsa-sha2-nistp256")[0] is Verdict.CHANGED


def test_the_line_of_the_same_type_is_named(file):
    file.write_text(line("gpu1", 1, kind="ssh-rsa") + line("gpu1", 1))
    _, known = judge(file, "gpu1", 22, 2)
    assert known is not None
    assert known.line == 2


def test_a_revoked_key_is_revoked_even_if_it_is_trusted_too(file):
    file.write_text(line("gpu1", 1) + line("*", 1, marker="@revoked"))
    assert judge(file, "gpu1", 22, 1)[0] is Verdict.REVOKED


def test_authorities_are_no_host_keys(file):
    file.write_text(line("*.lab", 1, marker="@cert-authority"))
    keys = known_hosts.lookup([file], "gpu1.lab", 22)
    assert [key.blob for key in keys.authorities] == [blob(1)]
    assert keys.judge(blob(1), "ssh-ed25519")[0] is Verdict.UNKNOWN


def test_alias_is_looked_up_instead_of_the_host(file):
    file.write_text(line("gpu1", 1) + line("cluster", 2))
    assert judge(file, "gpu1", 2222, 2, alias="cluster")[0] is Verdict.TRUSTED
    assert judge(file, "gpu1", 2222, 1, alias="cluster")[0] is Verdict.CHANGED
    file.write_text(line("[cluster]:2222", 2))
    assert judge(file, "gpu1", 2222, 2, alias="cluster")[0] is Verdict.TRUSTED


def test_bad_lines_hide_nothing(file):
    file.write_bytes(
        b"garbage\n"
        b"gpu1 ssh-ed25519\n"
        b"gpu1 ssh-ed25519 AAAA!!!\n"
        b"gpu1 ssh-ed25519 AAAA\n"  # base64, but no key
        b"|1|xx|yy ssh-ed25519 AAAA\n"
        b"@unknown-marker gpu1 ssh-ed25519 AAAA\n"
        b"\xff\xfe\x00\n"
        b"# caf\xe9\n" + line("gpu1", 1, comment="caf").encode().rstrip() + b"\xe9\r\n"
    )
    keys = known_hosts.lookup([file], "gpu1", 22)
    assert keys.judge(blob(1), "ssh-ed25519")[0] is Verdict.TRUSTED
    assert keys.bad_lines == tuple(f"{file}:{number}" for number in range(1, 8))


def test_missing_and_unreadable_files_are_empty(tmp_path):
    keys = known_hosts.lookup([tmp_path / "missing", tmp_path], "gpu1", 22)
    assert keys.keys == ()


def test_hashed_lines_are_those_of_ssh_keygen(file):
    file.write_text(line("gpu1", 1) + line("[gpu2]:2222", 2) + "|1|bad|worse ssh-ed25519 AAAA\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=False, capture_output=True)
    text = file.read_text()
    if "gpu1" in text:  # ssh-keygen leaves a file with a line it cannot read as it is
        file.write_text(line("gpu1", 1) + line("[gpu2]:2222", 2))
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    assert "gpu" not in file.read_text()
    assert judge(file, "gpu1", 22, 1)[0] is Verdict.TRUSTED
    assert judge(file, "gpu2", 2222, 2)[0] is Verdict.TRUSTED
    assert judge(file, "gpu2", 2222, 1)[0] is Verdict.CHANGED
    assert judge(file, "gpu3", 22, 1)[0] is Verdict.UNKNOWN


def find(file: Path, name: str) -> bool:
    return subprocess.run(["ssh-keygen", "-F", name, "-f", file], capture_output=True).returncode == 0


def test_append_is_read_by_openssh_and_leaves_the_rest_alone(tmp_path):
    file = tmp_path / "new" / "known_hosts"
    known_hosts.append(file, "[gpu1]:2222", "ssh-ed25519", blob(1))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert find(file, "[gpu1]:2222")
    before = b"# caf\xe9, no newline at the end"
    file.write_bytes(before)
    known_hosts.append(file, "gpu2", "ssh-ed25519", blob(2))
    assert file.read_bytes() == before + b"\n" + line("gpu2", 2).encode()


@pytest.mark.parametrize("wanted", [True, False])
def test_append_hashes_where_asked_or_where_the_file_is_hashed(file, wanted):
    if not wanted:
        file.write_text(line("other", 3))
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", file], check=True, capture_output=True)
    known_hosts.append(file, "[gpu1]:2222", "ssh-ed25519", blob(1), hashed=wanted)
    assert "gpu1" not in file.read_text()
    assert find(file, "[gpu1]:2222")
    assert judge(file, "gpu1", 2222, 1)[0] is Verdict.TRUSTED


def test_appends_from_many_sides_lose_no_line(file):
    threads = [
        threading.Thread(target=known_hosts.append, args=(file, f"gpu{number}", "ssh-ed25519", blob(number)))
        for number in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(file.read_text().splitlines()) == sorted(line(f"gpu{n}", n).strip() for n in range(20))


def test_append_where_nothing_can_be_written(tmp_path):
    if os.geteuid() == 0:
        target = Path("/proc/known_hosts")  # root may write anywhere else
    else:
        target = tmp_path / "closed" / "known_hosts"
        target.parent.mkdir(mode=0o500)
    with pytest.raises(OSError, match=r".+"):
        known_hosts.append(target, "gpu1", "ssh-ed25519", blob(1))


def test_fingerprint_is_that_of_openssh(tmp_path, new_key):
    key = new_key(tmp_path / "key")
    said = subprocess.run(["ssh-keygen", "-l", "-f", key], capture_output=True, text=True, check=True).stdout.split()
    public = base64.b64decode(Path(f"{key}.pub").read_text().split()[1])
    assert known_hosts.fingerprint(public) == said[1]
