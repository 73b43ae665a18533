"""`pyanalyze classify`: the sharing mode of each GPU, with evidence."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pyanalyze.cli._shared import csv_of, verb

if TYPE_CHECKING:
    from pyanalyze.results.report import Device
    from pyanalyze.session import Session


@verb("classify", ("table", "json", "csv"))
def command(session: Session, fmt: str) -> str:
    """Name the sharing mode of every GPU, with evidence, alternatives and what is not available."""
    from pyanalyze.cli.schemas import SHOWN, part_of

    report = session.report(parts=SHOWN["classify"].parts)
    if fmt == "json":
        return json.dumps(part_of(report, "classify"), indent=2)
    if fmt == "csv":
        return csv_of([_row(device) for device in report.devices], COLUMNS)
    return "\n\n".join(_block(device) for device in report.devices) or "no activity on any GPU in the capture"


#: Columns of the CSV: of the device, and of how it is shared.
_OF_DEVICE = ("device_id", "uuid")
_OF_SHARING = ("mode", "confidence", "basis", "condition", "configured", "agrees")
COLUMNS = (*_OF_DEVICE, *_OF_SHARING)


def _row(device: Device) -> dict[str, object]:
    found = {name: getattr(device, name) for name in _OF_DEVICE}
    return {**found, **{name: getattr(device.sharing, name) for name in _OF_SHARING}}


def _block(device: Device) -> str:
    from pyanalyze.report.sentences.missing import missing_words
    from pyanalyze.report.sentences.mode import (
        agreement_text,
        likely_text,
        mode_clauses,
        weighed_evidence,
        weight_text,
        weights_text,
    )
    from pyanalyze.text import format as fmt
    from pyanalyze.text.escape import visible
    from pyanalyze.vocabulary import Mode

    sharing = device.sharing
    name = visible(device.name or "name not recorded")
    known = fmt.certainty(sharing.basis, sharing.stated_confidence)
    if sharing.mode == Mode.UNDETERMINED:
        known = f"({likely_text(sharing)})"
    out = [
        f"GPU {device.device_id} ({name}): {sharing.mode} {known}{mode_clauses(device)}",
        f"  {visible(sharing.summary, limit=None)}",
    ]
    if sharing.configured is not None:
        out.append(f"  configured: {agreement_text(device)}")
    if sharing.evidence:
        out.append(f"  {weights_text(sharing)}")
    for evidence, weight in weighed_evidence(sharing):
        speaks = f"for {', '.join(evidence.supports[:3])}" if evidence.supports else ""
        against = f"against {', '.join(evidence.against[:3])}" if evidence.against else ""
        out.append(f"  - {visible(evidence.detail, limit=None)}")
        both = "; ".join(filter(None, (speaks, against)))
        n = f"n={evidence.n}{f' {evidence.n_of}' if evidence.n_of and evidence.n != 1 else ''}"
        shown = weight_text(sharing, evidence, weight)
        out.append(f"      [{evidence.basis}, {n}, weight {shown}] {both}".rstrip())
    for told in sharing.details:
        out.append(f"  {told.topic}: {visible(told.detail, limit=None)} [{told.basis}]")
    for other in sharing.alternatives:
        out.append(f"  alternative {other.mode} ({other.confidence:.2f}): {visible(other.why_not, limit=None)}")
    for missing in sharing.missing:
        out.append(f"  not available: {missing_words(missing.what)}: {visible(missing.why, limit=None)}")
        if missing.how:
            out.append(f"      to capture it: {visible(missing.how, limit=None)}")
    return "\n".join(out)
