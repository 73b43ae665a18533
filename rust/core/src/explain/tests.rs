//! Chains calculated by hand; times in us.

use super::*;
use crate::base::draws::draws;
use crate::base::watch::Unwatched;
use crate::table::columns::{at, Columns};
use crate::test_tables::{kernels, named, of_one_stream, residency, K};
use std::sync::Arc;

/// pid, tid, correlation, start, end, name.
type Call = (u32, u32, u32, i64, i64, &'static str);

fn api(rows: &[Call]) -> RecordBatch {
    let mut rows = rows.to_vec();
    rows.sort_by_key(|r| r.3);
    let n = rows.len();
    Builder::new(&schema::API_CALLS)
        .put("capture", UInt32Array::from(vec![0; n]))
        .put("pid", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
        .put("tid", rows.iter().map(|r| Some(r.1)).collect::<UInt32Array>())
        .put("correlation_id", rows.iter().map(|r| Some(r.2)).collect::<UInt32Array>())
        .put("start_ns", rows.iter().map(|r| Some(r.3 * 1000)).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|r| Some(r.4 * 1000)).collect::<Int64Array>())
        .put_names("name", rows.iter().map(|r| Some(r.5)))
        .finish(n)
        .unwrap()
}

/// pid, tid, start, end, text.
type NvtxRow = (u32, Option<u32>, i64, i64, &'static str);

fn nvtx(rows: &[NvtxRow]) -> RecordBatch {
    let n = rows.len();
    Builder::new(&schema::NVTX)
        .put("capture", UInt32Array::from(vec![0; n]))
        .put("pid", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
        .put("tid", rows.iter().map(|r| r.1).collect::<UInt32Array>())
        .put("start_ns", rows.iter().map(|r| Some(r.2 * 1000)).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|r| Some(r.3 * 1000)).collect::<Int64Array>())
        .put_words("kind", vec!["push-pop"; n])
        .put_names("text", rows.iter().map(|r| Some(r.4)))
        .finish(n)
        .unwrap()
}

/// Kernels with the correlation ids 1, 2, ... in the order of their starts.
fn numbered(rows: &[K]) -> RecordBatch {
    let batch = kernels(rows);
    let ids: UInt32Array = (1..).take(rows.len()).map(Some).collect();
    crate::table::builder::replace(&schema::KERNELS, &batch, vec![("correlation_id", Arc::new(ids))]).unwrap()
}

/// kind, dur in us, count, other tenant.
type Row = (String, i64, u32, Option<u32>);

/// The segments of each unit, whose sum is checked.
fn explained(tables: Tables, choice: &Choice) -> (Tables, Vec<Vec<Row>>) {
    let (tables, _) = named(tables);
    let made = explain(&tables, choice, 1, &Unwatched).unwrap();
    let units = Columns::new(&schema::UNITS, &made["units"]);
    let segments = Columns::new(&schema::UNIT_SEGMENTS, &made["unit_segments"]);
    let mut found = vec![Vec::new(); units.rows()];
    let mut sums = vec![0; units.rows()];
    let (kind, dur) = (segments.names("kind").unwrap(), segments.i64("dur_ns").unwrap());
    for row in 0..segments.rows() {
        let unit = segments.u32("unit").unwrap().value(row) as usize;
        sums[unit] += dur.value(row);
        assert!(dur.value(row) > 0);
        found[unit].push((
            kind.get(row).unwrap().to_owned(),
            dur.value(row) / 1000,
            segments.u32("count").unwrap().value(row),
            at(segments.u32("other_tenant_id").unwrap(), row),
        ));
    }
    assert_eq!(sums, units.i64("dur_ns").unwrap().values().to_vec());
    (made, found)
}

fn row(kind: SegmentKind, dur: i64) -> Row {
    (kind.word().to_owned(), dur, 1, None)
}

/// Each of [`five_requests`], from its first launch to the end of its last kernel.
fn to_the_last_kernel() -> Vec<Row> {
    vec![
        row(SegmentKind::Launch, 10),
        row(SegmentKind::Launch, 5),
        row(SegmentKind::Execution, 285),
        row(SegmentKind::QueueSameStream, 1),
        row(SegmentKind::Execution, 439),
    ]
}

const LAUNCH: &str = "cudaLaunchKernel";
const SYNC: &str = "cudaStreamSynchronize";

/// One request of 7 on thread 70, five times, each 10 ms after the one before:
/// range  |0==============================================1000|
/// calls    |100=110|   |120=130|  |130=============845|
/// kernels       |115=====400|400====840|
fn five_requests() -> (Vec<K>, Vec<Call>, Vec<NvtxRow>) {
    let (mut rows, mut calls, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..5_i64 {
        let t = n * 10_000;
        let id = u32::try_from(n * 2 + 1).unwrap();
        rows.push((0, 7, 0, 1, 7, t + 115, t + 400));
        rows.push((0, 7, 0, 1, 7, t + 401, t + 840));
        calls.push((7, 70, id, t + 100, t + 110, LAUNCH));
        calls.push((7, 70, id + 1, t + 120, t + 130, LAUNCH));
        calls.push((7, 70, 1000 + id, t + 130, t + 845, SYNC));
        ranges.push((7, Some(70), t, t + 1000, "request"));
    }
    (rows, calls, ranges)
}

#[test]
fn a_request_alone_on_the_device() {
    let (rows, calls, ranges) = five_requests();
    let tables =
        Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls)), ("nvtx", nvtx(&ranges))]);
    let (made, found) = explained(tables, &Choice::default());
    // Host until the first launch, that call and 5 us until the idle device starts, both kernels with 1 us in between,
    // 5 us until the synchronisation returns, and the program's own rest.
    let expected = [
        vec![row(SegmentKind::Host, 100)],
        to_the_last_kernel(),
        vec![row(SegmentKind::Synchronisation, 5), row(SegmentKind::Host, 155)],
    ]
    .concat();
    assert_eq!(found, vec![expected; 5]);
    let units = Columns::new(&schema::UNITS, &made["units"]);
    assert_eq!(units.names("source").unwrap().get(0), Some("nvtx"));
    assert_eq!(units.u32("operations").unwrap().values(), &[2; 5]);
}

