"""`pyanalyze record`: run a command and sample the GPUs beside it."""

from __future__ import annotations

import shlex
from pathlib import Path

import click


@click.command("record", context_settings={"allow_interspersed_args": False})
@click.option("-o", "--output", "folder", type=click.Path(path_type=Path), help="Folder; default is named by the time.")
@click.option("--rate", "rate_hz", type=float, default=10.0, show_default=True, metavar="HZ", help="Samples a second.")
@click.option("--duration", "duration_s", type=float, metavar="S", help="Sample so long; the command is waited for.")
@click.option("--nsys", is_flag=True, help="Run the command under nsys too: report.nsys-rep beside the samples.")
@click.argument("run", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD ...]")
def command(folder: Path | None, rate_hz: float, duration_s: float | None, *, nsys: bool, run: tuple[str, ...]) -> int:
    """Run CMD and sample NVML beside it; ends with the status of CMD."""
    from pyanalyze.cli import shown
    from pyanalyze.record.sampler import record

    def say(text: str) -> None:
        click.echo(f"pyanalyze: {shown(text)}", err=True)

    done = record(run, folder, rate_hz=rate_hz, duration_s=duration_s, nsys=nsys, say=say)
    if done.mean_sample_ns is not None and done.period_share is not None:
        say(
            f"{done.samples} samples, {done.mean_sample_ns / 1e6:.2f} ms each, {100 * done.period_share:.1f}% of the "
            f"period; {done.late} rounds late, {done.lost} lines lost"
        )
    samples = shlex.quote(str(done.folder / "samples.jsonl"))
    report = done.folder / "report.nsys-rep"
    capture = shlex.quote(str(report)) if report.exists() else "CAPTURE"
    say(f"to analyse: pyanalyze {capture} --samples {samples}")
    return done.exit_status
