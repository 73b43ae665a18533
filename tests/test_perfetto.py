"""A Perfetto trace, read by a decoder that shares nothing with the writer."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import generate
import pytest
from shared_sessions import load

import pyanalyze
from pyanalyze.export.write import write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEGIN, END, INSTANT, COUNTER = 1, 2, 3, 4


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield (field number, value) of a message: numbers for wire type 0, bytes for 1 and 2."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        if tag & 7 == 0:
            value, at = varint(data, at)
            yield tag >> 3, value
        else:
            assert tag & 7 in (1, 2)
            length, at = (8, at) if tag & 7 == 1 else varint(data, at)
            assert at + length <= len(data)
            yield tag >> 3, data[at : at + length]
            at += length


@dataclass
class Event:
    time: int
    type: int
    track: int
    name: str | None
    #: Numbers of the arrows that begin and end here.
    goes: int | None = None
    comes: int | None = None


@dataclass
class Trace:
    events: list[Event] = field(default_factory=list)
    #: uuid -> (name, parent uuid or 0)
    tracks: dict[int, tuple[str, int]] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)

    def on(self, begins_with: str, type_: int) -> list[Event]:
        return [e for e in self.events if e.type == type_ and self.tracks[e.track][0].startswith(begins_with)]


def own_decoder(data: bytes) -> Trace:
    trace, names = Trace(), {}
    for number, packet in fields(data):
        assert number == 1
        parts = dict(fields(packet))
        assert parts[10] == 1
        for kind, entry in fields(parts.get(12, b"")):
            if kind == 2:
                interned = dict(fields(entry))
                names[interned[1]] = interned[2].decode()
        for _, attribute in fields(parts.get(126, b"")):
            pair = dict(fields(attribute))
            trace.attributes[pair[1].decode()] = pair.get(2, pair.get(3))
        if 60 in parts:
            track = dict(fields(parts[60]))
            trace.tracks[track[1]] = (track[2].decode(), track.get(5, 0))
        if 11 in parts:
            event = dict(fields(parts[11]))
            goes, comes = (int.from_bytes(event[n], "little") if n in event else None for n in (47, 48))
            name = names[event[10]] if 10 in event else None
            trace.events.append(Event(parts[8], event[9], event[11], name, goes, comes))
    return trace


def decoded(data: bytes) -> Trace:
    """Decode; where Perfetto's own definitions are installed they must see the same."""
    trace = own_decoder(data)
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return trace
    official = pb.Trace()
    official.ParseFromString(data)
    events = [p for p in official.packet if p.HasField("track_event")]
    assert [(p.timestamp, p.track_event.type, p.track_event.track_uuid) for p in events] == [
        (e.time, e.type, e.track) for e in trace.events
    ]
    return trace


@pytest.mark.parametrize("name", generate.COMMITTED)
def test_every_row_is_there_and_every_slice_ends(fixtures: Path, tmp_path: Path, name: str) -> None:
    path = fixtures / name
    session = load(path if path.is_dir() else fixtures / f"{name}.sqlite")
    out = write(session, "perfetto", tmp_path / "out.pftrace")
    trace = decoded(out.read_bytes())

    assert len(trace.on("kernels", BEGIN)) == session.kernels.height
    assert len(trace.on("residency", BEGIN)) == session.residency.height
    assert len(trace.on("copies", BEGIN)) == session.memops.height
    assert len(trace.on("graphs", BEGIN)) == session.graph_launches.height
    assert len(trace.on("context switches", INSTANT)) == session.switches.height
    kinds = Counter(str(kind) for kind in session.switches["kind"])
    assert Counter(e.name for e in trace.on("context switches", INSTANT)) == kinds

    depth: dict[int, int] = defaultdict(int)
    for event in trace.events:
        depth[event.track] += {BEGIN: 1, END: -1}.get(event.type, 0)
        assert 0 <= depth[event.track] <= 1, "slices of a track follow each other"
    assert set(depth.values()) <= {0}
    times = [event.time for event in trace.events]
    assert times == sorted(times)

    # Begin and end of every kernel by the table, as a multiset; captures here begin after 0, nothing is shifted.
    assert trace.attributes["pyanalyze.time_shift_ns"] == 0
    assert sorted(e.time for e in trace.on("kernels", BEGIN)) == sorted(session.kernels["start_ns"])
    assert sorted(e.time for e in trace.on("kernels", END)) == sorted(session.kernels["end_ns"])
    assert sorted(e.time for e in trace.on("residency", END)) == sorted(session.residency["end_ns"])

    modelled = trace.on("modelled: ", COUNTER)
    counters = [e for e in trace.events if e.type == COUNTER]
    tenants_modelled = session.sm_occupancy.select("device_id", "tenant_id").unique().height
    assert len(modelled) == 2 * session.sm_occupancy.height + 2 * tenants_modelled
    assert len(counters) - len(modelled) == session.gpu_metrics.height
    print(f"{name}: {out.stat().st_size / len(times):.1f} bytes per event, {len(times)} events")  # noqa: T201