#[test]
fn a_stall_between_two_launches_is_a_segment_of_its_own() {
    // range  |0=======================================================1000|
    // calls    |100=110|120=130|          |700=710|710============845|
    // kernels       |115=====400|401===500|    |715=====840|
    // Of the 700 us before the last launch the stall of 570 us is more than a quarter; what is before it is not.
    let (mut rows, mut calls, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..5_i64 {
        let t = n * 10_000;
        let id = u32::try_from(n * 3 + 1).unwrap();
        for (id, call, kernel) in
            [(id, (100, 110), (115, 400)), (id + 1, (120, 130), (401, 500)), (id + 2, (700, 710), (715, 840))]
        {
            calls.push((7, 70, id, t + call.0, t + call.1, LAUNCH));
            rows.push((0, 7, 0, 1, 7, t + kernel.0, t + kernel.1));
        }
        calls.push((7, 70, 1000 + id, t + 710, t + 845, SYNC));
        ranges.push((7, Some(70), t, t + 1000, "request"));
    }
    let tables =
        Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls)), ("nvtx", nvtx(&ranges))]);
    let (made, found) = explained(tables, &Choice::default());
    let expected = vec![
        row(SegmentKind::Host, 110),
        row(SegmentKind::Launch, 20),
        row(SegmentKind::Host, 570),
        row(SegmentKind::Launch, 10),
        row(SegmentKind::Launch, 5),
        row(SegmentKind::Execution, 125),
        row(SegmentKind::Synchronisation, 5),
        row(SegmentKind::Host, 155),
    ];
    assert_eq!(found, vec![expected; 5]);
    let segments = Columns::new(&schema::UNIT_SEGMENTS, &made["unit_segments"]);
    let ends: Vec<i64> =
        segments.i64("end_ns").unwrap().values().iter().map(|ns| ns / 1000).take(3).collect();
    assert_eq!(ends, [130, 130, 700]);
}

#[test]
fn a_request_that_waits_in_the_call_of_a_copy() {
    // As alone on the device, but what waits for the kernels is the call of a copy to pageable memory.
    let (rows, mut calls, ranges) = five_requests();
    for call in calls.iter_mut().filter(|call| call.5 == SYNC) {
        call.5 = "cudaMemcpyAsync";
    }
    let times: Vec<(i64, i64)> =
        (0..5).map(|n| (n * 10_000_000 + 841_000, n * 10_000_000 + 842_000)).collect();
    let copies = of_one_stream(&schema::MEMOPS, &times)
        .put("correlation_id", (0..5).map(|n| Some(1000 + n * 2 + 1)).collect::<UInt32Array>())
        .finish(5)
        .unwrap();
    let tables = Tables::from([
        ("kernels", numbered(&rows)),
        ("memops", copies),
        ("api_calls", api(&calls)),
        ("nvtx", nvtx(&ranges)),
    ]);
    let (_, found) = explained(tables, &Choice::default());
    let expected = [
        vec![row(SegmentKind::Host, 100)],
        to_the_last_kernel(),
        vec![
            row(SegmentKind::QueueSameStream, 1),
            row(SegmentKind::Copy, 1),
            row(SegmentKind::Synchronisation, 3),
            row(SegmentKind::Host, 155),
        ],
    ]
    .concat();
    assert_eq!(found, vec![expected; 5]);
}

