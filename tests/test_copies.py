"""Copies in front of kernels: directions, memory of the host, rates, what pinned memory saves; unified memory."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from command_line import run
from exports import A100, MS, US, call, copy, kernel, write

import pyanalyze
from pyanalyze.report.markdown import render_markdown
from pyanalyze.report.text import render_text

if TYPE_CHECKING:
    from pathlib import Path

    from pyanalyze.results.copies import Copies

pytestmark = pytest.mark.usefixtures("commands_share_sessions")

PAGEABLE, PINNED, DEVICE, MANAGED = 0, 1, 2, 4
TO_DEVICE, TO_HOST, MIGRATED, MIGRATED_BACK = 1, 2, 11, 12


def moved(start_ms: int, end_ms: int, megabytes: int, kind: int, memory: int, **more: Any) -> dict[str, Any]:
    """A copy between the host and the device."""
    ends = (
        {"srcKind": memory, "dstKind": DEVICE}
        if kind in (TO_DEVICE, MIGRATED)
        else {"srcKind": DEVICE, "dstKind": memory}
    )
    return copy(41, start_ms * MS, end_ms * MS, **{"bytes": megabytes * 1_000_000, "copyKind": kind, **ends, **more})


def mixed(path: Path, *later: dict[str, Any]) -> Path:
    """Copies of a program, and kernels that follow them.

    Pageable to the device   |0=====8|        16 MB in 8 ms, 2 GB/s
    kernel                        |6===10|
    pinned to the device                  |12=14|   16 MB in 2 ms, 8 GB/s
    pageable to the host                          |16==18|   4 MB in 2 ms, 2 GB/s; no pinned copy in that direction
    """
    copies = [
        moved(0, 8, 16, TO_DEVICE, PAGEABLE),
        moved(12, 14, 16, TO_DEVICE, PINNED),
        moved(16, 18, 4, TO_HOST, PAGEABLE),
    ]
    return write(path, kernels=[kernel(41, 6 * MS, 10 * MS), *later], copies=copies, processes={41: "train"})


def copies_of(path: Path) -> Copies:
    (found,) = pyanalyze.load(path).analysis.copies.values()
    return found


def test_directions_memory_and_rates(tmp_path: Path) -> None:
    found = copies_of(mixed(tmp_path / "a.sqlite"))
    assert found.window_ns == 18 * MS and found.migrations is None
    assert [
        (k.direction, k.host_memory, k.copies, k.bytes, k.time_ns, k.exposed_ns, k.bytes_per_s) for k in found.kinds
    ] == [
        ("to-device", "pageable", 1, 16_000_000, 8 * MS, 6 * MS, 2e9),
        ("to-device", "pinned", 1, 16_000_000, 2 * MS, 2 * MS, 8e9),
        ("to-host", "pageable", 1, 4_000_000, 2 * MS, 2 * MS, 2e9),
    ]
    assert [(k.best_bytes_per_s, k.best_pinned_bytes_per_s) for k in found.kinds] == [
        (8e9, 8e9),
        (8e9, 8e9),
        (2e9, None),
    ]


def test_pinned_memory_is_advised_where_it_is_pageable(tmp_path: Path) -> None:
    # Beside the last kernel the copy to the host could run.
    path = mixed(tmp_path / "a.sqlite", kernel(41, 20 * MS, 23 * MS))
    (advice,) = pyanalyze.load(path).advise()
    items = {item.action: item for item in advice.actions if "pinned" in item.action}
    there = items["Use pinned memory for the copies of train to the device"]
    back = items["Use pinned memory for the copies of train to the host"]
    assert (there.at_stake_ns, back.at_stake_ns) == (6 * MS, 2 * MS)
    # At 8 instead of 2 GB/s a quarter of the time is left; of the other direction no rate is known.
    assert there.expected is not None and there.expected.startswith("4.500 ms less")
    assert back.expected is None
    assert back.bound == "2.000 ms, 8.7 % of its time, if they run beside kernels or host work"
    # Faster by 4.5 ms, and 7 ms of kernels: more than the 6 ms there are.
    assert there.bound == "6.000 ms, 26.1 % of its time, if they run beside kernels or host work"
    stakes = [item.at_stake_ns for item in advice.actions if item.at_stake_ns is not None]
    assert stakes == sorted(stakes, reverse=True)


def test_asynchronous_copies_can_hide_behind_the_host_as_well(corpus: Path) -> None:
    """All copies of saxpy are pageable and none ran beside a kernel: by SQL they took 186.0 and 98.7 ms.

    Kernels took 88.57 ms, and the host had the GPU wait for 719 ms: no bound is the time of kernels.
    """
    path = corpus / "exports/pipit/saxpy-mpi-cuda_nsys_perlmutter0.sqlite"
    with closing(sqlite3.connect(path)) as db:
        took = dict(db.execute('SELECT copyKind, sum("end" - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY 1'))
        kernels = db.execute('SELECT sum("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL').fetchone()[0]
    assert (took[TO_DEVICE], took[TO_HOST], kernels) == (186_001_123, 98_698_477, 88_573_480)
    (advice,) = pyanalyze.load(path).advise()
    there, back = (
        next(item for item in advice.actions if item.action.endswith(end) and "pinned" in item.action)
        for end in ("to the device", "to the host")
    )
    assert (there.at_stake_ns, back.at_stake_ns) == (took[TO_DEVICE], took[TO_HOST])
    assert there.bound is not None and there.bound.endswith("beside kernels alone 88.57 ms (earlier or in parts)")
    (less,) = (item for item in advice.actions if item.action.startswith("Copy less"))
    assert "Overlap with host work (double buffering) may hide more" in less.why
    # Grids of 2 blocks, of 108 SMs with 4 each: 0.46 % of a wave. No resource of the SM is what limits them.
    (faster,) = (item for item in advice.actions if item.action.startswith("Make kernel saxpy"))
    assert "Launch more blocks" in faster.why
    said = " ".join(run("report", "-f", "txt", path).stdout.split())
    assert (
        "Launches that take 100.0 % of kernel time have at most 0.9 blocks per SM: they reach at most 90 % of the SMs."
        in said
    )
    # All is of a run of 2.269 s: 719.3 ms are 31.7 % of it.
    assert "Upper bound of the gain: 719.3 ms, 65.5 % of its time. That is 31.7 % of the 2.269 s recorded." in said


def test_a_copy_that_no_kernel_could_hide_is_not_advised_to_overlap(tmp_path: Path) -> None:
    """Results are copied back behind the last kernel."""
    (advice,) = pyanalyze.load(mixed(tmp_path / "a.sqlite")).advise()
    assert not any("pinned" in item.action and "to the host" in item.action for item in advice.actions)
    path = write(
        tmp_path / "b.sqlite", kernels=[kernel(41, 0, 5 * MS)], copies=[moved(5, 25, 40, TO_HOST, PAGEABLE)],
        processes={41: "train"},
    )  # fmt: skip
    (advice,) = pyanalyze.load(path).advise()
    assert not any("pinned" in item.action for item in advice.actions)
    (less,) = (item for item in advice.actions if item.action.startswith("Copy less in train"))
    assert less.action == "Copy less in train"
    assert "Overlap with its kernels cannot hide any of that, copying less all of it." in less.why
    # Its only rate is that of pageable memory.
    assert "Try pinned memory first: copies of pageable memory take most" in less.why


def test_what_a_kernel_hides_already_is_not_hidden_again(tmp_path: Path) -> None:
    """
    kernels              |0=====6|         |12=14|
    pageable to the host      |4====10|               2 ms of it beside the first kernel; the second takes 2 ms
    pinned to the host        |4=5|                   all of it beside the first kernel
    """
    copies = [moved(4, 10, 12, TO_HOST, PAGEABLE), moved(4, 5, 8, TO_HOST, PINNED)]
    kernels = [kernel(41, 0, 6 * MS), kernel(41, 12 * MS, 14 * MS)]
    found = copies_of(write(tmp_path / "a.sqlite", kernels=kernels, copies=copies, processes={41: "train"}))
    assert [(k.host_memory, k.exposed_ns, k.hideable_ns) for k in found.kinds] == [
        ("pageable", 4 * MS, 2 * MS),
        ("pinned", 0, 0),
    ]


def test_overlap_hides_no_more_than_kernels_take(corpus: Path) -> None:
    """Five times two copies to the device, a kernel and a copy to the host, all one after the other."""
    path = corpus / "exports" / "pipit" / "saxpy-mpi-cuda_nsys_perlmutter0.sqlite"
    with closing(sqlite3.connect(path)) as db:
        kernels = [b - a for a, b in db.execute('SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL ORDER BY start')]
    (copies,) = pyanalyze.load(path).analysis.copies.values()
    hidden = {kind.direction: kind.hideable_ns for kind in copies.kinds}
    # Copies to the device take 186 ms without a kernel, and four kernels follow the first copy to the host.
    assert hidden == {"to-device": sum(kernels), "to-host": sum(kernels[1:])}
    (advice,) = pyanalyze.load(path).advise()
    said = [item.bound for item in advice.actions if item.action.startswith("Use pinned") and item.bound]
    alone = [re.search(r"; beside kernels alone (\S+) ms", text) for text in said]
    assert [found and float(found[1]) for found in alone] == [
        pytest.approx(ns / MS, abs=0.01) for ns in (sum(kernels), sum(kernels[1:]))
    ]


def test_pinned_copies_are_not_told_to_be_pinned(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.sqlite", kernels=[kernel(41, 9 * MS, 10 * MS)], copies=[moved(0, 8, 16, TO_DEVICE, PINNED)],
        processes={41: "train"},
    )  # fmt: skip
    (advice,) = pyanalyze.load(path).advise()
    assert not any("pinned" in item.action for item in advice.actions)
    (less,) = (item for item in advice.actions if item.action.startswith("Copy less in train"))
    assert "pinned memory first" not in less.why


def test_copies_and_memsets_without_a_kernel(hardware: Path) -> None:
    """Of each process by SQL: its time with a copy or memset and no kernel in flight, in all and of memsets alone."""
    path = hardware / "torch-mps-serve-train.sqlite"
    (device,) = pyanalyze.load(path).report().devices
    with closing(sqlite3.connect(path)) as db:
        for tenant in device.tenants:
            mine = f"WHERE globalPid >> 24 & 0xFFFFFF = {tenant.pid}"
            kernels, copied, sets = (
                db.execute(f'SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_{table} {mine}').fetchall()
                for table in ("KERNEL", "MEMCPY", "MEMSET")
            )
            exposed = covered(kernels + copied + sets) - covered(kernels)
            assert tenant.time_split is not None and tenant.copies is not None and tenant.copies.memsets is not None
            assert tenant.time_split.copies_ns == exposed
            memsets = tenant.copies.memsets
            assert (memsets.count, memsets.time_ns) == (len(sets), covered(sets))
            assert memsets.exposed_ns == covered(kernels + sets) - covered(kernels)
            assert sum(kind.copies for kind in tenant.copies.kinds) == len(copied)
    page = run("report", path, "-f", "md").stdout
    assert len(re.findall(r"\| memsets \| [\d ]+ \| [\d.]+ \w+", page)) == 2


def covered(spans: list[tuple[int, int]]) -> int:
    """Length of the union."""
    whole, until = 0, 0
    for start, end in sorted(spans):
        whole += max(end - max(start, until), 0)
        until = max(until, end)
    return whole


def test_memsets_that_hold_up_kernels_are_advised_on(tmp_path: Path) -> None:
    """
    memset  |0=========8|
    copy                |8=10|
    kernel                    |10==18|
    """
    path = write(
        tmp_path / "a.sqlite", kernels=[kernel(41, 10 * MS, 18 * MS)], copies=[moved(8, 10, 16, TO_DEVICE, PINNED)],
        processes={41: "train"},
    )  # fmt: skip
    row = copy(41, 0, 8 * MS)
    row = {
        name: row[name] for name in ("start", "end", "deviceId", "contextId", "streamId", "correlationId", "globalPid")
    }
    row |= {"value": 0, "bytes": 1 << 20, "memKind": DEVICE}
    with closing(sqlite3.connect(path)) as db, db:
        columns = ", ".join(f'"{name}"' for name in row)
        db.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET ({columns})")
        db.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES ({', '.join('?' * len(row))})", list(row.values()))
    found = copies_of(path).memsets
    assert found is not None
    assert (found.count, found.bytes, found.time_ns, found.exposed_ns) == (1, 1 << 20, 8 * MS, 8 * MS)
    (advice,) = pyanalyze.load(path).advise()
    (item,) = (one for one in advice.actions if one.action.startswith("Set less memory in train"))
    assert item.at_stake_ns == 10 * MS
    assert "copies and memsets were in flight without a kernel for 10.00 ms of 18.00 ms" in item.why
    assert item.why.endswith("Most of it: 1 memset, 1.00 MiB")


def test_records_that_end_before_the_work_show_no_rate(tmp_path: Path, corpus: Path) -> None:
    """4 GB in 1 us are 2,600 times what the memory of an A100 does; 100 MB in 1 ms beside it are 100 GB/s."""
    on_device = {"copyKind": 8, "srcKind": DEVICE, "dstKind": DEVICE}
    copies = [
        copy(41, 0, MS // 1000, bytes=4 * 10**9, **on_device),
        copy(41, MS, 2 * MS, bytes=100 * 10**6, **on_device),
    ]
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 3 * MS, 4 * MS)], copies=copies, processes={41: "train"})
    (kind,) = copies_of(path).kinds
    assert (kind.copies, kind.uncovered, kind.bytes_per_s, kind.best_bytes_per_s) == (2, 1, 1e11, 1e11)
    said = "The records of 1 of 2 copies of train do not cover their execution"
    assert said in render_markdown(pyanalyze.load(path).report())
    # Of a copy on the device the memory reads and writes each byte: at 9 TB/s it would do 18, of a host's only 9.
    for kind_of, uncovered in ((on_device, 1), ({"copyKind": TO_DEVICE, "srcKind": PINNED, "dstKind": DEVICE}, 0)):
        one = copy(41, 0, MS // 1000, bytes=9 * 10**6, **kind_of)
        made = write(
            tmp_path / f"{uncovered}.sqlite",
            kernels=[kernel(41, 3 * MS, 4 * MS)],
            copies=[one],
            processes={41: "train"},
        )
        (kind,) = copies_of(made).kinds
        assert kind.uncovered == uncovered
    # Without the bandwidth of the device nothing can be said.
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE TARGET_INFO_GPU SET memoryBandwidth = NULL")
    (kind,) = copies_of(path).kinds
    assert kind.uncovered == 0
    # One memset of 4 GB and three of 6.4 MB, whose 768 to 928 ns the memory at 672 GB/s would not do either.
    path = corpus / "exports" / "mordred" / "report1.nsys2026.sqlite"
    with closing(sqlite3.connect(path)) as db:
        query = """SELECT bytes FROM CUPTI_ACTIVITY_KIND_MEMSET, TARGET_INFO_GPU
            WHERE bytes * 1e9 / ("end" - start) > 10 * memoryBandwidth ORDER BY bytes"""
        assert db.execute(query).fetchall() == [(6_400_000,)] * 3 + [(4_000_000_000,)]
    sets = copies_of(path).memsets
    assert sets is not None
    assert (sets.count, sets.uncovered) == (16, 4)
    assert "The records of 4 of 16 memsets of testqo do not cover" in render_markdown(pyanalyze.load(path).report())


def test_unified_memory(tmp_path: Path) -> None:
    """Two migrations to the device by page fault, one ahead of time, and one back."""
    copies = [
        moved(0, 2, 2, MIGRATED, MANAGED, migrationCause=2),
        moved(1, 3, 2, MIGRATED, MANAGED, migrationCause=2),
        moved(5, 6, 2, MIGRATED, MANAGED, migrationCause=1),
        moved(9, 10, 1, MIGRATED_BACK, MANAGED, migrationCause=4),
    ]
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 2 * MS, 8 * MS)], copies=copies, processes={41: "train"})
    migrations = copies_of(path).migrations
    assert migrations is not None
    assert (migrations.to_device, migrations.to_device_bytes, migrations.to_host) == (3, 6_000_000, 1)
    assert (migrations.time_ns, migrations.exposed_ns) == (5 * MS, 3 * MS)
    assert (migrations.by_page_fault, migrations.by_page_fault_ns, migrations.evictions) == (2, 3 * MS, 1)
    text = " ".join(render_text(pyanalyze.load(path).report(), sections=("copies",)).split())
    assert "Unified memory of train: 3 migrations to the device" in text
    assert "took 5.000 ms, 50.0 % of its time" in text and "Page faults caused 2 of them (3.000 ms)" in text


def test_unified_memory_is_to_be_prefetched(tmp_path: Path) -> None:
    copies = [moved(0, 2, 2, MIGRATED, MANAGED, migrationCause=2)]
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 2 * MS, 8 * MS)], copies=copies, processes={41: "train"})
    (advice,) = pyanalyze.load(path).advise()
    (item,) = (one for one in advice.actions if one.action.startswith("Prefetch the unified memory of train"))
    assert item.at_stake_ns == 2 * MS and "1 migration (1 because of page faults) took" in item.why
    # One advice for one time.
    assert not any(one.action.startswith("Copy less") for one in advice.actions)


def test_faults_inside_kernels_and_what_comes_with_them_are_at_stake(tmp_path: Path) -> None:
    """In ms: kernel |2===8|; fault |1=2|, its speculative prefetch |2=4|, a prefetch of the program |8=9|, 10 in all."""
    copies = [
        moved(1, 2, 1, MIGRATED, MANAGED, migrationCause=2),
        moved(2, 4, 2, MIGRATED, MANAGED, migrationCause=3),
        moved(8, 9, 1, MIGRATED, MANAGED, migrationCause=1),
    ]
    kernels = [kernel(41, 2 * MS, 8 * MS), kernel(41, 10 * MS, 11 * MS)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, copies=copies, processes={41: "train"})
    migrations = copies_of(path).migrations
    assert migrations is not None
    assert (migrations.speculative, migrations.prefetches) == (1, 1)
    assert (migrations.faulted_ns, migrations.faulted_exposed_ns, migrations.exposed_ns) == (3 * MS, MS, 2 * MS)
    actions = pyanalyze.load(path).advise()[0].actions
    (item,) = (one for one in actions if one.action.startswith("Prefetch the unified memory of train"))
    said = (
        "2 migrations (1 because of page faults, 1 prefetched by the driver with these) took 3.000 ms, 1.000 ms of it"
    )
    assert said in item.why
    # A kernel that does not wait for faults gains more than migrations took: there is no bound, and nothing is open.
    assert (item.at_stake_ns, item.bound, item.wrong_if) == (3 * MS, None, None)
    # What the program prefetches is 1 of 2 ms without a kernel: the advice about faults leaves it to another item.
    assert any(one.action.startswith("Migrate less unified memory in train") for one in actions)
    text = " ".join(render_text(pyanalyze.load(path).report(), sections=("copies",)).split())
    assert "Page faults caused 1 of them (1.000 ms); 1 were prefetches of the program." in text
    assert "With these, the driver prefetched speculatively (1): 3.000 ms in all." in text


def test_prefetches_of_the_program_are_not_to_be_prefetched(tmp_path: Path) -> None:
    copies = [moved(0, 2, 2, MIGRATED, MANAGED, migrationCause=1)]
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 2 * MS, 8 * MS)], copies=copies, processes={41: "train"})
    assert not any(one.action.startswith("Prefetch") for one in pyanalyze.load(path).advise()[0].actions)
    # Without causes they may be that.
    copies = [moved(0, 2, 2, MIGRATED, MANAGED)]
    path = write(tmp_path / "b.sqlite", kernels=[kernel(41, 2 * MS, 8 * MS)], copies=copies, processes={41: "train"})
    (item,) = (one for one in pyanalyze.load(path).advise()[0].actions if one.action.startswith("Prefetch"))
    assert (item.at_stake_ns, item.wrong_if) == (2 * MS, "the migrations are prefetches already")


def test_speculative_prefetches_of_a_real_driver_come_with_faults(corpus: Path) -> None:
    """By SQL: each follows a fault within 1 ns, on the next page; two thirds of the time lie inside the kernel."""
    path = corpus / "exports" / "easycuda" / "nsys_easy.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        rows = database.execute(
            'SELECT start, "end", migrationCause, virtualAddress FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY start'
        ).fetchall()
        ((begin, until),) = database.execute('SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL')
    for fault, prefetch in zip(rows[::2], rows[1::2], strict=True):
        assert (fault[2], prefetch[2]) == (2, 3)
        assert (prefetch[0] - fault[1], prefetch[3] - fault[3]) == (1, 4096)
    whole = sum(end - start for start, end, *_ in rows)
    inside = sum(end - start for start, end, *_ in rows if begin <= start and end <= until)
    assert 2 * whole < 3 * inside
    migrations = copies_of(path).migrations
    assert migrations is not None
    assert (migrations.by_page_fault, migrations.speculative, migrations.prefetches) == (36, 36, 0)
    assert (migrations.faulted_ns, migrations.faulted_exposed_ns) == (whole, whole - inside)


@pytest.mark.parametrize("name", ["report2.sqlite", "report2.nsys2025.sqlite"])
def test_a_kernel_that_waits_for_page_faults_is_not_to_be_made_faster(corpus: Path, name: str) -> None:
    """By SQL: what was prefetched (64 migrations) moves back by faults of the host, and the kernel faults it in again."""
    path = corpus / "exports" / "aws_gpu" / name
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        ((begin, until),) = database.execute('SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_KERNEL')
        moved = database.execute(
            'SELECT start, "end", copyKind, migrationCause, bytes, virtualAddress FROM CUPTI_ACTIVITY_KIND_MEMCPY'
        ).fetchall()
    prefetched = [row for row in moved if row[3] == 1]
    assert {row[2] for row in prefetched} == {MIGRATED}
    whole = sum(row[4] for row in prefetched)
    first, last = min(row[5] for row in prefetched), max(row[5] + row[4] for row in prefetched)
    taken = [row for row in moved if row[2] == MIGRATED_BACK and row[0] < begin and first <= row[5] < last]
    assert sum(row[4] for row in taken) == whole == 128 << 20
    assert all(row[0] > max(row[1] for row in prefetched) for row in taken)
    # No two migrations overlap.
    inside = sum(max(min(row[1], until) - max(row[0], begin), 0) for row in moved if row[3] != 1)
    assert round(inside / (until - begin), 2) == 0.64
    session = pyanalyze.load(path)
    (split,), (copies,) = session.analysis.time_splits.values(), session.analysis.copies.values()
    assert split.top_kernel_faulting_ns == inside and split.waits_for_faults
    assert copies.migrations is not None and copies.migrations.prefetched_in_vain
    assert (copies.migrations.prefetched_bytes, copies.migrations.taken_back_bytes) == (whole, whole)
    actions = session.advise()[0].actions
    assert not any(one.action.startswith("Make kernel") for one in actions)
    (item,) = (one for one in actions if one.action.startswith("Prefetch the unified memory"))
    assert "after the host has written it: page faults of the host move it back before a kernel uses it" in item.action
    assert "in flight for 22.81 ms of 35.63 ms of kernel softmax_fused_1sc (64.0 %)" in item.why
    # Its only launch loads code: earlier or later, that takes the same time.
    assert any("load code before the part that counts, which moves that time" in one.action for one in actions)


def test_a_kernel_gains_no_more_than_migrations_leave_of_it(corpus: Path) -> None:
    """By SQL: of 2 337 721 ns of the kernel, 726 391 ns have migrations in flight."""
    (advice,) = pyanalyze.load(corpus / "exports" / "easycuda" / "nsys_easy.sqlite").advise()
    (item,) = (one for one in advice.actions if one.action.startswith("Make kernel add"))
    assert item.at_stake_ns == 2_337_721 - 726_391
    assert "prefetch first" in item.why


def test_results_that_the_host_reads_were_not_prefetched_in_vain(tmp_path: Path) -> None:
    """In ms: a prefetch |0=1|, a kernel |1=3|, a fault of the host |4=5|; then prefetch, fault, kernel."""
    size = 4 << 20

    def at(start: int, kind: int, cause: int) -> dict[str, Any]:
        return moved(start, start + 1, 4, kind, MANAGED, migrationCause=cause, bytes=size)

    copies = [at(0, MIGRATED, 1), at(4, MIGRATED_BACK, 2)]
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, MS, 3 * MS)], copies=copies, processes={41: "train"})
    migrations = copies_of(path).migrations
    assert migrations is not None
    assert (migrations.prefetched_bytes, migrations.taken_back_bytes) == (size, 0)
    (item,) = (one for one in pyanalyze.load(path).advise()[0].actions if one.action.startswith("Prefetch"))
    assert "to the device already: what still faults is other memory" in item.why
    copies += [at(6, MIGRATED, 1), at(8, MIGRATED_BACK, 2)]
    kernels = [kernel(41, MS, 3 * MS), kernel(41, 10 * MS, 12 * MS, correlationId=2)]
    migrations = copies_of(
        write(tmp_path / "b.sqlite", kernels=kernels, copies=copies, processes={41: "train"})
    ).migrations
    assert migrations is not None
    assert (migrations.prefetched_bytes, migrations.taken_back_bytes) == (2 * size, size)


def test_migrations_are_not_called_copies_of_the_program(tmp_path: Path) -> None:
    """In ms: a migration |0=2|, a kernel |2=3|; then a copy of the program |3=4| as well."""
    one = moved(0, 2, 2, MIGRATED, MANAGED, migrationCause=2)
    kernels = [kernel(41, 2 * MS, 3 * MS)]
    path = write(tmp_path / "a.sqlite", kernels=kernels, copies=[one], processes={41: "train"})
    for text in (render_text(pyanalyze.load(path).report()), run("summary", path).stdout):
        words = " ".join(text.split())
        assert "train is limited by migrations: they were in flight, without a kernel, for 66.7 % of its time" in words
        assert "copies and memsets" not in words.lower()
    copies = [one, moved(3, 4, 1, TO_HOST, PINNED, migrationCause=None)]
    path = write(tmp_path / "b.sqlite", kernels=kernels, copies=copies, processes={41: "train"})
    words = " ".join(render_text(pyanalyze.load(path).report()).split())
    assert "train is limited by copies, memsets and migrations: they" in words


def test_small_copies_of_pageable_memory_are_staged(tmp_path: Path) -> None:
    copies = [moved(n, n + 1, 0, TO_HOST, PAGEABLE, bytes=64) for n in range(1, 9)]
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 0, MS)], copies=copies, processes={41: "train"})
    (advice,) = pyanalyze.load(path).advise()
    assert not any("pinned" in one.action for one in advice.actions)


def test_a_process_of_an_undetermined_device_is_told_what_limits_it(corpus: Path) -> None:
    (advice,) = pyanalyze.load(corpus / "exports" / "rtx3090-gpumetrics" / "report2.nsys2023.sqlite").advise()
    # By counter the SMs worked for somebody else: who it is comes before what the process can gain by itself.
    assert advice.actions[0].action == (
        "Find what else runs on this GPU: its SMs were active without a kernel of my_gemm"
    )
    assert advice.actions[1].action == "Profile the host code of my_gemm: the GPU waits for it"
    assert any(one.action.startswith("Not enough data") for one in advice.actions[2:])


def test_the_command_shows_copies(tmp_path: Path) -> None:
    path = mixed(tmp_path / "a.sqlite")
    shown = run("streams", path)
    assert shown.returncode == 0 and "to the device, pageable" in shown.stdout and "8.0 GB/s" in shown.stdout
    (device,) = json.loads(run("streams", path, "-f", "json").stdout)["devices"]
    assert [kind["host_memory"] for kind in device["tenants"][0]["copies"]["kinds"]] == [
        "pageable",
        "pinned",
        "pageable",
    ]


@pytest.mark.parametrize(
    "name", ["test-cuda-4streams/report2.sqlite", "raiderstream/report1.nsys2023.sqlite", "mordred/report1.sqlite"]
)
def test_copies_of_real_captures(corpus: Path, name: str) -> None:
    path = corpus / "exports" / name
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        counted = database.execute(
            "SELECT copyKind, CASE copyKind WHEN 1 THEN srcKind WHEN 2 THEN dstKind END, COUNT(*), SUM(bytes) "
            "FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind IN (1, 2) GROUP BY 1, 2"
        ).fetchall()
    memory = {PAGEABLE: "pageable", PINNED: "pinned"}
    truth = {
        ({1: "to-device", 2: "to-host"}[kind], memory.get(side, "other")): (n, size) for kind, side, n, size in counted
    }
    found: dict[tuple[str, str | None], tuple[int, int]] = {}
    for copies in pyanalyze.load(path).analysis.copies.values():
        for one in copies.kinds:
            if one.direction in ("to-device", "to-host"):
                n, size = found.get((one.direction, one.host_memory), (0, 0))
                found[one.direction, one.host_memory] = (n + one.copies, size + one.bytes)
    assert found == truth


def test_no_mean_rate_is_above_the_fastest(hardware: Path) -> None:
    """Pinned copies of 256 KiB to the host reach 26 GB/s, the only ones of 1 MiB are pageable and reach 15."""
    (found,) = pyanalyze.load(hardware / "streams-A-B.sqlite").analysis.copies.values()
    known = [(kind.best_bytes_per_s or 0.0, kind.bytes_per_s or 0.0) for kind in found.kinds]
    assert len(known) == 3
    assert all(best >= mean > 0 for best, mean in known)
    (pinned,) = [kind for kind in found.kinds if kind.direction == "to-host" and kind.host_memory == "pinned"]
    with closing(sqlite3.connect(hardware / "streams-A-B.sqlite")) as export:
        ((mean,),) = export.execute(
            'SELECT sum(bytes) * 1e9 / sum("end" - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 2 AND dstKind = 1'
        )
    assert pinned.best_bytes_per_s == pytest.approx(mean)


def test_a_rate_stands_beside_the_size_of_the_copies(tmp_path: Path) -> None:
    """48 copies of 64 KiB and one of 16 MiB: their mean size, 397 KiB, is that of none. 12 copies of one size."""
    copies = [moved(2 * n, 2 * n + 1, 0, TO_DEVICE, PINNED, bytes=64 * 1024) for n in range(48)]
    copies.append(moved(100, 101, 0, TO_DEVICE, PINNED, bytes=16 << 20))
    copies += [moved(110 + n, 111 + n, 0, TO_HOST, PINNED, bytes=64 * 1024) for n in range(12)]
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 0, 2 * MS)], copies=copies, processes={41: "train"})
    there, back = copies_of(path).kinds
    assert (there.median_bytes, there.largest_bytes) == (64 * 1024, 16 << 20)
    assert (back.median_bytes, back.largest_bytes) == (64 * 1024, 64 * 1024)
    text = " ".join(render_markdown(pyanalyze.load(path).report()).split())
    assert "to the device, pinned | 49 | 64.0 KiB (largest 16.0 MiB) |" in text
    assert "to the host, pinned | 12 | 64.0 KiB |" in text
    assert "of this process in the same direction" in text


def test_of_few_copies_both_ends_are_told(tmp_path: Path) -> None:
    """The median of 2 B and 376 MiB, the lower one, is as good as none; of five copies there is one."""
    sizes = {TO_DEVICE: (376 << 20, 2), TO_HOST: (4096, 1 << 20, 64, 4096, 1 << 20)}
    copies = [
        moved(10 * n, 10 * n + 1, 0, kind, PINNED, bytes=size)
        for n, (kind, size) in enumerate((kind, size) for kind, all_ in sizes.items() for size in all_)
    ]
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 0, 2 * MS)], copies=copies, processes={41: "train"})
    assert {kind.direction: kind.smallest_bytes for kind in copies_of(path).kinds} == {"to-device": 2, "to-host": 64}
    text = " ".join(render_markdown(pyanalyze.load(path).report()).split())
    assert "| Size | p50; below 5 copies, the smallest and the largest |" in text
    assert "to the device, pinned | 2 | 2 B to 376 MiB |" in text
    assert "to the host, pinned | 5 | 4.00 KiB (largest 1.00 MiB) |" in text


def test_few_copies_with_most_of_the_time_are_told(corpus: Path) -> None:
    """By SQL: the two longest of 2 002 copies to the host have 199.1 of 202.1 ms, one alone less than 90 %."""
    path = corpus / "exports" / "gpubootcamp-8v100" / "report1.nsys2026.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        durations = [
            ns
            for (ns,) in database.execute(
                'SELECT "end" - start FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind = 2 ORDER BY 1 DESC'
            )
        ]
    assert durations[0] < 0.9 * sum(durations) < sum(durations[:2])
    session = pyanalyze.load(path)
    (copies,) = session.analysis.copies.values()
    (kind,) = (one for one in copies.kinds if one.direction == "to-host")
    assert (kind.copies, kind.long_copies, kind.largest_bytes) == (2002, 2, 1 << 30)
    assert kind.long_share == pytest.approx(sum(durations[:2]) / sum(durations))
    (item,) = (one for one in session.advise()[0].actions if one.action.startswith("Copy less in jacobi"))
    assert "2 of them have 98.5 % of the time" in item.why
    # They are the only large ones: the better of the two says nothing of the link beside the mean of both.
    assert kind.large_copies == 2 and "best rate" not in item.why


def test_the_largest_part_below_a_half_is_not_most_of_it(tmp_path: Path) -> None:
    """Without a kernel: 3 ms to the device, 2 to the host, 2 of memory of the device. Then 3 of 4 ms to the device."""
    three = [
        moved(0, 3, 16, TO_DEVICE, PINNED),
        moved(3, 5, 16, TO_HOST, PINNED),
        moved(5, 7, 16, 8, DEVICE),
    ]
    for copies, said in (
        (three, "The largest part: 1 copy to the device"),
        (three[:1], "Most of it: 1 copy to the dev"),
    ):
        path = write(
            tmp_path / f"{len(copies)}.sqlite",
            kernels=[kernel(41, 7 * MS, 9 * MS)],
            copies=copies,
            processes={41: "train"},
        )
        (item,) = (
            one for one in pyanalyze.load(path).advise()[0].actions if one.action.startswith("Copy less in train")
        )
        assert f". {said}" in item.why


@pytest.mark.parametrize(
    ("sizes", "other", "told"),
    [((16, 12), None, False), ((16, 16, 12), None, True), ((16, 12), PAGEABLE, True)],
)
def test_a_best_rate_is_told_beside_enough_copies(
    tmp_path: Path, sizes: tuple[int, ...], other: int | None, *, told: bool
) -> None:
    """Pinned copies of 2 ms each, at 8 and 6 GB/s; one of pageable memory, at 2 GB/s for 1 ms, is a rate to compare."""
    copies = [moved(2 * n, 2 * n + 2, size, TO_DEVICE, PINNED) for n, size in enumerate(sizes)]
    if other is not None:
        copies.append(moved(10, 11, 2, TO_DEVICE, other))
    path = write(tmp_path / "a.sqlite", kernels=[kernel(41, 12 * MS, 15 * MS)], copies=copies, processes={41: "train"})
    (item,) = (one for one in pyanalyze.load(path).advise()[0].actions if one.action.startswith("Copy less in train"))
    assert ("; the best rate in that direction is 8.0 GB/s" in item.why) == told


def test_a_best_rate_of_smaller_copies_is_not_called_one_of_a_large_copy(hardware: Path) -> None:
    """By SQL: no pinned copy to the host has 1 MiB, those of 256 KiB are faster than the large pageable ones."""
    path = hardware / "mps-50-50-A-B.sqlite"
    with closing(sqlite3.connect(path)) as export:
        ((large,),) = export.execute(
            'SELECT max(bytes * 1e9 / ("end" - start)) FROM CUPTI_ACTIVITY_KIND_MEMCPY '
            "WHERE copyKind = 2 AND bytes >= 1048576 AND globalPid >> 24 & 0xFFFFFF = 2340"
        )
    kinds = pyanalyze.load(path).analysis.copies[0, 0].kinds
    (pinned,) = (one for one in kinds if one.direction == "to-host" and one.host_memory == "pinned")
    assert pinned.largest_bytes == 256 * 1024 and pinned.best_bytes_per_s is not None
    assert pinned.best_bytes_per_s > large
    text = " ".join(render_text(pyanalyze.load(path).report(), sections=("copies",)).split())
    assert "of at least 1 MiB of this process in the same direction, or of a row if that is higher" in text


def test_copies_of_another_device_at_the_same_time_are_told(tmp_path: Path, corpus: Path) -> None:
    """In ms: device 0 copies from 0 to 10 and 20 to 30, device 1 from 5 to 12; a quarter of 20 is not most, 5 of 7 are."""
    gpus = [
        A100,
        A100 | {"id": 1, "cuDevice": 1, "uuid": "22222222-2222-3333-4444-555555555555", "busLocation": "0000:3b:00.0"},
    ]
    path = write(
        tmp_path / "two.sqlite",
        processes={7: "a", 8: "b"},
        gpus=gpus,
        kernels=[kernel(7, 31 * MS, 32 * MS), kernel(8, 13 * MS, 14 * MS, deviceId=1)],
        copies=[copy(7, 0, 10 * MS), copy(7, 20 * MS, 30 * MS), copy(8, 5 * MS, 12 * MS, deviceId=1)],
    )
    first, second = (device.tenants[0].copies for device in pyanalyze.load(path).report().devices)
    assert first is not None and second is not None
    assert (first.host_ns, first.other_devices) == (20 * MS, [])
    assert second.host_ns == 7 * MS
    assert [(one.device_id, one.overlap_ns) for one in second.other_devices] == [(0, 5 * MS)]
    # By SQL, of two ranks that copy weights: 906.7 of 920.9 ms.
    page = run("report", corpus / "exports" / "nsys-ai" / "h100_2gpu_1s.sqlite", "-f", "md").stdout
    for device, other, own in ((0, 1, "920.9"), (1, 0, "920.8")):
        assert f"from and to the host took {own} ms. Most of that time other devices copied as well" in page
        assert f"(device {other}: 906.7 ms)" in page
        assert f"share the host link or host memory with those of device {other} at the same time." in page, device


def test_copies_of_pageable_memory_are_not_told_to_be_asynchronous_alone(corpus: Path) -> None:
    """By SQL nearly all copies are of pageable memory: in a stream of their own they hold the host all the same."""
    path = corpus / "exports" / "pipit" / "perlmutter-cloverleaf-cuda.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        ((pageable, copies),) = database.execute(
            "SELECT sum(0 IN (srcKind, dstKind)), count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE copyKind IN (1, 2)"
        )
    assert pageable > 0.9 * copies > 200
    (item,) = (
        one
        for one in pyanalyze.load(path).advise()[0].actions
        if one.action.startswith("Spend less time in cudaMemcpy")
    )
    assert item.action.endswith(": copy from and to pinned memory, asynchronously, in a stream of its own")


def test_memory_of_the_hosts_side_is_named(tmp_path: Path) -> None:
    """By CUPTI's kinds: 4 managed, 2 device, 7 unknown. Half a copy between devices has its other half on another one."""
    copies = [
        moved(0, 1, 1, TO_DEVICE, MANAGED, correlationId=5),
        moved(2, 3, 1, TO_HOST, DEVICE, correlationId=6),
        moved(4, 5, 1, TO_DEVICE, DEVICE, correlationId=6),
        moved(6, 7, 1, TO_HOST, 7, correlationId=7),
        moved(8, 9, 1, TO_HOST, DEVICE, correlationId=8),
        moved(10, 11, 1, TO_DEVICE, DEVICE, correlationId=8, deviceId=1),
    ]
    gpus = [A100, A100 | {"id": 1, "cuDevice": 1, "uuid": "21111111-2222-3333-4444-555555555555"}]
    path = write(
        tmp_path / "a.sqlite", kernels=[kernel(41, 12 * MS, 13 * MS)], copies=copies, gpus=gpus, processes={41: "train"}
    )
    session = pyanalyze.load(path)
    found = {
        device: [(str(kind.direction), kind.host_memory and str(kind.host_memory), kind.copies) for kind in one.kinds]
        for (device, _), one in session.analysis.copies.items()
    }
    assert sorted(found[0], key=str) == [
        ("to-device", "device", 1),
        ("to-device", "managed", 1),
        ("to-host", "device", 1),
        ("to-host", "other", 1),
        ("to-peer", None, 1),
    ]
    assert found[1] == [("from-peer", None, 1)]
    page = render_markdown(session.report())
    for said in (
        "to the device, unified memory",
        "to the host, memory of unknown kind",
        "to the host, recorded as device memory",
    ):
        assert said in page


