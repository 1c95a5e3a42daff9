"""Posted launch commands: what a shell would hand over, and the profile that comes of it."""

import html
import json
import shutil
import signal
import subprocess
from functools import cache
from pathlib import Path

import pytest
import tomli
from hypothesis import given, settings
from hypothesis import strategies as st

from tui.core.errors import UsageError
from tui.core.profiles.importing.bash_tree import MAX_BYTES
from tui.core.profiles.importing.call import Reading
from tui.core.profiles.importing.shell import Shell
from tui.core.profiles.importing.shell_command import ImportedCommand, import_command
from tui.core.profiles.launch_profile import ContainerTable
from tui.core.profiles.load import discover, load_launch

DATA = Path(__file__).parents[3] / "data" / "commands"
CASES = [json.loads(line) for line in (DATA / "cases.jsonl").read_text(encoding="utf-8").splitlines()]
CALL = "python -m sglang.launch_server --model-path /m"
HOME = "/home/u"


def imported(text: str) -> ImportedCommand:
    return import_command(text, HOME)


def profile(text: str) -> dict:
    return tomli.loads(imported(text).profile)


WHOLE = [case for case in CASES if "argv" in case["truth"]]
PARTS = [case for case in CASES if "needs" in case["truth"]]
SAME = {"tp": {"tp", "tp-size", "tensor-parallel-size"}, "model-path": {"model-path", "model"}}