#[test]
fn without_ranges_launches_until_a_thread_waits_are_units() {
    let (rows, calls, _) = five_requests();
    let (made, found) = explained(
        Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls))]),
        &Choice::default(),
    );
    let expected = [to_the_last_kernel(), vec![row(SegmentKind::Synchronisation, 5)]].concat();
    assert_eq!(found, vec![expected; 5]);
    let units = Columns::new(&schema::UNITS, &made["units"]);
    assert_eq!(units.names("source").unwrap().get(4), Some("synchronisation"));
    assert_eq!(units.names("name").unwrap().get(4), Some("2 operations, first k"));
}

/// [`five_requests`] without ranges, and at 50 ms, of each kernel, launch call, start and end, before one synchronisation
/// that returns at `until`; start and end of the units behind the five, and the row of `unit_coverage`.
fn and_a_group(kernels: &[(i64, i64, i64)], until: i64) -> (Vec<(i64, i64)>, Vec<Option<i64>>) {
    let (mut rows, mut calls, _) = five_requests();
    for (launch, start, end) in kernels {
        let t = 50_000;
        // Kernels are numbered by start.
        let id = 11 + kernels.iter().filter(|other| other.1.abs() < start.abs()).count() as u32;
        rows.push((0, 7, 0, 1, if *start < 0 { 8 } else { 7 }, t + start.abs(), t + end));
        calls.push((7, 70, id, t + launch, t + launch + 10, LAUNCH));
    }
    calls.push((7, 70, 2000, 50_000 + until - 5, 50_000 + until, SYNC));
    let (made, _) = explained(
        Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls))]),
        &Choice::default(),
    );
    let units = Columns::new(&schema::UNITS, &made["units"]);
    let (start, end) = (units.i64("start_ns").unwrap(), units.i64("end_ns").unwrap());
    let us = |ns: i64| ns / 1000 - 50_000;
    let found = (5..units.rows()).map(|row| (us(start.value(row)), us(end.value(row)))).collect();
    let coverage = Columns::new(&schema::UNIT_COVERAGE, &made["unit_coverage"]);
    assert_eq!(coverage.rows(), 1);
    let numbers = ["operations", "in_units", "groups", "longer"];
    let numbers = numbers.iter().map(|name| at(coverage.u32(name).unwrap(), 0).map(i64::from));
    let times = ["longest_ns", "longest_start_ns"].iter().map(|name| at(coverage.i64(name).unwrap(), 0));
    (found, numbers.chain(times).collect())
}

/// Launches of a kernel of 400 us each, 20 us apart, that run one after the other from 115 us on.
fn one_by_one(count: i64) -> Vec<(i64, i64, i64)> {
    (0..count).map(|n| (100 + n * 20, 115 + n * 401, 515 + n * 401)).collect()
}

#[test]
fn a_thread_that_seldom_waits_after_several_units_launched_each_of_them() {
    // Requests are two kernels. Six are three requests: each lasts from its own first launch to the end of its last kernel,
    // the last one until the synchronisation returns.
    let (found, coverage) = and_a_group(&one_by_one(6), 2_525);
    assert_eq!(found, [(100, 515 + 401), (140, 515 + 3 * 401), (180, 2_525)]);
    assert_eq!(coverage, [Some(16), Some(16), Some(0), Some(0), None, None]);
}

#[test]
fn what_is_no_unit_is_counted() {
    // Three kernels are one and a half. The group takes 1222 us, a request 745.
    let left = [Some(13), Some(10), Some(1), Some(1), Some(1_222_000), Some(50_100_000)];
    assert_eq!(and_a_group(&one_by_one(3), 1_322), (vec![], left.to_vec()));
    // Six requests are more than the five that were waited for: how long each took is how many stood in front of it.
    let left = [Some(22), Some(10), Some(1), Some(1), Some(4_900_000), Some(50_100_000)];
    assert_eq!(and_a_group(&one_by_one(12), 5_000), (vec![], left.to_vec()));
    // The second request, in another stream, ended first: nothing says that it is the second.
    let beside = [(100, 115, 900), (120, 901, 1_300), (140, -150, 300), (160, -301, 500)];
    let left = [Some(14), Some(10), Some(1), Some(1), Some(1_205_000), Some(50_100_000)];
    assert_eq!(and_a_group(&beside, 1_305), (vec![], left.to_vec()));
}

