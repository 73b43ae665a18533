"""`pyanalyze record`: run a command, or watch the node, and sample the GPUs beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from pyanalyze.cli._shared import Number
from pyanalyze.cli.standard_streams import out, say
from pyanalyze.cli.words import Choice
from pyanalyze.errors import GpuUnavailable
from pyanalyze.text import format as fmt
from pyanalyze.text.shell import shell_word


@click.command("record", context_settings={"allow_interspersed_args": False})
@click.option(
    "-o", "--output", "folder", type=click.Path(path_type=Path), help="Output folder; default: named by the time."
)
@click.option(
    "--rate", "rate_hz", type=Number(), default=10.0, show_default=True, metavar="HZ", help="Samples a second."
)
@click.option(
    "--duration", "duration_s", type=Number(), default=10.0, show_default=True, metavar="S",
    help="Duration; a command is waited for.",
)  # fmt: skip
@click.option("--until-end", is_flag=True, help="Record while the command runs, or until Ctrl-C.")
@click.option(
    "--max-size", "max_mib", type=click.IntRange(min=1), default=1024, show_default=True, metavar="MIB",
    help="Stop recording above this size.",
)  # fmt: skip
@click.option(
    "--nsys",
    is_flag=True,
    help="Run the command under nsys; without a command: context switches and GPU metrics of the node.",
)
@click.option(
    "--graphs", type=Choice(["node", "graph"]), default="node", help="Trace kernels inside CUDA graphs, or not."
)
@click.option(
    "--fork-tracing", is_flag=True, help="Trace between fork and exec; NVIDIA warns that it may crash the command."
)
@click.option("--pause-dcgm", is_flag=True, help="Pause DCGM's use of the counters, so that nsys can read them.")
@click.option("--no-gpu-ok", is_flag=True, help="Without a GPU, run the command and record nothing.")
@click.option("--manifest", metavar="NODE", help="Only print a Kubernetes pod that records this node.")
@click.option("--image", default="IMAGE", metavar="IMAGE", help="With --manifest: an image with pyanalyze.")
@click.argument("run", nargs=-1, type=click.UNPROCESSED, metavar="[-- CMD ...]")
def command(
    folder: Path | None,
    rate_hz: float,
    duration_s: float,
    *,
    until_end: bool,
    max_mib: int,
    nsys: bool,
    graphs: Literal["node", "graph"],
    fork_tracing: bool,
    pause_dcgm: bool,
    no_gpu_ok: bool,
    manifest: str | None,
    image: str,
    run: tuple[str, ...],
) -> int:
    """Run CMD and sample NVML meanwhile; exit with the status of CMD. Without CMD, sample what runs.

    What it writes is a capture: pyanalyze FOLDER.
    """
    if manifest is not None:
        from pyanalyze.record.manifest import pod_manifest

        out(pod_manifest(manifest, image, duration_s=duration_s, rate_hz=rate_hz, nsys=nsys))
        return 0
    from pyanalyze.record.sampler import record

    def say_lines(text: str) -> None:
        for line in text.split("\n"):
            say(line)

    try:
        done = record(
            run,
            folder,
            rate_hz=rate_hz,
            duration_s=None if until_end else duration_s,
            max_bytes=max_mib << 20,
            nsys=nsys,
            graphs=graphs,
            fork_tracing=fork_tracing,
            pause_dcgm=pause_dcgm,
            say=say_lines,
        )
    except GpuUnavailable as error:
        if not no_gpu_ok:
            raise GpuUnavailable(
                f"would record nothing: {error}. Nothing was started; --no-gpu-ok runs the command all the same"
            ) from error
        say(f"records nothing: {error}")
        return _run_alone(run)
    if done.mean_sample_ns is not None and done.period_share is not None and done.cpu_share is not None:
        say(
            f"{done.samples} samples at {rate_hz:g} Hz, {fmt.duration(done.mean_sample_ns)} each, "
            f"{100 * done.period_share:.1f}% of the period; {100 * done.cpu_share:.1f}% of a CPU core; "
            f"{done.late} rounds late, {done.lost} lines lost"
        )
    say(f"to analyse: pyanalyze {shell_word(str(done.folder))}")
    return done.exit_status


def _run_alone(run: tuple[str, ...]) -> int:
    """Run a command and return its status, as a shell has it."""
    import subprocess

    if not run:
        return 0
    status = subprocess.run(run, check=False).returncode  # noqa: S603  # what the user asked to run
    return status if status >= 0 else 128 - status
