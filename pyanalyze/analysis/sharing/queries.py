"""SQL over the raw export that yields the number behind an observation, for experts who want to check.

For single exports. Where one shows several GPUs, or several MIG instances, tables are narrowed to the rows of one of
them: device numbers of a session are not those of a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Slices: of every hardware context, from a RESTORE_START (8) to its next SAVE_END (7); who came last may have stayed
#: to the end of the recording, and whose SAVE_END is the first record was there since its process had work.
_INTERVALS = """
last AS (SELECT max(t) AS t FROM (SELECT max(timestamp) AS t FROM {switches} UNION ALL {ends})),
edge AS (
  SELECT globalPid, contextId, timestamp AS t, tag, lead(timestamp) OVER w AS next, lead(tag) OVER w AS after
  FROM {switches} WHERE tag IN (7, 8)
  WINDOW w AS (PARTITION BY contextId ORDER BY timestamp, tag)),
interval AS (
  SELECT globalPid, contextId, t, coalesce(next, (SELECT t FROM last)) - t AS ns FROM edge
  WHERE tag = 8 AND (after = 7 OR (after IS NULL AND t = (SELECT max(timestamp) FROM {switches} WHERE tag = 8)))
  UNION ALL SELECT edge.globalPid, edge.contextId, min(start), t - min(start) FROM edge
  JOIN {kernels} AS k ON k.globalPid = edge.globalPid AND k.start < t
  WHERE tag = 7 AND t = (SELECT min(t) FROM edge) GROUP BY edge.globalPid, edge.contextId, t)
"""
_RESIDENT = _INTERVALS + ", resident AS (SELECT globalPid, sum(ns) AS ns FROM interval GROUP BY globalPid)"  # noqa: S608 - constants
#: Kernels and whole graphs; up to `{short_ns}` a kernel is short beside a time slice.
_WORK = """
work AS (
  SELECT globalPid AS p, start AS s, "end" AS e, "end" - start <= {short_ns} AS short FROM {kernels}
  UNION ALL SELECT globalPid, start, "end", 0 FROM {graphs})
"""
#: Steps of the number of processes with work in flight, from those of the amount of work of each.
_BUSY = """
step AS (SELECT p, s AS t, 1 AS d FROM work WHERE e > s UNION ALL SELECT p, e, -1 FROM work WHERE e > s),
depth AS (SELECT t, d, sum(d) OVER (PARTITION BY p ORDER BY t, d DESC ROWS UNBOUNDED PRECEDING) AS n FROM step),
sweep AS (
  SELECT sum(d) OVER w AS busy, lead(t) OVER w - t AS ns FROM depth WHERE (n = 1 AND d = 1) OR (n = 0 AND d = -1)
  WINDOW w AS (ORDER BY t, d DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW))
"""
#: For each context the time with two of its streams busy, by process over the time in which that had any work.
_STREAMS = """
own AS (
  SELECT globalPid AS p, contextId AS c, streamId AS st, start AS t, 1 AS d FROM {kernels} WHERE "end" > start
  UNION ALL SELECT globalPid, contextId, streamId, "end", -1 FROM {kernels} WHERE "end" > start),
depth AS (SELECT *, sum(d) OVER (PARTITION BY p, c, st ORDER BY t, d DESC ROWS UNBOUNDED PRECEDING) AS n FROM own),
sweep AS (
  SELECT p, sum(d) OVER w AS streams, lead(t) OVER w - t AS ns
  FROM depth WHERE (n = 1 AND d = 1) OR (n = 0 AND d = -1)
  WINDOW w AS (PARTITION BY p, c ORDER BY t, d DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)),
several AS (SELECT p, sum(CASE WHEN streams > 1 THEN ns ELSE 0 END) AS ns FROM sweep GROUP BY p),
step AS (SELECT p, s AS t, 1 AS d FROM work WHERE e > s UNION ALL SELECT p, e, -1 FROM work WHERE e > s),
level AS (
  SELECT p, sum(d) OVER w AS n, lead(t) OVER w - t AS ns FROM step
  WINDOW w AS (PARTITION BY p ORDER BY t, d DESC ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)),
