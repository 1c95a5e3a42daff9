"""The command line. Nothing heavy is imported before a command really needs it.

`--json` prints one JSON document on stdout and nothing else there (streaming commands: one object a line); messages go
to stderr. Exit codes: 0 done; 1 the thing asked about failed; 2 unknown run, profile, file, flag or value; 3 host;
4 timed out; 130 interrupted.
"""

import contextlib
import io
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from tui import __version__
from tui.commands.output import emit, say
from tui.core.errors import EagletuiError, Slug, UsageError, of_system
from tui.core.text import one_line, sanitize

EXIT_INTERRUPTED = 130
_MAX_SECONDS = 1e8  # three years: beyond that, somebody mistyped
_TINY = 1e-6  # below that nothing is measured, and dividing by it gives no figure
_MAX_FIGURE = 1e6  # tokens a second, milliseconds, tokens a cycle


class _Commands(click.Group):
    """Sub-commands, and any other first word is a host for the panel."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            return "panel", _panel, args
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self.commands[name].get_short_help_str(90)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


class _Bench(click.Group):
    """Sub-commands, and any other first word is a bench profile that is measured."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = [_MEASURE, *args]
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in self.commands if name != _MEASURE]


_MEASURE = "NAME"  # no profile's name: a command of its own would hide it


