"""Read the study file: which captures belong to which run, and how each run was meant to share the GPU."""

from __future__ import annotations

import datetime as dt
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pyanalyze.errors import UsageError
from pyanalyze.text.nearest import did_you_mean
from pyanalyze.text.numbers import MOST_PID
from pyanalyze.text.toml import read_toml
from pyanalyze.vocabulary import MODES

if TYPE_CHECKING:
    import os

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class _Closed(BaseModel):
    """A misspelt key that is skipped would be a figure that is missing."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Throughput(_Closed):
    """What a program said of its own speed; more is faster."""

    profiled: _Positive | None = None
    unprofiled: _Positive | None = None


class Author(_Closed):
    """Somebody to be cited."""

    family: str
    given: str = ""
    affiliation: str = ""
    orcid: str = ""


class LabelledRun(_Closed):
    """One run as it was meant."""

    captures: list[str] = Field(min_length=1)
    workload: str
    role: Literal["solo", "shared"]
    mode: str | None = None
    repeat: int = 1
    tenant: str | None = None
    tenants: dict[str, Annotated[int, Field(ge=0, le=MOST_PID)]] = {}
    throughput: dict[str, Throughput] = {}


class StudyFile(_Closed):
    """What `study.toml` holds."""

    title: str
    authors: list[Author] = []
    version: str = "1"
    date: str | None = None
    unit: str = "units/s"
    context: list[str] = []
    run: list[LabelledRun] = Field(min_length=1)


def read_study(path: str | os.PathLike[str]) -> StudyFile:
    r"""Read a study file.

    Parameters
    ----------
    path
        TOML; docs/fleet.md describes it.

    Returns
    -------
    StudyFile
        Checked: every run has captures, a role, and a mode that exists.

    Raises
    ------
    OSError
        It cannot be read.
    pyanalyze.errors.UsageError
        Not TOML, or a key that is missing, unknown or makes no sense; the message names it.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "study.toml"
    ...     _ = file.write_text('title = "T"\n[[run]]\ncaptures = "a.sqlite"\nworkload = "w"\nrole = "solo"')
    ...     read_study(file).run[0].captures
    ['a.sqlite']
    """
    file = Path(path)
    table = read_toml(file)
    for run in table.get("run", []) if isinstance(table.get("run"), list) else []:
        if isinstance(run, dict) and isinstance(run.get("captures"), str):
            run["captures"] = [run["captures"]]
    if "date" in table:
        day: dt.date | str = table["date"]
        try:
            table["date"] = dt.date.fromisoformat(str(day)[:10]).isoformat()
        except ValueError as error:
            raise UsageError(f"{file}: date: {day!s} is not a date; write it as 2026-11-21") from error
    try:
        study = StudyFile.model_validate(table)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part + 1 if isinstance(part, int) else part) for part in first["loc"])
        raise UsageError(f"{file}: {where}: {first['msg']}") from error
    for number, run in enumerate(study.run, start=1):
        if run.role == "shared" and run.mode is None:
            raise UsageError(f"{file}: run.{number}: a shared run needs its intended mode, such as mode = 'mps'")
        if run.mode is not None and not any(fnmatchcase(mode, run.mode) for mode in MODES):
            known = f"modes are {', '.join(MODES)}{did_you_mean(run.mode, MODES)}"
            raise UsageError(f"{file}: run.{number}: there is no mode {run.mode}; {known}")
    return study
