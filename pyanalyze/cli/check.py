"""`pyanalyze check`: a gate for continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli._shared import (
    Number,
    baseline_options,
    by_option,
    capture_options,
    emit,
    open_session,
    output_options,
    refuse_existing,
    refuse_same,
)
from pyanalyze.cli.standard_streams import say
from pyanalyze.cli.words import Choice, ModePattern
from pyanalyze.tables.frames import ON_REQUEST
from pyanalyze.vocabulary import Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyanalyze.results.check import Checked, Limits
    from pyanalyze.results.report import Report

    #: A name of --tenant, with the pid or the capture that it was given to.
    _Name = tuple[str, int | Path]


class Fraction(click.ParamType[float]):
    """0.05 or 5%."""

    name = "FRACTION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read a number or a percentage."""
        from pyanalyze.analysis.gate import fraction
        from pyanalyze.errors import UsageError

        try:
            return fraction(value, (param.name if param is not None else None) or "value")
        except UsageError as error:
            self.fail(str(error), param, ctx)


@click.command("check")
@capture_options
@by_option
@click.option("--expect-mode", multiple=True, type=ModePattern(), help="Every GPU shows this mode (repeatable; mps*).")
@click.option("--expect-agreement", is_flag=True, help="The GPU was shared as it was configured to be.")
@click.option(
    "--max-slowdown", type=Number(), help="Of every traced tenant: the larger of elapsed and latency slowdown."
)
@click.option("--slowdown", type=Choice(("elapsed", "latency", "resident")), help="Check only this kind of slowdown.")
@click.option(
    "--max-switch-overhead",
    type=Fraction(),
    help="Cost of context switches, saving and restoring included, over the time in which all tenants co-ran, else "
    "over the window.",
)
@click.option("--min-jain", type=Fraction(), help="Fairness: Jain's index of 1 / slowdown.")
@click.option("--min-sm-active", type=Fraction(), help="Mean share of active SMs (modelled).")
@click.option("--max-memory", type=Fraction(), help="Peak of device memory, as a share of it (sampled).")
@click.option("--max-change", type=Fraction(), help="Growth of the time per unit of work against --against.")
@click.option("--no-data-loss", is_flag=True, help="No record is known to be lost or removed.")
@click.option("--against", type=click.Path(path_type=Path, readable=False), help="Run to compare with.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Default: pyanalyze.toml, if it is in this directory.",
)
@click.option("--inconclusive", type=Choice(("fail", "warn")), help="Exit 4 on inconclusive thresholds, or only warn.")
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Write JUnit XML as well.")
@output_options(("table", "json"))
@baseline_options
def command(
    fmt: str,
    output: Path | None,
    against: Path | None,
    config: Path | None,
    inconclusive: str | None,
    junit: Path | None,
    *,
    force: bool,
    **options: Any,
) -> int:
    """Check captures, a pack, a saved report or a fleet folder: exit 0 passed, 1 failed, 4 inconclusive.

    A gate without data never passes: where a slowdown was not measured, or no switch records were captured,
    it ends with 4 and says how to capture them. Thresholds may stand in pyanalyze.toml:

    \b
    [check]
    expect_mode = "mps"
    max_slowdown = 1.2
    max_switch_overhead = "5%"
    """  # noqa: D301
    import os

    refuse_same(output=output, junit=junit)
    for file in (output, junit):
        refuse_existing(file, force=force)
    limits, policy = _limits(config, {name: options.pop(name) for name in _THRESHOLDS})
    mode: Any = inconclusive or policy or "fail"
    checked = _checked(limits, mode, against, options)
    if junit is not None:
        emit(checked.to_junit(), junit, force=force)
    text = checked.to_json() if fmt == "json" else str(checked)
    emit(text, output, force=force, tenants=() if fmt == "table" else None)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        # GitHub reads workflow commands from both streams; standard output may hold JSON for the next program.
        for line in checked.annotations():
            say(line, of="")
    return checked.exit_code


