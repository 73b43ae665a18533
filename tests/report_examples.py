"""Reports and tables made by hand, for the tests of everything that shows an answer.

The time-slicing figures are those of a published two-process capture on an RTX 6000 Ada (606 and 607 slices,
median 2.131 ms, 42.7 us from save to restore, 1230.8 of 2511.7 ms resident); the rest is made up around them.
"""

from __future__ import annotations

import polars as pl

from pyanalyze.results.advice import Advice
from pyanalyze.results.interference import Causes, Estimate, ExecutionSplit, Interference, MatrixCell, Slowdown
from pyanalyze.results.model import Missing
from pyanalyze.results.occupancy import Bounded, Occupancy
from pyanalyze.results.report import Capture, Clock, Device, Memory, QualityRow, Report, Tenant, Tool, View, Window
from pyanalyze.results.residency import ContextSwitches, ResidencySummary, ResidencyTotals, SwitchPart
from pyanalyze.results.sharing import Alternative, Detail, Evidence, Example, Relation, Segment, Sharing
from pyanalyze.results.work import Batch, Configuration, Work
from pyanalyze.vocabulary import Mode

START = 1_204_118_277
LENGTH = 2_511_700_000
SLICE = 2_131_000
GAP = 42_700

HOSTILE = {
    "tag": "<script>alert(1)</script>",
    "comment": "--><!--<svg onload=alert(1)>",
    "close": "</script><img src=x onerror=alert(1)>",
    "quotes": "\"'`${alert(1)}{{7*7}}",
    "bidi": "user\u202egnp.exe\u2066\u2069\u200f",
    "control": "nul\0bell\x07esc\x1b[31mred\r\nfake: line\u2028x\x85",
    "surrogate": "lone\ud800half",
    "markdown": "| a | `b` [x](http://evil.example/) @everyone #1 **bold**",
    "long": "k" * 10_000,
}

NO_SLOWDOWN = Slowdown(elapsed=None, latency=None, resident=None)


def tenant(tenant_id: int, name: str, pid: int | None = None, **values: object) -> Tenant:
    """A tenant of which nothing is known but what is given."""
    fields: dict[str, object] = {
        "capture": 0,
        "pid": pid,
        "host_pid": None,
        "container": None,
        "pod": None,
        "contexts": [1],
        "busy_ns": None,
        "resident_ns": None,
        "attributed_ns": None,
        "slices": None,
        "median_slice_ns": None,
        "sm_share": None,
        "occupancy": None,
        "memory_peak_bytes": None,
        "slowdown": NO_SLOWDOWN,
        "causes": None,
    }
    resident_ns = values.get("resident_ns")
    if isinstance(resident_ns, int):
        fields |= {"gpu_time_share": resident_ns / LENGTH, "gpu_time_basis": "observed"}
    return Tenant.model_validate({**fields, "tenant_id": tenant_id, "name": name, **values})


def _device(**values: object) -> Device:
    fields: dict[str, object] = {
        "device_id": 0,
        "uuid": None,
        "gpu_uuid": None,
        "window": None,
        "memory": None,
        "name": None,
        "sm_count": None,
        "compute_capability": None,
        "mig": None,
        "relations": [],
        "segments": [],
        "context_switches": None,
        "tenants": [],
        "occupancy": None,
        "interference": None,
        "advice": [],
    }
    return Device.model_validate({**fields, **values})


