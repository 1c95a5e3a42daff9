"""`docker run` lines as people write them, taken apart and put together again."""

import shlex

import pytest

from tui.core.runs.docker_run import all_gpus_visible, chosen_gpus, read_run, without_ours
from tui.core.runs.request import InRunDir, LaunchRequest, launch_variables

LINES = {
    "docker run -d --gpus all --ipc=host -p 30000:30000 -v ~/m:/m lmsys/sglang:latest bash -c": (
        "lmsys/sglang:latest",
        "bash -c",
    ),
    "sudo -n docker -H unix:///run/d.sock run -itd --name=s --shm-size 32g img": ("img", ""),
    "podman --log-level debug container run --rm -eA=1 -v/a:/b img": ("img", ""),
    "docker run --rm -u0 -e HF_TOKEN --env-file /e -- img python3": ("img", "python3"),
}


@pytest.mark.parametrize("line", LINES)
def test_image_and_what_stands_behind_it(line):
    found = read_run(shlex.split(line))
    assert (found.image, " ".join(found.inside)) == LINES[line]
    again = read_run(found.words)
    assert (again.image, again.inside, again.options) == (found.image, found.inside, found.options)


@pytest.mark.parametrize(
    "line", ["numactl -N 0", "docker", "docker exec -i c sh", "docker run --rm", "docker compose up"]
)
def test_what_is_no_run_line(line):
    assert read_run(shlex.split(line)) is None


def test_what_eagletui_does_itself_is_left_out():
    kept, gone = without_ours(read_run(shlex.split("docker run -itd --rm --restart always --privileged -e A img")))
    assert " ".join(kept.words) == "docker run --privileged -e A img"
    assert gone == ("-i", "-t", "-d", "--rm", "--restart")


def test_a_run_owns_its_container_whoever_wrote_the_line():
    """A profile's own command, too: a container that removes itself would take its exit code with it."""
    argv = ("docker", "container", "run", "-it", "--rm", "-v/a:/b", "--", "img", "serve", InRunDir("x.json"))
    words = launch_variables(LaunchRequest("r1", "server", "p", argv), "me")["ER_SPEC"].split()
    assert words[:5] == ["set", "--", "docker", "run", "-d"]
    assert not {"--rm", "-it", "-i", "-t"} & set(words)
    assert words[-4:] == ["-v/a:/b", "img", "serve", '"$ER_DIR"/x.json']
    assert words[words.index("--cidfile") + 1] == '"$ER_DIR"/cid'


@pytest.mark.parametrize(
    ("options", "every", "chosen"),
    [
        ("--gpus all", True, None),
        ("", True, None),
        ("--gpus '\"device=2,3\"'", False, (2, 3)),
        ("--gpus device=GPU-ab", False, None),
        ("--device nvidia.com/gpu=1", False, (1,)),
        ("--device nvidia.com/gpu=all", True, None),
    ],
)
def test_gpus(options, every, chosen):
    found = read_run(shlex.split(f"docker run {options} img"))
    assert (all_gpus_visible(found), chosen_gpus(found)) == (every, chosen)


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        ("/models/glm", "/data/m/glm"),
        ("/models", "/data/m"),
        ("/other", None),
        ("/cache/x", "/c/x"),
        ("org/model", None),
    ],
)
def test_a_path_of_the_container_on_the_host(inside, outside):
    line = "docker run -v /data/m/:/models:ro --mount type=bind,source=/c,target=/cache img"
    assert read_run(line.split()).on_host(inside) == outside


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("lmsysorg/sglang:v0.5.6", "0.5.6"),
        ("lmsysorg/sglang:v0.5.5.post3-cu129-amd64", "0.5.5.post3"),
        ("registry:5000/sglang:0.5.23rc1", "0.5.23rc1"),
        ("lmsysorg/sglang:latest", None),
        ("nvidia/cuda:12.8.1-devel", None),
    ],
)
def test_the_version_in_an_images_tag(image, version):
    assert read_run(["docker", "run", image]).sglang_version == version


@pytest.mark.parametrize(
    ("options", "published"),
    [
        ("-p 31000:30000", ((30000, 31000),)),
        ("--publish=127.0.0.1:31000:30000/tcp -p8001:8000", ((30000, 31000), (8000, 8001))),
        ("-p [::]:31000:30000 --network lab", ((30000, 31000),)),
        ("-p 8000-8002:9000-9002", ((9000, 8000), (9001, 8001), (9002, 8002))),
        ("-p 10.0.0.3:31000:30000", ()),  # which this host's 127.0.0.1 does not reach
        ("-p 30000 -p 127.0.0.1::30000", ()),  # the engine chooses
        ("-p 5000:5000/udp -p - -p x:y", ()),
        ("--network host -p 31000:30000", ()),  # nothing is published there
    ],
)
def test_ports_that_a_line_publishes(options, published):
    assert read_run(shlex.split(f"docker run {options} img")).published == published
