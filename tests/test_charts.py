"""Charts: what is drawn, not how it looks."""

from __future__ import annotations

import itertools
import json
import math
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import altair as alt
import polars as pl
import pytest
import report_examples as examples
import vl_convert
from shared_sessions import load

from pyanalyze import charts
from pyanalyze.analysis.residency import switch_period_ns
from pyanalyze.charts.interference import _PARTS
from pyanalyze.charts.style import unfolded
from pyanalyze.charts.timeline import Recorded, two_timelines
from pyanalyze.results.explain import SlowUnits
from pyanalyze.text.format import duration

LABELS = {0: "compute_victim", 1: "pid 30398 (not traced)"}
WINDOW = (examples.START, examples.START + examples.LENGTH)


def _values(spec: Any) -> list[dict[str, Any]]:
    """Every data row of a specification."""
    if isinstance(spec, dict):
        if isinstance(spec.get("values"), list) and all(isinstance(row, dict) for row in spec["values"]):
            return list(spec["values"])
        return list(itertools.chain.from_iterable(_values(v) for v in spec.values()))
    return list(itertools.chain.from_iterable(map(_values, spec))) if isinstance(spec, list) else []


def _spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    spec: dict[str, Any] = unfolded(chart.to_dict())
    return spec


def _rows(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for data in spec.get("datasets", {}).values() for row in data] or _values(spec)


def test_the_median_of_residency_intervals_is_marked_where_it_is_one() -> None:
    """Four intervals have none, and none is as long as that of two tenants whose intervals are 1 and 2 ms long."""

    def lengths(*each: tuple[int, float, int]) -> pl.DataFrame:
        rows = [(tenant, round(ms * 1e6)) for tenant, ms, count in each for _ in range(count)]
        return pl.DataFrame(
            {
                "device_id": [0] * len(rows),
                "tenant_id": [tenant for tenant, _ in rows],
                "start_ns": [0] * len(rows),
                "end_ns": [ns for _, ns in rows],
                "complete": [True] * len(rows),
            }
        )

    for each, marked in (
        ([(0, 2.0, 5), (1, 2.1, 5)], True),
        ([(0, 2.0, 4)], False),
        ([(0, 1.0, 5), (1, 2.0, 5)], False),
        # Of so few none is told.
        ([(0, 1.0, 4), (1, 2.0, 5)], True),
    ):
        chart = charts.slice_lengths(lengths(*each), {0: "a", 1: "b"})
        assert ("median 2" in json.dumps(_spec(chart))) == marked, each


def test_one_colour_per_tenant_whatever_the_order() -> None:
    assert charts.tenant_colors([5, 1, 9]) == charts.tenant_colors([9, 5, 1, 1])
    colors = list(charts.tenant_colors(range(18)).values())
    assert len(set(colors)) == 18
    assert set(colors[:6]) == {"#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9"}


def test_kernels_that_differ_at_the_end_of_their_names_are_told_apart() -> None:
    long = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_{}"
    lengths = {f"{side}{part}_ns": 9 for side in ("", "solo_") for part in ("p5", "p25", "median", "p75", "p95")}
    size = {f"{of}_{axis}": n for of, n in (("grid", 4), ("block", 32)) for axis in "xyz"}
    row = {"device_id": 0, "tenant_id": 0, "total_ns": 9, "against": "baseline", "n": 20, "n_solo": 20}
    row |= lengths | size
    rows = [
        row | {"name": long.format(end), "ratio": 1.0, "ratio_low": 0.9, "ratio_high": 1.1} for end in ("NNT", "NTT")
    ]
    spec = _spec(charts.solo_against_shared(pl.DataFrame(rows), LABELS))
    names = {row["k"] for row in _rows(spec) if "k" in row}
    assert {name.split("\n")[0][-3:] for name in names} == {"NNT", "NTT"}
    assert {name.split("\n")[1] for name in names} == {LABELS[0]}
    # The tooltip has the whole name, and the size of the launch.
    assert {row["whole"] for row in _rows(spec) if "whole" in row} == {long.format(end) for end in ("NNT", "NTT")}
    assert {row["size"] for row in _rows(spec) if "size" in row} == {"4x4x4 of 32x32x32"}


