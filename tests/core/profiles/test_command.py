"""The command of a launch profile on a host."""

import shlex

from tests.support.profiles import BASE, HOST, command
from tui.core.config import HostEntry
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
        ["api-key=sk-1", "admin-api-key=sk-2", "env.HF_TOKEN=hf-3", "env.https_proxy=http://u:pw4@proxy:1"],
    )
    built = command(profile)
    shown = render_command(built) + repr(built.argv) + repr(built.env) + repr(built.notes)
    for value in ("sk-1", "sk-2", "hf-3", "pw4"):
        assert value not in shown
    assert built.secret_args == {"api-key": "sk-1", "admin-api-key": "sk-2"}
    assert set(built.secret_env) == {"HF_TOKEN", "https_proxy"}
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


def test_a_container_is_told_about_its_environment(folder):
    text = BASE.replace("description", 'wrapper = ["docker", "run", "-e", "HF_HOME", "img"]\ndescription')
    built = command(load_launch("x", [folder(x=text)]))
    assert built.argv[5] == "python3"
    assert any("docker does not pass on NCCL_DEBUG" in note for note in built.notes)


def test_a_home_in_the_interpreters_path_is_the_hosts(folder):
    entry = HostEntry("h", "h", "~/sg/bin/python")
    built = build_command(load_launch("x", [folder(x=BASE)]), entry, None, None, home="/home/a")
    assert built.argv[0] == "/home/a/sg/bin/python"


def test_rendering_reads_back_as_the_same_words(folder):
    built = command(load_launch("x", [folder(x=BASE)], {"served-model-name": "it's $mine"}))
    words = shlex.split(render_command(built).replace("\\\n", ""))
    assert tuple(words[len(built.env) :]) == built.argv
