"""Import-only stand-in for torchvision (no published CPU build fits torch 2.13.0).

SGLang imports torchvision at module level in a few image helpers even for a text
model. Nothing of it is used when serving text."""

import importlib.machinery
import sys
import types
from enum import Enum

__version__ = "0.0.0"


class InterpolationMode(Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def _missing(name):
    def f(*a, **k):
        raise RuntimeError(f"torchvision stub: {name} is not implemented")

    f.__name__ = name
    return f


def _module(name):
    m = types.ModuleType(name)
    m.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    m.__path__ = []
    m.InterpolationMode = InterpolationMode

    def __getattr__(attr):
        if attr.startswith("__"):
            raise AttributeError(attr)
        return _missing(f"{name}.{attr}")

    m.__getattr__ = __getattr__
    sys.modules[name] = m
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, m)
    return m


for _n in ("transforms", "transforms.functional", "transforms.v2", "transforms.v2.functional", "io", "ops"):
    _module(f"{__name__}.{_n}")