def test_kernels_of_one_library_name_are_told_apart_in_the_solo_chart() -> None:
    # Names that PyTorch gives its kernels on an H200: the chart showed `void at::native::ve...elementwise_ker...`.
    path = Path(__file__).parents[1] / "fixtures" / "hardware" / "h200" / "torch-slices-jax_train-decode.sqlite"
    drawn = _spec(load(path).chart("solo"))
    shown = {row["name"].partition(". ")[2]: row["whole"] for row in _rows(drawn) if "name" in row}
    vectorized = {name for name, whole in shown.items() if "::vectorized_elementwise_kernel<" in whole}
    assert len(vectorized) == len({whole for name, whole in shown.items() if name in vectorized}) == 3
    assert not [name for name in vectorized if name.startswith("void")]


def test_a_tenant_keeps_its_colour_in_every_chart() -> None:
    ranges = []
    for chart in (
        charts.timeline(examples.timeline(), LABELS),
        charts.slice_lengths(examples.residency().filter(pl.col("tenant_id") == 1), LABELS),
        charts.usage(examples.tenant_usage(), LABELS),
        charts.occupancy(examples.sm_occupancy(), LABELS),
    ):
        text = json.dumps(_spec(chart))
        start = text.index('"domain": ["')
        scale = json.loads("{" + text[start : text.index("}", start)] + "}")
        ranges.append(dict(zip(scale["domain"], scale["range"], strict=True)))
    assert all(found[LABELS[1]] == "#E69F00" for found in ranges)


def test_timeline_counts_milliseconds_and_keeps_nanoseconds() -> None:
    spec = _spec(charts.timeline(examples.timeline(), LABELS, window=WINDOW, samples=examples.nvml_samples()))
    kernel = next(row for row in _rows(spec) if row.get("l") == "kernels")
    assert (kernel["a"], kernel["b"]) == (0.0, pytest.approx(2511.7))
    assert kernel["s"] == "1204118277"
    assert kernel["d"] == "2.512 s"
    assert kernel["n"] == "spin"
    assert len(spec["vconcat"]) == 3
    # Sentences and options count as nsys does, the axis from the start of the window, at 1.204118277 s.
    shown = [
        found
        for found in re.findall(r'"title": "(Time[^"]*)"', json.dumps(spec))
        if found == "Time (ms from the start of the window, which is 1,204.1 ms in nsys)"
    ]
    assert len(shown) == 1
    assert any(param["bind"] == "scales" for param in spec["params"])


def test_the_shortest_bar_is_a_pixel_wide_at_either_end_of_the_timeline() -> None:
    # 1 us of a second is 0.0007 of 720 pixels; the plotting area cuts off what lies outside of it.
    kernels = [(0, 1_000), (500_000_000, 500_001_000), (999_999_000, 1_000_000_000)]
    table = pl.DataFrame(
        [
            {"device_id": 0, "tenant_id": 0, "track": track, "start_ns": start, "end_ns": end, "busy_ns": 1_000}
            | {"events": 1, "label": "k", "attributed_ns": None}
            for track in ("kernels", "copies", "graphs", "residency", "inferred residency")
            for start, end in kernels
        ]
    )
    svg = vl_convert.vegalite_to_svg(_spec(charts.timeline(table, LABELS, window=(0, 1_000_000_000))))
    drawn = re.findall(r'aria-roledescription="bar" d="M([^"]*)Z"', svg)
    assert len(drawn) == 15
    for path in drawn:
        numbers = [float(number) for number in re.split("[^-.e0-9]+", path)]
        # Rounded bars are curves: pairs of x and y.
        left, right = (numbers[0], numbers[0] + numbers[2]) if "h" in path else (min(numbers[::2]), max(numbers[::2]))
        assert min(right, 720) - max(left, 0) == pytest.approx(1.0, abs=0.001)


def test_timeline_takes_device_wide_samples_only() -> None:
    spec = _spec(charts.timeline(examples.timeline(), LABELS, window=WINDOW, samples=examples.nvml_samples()))
    values = [row["v"] for row in _rows(spec) if "v" in row]
    assert 48.0 not in values
    assert values.count(100.0) == 26
    assert max(values) == 2505.0
    assert len(_spec(charts.timeline(examples.timeline(), LABELS))["vconcat"]) == 1


