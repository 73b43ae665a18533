"""A labelled experiment: what was meant, what was observed, and what follows over runs rather than kernels.

A study file says of every run which captures it left, what was run, how it was meant to share the GPU, and how fast it
went by its own account with and without the profiler. Runs that show another mode than they were labelled with come
first everywhere and are left out of every estimate.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import asdict, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyanalyze.errors import UsageError
from pyanalyze.fleet import outputs
from pyanalyze.fleet.estimates import Estimate, Observation, Study, empty_cells, estimates
from pyanalyze.fleet.executors import executor_for
from pyanalyze.fleet.failures import Failed
from pyanalyze.fleet.paper import citation, latex, latex_table, methods
from pyanalyze.fleet.plan import CaptureProbe, Group, find, nothing_at, without_duplicates
from pyanalyze.fleet.run import ResultCache, digests
from pyanalyze.fleet.study_file import LabelledRun, StudyFile, Throughput, read_study
from pyanalyze.fleet.work import Options
from pyanalyze.vocabulary import TRAITS, Mode

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from pyanalyze.inputs.capture import Progress


def conduct(
    study_file: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    scheduler: str | None = None,
    workers: int | None = None,
    threads: int | None = None,
    memory: str | int | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Study:
    r"""Analyse every run of a study and estimate over runs.

    Parameters
    ----------
    study_file
        See :func:`pyanalyze.fleet.study_file.read_study`; paths in it are relative to its folder.
    output
        Folder to write to.
    scheduler, workers, threads, memory, force, progress
        As of :func:`pyanalyze.fleet.analyse`.

    Returns
    -------
    Study
        Also written as files.

    Raises
    ------
    pyanalyze.errors.UsageError
        The file makes no sense.
    pyanalyze.errors.OutputExists
        `output` holds things that we did not write, and `force` is false.
    OSError
        Something cannot be read or written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "study.toml"
    ...     text = f'title = "T"\n[[run]]\ncaptures = "{capture}"\nworkload = "w"\nrole = "shared"\nmode = "mps"'
    ...     _ = file.write_text(text)
    ...     done = conduct(file, Path(folder) / "out", workers=1)
    >>> [(one.label, one.observed) for one in done.contradicting]
    [('mps', 'time-slicing')]
    """
    file = Path(study_file)
    study = read_study(file)
    executor = executor_for(scheduler, workers, threads=threads, memory=memory)
    failures: list[Failed] = []
    cache = ResultCache(Path(output), executor, force=force, progress=progress)
    with executor:
        runs = _runs(cache, study, file.parent, failures)
        options = _options(runs, digests([file.parent / name for name in study.context]))
        groups = [group for group, _ in runs.values()]
        labels = {name: run for name, (_, run) in runs.items()}

        def keep(group: Group, report: dict[str, Any], _: list[CaptureProbe]) -> list[Observation]:
            return observations(group.name, labels[group.name], report)

        found = cache.reports(groups, lambda group: options[group.name], keep, failures)
    rows = [row for name in runs for row in found.get(name, ())]
    rows.sort(key=lambda row: row.contradicts is not True)
    failures.sort(key=lambda one: (one.path, one.message))
    done = Study(cache.output, tuple(rows), tuple(estimates(rows)), tuple(failures), tuple(empty_cells(rows)))
    _publish(cache, study, done)
    return done


def _runs(
    cache: ResultCache, study: StudyFile, folder: Path, failures: list[Failed]
) -> dict[str, tuple[Group, LabelledRun]]:
    """The captures of every run; several of one run are one job, whatever they say of themselves."""
    paths: list[list[str]] = []
    for run in study.run:
        found, without = find([folder / pattern for pattern in run.captures])
        paths.append([str(path) for path in found])
        failures += [Failed(name, "FileNotFoundError", nothing_at(name)) for name in without]
    twice = [path for path, n in Counter(path for here in paths for path in here).items() if n > 1]
    if twice:
        raise UsageError(f"{twice[0]} is listed in two runs; each capture belongs to one")
    probes = {one.path: one for one in cache.probes(sorted({path for here in paths for path in here}), failures)}
    _refuse_one_recording_as_two(paths, list(probes.values()))
    runs: dict[str, tuple[Group, LabelledRun]] = {}
    for run, here in zip(study.run, paths, strict=True):
        kept, _ = without_duplicates([probes[path] for path in here if path in probes])
        if not kept:
            continue
        ordered = tuple(sorted(kept, key=lambda one: (one.utc_origin_ns or 0, one.sha256)))
        parts = [run.workload, run.mode if run.role == "shared" else f"solo-{run.tenant or ''}", str(run.repeat)]
        plain = re.sub(r"[^A-Za-z0-9._+-]+", "_", "-".join(str(part).strip("-") for part in parts)).strip("._")[:80]
        name, number = plain, 2
        while name.casefold() in {other.casefold() for other in runs}:
            name, number = f"{plain}-{number}", number + 1
        runs[name] = (Group(name, ordered, ()), run)
    return runs


def _refuse_one_recording_as_two(paths: Sequence[Sequence[str]], probes: Sequence[CaptureProbe]) -> None:
    """One recording is one run, however often it was exported: twice the same is no repeat."""
    run_of = {path: number for number, here in enumerate(paths) for path in here}
    _, duplicates = without_duplicates(probes)
    for one in duplicates:
        if run_of[one.path] != run_of[one.of]:
            raise UsageError(
                f"{one.path} and {one.of} are exports of one recording ({one.why}), but stand in two runs; "
                "record every run by itself, or list both files in one run"
            )


def _options(runs: Mapping[str, tuple[Group, LabelledRun]], context: tuple[tuple[str, str], ...]) -> dict[str, Options]:
    """A shared run is compared with the baselines of its workload: those of the same repeat, else the first."""
    options = {}
    for name, (_, run) in runs.items():
        solo: dict[str, tuple[bool, tuple[str, str, str]]] = {}
        for group, other in runs.values() if run.role == "shared" else ():
            if other.role != "solo" or other.workload != run.workload or other.mode not in (None, run.mode):
                continue
            who, same = other.tenant or "", other.repeat == run.repeat
            if who not in solo or (same and not solo[who][0]):
                one = group.captures[0]
                place = str(Path(one.path).absolute())
                # A name that was given holds; else whose recording it is shows in its kernels.
                solo[who] = (same, (who if who in run.tenants else "", place, one.sha256))
        options[name] = Options(
            context=context,
            baselines=tuple(alone for _, alone in sorted(solo.values())),
            tenants=tuple(sorted(run.tenants.items())),
        )
    return options


def observations(name: str, run: LabelledRun, report: Mapping[str, Any]) -> list[Observation]:
    """The rows of one run.

    Parameters
    ----------
    name
        Of the run.
    run
        What was meant.
    report
        Its report as plain data.
    """
    devices = sorted(report["devices"], key=lambda one: (-len(one["tenants"]), one["device_id"]))
    device = devices[0] if devices else None
    mode = None if device is None else device["sharing"]["mode"]
    blank: dict[str, Any] = dict.fromkeys(field.name for field in fields(Observation))
    every = {
        **blank,
        "run": name,
        "workload": run.workload,
        "label": run.mode,
        "role": run.role,
        "repeat": run.repeat,
        "observed": mode,
        "confidence": None if device is None else device["sharing"]["confidence"],
        "basis": None if device is None else device["sharing"]["basis"],
        "contradicts": _contradicts(run, mode),
    }
    rows = []
    traced = [t for t in (device["tenants"] if device is not None else []) if t["busy_ns"] is not None]
    said = dict(run.throughput)
    often = Counter(tenant["name"] for tenant in traced)
    for tenant in traced:
        # Alone, the only tenant is the one that was meant, whatever its process was called.
        who = run.tenant if run.role == "solo" and run.tenant and len(traced) == 1 else tenant["name"]
        if often[who] > 1:
            # Two of one name are not two runs of one tenant.
            who = f"{who} (pid {tenant['pid']})"
        own = said.pop(who, Throughput())
        launches, elapsed = _launched(tenant["work"])
        # Against its solo recording only: what is inferred from the shared run alone is no measurement of a study.
        slowdown = {
            kind: one
            for kind in ("elapsed", "latency", "resident")
            if (one := tenant["slowdown"][kind]) is not None and one["basis"] == "observed"
        }
        rows.append(
            {
                **every,
                "tenant": who,
                "launches": launches,
                "elapsed_ns": elapsed,
                "launches_per_s": None if not launches or not elapsed else launches * 1e9 / elapsed,
                "work": _work(tenant["work"]),
                **{f"slowdown_{kind}": one["value"] for kind, one in slowdown.items()},
                "throughput_profiled": own.profiled,
                "throughput_unprofiled": own.unprofiled,
            }
        )
    # Figures of somebody whom the capture does not name are not lost.
    for who, own in said.items():
        figures = {"throughput_profiled": own.profiled, "throughput_unprofiled": own.unprofiled}
        rows.append({**every, "tenant": who, **figures})
    if not rows:
        rows.append({**every, "tenant": run.tenant or ""})
    return [Observation(**row) for row in rows]


def _contradicts(run: LabelledRun, mode: str | None) -> bool | None:
    if mode is None or mode == Mode.UNDETERMINED:
        return None
    if run.mode is not None:
        return not fnmatchcase(mode, run.mode)
    # A solo run that names no mode.
    return not TRAITS[Mode(mode)].solo


def _work(work: Mapping[str, Any] | None) -> str | None:
    """A digest of the configurations that make up a hundredth of the launches or more: rarer ones come and go."""
    if work is None or not work["configurations"]:
        return None
    least = work["launches"] / 100
    keys = sorted(one["key"] for one in work["configurations"] if one["launches"] >= least)
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()[:12]


def _launched(work: Mapping[str, Any] | None) -> tuple[int | None, int | None]:
    """Launches, and the time from the first to the end of the last, without pauses before the work began."""
    if work is None or not work["batches"]:
        return None, None
    parts = ("idle_ns", "idle_not_resident_ns", "idle_other_resident_ns", "busy_ns")
    return work["launches"], sum(batch[part] for batch in work["batches"] for part in parts)


# Files ---------------------------------------------------------------------------------------------------------------

_KINDS = {"str": "String", "int": "Int64", "float": "Float64", "bool": "Boolean"}


def _table(kind: type, rows: Sequence[Any]) -> tuple[dict[str, str], list[tuple[Any, ...]]]:
    columns = {field.name: _KINDS[str(field.type).partition(" ")[0]] for field in fields(kind)}
    return columns, [tuple(asdict(row).values()) for row in rows]


def _publish(cache: ResultCache, study: StudyFile, done: Study) -> None:
    for name, kind, rows in (("runs", Observation, done.observations), ("estimates", Estimate, done.estimates)):
        columns, cells = _table(kind, rows)
        cache.write(f"{name}.csv", outputs.csv_text(list(columns), cells))
        cache.write(f"{name}.parquet", outputs.parquet(outputs.frame(columns, cells)))
    paragraph = methods(study, done)
    cache.write("table.tex", latex_table(study, done))
    cache.write("methods.md", paragraph + "\n")
    cache.write("methods.tex", latex(paragraph).replace("`", "") + "\n")
    cache.write("CITATION.cff", citation(study))
    cache.finish()
