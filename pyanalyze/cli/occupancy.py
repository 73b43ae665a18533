"""`pyanalyze occupancy`: how full the SMs were, per tenant, kernel and SM (modelled), beside counters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import answer, csv_of, verb

if TYPE_CHECKING:
    from pyanalyze.session import Session

SECTIONS = ("occupancy", "tenants")
KEYS = {"device_id", "name", "occupancy", "tenants", "uuid", "window"}


@verb("occupancy", ("table", "json", "csv"))
def command(session: Session, fmt: str) -> str:
    """Say how full the SMs were: modelled, checked against counters where the capture has them.

    csv: the tenants over time; --detail adds every SM over time to json.
    """
    if fmt == "csv":
        import polars as pl

        table = session.sm_occupancy.with_columns(pl.col("basis").cast(pl.String))
        return csv_of(table.to_dicts())
    return answer(session, SECTIONS, KEYS, fmt)