def test_a_notebook_shows_a_chart_without_a_network() -> None:
    """As Jupyter asks: a specification for what it brings itself and a picture, not a page that loads scripts."""
    chart = charts.slice_lengths(examples.residency(), LABELS)
    shown: Any = chart._repr_mimebundle_(include=None, exclude=None)
    assert set(shown) == {"application/vnd.vegalite.v5+json", "image/png", "text/plain"}
    assert shown["image/png"].startswith(b"\x89PNG")
    json.dumps(shown["application/vnd.vegalite.v5+json"])
    # Whoever chose a renderer gets it.
    with alt.renderers.enable("mimetype"):
        chosen = chart._repr_mimebundle_()
    assert "application/vnd.vegalite.v6.json" in str(chosen)


def test_switches_have_a_row_of_their_own_on_the_same_axis() -> None:
    """Three switches by hand: each is a tick; a thousand are counted, none of them is lost."""
    few = pl.DataFrame(
        {
            "device_id": [0, 0, 0, 1],
            "time_ns": [WINDOW[0] + 1_000_000, WINDOW[0] + 2_500_000, WINDOW[0] + 3_000_000, WINDOW[0]],
            "from_tenant_id": [0, 1, None, 0],
            "to_tenant_id": [1, 0, 1, 1],
            "gap_ns": [40_000, None, 50_000, 1],
            "full_ns": [None, 120_000, None, 1],
            "kind": ["switch", "switch", "creation", "switch"],
        }
    )
    table = examples.timeline()
    spec = _spec(charts.timeline(table, LABELS, window=WINDOW, switches=few, samples=examples.nvml_samples()))
    assert spec["resolve"]["scale"]["x"] == "shared"
    row = spec["vconcat"][1]
    ticks = [(r["a"], r["f"], r["t"], r["d"]) for r in row["data"]["values"]]
    assert ticks == [(1.0, LABELS[0], LABELS[1], "40.0 us"), (2.5, LABELS[1], LABELS[0], "120 us")]
    many = pl.concat(
        [few.head(1).with_columns(time_ns=pl.lit(WINDOW[0] + i * 1_000_000, dtype=pl.Int64)) for i in range(1000)]
    )
    row = _spec(charts.timeline(table, LABELS, window=WINDOW, switches=many))["vconcat"][1]
    counted = row["data"]["values"]
    assert len(counted) <= 600
    assert sum(r["n"] for r in counted) == 1000
    assert all(0 < r["o"] <= 1 for r in counted)
    assert len(_spec(charts.timeline(table, LABELS, window=WINDOW, switches=few.clear()))["vconcat"]) == 1


def test_parts_of_latency_have_colours_that_no_tenant_has() -> None:
    tenants = set(charts.tenant_colors(range(12)).values())
    assert not tenants & {color for name, color in _PARTS.items() if name != "unexplained"}