#[test]
fn another_tenants_slice_inside_a_kernel_and_before_it() {
    // The second kernel of the third request: 7 is resident until 20600 and from 22700 on, 8 from 20640 to 22660; the
    // request's second kernel lasts until 22940 and its synchronisation until 22945.
    let (mut rows, mut calls, mut ranges) = five_requests();
    rows[5].6 = 22_940;
    calls[8].4 = 22_945;
    ranges[2].3 = 23_000;
    rows.push((0, 8, 0, 1, 7, 20_650, 22_650));
    // It is the seventh kernel to start, of which 7 called no launch.
    calls.iter_mut().filter(|call| (7..1000).contains(&call.2)).for_each(|call| call.2 += 1);
    let held = [(0, 0, 7, 1, 0, 20_600), (0, 0, 8, 2, 20_640, 22_660), (0, 0, 7, 1, 22_700, 45_000)];
    let tables = Tables::from([
        ("kernels", numbered(&rows)),
        ("api_calls", api(&calls)),
        ("nvtx", nvtx(&ranges)),
        ("residency", residency(&held)),
    ]);
    let (made, found) = explained(tables, &Choice::default());
    let unit = &found[2];
    let total = |kind: SegmentKind| {
        let of = unit.iter().filter(|r| r.0 == kind.word());
        of.fold((0, 0), |sum, r| (sum.0 + r.1, sum.1 + r.2))
    };
    // The kernel ran from 20401 to 20600 and from 22700 to 22940.
    assert_eq!(total(SegmentKind::Execution).0, 285 + 199 + 240);
    assert_eq!(total(SegmentKind::TimeSlice), (2_020, 1));
    assert_eq!(total(SegmentKind::Switch), (80, 2));
    let slice = unit.iter().find(|r| r.0 == "time-slice").unwrap();
    assert_eq!(slice.3, Some(1));
    let segments = Columns::new(&schema::UNIT_SEGMENTS, &made["unit_segments"]);
    let basis = segments.names("basis").unwrap();
    assert!((0..segments.rows()).all(|row| basis.get(row) == Some("observed")));
}

/// Seven requests of 7, launched 490 us before its slice: records say when contexts were resident, not how much of that their
/// state took. That is 19 us of restoring, by how much later than usual the first kernel of a slice starts, and 70 us of
/// saving, by how soon after the last kernel a slice ends. `last` are the kernels of the last request.
fn requests_in_slices(last: [(i64, i64); 2]) -> Vec<Vec<Row>> {
    let (mut rows, mut calls, mut ranges, mut held) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for n in 0..7_i64 {
        let t = 1_000 + n * 4_000;
        let id = u32::try_from(n * 4 + 1).unwrap();
        let own = if n == 6 { last } else { [(20, 500), (501, 930)] };
        rows.extend(own.map(|(from, to)| (0, 7, 0, 1, 7, t + from, t + to)));
        rows.extend([(0, 8, 0, 1, 7, t + 1_070, t + 2_000), (0, 8, 0, 1, 7, t + 2_001, t + 3_880)]);
        let launched = [(7, -500), (7, -480), (8, 900), (8, 1_080)];
        for (call, (pid, at)) in (id..).zip(launched) {
            calls.push((pid, pid * 10, call, t + at, t + at + 10, LAUNCH));
        }
        ranges.push((7, Some(70), t - 500, t - 460, "request"));
        held.extend([(0, 0, 7, 1, t, t + 1_000), (0, 0, 8, 2, t + 1_050, t + 3_950)]);
    }
    let tables = Tables::from([
        ("kernels", numbered(&rows)),
        ("api_calls", api(&calls)),
        ("nvtx", nvtx(&ranges)),
        ("residency", residency(&held)),
    ]);
    explained(tables, &Choice::default()).1
}

fn total(unit: &[Row], kind: SegmentKind) -> i64 {
    unit.iter().filter(|row| row.0 == kind.word()).map(|row| row.1).sum()
}

#[test]
fn saving_and_restoring_are_switches_though_they_are_inside_slices() {
    let found = requests_in_slices([(20, 500), (501, 930)]);
    for unit in found.iter().skip(1) {
        // Launched 490 us before its slice: the other ran until 120 us before it, and its own kernel could run after 19.
        assert_eq!(total(unit, SegmentKind::TimeSlice), 370);
        assert_eq!(total(unit, SegmentKind::Switch), 139);
        assert_eq!(total(unit, SegmentKind::Execution), 480 + 429);
    }
}

#[test]
fn a_kernel_that_ran_as_others_are_restored_shows_that_its_context_was() {
    // The first kernel of the last slice begins and ends in its first 19 us: of these only 4 were a switch.
    let found = requests_in_slices([(4, 10), (11, 930)]);
    assert_eq!(total(&found[5], SegmentKind::Switch), 139);
    // The second kernel follows 7 us behind the start of the first, and its launch call ended 20 us after the first one's.
    assert_eq!(total(&found[6], SegmentKind::TimeSlice), 370 - 13);
    assert_eq!(total(&found[6], SegmentKind::Switch), 124);
    assert_eq!(total(&found[6], SegmentKind::Execution), 6 + 919);
}

/// Requests of 7, each 10 ms after the one before: a kernel of 20 us, launched from 0 to 10, and a graph of two kernels of
/// 100 us, launched from 30 to `graph_until` (none: 300, as the kernel starts then). The device is another tenant's from
/// 5 us before to `away_until`; none: nobody else is there.
fn graph_requests(of: &[(Option<i64>, i64)]) -> Vec<Vec<Row>> {
    graph_requests_starting(of, |call_ends| call_ends + 5)
}