class _Seconds(click.ParamType[float]):
    """A duration: not negative, finite."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= _MAX_SECONDS:
            self.fail(f"{one_line(str(value), 40)!r} is no number of seconds from 0 to {_MAX_SECONDS:g}")
        return seconds


class _Above(click.ParamType[float]):
    """A number above zero (or zero, where that has a meaning), and below a limit where there is one."""

    name = "number"

    def __init__(self, below: float = math.inf, *, zero: bool = False) -> None:
        self.below = below
        self.zero = zero

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if 0 < number < _TINY:
            self.fail(f"{one_line(str(value), 40)!r} is too close to 0")
        if not (0 < number < self.below or (self.zero and number == 0)):
            least = "from 0 on" if self.zero else "above 0"
            limit = f" and below {self.below:g}" if self.below < math.inf else ""
            self.fail(f"{one_line(str(value), 40)!r} is no number {least}{limit}")
        return number


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
host_option = click.option("--host", metavar="H", help="Host, instead of EAGLETUI_HOST or default_host.")
set_option = click.option("--set", "sets", multiple=True, metavar="K=V", help="Override a flag, or env.X, gpus.")
resume_option = click.option(
    "--resume", is_flag=True, help="Go on with the newest unfinished one of this name on that host."
)
seed_option = click.option("--seed", type=click.IntRange(0, 2**32), metavar="N", help="Decides which arm begins.")
timeout_option = click.option("--timeout", type=_Seconds(), metavar="S", help="Seconds to wait.")


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    subcommand_metavar="[HOST | COMMAND [ARGS]...]",
)
@click.option(
    "--profiles", type=click.Path(file_okay=False, exists=True, path_type=Path), help="Look here for profiles first."
)
@click.version_option(__version__, prog_name="eagletui")
@click.pass_context
def cli(ctx: click.Context, profiles: Path | None) -> None:
    """Control panel for people who tune SGLang servers on remote GPU hosts.

    Without a command it opens the panel on HOST: a name of ~/.ssh/config, user@host:port, `local`, or `demo`.
    """
    ctx.obj = profiles
    if ctx.invoked_subcommand is None:
        ctx.exit(_open_panel(None, profiles))


def _open_panel(host: str | None, profiles: Path | None) -> int:
    # It is drawn on standard error.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError(
            "the panel needs a terminal", "for scripts there are eagletui launch, ps, wait, logs", slug=Slug.NO_TERMINAL
        )
    from tui.core.config import default_host

    name = host or default_host()
    from tui.panel.app import run_panel

    return run_panel(name, profiles)


@click.command(name="panel", hidden=True)
@click.argument("host", required=False)
@click.pass_obj
def _panel(profiles: Path | None, host: str | None) -> int:
    return _open_panel(host, profiles)


@cli.command()
@click.pass_obj
def demo(profiles: Path | None) -> int:
    """Open the panel on a simulated host with eight GPUs."""
    return _open_panel("demo", profiles)


@cli.command()
@click.argument("host", required=False)
@click.option("--watch", is_flag=True, help="Go on, one sample a second.")
@click.option("--file", "file", type=click.Path(path_type=Path), help="Read saved `nvidia-smi --format=csv` output.")
@click.option("--query", metavar="LIST", help="Columns of the file, where it has no header.")
@json_option
def gpus(host: str | None, watch: bool, file: Path | None, query: str | None, as_json: bool) -> int:
    """Memory, utilisation, power, temperature and processes of every GPU."""
    from tui.commands.servers import gpus_command

    return gpus_command(host, watch, file, query, as_json)


@cli.group(invoke_without_command=True)
@click.pass_context
@json_option
def profiles(ctx: click.Context, as_json: bool) -> None:
    """Launch, bench and experiment profiles: list, show, import."""
    if ctx.invoked_subcommand is None:
        from tui.commands.servers import profiles_list

        ctx.exit(profiles_list(ctx.obj, as_json))


@profiles.command(name="list")
@json_option
@click.pass_obj
def list_profiles(directory: Path | None, as_json: bool) -> int:
    """What is found, and what is broken."""
    from tui.commands.servers import profiles_list

    return profiles_list(directory, as_json)


@profiles.command(name="show")
@click.argument("name")
@set_option
@host_option
@json_option
@click.pass_obj
def show_profile(directory: Path | None, name: str, sets: tuple[str, ...], host: str | None, as_json: bool) -> int:
    """The command that would run."""
    from tui.commands.servers import profiles_show

    return profiles_show(directory, name, sets, host, as_json)


@profiles.command(name="import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--save", "save_as", metavar="NAME", help="Write it as a profile of yours.")
@json_option
def import_profile(file: Path, save_as: str | None, as_json: bool) -> int:
    """A posted launch command or script becomes a profile; nothing is executed."""
    from tui.commands.servers import profiles_import

    return profiles_import(file, save_as, as_json)


@cli.command()
@click.argument("name")
@host_option
@set_option
@click.option("--replace", is_flag=True, help="Stop our server on those GPUs first, wait for the memory.")
@click.option("--wait", "wait_ready", is_flag=True, help="Until ready (0), crashed (1) or timed out (4).")
@timeout_option
@json_option
@click.pass_obj
def launch(
    directory: Path | None,
    name: str,
    host: str | None,
    sets: tuple[str, ...],
    replace: bool,
    wait_ready: bool,
    timeout: float | None,
    as_json: bool,
) -> int:
    """Start a server from a profile."""
    from tui.commands.servers import launch_command

    return launch_command(directory, name, host, sets, replace, wait_ready, timeout, as_json)


@cli.command()
@click.argument("host", required=False)
@json_option
def ps(host: str | None, as_json: bool) -> int:
    """Runs on a host, and servers that others started."""
    from tui.commands.servers import ps_command

    return ps_command(host, as_json)


@cli.command()
@click.argument("run")
@click.option("--for", "until", type=click.Choice(["ready", "exit"]), default="ready", show_default=True)
@timeout_option
@host_option
@json_option
def wait(run: str, until: str, timeout: float | None, host: str | None, as_json: bool) -> int:
    """Wait until a run is ready, or has ended."""
    from tui.commands.servers import wait_command

    return wait_command(run, until, timeout, host, as_json)


@cli.command()
@click.argument("run")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--grace", type=_Seconds(), metavar="S", default=20.0, show_default=True, help="Seconds to drain before more."
)
@host_option
@json_option
def stop(run: str, yes: bool, grace: float, host: str | None, as_json: bool) -> int:
    """Stop a run with everything it started; says when the GPU memory is back."""
    from tui.commands.servers import stop_command

    return stop_command(run, yes, grace, host, as_json)


@cli.command()
@click.argument("what", metavar="RUN|[HOST:]FILE")
@click.argument("beside", metavar="[RUN|[HOST:]FILE]", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows; the view on a terminal always does.")
@host_option
@json_option
def logs(what: str, beside: str | None, follow: bool, host: str | None, as_json: bool) -> int:
    """The log of a run, or any log file, here or on a host.

    On a terminal it opens in a view, two logs side by side; its bytes are printed where the output goes elsewhere.
    """
    from tui.commands.servers import logs_command, logs_view

    if beside is None and (as_json or not _view_fits()):
        return logs_command(what, follow, host, as_json)
    if as_json or not _view_fits():
        raise UsageError("two logs side by side need a terminal", "name one of them, or leave out --json")
    return logs_view([word for word in (what, beside) if word is not None], host)


def _view_fits() -> bool:
    """Whether somebody sits at a terminal that can show a screen."""
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


@cli.command()
@click.argument("what", metavar="[HOST:]FILE|RUN|-")
@click.option("-f", "--follow", is_flag=True, help="Go on as it grows: again at each change.")
@host_option
@json_option
def diagnose(what: str, follow: bool, host: str | None, as_json: bool) -> int:
    """Read any SGLang log: how far it came, why it died, what to change."""
    from tui.commands.servers import diagnose_command

    return diagnose_command(what, host, as_json, follow=follow)


def _chosen(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that choose among stored results."""
    for name, text in (("profile", "Of this launch profile."), ("bench", "Of this bench."), ("host", "Of H.")):
        command = click.option(f"--{name}", metavar=name[0].upper(), help=text)(command)
    return json_option(command)


