"""The files of the simulated host, apart from everything real: where they are, and how they are laid out.

lock          held while somebody looks for the host, starts it or replaces it, and while it leaves
host.json     who runs (pid, start time, version, protocol) and how to get in (port, pinned host key, user)
key           private key of the one client there is, made for this start, 0600
host.log      what the process itself has to say
touched       its time: when a client last asked for the host
home/         HOME there          state/   run files (EAGLETUI_STATE)
bin/          nvidia-smi, python3 and python       site/   the stubs that look like installed packages
root/         what absolute paths of models stand for; also gpu/ and launches/ of the simulated servers
"""

import json
import os
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from tui.core.config import private_dir, state_dir

PROTOCOL = 2  # another number: a running host is replaced

_STUBS = {
    "sglang/__init__.py": '__version__ = "0.5.23"\n',
    "sglang/version.py": '__version__ = "0.5.23"\n',
    "sglang/launch_server.py": (
        '"""The simulated server (eagletui demo)."""\n\n'
        "import sys\nfrom pathlib import Path\n\n"
        "if __name__ == '__main__':\n"
        "    sys.path.insert(0, {root!r})  # this tree's, whatever is installed\n"
        "    from tui.demo.server import main\n\n"
        "    raise SystemExit(main(None, Path(__file__).resolve().parent.parent))\n"
    ),
    "sglang-0.5.23.dist-info/METADATA": "Metadata-Version: 2.1\nName: sglang\nVersion: 0.5.23\n",
    "torch-2.11.0+cu131.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+cu131\n",
    # The panel's own Python has NVML, and this machine may have real GPUs: they are none of the simulated host's.
    "pynvml.py": 'raise ImportError("the simulated host has no NVML, only nvidia-smi")\n',
}


def base(name: str) -> Path:
    """The directory of a simulated host, created 0700."""
    return private_dir(private_dir(state_dir()) / name)


def package_root() -> Path:
    """What has to be on Python's path for `import tui`."""
    return Path(__file__).resolve().parents[2]


def build(place: Path) -> None:
    """Lays out everything that the shell of the simulated host needs; what is there is written again."""
    for name in ("home", "state", "bin", "site", "root", "root/gpu", "root/launches", "root/data/models"):
        private_dir(place / name)
    for name in ("gpu", "launches"):
        for old in (place / "root" / name).iterdir():
            old.unlink(missing_ok=True)
    for name, text in _STUBS.items():
        target = place / "site" / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(text.replace("{root!r}", repr(str(package_root()))), encoding="utf-8")
    python, root = shlex.quote(sys.executable), shlex.quote(str(package_root()))
    _script(place / "bin" / "python3", f'exec {python} "$@"\n')
    _script(place / "bin" / "python", f'exec {python} "$@"\n')
    # -S: no site-packages, so that a call costs a few hundredths of a second.
    _script(place / "bin" / "nvidia-smi", f'PYTHONPATH={root} exec {python} -S -m tui.demo.smi "$@"\n')
    for name, model in json.loads(
        (Path(__file__).with_name("data") / "models.json").read_text(encoding="utf-8")
    ).items():
        _model(place / name, model["config"], model["shards"], model["bytes"])


def shell_env(place: Path, host: str) -> dict[str, str]:
    """The environment of every shell there.

    Args:
        host: "pid start" of the process behind which simulated servers end.
    """
    kept = {
        k: v for k, v in os.environ.items() if k in ("LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME")
    }
    return kept | {
        "PATH": f"{place / 'bin'}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "HOME": str(place / "home"),
        "SHELL": "/bin/sh",
        "EAGLETUI_STATE": str(place / "state"),
        "EAGLETUI_FS_ROOT": str(place / "root"),
        "EAGLETUI_DEMO_ROOT": str(place / "root"),
        "EAGLETUI_DEMO_HOST": host,
        "PYTHONPATH": str(place / "site"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _script(path: Path, body: str) -> None:
    path.write_text("#!/bin/sh\n" + body, encoding="utf-8")
    path.chmod(0o700)


def _model(directory: Path, config: Mapping[str, object], shards: int, total_bytes: int) -> None:
    """A model as a download leaves it; the weights are holes, so that they take no room."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")
    (directory / "tokenizer_config.json").write_text('{"tokenizer_class": "TikTokenTokenizer"}', encoding="utf-8")
    size = total_bytes // shards
    names = [f"model-{i:05d}-of-{shards:06d}.safetensors" for i in range(1, shards + 1)]
    if shards == 1:
        names = ["model.safetensors"]
    else:
        weights = {f"model.layers.{i % 61}.mlp.experts.{i}.weight": name for i, name in enumerate(names)}
        index = {"metadata": {"total_size": size * shards}, "weight_map": weights}
        (directory / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    for name in names:
        with open(directory / name, "ab") as file:
            try:
                file.truncate(size)
            except OSError:  # a file system without files of such a size
                file.truncate(1 << 20)
    if directory.parent.name == "snapshots":  # of the cache of Hugging Face
        refs = directory.parents[1] / "refs"
        refs.mkdir(exist_ok=True)
        (refs / "main").write_text(directory.name, encoding="utf-8")
