"""What one launch profile has that another has not."""

from dataclasses import asdict, fields

from tui.core.config import profile_dirs
from tui.core.model.group import Role
from tui.core.model.profile import DiffLine
from tui.core.profiles.files import Library
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.resolve import resolve
from tui.core.profiles.secrets import MASK, is_secret_arg, is_secret_env
from tui.core.profiles.toml_text import toml_value
from tui.core.sglang.flags import flag_table, normalise


def profile_difference(a: LaunchProfile, b: LaunchProfile) -> tuple[DiffLine, ...]:
    """What turns `a` into `b`: additions first, then changes, then what is gone; aliases of a flag are one key."""
    old, new = _comparable(a), _comparable(b)
    lines = [DiffLine("+", shown, None, value) for key, (shown, value) in new.items() if key not in old]
    lines += [
        DiffLine("~", shown, old[key][1], value)
        for key, (shown, value) in new.items()
        if key in old and old[key][1] != value
    ]
    lines += [DiffLine("-", shown, value, None) for key, (shown, value) in old.items() if key not in new]
    return tuple(lines)


def difference_to_parent(profile: LaunchProfile) -> tuple[DiffLine, ...]:
    """What a profile's file changes of the one that it extends, as both are now; () where one of them can't be read."""
    library = Library([profile.path.parent, *profile_dirs(None)])
    files, errors = library.chain(library.file(profile.path))
    if errors or len(files) < 2:
        return ()
    bare, parent = (resolve(library, file, ())[0] for file in files[:2])
    return profile_difference(parent, bare) if parent is not None and bare is not None else ()


def _comparable(profile: LaunchProfile) -> dict[str, tuple[str, str]]:
    """Canonical key -> (key as written, value as TOML)."""
    table = flag_table()
    found = {
        f"args.{table.canonical(name)}": (normalise(name), MASK if is_secret_arg(name, value) else toml_value(value))
        for name, value in profile.args.items()
        if value is not False
    }
    plain = {f"env.{name}": MASK if is_secret_env(name, v) else toml_value(v) for name, v in profile.env.items()}
    plain |= {f"requires.{name}": toml_value(text) for name, text in profile.requires.items()}
    for item in fields(LaunchProfile):
        value = getattr(profile, item.name)
        if item.name in ("gpus", "cwd", "host", "wrapper", "command", "startup_timeout_s") and value != item.default:
            plain[item.name] = toml_value(value)
    if profile.nodes is not None:
        plain |= {f"nodes.{name}": toml_value(v) for name, v in asdict(profile.nodes).items() if v is not None}
    if profile.slurm is not None:
        plain |= {f"slurm.{name}": toml_value(v) for name, v in asdict(profile.slurm).items() if v not in (None, ())}
    for member in profile.group:
        where = f"group.{member.role}" if member.role is Role.ROUTER else f"group.{member.role}.{member.number}"
        plain |= {f"{where}.args.{name}": toml_value(value) for name, value in member.public_args.items()}
        plain |= {
            f"{where}.env.{name}": MASK if is_secret_env(name, str(value)) else toml_value(value)
            for name, value in member.env.items()
        }
        for name in ("host", "address", "port", "gpus", "bootstrap_port", "command"):
            if value := getattr(member, name):
                plain[f"{where}.{name}"] = toml_value(value)
    return found | {key: (key, text) for key, text in plain.items()}