@cli.group(invoke_without_command=True)
@click.pass_context
@_chosen
def results(ctx: click.Context, host: str | None, bench: str | None, profile: str | None, as_json: bool) -> None:
    """What was measured: list, import, export."""
    if ctx.invoked_subcommand is None:
        from tui.commands.results import results_list

        ctx.exit(results_list(host, bench, profile, as_json))


@results.command(name="list")
@_chosen
def list_results(host: str | None, bench: str | None, profile: str | None, as_json: bool) -> int:
    """Stored results, newest first."""
    from tui.commands.results import results_list

    return results_list(host, bench, profile, as_json)


@results.command(name="import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Store nothing.")
@click.option("--host", metavar="H", help="Where it was measured.")
@click.option("--profile", metavar="P", help="The launch profile that it measured.")
@json_option
def import_results(file: Path, dry_run: bool, host: str | None, profile: str | None, as_json: bool) -> int:
    """Output of SGLang's or vLLM's benchmark, text or JSON, becomes results."""
    from tui.commands.results import results_import

    return results_import(file, dry_run, host, profile, as_json)


def measured_server(command: Callable[..., int]) -> Callable[..., int]:
    """What a measurement is told: the bench profile, and which server."""
    for parameter in (
        json_option,
        click.option("--set", "sets", multiple=True, metavar="K=V", help="Override a key of the profile."),
        host_option,
        click.option("--url", metavar="URL", help="A server at this address, as the host reaches it."),
        click.option("--run", metavar="RUN", help="This server, instead of the one that is ready."),
        click.argument("name"),
    ):
        command = parameter(command)
    return command


@cli.group(cls=_Bench, invoke_without_command=True, subcommand_metavar="NAME [OPTIONS] | COMMAND [ARGS]...")
@click.pass_context
def bench(ctx: click.Context) -> None:
    """Measure a running server with the bench profile NAME; `eagletui bench NAME --help` has the options."""
    if ctx.invoked_subcommand is None:
        raise UsageError("which bench profile?", "eagletui profiles lists them", slug=Slug.UNKNOWN_PROFILE)


@bench.command(name=_MEASURE, hidden=True)
@measured_server
@click.pass_obj
def measure(
    directory: Path | None,
    name: str,
    run: str | None,
    url: str | None,
    host: str | None,
    sets: tuple[str, ...],
    as_json: bool,
) -> int:
    """Measure a running server; each run is stored, with the conditions that it failed."""
    from tui.commands.bench import bench_command

    return bench_command(directory, name, run, url, host, sets, as_json)


@bench.command(name="verify")
@measured_server
@click.pass_obj
def verify_bench(
    directory: Path | None,
    name: str,
    run: str | None,
    url: str | None,
    host: str | None,
    sets: tuple[str, ...],
    as_json: bool,
) -> int:
    """Hold the load generator against SGLang's own benchmark, by turns on one server."""
    from tui.commands.verify import verify_command

    return verify_command(directory, name, run, url, host, sets, as_json)


