"""A log by what was typed."""

from dataclasses import dataclass

from tui.core.config import HostKind


@dataclass(frozen=True)
class NamedLog:
    """What was named: a file on a host, a run, or a container."""

    host: str
    path: str | None = None
    run: str | None = None
    container: tuple[str, str] | None = None  # engine, and name or id

    @property
    def label(self) -> str:
        """What it is called in titles."""
        where = "" if HostKind.of(self.host) is HostKind.LOCAL else f"{self.host}:"
        if self.container is not None:
            return f"{where}{':'.join(self.container)}"
        return f"{where}{self.path}" if self.path is not None else f"run {self.run} on {self.host}"
