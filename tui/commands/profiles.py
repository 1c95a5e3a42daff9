"""`eagletui profiles`: launch, bench and experiment profiles."""

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from tui.commands import completing
from tui.commands.options import host_option, json_option, set_option
from tui.commands.output import emit, say
from tui.core.config import HostEntry, config_dir, default_host, load_settings, profile_dirs
from tui.core.errors import Slug, UsageError
from tui.core.host import facts_cache
from tui.core.profiles.command import build_command, render_command
from tui.core.profiles.importing.shell_command import import_command
from tui.core.profiles.launch_profile import LaunchProfile
from tui.core.profiles.load import (
    bench_table,
    discover,
    experiment_table,
    kind_of,
    load_bench,
    load_experiment,
    load_launch,
)
from tui.core.profiles.roles import member_profile, router_profile
from tui.core.profiles.toml_text import save_profile, toml_lines
from tui.core.records import to_json
from tui.core.text import one_line


@click.group(invoke_without_command=True)
@click.pass_context
@json_option
def command(ctx: click.Context, as_json: bool) -> None:
    """Launch, bench and experiment profiles: list, show, import."""
    if ctx.invoked_subcommand is None:
        ctx.exit(_list(ctx.obj, as_json))


@command.command(name="list")
@json_option
@click.pass_obj
def list_profiles(directory: Path | None, as_json: bool) -> int:
    """What is found, and what is broken."""
    return _list(directory, as_json)


def _list(directory: Path | None, as_json: bool) -> int:
    entries = discover(profile_dirs(directory))
    if as_json:
        documents = [to_json(entry) for entry in entries]
        for error in (error for document in documents for error in document["errors"]):
            del error["path"]  # as that of its profile
        emit(documents)
        return 0
    width = max((len(entry.name) for entry in entries), default=0)
    for kind in ("launch", "bench", "experiment"):
        for entry in entries:
            if entry.kind == kind and not entry.errors:
                print(f"{kind:<11} {entry.name:<{width}}  {entry.description or ''}".rstrip())
    for entry in entries:
        for error in entry.errors:
            print(f"broken      {error}")
    return 0


@command.command(name="show")
@click.argument("name", shell_complete=completing.any_profile)
@set_option
@host_option
@json_option
@click.pass_obj
def show(directory: Path | None, name: str, sets: tuple[str, ...], host: str | None, as_json: bool) -> int:
    """The command of a launch profile; what a bench profile or an experiment asks for."""
    dirs = profile_dirs(directory)
    kind = kind_of(name, dirs)
    if kind in ("bench", "experiment"):
        return _show_table(name, kind, dirs, sets, as_json)
    profile = load_launch(name, dirs, sets)
    where = host or profile.host or default_host()
    if profile.several:
        return _show_several(profile, where, as_json)
    entry = load_settings().host(where)
    facts = facts_cache.remembered(entry)
    command = build_command(profile, entry, facts.sglang if facts else None, None)
    if as_json:
        emit({"env": dict(command.env), "argv": list(command.argv), "host": where, "notes": list(command.notes)})
        return 0
    print(render_command(command))
    for note in command.notes:
        say(f"note: {note}")
    return 0


def _show_several(profile: LaunchProfile, where: str, as_json: bool) -> int:
    """The commands of all members; what stands for the address of a host is its name."""
    parts = _nodes(profile) if profile.nodes is not None else _roles(profile, where)
    members = []
    for name, entry, one in parts:
        facts = facts_cache.remembered(entry)
        command = build_command(one, entry, facts.sglang if facts else None, None)
        members.append(
            {
                **{"name": name, "env": dict(command.env), "argv": list(command.argv), "host": entry.name},
                "notes": list(command.notes),
            }
        )
        if not as_json:
            print(f"# {name} on {entry.name}\n{render_command(command)}")
            for note in command.notes:
                say(f"note: {name}: {note}")
    hosts = dict.fromkeys(entry.name for _, entry, _ in parts)
    found = [f"addresses of {', '.join(hosts)} are found at the launch"] if len(hosts) > 1 else []
    if as_json:
        serving = members[0 if profile.nodes is not None else -1]
        emit({**{key: serving[key] for key in ("env", "argv", "host")}, "notes": found, "members": members})
    for note in () if as_json else found:
        say(f"note: {note}")
    return 0


