"""One answer for each of many captures, as a frame: for a notebook, without a folder of results."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from pyanalyze.session import load
from pyanalyze.vocabulary import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyanalyze.fleet.estimates import Study
    from pyanalyze.results.interference import Estimate
    from pyanalyze.results.report import Device

    PathLike = str | os.PathLike[str]

__all__ = ["classify", "interference", "study"]

_MODES = {
    "capture": pl.String, "device_id": pl.UInt32, "device": pl.String, "mode": pl.String, "confidence": pl.Float64,
    "basis": pl.String, "condition": pl.String, "configured": pl.String, "agrees": pl.Boolean, "error": pl.String,
}  # fmt: skip
_SLOWDOWNS = {
    "capture": pl.String, "device_id": pl.UInt32, "mode": pl.String, "tenant_id": pl.UInt32, "tenant": pl.String,
    "measure": pl.String, "slowdown": pl.Float64, "low": pl.Float64, "high": pl.Float64, "n": pl.UInt64,
    "basis": pl.String, "sharing_is_the_cause": pl.String, "error": pl.String,
}  # fmt: skip


def classify(captures: Iterable[PathLike], **options: Any) -> pl.DataFrame:
    """Name the sharing mode of every GPU in many captures, each capture by itself.

    Parameters
    ----------
    captures
        Paths, each as :func:`pyanalyze.load` takes it.
    options
        Further arguments of :func:`pyanalyze.load`, the same for all.

    Returns
    -------
    polars.DataFrame
        One row for each capture and GPU: ``capture, device_id, device, mode, confidence, basis, condition, configured,
        agrees``. A capture that cannot be read has one row with ``error``.

    Examples
    --------
    >>> import pyanalyze
    >>> pyanalyze.classify([capture])["mode"].to_list()
    ['time-slicing']
    """
    rows = [
        {"capture": path, **found}
        for path, devices in _reports(captures, frozenset(), options)
        for found in ([{"error": devices}] if isinstance(devices, str) else map(_mode, devices))
    ]
    return pl.DataFrame(rows, schema=_MODES)


def interference(captures: Iterable[PathLike], **options: Any) -> pl.DataFrame:
    """Measure the slowdown of every tenant in many captures, each capture by itself.

    Parameters
    ----------
    captures
        Paths, each as :func:`pyanalyze.load` takes it.
    options
        Further arguments of :func:`pyanalyze.load`, the same for all, such as ``baselines``.

    Returns
    -------
    polars.DataFrame
        One row for each capture, tenant and measure (``elapsed``, ``latency``, ``resident``): ``slowdown`` (shared over
        solo) with its 95 % interval ``low`` and ``high``, ``n`` and ``basis``, and whether sharing is the cause. A
        capture that cannot be read has one row with ``error``.

    Examples
    --------
    >>> import pyanalyze
    >>> found = pyanalyze.interference([capture])
    >>> found.filter(tenant="app_b", measure="latency")["slowdown"].round(2).to_list()
    [3.0]
    """
    rows = [
        {"capture": path, **found}
        for path, devices in _reports(captures, frozenset({Part.INTERFERENCE}), options)
        for found in ([{"error": devices}] if isinstance(devices, str) else _slowdowns(devices))
    ]
    return pl.DataFrame(rows, schema=_SLOWDOWNS)


def study(file: PathLike, output: PathLike, **options: Any) -> Study:
    r"""Analyse the runs of a labelled experiment, as ``pyanalyze study`` does.

    Parameters
    ----------
    file
        The study, as TOML: :func:`pyanalyze.fleet.study_file.read_study`.
    output
        Folder to write.
    options
        Arguments of :func:`pyanalyze.fleet.study.conduct`.

    Returns
    -------
    Study
        Runs, estimates with intervals over runs, and runs whose observed mode contradicts their label.

    Examples
    --------
    >>> import json, tempfile, pyanalyze
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "study.toml"
    ...     run = f'captures = {json.dumps(str(capture))}\nworkload = "w"\nrole = "shared"\nmode = "mps"'
    ...     _ = file.write_text(f'title = "T"\n[[run]]\n{run}')
    ...     found = pyanalyze.study(file, Path(folder) / "out", workers=1)
    >>> [one.observed for one in found.contradicting]
    ['time-slicing']
    """
    from pyanalyze.fleet.study import conduct

    return conduct(Path(file), Path(output), **options)


def _reports(
    captures: Iterable[PathLike], parts: frozenset[Part], options: dict[str, Any]
) -> Iterator[tuple[str, Sequence[Device] | str]]:
    """The devices of each capture, or why it cannot be read."""
    from pyanalyze.errors import PyanalyzeError

    paths = [captures] if isinstance(captures, str | os.PathLike) else captures
    for path in paths:
        try:
            yield os.fspath(path), load(path, **options).report(parts=parts).devices
        except (OSError, PyanalyzeError) as error:
            yield os.fspath(path), str(error)


def _mode(device: Device) -> dict[str, Any]:
    sharing = device.sharing
    return {
        "device_id": device.device_id,
        "device": device.name,
        "mode": str(sharing.mode),
        "confidence": sharing.confidence,
        "basis": sharing.basis,
        "condition": None if sharing.condition is None else str(sharing.condition),
        "configured": None if sharing.configured is None else str(sharing.configured),
        "agrees": sharing.agrees,
    }


def _slowdowns(devices: Sequence[Device]) -> Iterator[dict[str, Any]]:
    for device in devices:
        cause = device.sharing_is_the_cause
        for tenant in device.tenants:
            kinds: tuple[tuple[str, Estimate | None], ...] = (
                ("elapsed", tenant.slowdown.elapsed),
                ("latency", tenant.slowdown.latency),
                ("resident", tenant.slowdown.resident),
            )
            for measure, found in kinds:
                yield {
                    "device_id": device.device_id,
                    "mode": str(device.sharing.mode),
                    "tenant_id": tenant.tenant_id,
                    "tenant": tenant.name,
                    "measure": measure,
                    "slowdown": None if found is None else found.value,
                    "low": None if found is None else found.low,
                    "high": None if found is None else found.high,
                    "n": None if found is None else found.n,
                    "basis": None if found is None else found.basis,
                    "sharing_is_the_cause": None if cause is None else cause.answer,
                }