def test_what_copies_on_the_device_reach_is_not_said_of_the_link(corpus: Path) -> None:
    """By SQL 14.4 GB from pinned memory at 27.7 GB/s, and as much on the device at 1.5 TB/s."""
    path = corpus / "exports" / "nsys-ai" / "h100_2gpu_1s.sqlite"
    page = run("report", path, "-f", "md").stdout
    assert "Except on the device, the link can do at least the best rate." in page
    assert "The link can do" not in page


def test_the_rate_of_copies_on_the_device_counts_bytes_once(hardware: Path) -> None:
    """By SQL 6.43 GB copied in 4.82 ms: 1333.5 GB/s, of 3352 that the memory can read and write together."""
    page = run("report", hardware / "torch-alone-train.sqlite", "-f", "md").stdout
    assert "| 1333.5 GB/s |" in page
    assert "Rate (bytes copied over the sum of durations)" in page
    assert "Copies on the device read and write each byte: memory traffic is twice their rate." in page
    # This one copies from and to the host only.
    assert "read and write each byte" not in run("report", hardware / "slices-A-B.sqlite", "-f", "md").stdout


def test_memsets_beside_counters_are_a_part_of_all(hardware: Path) -> None:
    """By SQL 1 347; the last one ran behind the last sample, so that one page gave two numbers."""
    path = hardware / "torch-alone-train.sqlite"
    with closing(sqlite3.connect(path)) as database:
        ((memsets,),) = database.execute("SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMSET")
    page = run("report", path, "-f", "md").stdout.replace("\u202f", " ")
    assert memsets == 1347
    assert "memsets | 1 347 |" in page
    assert "the counters include 1 346 of 1 347 memsets" in page


