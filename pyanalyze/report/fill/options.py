"""The sharing configurations that were compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyanalyze.analysis.sharing.missing import LOST_KERNELS, UNFINISHED_KERNELS
from pyanalyze.nsys_tool import record_all
from pyanalyze.report.fill.how import client_of, how_device, how_kernels, serving_tenants
from pyanalyze.results.advice import MigProfile, MpsPercentage, ReplayedTenant, SharingOption
from pyanalyze.vocabulary import TRAITS, Mode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from pyanalyze.analysis.advice import DeviceAdvice
    from pyanalyze.analysis.advice.options import Option, Options
    from pyanalyze.analysis.sharing import Verdict
    from pyanalyze.results.model import Missing
    from pyanalyze.tables.tableset import TableSet


def replay_check_of(compared: Options) -> list[ReplayedTenant]:
    """By how much the replay of the recorded configuration misses each tenant."""
    return [
        ReplayedTenant(tenant_id=one.tenant_id, recorded_ns=one.recorded_ns, error=one.relative)
        for one in compared.replay_errors
    ]


def options_of(advice: DeviceAdvice) -> list[SharingOption] | None:
    """The sharing configurations that were compared; None: none was."""
    compared = advice.options
    if not compared.options:
        return None
    lacks = {option.name: missing for option, missing in compared.refused}
    missed = compared.missed_p99
    return [
        SharingOption(
            name=option.name,
            mode=option.mode,
            antt=option.antt,
            stp=option.stp,
            current=option is compared.current,
            recommended=option is compared.recommended,
            lacks=list(lacks.get(option.name, ())),
            strategy=None if option.provision is None else option.provision.strategy,
            percentages=[
                MpsPercentage(tenant_id=tenant, percentage=value)
                for tenant, value in _percentages(option, compared).items()
            ],
            profiles=[
                MigProfile(tenant_id=one.tenant_id, profile=option.placement.placed[one.name].profile.name)
                for one in option.forecasts
                if option.placement is not None
            ],
            tenants=[
                one.model_copy(update={"p99_ns": None}) if one.tenant_id in missed else one for one in option.forecasts
            ],
        )
        for option in compared.options
    ]


def _percentages(option: Option, compared: Options) -> Mapping[int, int]:
    """MPS caps by tenant: of a configuration that was made up, or those that were recorded."""
    if option.provision is not None:
        return option.provision.percentages
    if option is not compared.current or not TRAITS[option.mode].capped:
        return {}
    return {one.tenant_id: round(one.percentage) for one in compared.clients if one.percentage is not None}


def how_options(
    tables: TableSet, verdict: Verdict, usage: pl.DataFrame, device: Mapping[str, Any], missing: Sequence[Missing]
) -> str:
    """What would make a forecast possible; empty where nothing is known to."""
    import polars as pl

    if verdict.mode == Mode.UNDETERMINED and tables.paths:
        # Where nobody is known, what captures switches alone gives no forecast.
        kernels = (
            []
            if usage.height
            else [gap.how for gap in missing if gap.what in ("kernels", LOST_KERNELS, UNFINISHED_KERNELS)]
        )
        return next(filter(None, [*kernels, *(gap.how for gap in missing)]), "")
    untraced = usage.filter(
        ~pl.col("traced") & (pl.col("resident_ns") > 0) & ~pl.col("tenant_id").is_in(serving_tenants(usage))
    )
    # Where a capture lost its kernels, tracing them again is no answer.
    lost = any(gap.what in (LOST_KERNELS, UNFINISHED_KERNELS) for gap in verdict.missing)
    if untraced.height and not lost:
        return record_all(client=client_of(tables, verdict.device_id, verdict.mode))
    if not (lost or usage["traced"].any()):
        return how_kernels(verdict)
    # No forecast does without the SM count, of copies either.
    if device["sm_count"] is None and usage["traced"].any() and (how := how_device(tables, device)):
        return how
    if not (lost or usage.select((pl.col("kernels") + pl.col("graph_launches")).sum()).item()):
        # A forecast needs kernels.
        return how_kernels(verdict)
    if tables.paths and usage.filter("traced").height == 1 and not lost:
        return "pyanalyze advise CAPTURE --replicas 1..4   # forecasts copies of the one that was recorded"
    return "" if tables.paths else how_kernels(verdict)
