"""`eagletui bench aa`: the host's own noise, one configuration against itself."""

from pathlib import Path

import click

from tui.commands import completing
from tui.commands.experiment import conduct, experiment_json
from tui.commands.options import host_option, json_option, resume_option, seed_option, yes_option
from tui.commands.output import emit
from tui.commands.terminal import interactive
from tui.core.experiment.noise import NoiseReport, noise_report
from tui.core.model.profile import ExperimentArm, ExperimentProfile
from tui.core.records import picked


@click.command()
@click.argument("name", shell_complete=completing.launch_profiles)
@click.option("--bench", metavar="BENCH", required=True, help="Measure with this bench profile.")
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
@yes_option
@json_option
@click.pass_obj
def command(
    directory: Path | None,
    name: str,
    bench: str,
    pairs: int,
    host: str | None,
    resume: bool,
    seed: int | None,
    yes: bool,
    as_json: bool,
) -> int:
    """The host's own noise: the launch profile NAME against itself, on real launches.

    The exit code is 1 where too little was measured.
    """
    profile = ExperimentProfile(
        name=f"aa-{name}",
        bench=bench,
        arms=(ExperimentArm("A", name), ExperimentArm("B", name, against="A")),
        pairs=pairs,
        hypothesis="launches of one configuration differ by chance alone",
    )
    words = ("eagletui", "bench", "aa", name, "--bench", bench)
    ask = None if yes else interactive() and not as_json
    runner = conduct(directory, profile, host, resume, seed, words, ask=ask)
    reports = noise_report(runner.record, runner.results())
    if as_json:
        emit({**experiment_json(runner), "noise": [_noise_json(report) for report in reports]})
    else:
        for report in reports:
            print(report.text)
    return 0 if reports else 1


def _noise_json(report: NoiseReport) -> dict[str, object]:
    return {
        **picked(
            report,
            "host model bench load=point.label launch_cv=noise.launch_cv run_cv=noise.run_cv launches=noise.launches "
            "noise_floor=floor launch_s text",
        ),
        "pairs_needed": {f"{effect:g}": pairs for effect, pairs in report.pairs_needed},
    }
