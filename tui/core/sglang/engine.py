"""The engine seam: what the rooms above take from SGLang, so that a second engine has one place to begin.

Facts are in `SGLANG`. Behaviour is in this package under names that a second engine would offer as well: `tracker.LogTracker`
(log to state and records), `diagnose.diagnose`, `flags` (versions and their flags), `memory` (what fits) and
`series.DecodeSeries`; log patterns, advice and flags are data (`tui/data/*.toml`). `tui/remote/loadgen/` knows endpoints
and metric names itself: it runs on hosts that have nothing of ours.
"""

from dataclasses import dataclass

from tui.core.sglang.flags import LAUNCH_MODULE


@dataclass(frozen=True)
class Endpoints:
    """Paths of its HTTP server; of several the first that a version has."""

    ready: tuple[str, ...]  # 200 when the warm-up is over
    model: str  # names the model; takes any query
    info: tuple[str, ...]  # version, and the arguments in effect
    models: str
    chat: str
    generate: str  # takes token ids


@dataclass(frozen=True)
class Engine:
    """Facts about one inference engine."""

    kind: str  # as results name it
    launch_module: str  # `python -m` starts a server
    endpoints: Endpoints


SGLANG = Engine(
    kind="sglang",
    launch_module=LAUNCH_MODULE,
    endpoints=Endpoints(
        ready=("/ready", "/health"),  # /ready since 0.5.20; since 0.4.10 /health is 503 until the warm-up is over
        model="/model_info",
        info=("/server_info", "/get_server_info"),
        models="/v1/models",
        chat="/v1/chat/completions",
        generate="/generate",
    ),
)