@pytest.mark.parametrize("case", PARTS, ids=[case["id"] for case in PARTS])
def test_what_people_paste(case):
    """Flags with their values, variables, what the sentences must name, and what is no word of the command."""
    truth = case["truth"]
    found = import_command((DATA / case["file"]).read_bytes().decode(), HOME)
    words = [part for word in found.argv for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for flag, value in truth["needs"]:
        at = next((n for n, word in enumerate(words) if word[2:] in SAME.get(flag, {flag}) and word[:2] == "--"), None)
        assert at is not None, flag
        assert value is None or words[at + 1] == value
    assert {name: found.env.get(name) for name in truth["env"]} == truth["env"]
    assert [name for name in truth["names"] if name not in "\n".join(found.warnings)] == []
    assert [w for w in truth["lacks"] for word in words[3:] if word.strip("-") == w or (len(w) > 3 and w in word)] == []


WAYS = {
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "in a fence": lambda text: f"I can't do it:\n\n```bash\n{text.rstrip()}\n```\n\nIt doesn't work.",
    "in a list": lambda text: "1. Do this:\n\n" + _indented(f"```yaml\n{text.rstrip()}\n```", "   "),
    "quoted": lambda text: _indented(text.rstrip(), "> "),
    "indented": lambda text: _indented(text.rstrip(), "    "),
    "escaped": html.escape,
}


def _indented(text: str, by: str) -> str:
    return "\n".join(by + line for line in text.split("\n"))


@pytest.mark.parametrize("way", WAYS)
def test_a_way_of_pasting_changes_nothing(way):
    texts = [(DATA / case["file"]).read_bytes().decode() for case in CASES]
    plain = [text for text in texts if "```" not in text and "\0" not in text and "&quot;" not in text]
    assert list(map(_words_and_env, map(WAYS[way], plain))) == list(map(_words_and_env, plain))


@cache
def _words_and_env(text: str) -> tuple[object, object]:
    found = imported(text)
    return found.argv, found.env


@pytest.mark.parametrize("case", WHOLE, ids=[case["id"] for case in WHOLE])
def test_posted_commands_of_public_reports(case, tmp_path):
    truth = case["truth"]
    found = import_command((DATA / case["file"]).read_text(encoding="utf-8"), truth["home"])
    if truth.get("inner_shell"):
        # The truth is the outer docker call; its script is one argument, the call is inside.
        script = truth["argv"][-1]
        assert list(found.argv) == script[script.index("python3") :].split()
    else:
        assert list(found.argv) == truth["argv"]
        assert {name: found.env.get(name) for name in truth["env"]} == truth["env"]
    for name in ("bad_flags", "deprecated_flags", "abbreviations"):
        args = tomli.loads(found.profile)["args"]
        for flag in truth.get(name, ()):
            assert flag[2:] not in args
    for flag in truth.get("abbreviations", {}).values():
        assert flag[2:] in tomli.loads(found.profile)["args"]
    if "lost_line" in truth:
        assert any(truth["lost_line"] in warning for warning in found.warnings)
    # What comes out is a profile that loads, unless the command itself lacks something.
    (tmp_path / "x.toml").write_text(found.profile, encoding="utf-8")
    assert [str(error) for error in discover([tmp_path])[0].errors] == []


BASH = shutil.which("bash")


@pytest.mark.skipif(BASH is None, reason="no bash: apt-get install bash")
@pytest.mark.parametrize(
    "text",
    [
        r"""A=1 cmd --x "a b" 'c d' e\ f $HOME ~/x "~/y" a{1,2}b {1..3} '{"a":1}' {\"a\":1} "\$x" "it's" 'it'"'"'s' """,
        'X="--tp 8 --dp 2"; cmd $X "$X" pre$X',
        'A=(a "b c" d); A+=(e); cmd "${A[@]}" ${A[@]} "${A[*]}" ${A[1]} ',
        "cmd --port $((30000+8)) ${Z:-def} ${M:=qq} $M > log 2>&1 --tail",
        "cmd 8 > log; cmd 2>log; cmd a2>log",
        'M=/data/x/y.z; cmd ${M##*/} ${M%.z} ${M%/*} "${M#/}"',
        'cmd "" \'\' a""b "$@" x',
        "cmd $'a\\nb' $'\\x41'",
        "cmd \\\n  a \\\n  b # c\ncmd # x \\\n y",
        "cmd a\\ \\\nb",
        "cmd \\ \n b",
        'export A=~/x B="a b"; cmd "$A" $B',
        "cmd --foo=~/x a~ ~",
        "cmd <in.txt a>out b",
        "P=a:~/b; cmd $P",
        'X=; if [ -n "$X" ]; then cmd no; else cmd yes; fi; [ -z "$X" ] && cmd empty; [ -n "$X" ] || cmd or',
        'cmd {a,b}{1,2} "{a,b}" {x} a{b,{c,d}}e',
        "cmd a&&cmd b; cmd c;cmd d",
        'J="{\\"a\\": 1}"; cmd --json "$J" $J',
        'f() { local x=$1; shift; cmd "$x" "$@" $#; }; f a "b c" d; f',
        'set -- a "b c"; shift; cmd "$1" $#; for x; do cmd "$x"; done',
        "for i in 1 2 3; do cmd --port $((30000+i)) x$i; done; for i in $(seq 2 4); do cmd $i; done",
        'M=b; case $M in a) cmd a;; b|c) cmd b; cmd c;; *) cmd d;; esac; case x"y" in x*) cmd glob;; esac',
        'declare -A A=([a]=/x [b]="y z"); A[c]=d; k=b; cmd "${A[a]}" "${A[$k]}" "${A[c]}"',
        'A=(a "b c" d); for i in "${!A[@]}"; do cmd "$i" "${A[$i]}" "${A[i]}"; done; cmd ${#A[@]} "${A[2]}"',
        'C=$(cat <<X\na "b" \\\nc $HOME\nX\n); cmd $C; cmd "$(echo a  b)"',
        'g() { local a=(--x "$1"); echo "${a[@]}"; }; X=$(g 1); cmd $X; cmd $(g 2)',
        "n=0; while [ $n -gt 1 ]; do cmd no; done; until [ 1 -eq 1 ]; do cmd no; done; if [ 3 -lt 4 ]; then cmd yes; else cmd no; fi",
        'while [[ $# -gt 0 ]]; do case "$1" in --p) P="$2"; shift 2;; esac; done; cmd ${P:-none}',
        "X=1; if [[ $X == 1 && -n $X ]]; then cmd a; elif [ $X = 2 ]; then cmd b; fi; ref=X; cmd ${!ref}",
        'A=1 B="x y"; f() { cmd $A "$B"; }; A=2 f; f',
        'A=/a; B=b\nF=$A/$B.yaml\nexport G="$A"/$B-c.$B/e H=$A.$B.x\ncmd $F $G $H; L=($A/$B.z 1); cmd "${L[@]}"',
        "A=a B=b; f() { local F=$A/$B.y; cmd $F; }; f; for x in $A/$B.x $A-$B.y; do cmd $x; done; cmd $(echo $A/$B.e)",
        "N=2; if (( N > 1 )); then cmd many; else cmd one; fi; ((N == 2 && $N != 3)) && cmd a; (( ! N )) || cmd b",
        "N=1; (( N += 2 )); (( N++ )); cmd $N; if ((N % 2)); then cmd odd; elif (( (N - 4) == 0 )); then cmd even; fi",
        'N=7; S="${S:-$((N - 1))}"; T=${T:-$((N-S))}; cmd $S "$T" ${U:-$(( (N+1) * 2 ))}',
        "N=7; (( M = -N / 2 )); cmd $M; (( --N > 6 )) || cmd $N; cmd $((N*2 >= 12 || 0)) $((-7 % 3))",
    ],
)
def test_words_are_those_that_bash_hands_over(text, tmp_path):
    """The real bash with a recording program is the judge."""
    record = tmp_path / "record"
    stub = tmp_path / "cmd"
    stub.write_text(f'#!/bin/sh\n{{ for a in "$@"; do printf "%s\\0" "$a"; done; printf "\\1\\0"; }} >> {record}\n')
    stub.chmod(0o755)
    (tmp_path / "in.txt").touch()
    record.touch()
    subprocess.run(
        [str(BASH), "-c", text],
        env={"HOME": HOME, "PATH": f"{tmp_path}:/bin:/usr/bin"},
        cwd=tmp_path,
        capture_output=True,
        timeout=30,
    )
    wanted: list[list[str]] = [[]]
    for word in record.read_bytes().decode().split("\0")[:-1]:
        if word == "\1":
            wanted.append([])
        else:
            wanted[-1].append(word)
    assert [list(c.argv[1:]) for c in Shell(Reading(HOME)).commands(text) if c.argv[0] == "cmd"] == wanted[:-1]


@pytest.mark.parametrize(
    "wrapped",
    [
        f"nohup {CALL} > server.log 2>&1 &",
        f"sudo -E -u alice {CALL}",
        f"env --chdir=/d -C -i --unset X {CALL}",
        f"env -u X A=1 timeout -k 5 3600 stdbuf -oL {CALL}",
        f"time {CALL} |& tee log",
        f"conda run -n sg --no-capture-output {CALL}",
        f"uv run --with foo {CALL}",
        f"srun -N 2 --ntasks-per-node=1 --gres gpu:8 --container-image img {CALL}",
        f"bash -lc '{CALL}'",
        f'sh -c "cd /tmp && exec {CALL}"',
        f"tmux new-session -d -s srv '{CALL} 2>&1 | tee log'",
        f"screen -dmS srv {CALL}",
        f"ssh -p 22 gpu1 '{CALL}'",
        f"docker run --gpus all --shm-size 32g -p 30000:30000 -v ~/a:/b --ipc=host -it --rm img:1 {CALL}",
        f"docker run --rm -- img:1 {CALL}",
        f"docker exec -it box bash -c '{CALL}'",
        f"podman run -e A=1 --device nvidia.com/gpu=all --entrypoint python img {CALL.removeprefix('python ')}",
        f"apptainer exec --nv --bind /data:/data img.sif {CALL}",
        f"kubectl exec -it pod -- {CALL}",
        f"nsys profile -o out -t cuda {CALL}",
        f"eval '{CALL}'",
        f"A=1 B=2\n{CALL}",
        f"while true; do\n  {CALL}",
        f"case $1 in\n  serve) {CALL} ;;\nesac",
        f"cat > run.sh <<'X'\nexport A=1\n{CALL}\nX\nbash run.sh",
        f"bash <<X\n{CALL}\nX",
        f"#!/bin/bash\nset -e\nfoo() {{\n  {CALL}\n}}\nfoo",
        f'if [ "$1" = serve ]; then\n  {CALL}\nfi',
        f"pkill -f sglang.launch_server; sleep 5; {CALL}",
        f"$ {CALL}",
        f"(sg) alice@gpu1:~$ {CALL}",
        f"((sg-0.5.8.post1) ) [alice@gpu1 ~]$ {CALL}",
        f"```bash\n{CALL}\n```",
        'FROM img\nCMD ["python", "-m", "sglang.launch_server", "--model-path", "/m"]\n',
        f"[Service]\nExecStart={CALL}\n",
    ],
)
def test_wrappers_are_taken_off(wrapped):
    assert list(imported(wrapped).argv) == CALL.split()


def test_numactl_stays_in_the_profile_because_it_matters_to_speed():
    found = profile(f"numactl --cpunodebind=0 --membind 0 {CALL}")
    assert found["wrapper"] == ["numactl", "--cpunodebind=0", "--membind", "0"]


def test_environment_of_every_kind():
    found = imported(f'export A=1\nB=2\nset -a\nC=3\nset +a\ndeclare -x D="4 5"\nE=$A$B F=~/f env G=7 {CALL}')
    assert found.env == {"A": "1", "C": "3", "D": "4 5", "E": "12", "F": "/home/u/f", "G": "7"}


def test_the_container_has_only_its_own_environment():
    found = imported(f"A=1 docker run -e B=2 --env C=3 -eD=4 --gpus '\"device=2,3\"' img {CALL}")
    assert found.env == {"B": "2", "C": "3", "D": "4", "CUDA_VISIBLE_DEVICES": "2,3"}
    assert tomli.loads(found.profile)["gpus"] == [2, 3]


def test_what_only_a_shell_could_tell_stays_as_text_with_a_warning():
    found = imported(f"X=$(hostname)\n{CALL} --host $X --dist-init-addr ${{MASTER}}:1 --node-rank <rank>")
    assert found.argv[5:] == ("--host", "$X", "--dist-init-addr", "${MASTER}:1", "--node-rank", "<rank>")
    assert {item.name for item in found.unresolved} == {"X", "MASTER", "rank"}
    said = " ".join(found.warnings)
    assert "$X is $(hostname), which is not run" in said
    assert "${MASTER} is not set" in said
    assert "<rank> is a placeholder" in said


@pytest.mark.parametrize(
    ("text", "name", "flag"),
    [
        ("{c} --tp $TP", "TP", "tp-size"),
        ("{c} --tp $1", "1", "tp-size"),
        ("TP=$(nvidia-smi | wc -l)\n{c} --tp $TP", "TP", "tp-size"),
        ("TP=8\n{c} --tp $TP", "TP", "tp-size"),  # also where the text says something else
        ("{c} --tp $(nproc)", "$(nproc)", "tp-size"),
        ("{c} --tp $(nproc)", "nproc", "tp-size"),
        ("{c} --tp <gpus>", "gpus", "tp-size"),
        ("{c} --tp {{{{ .Values.tp }}}}", "Values.tp", "tp-size"),
        ("if [ $MODE = a ]; then {c}; else {c} --tp $TP; fi; TP=3", "TP", None),
        ("command: [sglang, serve, --model-path, /m, --tp, $(TP)]", "TP", "tp-size"),
        ("[Service]\nExecStart={c} --tp %i\n", "%i", "tp-size"),
        ("[program:x]\ncommand={c} --tp %(ENV_TP)s\n", "TP", "tp-size"),
        ("FROM x\nARG TP\nENV N=$TP\nCMD {c} --tp $N\n", "TP", "tp-size"),
        ("import os\nos.system(f'{c} --tp {{args.tp}}')\n", "args.tp", "tp-size"),
    ],
)
def test_a_value_that_the_text_leaves_open_can_be_given(text, name, flag):
    found = import_command(text.format(c=CALL), HOME, {name: "4"})
    assert not found.unresolved
    assert flag is None or tomli.loads(found.profile)["args"][flag] == 4
    assert not any("nothing in the text is called" in missed for missed in found.not_understood)


def test_several_words_can_be_given_at_once():
    found = import_command('python -m sglang.launch_server "$@"', HOME, {"@": "--model-path '/m x' --tp 2"})
    assert found.argv[3:] == ("--model-path", "/m x", "--tp", "2")


def test_a_name_that_the_text_does_not_have_is_named():
    assert any("NOPE was given a value" in text for text in import_command(CALL, HOME, {"NOPE": "1"}).not_understood)


def test_any_of_several_servers_can_be_taken():
    text = f"{CALL} --port 1 &\nssh b '{CALL} --port 2' &\nfor p in 3 4; do {CALL} --port $p & done"
    first = imported(text)
    assert (first.picked, [server.differs for server in first.others]) == (1, ["--port 2", "--port 3", "--port 4"])
    assert import_command(text, HOME, pick=4).argv[-1] == "4"
    with pytest.raises(UsageError) as caught:
        import_command(text, HOME, pick=5)
    assert "4 servers" in str(caught.value)


def test_the_containers_of_a_manifest_are_named():
    text = "\n---\n".join(
        f"spec: {{containers: [{{name: {role}, command: [sglang, serve, --model-path, /m, --disaggregation-mode, {role}]}}]}}"
        for role in ("prefill", "decode")
    )
    assert [(server.where, server.differs) for server in imported(text).others] == [
        ("decode", "--disaggregation-mode decode")
    ]


@pytest.mark.parametrize(
    ("text", "missed"),
    [
        (f"source env.sh\n{CALL}", "line 1: source env.sh"),
        (f"ulimit -l unlimited; {CALL}", "ulimit -l unlimited"),
        (f"{CALL} extra words", "extra belongs to no flag"),
        (f"launcher --x {CALL}", "launcher --x"),
        (f"docker exec --env-file a.env box {CALL}", "a.env"),
        ("command: [sglang, serve, --model-path=/m]\nenvFrom: [{secretRef: {name: s}}]", "variables of s"),
        (f"[Service]\nEnvironmentFile=/e\nExecStart={CALL}\n", "/e"),
        (f"echo it's\n{CALL}\n", "not shell text"),
        (f"{CALL}\npython -m sglang.launch_server --help", "names no model"),
        ("args:\n{{- toYaml .x }}\ncommand: [sglang, serve, --model-path=/m]", "toYaml"),
        ('import os\nos.execvp("sglang", ["sglang", "serve", "--model-path", "/m", *more])', "*more"),
    ],
)
def test_what_was_not_understood_is_listed(text, missed):
    found = imported(text)
    assert any(missed in item for item in found.not_understood), found.not_understood
    assert set(found.not_understood) <= set(found.warnings)


def test_what_means_nothing_to_the_server_is_not_listed():
    text = f"set -e\necho start\nmkdir -p logs\nexport A=1\n{CALL} > logs/x 2>&1 &\nsleep 5\ncurl localhost:30000"
    assert imported(text).not_understood == ()


def test_no_secret_is_in_a_sentence_or_in_what_a_terminal_shows():
    secret = "wJalrXUtnFEMIK7MDENG"
    text = (
        f"aws configure set aws_secret_access_key {secret}\nlogin --token={secret}\nexport AWS_SECRET_ACCESS_KEY={secret}\n"
        f"login --password other-{secret}x\nX_TOKEN='one other-{secret}' tool\nlogin {'x' * 80} {secret}\n"
        f"launcher HF_TOKEN={secret} {CALL} --api-key {secret} extra={secret}\n{CALL} --api-key other-{secret}"
    )
    found = imported(text)
    assert found.env["AWS_SECRET_ACCESS_KEY"] == secret
    assert tomli.loads(found.profile)["args"]["api-key"] == secret
    shown = found.masked()
    others = [server.differs for server in found.others]
    assert others == ["--api-key ***"]
    said = " ".join([*found.warnings, *found.not_understood, *shown.argv, *shown.env.values(), *others])
    assert secret[:8] not in said
    assert secret not in shown.profile
    assert tomli.loads(shown.profile)["args"]["model-path"] == "/m"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("python -m sglang.launch_server --tp 8", "--model-path PATH"),
        ("python -m sglang.launch_server $ARGS", "ARGS"),
        ("command: [sglang, serve, --tp, '8']", "--model-path PATH"),
    ],
)
def test_a_server_without_a_model_is_no_launch(text, hint):
    with pytest.raises(UsageError) as caught:
        imported(text)
    assert (caught.value.slug, caught.value.exit_code) == ("no_model", 2)
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "other"),
    [("vllm serve /m --tensor-parallel-size 8", "vLLM"), ("python -m sglang_router.launch_router", "router")],
)
def test_another_program_is_called_by_its_name(text, other):
    with pytest.raises(UsageError) as caught:
        imported(text)
    assert other in str(caught.value)


