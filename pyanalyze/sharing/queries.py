"""SQL over the raw export that yields the number behind an observation, for experts who want to check.

For exports that show one GPU: device numbers of a session are not those of a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Where the tables stand in a query; nsys has renamed the second one.
_TABLES = {"kernels": "{kernels}", "switch_events": "{switches}"}

#: Slices: of every hardware context, from a RESTORE_START (8) to its next SAVE_END (7).
_HELD = """
WITH edge AS (
  SELECT globalPid, timestamp AS t, tag, lead(timestamp) OVER w AS next, lead(tag) OVER w AS after
  FROM {switches} WHERE tag IN (7, 8)
  WINDOW w AS (PARTITION BY contextId ORDER BY timestamp, tag)),
held AS (SELECT globalPid, sum(next - t) AS ns FROM edge WHERE tag = 8 AND after = 7 GROUP BY globalPid)
"""
#: Steps of the number of processes with a kernel in flight, from those of the number of kernels of each.
_BUSY = """
WITH edge AS (
  SELECT globalPid, start AS t, 1 AS d FROM {kernels}
  UNION ALL SELECT globalPid, "end", -1 FROM {kernels}),
depth AS (
  SELECT t, d, sum(d) OVER (PARTITION BY globalPid ORDER BY t, d DESC ROWS UNBOUNDED PRECEDING) AS n FROM edge),
turn AS (
  SELECT sum(d) OVER w AS busy, lead(t) OVER w - t AS ns FROM depth WHERE (n = 1 AND d = 1) OR (n = 0 AND d = -1)
  WINDOW w AS (ORDER BY t, d DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
"""
#: The same of the streams of each context.
_STREAMS = """
WITH edge AS (
  SELECT globalPid, contextId, streamId, start AS t, 1 AS d FROM {kernels}
  UNION ALL SELECT globalPid, contextId, streamId, "end", -1 FROM {kernels}),
depth AS (
  SELECT *, sum(d) OVER (PARTITION BY globalPid, contextId, streamId ORDER BY t, d DESC ROWS UNBOUNDED PRECEDING) AS n
  FROM edge),
turn AS (
  SELECT globalPid, sum(d) OVER w AS streams, lead(t) OVER w - t AS ns
  FROM depth WHERE (n = 1 AND d = 1) OR (n = 0 AND d = -1)
  WINDOW w AS (PARTITION BY globalPid, contextId ORDER BY t, d DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
SELECT max(share) FROM (
  SELECT 1.0 * sum(CASE WHEN streams > 1 THEN ns ELSE 0 END) / sum(CASE WHEN streams > 0 THEN ns ELSE 0 END) AS share
  FROM turn GROUP BY globalPid)
"""
#: Hand-overs; contexts that are only created, and gaps in the records, are counted along here.
_CHANGES = """
SELECT count(*) FROM (
  SELECT globalPid, lag(globalPid) OVER (ORDER BY timestamp, seqNo) AS before FROM {switches} WHERE tag = 8)
WHERE before IS NOT NULL AND globalPid <> before
"""
_PROCESSES = "SELECT count(DISTINCT globalPid) FROM {kernels}"
_TOGETHER = (
    "SELECT 1.0 * sum(CASE WHEN busy > 1 THEN ns ELSE 0 END) / sum(CASE WHEN busy > 0 THEN ns ELSE 0 END) FROM turn"
)

_QUERIES = {
    "alternation": _CHANGES,
    "turns_with_outsider": _CHANGES,
    "sole_resident": _HELD + "SELECT 1.0 * max(ns) / sum(ns) FROM held",  # noqa: S608 - two constants
    "busy_without_switches": _BUSY + _TOGETHER,
    "streams_overlap": _STREAMS,
    "streams_apart": _STREAMS,
    "one_traced_tenant": _PROCESSES,
    "several_traced_tenants": _PROCESSES,
}


def query(observation: str, tables: Mapping[str, str | None]) -> str | None:
    """SQL that yields the number of an observation from the export itself.

    Parameters
    ----------
    observation
        Its name.
    tables
        Tables of the export by source; empty for several exports or GPUs.

    Returns
    -------
    str or None
        None where there is no such query, or the export lacks its table.

    Examples
    --------
    >>> query("one_traced_tenant", {"kernels": "KERNEL"})
    'SELECT count(DISTINCT globalPid) FROM KERNEL'
    """
    text = _QUERIES.get(observation)
    if text is None:
        return None
    for source, place in _TABLES.items():
        if place in text:
            table = tables.get(source)
            if table is None or "," in table:
                return None
            text = text.replace(place, table)
    return " ".join(text.split())