def time_sliced(*, synthetic: bool = False) -> Report:
    """Two time-sliced processes; one of them is not traced."""
    victim = tenant(
        0,
        "compute_victim",
        30428,
        host_pid=30428,
        busy_ns=LENGTH,
        resident_ns=1_230_800_000,
        attributed_ns=1_230_800_000,
        slices=606,
        median_slice_ns=2_131_000,
        sm_share=0.52,
        occupancy=0.49,
        memory_peak_bytes=3 * 2**30,
        slowdown=Slowdown(
            elapsed=Estimate(value=2.0408, low=1.98, high=2.10, n=606, basis="inferred"),
            latency=Estimate(value=2.05, low=None, high=None, n=1, basis="inferred"),
            resident=Estimate(value=1.01, low=0.99, high=1.03, n=606, basis="inferred"),
        ),
        causes=Causes(
            launch=0.001,
            queue=0.0,
            not_resident=0.955,
            switch=0.041,
            execution=0.003,
            unexplained=0.0,
            execution_split=ExecutionSplit(sm_slots=0.0, memory=0.003, copy=0.0, clock=None, uvm=None, unexplained=0.0),
        ),
        work=Work(
            launches=1,
            graph_launches=0,
            copies=0,
            copy_bytes=None,
            residency_known=True,
            configurations=[
                Configuration(
                    key="0123456789abcdef",
                    kernel="spin",
                    grid_blocks=142,
                    block_threads=256,
                    launches=1,
                    total_ns=LENGTH,
                    attributed_total_ns=1_230_800_000,
                )
            ],
            other_launches=0,
            other_ns=0,
            startup_ns=0,
            batches=[
                Batch(
                    launches=1,
                    idle_ns=0,
                    idle_not_resident_ns=0,
                    idle_other_resident_ns=0,
                    busy_ns=LENGTH,
                    attributed_ns=1_230_800_000,
                )
            ],
        ),
    )
    untraced = tenant(1, "pid 30398 (not traced)", None, host_pid=30398, capture=None, resident_ns=1_233_600_000)
    evidence = [
        Evidence(
            name="switches_between_busy_contexts",
            supports=[Mode.TIME_SLICING],
            against=[Mode.MPS, Mode.EXCLUSIVE, Mode.MIG],
            value=1212,
            unit="1",
            n=2430,
            weight=4.2,
            basis="observed",
            detail="two hardware contexts restored in turn, both with slices of about 2 ms",
            sql="SELECT tag, COUNT(*) FROM GPU_CONTEXT_SWITCH_EVENTS GROUP BY tag",
            examples=[
                Example(capture=0, start_ns=START, end_ns=START + SLICE, pid=30428, correlation_id=None),
            ],
        ),
        Evidence(
            name="median_slice",
            supports=[Mode.TIME_SLICING],
            against=[],
            value=SLICE,
            unit="ns",
            n=1213,
            weight=1.1,
            basis="observed",
            detail="606 and 607 complete slices, medians 2.131 and 2.135 ms",
            sql=None,
            examples=[],
        ),
        Evidence(
            name="co_resident",
            supports=[],
            against=[Mode.MPS, Mode.MPS_PARTITIONED],
            value=0.0,
            unit="fraction",
            n=1213,
            weight=1.0,
            basis="inferred",
            detail="the contexts were never resident together",
            sql=None,
            examples=[],
        ),
        Evidence(
            name="short_kernels_overlapping",
            supports=[],
            against=[],
            value=None,
            unit="fraction",
            n=0,
            weight=0.0,
            basis="observed",
            detail="not available: only one of the tenants was traced",
            sql=None,
            examples=[],
        ),
    ]
    sharing = Sharing(
        mode=Mode.TIME_SLICING,
        confidence=0.97,
        basis="observed",
        configured=Mode.MPS,
        agrees=False,
        summary="Two processes were time-sliced on the whole GPU in slices of about 2 ms. "
        "Calibrated on 480 simulated and 14 real captures.",
        evidence=evidence,
        details=[
            Detail(
                topic="time-slicing",
                name="slice",
                value=2_131_000.0,
                unit="ns",
                basis="observed",
                detail="median stay on the engine 2.13 ms",
            )
        ],
        alternatives=[
            Alternative(
                mode=Mode.MPS, confidence=0.02, why_not="MPS clients share one context; here two were time-sliced"
            ),
            Alternative(mode=Mode.EXCLUSIVE, confidence=0.01, why_not="a second context was resident 49 % of the time"),
        ],
        missing=[
            Missing(
                what="kernels of pid 30398",
                why="nsys followed only one of the two processes",
                how="nsys profile --gpuctxsw=true --cuda-trace-scope=system-wide …",
            ),
            Missing(
                what="gpu_metrics",
                why="no hardware counters were sampled",
                how="nsys profile --gpu-metrics-devices=0",
            ),
        ],
    )
    device = _device(
        uuid="GPU-5e1f0a4c-0000-1111-2222-333344445555",
        gpu_uuid="GPU-5e1f0a4c-0000-1111-2222-333344445555",
        window=Window(start_ns=START, end_ns=START + LENGTH),
        memory=Memory(total_bytes=48 * 2**30, peak_bytes=6 * 2**30),
        name="NVIDIA RTX 6000 Ada Generation",
        sm_count=142,
        compute_capability="8.9",
        sharing=sharing,
        relations=[Relation(tenants=(0, 1), relation="time-sliced", confidence=0.97, co_busy_ns=None)],
        segments=[Segment(start_ns=START, end_ns=START + LENGTH, mode=Mode.TIME_SLICING, confidence=0.97)],
        context_switches=ContextSwitches(
            count=1212,
            context_creations=2,
            median_slice_ns=SLICE,
            median_cost_ns=GAP,
            mean_cost_ns=43_100.5,
            cost_kind="gap",
            total_cost_ns=52_237_806,
            gap=SwitchPart(median_ns=GAP, total_ns=52_237_806),
            overhead_fraction=52_237_806 / LENGTH,
            endings={"unknown": 1213},
            dropped=0,
        ),
        residency_summary=ResidencySummary(
            basis="observed",
            resident_ns=2_455_000_000,
            idle_ns=4_000_000,
            median_save_ns=None,
            median_restore_ns=None,
            time_slice_ns=SLICE,
            policy="default",
            jain=0.999,
            tenants=[
                ResidencyTotals(
                    tenant_id=tenant,
                    slices=606,
                    cut_slices=1,
                    gpu_time_share=0.5,
                    idle_ns=idle,
                    idle_share=share,
                    p10_slice_ns=SLICE,
                    median_slice_ns=SLICE,
                    p90_slice_ns=SLICE,
                    max_slice_ns=SLICE,
                    expired=605,
                    yielded=1,
                )
                for tenant, idle, share in ((0, 1_000_000, 0.001), (1, None, None))
            ],
        ),
        tenants=[victim, untraced],
        occupancy=Occupancy(
            sm_active=Bounded(value=0.49, low=0.42, high=0.49),
            warps=Bounded(value=0.33, low=0.15, high=0.35),
            whole_graphs=0.0,
            limiters={"registers": 0.8, "warps": 0.2},
            basis="modelled",
            calibration=None,
            check_against_counters=None,
            check_against_blocks=None,
        ),
        interference=Interference(
            antt=2.0408,
            stp=0.98,
            jain=1.0,
            matrix=[MatrixCell(victim=0, aggressor=1, slowdown=2.0408, low=1.98, high=2.1, n=606)],
        ),
        advice=[
            Advice(
                action="Share through MPS instead of time slices: configured, but not in effect",
                commands=["export CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", "nvidia-cuda-mps-control -d"],
                expected=None,
                bound="at most 1.94x throughput, if both fit beside each other",
                why="slices alternate although each tenant fills half of the warp slots",
                undo="echo quit | nvidia-cuda-mps-control",
            )
        ],
    )
    quality = [
        QualityRow(name="switch_end_without_start", severity="info", count=1, detail="pid 30398, at the beginning"),
        QualityRow(name="no_pids", severity="notice", count=3, detail="rows of GPU 0"),
    ]
    if synthetic:
        quality.append(QualityRow(name="synthetic_capture", severity="info", count=1, detail="made by the generator"))
    return Report(
        tool=Tool(version="0.1.0"),
        clock=Clock(origin_utc_ns="1763728991123456789", uncertainty_ns=1_000_000),
        captures=[
            Capture(
                path="runs/node7/report1.sqlite",
                nsys_version="2026.1.1.204",
                schema_version="3.25.0",
                start_ns=0,
                end_ns=4_200_000_000,
                clock_offset_ns=0,
                clock_uncertainty_ns=0,
            )
        ],
        quality=quality,
        devices=[device],
        view=View(start_ns=START, end_ns=None, gpu=None, redacted=False),
    )