/// The same, where graphs start at a moment that depends on the end of their call, if nothing holds them up.
fn graph_requests_starting(of: &[(Option<i64>, i64)], starts: fn(i64) -> i64) -> Vec<Vec<Row>> {
    let (mut rows, mut ids, mut calls, mut ranges, mut held) = (vec![], vec![], vec![], vec![], vec![]);
    for (n, (away_until, graph_until)) in (0_i64..).zip(of) {
        let t = 5_000 + n * 10_000;
        let id = u32::try_from(n * 2 + 1).unwrap();
        let first = away_until.unwrap_or(15);
        let graph = (first + 21).max(starts(*graph_until));
        for (id, from, to) in
            [(id, first, first + 20), (id + 1, graph, graph + 100), (id + 1, graph + 101, graph + 201)]
        {
            rows.push((0, 7, 0, 1, 7, t + from, t + to));
            ids.push(Some(id));
        }
        calls.push((7, 70, id, t, t + 10, LAUNCH));
        calls.push((7, 70, id + 1, t + 30, t + graph_until, "cudaGraphLaunch"));
        ranges.push((7, Some(70), t, t + graph + 201, "request"));
        held.push((0, 0, 7, 1, t + away_until.unwrap_or(-5), t + 9_900));
        if let Some(until) = away_until {
            rows.push((0, 8, 0, 1, 7, t - 4, t + until - 1));
            ids.push(None);
            held.push((0, 0, 8, 2, t - 5, t + until));
        }
    }
    // Kernels stand by start.
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|place| rows[*place].5);
    let ids: UInt32Array = order.iter().map(|place| ids[*place]).collect();
    rows.sort_by_key(|row| row.5);
    held.sort_by_key(|slice| slice.4);
    let batch = kernels(&rows);
    let batch =
        crate::table::builder::replace(&schema::KERNELS, &batch, vec![("correlation_id", Arc::new(ids))]);
    let tables = Tables::from([
        ("kernels", batch.unwrap()),
        ("api_calls", api(&calls)),
        ("nvtx", nvtx(&ranges)),
        ("residency", residency(&held)),
    ]);
    explained(tables, &Choice::default()).1
}

#[test]
fn a_launch_call_that_a_graph_needs_anyhow_is_no_waiting_for_a_time_slice() {
    let found = graph_requests(&[(None, 300), (None, 300), (Some(2_000), 300), (None, 300), (None, 300)]);
    // Solo: 10 us of the first launch, 20 us of the program, 270 us of the graph's launch and 5 us until it starts.
    for solo in [0, 1, 3, 4].map(|unit| &found[unit]) {
        assert_eq!(total(solo, SegmentKind::Launch), 10 + 270 + 5);
        assert_eq!(total(solo, SegmentKind::Host), 20);
        assert_eq!(total(solo, SegmentKind::Execution), 200);
    }
    // The kernel waits from 10 to 2000, then the graph starts behind it: 2000 + 20 + 1 + 201 = 2222 us. Without the other
    // tenant the graph would have started 20 + 1 us behind the kernel as well, and not before its call ended at 300: of the
    // wait, 300 - 10 - 21 = 269 us are there anyway. Of these the last ones before 300, all in the call.
    let shared = &found[2];
    assert_eq!(shared.iter().map(|row| row.1).sum::<i64>(), 2_222);
    assert_eq!(total(shared, SegmentKind::Launch), 10 + 269);
    assert_eq!(total(shared, SegmentKind::Host), 0);
    assert_eq!(total(shared, SegmentKind::TimeSlice), 1_990 - 269);
    assert_eq!(total(shared, SegmentKind::Execution), 220);
}

#[test]
fn a_graph_that_starts_inside_its_launch_call_needs_no_more_of_it() {
    // Calls end at 300, and graphs start at 55, 25 us after they began. In the last request the first kernel waits from 10 to
    // 2000: of that 55 - 10 - 21 = 24 us are there anyway.
    let mut requests = vec![(None, 300); 6];
    requests.push((Some(2_000), 300));
    let found = graph_requests_starting(&requests, |_| 55);
    assert_eq!(total(&found[6], SegmentKind::Launch) + total(&found[6], SegmentKind::Host), 10 + 24);
    assert_eq!(total(&found[6], SegmentKind::TimeSlice), 1_990 - 24);
}

