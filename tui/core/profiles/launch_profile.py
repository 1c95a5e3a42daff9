"""A launch profile as it holds for one launch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tui.core.model.group import Role
from tui.core.profiles.secrets import MASK, is_secret_arg
from tui.core.sglang.flags import flag_table


@dataclass(frozen=True)
class ContainerTable:
    """`[container]`: the image that the server runs in, and how."""

    image: str
    engine: tuple[str, ...] = ("docker",)
    options: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()  # as -v takes them
    gpus: bool = True  # pass the profile's GPUs on


@dataclass(frozen=True)
class NodesTable:
    """`[nodes]`: one server over several hosts, a node each."""

    hosts: tuple[str, ...]  # in the order of their ranks, as config.toml or ~/.ssh/config name them
    interface: str | None = None  # between them, on every host; None: that of the route to rank 0
    dist_port: int = 20000  # where rank 0 takes the others in


@dataclass(frozen=True)
class SlurmTable:
    """`[slurm]`: the server as a job, a rank a node; None leaves a thing to the cluster."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    nodes: int = 1
    gpus_per_node: int | None = None  # None: as many as the flags ask for
    time: str | None = None  # as sbatch takes it: minutes, H:M:S, D-H:M:S
    image: str | None = None
    image_runner: str = "pyxis"  # pyxis, apptainer, singularity
    mounts: tuple[str, ...] = ()  # HOST:INSIDE
    dist_port: int | None = None  # where rank 0 takes the others in; None: one that follows from the job's number
    options: tuple[str, ...] = ()  # further ones of sbatch
    hold: bool = False  # an experiment keeps its nodes from launch to launch


@dataclass(frozen=True)
class RoleTable:
    """One member of `[group]`: what its table says, ports filled in."""

    role: Role
    number: int  # among those of its role
    port: int
    host: str | None = None  # None: where the profile is launched
    address: str | None = None  # by which the other members reach its host; None: found at the launch
    gpus: tuple[int, ...] | None = None
    bootstrap_port: int | None = None  # of a prefill
    command: tuple[str, ...] = ()  # of a router: instead of `python -m sglang_router.launch_router`
    args: Mapping[str, object] = field(default_factory=dict)  # on top of the profile's; of a router all there are
    env: Mapping[str, str | bool] = field(default_factory=dict)  # likewise; False leaves one out

    @property
    def name(self) -> str:
        """As the member of the group that it becomes."""
        return self.role.name_of(self.number)

    @property
    def public_args(self) -> Mapping[str, object]:
        """The flags as they may be stored and shown: secrets masked."""
        return _public(self.args)


@dataclass(frozen=True)
class LaunchProfile:
    """A launch profile after `extends` and `--set`."""

    name: str
    path: Path
    description: str | None = None
    hypothesis: str | None = None
    known: str | None = None
    extends: str | None = None
    gpus: tuple[int, ...] | None = None  # (): it takes none
    cwd: str | None = None
    host: str | None = None
    wrapper: tuple[str, ...] = ()
    container: ContainerTable | None = None
    nodes: NodesTable | None = None
    slurm: SlurmTable | None = None
    command: tuple[str, ...] = ()  # any other server; args are then not mapped
    startup_timeout_s: float = 3600.0
    requires: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    args: Mapping[str, object] = field(default_factory=dict)
    group: tuple[RoleTable, ...] = ()  # in the order of their start: prefills, decodes, the router

    @property
    def several(self) -> bool:
        """Whether it is launched as a group of runs."""
        return self.nodes is not None or self.slurm is not None or bool(self.group)

    def arg(self, name: str) -> object | None:
        """The value of a flag under any of its names; None where it is not set (false counts as not set)."""
        canonical = flag_table().canonical
        found = (value for key, value in self.args.items() if canonical(key) == canonical(name) and value is not False)
        return next(found, None)

    @property
    def public_args(self) -> Mapping[str, object]:
        """The flags as they may be stored and shown: secrets masked."""
        return _public(self.args)


def _public(args: Mapping[str, object]) -> dict[str, object]:
    return {name: MASK if is_secret_arg(name, value) else value for name, value in args.items()}
