"""The command of a launch profile on a host."""

import re
import shlex

import pytest

from tests.support.profiles import BASE, HOST, command
from tui.core.config import HostEntry
from tui.core.errors import UsageError
from tui.core.profiles.command import METRICS_NOTE, build_command, render_command
from tui.core.profiles.load import load_launch
from tui.core.sglang.flags import flags_of


def test_the_command_of_a_profile(folder):
    built = command(load_launch("x", [folder(x=BASE)], ["gpus=[0,1]"]))
    assert built.argv == (
        "/opt/sglang/bin/python", "-m", "sglang.launch_server", "--model-path", "/m", "--tp", "8",
        "--cuda-graph-max-bs-decode", "512", "--json-model-override-args", '{"rope":{"factor":2.0}}',
        "--trust-remote-code", "--port", "30000", "--enable-metrics",
    )  # fmt: skip
    assert built.env == {
        "HF_HOME": "/data/hf", "NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }  # fmt: skip
    assert built.port == 30000
    assert "cuda-graph-max-bs is called --cuda-graph-max-bs-decode since SGLang 0.5.20" in built.notes[0]


def test_metrics_are_switched_on_unless_the_profile_says_otherwise(folder):
    newest = flags_of("0.5.23")

    def flags(sets=(), known=newest, version="0.5.23", text=BASE):
        built = build_command(load_launch("x", [folder(x=text)], sets), HOST, version, known)
        return built.argv.count("--enable-metrics"), METRICS_NOTE in built.notes

    assert flags() == (1, True)
    assert flags(known=None, version=None) == (1, True)  # every version read has it
    assert flags(known=frozenset({"model-path", "tp", "port"})) == (0, False)
    assert flags(["enable-metrics=true"]) == (1, False)
    assert flags(["enable_metrics=false"]) == (0, False)
    assert flags(text='kind = "launch"\ncommand = ["vllm", "serve", "/m"]') == (0, False)


def test_values_are_handed_over_byte_for_byte(folder):
    odd = "$HOME `id` 'a' \"b\" ; | * ~ \\ é"
    profile = load_launch("x", [folder(x=BASE)], {"served-model-name": odd, "env.A": odd, "chat-template": "-x"})
    built = command(profile)
    assert built.argv[built.argv.index("--served-model-name") + 1] == odd
    assert built.env["A"] == odd
    assert "--chat-template=-x" in built.argv  # argparse would take a value with a dash for a flag


def test_port_is_the_profiles_own(folder):
    built = command(load_launch("x", [folder(x=BASE)], ["port=30007"]))
    assert built.port == 30007
    assert built.argv.count("--port") == 1


def test_secrets_stay_out_of_argv_and_out_of_the_preview(folder):
    profile = load_launch(
        "x",
        [folder(x=BASE)],
        [
            *("api-key=sk-1", "admin-api-key=sk-2", "env.HF_TOKEN=hf-3", "env.https_proxy=http://u:pw4@proxy:1"),
            *("env.GITHUB_PAT=pat-5", "tool-server=http://u:pw6@tools:1"),
        ],
    )
    built = command(profile)
    shown = render_command(built) + repr(built.argv) + repr(built.env) + repr(built.notes)
    for value in ("sk-1", "sk-2", "hf-3", "pw4", "pat-5", "pw6"):
        assert value not in shown
    assert built.secret_args == {"api-key": "sk-1", "admin-api-key": "sk-2", "tool-server": "http://u:pw6@tools:1"}
    assert set(built.secret_env) == {"HF_TOKEN", "https_proxy", "GITHUB_PAT"}
    assert "pw6" not in repr(profile.public_args)
    assert "HF_TOKEN=••••••••" in shown
    assert "(secret, handed over by file)" in shown
    assert built.open_args == {}


def test_an_old_version_shows_that_the_key_will_be_seen(folder):
    built = build_command(load_launch("x", [folder(x=BASE)], ["api-key=sk-1"]), HOST, "0.5.2", None)
    assert built.secret_args == {}
    assert built.open_words == ("--api-key=sk-1",)
    assert "sk-1" not in render_command(built)
    assert any("visible to everyone" in note for note in built.notes)


def test_a_config_of_the_profiles_own_leaves_no_room_for_ours(folder):
    built = command(load_launch("x", [folder(x=BASE)], ["api-key=sk-1", "config=/c.yaml"]))
    assert built.open_args == {"api-key": "sk-1"}


def test_wrapper_and_other_servers(folder):
    text = """
    kind = "launch"
    wrapper = ["numactl", "--membind=0"]
    command = ["/opt/vllm/bin/vllm", "serve", "/m", "--port", "8000"]
    [args]
    tensor-parallel-size = 2
    some_flag = "x"
    """
    built = command(load_launch("x", [folder(x=text)]))
    assert built.argv == (
        "numactl", "--membind=0", "/opt/vllm/bin/vllm", "serve", "/m", "--port", "8000", "--tensor-parallel-size", "2",
        "--some_flag", "x",
    )  # fmt: skip
    assert built.port == 8000


def test_a_container_is_given_its_environment_and_loses_what_eagletui_does_itself(folder):
    wrapper = '["docker", "run", "-it", "--rm", "-e", "HF_HOME", "--gpus", "all", "img"]'
    built = command(load_launch("x", [folder(x=BASE.replace("description", f"wrapper = {wrapper}\ndescription"))]))
    start = built.argv.index("python3")
    words = built.argv[:start]
    assert words[:6] == ("docker", "run", "-e", "HF_HOME", "--gpus", "all")
    assert {words[at + 1] for at, word in enumerate(words) if word == "-e"} == {"HF_HOME", *built.env}
    assert words[-1] == "img"
    assert any("-i, -t, --rm of docker run is left out" in note for note in built.notes)


def test_the_python_of_an_image_is_its_own(folder):
    wrapper = '["apptainer", "exec", "--nv", "/images/sglang.sif"]'
    built = command(load_launch("x", [folder(x=BASE.replace("description", f"wrapper = {wrapper}\ndescription"))]))
    assert built.argv[4:6] == ("python3", "-m")


CONTAINER = """
[container]
image = "lmsysorg/sglang:v0.5.6"
mounts = ["/models:/models:ro"]
"""


@pytest.mark.parametrize(
    ("more", "gpus", "has", "lacks"),
    [
        (
            "",
            "gpus = [2, 3]",
            '--network host --ipc host --gpus "device=2,3" -v /models:/models:ro',
            "CUDA_VISIBLE_DEVICES",
        ),
        ("", "", "--gpus all", None),
        (
            'engine = ["sudo", "-n", "podman"]',
            "gpus = [2, 3]",
            "--device nvidia.com/gpu=2 --device nvidia.com/gpu=3",
            "--gpus",
        ),
        ("gpus = false", "gpus = [2, 3]", "-e CUDA_VISIBLE_DEVICES", "--gpus"),
        (
            'options = ["--shm-size", "32g", "--network=none"]',
            "",
            "--gpus all -v /models:/models:ro --shm-size 32g",
            "--ipc",
        ),
        ('options = ["--device", "/dev/kfd"]', "", "--device /dev/kfd", "--gpus"),
    ],
)
def test_the_line_of_a_container_table(folder, more, gpus, has, lacks):
    text = BASE.replace("description", f"{gpus}\ndescription") + CONTAINER + more
    built = command(load_launch("x", [folder(x=text)]))
    words = " ".join(built.argv[: built.argv.index("python3")])
    assert has in words
    assert lacks is None or lacks not in words
    assert words.endswith(" lmsysorg/sglang:v0.5.6")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('[container]\nimage = "i"\noptions = ["--ipc", "host", "stray"]', "'stray' belongs to no option"),
        ('[container]\nimage = "i"\nengine = "kubectl"', "must name docker, podman or nerdctl"),
        ('[container]\nimage = "i"\nmounts = ["/m"]', "'/m' names no place in the container"),
        ("[container]\nmounts = []", "container.image"),
        ('[container]\nimage = "i"\nimgae = "x"', "did you mean image?"),
    ],
)
def test_what_is_wrong_with_a_container_table(folder, table, says):
    with pytest.raises(UsageError, match=re.escape(says)):
        load_launch("x", [folder(x=f"{BASE}\n{table}")])


def test_a_home_in_the_interpreters_path_is_the_hosts(folder):
    entry = HostEntry("h", "h", "~/sg/bin/python")
    built = build_command(load_launch("x", [folder(x=BASE)]), entry, None, None, home="/home/a")
    assert built.argv[0] == "/home/a/sg/bin/python"


def test_rendering_reads_back_as_the_same_words(folder):
    built = command(load_launch("x", [folder(x=BASE)], {"served-model-name": "it's $mine"}))
    words = shlex.split(render_command(built).replace("\\\n", ""))
    assert tuple(words[len(built.env) :]) == built.argv