def undetermined() -> Report:
    """Nothing could be looked at."""
    missing = [
        Missing(what=what, why="no context-switch records", how="nsys profile --gpuctxsw=true, as root")
        for what in ("context_switches", "interference", "slowdown")
    ]
    missing += [
        Missing(what="occupancy", why="the SM count is not known", how=""),
        Missing(what="window", why="no activity was recorded", how="nsys profile -t cuda"),
    ]
    sharing = Sharing(
        mode=Mode.UNDETERMINED,
        confidence=0.41,
        basis="inferred",
        configured=None,
        agrees=None,
        summary="Nothing in the capture shows who else was on the GPU.",
        evidence=[],
        alternatives=[
            Alternative(mode=Mode.EXCLUSIVE, confidence=0.41, why_not="nothing would have shown a second process")
        ],
        missing=missing,
    )
    return Report(
        tool=Tool(version="0.1.0"),
        clock=Clock(origin_utc_ns=None, uncertainty_ns=None),
        captures=[
            Capture(
                path="old.sqlite",
                nsys_version=None,
                schema_version=None,
                start_ns=None,
                end_ns=None,
                clock_offset_ns=None,
                clock_uncertainty_ns=None,
            )
        ],
        quality=[],
        devices=[_device(sharing=sharing, tenants=[tenant(0, "python", 77)])],
    )