def test_nothing_is_executed(tmp_path):
    mark = tmp_path / "mark"
    imported(f"X=$(touch {mark}); touch {mark}; {CALL} --host `touch {mark}` $(touch {mark}) ${{Y:=$(touch {mark})}}")
    assert not mark.exists()


def test_a_blank_after_the_backslash_ends_the_command():
    found = imported("python -m sglang.launch_server --model-path /m \\ \n --tp 8")
    assert found.argv[-1] == " "
    assert any("blank after a backslash" in warning for warning in found.warnings)
    assert any("--tp 8 is not part of the command" in warning for warning in found.warnings)
    assert tomli.loads(found.profile)["args"] == {"model-path": "/m"}


def test_what_a_substitution_gives_is_one_word():
    found = imported(f"R=$(hostname | cut -d- -f2)\n{CALL} --node-rank $R --tp 8")
    assert found.argv[5:] == ("--node-rank", "$R", "--tp", "8")
    assert imported(f"{CALL} --node-rank $(hostname | cut -d- -f2)").argv[-1] == "$(hostname | cut -d- -f2)"


def test_what_a_cluster_sets_is_named():
    found = imported("command: [sglang, serve, --model-path=/m, --dist-init-addr, $(LEADER):1]")
    assert any("$(LEADER) is not set" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    "text",
    ["x" * 40_000, "(" * 3000, "a | " * 3000, "x=aaaaaaaa\n" + "x=$x$x\n" * 60, "echo " + "{1,2}" * 20, "a && " * 3000],
    ids=["long", "nested", "pipes", "doubling", "braces", "deep"],
)
def test_hostile_text_is_bounded(text):
    with pytest.raises(UsageError) as caught:
        imported(f"{text}\n{CALL} $x")
    assert caught.value.slug == "unreadable_command"


