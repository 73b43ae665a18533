"""`pyanalyze advise`: what to change, with bounds, and how to undo it."""

from __future__ import annotations

import itertools
import json
import pathlib
from typing import TYPE_CHECKING, Any

import click

from pyanalyze.cli._shared import (
    Number,
    answer,
    baseline_options,
    by_option,
    capture_options,
    csv_of,
    emit,
    open_session,
    output_options,
    refuse_existing,
    tenants_of,
)
from pyanalyze.errors import UsageError
from pyanalyze.text.numbers import bounded_float, bounded_int
from pyanalyze.vocabulary import MOST_COPIES, REQUIREMENTS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyanalyze.results.replicas import Objective, ReplicaAdvice

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


class Replicas(click.ParamType["tuple[int, int] | dict[str, tuple[int, int]]"]):
    """`N`, `1..8`, or one of them for each tenant: `web=1..4,train=1`."""

    name = "N|A..B|NAME=A..B,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Split and check."""
        if not isinstance(value, str):
            return value
        if "=" not in value:
            return self._range(value, param, ctx)
        found = {}
        for part in value.split(","):
            # A name may hold an equals sign: the number stands behind the last one.
            name, _, numbers = part.rpartition("=")
            found[name.strip()] = self._range(numbers, param, ctx)
        return found

    def _range(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, int]:
        first, dots, last = text.strip().partition("..")
        low = bounded_int(first, 0, MOST_COPIES)
        high = bounded_int(last, 0, MOST_COPIES) if dots else low
        if low is None or high is None or low > high or high < 1:
            self.fail(f"{text[:40]!r} is not a number of copies from 1 to {MOST_COPIES}, such as 4 or 1..8", param, ctx)
        return low, high


class Slo(click.ParamType[float]):
    """`p99=50ms`: the 99th percentile of latency, with its unit; given in nanoseconds."""

    name = "p99=TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        if not isinstance(value, str):
            return float(value)
        what, _, time = value.partition("=")
        unit = next((u for u in _UNITS if time.endswith(u)), None)
        number = bounded_float(time.removesuffix(unit or ""), 1e-9, 1e12) if unit else None
        if what != "p99" or number is None or unit is None:
            self.fail(f"{value[:40]!r} is not a latency, such as p99=50ms (units: {', '.join(_UNITS)})", param, ctx)
        return number * _UNITS[unit]


#: Nanoseconds; a shorter unit that ends like a longer one comes last.
_UNITS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
#: Most combinations of counts that are compared.
MOST_COMBINATIONS = 64


def _combinations(replicas: tuple[int, int] | dict[str, tuple[int, int]]) -> list[int | dict[str, int]]:
    """Every number of copies, or of each tenant every one beside every other."""
    if isinstance(replicas, tuple):
        return list(range(max(1, replicas[0]), replicas[1] + 1))
    numbers = [range(low, high + 1) for low, high in replicas.values()]
    found: list[int | dict[str, int]] = [
        dict(zip(replicas, one, strict=True)) for one in itertools.product(*numbers) if sum(one)
    ]
    if len(found) > MOST_COMBINATIONS:
        raise UsageError(f"{len(found)} combinations of copies: ask for {MOST_COMBINATIONS} at most")
    return found


def _replicas(found: Sequence[ReplicaAdvice], fmt: str) -> str:
    if fmt == "json":
        return json.dumps([one.model_dump(mode="json") for one in found], indent=2)
    if fmt == "csv":
        return csv_of(rows(found))
    from pyanalyze.report.replicas import render_replicas

    return render_replicas(found, fmt)


_LISTS = ("profiles", "instances", "percentages")


def rows(found: Sequence[ReplicaAdvice]) -> list[dict[str, Any]]:
    """One row per device, configuration and tenant."""
    out = []
    for advice in found:
        for option in advice.options:
            whole = option.model_dump(mode="json", exclude={"tenants", "throughput", *_LISTS})
            whole |= {f"throughput_{key}": value for key, value in option.throughput.model_dump().items()}
            whole |= {name: " ".join(map(str, getattr(option, name))) for name in _LISTS}
            for tenant in option.tenants:
                row: dict[str, Any] = {"device_id": advice.device_id, **whole}
                row |= {"tenant_id": tenant.tenant_id, "tenant": tenant.name, "tenant_copies": tenant.copies}
                for key in ("slowdown", "p50_ns", "p99_ns"):
                    one = getattr(tenant, key)
                    parts = dict.fromkeys(("value", "low", "high")) if one is None else one.model_dump()
                    row |= {f"{key}_{part}": value for part, value in parts.items()}
                out.append(row)
    return out


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
@click.option("--replicas", type=Replicas(), help="Forecast so many copies: 1..8, or of each tenant: web=1..4,train=1.")
@click.option("--slo", "slo_ns", type=Slo(), help="With --replicas: latency that every copy must keep: p99=50ms.")
@click.option(
    "--ncu",
    type=click.Path(exists=True, dir_okay=False, path_type=pathlib.Path),
    help="With --replicas: output of `ncu --csv` of the same programs (details or raw page).",
)
@click.option(
    "--objective",
    type=click.Choice(("throughput", "latency", "fairness")),
    default="throughput",
    show_default=True,
    help="With --replicas: what the recommended configuration is best in.",
)
@baseline_options
@output_options(("table", "json", "csv", "md", "html"))
def command(
    require: tuple[Any, ...],
    latency_ms: float | None,
    replicas: tuple[int, int] | dict[str, tuple[int, int]] | None,
    slo_ns: float | None,
    ncu: Path | None,
    objective: Objective,
    fmt: str,
    output: Path | None,
    *,
    kubernetes: bool | None,
    force: bool,
    **options: Any,
) -> None:
    """Advise what to change: commands, expected gain, risk and undo."""
    refuse_existing(output, force=force)
    if replicas is None and (fmt in {"csv", "md", "html"} or slo_ns is not None or ncu is not None):
        raise UsageError("Output as csv, md or html, --slo and --ncu need --replicas, such as --replicas 1..8")
    session = open_session(**options)
    if replicas is not None:
        slo_ms = None if slo_ns is None else slo_ns / 1e6
        found = session.replicas(_combinations(replicas), objective=objective, slo_p99_ms=slo_ms, ncu=ncu)
        emit(_replicas(found, fmt), output, force=force)
        return
    latency_ns = None if latency_ms is None else round(latency_ms * 1e6)
    advice = session.advise(require=require, latency_ns=latency_ns, kubernetes=kubernetes)
    emit(answer(session, "advise", SECTIONS, fmt, advice), output, force=force, tenants=tenants_of(session, fmt))