@bench.command(name="aa")
@click.argument("name")
@click.option("--bench", "bench_name", metavar="BENCH", required=True, help="Measure with this bench profile.")
@click.option(
    "--pairs",
    type=click.IntRange(2, 1000),
    default=3,
    show_default=True,
    metavar="N",
    help="Launch pairs, two launches each.",
)
@host_option
@resume_option
@seed_option
@json_option
@click.pass_obj
def aa_bench(
    directory: Path | None,
    name: str,
    bench_name: str,
    pairs: int,
    host: str | None,
    resume: bool,
    seed: int | None,
    as_json: bool,
) -> int:
    """The host's own noise: the launch profile NAME against itself, on real launches."""
    from tui.commands.experiment import aa_command

    return aa_command(directory, name, bench_name, pairs, host, resume, seed, as_json)


@cli.command()
@click.argument("name")
@host_option
@resume_option
@seed_option
@json_option
@click.pass_obj
def experiment(
    directory: Path | None, name: str, host: str | None, resume: bool, seed: int | None, as_json: bool
) -> int:
    """Launch, wait, measure, record, next: unattended; ends with verdicts."""
    from tui.commands.experiment import experiment_command

    return experiment_command(directory, name, host, resume, seed, as_json)


@cli.command()
@click.argument("refs", nargs=-1, required=True, metavar="A B [C]...")
@click.option(
    "--metric",
    default=None,
    show_default="per_user_tok_s, of searches what they found",
    metavar="M",
    help="Also output_tok_s, goodput_req_s, ttft_ms, p99_itl_ms, …",
)
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="At this load alone.")
@click.option("--rate", type=_Above(), metavar="R", help="At so many requests a second alone.")
@click.option(
    "--margin", type=_Above(100), metavar="%", help="What counts as equivalent: 2, or what an experiment planned."
)
@host_option
@json_option
def compare(
    refs: tuple[str, ...],
    metric: str | None,
    concurrency: int | None,
    rate: float | None,
    margin: float | None,
    host: str | None,
    as_json: bool,
) -> int:
    """Which of two is faster, and how sure that is: results, runs, profiles, or EXPERIMENT:ARM.

    Each further one is held against the first too. EXPERIMENT is an id, or a name: the newest of that name on the host.
    """
    from tui.commands.verdicts import compare_command

    share = margin / 100 if margin is not None else None
    return compare_command(refs, metric, concurrency, rate, share, host, as_json)


@cli.command()
@click.argument("results", nargs=-1, metavar="[RESULT_BASE [RESULT_SPEC]]")
@click.option("--base-tok-s", type=_Above(_MAX_FIGURE), metavar="X", help="The baseline's rate of one user.")
@click.option("--verify-ms", type=_Above(_MAX_FIGURE), metavar="Y", help="One verify step.")
@click.option("--draft-ms", type=_Above(_MAX_FIGURE, zero=True), metavar="Z", help="The drafts of one cycle.")
@click.option("--accept-len", type=_Above(_MAX_FIGURE), metavar="T", help="Tokens a cycle, bonus token counted.")
@click.option("--layers", type=click.IntRange(min=1), metavar="N", help="Of the model: for the time of an all-reduce.")
@click.option("--concurrency", type=click.IntRange(min=1), metavar="N", help="At this load alone.")
@host_option
@json_option
def breakeven(
    results: tuple[str, ...],
    base_tok_s: float | None,
    verify_ms: float | None,
    draft_ms: float | None,
    accept_len: float | None,
    layers: int | None,
    concurrency: int | None,
    host: str | None,
    as_json: bool,
) -> int:
    """Whether speculation pays: from two results, from figures, or as an estimate from a baseline's sweep alone."""
    from tui.commands.verdicts import breakeven_command

    return breakeven_command(results, base_tok_s, verify_ms, draft_ms, accept_len, layers, concurrency, host, as_json)


@results.command(name="export")
@click.argument("refs", metavar="[REF]...", nargs=-1)
@click.option(
    "--format", "form", type=click.Choice(["csv", "markdown", "jsonl"]), default="markdown", show_default=True
)
@click.option("--output", metavar="F", type=click.Path(path_type=Path), help="Write a file.")
def export_results(refs: tuple[str, ...], form: str, output: Path | None) -> int:
    """A table to paste into an issue, a spreadsheet, or whole records; REF as of compare, or everything."""
    from tui.commands.results import results_export

    return results_export(refs, form, output)