busy AS (SELECT p, sum(CASE WHEN n > 0 THEN ns ELSE 0 END) AS ns FROM level GROUP BY p)
SELECT max(1.0 * several.ns / busy.ns) FROM several JOIN busy ON several.p IS busy.p
"""
#: Of the short kernels that started while another process had work (or was back within `{bridge_ns}`, kept off by its
#: time slices) those that overlap a short one of it: before each the latest ends of the other's work, behind it the
#: next starts.
_SHORT = """
line AS (SELECT *, row_number() OVER (ORDER BY s, short DESC) AS i FROM work),
other AS (SELECT DISTINCT p AS o FROM work),
seen AS (
  SELECT line.p, o, s, e, short,
    max(CASE WHEN line.p = o THEN e END) OVER earlier AS busy_until,
    max(CASE WHEN line.p = o AND short THEN e END) OVER earlier AS short_until,
    min(CASE WHEN line.p = o THEN s END) OVER later AS next_start,
    min(CASE WHEN line.p = o AND short THEN s END) OVER later AS next_short
  FROM line CROSS JOIN other
  WINDOW earlier AS (PARTITION BY o ORDER BY i ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
    later AS (PARTITION BY o ORDER BY i DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
SELECT 1.0 * sum(CASE WHEN short_until > s OR next_short < e THEN 1 ELSE 0 END) / count(*) FROM seen
WHERE p <> o AND short AND s <= busy_until + {bridge_ns} AND (busy_until > s OR next_start - busy_until <= {bridge_ns})
"""
#: Hand-overs from one process to another, without those around slices of at most 0.1 ms with which a context comes into
#: being: all before its first longer one, or all of a context with ten of them and no longer one; and those of at most
#: two slices of a process that has another context with more.
_CHANGES = """
own AS (
  SELECT globalPid AS p, contextId AS c, count(*) AS n, min(CASE WHEN ns > 100000 THEN t END) AS first FROM interval
  GROUP BY p, c),
aged AS (
  SELECT globalPid AS p, t,
    coalesce(t < first, n <= 10) OR (n <= 2 AND n < (SELECT max(n) FROM own AS o WHERE o.p = own.p)) AS young
  FROM interval JOIN own ON p IS globalPid AND c = contextId),
line AS (SELECT p, young, lag(p) OVER w AS before, lag(young) OVER w AS before_young FROM aged WINDOW w AS (ORDER BY t))
SELECT count(*) FROM line WHERE p <> before AND NOT young AND NOT before_young
"""
#: Kernels inside a whole residency interval of their process, which lies between two of another process that has a
#: kernel in flight from before the first ends until after the second begins.
_IN_PREEMPTION = """
whole AS MATERIALIZED (SELECT globalPid AS p, t AS s, next AS e FROM edge WHERE tag = 8 AND after = 7),
ran AS (
  SELECT globalPid AS p, start AS s, "end" AS e,
    (SELECT max(s) FROM whole WHERE whole.p IS globalPid AND whole.s <= start) AS since FROM {kernels})
SELECT count(*) FROM ran JOIN whole AS own ON own.p IS ran.p AND own.s = since AND own.e >= ran.e
WHERE EXISTS (
  SELECT 1 FROM {kernels} AS k
  WHERE k.globalPid <> ran.p AND k.start < ran.s AND k."end" > ran.e
  AND (SELECT max(e) FROM whole WHERE p IS k.globalPid AND s <= ran.s) BETWEEN k.start + 1 AND own.s
  AND (SELECT min(s) FROM whole WHERE p IS k.globalPid AND s > ran.s) BETWEEN own.e AND k."end" - 1)
"""
#: Median length of turns: kernels of one process in a row, from the start of the first to the end of the last.
_TURNS = """
line AS (SELECT globalPid AS p, start AS s, "end" AS e FROM {kernels}),
marked AS (SELECT s, e, p IS NOT lag(p) OVER (ORDER BY s, e) AS new FROM line),
numbered AS (SELECT s, e, sum(new) OVER (ORDER BY s, e ROWS UNBOUNDED PRECEDING) AS turn FROM marked),
turns AS (SELECT max(e) - min(s) AS ns FROM numbered GROUP BY turn)
SELECT avg(ns) FROM (
  SELECT ns FROM turns ORDER BY ns
  LIMIT 2 - (SELECT count(*) FROM turns) % 2 OFFSET ((SELECT count(*) FROM turns) - 1) / 2)
"""
#: Kernels that started beside one of another process, in flight for 20 us more, that had started since the own last.
_BESIDE = """
line AS (
  SELECT globalPid AS p, start AS s, "end" AS e, lag(start) OVER (PARTITION BY globalPid ORDER BY start, "end") AS own
  FROM {kernels}),
other AS (SELECT DISTINCT p AS o FROM line),
seen AS (
  SELECT *, sum(p IS o) OVER (PARTITION BY o ORDER BY s, p, e ROWS UNBOUNDED PRECEDING) AS n
  FROM line CROSS JOIN other),
theirs AS (
  SELECT *, first_value(s) OVER w AS since, first_value(e) OVER w AS until FROM seen WHERE n > 0
  WINDOW w AS (PARTITION BY o, n ORDER BY s, p, e))
SELECT count(*) FROM theirs WHERE p IS NOT o AND own < since AND until > s + 20000
"""
#: Launches of one kernel, grid and block of a process, at least five, with the median of theirs.
_REPEATS = """
launch AS (
  SELECT "end" - start AS ns, dense_rank() OVER (
    ORDER BY globalPid, demangledName, gridX, gridY, gridZ, blockX, blockY, blockZ) AS alike FROM {kernels}),
ranked AS (
  SELECT ns, alike, row_number() OVER (PARTITION BY alike ORDER BY ns) AS i, count(*) OVER (PARTITION BY alike) AS n
  FROM launch),
repeat AS (
  SELECT ns, avg(CASE WHEN i IN ((n + 1) / 2, (n + 2) / 2) THEN ns END) OVER (PARTITION BY alike) AS median
  FROM ranked WHERE n >= 5)
"""
_INFLATED = "ns > median + 800000 AND ns > 1.5 * median"
_DEVIATING = "SELECT avg(abs(ns - median) > 800000) FROM repeat"
_MANY_INFLATED = f"SELECT avg({_INFLATED}) FROM repeat"  # noqa: S608 - constants
_EXCESS = f"""
excess AS (
  SELECT ns - CAST(median AS INTEGER) AS ns, row_number() OVER (ORDER BY ns - CAST(median AS INTEGER)) AS i,
  count(*) OVER () AS n FROM repeat WHERE {_INFLATED})
SELECT avg(ns) FROM excess WHERE i IN ((n + 1) / 2, (n + 2) / 2)
"""  # noqa: S608 - constants
_MOST_RESIDENT = f"WITH {_RESIDENT} SELECT 1.0 * max(ns) / sum(ns) FROM resident"  # noqa: S608 - constants
_PROCESSES = "SELECT count(DISTINCT globalPid) FROM ({processes})"
_TOGETHER = (
    "SELECT 1.0 * sum(CASE WHEN busy > 1 THEN ns ELSE 0 END) / sum(CASE WHEN busy > 0 THEN ns ELSE 0 END) FROM sweep"
)
_UNTRACED = "SELECT 1.0 * sum(CASE WHEN globalPid IN ({processes}) THEN 0 ELSE ns END) / sum(ns) FROM resident"
_SHORT_OVERLAP = f"WITH {_WORK}, {_SHORT}"
_STREAM_OVERLAP = f"WITH {_WORK}, {_STREAMS}"
_SMS = "SELECT smCount FROM {gpu} WHERE name = {name} LIMIT 1"
_LEAST_SMS = "SELECT min(numMultiprocessors) FROM {cuda_devices} WHERE numMultiprocessors > 0"

_QUERIES = {
    "contexts_alternate": f"WITH {_INTERVALS}, {_CHANGES}",
    "mps_group_time_sliced": f"WITH {_INTERVALS}, {_CHANGES}",
    "kernel_ran_in_preemption": f"WITH {_INTERVALS}, {_IN_PREEMPTION}",
    "sole_resident": _MOST_RESIDENT,
    "untraced_resident": f"WITH {_RESIDENT} {_UNTRACED}",
    "several_in_one_context": _MOST_RESIDENT,
    "changes_within_slice": f"WITH {_BESIDE} AND s - own < 800000",
    "changes_after_slice": f"WITH {_BESIDE}",
    "busy_without_switches": f"WITH {_WORK}, {_BUSY} {_TOGETHER}",
    "short_kernels_overlap": _SHORT_OVERLAP,
    "turns_in_software": f"WITH {_TURNS}",
    "short_kernels_exclude": _SHORT_OVERLAP,
    "streams_overlap": _STREAM_OVERLAP,
    "streams_apart": _STREAM_OVERLAP,
    "kernel_durations_stable": f"WITH {_REPEATS} {_DEVIATING}",
    "kernel_durations_inflated": f"WITH {_REPEATS} {_MANY_INFLATED}",
    "interrupted_kernels": f"WITH {_REPEATS}, {_EXCESS}",
    "one_traced_tenant": _PROCESSES,
    "several_traced_tenants": _PROCESSES,
    "mig_instance": _SMS,
    "mig_compute_instance": _SMS,
    "vgpu_name": _SMS,
    "vgpu_mig_name": _SMS,
    "instance_unknown": "SELECT count(*) FROM {gpu} WHERE name LIKE '% MIG %'",
    "green_contexts": "SELECT count(*) FROM TARGET_INFO_CUDA_CONTEXT_INFO WHERE isGreenContext = 1",
    "sms_hidden": _LEAST_SMS,
    "sms_like_mig": _LEAST_SMS,
    "cap_without_effect": _LEAST_SMS,
    "pre_volta": "SELECT computeMajor + computeMinor / 10.0 FROM {gpu} WHERE name = {name} LIMIT 1",
}

#: Where the tables stand in a query, by source.
_TABLES = {
    "{kernels}": "kernels",
    "{switches}": "switch_events",
    "{graphs}": "graph_launches",
    "{gpu}": "target_gpu",
    "{cuda_devices}": "cuda_devices",
}
#: Tables that may be missing: then there is none of it.
_EMPTY = '(SELECT NULL AS globalPid, NULL AS contextId, NULL AS streamId, NULL AS start, NULL AS "end" WHERE 0)'


def query(observation: str, tables: Mapping[str, str | None], literals: Mapping[str, str] | None = None) -> str | None:
    """SQL that yields the number of an observation from the export itself.

    Parameters
    ----------
    observation
        Its name.
    tables
        Tables of the export by source, or selections from them; empty for several exports.
    literals
        What is known of this case and stands in the query as it is: ``short_ns``, ``bridge_ns``, ``name``.

    Returns
    -------
    str or None
        None where there is no such query, or the export lacks its table.

    Examples
    --------
    >>> query("one_traced_tenant", {"kernels": "KERNEL"})
    'SELECT count(DISTINCT globalPid) FROM (SELECT globalPid FROM KERNEL)'
    """
    text = _QUERIES.get(observation)
    if text is None or not tables:
        return None
    named = [table for source in ("kernels", "graph_launches", "copies") for table in _split(tables.get(source))]
    ends = (f'SELECT max("end") FROM {table}' for table in named)  # noqa: S608 - names of tables of the export
    text = text.replace("{ends}", " UNION ALL ".join(ends) or "SELECT NULL")
    if "{processes}" in text:
        selects = (f"SELECT globalPid FROM {table}" for table in named)  # noqa: S608 - names of tables of the export
        text = text.replace("{processes}", " UNION ALL ".join(selects) or "SELECT NULL AS globalPid WHERE 0")
    for place, source in _TABLES.items():
        if place not in text:
            continue
        table = tables.get(source)
        if table is None and place in ("{graphs}", "{kernels}"):
            table = _EMPTY
        if table is None or len(_split(table)) > 1:
            return None
        text = text.replace(place, table)
    for key, value in (literals or {}).items():
        text = text.replace(f"{{{key}}}", value)
    return None if "{" in text else " ".join(text.split())


def _split(tables: str | None) -> list[str]:
    """Tables that a source was found in; a selection is one."""
    if tables is None or tables.startswith("("):
        return [] if tables is None else [tables]
    return [table.strip() for table in tables.split(",")]


def narrowed(
    tables: Mapping[str, str | None], pids: Iterable[int] | None, ordinal: int | None, gpu_id: int | None
) -> dict[str, str | None]:
    """Select from the tables of an export what belongs to one of its GPUs.

    Parameters
    ----------
    tables
        Tables by source.
    pids
        Processes that worked on this GPU and no other; None where some worked on several: then `ordinal` decides.
    ordinal
        Number of the GPU in activity.
    gpu_id
        Number of the GPU in switch records.

    Returns
    -------
    dict
        Selections by source; a source is left out where it cannot be narrowed.

    Examples
    --------
    >>> narrowed({"kernels": "KERNEL", "nvtx": "NVTX_EVENTS"}, [7, 8], 0, None)["kernels"]
    '(SELECT * FROM KERNEL WHERE (globalPid >> 24) & 0xFFFFFF IN (7, 8))'
    """
    if pids is not None:
        where = f"(globalPid >> 24) & 0xFFFFFF IN ({', '.join(str(pid) for pid in sorted(pids))})"
    elif ordinal is not None:
        where = f"deviceId = {ordinal}"
    else:
        where = None
    found = {source: tables.get(source) for source in ("target_gpu", "cuda_devices")}
    for source in ("kernels", "graph_launches"):
        table = tables.get(source)
        if where is not None and table is not None and len(_split(table)) == 1:
            found[source] = f"(SELECT * FROM {table} WHERE {where})"  # noqa: S608 - as above
    copies = _split(tables.get("copies"))
    if where is not None and copies:
        columns = 'globalPid, "end"'
        found["copies"] = f"({' UNION ALL '.join(f'SELECT {columns} FROM {table} WHERE {where}' for table in copies)})"  # noqa: S608
    table = tables.get("switch_events")
    if gpu_id is not None and table is not None:
        found["switch_events"] = f"(SELECT * FROM {table} WHERE gpuId = {gpu_id})"  # noqa: S608 - as above
    return found


def text_literal(text: str) -> str:
    """A text as SQL writes it.

    Examples
    --------
    >>> text_literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