def test_a_manifest_of_many_aliases_is_bounded():
    bombs = "\n".join(f"x{n}: &x{n} {{ <<: [{', '.join([f'*x{n - 1}'] * 9)}] }}" for n in range(1, 30))
    with pytest.raises(UsageError):
        imported(f"x0: &x0 {{ a: b, c: d }}\n{bombs}\ncommand: *x29\n")


def test_typography_is_undone():
    found = imported("python -m sglang.launch_server –model-path\u00a0/m ——tp 8 --served-model-name “a b”")
    assert found.argv[3:] == ("--model-path", "/m", "--tp", "8", "--served-model-name", "a b")
    assert any("typographic" in warning for warning in found.warnings)


def test_names_and_values_of_the_profile():
    args = profile(
        f"{CALL} --mem-fraction 0.8 --reasoning_parser qwen3 --cuda-graph-max-bs 16 --tensor-parallel-size=4 "
        "--cuda-graph-bs-decode 1 2 4 --context-length 128k --enable-metrics --chunked-prefill-size -1 "
        "--lora-paths a=/x b=/y --served-model-name 8 --preferred-sampling-params '{\"temperature\":0.5}'"
    )["args"]
    assert args == {
        "model-path": "/m",
        "mem-fraction-static": 0.8,
        "reasoning-parser": "qwen3",
        "cuda-graph-max-bs-decode": 16,
        "tp-size": 4,
        "cuda-graph-bs-decode": [1, 2, 4],
        "context-length": "128k",
        "enable-metrics": True,
        "chunked-prefill-size": -1,
        "lora-paths": ["a=/x", "b=/y"],
        "served-model-name": "8",
        "preferred-sampling-params": {"temperature": 0.5},
    }


