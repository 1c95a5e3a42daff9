"""Which GPUs a launch takes, by its profile alone. Knows flags and nvidia-smi's numbers, no host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tui.core.host.gpus import Gpu
from tui.core.profiles.command import container_of
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.runs.docker_run import chosen_gpus


@dataclass(frozen=True)
class GpuClaim:
    """The GPUs that the flags of a launch ask for."""

    count: int
    visible: tuple[str, ...] | None  # CUDA_VISIBLE_DEVICES, numbers or UUIDs; None: all of the host
    first: int = 0
    stride: int = 1

    @classmethod
    def of(cls, profile: LaunchProfile, env: Mapping[str, str]) -> "GpuClaim":
        """The claim of a profile that is started with `env`."""

        def number(flag: str, least: int = 1) -> int:
            value = profile.arg(flag)
            return value if type(value) is int and value >= least else least

        attention = profile.arg("enable-dp-attention") or profile.arg("attn-dp-size")
        copies = 1 if attention else number("dp-size")
        count = max(1, number("tp-size") * number("pp-size") * copies // number("nnodes"))
        named, listed = _named_gpus(profile), env.get("CUDA_VISIBLE_DEVICES")
        visible = None if listed is None else tuple(part.strip() for part in listed.split(",") if part.strip())
        if named is not None:
            visible = tuple(map(str, named))
        return cls(count, visible, number("base-gpu-id", 0), number("gpu-id-step"))

    def among(self, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
        """Those of a host's GPUs that the server would use."""
        if self.visible is not None:
            by_name = {name: gpu for gpu in gpus for name in (str(gpu.index), gpu.uuid) if name}
            gpus = [by_name[name] for name in self.visible if name in by_name]
        return tuple(gpus[self.first :: self.stride][: self.count])


def _named_gpus(profile: LaunchProfile) -> tuple[int, ...] | None:
    """The GPUs that the profile, or the container of its wrapper, names one by one."""
    container = container_of(profile)
    return profile.gpus if profile.gpus is not None or container is None else chosen_gpus(container)


def claimed_gpus(profile: LaunchProfile) -> tuple[int, ...]:
    """GPUs that a launch will take, by nvidia-smi's numbers; () where the profile does not determine them."""
    named = _named_gpus(profile)
    if named is not None:
        return named
    if profile.command:
        return ()
    claim = GpuClaim.of(profile, profile.env)
    if claim.visible is None:
        return tuple(range(claim.first, claim.first + claim.count * claim.stride, claim.stride))
    taken = claim.visible[claim.first :: claim.stride][: claim.count]
    return tuple(int(name) for name in taken if name.isdigit())
