"""`pyanalyze streams`: whether the streams of one process overlap, why not, and who slows whom."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyanalyze.cli._shared import answer, csv_of, verb

if TYPE_CHECKING:
    from typing import Any

    from pyanalyze.session import Session

SECTIONS = ("copies", "streams")
#: What runs in streams.
_WORK = ("kernels", "memops", "graph_launches")


@verb("streams", ("table", "json", "csv"), late_tables=True, by=False)
def command(session: Session, fmt: str) -> str:
    """Say whether the streams of each process overlapped, why not, and which kernels slowed each other."""
    if fmt == "csv":
        return csv_of(rows(session), COLUMNS)
    text = answer(session, "streams", SECTIONS, fmt)
    return text if fmt == "json" or session.analysis.streams else f"{text}{_none(session)}\n"


def _none(session: Session) -> str:
    """Why there are no streams to compare: none were used, or what was used is not known."""
    from pyanalyze.nsys_tool import recording

    if not any(session.frame(name).height for name in _WORK):
        return f"Streams are not known: no CUDA work was traced. To capture it: {recording(switches=False)}"
    whose = "process" if session.tenants["traced"].all() else "traced process"
    said = f"No {whose} used several streams."
    if session.frame("graph_launches").height:
        command = recording("--cuda-graph-trace=node", switches=False)
        said = f"{said} Graphs were traced whole: what overlaps inside one is not known. To capture it: {command}"
    return said


#: Columns of the CSV: what stands beside each loss of a pair of streams, and the loss.
_OF_PAIR = (
    "context_a", "stream_a", "context_b", "stream_b", "both_had_work_ns", "overlap_ns", "not_overlapped_ns", "late_ns",
    "alternations", "filled_by",
)  # fmt: skip
_OF_LOSS = ("reason", "waiting_stream", "had_work", "operations")
COLUMNS = ("device_id", "tenant_id", *_OF_PAIR, *_OF_LOSS, "reason_ns")


def rows(session: Session) -> list[dict[str, Any]]:
    """One row per tenant, pair of streams and reason; one without a reason where a pair lost nothing."""
    out = []
    for (device_id, tenant_id), found in sorted(session.analysis.streams.items()):
        for pair in found.pairs:
            whole = pair.model_dump(mode="json", include=set(_OF_PAIR))
            losses = [loss.model_dump(mode="json") for loss in pair.losses]
            nothing = dict.fromkeys(_OF_LOSS)
            for loss in losses or [{**nothing, "without_overlap_ns": 0}]:
                reason_ns = loss.pop("without_overlap_ns")
                out.append({"device_id": device_id, "tenant_id": tenant_id, **whole, **loss, "reason_ns": reason_ns})
    return out