@results.command(name="recompute")
@click.argument("refs", metavar="[REF]...", nargs=-1)
@json_option
def recompute_results(refs: tuple[str, ...], as_json: bool) -> int:
    """Figures and guards anew from the raw rows, where a definition has changed; REF as of compare, or everything."""
    from tui.commands.results import results_recompute

    return results_recompute(refs, as_json)


@cli.command()
@click.argument("host", required=False)
@json_option
def doctor(host: str | None, as_json: bool) -> int:
    """What works, what is missing, and how to mend it."""
    from tui.commands.servers import doctor_command

    return doctor_command(host, as_json)


@cli.command()
@json_option
def paths(as_json: bool) -> int:
    """Where files are."""
    from tui.commands.servers import paths_command

    return paths_command(as_json)


def _fail(error: EagletuiError, as_json: bool) -> int:
    if as_json:
        document = {
            "error": error.slug,
            "message": error.message,
            "hint": str(error.hint) if error.hint else None,
            **error.details,
        }
        with contextlib.suppress(OSError):  # stdout itself may be what failed; then stderr says so
            emit(document)
            return error.exit_code
    text = error.message + (f"; {error.hint}" if error.hint else "")
    # Parts of it may come from a file or a command line that somebody else wrote.
    say("eagletui: " + sanitize(" ".join(text.split())))
    return error.exit_code


def _fault(error: Exception) -> EagletuiError:
    """What nobody foresaw, as one line that says where it happened."""
    import traceback

    here = os.path.dirname(__file__)
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(here)] or frames[-1:]
    where = f" at {os.path.relpath(ours[-1].filename, here)}:{ours[-1].lineno}" if ours else ""
    return EagletuiError(
        f"{type(error).__name__}{where}: {one_line(str(error))}",
        "this is a fault of eagletui, please report it",
        slug=Slug.INTERNAL,
    )


def _guarded(command: Callable[[], int | None], as_json: bool) -> int:
    try:
        code = command() or 0
        sys.stdout.flush()
        return code
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        text = " ".join(error.format_message().split()).rstrip(".")
        return _fail(UsageError(text, "see eagletui --help"), as_json)
    except (KeyboardInterrupt, click.Abort):
        interrupted = EagletuiError("interrupted", "runs on the host go on", slug=Slug.INTERRUPTED)
        _fail(interrupted, as_json)
        return EXIT_INTERRUPTED
    except EagletuiError as error:
        return _fail(error, as_json)
    except BrokenPipeError:  # `| head` has read enough
        return 0
    except UnicodeEncodeError as error:
        bad = one_line(error.object[max(0, error.start - 20) : error.end + 20], 60)
        what = UsageError(f"{bad!r} is not valid UTF-8", "type it anew", slug=Slug.BAD_VALUE)
        return _fail(what, as_json)
    except OSError as error:
        return _fail(of_system(error), as_json)
    except Exception as error:
        return _fail(_fault(error), as_json)


def _open_standard_streams() -> None:
    """A stream that the caller closed becomes /dev/null: else a socket would get its number, and its output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # takes the lowest free number, which is this one
            setattr(sys, name, os.fdopen(opened, "w" if number else "r", closefd=False))


def _invoke() -> int | None:
    # Not click's main(): that one answers a closed pipe, Ctrl-C and the end of input in ways of its own.
    with cli.make_context("eagletui", sys.argv[1:]) as context:
        code = cli.invoke(context)
        return code if isinstance(code, int) else None


def main() -> None:
    """Entry point of the command `eagletui`."""
    _open_standard_streams()
    as_json = "--json" in sys.argv[1:]
    # JSON is UTF-8 wherever it is read; other text shows what the terminal's encoding lacks as escapes.
    for stream, encoding in ((sys.stdout, "utf-8" if as_json else None), (sys.stderr, None)):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
    code = _guarded(_invoke, as_json)
    try:
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            code = code or _fail(EagletuiError(f"standard output: {error.strerror}", None), False)
        # What is left in the buffer goes nowhere; Python would complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
