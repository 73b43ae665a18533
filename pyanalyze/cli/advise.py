"""`pyanalyze advise`: what to change, with bounds, and how to undo it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli._shared import (
    Number,
    answer,
    by_option,
    capture_options,
    emit,
    open_session,
    output_options,
    refuse_existing,
    tenants_of,
)
from pyanalyze.vocabulary import REQUIREMENTS

if TYPE_CHECKING:
    from pathlib import Path

SECTIONS = ("advice",)


class Requirements(click.ParamType[tuple[str, ...]]):
    """Comma-separated properties of sharing modes."""

    name = "PROPERTY,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        """Split and check."""
        if isinstance(value, tuple):
            return value
        wanted = tuple(part.strip() for part in str(value).split(",") if part.strip())
        unknown = [part for part in wanted if part not in REQUIREMENTS]
        if unknown:
            self.fail(f"{', '.join(unknown)}: not among {', '.join(REQUIREMENTS)}", param, ctx)
        return wanted


@click.command("advise")
@capture_options
@by_option
@click.option(
    "--require", type=Requirements(), default=(), help=f"What the mode must guarantee: {', '.join(REQUIREMENTS)}."
)
@click.option("--latency", "latency_ms", type=Number(1e-6, 1e12), help="Longest wait for a time slice, ms.")
@click.option(
    "--kubernetes/--no-kubernetes", default=None, help="Add device-plugin settings (default: where pods are known)."
)
@output_options(("table", "json"))
def command(
    require: tuple[Any, ...],
    latency_ms: float | None,
    fmt: str,
    output: Path | None,
    *,
    kubernetes: bool | None,
    force: bool,
    **options: Any,
) -> None:
    """Advise what to change: commands, expected gain, risk and undo."""
    refuse_existing(output, force=force)
    session = open_session(**options)
    latency_ns = None if latency_ms is None else round(latency_ms * 1e6)
    advice = session.advise(require=require, latency_ns=latency_ns, kubernetes=kubernetes)
    emit(answer(session, "advise", SECTIONS, fmt, advice), output, force=force, tenants=tenants_of(session, fmt))