_Part = tuple[str, HostEntry, LaunchProfile]  # a member's name, its host, and what it runs


def _nodes(profile: LaunchProfile) -> list[_Part]:
    from tui.core.groups.nodes import Meeting, rank_profile

    assert profile.nodes is not None
    settings, hosts = load_settings(), profile.nodes.hosts
    meeting = Meeting(hosts[0], profile.nodes.dist_port)
    entries = [settings.host(host) for host in hosts]
    return [(f"rank {rank}", entry, rank_profile(profile, rank, meeting, entry)) for rank, entry in enumerate(entries)]


def _roles(profile: LaunchProfile, where: str) -> list[_Part]:
    settings = load_settings()
    *workers, router = profile.group
    apart = len({table.host or profile.host or where for table in profile.group}) > 1
    urls = [
        (one, f"http://{one.address or (one.host or where if apart else '127.0.0.1')}:{one.port}") for one in workers
    ]
    profiles = [member_profile(profile, one, apart=apart) for one in workers]
    profiles.append(router_profile(profile, router, settings.host(router.host or where).python, urls))
    return [
        (table.name, settings.host(one.host or where), one) for table, one in zip(profile.group, profiles, strict=True)
    ]


def _show_table(name: str, kind: str, dirs: Sequence[Path], sets: tuple[str, ...], as_json: bool) -> int:
    """A bench profile or an experiment as TOML, with the defaults of what it leaves out."""
    if kind == "experiment" and sets:
        raise UsageError("an experiment has no --set of its own", "write set = { ... } in one of its arms")
    if kind == "bench":
        table = bench_table(load_bench(name, dirs, sets))
    else:
        table = experiment_table(load_experiment(name, dirs))
    if as_json:
        emit({"name": name, **table})
        return 0
    arms = table.pop("arms", [])
    print(toml_lines(table))
    for arm in arms:
        print(f"\n[[arms]]\n{toml_lines(arm)}")
    return 0


@command.command(name="import")
@click.argument("file", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--save", "save_as", metavar="NAME", help="Write it as a profile of yours.")
@click.option("--define", "defines", metavar="NAME=VALUE", multiple=True, help="A value that the text leaves open.")
@click.option("--pick", type=click.IntRange(1), metavar="N", help="Which server, where the text has several.")
@json_option
def import_profile(file: Path, save_as: str | None, defines: tuple[str, ...], pick: int | None, as_json: bool) -> int:
    """A posted launch command, script or manifest becomes a profile; nothing is executed."""
    try:
        posted = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "name a readable file", slug=Slug.UNKNOWN_FILE) from None
    given = dict(map(_definition, defines))
    found = import_command(posted.decode("utf-8", "replace"), os.path.expanduser("~"), given, pick)
    saved = save_profile(found.profile, save_as, config_dir() / "profiles") if save_as else None
    if as_json:
        shown = found.masked() if sys.stdout.isatty() else found
        emit({**to_json(shown), "saved": str(saved) if saved else None}, secrets=shown is found)
        return 0
    print(found.masked().profile.rstrip())
    open_texts = {item.sentence: item.name for item in found.unresolved}
    for text in found.warnings:
        kind = "not understood" if text in found.not_understood else "warning"
        give = f": give it with --define {shlex.quote(open_texts[text])}=VALUE" if text in open_texts else ""
        say(f"{kind}: {text}{give}")
    if found.others:
        say("another server is taken with --pick N")
    if saved:
        say(f"saved as {saved}")
        entry = next(entry for entry in discover([saved.parent]) if entry.path == saved)
        for problem in entry.errors:  # what stayed open may be no value for its flag
            say(f"it cannot be launched yet: {problem}")
    return 0


def _definition(text: str) -> tuple[str, str]:
    """NAME=VALUE. A name may be a text that itself has an equals sign: `$(cut -f=1)=x`, `{{ x }}=y`."""
    whole = re.match(r"(\$\(.*\)|\$\{[^}]*\}|`[^`]*`|\{\{.*\}\}|<[^>]*>|[^=]+)=(.*)", text, re.DOTALL)
    if whole is None:
        raise UsageError(f'--define "{one_line(text, 80)}" is not NAME=VALUE', "write --define NAME=VALUE")
    return whole[1], whole[2]
