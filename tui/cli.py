"""The command line. Nothing heavy is imported before a command really needs it.

`--json` prints one JSON document on stdout and nothing else there (streaming commands: one object a line); messages go
to stderr. Exit codes: 0 done; 1 the thing asked about failed; 2 unknown run, profile, file, flag or value; 3 host;
4 timed out; 130 interrupted.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import click

from tui import __version__
from tui.commands.lazy import LazyGroup
from tui.commands.output import SafeOutput, emit, error_document, error_line, say
from tui.core.errors import EagletuiError, Slug, UsageError, of_system
from tui.core.masking.known import learn_later
from tui.core.text import one_line

EXIT_INTERRUPTED = 130

_COMMANDS = {
    "demo": "Open the panel on a simulated host with eight GPUs.",
    "gpus": "Memory, utilisation, power, temperature and processes of every GPU.",
    "profiles": "Launch, bench and experiment profiles: list, show, import.",
    "launch": "Start a server from a profile.",
    "ps": "Runs on a host, and servers that others started.",
    "wait": "Wait until a run is ready, or has ended.",
    "stop": "Stop a run with everything it started; reports when the GPU memory is free again.",
    "logs": "The log of a run, or any log file, here or on a host.",
    "diagnose": "Read any SGLang log: how far it came, why it died, what to change.",
    "results": "What was measured: list, import, export.",
    "bench": "Measure a running server with the bench profile NAME.",
    "experiment": "Launch, wait, measure, record, next: unattended; ends with verdicts.",
    "tune": "Find the memory fraction that starts and the speculation that pays; ends with a verdict.",
    "compare": "Which of two is faster, and how sure that is.",
    "journal": "What was tried and what came of it.",
    "breakeven": "Whether speculation pays.",
    "doctor": "What works, what is missing, and how to fix it.",
    "paths": "Where files are.",
    "mcp": "A server of the Model Context Protocol on standard input and output.",
    "agents": "One page for agents: the loop, JSON, exit codes.",
    "completion": "Completion of hosts, profiles, runs and flags for bash, zsh or fish: prints the shell's script.",
}
# Those after which there may be something to write into the journal, whatever came of them.
_JOURNALED = ("launch", "wait", "stop", "bench", "experiment", "tune")


@click.group(
    cls=LazyGroup,
    lazy=_COMMANDS,
    otherwise="panel",
    called="HOST",
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    subcommand_metavar="[HOST... | COMMAND [ARGS]...]",
)
@click.option(
    "--profiles", type=click.Path(file_okay=False, exists=True, path_type=Path), help="Look here for profiles first."
)
@click.option("--all", "everywhere", is_flag=True, help="The panel on every host of config.toml.")
@click.version_option(__version__, prog_name="eagletui")
@click.pass_context
def cli(ctx: click.Context, profiles: Path | None, everywhere: bool) -> None:
    """Control panel for people who tune SGLang servers on remote GPU hosts.

    Without a command it opens the panel on HOST: a name of ~/.ssh/config, user@host:port, `local`, or `demo`. Of several
    hosts it opens an overview.
    """
    ctx.obj = profiles
    learn_later(lambda: _learn(profiles))
    if ctx.invoked_subcommand is None:
        from tui.commands.panel import open_panel

        ctx.exit(open_panel((), profiles, everywhere=everywhere))
    if everywhere:
        raise click.UsageError("--all is an option of the panel, ps, gpus and doctor; it stands behind the command")


def _learn(profiles: Path | None) -> None:
    """The secrets of the files that a command may read are known before it prints anything, whoever launched."""
    from tui.core.config import load_settings, profile_dirs
    from tui.core.masking.written import learn_environment
    from tui.core.profiles.files import learn_files

    learn_environment(os.environ)
    with contextlib.suppress(EagletuiError):  # a broken config.toml, a home that cannot be: said by who needs it
        load_settings()
    with contextlib.suppress(EagletuiError):
        learn_files(profile_dirs(profiles))


def _fail(error: EagletuiError, as_json: bool) -> int:
    if as_json:
        with contextlib.suppress(OSError):  # stdout itself may be what failed; then stderr says so
            emit(error_document(error))
            return error.exit_code
    say(error_line(error))
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
        "this is a bug of eagletui, please report it",
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
        interrupted = EagletuiError("interrupted", "runs on the host keep running", slug=Slug.INTERRUPTED)
        _fail(interrupted, as_json)
        return EXIT_INTERRUPTED
    except EagletuiError as error:
        return _fail(error, as_json)
    except BrokenPipeError:  # `| head` has read enough
        return 0
    except UnicodeEncodeError as error:
        bad = one_line(error.object[max(0, error.start - 20) : error.end + 20], 60)
        what = UsageError(f"{bad!r} is not valid UTF-8", "type it again", slug=Slug.BAD_VALUE)
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
    if asked := os.environ.get("_EAGLETUI_COMPLETE"):
        from tui.commands.completion import complete

        return complete(cli, asked)
    # Not click's main(): that one answers a closed pipe, Ctrl-C and the end of input in ways of its own.
    with cli.make_context("eagletui", sys.argv[1:]) as context:
        try:
            code = cli.invoke(context)
        finally:
            if context.invoked_subcommand in _JOURNALED:
                from tui.core.journal.writing import sync_quietly

                sync_quietly()
        return code if isinstance(code, int) else None


def main() -> None:
    """Entry point of the command `eagletui`."""
    _open_standard_streams()
    as_json = "--json" in sys.argv[1:]
    # JSON is UTF-8 wherever it is read; other text shows what the terminal's encoding lacks as escapes.
    for name, encoding in (("stdout", "utf-8" if as_json else None), ("stderr", None)):
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            setattr(sys, name, SafeOutput(stream, encoding or stream.encoding))
    code = _guarded(_invoke, as_json)
    try:
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):
            code = code or _fail(EagletuiError(f"standard output: {error.strerror}", None), False)
        # What is left in the buffer goes nowhere; Python would complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