def hostile() -> Report:
    """The time-slicing report with every free text replaced by something that attacks a renderer."""
    report = time_sliced()
    device = report.devices[0]
    names = list(HOSTILE.values())
    # Prose and commands are written by us around names that were shortened before: no ten kilobytes there.
    prose = [name if len(name) < 1000 else "prose" for name in names]
    tenants = [
        tenant(i, name, 100 + i, host_pid=i, container=name, pod=name, busy_ns=1000 * i, resident_ns=900 * i)
        for i, name in enumerate(names)
    ]
    everything = " ".join(names[:-1])
    sharing = device.sharing.model_copy(
        update={
            "summary": everything.encode("utf-8", "replace").decode(),
            "evidence": [
                Evidence.model_validate(
                    {**device.sharing.evidence[0].model_dump(), "name": n, "detail": p, "sql": p, "unit": n}
                )
                for n, p in zip(names, prose, strict=True)
            ],
            "details": [
                Detail(topic="mps", name=n, value=1.0, unit=n, basis="observed", detail=p)
                for n, p in zip(names, prose, strict=True)
            ],
            "alternatives": [Alternative(mode=Mode.MPS, confidence=0.1, why_not=p) for p in prose],
            "missing": [Missing(what=n, why=p, how=p) for n, p in zip(names, prose, strict=True)],
        }
    )
    broken = device.model_copy(
        update={
            "name": names[0],
            "uuid": names[1],
            "tenants": tenants,
            "sharing": sharing,
            "advice": [Advice(action=n, commands=[n], expected=n, bound=n, why=n, undo=n) for n in prose],
        }
    )
    captures = [
        Capture.model_validate({**report.captures[0].model_dump(), "path": n, "nsys_version": n, "schema_version": n})
        for n in names
    ]
    quality = [QualityRow(name=n, severity="data-loss", count=1, detail=p) for n, p in zip(names, prose, strict=True)]
    return report.model_copy(update={"devices": [broken], "captures": captures, "quality": quality})


def timeline(slices: int = 1213, names: tuple[str, str] = ("spin", "spin")) -> pl.DataFrame:
    """The ``timeline`` table of the time-slicing report: two contexts in turn, one traced kernel."""
    rows: list[tuple[object, ...]] = []
    for i in range(slices):
        start = START + i * LENGTH // slices
        end = start + LENGTH // slices - min(GAP, LENGTH // slices // 4) if i + 1 < slices else START + LENGTH
        rows.append((0, i % 2, "residency", start, end, end - start, 1, None))
    rows.append((0, 0, "kernels", START, START + LENGTH, LENGTH, 1, names[0]))
    for i in range(6):
        at = START + i * LENGTH // 6
        rows.append((0, 0, "copies", at, at + 9_000_000, 8_000_000, 12, None))
        rows.append((0, 1, "graphs", at + 50_000_000, at + 120_000_000, 60_000_000, 3, names[1]))
    schema = ["device_id", "tenant_id", "track", "start_ns", "end_ns", "busy_ns", "events", "label"]
    return pl.DataFrame(rows, schema=schema, orient="row", infer_schema_length=None)


