"""Why streams of real captures did not overlap, and the same times by SQL on the export."""

from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

import pytest
from command_line import run

import pyanalyze
from pyanalyze.report.text import render_text

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.results.streams import StreamPair

KERNELS = "SELECT start, end, streamId s, correlationId c, graphNodeId g, 'K' k FROM CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "SELECT start, end, streamId, correlationId, NULL, 'M' FROM CUPTI_ACTIVITY_KIND_MEMCPY"
SETS = "SELECT start, end, streamId, correlationId, NULL, 'S' FROM CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "SELECT start, end, streamId, correlationId, NULL, 'G' FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"


def lost(waiting: int, other: int, work: str, *, count: str = "count(*), sum(lost)", where: str = "lost > 0") -> str:
    """What a stream executed while operations of another one were ready: launched, the one before them ended.

    Nodes in a branch of a graph are ready when it begins: until then the graph waits in the stream it was launched to.
    Where nodes wait here, it is in branches.
    """
    return f"""
        WITH w AS ({work}),
        f AS (SELECT correlationId graph, min(start) began FROM CUPTI_ACTIVITY_KIND_KERNEL
              WHERE graphNodeId IS NOT NULL GROUP BY 1),
        b AS (SELECT w.*, max(min(r.end, w.start), coalesce(lag(w.end) OVER q, 0),
                              CASE WHEN g IS NOT NULL THEN began ELSE 0 END) ready,
                     lag(c) OVER q before
              FROM w JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = c LEFT JOIN f ON graph = c
              WHERE s = {waiting} WINDOW q AS (ORDER BY w.start)),
        l AS (SELECT b.*, (SELECT sum(min(a.end, b.start) - max(a.start, ready)) FROM w a
                           WHERE a.s = {other} AND a.start < b.start AND a.end > ready) lost FROM b)
        SELECT {count} FROM l WHERE {where}"""


def late(waiting: int, other: int, work: str) -> str:
    """What a stream executed while another one had no work, which was launched at most 250 us after that ended."""
    return f"""
        WITH w AS ({work}),
        b AS (SELECT w.start, w.end, min(r.end, w.start) called, coalesce(lag(w.end) OVER (ORDER BY w.start), 0) before
              FROM w JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = c WHERE s = {waiting}),
        l AS (SELECT min(b.end - b.start, sum(min(a.end, called) - max(a.start, before))) missed, max(a.end) last, called
              FROM b JOIN w a ON a.s = {other} AND a.start < called AND a.end > before AND a.start > called - 250000000
              WHERE before <= called GROUP BY b.start)
        SELECT count(*), sum(missed) FROM l WHERE called - last BETWEEN 0 AND 250000"""


#: Export, the two streams, the one that waits, reasons, and a query for how many operations and ns these have.
CASES = {
    "launch latency": (
        "concurrent-examples/cuda_stream_profile.nsys2025.sqlite", (13, 14), 14, {"launch-latency"},
        lost(14, 13, KERNELS, where="lost > 0 AND start - ready <= 20000"),
    ),
    "halo exchanges that were launched late": (
        "gpubootcamp-8v100/report1.nsys2026.sqlite", (7, 21), 7, {"launched-late"},
        late(7, 21, f"{KERNELS} UNION ALL {COPIES} UNION ALL {SETS}"),
    ),
    "waits for events": (
        "jaxtoolbox-gb200/nsys_report_benchmark.nsys2026.sqlite", (16, 17), 17, {"dependency", "launch-latency"},
        lost(17, 16, f"{KERNELS} UNION ALL {GRAPHS}", where="""lost > 0 AND EXISTS (
            SELECT 1 FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION y WHERE y.syncType = 2 AND y.streamId = 17
            AND y.correlationId > coalesce(before, 0) AND y.correlationId < c)"""),
    ),
    "waits for events, the other way": (
        "jaxtoolbox-gb200/nsys_report_benchmark.nsys2026.sqlite", (16, 17), 16, {"dependency"},
        lost(16, 17, f"{KERNELS} UNION ALL {GRAPHS}", where="""lost > 0 AND EXISTS (
            SELECT 1 FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION y WHERE y.syncType = 2 AND y.streamId = 16
            AND y.correlationId > coalesce(before, 0) AND y.correlationId < c)"""),
    ),
    "the host waited": (
        "jaxtoolbox-gb200/nsys_report_cuda_graph_pdl_stream_capture.nsys2026.sqlite", (7, 16), 7, {"synchronization"},
        late(7, 16, f"{GRAPHS.replace('correlationId, NULL', 'correlationId c, NULL g')} UNION ALL {COPIES}"
             .replace("streamId,", "streamId s,", 1).replace("'G'", "'G' k", 1)),
    ),
    "nodes of a graph": (
        "jaxtoolbox-gb200/pdl_two_producers.nsys2026.sqlite", (16, 20), 20, {"launch-latency"},
        lost(20, 16, KERNELS),
    ),
    "nodes of a large graph": (
        "ngp-graph/baseline.nsys2026.sqlite", (14, 22), 22, {"graph", "unexplained"},
        lost(22, 14, f"{KERNELS} WHERE streamId IN (14, 22) UNION ALL {COPIES} WHERE streamId IN (14, 22)"
             f" UNION ALL {SETS} WHERE streamId IN (14, 22)", where="lost > 0 AND g IS NOT NULL"),
    ),
    "copies share an engine": (
        "test-cuda-4streams/report2.nsys2026.sqlite", (14, 15), 15, {"copy-engine", "copy-in-front"},
        # Its operation waited for both: it has two reasons.
        lost(15, 14, f"{KERNELS} UNION ALL {COPIES}", count="2 * count(*), sum(lost)"),
    ),
    "a kernel behind a copy": (
        "test-cuda-4streams/report2.nsys2026.sqlite", (13, 14), 14, {"copy-engine", "copy-in-front"},
        lost(14, 13, f"{KERNELS} UNION ALL {COPIES}", count="2 * count(*), sum(lost)"),
    ),
}  # fmt: skip


