"""What a run adds to a `docker run` line, so that the host finds, follows and ends what it started.

The engine detaches the container; the run's supervisor (`tui/remote/eaglerun.sh`) copies its log, waits for its end and
removes it. A run's container is known by the id that the engine writes into the run's `cid`, never by a name.
"""

import shlex
from collections.abc import Mapping, Sequence

from tui.core.model.run import InContainer
from tui.core.runs.docker_run import Container, read_run

CID_FILE = "cid"
SECRET_FILE_INSIDE = "/run/eagletui-secret.yaml"
_FOR_ENGINE = ("DOCKER_", "CONTAINER_", "CONTAINERS_", "XDG_RUNTIME_DIR", "NERDCTL_")
_BIG_LOG = "1000g"  # a log that the engine rotates would lose its beginning


def container_of(argv: Sequence[object]) -> Container | None:
    """The container that a command line runs its server in, None for a process of the host.

    What is no text in it is there as NUL and its place in the line.
    """
    words = [word if isinstance(word, str) else f"\0{at}" for at, word in enumerate(argv)]
    return read_run(words)


def words_of_run(container: Container, run_id: str) -> tuple[str, ...]:
    """What stands behind `run` for this run; `--cidfile` comes last, its value is the run's file."""
    words = ["-d", "--label", f"eagletui.run={run_id}", "-e", "EAGLETUI_RUN", "-e", "SPT_NOENV"]
    if not container.values("name"):
        words += ["--name", f"eagletui-{run_id}"]
    if container.program == "docker" and not container.values("log-driver", "log-opt"):
        words += ["--log-driver", "json-file", "--log-opt", f"max-size={_BIG_LOG}"]
    return (*words, "--cidfile")


def engine_words(container: Container, env: Mapping[str, str]) -> tuple[str, ...]:
    """The engine as the launch called it."""
    settings = [f"{name}={value}" for name, value in env.items() if name == "PATH" or name.startswith(_FOR_ENGINE)]
    return ("env", *settings, *container.engine) if settings else container.engine


def engine_script(container: Container, env: Mapping[str, str]) -> str:
    """Shell text that defines `er_engine`, the engine as the launch used it, and `er_engine_exec`, which becomes it."""
    words = shlex.join(engine_words(container, env))
    return f'er_engine() {{ {words} "$@" </dev/null; }}\ner_engine_exec() {{ exec {words} "$@" </dev/null; }}'


def box_of(argv: Sequence[str], env: Mapping[str, str], container_id: str, run_id: str) -> InContainer | None:
    """The container of a run of ours, by the line that started it; None where it has none."""
    container = read_run(argv) if container_id else None
    if container is None:
        return None
    return InContainer(
        container_id,
        container.program,
        next(iter(container.values("name")), f"eagletui-{run_id}"),
        container.image,
        network=next(iter(container.values("network", "net")), "default"),
        call=engine_words(container, env),
        published=container.published,
    )