def _checked(limits: Limits, mode: Any, against: Path | None, options: dict[str, Any]) -> Checked:
    from pyanalyze.analysis import gate
    from pyanalyze.fleet.check import check_fleet, is_fleet

    captures = options["captures"]
    if len(captures) == 1 and is_fleet(captures[0]):
        _refuse(f"{captures[0]} is what `pyanalyze fleet` wrote", {**options, "against": against})
        return check_fleet(captures[0], limits, inconclusive=mode)
    if against is not None and options["redact"]:
        from pyanalyze.tables.redact import numbered

        # One numbering for both, as in `compare`.
        options = {**options, "redact": numbered()}
    parts = gate.parts_of(limits) | ({Part.WORK} if against is not None else set())
    if against is None:
        return gate.check(read(parts=parts, **options), limits, inconclusive=mode)
    from pyanalyze.analysis.comparison.split import compare_reports

    named, others = names_by_run([captures, (against,)], options)
    report = read(parts=parts, **{**options, "tenants": named})
    beside = {**options, "captures": (against,), "tenants": others, "baselines": (), "work": None}
    comparison = compare_reports(
        read(parts=frozenset({Part.WORK}), **beside), report, one_numbering=bool(options["redact"])
    )
    return gate.check(report, limits, inconclusive=mode, comparison=comparison)


_THRESHOLDS = (
    "expect_mode",
    "expect_agreement",
    "max_slowdown",
    "slowdown",
    "max_switch_overhead",
    "min_jain",
    "min_sm_active",
    "max_memory",
    "max_change",
    "no_data_loss",
)


def _limits(config: Path | None, line: dict[str, Any]) -> tuple[Limits, str | None]:
    from pyanalyze.analysis import gate
    from pyanalyze.results.check import Limits

    given = Limits(**line)
    here = Path("pyanalyze.toml")
    if config is None and not here.is_file():
        return given, None
    file, policy = gate.read_limits(config or here)
    if config is None:
        say(f"thresholds of {here}")
    return gate.merged(file, given), policy


def _refuse(what: str, options: dict[str, Any]) -> None:
    """Refuse options that a saved report cannot honour."""
    alone = ("gpu", "start", "end", "around", "redact", "detail", "samples", "context", "blocks", "tenant")
    narrowing = (*alone, "baseline", "work", "against")
    # The repeatable ones are kept under their plural.
    values = {name: options.get({"baseline": "baselines", "tenant": "tenants"}.get(name, name)) for name in narrowing}
    # A GPU number may be 0.
    given = [f"--{name}" for name, value in values.items() if not (value is None or value is False or value == ())]
    if given:
        raise click.UsageError(f"{what}: {', '.join(given)} needs the capture or a pack")


def names_by_run(runs: Sequence[tuple[Path, ...]], options: Mapping[str, Any]) -> list[tuple[_Name, ...]]:
    """Deal the names of --tenant out to the runs that are compared: each has pids and captures of its own.

    Parameters
    ----------
    runs
        The captures of each.
    options
        Those of the command, `tenants` among them; a saved report takes no names.
    """
    from pyanalyze.inputs.saved_report import is_saved

    given: tuple[_Name, ...] = options["tenants"]
    unused = set(given)
    dealt = []
    for captures in runs:
        mine: list[_Name] = []
        if given and not is_saved(captures[0]):
            unnamed = {**options, "captures": captures, "tenants": (), "baselines": (), "work": None}
            session = open_session(**unnamed)
            # A path as the session spells it.
            known: dict[int | Path, int | Path] = {path.resolve(): path for path in session.paths}
            known |= {pid: pid for pid in (*session.tenants["pid"], *session.tenants["host_pid"])}
            for name, who in given:
                meant = known.get(who.resolve() if isinstance(who, Path) else who)
                if meant is not None:
                    mine.append((name, meant))
                    unused.discard((name, who))
        dealt.append(tuple(mine))
    if unused:
        name, who = min(unused, key=given.index)
        raise click.UsageError(f"--tenant {name}={who}: no tenant of either run is that process")
    return dealt


def read(captures: tuple[Path, ...], *, parts: frozenset[Part], **options: Any) -> Report:
    """These parts of the report of captures or a pack; or a report that was saved as JSON, whole."""
    from pyanalyze.inputs.saved_report import is_saved, read_saved

    if len(captures) == 1 and is_saved(captures[0]):
        _refuse(f"{captures[0]} is a saved report", options)
        return read_saved(captures[0])
    late = ON_REQUEST if Part.INTERFERENCE in parts else ()
    return open_session(captures, extra_tables=late, **options).report(parts=parts)