def test_waits_for_small_copies_to_the_device_are_named(corpus: Path) -> None:
    """By SQL: each copy of 8 pageable bytes is followed by a wait in which its thread does nothing else, 163.6 ms in all."""
    path = corpus / "exports" / "nsys-ai" / "mfu_2gpu_before.sqlite"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        copies = database.execute(
            'SELECT r.globalTid, r."end", m."end" - m.start, bytes, srcKind FROM CUPTI_ACTIVITY_KIND_MEMCPY m '
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = m.correlationId "
            "AND r.globalTid >> 24 = m.globalPid >> 24 WHERE copyKind = 1 AND deviceId = 0"
        ).fetchall()
        waited_ns = 0
        for thread, returned, length, size, memory in copies:
            name, start, end = database.execute(
                'SELECT value, start, "end" FROM CUPTI_ACTIVITY_KIND_RUNTIME JOIN StringIds ON id = nameId '
                "WHERE globalTid = ? AND start >= ? ORDER BY start LIMIT 1",
                (thread, returned),
            ).fetchone()
            assert (name, size, memory) == ("cudaStreamSynchronize_v3020", 8, PAGEABLE)
            waited_ns += end - start - length
    session = pyanalyze.load(path)
    waits = session.analysis.time_splits[0, 0].upload_waits
    assert waits is not None
    assert (waits.count, waits.largest_bytes, waits.call) == (len(copies), 8, "cudaStreamSynchronize")
    assert waits.waited_ns == waited_ns and round(waited_ns / MS, 1) == 163.6
    (item,) = (one for one in session.advise()[0].actions if one.action.startswith("Do not wait for small copies"))
    assert (
        "16 copies of at most 8 B of pageable memory made the host wait for 163.6 ms in cudaStreamSynchronize"
        in item.why
    )


