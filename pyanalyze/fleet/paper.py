"""What a paper needs of a study: a paragraph, a table, a citation."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyanalyze.core import _core
from pyanalyze.text import format as fmt
from pyanalyze.text.escape import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyanalyze.fleet.estimates import Estimate, Observation, Study
    from pyanalyze.fleet.study_file import StudyFile


def methods(study: StudyFile, done: Study) -> str:
    """How it was done, in a paragraph to paste.

    Parameters
    ----------
    study
        The file.
    done
        What came of it.
    """
    by_run = {row.run: row for row in done.observations}
    roles = Counter(row.role for row in by_run.values())
    wrong = [row for row in by_run.values() if row.contradicts]
    blind = [row for row in by_run.values() if row.contradicts is None]
    repeats = Counter(
        (row.workload, row.label, row.role, row.tenant if row.role == "solo" else "") for row in by_run.values()
    )
    least, most = (min(repeats.values()), max(repeats.values())) if repeats else (0, 0)
    times = f"{least}" if least == most else f"{least} to {most}"
    parts = [
        (
            f"We analysed {len(by_run)} runs ({roles['shared']} shared, {roles['solo']} solo; {times} "
            f"repeat{'' if most == 1 else 's'} of each configuration) of "
            f"{fmt.counted(len({r.workload for r in by_run.values()}), 'workload')}, recorded with Nsight Systems, "
            f"with pyanalyze {_core.__version__}."
        ),
        "The sharing mode was determined from each recording and compared with the label of the run: "
        + (
            f"{fmt.counted(len(wrong), 'run')} showed another mode ({_named(wrong)}) and were left out of all estimates"
            if wrong
            else "no run showed another mode than its label"
        )
        + (
            f"; the mode of {fmt.counted(len(blind), 'run')} could not be determined, and they were kept."
            if blind
            else "."
        ),
        (
            "Slowdowns are the solo speed over the shared speed, as geometric means over runs. Intervals are 95 % "
            "confidence intervals of Student's t (Welch) of the logarithms, with runs, not kernels, as the unit of "
            "replication. Configurations with a single run have no interval."
        ),
    ]
    measured = [row for row in done.observations if row.throughput_unprofiled is not None]
    costs = [one for one in done.estimates if one.measure == "profiler"]
    if measured:
        runs = fmt.counted(len({r.run for r in measured}), "run")
        text = f"Throughput ({study.unit}) was measured without the profiler in {runs}"
        if costs:
            low, high = min(one.value for one in costs), max(one.value for one in costs)
            span = f"{low:.3f}" if len(costs) == 1 else f"{low:.3f} to {high:.3f}"
            text += f"; without it throughput was {span} times that with it"
        parts.append(text + ".")
    else:
        parts.append("Throughput without the profiler was not measured, so the overhead of the profiler is not known.")
    return " ".join(parts)


def _named(rows: Sequence[Observation]) -> str:
    said = [f"`{visible(row.run, 80)}`: {row.label or 'solo'} labelled, {row.observed} observed" for row in rows[:5]]
    return "; ".join(said) + (f"; and {len(rows) - 5} more" if len(rows) > 5 else "")


_TITLES = {
    "unprofiled": "unprofiled throughput",
    "profiled": "profiled throughput",
    "launches": "launch rate",
    "elapsed": "elapsed",
    "latency": "latency",
    "resident": "resident",
}


def latex_table(study: StudyFile, done: Study) -> str:
    """The estimates as a LaTeX table (package booktabs).

    Parameters
    ----------
    study, done
        As for :func:`methods`.
    """
    shown = [measure for measure in _TITLES if any(one.measure == measure for one in done.estimates)]
    profiler = any(one.measure == "profiler" for one in done.estimates)
    by_place: dict[tuple[str, str, str], dict[str, Estimate]] = {}
    for one in done.estimates:
        by_place.setdefault((one.workload, one.mode, one.tenant), {})[one.measure] = one
    heads = ["Workload", "Mode", "Tenant", "Runs", *(f"by {_TITLES[m]}" for m in shown)]
    heads += ["Profiler"] if profiler else []
    lines = [
        "% Needs \\usepackage{booktabs}. Slowdowns: solo speed over shared speed, 95 % confidence intervals over runs.",
        f"\\begin{{tabular}}{{lllr{'r' * (len(heads) - 4)}}}",
        "\\toprule",
        " & ".join(latex(head) for head in heads) + " \\\\",
        "\\midrule",
    ]
    for (workload, mode, tenant), found in sorted(by_place.items()):
        runs = max(one.runs for one in found.values())
        cells = [latex(visible(workload, 60)), latex(mode), latex(visible(tenant, 60)), str(runs)]
        cells += [_cell(found.get(measure)) for measure in [*shown, *(["profiler"] if profiler else [])]]
        lines.append(" & ".join(cells) + " \\\\")
    wrong = done.contradicting
    lines += ["\\bottomrule", "\\end{tabular}"]
    if wrong:
        lines.append(f"% Left out, observed mode differs from the label: {', '.join(one.run for one in wrong)}")
    return "\n".join(lines) + "\n"


def _cell(one: Estimate | None) -> str:
    if one is None:
        return "--"
    if one.low is None or one.high is None:
        return f"{one.value:.2f}"
    return f"{one.value:.2f} [{one.low:.2f}, {one.high:.2f}]"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def latex(text: str) -> str:
    r"""Text for LaTeX: names come from foreign processes, and may not become commands.

    Examples
    --------
    >>> latex(r"50 % of \input{x}")
    '50 \\% of \\textbackslash{}input\\{x\\}'
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def citation(study: StudyFile) -> str:
    """`CITATION.cff` (version 1.2.0) of the study's data, with the software that made it.

    Parameters
    ----------
    study
        The file; without authors the entity is the study's title.
    """
    import yaml

    authors = [
        {
            key: value
            for key, value in (
                ("family-names", one.family),
                ("given-names", one.given),
                ("affiliation", one.affiliation),
                ("orcid", _orcid(one.orcid)),
            )
            if value
        }
        for one in study.authors
    ]
    said: dict[str, Any] = {
        "cff-version": "1.2.0",
        "message": "If you use these results, please cite them as below.",
        "type": "dataset",
        "title": study.title,
        "authors": authors or [{"name": f"The authors of {study.title}"}],
        "version": study.version,
    }
    if study.date is not None:
        said["date-released"] = study.date
    software = {"type": "software", "title": "pyanalyze", "version": _core.__version__}
    said["references"] = [{**software, "authors": [{"name": "The pyanalyze developers"}]}]
    text: str = yaml.safe_dump(said, sort_keys=False, allow_unicode=True)
    return text


def _orcid(text: str) -> str:
    return f"https://orcid.org/{text}" if text and not text.startswith("https://") else text