#[test]
fn a_kernel_that_waits_inside_its_launch_call_waits_for_its_time_slice() {
    // Kernels start 25 us after their call began, which takes 295 us. Of the last one the other tenant is there until 200.
    let (mut rows, mut calls, mut ranges, mut held) = (vec![], vec![], vec![], vec![]);
    for n in 0..7_i64 {
        let t = 5_000 + n * 10_000;
        let from = if n == 6 { 200 } else { 30 };
        rows.push((0, 7, 0, 1, 7, t + from, t + from + 400));
        calls.push((7, 70, u32::try_from(n + 1).unwrap(), t + 5, t + 300, LAUNCH));
        ranges.push((7, Some(70), t, t + from + 400, "request"));
        held.push((0, 0, 7, 1, if n == 6 { t + 200 } else { t - 5 }, t + 9_000));
        if n == 6 {
            held.insert(held.len() - 1, (0, 0, 8, 2, t - 5, t + 200));
        }
    }
    let tables = Tables::from([
        ("kernels", numbered(&rows)),
        ("api_calls", api(&calls)),
        ("nvtx", nvtx(&ranges)),
        ("residency", residency(&held)),
    ]);
    let found = explained(tables, &Choice::default()).1;
    assert_eq!(total(&found[0], SegmentKind::Launch), 25);
    assert_eq!(total(&found[6], SegmentKind::Launch), 25);
    assert_eq!(total(&found[6], SegmentKind::TimeSlice), 170);
}

#[test]
fn a_launch_call_that_is_held_up_is_waiting_for_a_time_slice() {
    // In the third request the call takes 1470 us instead of 270: the rest is no work that the unit needs.
    let found = graph_requests(&[(None, 300), (None, 300), (Some(2_000), 1_500), (None, 300), (None, 300)]);
    // Without that its call would have ended at 300.
    assert_eq!(total(&found[2], SegmentKind::Launch) + total(&found[2], SegmentKind::Host), 10 + 269);
    assert_eq!(total(&found[2], SegmentKind::TimeSlice), 1_990 - 269);
}

#[test]
fn launch_calls_are_needed_only_where_the_device_would_have_waited_for_them() {
    // The graph's call ends at 32, when solo the kernel would still have run: from 15 to 35.
    let found = graph_requests(&[(None, 32), (None, 32), (Some(2_000), 32), (None, 32), (None, 32)]);
    assert_eq!(total(&found[2], SegmentKind::Launch), 10 + 1);
    assert_eq!(total(&found[2], SegmentKind::TimeSlice), 1_990 - 1);
}

#[test]
fn work_that_is_not_the_units_is_queueing_until_its_own_launch() {
    // A request of thread 70 launches at 100 behind a kernel of thread 71 in the same stream that ran from 50 to 700.
    let mut rows = Vec::new();
    let mut calls = Vec::new();
    let mut ranges = Vec::new();
    for n in 0..5_i64 {
        let t = n * 10_000;
        let id = u32::try_from(n * 2 + 1).unwrap();
        rows.push((0, 7, 0, 1, 7, t - 50, t + 700));
        rows.push((0, 7, 0, 1, 7, t + 701, t + 840));
        calls.push((7, 71, id, t - 60, t - 55, LAUNCH));
        calls.push((7, 70, id + 1, t + 100, t + 110, LAUNCH));
        ranges.push((7, Some(70), t, t + 120, "request"));
    }
    let tables =
        Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls)), ("nvtx", nvtx(&ranges))]);
    let (_, found) = explained(tables, &Choice::default());
    let expected = vec![
        row(SegmentKind::Host, 100),
        row(SegmentKind::Launch, 10),
        row(SegmentKind::QueueSameStream, 590),
        row(SegmentKind::QueueSameStream, 1),
        row(SegmentKind::Execution, 139),
    ];
    assert_eq!(found, vec![expected; 5]);
}

#[test]
fn another_stream_that_ended_just_before_released_it() {
    // Stream 8's kernel waits for an event of stream 7's; both are the request's own.
    let mut rows = Vec::new();
    let mut calls = Vec::new();
    let mut ranges = Vec::new();
    for n in 0..5_i64 {
        let t = n * 10_000;
        let id = u32::try_from(n * 2 + 1).unwrap();
        rows.push((0, 7, 0, 1, 7, t + 15, t + 500));
        rows.push((0, 7, 0, 1, 8, t + 502, t + 900));
        calls.push((7, 70, id, t, t + 10, LAUNCH));
        calls.push((7, 70, id + 1, t + 20, t + 30, LAUNCH));
        ranges.push((7, Some(70), t, t + 40, "request"));
    }
    let tables =
        Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls)), ("nvtx", nvtx(&ranges))]);
    let (_, found) = explained(tables, &Choice::default());
    let expected = vec![
        row(SegmentKind::Launch, 10),
        row(SegmentKind::Launch, 5),
        row(SegmentKind::Execution, 485),
        row(SegmentKind::QueueOtherStream, 2),
        row(SegmentKind::Execution, 398),
    ];
    assert_eq!(found, vec![expected; 5]);
}