def test_copies_behind_which_the_host_goes_on_are_not_waited_for(tmp_path: Path) -> None:
    """In us, every 300: a launch and its kernel |0=100|, a copy called at 10 that runs |100=101|; then a wait or a launch.

    The wait returns at 101, its copy begins after 90 us of it: 10 times 90 us. The device is idle until 300.
    """
    for waits in (True, False):
        kernels, copies, calls = [], [], []
        for n in range(10):
            at = n * 300 * US
            kernels.append(kernel(41, at + 2 * US, at + 100 * US, correlationId=n + 1))
            copies.append(
                copy(41, at + 100 * US, at + 101 * US, correlationId=100 + n, bytes=8, copyKind=1, srcKind=PAGEABLE)
            )
            calls.append(call(41, at, at + US, n + 1))
            calls.append(call(41, at + 5 * US, at + 10 * US, 100 + n, "cudaMemcpyAsync_v3020"))
            if waits:
                calls.append(call(41, at + 10 * US, at + 101 * US, 0, "cudaStreamSynchronize_v3020"))
        path = write(tmp_path / f"{waits}.sqlite", kernels=kernels, copies=copies, calls=calls, processes={41: "train"})
        (split,) = pyanalyze.load(path).analysis.time_splits.values()
        found = split.upload_waits
        assert (found is not None) == waits
        if found is not None:
            # Behind the last copy nothing follows.
            assert (found.count, found.waited_ns, found.idle_ns) == (10, 10 * 90 * US, 9 * 201 * US)
        actions = [one.action for one in pyanalyze.load(path).advise()[0].actions]
        assert any(one.startswith("Do not wait for small copies to the device in train") for one in actions) == waits