def test_sglang_serve_takes_its_model_as_a_word():
    found = imported("sglang serve /m --model-type llm --tp 2")
    assert found.argv == ("sglang", "serve", "/m", "--model-type", "llm", "--tp", "2")
    assert tomli.loads(found.profile)["args"] == {"model-path": "/m", "tp-size": 2}
    assert any("--model-type" in warning for warning in found.warnings)


def test_several_calls_take_the_first_and_say_so():
    found = imported(f"{CALL} --tp 1 &\n{CALL} --tp 2")
    assert found.argv[-1] == "1"
    assert any("2 server calls" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    ("text", "argv", "env"),
    [
        (
            """
            spec:
              containers:
              - name: sglang
                image: lmsysorg/sglang:latest
                command: ["python3", "-m", "sglang.launch_server"]
                args:
                - --model-path
                - /models/x
                - "--tp"
                - "8"
                - --dist-init-addr=$(LEADER):20000
                env:
                - name: LEADER
                  value: "10.0.0.1"
                ports:
                - containerPort: 30000
            """,
            "python3 -m sglang.launch_server --model-path /models/x --tp 8 --dist-init-addr=10.0.0.1:20000",
            {"LEADER": "10.0.0.1"},
        ),
        (
            """
                command:
                  - /bin/bash
                  - -c
                  - |
                    export A=1
                    python3 -m sglang.launch_server \\
                      --model-path /m --tp 4
                resources: {}
            """,
            "python3 -m sglang.launch_server --model-path /m --tp 4",
            {"A": "1"},
        ),
        (
            """
            services:
              sglang:
                environment:
                  B: "2"
                entrypoint: python3 -m sglang.launch_server
                command:
                  --model-path /m
                  --host 0.0.0.0
            """,
            "python3 -m sglang.launch_server --model-path /m --host 0.0.0.0",
            {"B": "2"},
        ),
        (
            """
            x-env: &env { A: "1", B: "2" }
            services:
              sglang:
                environment:
                  <<: *env
                  B: "3"
                command: python3 -m sglang.launch_server --model-path /m
            """,
            "python3 -m sglang.launch_server --model-path /m",
            {"A": "1", "B": "3"},
        ),
        (
            """
            - args: [--model-path, /m, --tp, "8"]
              command: [python3, -m, sglang.launch_server]  # not in this order
              env: [{ name: A, value: "1" }, { name: NODE, valueFrom: { fieldRef: { fieldPath: x } } }]
            """,
            "python3 -m sglang.launch_server --model-path /m --tp 8",
            {"A": "1"},
        ),
        (
            "kind: Service\n---\nspec:\n  command:\n  - sglang\n  - serve\n  args: [--model-path=/m]\n",
            "sglang serve --model-path=/m",
            {},
        ),
        (
            "Use this:\n    spec:\n      - name: x\n        command: [sglang, serve]\n        args:\n        - --model-path=/m\n  and wait",
            "sglang serve --model-path=/m",
            {},
        ),
        (
            "spec:\n  replicas: {{ .Values.n }}\n  containers:\n  - env:\n    - name: A\n      value: '1'\n"
            "    command:\n    - sglang\n    - serve\n    - --model-path=/m\n",
            "sglang serve --model-path=/m",
            {"A": "1"},
        ),
    ],
    ids=[
        "kubernetes",
        "kubernetes-shell",
        "compose",
        "anchors",
        "args-first",
        "several-documents",
        "fragment",
        "template",
    ],
)
def test_yaml_around_a_command(text, argv, env):
    found = imported(text)
    assert list(found.argv) == argv.split()
    assert found.env == env


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("ls -la", "no_command"),
        ("", "no_command"),
        ("pkill -f sglang.launch_server", "no_command"),
        ("python -m sglang.bench_serving --port 1", "no_command"),
        (f'{CALL} --x "abc', "unreadable_command"),
        (f"{CALL} --x $(abc", "unreadable_command"),
    ],
)
def test_what_is_no_command_is_one_clear_error(text, slug):
    with pytest.raises(UsageError) as caught:
        imported(text)
    assert caught.value.slug == slug
    assert caught.value.exit_code == 2
    assert caught.value.hint


