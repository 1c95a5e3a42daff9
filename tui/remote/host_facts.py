"""Facts of the host's Python and, through NVML, of its GPUs: two JSON objects, a line each.

Sent as `python -u -`; needs nothing but Python 3. Nothing of SGLang or torch is imported: that takes them ten seconds.
"""

import json
import sys


def versions() -> "dict[str, object]":
    """The interpreter, and what is installed in it."""
    found = {"python": sys.executable, "version": ".".join(map(str, sys.version_info[:3]))}  # type: dict[str, object]
    if sys.version_info >= (3, 8):  # noqa: UP036 - the host's Python, not ours
        from importlib import metadata

        for name in ("sglang", "torch"):
            try:
                found[name] = metadata.version(name)
            except Exception:
                found[name] = None
    return found


def gpus() -> "dict[str, object] | None":
    """GPUs through NVML, None without it."""
    try:
        import pynvml as nvml

        nvml.nvmlInit()
    except Exception:
        return None

    def ask(name: str, *arguments: object) -> object:
        try:
            value = getattr(nvml, name)(*arguments)
        except Exception:
            return None
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

    found = []  # type: list[dict[str, object]]
    for index in range(int(str(ask("nvmlDeviceGetCount") or 0))):
        handle = ask("nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            found.append({"name": None, "capability": None, "memory": None, "persistence": None})
            continue
        found.append(
            {
                "name": ask("nvmlDeviceGetName", handle),
                "capability": ask("nvmlDeviceGetCudaComputeCapability", handle),
                "memory": getattr(ask("nvmlDeviceGetMemoryInfo", handle), "total", None),
                "persistence": ask("nvmlDeviceGetPersistenceMode", handle),
            }
        )
    return {
        "driver": ask("nvmlSystemGetDriverVersion"),
        "cuda": ask("nvmlSystemGetCudaDriverVersion_v2") or ask("nvmlSystemGetCudaDriverVersion"),
        "gpus": found,
    }


if __name__ == "__main__":
    # Nothing is imported from the caller's directory.
    sys.path = [path for path in sys.path if path]
    print(json.dumps(versions()))
    print(json.dumps(gpus()))