#[test]
fn its_own_stream_explains_a_start_before_another_that_ended_meanwhile() {
    // Stream 8's second kernel starts 2 us after its first, as kernels of a stream do; stream 7's ends at that moment.
    let (mut rows, mut calls, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..5_i64 {
        let t = n * 10_000;
        let id = u32::try_from(n * 3 + 1).unwrap();
        rows.extend([
            (0, 7, 0, 1, 7, t + 15, t + 602),
            (0, 7, 0, 1, 8, t + 25, t + 600),
            (0, 7, 0, 1, 8, t + 602, t + 900),
        ]);
        for call in 0..3 {
            let at = t + 10 * i64::from(call);
            calls.push((7, 70, id + call, at, at + 5, LAUNCH));
        }
        ranges.push((7, Some(70), t, t + 40, "request"));
    }
    let tables =
        Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls)), ("nvtx", nvtx(&ranges))]);
    let (_, found) = explained(tables, &Choice::default());
    let expected = vec![
        row(SegmentKind::Launch, 5),
        row(SegmentKind::Host, 5),
        row(SegmentKind::Launch, 5),
        row(SegmentKind::Launch, 10),
        row(SegmentKind::Execution, 575),
        row(SegmentKind::QueueSameStream, 2),
        row(SegmentKind::Execution, 298),
    ];
    assert_eq!(found, vec![expected; 5]);
}

/// Two streams of a request, five times: the second one's kernel starts 60 us after the first one's ended, which is
/// longer than a launch takes. Calls between the two launches; further tables.
fn released_late(
    calls_between: &[(i64, &'static str)],
    more: &[(&'static str, RecordBatch)],
) -> Vec<Vec<Row>> {
    let (mut rows, mut calls, mut ranges) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..5_i64 {
        let t = n * 10_000;
        let id = u32::try_from(n * 2 + 1).unwrap();
        rows.push((0, 7, 0, 1, 7, t + 15, t + 500));
        rows.push((0, 7, 0, 1, 8, t + 560, t + 900));
        calls.push((7, 70, id, t, t + 10, LAUNCH));
        for (more, (at, name)) in (0_u32..).zip(calls_between) {
            calls.push((7, 70, 1_000 + 10 * id + more, t + at, t + at + 1, *name));
        }
        calls.push((7, 70, id + 1, t + 20, t + 30, LAUNCH));
        ranges.push((7, Some(70), t, t + 40, "request"));
    }
    let mut tables =
        Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls)), ("nvtx", nvtx(&ranges))]);
    tables.extend(more.iter().cloned());
    explained(tables, &Choice::default()).1
}

const RECORD: &str = "cudaEventRecord_v3020";
const WAIT: &str = "cudaStreamWaitEvent_v3020";

#[test]
fn an_awaited_event_leads_to_what_it_was_recorded_behind() {
    // Recorded in stream 7 at 12, awaited in stream 8 at 14.
    let ids = || (0_u32..5).flat_map(|n| [1_000 + 10 * (2 * n + 1), 1_001 + 10 * (2 * n + 1)]);
    let same = |v: u32| UInt32Array::from(vec![v; 10]);
    let events = Builder::new(&schema::EVENT_CALLS)
        .put("capture", same(0))
        .put("pid", same(7))
        .put("context_id", same(1))
        .put("stream_id", (0_u32..10).map(|n| Some(7 + n % 2)).collect::<UInt32Array>())
        .put("correlation_id", ids().map(Some).collect::<UInt32Array>())
        .put("event_id", same(3))
        .put_words("kind", (0..10).map(|n| if n % 2 == 0 { "record" } else { "synchronization" }))
        .finish(10)
        .unwrap();
    let found = released_late(&[(12, RECORD), (14, WAIT)], &[("event_calls", events)]);
    let expected = vec![
        row(SegmentKind::Launch, 10),
        row(SegmentKind::Launch, 5),
        row(SegmentKind::Execution, 485),
        row(SegmentKind::Unexplained, 60),
        row(SegmentKind::Execution, 340),
    ];
    assert_eq!(found, vec![expected; 5]);
}

#[test]
fn the_legacy_default_stream_leads_to_what_it_waits_for() {
    let one = |v: u32| UInt32Array::from(vec![v]);
    let contexts = |flags: &'static str| {
        Builder::new(&schema::CONTEXTS)
            .put("capture", one(0))
            .put("pid", one(7))
            .put("context_id", one(1))
            .put("null_stream_id", one(7))
            .put("stream_flags", arrow_array::StringArray::from(vec![Some(flags)]))
            .finish(1)
            .unwrap()
    };
    let kinds = |found: Vec<Vec<Row>>| found[0].iter().map(|r| r.0.clone()).collect::<Vec<_>>();
    let blocking = released_late(&[], &[("contexts", contexts("7:3,8:1"))]);
    assert_eq!(kinds(blocking), ["launch", "launch", "execution", "unexplained", "execution"]);
    // A stream that does not wait for it was not released by it.
    let free = released_late(&[], &[("contexts", contexts("7:3,8:2"))]);
    assert_eq!(kinds(free), ["launch", "host", "launch", "unexplained", "queue-other-stream", "execution"]);
}

