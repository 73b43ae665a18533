"""The one home of the contract of checks (``pyanalyze.check/1``): thresholds, and an outcome for each of them."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from html import escape
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree as ET

from pyanalyze.text.visible import json_text, printable, visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyanalyze.results.interference import SlowdownKind

__all__ = ["Checked", "Limits", "Outcome", "Status"]

Status = Literal["passed", "failed", "inconclusive"]


@dataclass(frozen=True)
class Limits:
    """Thresholds; None or empty: not asked for.

    Attributes
    ----------
    expect_mode
        Modes of which every GPU with activity must show one; `*` stands for anything (``mps*``).
    expect_agreement
        The GPU must have been shared as it was configured to be.
    max_slowdown
        Largest slowdown of a traced tenant, shared over alone: the larger of elapsed and latency.
    slowdown
        Look at one kind of slowdown only: ``elapsed``, ``latency`` or ``resident``.
    max_switch_overhead
        Largest total cost of context switches, saving and restoring included, as a fraction of the window.
    min_jain
        Least fairness (Jain's index of 1 / slowdown; 1 is fair).
    min_sm_active
        Least mean fraction of SMs with work; modelled.
    max_memory
        Largest peak of device memory, as a fraction of it.
    max_change
        Largest growth of the time per unit of work against another run, as a fraction; needs that run.
    no_data_loss
        No record may be known to be lost, or to be missing in the export.
    tenants
        Tenant name -> `max_slowdown` of that tenant; it must be there.

    Examples
    --------
    >>> Limits(expect_mode=("mps*",), max_slowdown=1.2).asked()
    ['expect_mode', 'max_slowdown']
    """

    expect_mode: tuple[str, ...] = ()
    expect_agreement: bool = False
    max_slowdown: float | None = None
    slowdown: SlowdownKind | None = None
    max_switch_overhead: float | None = None
    min_jain: float | None = None
    min_sm_active: float | None = None
    max_memory: float | None = None
    max_change: float | None = None
    no_data_loss: bool = False
    tenants: Mapping[str, float] = field(default_factory=dict)

    def asked(self) -> list[str]:
        """Names of the thresholds that are set."""
        # By identity: a threshold of 0 is one.
        given = ((f.name, getattr(self, f.name)) for f in fields(self) if f.name != "slowdown")
        return [n for n, v in given if not (v is None or v is False or (not isinstance(v, int | float) and not v))]


@dataclass(frozen=True)
class Outcome:
    """One threshold on one GPU or tenant.

    Attributes
    ----------
    gate
        Name of the threshold, as in :class:`Limits`.
    subject
        The GPU or tenant.
    status
        ``passed``, ``failed`` or ``inconclusive`` (not available, or the threshold lies inside what is known).
    detail
        What was found, in words, with its basis.
    value, low, high
        What was found and the ends of its interval or bounds; None: not known, or not bounded on that side.
    limit
        The threshold.
    how
        The command or change that would make it conclusive; empty: none is known.
    """

    gate: str
    subject: str
    status: Status
    detail: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    how: str = ""


@dataclass(frozen=True)
class Checked:
    """All outcomes of a check.

    Examples
    --------
    >>> import pyanalyze
    >>> checked = pyanalyze.load(capture).check(max_switch_overhead=0.06)
    >>> checked.status, checked.exit_code
    ('passed', 0)
    """

    outcomes: tuple[Outcome, ...]
    inconclusive: Literal["fail", "warn"] = "fail"

    @property
    def status(self) -> Status:
        """The worst outcome."""
        found = {outcome.status for outcome in self.outcomes}
        return "failed" if "failed" in found else "inconclusive" if "inconclusive" in found else "passed"

    @property
    def exit_code(self) -> int:
        """0 passed, 1 a threshold failed, 4 not available (0 with ``inconclusive="warn"``)."""
        if self.status == "failed":
            return 1
        return 4 if self.status == "inconclusive" and self.inconclusive == "fail" else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data: ``{"schema": "pyanalyze.check/1", "status", "exit_code", "outcomes": [...]}``.

        Examples
        --------
        >>> Checked((Outcome("min_jain", "GPU 0", "failed", "0.5"),)).to_dict()["exit_code"]
        1
        """
        return {
            "schema": "pyanalyze.check/1",
            "status": self.status,
            "exit_code": self.exit_code,
            "outcomes": [{f.name: getattr(outcome, f.name) for f in fields(outcome)} for outcome in self.outcomes],
        }

    def to_json(self) -> str:
        """The same as JSON text.

        Examples
        --------
        >>> Checked(()).to_json().splitlines()[2]
        '  "status": "passed",'
        """
        return json_text(self.to_dict()) + "\n"

    def to_junit(self) -> str:
        """JUnit XML: a test case for every outcome; what not available is an error (with ``warn``: skipped)."""
        found = [outcome.status for outcome in self.outcomes]
        blind = found.count("inconclusive")
        suite = ET.Element(
            "testsuite",
            name="pyanalyze check",
            tests=str(len(found)),
            failures=str(found.count("failed")),
            errors=str(blind if self.inconclusive == "fail" else 0),
            skipped=str(0 if self.inconclusive == "fail" else blind),
        )
        for outcome in self.outcomes:
            case = ET.SubElement(suite, "testcase", classname="pyanalyze", name=visible(_title(outcome), limit=None))
            # A line end is one of the text in XML; what XML cannot hold is written out.
            text = printable(_sentence(outcome))
            if outcome.status == "failed":
                ET.SubElement(case, "failure", type=outcome.gate, message=text).text = text
            elif outcome.status == "inconclusive" and self.inconclusive == "fail":
                ET.SubElement(case, "error", type="inconclusive", message=text).text = text
            elif outcome.status == "inconclusive":
                ET.SubElement(case, "skipped", message=text)
            else:
                ET.SubElement(case, "system-out").text = text
        suites = ET.Element("testsuites")
        suites.append(suite)
        ET.indent(suites)
        return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"

    def annotations(self) -> list[str]:
        """Lines that make GitHub Actions annotate the run; nothing for what passed.

        Examples
        --------
        >>> Checked((Outcome("min_jain", "GPU 0", "failed", "0.5"),)).annotations()
        ['::error title=min-jain (GPU 0)::0.5']
        """
        lines = []
        for outcome in self.outcomes:
            if outcome.status == "passed":
                continue
            hard = outcome.status == "failed" or self.inconclusive == "fail"
            title = _command(_title(outcome), more=",:")
            lines.append(f"::{'error' if hard else 'warning'} title={title}::{_command(_sentence(outcome))}")
        return lines

    def __str__(self) -> str:
        """One line for each outcome, the worst first."""
        order = {"failed": 0, "inconclusive": 1, "passed": 2}
        lines = [f"check: {self.status}"]
        for outcome in sorted(self.outcomes, key=lambda o: order[o.status]):
            lines.append(f"{outcome.status.upper():<13} {_title(outcome)}: {outcome.detail}")
            if outcome.status == "inconclusive" and outcome.how:
                lines.append(f"{'':<13} to know: {outcome.how}")
        return "\n".join(visible(line, limit=None) for line in lines)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td><b>{o.status}</b></td><td>{escape(_title(o))}</td><td>{escape(o.detail)}</td></tr>"
            for o in self.outcomes
        )
        return f"<p>Check: <b>{self.status}</b></p><table>{rows}</table>"


def _title(outcome: Outcome) -> str:
    return f"{outcome.gate.replace('_', '-')} ({outcome.subject})"


def _sentence(outcome: Outcome) -> str:
    return outcome.detail + (f". To know: {outcome.how}" if outcome.status == "inconclusive" and outcome.how else "")


def _command(text: str, more: str = "") -> str:
    """Escape text for a workflow command of GitHub: a line end or a colon would end it early."""
    for char in "%\r\n" + more:
        text = text.replace(char, f"%{ord(char):02X}")
    return text