def test_hostile_names_come_through_unchanged(fixtures: Path, tmp_path: Path) -> None:
    session = load(fixtures / "hostile-names.sqlite")
    trace = decoded(write(session, "perfetto", tmp_path / "out.pftrace").read_bytes())
    named = {str(name) for name in session.kernels["short_name"].drop_nulls()}
    assert named
    assert any(not name.isascii() or "<" in name for name in named)
    assert named <= {event.name for event in trace.on("kernels", BEGIN)}
    groups = [name for name, _ in trace.tracks.values()]
    for name in session.tenants["name"]:
        assert any(group.startswith(name) for group in groups)


def test_each_tenant_is_a_group_of_its_gpu_with_the_name_the_user_gave(fixtures: Path, tmp_path: Path) -> None:
    path = fixtures / "demo-time-slicing.sqlite"
    pid = load(path).tenants["pid"].drop_nulls()[0]
    session = pyanalyze.load(path, tenants={"my service": pid})
    trace = decoded(write(session, "perfetto", tmp_path / "out.pftrace").read_bytes())
    (group,) = [uuid for uuid, (name, _) in trace.tracks.items() if name.startswith("my service")]
    assert str(pid) in trace.tracks[group][0]
    gpu = trace.tracks[group][1]
    assert trace.tracks[gpu][0].startswith("GPU 0")
    assert trace.tracks[gpu][1] == 0
    kernels = {e.track for e in trace.on("kernels", BEGIN)}
    tenants = session.kernels["pid"].n_unique()
    assert len({trace.tracks[uuid][1] for uuid in kernels}) == tenants


def test_units_and_their_chains_with_an_arrow_from_step_to_step(fixtures: Path, tmp_path: Path) -> None:
    session = load(fixtures / "demo-time-slicing.sqlite")
    trace = decoded(write(session, "perfetto", tmp_path / "out.pftrace").read_bytes())
    units = trace.on("units of work", BEGIN)
    assert sorted(e.time for e in units) == sorted(session.units["start_ns"])
    assert len({e.name for e in units}) == session.units.height
    # Parts of one step alternate: they are one slice.
    steps = session.unit_segments.select("unit", "start_ns", "end_ns").unique()
    chain = trace.on("critical chain", BEGIN)
    assert sorted(e.time for e in chain) == sorted(steps["start_ns"])
    # Between n steps of a unit lie n - 1 arrows, each from an earlier step to a later one.
    begins = {e.goes: e.time for e in chain if e.goes is not None}
    ends = {e.comes: e.time for e in chain if e.comes is not None}
    assert begins.keys() == ends.keys()
    assert len(begins) == steps.height - session.units.height
    assert all(begins[arrow] <= ends[arrow] for arrow in begins)
    kinds = {str(kind) for kind in session.unit_segments["kind"].unique()}
    assert {str(e.name).partition(":")[0] for e in chain} <= kinds
    assert any(str(e.name).startswith("execution: ") for e in chain)


def test_real_captures(corpus: Path, tmp_path: Path) -> None:
    for name in (
        "ctxsw-ada-timeslice/utils__report1.nsys2026.sqlite",
        "jaxtoolbox-gb200/pdl_two_producers.nsys2026.sqlite",
        "rtx3090-gpumetrics/report2.nsys2026.sqlite",
        "nsys-ai/healthy_1pct.sqlite",
    ):
        session = load(corpus / "exports" / name)
        out = write(session, "perfetto", tmp_path / "out.pftrace", force=True)
        trace = decoded(out.read_bytes())
        assert len(trace.on("kernels", BEGIN)) == session.kernels.height
        assert len(trace.on("residency", BEGIN)) == session.residency.height
        print(f"{name}: {out.stat().st_size / len(trace.events):.1f} bytes per event, {len(trace.events)} events")  # noqa: T201