#[test]
fn an_event_of_which_no_more_is_known_is_called_so() {
    let found = released_late(&[(14, WAIT)], &[]);
    let expected = vec![
        row(SegmentKind::Launch, 10),
        row(SegmentKind::Host, 10),
        row(SegmentKind::Launch, 10),
        row(SegmentKind::Event, 60),
        row(SegmentKind::QueueOtherStream, 470),
        row(SegmentKind::Execution, 340),
    ];
    assert_eq!(found, vec![expected; 5]);
}

#[test]
fn programmatic_dependent_launch_is_clamped_and_counted() {
    let (mut rows, calls, ranges) = five_requests();
    for row in rows.iter_mut().skip(1).step_by(2) {
        row.5 -= 50; // 350 to 840, while the first runs until 400
    }
    let tables =
        Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls)), ("nvtx", nvtx(&ranges))]);
    let (made, found) = explained(tables, &Choice::default());
    let ran: Vec<i64> = found[0].iter().filter(|r| r.0 == "execution").map(|r| r.1).collect();
    assert_eq!(ran, [351 - 115, 840 - 351]);
    let units = Columns::new(&schema::UNITS, &made["units"]);
    assert_eq!(units.u32("clamped").unwrap().values(), &[1; 5]);
}

#[test]
fn a_name_chooses_and_numbers_in_names_do_not_count() {
    let (rows, calls, _) = five_requests();
    let texts = ["request 1", "request 22", "request 3", "request 4", "request 5"];
    let mut ranges: Vec<_> =
        texts.iter().zip(0..).map(|(text, n)| (7, Some(70), n * 10_000, n * 10_000 + 1000, *text)).collect();
    // A range around every second launch holds fewer launches.
    ranges.extend((0..5).map(|n| (7, Some(70), n * 10_000 + 115, n * 10_000 + 600, "part")));
    let tables =
        Tables::from([("kernels", numbered(&rows)), ("api_calls", api(&calls)), ("nvtx", nvtx(&ranges))]);
    let (made, found) = explained(tables.clone(), &Choice::default());
    let units = Columns::new(&schema::UNITS, &made["units"]);
    assert_eq!((found.len(), units.names("name").unwrap().get(0)), (5, Some("request #")));
    let only = |name: &str| Choice { name: Some(name.to_owned()), ..Choice::default() };
    let (made, _) = explained(tables.clone(), &only("part"));
    let units = Columns::new(&schema::UNITS, &made["units"]);
    assert_eq!((units.rows(), units.u32("operations").unwrap().value(0)), (5, 1));
    assert_eq!(explained(tables.clone(), &only("nothing")).1.len(), 0);
    // A window keeps what lies inside of it.
    let inside = Choice { window: Some((5_000_000, 35_000_000)), ..Choice::default() };
    assert_eq!(explained(tables, &inside).1.len(), 3);
}

/// Whatever stands in the tables, segments add up: `explained` checks it.
#[test]
fn segments_always_add_up() {
    let mut units = 0;
    for seed in 0..400 {
        let mut draw = draws(seed);
        let mut rows: Vec<K> = Vec::new();
        for _ in 0..20 + draw(40) {
            let pid = 7 + u32::try_from(draw(3) / 2).unwrap();
            let start = draw(5_000);
            rows.push((0, pid, 0, 1, 7 + u32::try_from(draw(3)).unwrap(), start, start + draw(600)));
        }
        rows.sort_by_key(|r| r.5);
        let mut calls = Vec::new();
        for (n, row) in (1_u32..).zip(&rows) {
            if draw(8) > 0 {
                let start = row.5 - draw(400);
                calls.push((row.1, 70 + u32::try_from(draw(2)).unwrap(), n, start, start + draw(60), LAUNCH));
            }
        }
        for n in 0..draw(12) {
            let start = draw(5_000);
            let id = 10_000 + u32::try_from(n).unwrap();
            calls.push((7, 70 + u32::try_from(draw(2)).unwrap(), id, start, start + draw(800), SYNC));
        }
        let ranges: Vec<_> = (0..8)
            .map(|_| {
                let start = draw(5_000) - 300;
                (7, (draw(3) > 0).then_some(70), start, start + draw(900), "request")
            })
            .collect();
        let mut tables = Tables::from([("kernels", numbered(&rows))]);
        if draw(8) > 0 {
            tables.insert("api_calls", api(&calls));
        }
        if draw(4) > 0 {
            tables.insert("nvtx", nvtx(&ranges));
        }
        if draw(2) > 0 {
            let mut held = Vec::new();
            let mut t = -500;
            for n in 0..12 {
                let end = t + 1 + draw(900);
                held.push((0, 0, 7 + n % 2, u64::from(n % 2) + 1, t, end));
                t = end + draw(60);
            }
            tables.insert("residency", residency(&held));
        }
        units += explained(tables, &Choice::default()).1.len();
    }
    assert!(units > 500, "{units}");
}
