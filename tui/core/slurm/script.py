"""The batch script of a launch: what sbatch is given, what runs on each node, what stays on the shared disk.

Everything that a profile says is one quoted word of the shell, or was checked to be a plain word of sbatch
(`profiles.checks.slurm`). The script gets its run's directory as its argument, so its text is the same for every host.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote

from tui.core.link.programs import program
from tui.core.link.scripts import shell_path
from tui.core.profiles.command import LaunchCommand
from tui.core.profiles.launch_profile import SlurmTable
from tui.core.runs.request import InRunDir, exports

COMMENT = "eagletui="  # what finds a job again, with the run's id behind it
NAME = "eagletui-"
_DRAIN_S = 120  # before the time is up, the server is told to drain
_SHORTEST_S = 1200  # of less time nothing is taken away
_PORTS = (20000, 10000)  # where rank 0 takes the others in: from here on, so many
# A port that is free on the first node, which the batch shell runs on: two jobs may share it.
_FREE_PORT = (
    'while grep -qs ":$(printf %04X "$port") [0-9A-F]*:0000 0A " /proc/net/tcp /proc/net/tcp6; do '
    "port=$((port + 1)); done"
)
HOLD_IDLE_S = 1800  # an allocation that nobody asks for any more is given back after that
_HOLD_GRACE_S = 60  # for the server that runs in it then
_NODE_FLAGS = '--nnodes "$SLURM_NNODES" --node-rank "$n" --dist-init-addr "$EAGLETUI_HEAD"'


@dataclass(frozen=True)
class JobRequest:
    """A launch as a job: repeating it with the same id starts nothing twice."""

    run_id: str  # of the whole: a rank's is `<run id>-<rank>`
    options: tuple[str, ...]  # of sbatch, a word each
    script: str
    ranks: int
    secret: str = ""  # shell text that sets secret variables
    secret_args: dict[str, str] = field(default_factory=dict)
    command: str = ""  # cmd.json
    into: str | None = None  # the id of an allocation that is held: the launch is a step of that


def seconds_of(time: str | None) -> float | None:
    """A time as Slurm writes and takes it (minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S) in seconds; None for anything else."""
    if time is None:
        return None
    days, dash, rest = time.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdigit() for part in parts) or (dash and not days.isdigit()) or len(parts) > 3:
        return None
    numbers = [int(part) for part in parts]
    if dash:
        numbers += [0] * (3 - len(numbers))
        return int(days) * 86400.0 + numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    if len(numbers) == 1:
        return numbers[0] * 60.0
    return sum(number * 60.0**power for power, number in enumerate(reversed(numbers)))


def sbatch_options(table: SlurmTable, run_id: str, gpus_per_node: int | None) -> tuple[str, ...]:
    """What the script asks Slurm for, an option a word."""
    asked = [f"--job-name={NAME}{run_id}", f"--comment={COMMENT}{run_id}"]
    asked += [f"--nodes={table.nodes}", "--ntasks-per-node=1"]
    if gpus_per_node:
        asked.append(f"--gres=gpu:{gpus_per_node}")
    for name in ("partition", "account", "qos", "constraint", "time"):
        if (value := getattr(table, name)) is not None:
            asked.append(f"--{name}={value}")
    limit_s = seconds_of(table.time)
    if limit_s is None or limit_s >= _SHORTEST_S:
        asked.append(f"--signal=B:TERM@{_DRAIN_S}")
    # A job that starts again by itself would be a second server of one launch.
    return (*asked, "--no-requeue", "--open-mode=append", *table.options)


def batch_script(table: SlurmTable, command: LaunchCommand, options: Sequence[str], run_id: str) -> str:
    """The script as sbatch takes it."""
    lines = [f"#SBATCH {option}" for option in options]
    first, many = _PORTS
    port = str(table.dist_port) if table.dist_port is not None else f"$(({first} + SLURM_JOB_ID % {many}))"
    values = {
        "OPTIONS": "\n".join(lines),
        "ID": run_id,
        "PORT": port,
        "FREE": _FREE_PORT if table.dist_port is None else "",
        "SRUN": " ".join(map(_word, _container_options(table))),
        "RANK": "\n".join(f"  {line}" for line in _rank_lines(table, command)),
    }
    return _filled("slurm_job.sh", values)


def hold_script(options: Sequence[str], hold_id: str, idle_s: int = HOLD_IDLE_S) -> str:
    """The script of a job that holds its nodes for one launch after the other."""
    lines = "\n".join(f"#SBATCH {option}" for option in options)
    return _filled("slurm_hold.sh", {"OPTIONS": lines, "ID": hold_id, "IDLE": str(idle_s), "GRACE": str(_HOLD_GRACE_S)})


def _filled(name: str, values: Mapping[str, str]) -> str:
    """In one pass: what is put in is never searched for places."""
    return re.sub("@([A-Z]{2,})@", lambda place: values[place[1]], program(name))


def secret_text(command: LaunchCommand) -> str:
    """What the script reads in the shell of each node and does not hold: secret variables, and secret flags that have no file."""
    lines = exports(command.secret_env)
    if command.open_args:
        lines.append(f'set -- "$@" {" ".join(map(quote, command.open_words))}')
    return "\n".join(lines)


def _container_options(table: SlurmTable) -> list[str | InRunDir]:
    """Of srun, where pyxis runs the image."""
    if table.image is None or table.image_runner != "pyxis":
        return []
    mounts = "".join(f",{mount}" for mount in table.mounts)
    return [
        f"--container-image={table.image}",
        InRunDir(".", f"--container-mounts={mounts[1:]}{',' if mounts else ''}"),
    ]


def _rank_lines(table: SlurmTable, command: LaunchCommand) -> list[str]:
    """What sets directory, environment and words of the server, in the shell of each node."""
    lines = [f"export {name}={quote(value)}" for name, value in command.env.items()]
    if command.cwd is not None:
        lines.append(f"cd {shell_path(command.cwd)} || exit 72")
    words: list[str | InRunDir] = list(command.argv)
    if table.image is not None and table.image_runner != "pyxis":
        binds = [word for mount in table.mounts for word in ("--bind", mount)]
        words = [table.image_runner, "exec", "--nv", "--bind", InRunDir("."), *binds, table.image, *words]
    lines.append("set -- " + " ".join(map(_word, words)))
    if command.secret_args:
        lines.append('set -- "$@" --config "$run/secret.yaml"')
    if command.secret_env or command.open_args:
        lines.append('. "$run/secret"')
    if table.nodes > 1:
        # Nodes may share a machine, and a port is one process's.
        lines.append(f'set -- "$@" {_NODE_FLAGS} --port "$(({command.port} + n))"')
    return lines


def _word(word: str | InRunDir) -> str:
    """A word for the shell; one in the run's directory has that and its place inside a container of the same name."""
    if isinstance(word, str):
        return quote(word)
    return f'{quote(word.prefix) if word.prefix else ""}"$run":"$run"'