def test_tenants_of_like_latency_do_not_hide_each_other() -> None:
    """Two tenants with kernels of 2 ms in the same intervals, and one of 30 ms in one of them."""
    ms = 1_000_000
    rows = [
        {"device_id": 0, "tenant_id": tenant, "start_ns": n * ms, "end_ns": (n + 1) * ms, "kernels": 3, "p50_ns": ns}
        for tenant, each in {0: (2 * ms, 2 * ms), 1: (2 * ms, 30 * ms)}.items()
        for n, ns in enumerate(each)
    ]
    table = pl.DataFrame([row | {"p95_ns": row["p50_ns"], "busy_ns": ms} for row in rows])
    spec = _spec(charts.latency_over_time(table, LABELS, window=(0, 2 * ms)))
    upper = spec["vconcat"][:-1]
    assert [view["title"]["text"] for view in upper] == list(LABELS.values())
    for view in upper:
        assert {row["t"] for row in _rows(view)} == {view["title"]["text"]}
        scales = [layer["encoding"]["y"]["scale"] for layer in view["layer"]]
        # One scale of whole decades in all rows.
        assert all((scale["type"], scale["domain"]) == ("log", [1.0, 100.0]) for scale in scales)
        axes = [layer["encoding"]["y"]["axis"]["values"] for layer in view["layer"]]
        assert axes == [[1, 2, 5, 10, 20, 50, 100]] * 2
    # What lies below stands in the order of the rows.
    assert list(dict.fromkeys(row["t"] for row in _rows(spec["vconcat"][-1]))) == list(LABELS.values())
    one = _spec(charts.latency_over_time(table.filter(pl.col("p50_ns") < 0), LABELS, window=(0, 2 * ms)))
    assert "No kernel" in json.dumps(one)
    same = table.filter(pl.col("tenant_id") == 0).with_columns(p50_ns=pl.lit(10 * ms), p95_ns=pl.lit(10 * ms))
    (view, _) = _spec(charts.latency_over_time(same, LABELS, window=(0, 2 * ms)))["vconcat"]
    assert view["layer"][0]["encoding"]["y"]["scale"]["domain"] == [10.0, 100.0]
    assert view["layer"][0]["encoding"]["y"]["axis"]["values"] == [10, 20, 50, 100]
    other = same.with_columns(pl.col("tenant_id") + 1, pl.col("p50_ns", "p95_ns") // 1000)
    far = pl.concat([same, other])
    (view, *_) = _spec(charts.latency_over_time(far, LABELS, window=(0, 2 * ms)))["vconcat"]
    assert view["layer"][0]["encoding"]["y"]["axis"]["values"] == [0.01, 0.1, 1, 10]


def test_timeline_keeps_what_has_no_tenant() -> None:
    table = examples.timeline(10).with_columns(
        tenant_id=pl.when(pl.col("track") == "graphs").then(None).otherwise(pl.col("tenant_id")).cast(pl.UInt32),
        track=pl.col("track").cast(pl.Categorical),
        label=pl.col("label").cast(pl.Categorical),
    )
    spec = _spec(charts.timeline(table, LABELS, window=WINDOW))
    assert sum(row["t"] == "(no tenant)" for row in _rows(spec)) == 6
    assert "#8C8C8C" in json.dumps(spec)


def test_timeline_is_bounded_and_loses_no_busy_time() -> None:
    table = examples.timeline(50_000)
    spec = _spec(charts.timeline(table, LABELS, window=WINDOW))
    rows = _rows(spec)
    assert 500 < len(rows) <= charts.MAX_MARKS
    assert sum(row["e"] for row in rows if row["l"] == "residency") == 50_000
    assert "are merged into" in spec["usermeta"]["summary"]


def test_slice_histogram_counts_complete_slices_around_the_median() -> None:
    spec = _spec(charts.slice_lengths(examples.residency(), LABELS))
    bars = [row for row in _rows(spec) if "n" in row]
    assert sum(row["n"] for row in bars) == 1213
    assert sum(row["n"] for row in bars if row["t"] == "compute_victim") == 607
    # 2.131 ms plus or minus 61 us; the incomplete slice of 900 ms must not be there.
    assert all(row["a"] <= 2.192 and row["b"] >= 2.070 for row in bars)
    assert {row["text"] for row in _rows(spec) if "text" in row} == {"median 2.131 ms"}
    assert spec["layer"][0]["encoding"]["x"]["scale"]["type"] == "log"


def test_occupancy_is_stacked_and_called_modelled() -> None:
    spec = _spec(charts.occupancy(examples.sm_occupancy(), LABELS, window=WINDOW))
    first = sorted((row for row in _rows(spec) if row["a"] == 0), key=lambda row: row["y0"])
    assert [(row["y0"], row["y1"]) for row in first] == [(0.0, 0.33), (0.33, 0.53)]
    assert "modelled" in json.dumps(spec["encoding"]["y"])


def test_an_occupancy_that_hardly_shows_has_a_scale_of_its_own(corpus: Path) -> None:
    """One block of 256 threads for 2.338 ms: 8 of 24 x 48 warp slots are 0.69 %, and 8 warps on one of two SMs are 4."""
    session = load(corpus / "exports" / "easycuda" / "nsys_easy.sqlite")
    spec = _spec(charts.occupancy(session.sm_occupancy, {0: "add"}))
    axis = spec["encoding"]["y"]
    assert axis["scale"] == {"domain": [0, pytest.approx(8 / (24 * 48))], "nice": True}
    assert axis["title"] == ["Warp slots in use (modelled)", "the axis ends below 100 %"]
    assert max(row["y1"] for row in _rows(spec)) == pytest.approx(8 / (24 * 48))
    # A ten thousandth of it is no 0 either.
    less = session.sm_occupancy.with_columns(warps=pl.col("warps") / 1e4)
    assert max(row["y1"] for row in _rows(_spec(charts.occupancy(less, {0: "add"})))) == pytest.approx(
        6.94e-7, rel=0.01
    )
    legend = str(_spec(charts.sm_heatmap(session.sm_warps, warp_slots=48)))
    assert "Mean warps per SM, up to 4 of 48 (modelled)" in legend
    # A third of the slots shows on the whole scale.
    third = session.sm_occupancy.with_columns(warps=pl.col("warps") * 48)
    whole = _spec(charts.occupancy(third, {0: "add"}))["encoding"]["y"]
    assert (whole["scale"]["domain"], whole["title"]) == ([0, 1.0], "Warp slots in use (modelled)")


def test_occupancy_keeps_its_mean_when_bins_are_merged() -> None:
    table = examples.sm_occupancy(20_000)
    rows = _rows(_spec(charts.occupancy(table, LABELS, window=WINDOW)))
    assert len(rows) <= charts.MAX_MARKS
    drawn = sum(row["w"] * (row["b"] - row["a"]) for row in rows) * 1e6
    exact = table.select(((pl.col("end_ns") - pl.col("start_ns")) * pl.col("warps")).sum()).item()
    assert math.isclose(drawn, exact, rel_tol=1e-3)


def _slices_in_bins(bins: int, bin_ns: int) -> pl.DataFrame:
    """Two tenants, one on half and one on all of the warp slots, in slices of 1.5 ms: the period is 3 ms."""
    rows = []
    for n in range(bins):
        begin, end = n * bin_ns, (n + 1) * bin_ns
        first = sum(max(min(end, at + 1_500_000) - max(begin, at), 0) for at in range(0, end, 3_000_000)) / bin_ns
        rows += [(0, 0, begin, end, 0.5 * first), (0, 1, begin, end, 1 - first)]
    return pl.DataFrame(rows, schema=["device_id", "tenant_id", "start_ns", "end_ns", "warps"], orient="row")


@pytest.mark.parametrize(
    ("bin_ns", "merged", "spread"),
    [
        # 200 bins of 1.7 ms beside slices of 1.5 ms: some catch one tenant, some both. Four periods are 12 ms.
        (1_700_000, 8, 0.05),
        # A bin of four periods and more is drawn as it is; so is one of an eighth of a period, which shows each slice.
        (20_000_000, 1, 0.05),
        (375_000, 1, 0.5),
    ],
)
def test_bins_of_occupancy_do_not_alias_with_time_slices(bin_ns: int, merged: int, spread: float) -> None:
    table = _slices_in_bins(200, bin_ns)
    chart = charts.occupancy(table, LABELS, window=(0, 200 * bin_ns), switch_period_ns=3_000_000)
    spec = _spec(chart)
    drawn = [row["y1"] for row in _rows(spec) if row["t"] == LABELS[1]]
    assert len(drawn) == 200 // merged
    assert all(abs(total - 0.75) <= spread for total in drawn)
    # As they are, a bin holds one whole slice and 0.2 ms of the other tenant: 94 % or 56 % of the slots.
    if merged > 1:
        plain = _rows(_spec(charts.occupancy(table, LABELS, window=(0, 200 * bin_ns))))
        assert max(abs(row["y1"] - 0.75) for row in plain if row["t"] == LABELS[1]) > 0.15
    title = spec["encoding"]["x"]["title"][1]
    # Two slices of 1.5 ms: the period is not the time slice.
    assert title == f"Bins of {duration(merged * bin_ns)}; residency intervals of a tenant begin every 3.000 ms"
    per_sm = table.group_by("device_id", "start_ns", "end_ns").agg(sm=pl.lit(0), warps=64 * pl.col("warps").sum())
    cells = _rows(_spec(charts.sm_heatmap(per_sm, switch_period_ns=3_000_000)))
    assert sum("w" in row for row in cells) == len(drawn)


def test_the_period_of_time_slices_is_that_of_the_switch_records() -> None:
    folder = Path(__file__).parents[1] / "fixtures" / "hardware"
    path = folder / "h200" / "torch-slices-jax_train-decode.sqlite"
    with closing(sqlite3.connect(path)) as records:
        rows = records.execute(
            "SELECT contextId, timestamp FROM GPU_CONTEXT_SWITCH_EVENTS WHERE tag = 8 ORDER BY timestamp"
        ).fetchall()
    restores = {context: [at for of, at in rows if of == context] for context, _ in rows}
    medians = [median(later - at for at, later in itertools.pairwise(times)) for times in restores.values()]
    assert len(medians) == 2
    found = switch_period_ns(load(path).tables, 0)
    assert found == pytest.approx(median(medians), abs=1_000)
    # Streams of one process.
    assert switch_period_ns(load(folder / "h100" / "streams-A-B.sqlite").tables, 0) is None


def test_limiters_tell_apart_not_computed() -> None:
    rows = _rows(_spec(charts.limiters(examples.kernel_occupancy(3))))
    assert [row["text"] for row in rows] == ["25 %", "28 %", "not computed"]
    assert rows[2]["all"] == "registers were not recorded"
    assert rows[2]["o"] is None


def test_heatmap_has_a_cell_for_two_sms_and_says_that_it_is_a_model() -> None:
    # Four SMs, two bins of 1 ms: a cell is the mean of an even SM and the odd one after it.
    warps = {(0, 0): 64.0, (0, 1): 32.0, (0, 2): 8.0, (1, 3): 4.0}
    rows = [
        {
            "device_id": 0,
            "start_ns": b * 1_000_000,
            "end_ns": (b + 1) * 1_000_000,
            "sm": sm,
            "warps": warps.get((b, sm), 0.0),
        }
        for b in range(2)
        for sm in range(4)
    ]
    spec = _spec(charts.sm_heatmap(pl.DataFrame(rows)))
    cells = {(row["a"], row["b"], row["y"]): row["w"] for row in _rows(spec) if "w" in row}
    assert cells == {(0, 1, 0): 48.0, (0, 1, 1): 4.0, (1, 2, 0): 0.0, (1, 2, 1): 2.0}
    assert "MODEL" in {row.get("text") for row in _rows(spec)}
    # TPC 0 is at the top, each label in the middle of its row, and colours end at the warp slots of an SM.
    assert {(row["y"], row["top"], row["bottom"]) for row in _rows(spec) if "w" in row} == {
        (0, -0.5, 0.5),
        (1, 0.5, 1.5),
    }
    drawn = vl_convert.vegalite_to_svg(_spec(charts.sm_heatmap(pl.DataFrame(rows), warp_slots=128)))
    # Two rows of 45 pixels, with the base of a label 3 pixels below its middle.
    label = re.compile(r'<text text-anchor="end" transform="translate\(-[^,]+,([\d.]+)\)"[^>]*>([^<]*)</text>')
    assert label.findall(drawn) == [("25.5", "0"), ("70.5", "1")]
    assert re.search(r"Mean warps per SM, of 128 \(modelled\)", drawn)
    assert re.findall(r"translate\([^,]+,26\)[^>]*>(\d+)</text>", drawn) == ["0", "50", "100"]
    assert "not a measurement" in spec["usermeta"]["summary"]
    assert "could not be modelled" in json.dumps(_spec(charts.sm_heatmap(pl.DataFrame(rows), device_id=1)))


def test_heatmap_averages_bins_that_cannot_be_drawn() -> None:
    # 40,000 bins of 108 SMs; full in the first half.
    bins = pl.DataFrame({"start_ns": range(0, 40_000_000, 1_000)}).with_columns(
        device_id=0,
        end_ns=pl.col("start_ns") + 1_000,
        warps=pl.when(pl.col("start_ns") < 20_000_000).then(64.0).otherwise(0.0),
    )
    table = bins.join(pl.DataFrame({"sm": range(4)}), how="cross")
    rows = [row for row in _rows(_spec(charts.sm_heatmap(table))) if "w" in row]
    assert len(rows) <= charts.MAX_MARKS
    drawn = sum(row["w"] * (row["b"] - row["a"]) for row in rows)
    assert math.isclose(drawn, 2 * 20 * 64.0, rel_tol=0.01)


def test_counters_stand_beside_the_model_over_the_same_bins(fixtures: Path) -> None:
    check = load(fixtures / "exclusive.sqlite").check_occupancy(0)
    assert check is not None
    spec = _spec(charts.counters(check))
    assert len(spec["vconcat"]) == 2, "active SMs, and warps where they were counted"
    for panel, column in zip(spec["vconcat"], ("sm_active", "warps"), strict=True):
        rows = panel["data"]["values"]
        for word, key in (("by counter", "counted"), ("modelled", "modelled")):
            drawn = [row["v"] for row in rows if row["k"] == word]
            assert drawn == pytest.approx(check.bins[f"{column}_{key}"].to_list(), abs=1e-4)


def test_usage_says_what_is_not_known() -> None:
    rows = _rows(_spec(charts.usage(examples.tenant_usage(), LABELS, window_ns=examples.LENGTH)))
    assert [row["text"] for row in rows] == [
        "busy 2.512 s (100.0 %)",
        "resident 1.231 s (49.0 %)",
        "attributed 1.231 s (49.0 %)",
        "busy not known",
        "resident 1.234 s (49.1 %)",
        "attributed not known",
    ]


def test_a_waterfall_leads_from_a_typical_unit_to_the_slowest(fixtures: Path) -> None:
    """The bars of each name of units begin where the one above ends, and end at the mean of the slowest."""
    session = load(fixtures / "demo-time-slicing.sqlite")
    slow = [
        SlowUnits(group=group, slowest=unit)
        for group in session.explain().result.groups
        if (unit := session.explain().result.slowest(group)) is not None
    ]
    assert slow
    spec = _spec(charts.excess_waterfall(slow))
    panels = spec.get("vconcat", [spec])
    for panel, one in zip(panels, slow, strict=True):
        first, *parts, last = panel["data"]["values"]
        assert (first["a"], first["b"]) == (0, pytest.approx(one.group.typical_ns / 1e6))
        for before, after in itertools.pairwise([first, *parts]):
            assert after["a"] == pytest.approx(before["b"])
        assert one.group.slow_mean_ns is not None
        assert parts[-1]["b"] == pytest.approx(last["b"]) == pytest.approx(one.group.slow_mean_ns / 1e6)
        assert "waiting for its time slice" in parts[0]["c"]
    spec = _spec(charts.units_over_time(session.units, slow))
    for panel, one in zip(spec.get("vconcat", [spec]), slow, strict=True):
        rows = panel["data"]["values"]
        assert len(rows) == one.group.count
        marked = [row["y"] for row in rows if row["k"] == "slowest 1 %, rounded up"]
        assert len(marked) == one.group.slow
        assert max(row["y"] for row in rows) == pytest.approx(one.group.max_ns / 1e6) == pytest.approx(max(marked))


def test_nothing_to_draw_says_why() -> None:
    for chart, words in (
        (charts.timeline(examples.timeline(), LABELS, device_id=9), "No interval"),
        (charts.slice_lengths(examples.residency(), LABELS, device_id=9), "No complete residency interval"),
        (charts.occupancy(examples.sm_occupancy(), LABELS, device_id=9), "could not be modelled"),
        (charts.limiters(examples.kernel_occupancy(), device_id=9), "No kernel launch"),
        (charts.usage(examples.tenant_usage(), LABELS, device_id=9), "No tenant"),
        (charts.excess_waterfall(()), "No unit of work"),
    ):
        assert words in json.dumps(_spec(chart))


@pytest.mark.parametrize("name", examples.HOSTILE.values(), ids=examples.HOSTILE.keys())
def test_hostile_names_are_escaped_in_pictures(name: str) -> None:
    labels = {0: name.encode("utf-8", "replace").decode(), 1: "other"}
    chart = charts.timeline(examples.timeline(10, (labels[0], "x")), labels)
    svg = vl_convert.vegalite_to_svg(_spec(chart))
    assert "<script" not in svg
    assert "<img" not in svg
    assert "<!--" not in svg
    assert "\u202e" not in svg
    assert "k" * 61 not in svg


def test_a_tenant_of_two_runs_has_one_colour() -> None:
    table = examples.timeline(20)
    runs = [
        Recorded(table, labels, (examples.START, examples.START + examples.LENGTH), 0)
        for labels in ({0: "serve", 1: "train"}, {0: "train", 1: "guest"})
    ]
    spec = json.dumps(_spec(two_timelines(*runs)))
    scale = json.loads(re.findall(r'"scale": (\{"domain": \["A: [^}]*\})', spec)[0])
    colours = dict(zip(scale["domain"], scale["range"], strict=True))
    assert list(colours) == ["A: serve", "A: train", "B: train", "B: guest"]
    assert colours["A: train"] == colours["B: train"]
    assert len(set(colours.values())) == 3


def test_samples_from_before_the_capture_stay_right_of_the_axis() -> None:
    points = [
        {"pid": None, "what": what, "time_ns": time_ns, "value": 0.5, "part": 0}
        for what in ("utilization", "memory")
        for time_ns in (-1_500_000_000, 0, 2_000_000_000)
    ]
    rows = _rows(_spec(charts.sampled_use(points, {})))
    assert sorted({row["x"] for row in rows}) == [0.0, 1.5, 3.5]