def residency(slices: int = 1213) -> pl.DataFrame:
    """The ``residency`` table: slices spread evenly around 2.131 ms, so that the median is known by hand."""
    lengths = [SLICE + (i - slices // 2) * 100 for i in range(slices)]
    rows: list[tuple[object, ...]] = []
    at = START
    for i, length in enumerate(lengths):
        rows.append((0, i % 2, at, at + length, True))
        at += length + GAP
    rows.append((0, 0, at, at + 900_000_000, False))
    return pl.DataFrame(
        rows,
        schema=["device_id", "tenant_id", "start_ns", "end_ns", "complete"],
        orient="row",
        infer_schema_length=None,
    )


def sm_occupancy(bins: int = 120) -> pl.DataFrame:
    """The ``sm_occupancy`` table: two tenants."""
    rows: list[tuple[object, ...]] = []
    for i in range(bins):
        start, end = START + i * LENGTH // bins, START + (i + 1) * LENGTH // bins
        rows.append((0, 0, start, end, 0.33 + 0.1 * (i % 5) / 5, 0.49, "modelled"))
        rows.append((0, 1, start, end, 0.2 + 0.2 * (i % 9) / 9, 0.49, "modelled"))
    schema = ["device_id", "tenant_id", "start_ns", "end_ns", "warps", "sm_active", "basis"]
    return pl.DataFrame(rows, schema=schema, orient="row", infer_schema_length=None)


def kernel_occupancy(count: int = 25, name: str = "void gemm_kernel") -> pl.DataFrame:
    """The ``kernel_occupancy`` table; the last configuration could not be computed."""
    rows = []
    for i in range(count):
        computed = i + 1 < count
        full = f"{name}_{i}<float, {i}>(float*, int)"
        rows.append(
            {
                "device_id": 0,
                "tenant_id": 0,
                "name": full,
                "short_name": f"{name}_{i}",
                "launches": 10 * (i + 1),
                "total_ns": 90_000_000 // (i + 1),
                "grid_blocks": 4096 >> (i % 8),
                "block_threads": 256,
                "registers_per_thread": 32 + i,
                "shared_bytes": 1024 * (i % 40),
                "occupancy": (0.25 + 0.03 * i) if computed else None,
                "limiters": ("registers", "shared", "warps,blocks")[i % 3] if computed else None,
                "waves": 0.4 * (i + 1) if computed else None,
                "reason": None if computed else "registers were not recorded",
                "basis": "modelled",
            }
        )
    return pl.DataFrame(rows)


def nvml_samples() -> pl.DataFrame:
    """Aligned samples: utilisation and SM clock every 100 ms."""
    rows: list[tuple[object, ...]] = []
    for i in range(26):
        at = START + i * 100_000_000
        rows.append((at, 0, None, "gpu_utilization_pct", 100.0))
        rows.append((at, 0, None, "clock_sm_hz", 1e6 * (2505.0 - 15 * (i % 4))))
        rows.append((at, 0, 30428, "gpu_utilization_pct", 48.0))
    return pl.DataFrame(
        rows,
        schema=["time_ns", "device_id", "pid", "metric", "value"],
        orient="row",
        infer_schema_length=None,
    )


def tenant_usage() -> pl.DataFrame:
    """The ``tenant_usage`` table: of the untraced tenant only the residency is known."""
    return pl.DataFrame(
        {
            "device_id": [0, 0],
            "tenant_id": [0, 1],
            "busy_ns": [LENGTH, None],
            "resident_ns": [1_230_800_000, 1_233_600_000],
            "attributed_ns": [1_230_800_000, None],
        }
    )