_PIECES = st.lists(
    st.sampled_from(
        ["'", '"', "\\", "\n", "$", "{", "}", "(", ")", "<", ">", "&", "|", ";", "`", "#", " ", "a", "=", "[", "]",
         "$((", "${", "<<X\n", "X", ",", "..", "1", "~", CALL, "export ", "docker run ", "bash -c ", "if ", "then ", "fi ",
         "case x in ", "<a b>", "command: [", "- ", "&x ", "*x ", "<<: ", ": ", "\t", "\0", "é", "{{ x }}", "{{- if x }}\n",
         "args:\n", "env:\n", "[Service]\nExecStart=", "Environment=", "%i", "[program:x]\ncommand=", "FROM x\nCMD ",
         "ENV A=", "import os\n", "cmd = [", "'-m', ", "f'{x}'", "*y", "+= ", "```\n", "$(", "$1", "$@", "f() {", "for i in 1 2; do ",
         "done\n", "A[0]=", "${!A[@]}", "it's ", "#SBATCH -N 2\n", "kubectl exec x -- ", "sglang serve ", "&quot;", "%env "]
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(_PIECES)
def test_any_text_ends_in_a_command_or_a_usage_error(pieces):
    try:
        found = imported("".join(pieces))
    except UsageError:
        return
    tomli.loads(found.profile)
    tomli.loads(found.masked().profile)


_TEXTS = [(DATA / case["file"]).read_bytes().decode() for case in CASES]


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(_TEXTS), st.sampled_from(_TEXTS), st.integers(0, 3000), st.integers(0, 3000), _PIECES)
def test_half_of_a_text_and_half_of_another_end_in_a_command_or_a_usage_error(one, other, end, start, pieces):
    try:
        tomli.loads(imported(one[:end] + "".join(pieces) + other[start:]).profile)
    except UsageError:
        return


@pytest.mark.parametrize(
    "piece",
    [
        f"{CALL}\n", f"{CALL} it's\n", "x ", "nohup ", "{{ if x }} ", "{{- if x }}\n", "> ", "[", "- a: b\n", "ENV A=1\n",
        "Environment=A=1\n", "cmd += ['--a', 'b']\n", "```\n", "A[1]=2\n", "if x; then a=1; fi\n", "$(x) ", "&amp;", "<a ",
        f"- command: [{CALL.replace(' ', ', ')}]\n", f"cat <<X > a\n{CALL}\nX\n", "sh -c ", "a\0",
    ],
    ids=repr,
)  # fmt: skip
@pytest.mark.parametrize("head", ["", "command: [x]\n"])
def test_a_text_of_the_longest_size_ends_whatever_it_is_made_of(head, piece):
    """The deadline is ample: what grows with the square of the text, or worse, is far beyond it."""

    def too_late(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, too_late)
    signal.alarm(30)
    try:
        imported(head + piece * (MAX_BYTES // len(piece) - 10) + CALL)
    except UsageError:
        pass
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


COMPOSE = """
services:
  web: {image: nginx}
  sglang:
    image: lmsysorg/sglang:v0.5.6
    volumes: ["/data:/data:ro"]
    network_mode: host
    shm_size: 32g
    restart: always
    entrypoint: python3 -m sglang.launch_server
    command: --model-path /data/m --tp 2
    deploy: {resources: {reservations: {devices: [{driver: nvidia, device_ids: ["2", "3"]}]}}}
"""
LINE = (
    "docker run -d --rm --name s --gpus '\"device=2,3\"' --network host -v /data:/data:ro --shm-size 32g -w /w "
    "lmsysorg/sglang:v0.5.6 python3 -m sglang.launch_server --model-path /data/m --tp 2"
)


@pytest.mark.parametrize(
    ("text", "options"), [(COMPOSE, ["--shm-size", "32g"]), (LINE, ["--shm-size", "32g", "-w", "/w"])]
)
def test_what_runs_in_a_container_becomes_a_profile_that_does(text, options, tmp_path):
    found = import_command(text, HOME)
    (tmp_path / "x.toml").write_text(found.profile)
    box = load_launch("x", [tmp_path]).container
    assert box == ContainerTable("lmsysorg/sglang:v0.5.6", options=tuple(options), mounts=("/data:/data:ro",))
    assert load_launch("x", [tmp_path]).gpus == (2, 3)


def test_a_container_without_gpus_gets_none(tmp_path):
    found = import_command("sudo -n podman run img python3 -m sglang.launch_server --model-path /m --device cpu", HOME)
    (tmp_path / "x.toml").write_text(found.profile)
    assert load_launch("x", [tmp_path]).container == ContainerTable("img", engine=("podman",), gpus=False)


# ---- YAML that does not parse ---------------------------------------------------------------------------------------

POD = """kind: Pod
spec:
  containers:
  - name: llm
    image: lmsysorg/sglang
    command: [python3, -m, sglang.launch_server]
    args:
    - --model-path
    - x/y
"""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (POD.replace("launch_server]", "launch_server"), "line 7 (args:)"),
        (POD.replace("[python3, -m, sglang.launch_server]", "python3 -m sglang.launch_server: x"), "line 6 (command:"),
        ("services:\n  llm:\n    image: sglang\n    command: 'python3 -m sglang.launch_server\n", "line 5"),
    ],
)
def test_yaml_that_does_not_parse_is_called_that_with_the_place(text: str, place: str) -> None:
    with pytest.raises(UsageError) as caught:
        import_command(text, "/home/u")
    assert caught.value.slug == "unreadable_command"
    assert caught.value.message.startswith(f"the text is YAML that does not parse, {place}")


def test_where_only_a_part_of_yaml_was_read_the_place_is_named() -> None:
    found = import_command(POD.replace("    - x/y\n", "    - x/y\n   - --port\n   - 30000\n"), "/home/u")
    assert "--model-path" in found.argv
    assert any("line 10 (- --port)" in text for text in found.not_understood)


def test_no_secret_of_a_line_that_does_not_parse_is_shown() -> None:
    text = POD.replace("[python3, -m, sglang.launch_server]", "sglang serve --api-key=geheimnis123 : x: y")
    with pytest.raises(UsageError) as caught:
        import_command(text, "/home/u")
    assert "geheimnis" not in caught.value.message


def test_shared_memory_of_a_size_of_its_own_keeps_the_hosts_ipc():
    text = LINE.replace("--network host", "--network host --ipc=host")
    assert "--ipc=host" in tomli.loads(import_command(text, HOME).profile)["container"]["options"]
    plain = tomli.loads(import_command(text.replace("--shm-size 32g", ""), HOME).profile)["container"]
    assert "--ipc=host" not in plain.get("options", [])  # that container gets it anyway


KUBE = """
kind: Deployment
spec:
  replicas: 3
  template: {spec: {containers: [{name: a, command: [python3, -m, sglang.launch_server, --model-path, /m]}]}}
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LINE, "-d, --rm, --name s were left out: a run detaches"),
        (LINE.replace("-d --rm --name s", "--restart=unless-stopped"), "--restart=unless-stopped was left out: a run"),
        (COMPOSE, "restart always was left out: a run is started once"),
        (COMPOSE.replace("resources", "replicas: 2, resources"), "replicas 2 was left out: a profile is one server"),
        (COMPOSE.replace("resources", "restart_policy: {condition: any}, resources"), "restart_policy was left out"),
        (KUBE, "replicas 3 was left out: a profile is one server"),
    ],
)
def test_what_a_profile_does_not_do_is_said(text, says):
    assert any(warning.startswith(says) for warning in import_command(text, HOME).warnings)


@pytest.mark.parametrize(
    "text", [LINE.replace("-d --rm --name s", ""), COMPOSE.replace("always", "no"), KUBE.replace("3", "1")]
)
def test_nothing_is_said_of_what_a_profile_does(text):
    assert not any("left out" in warning for warning in import_command(text, HOME).warnings)


def test_a_list_of_processes_is_read_without_its_numbers_and_other_processes() -> None:
    listed = (
        "$ pgrep -a python\n"
        "4242 python3 -m sglang.launch_server --model-path /m/a --tp-size 4\n"
        " 4250 /opt/sglang-env/bin/python3 -c from multiprocessing.resource_tracker import main;main(76)\n"
    )
    found = import_command(listed, "/home/u")
    assert found.argv == ("python3", "-m", "sglang.launch_server", "--model-path", "/m/a", "--tp-size", "4")
    assert any("1 that start no server" in warning for warning in found.warnings)