def pair_of(path: Path, streams: tuple[int, int]) -> StreamPair:
    (device,) = (one for one in pyanalyze.load(path).report().devices if any(tenant.streams for tenant in one.tenants))
    pairs = [pair for tenant in device.tenants if tenant.streams is not None for pair in tenant.streams.pairs]
    (found,) = (pair for pair in pairs if (pair.stream_a, pair.stream_b) == streams)
    return found


@pytest.mark.parametrize("case", CASES)
def test_the_time_that_streams_lost_is_what_sql_says(corpus: Path, case: str) -> None:
    name, streams, waiting, reasons, query = CASES[case]
    path = corpus / "exports" / name
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        counted = database.execute(query).fetchall()
    found = pair_of(path, streams)
    losses = [loss for loss in found.losses if loss.waiting_stream == waiting and loss.reason in reasons]
    assert {loss.reason for loss in losses} == reasons
    assert [(sum(loss.operations for loss in losses), sum(loss.without_overlap_ns for loss in losses))] == counted


def test_streams_that_never_had_work_at_once(corpus: Path) -> None:
    path = corpus / "exports" / "apax-4070/report1.nsys2026.sqlite"
    query = f"""
        WITH w AS ({KERNELS} UNION ALL {COPIES} UNION ALL {SETS}),
        x AS (SELECT s, min(r.end, w.start) a, w.end b FROM w JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = c)
        SELECT count(*) FROM x p JOIN x q ON p.s < q.s AND p.a < q.b AND q.a < p.b"""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        assert database.execute(query).fetchone() == (0,)
    (device,) = pyanalyze.load(path).report().devices
    (streams,) = (tenant.streams for tenant in device.tenants)
    assert streams is not None
    assert [pair for pair in streams.pairs if pair.both_had_work_ns] == []


def test_little_missed_overlap_of_graphs_traced_whole_is_no_all_clear(corpus: Path) -> None:
    """One row of CUPTI_ACTIVITY_KIND_GRAPH_TRACE: what ran at once inside that graph has no record."""
    path = corpus / "exports" / "jaxtoolbox-gb200" / "nsys_report_cuda_graph_pdl_stream_capture.nsys2026.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as export:
        assert export.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE").fetchone() == (1,)
    session = pyanalyze.load(path)
    (streams,) = session.analysis.streams.values()
    assert streams.whole_graphs == 1
    page = " ".join(render_text(session.report(), sections=("streams",)).split())
    said = (
        "missed overlap for less than 2 % of its time. Graphs were traced whole: streams inside a graph are not known."
    )
    assert said in page
    # One stream, and one graph, which may have branches.
    one = corpus / "exports" / "concurrent-examples" / "cuda_graph_profile@b6984eb.nsys2025.sqlite"
    shown = " ".join(run("streams", one).stdout.split())
    assert "No process used several streams. Graphs were traced whole: what overlaps inside one is not known." in shown
