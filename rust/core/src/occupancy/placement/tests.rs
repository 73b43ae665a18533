//! Block placement, worked out by hand.

use super::*;
use crate::base::watch::Unwatched;
use crate::table::events::Tables;
use crate::table::schema::DEVICES;
use arrow_array::{StringArray, UInt64Array};
use proptest::prelude::*;

/// A device of 10 SMs of compute capability 8.0: 64 warps each, 8 blocks of 256 threads.
fn devices() -> RecordBatch {
    let device = Builder::new(&DEVICES)
        .put("device_id", UInt32Array::from(vec![0]))
        .put("capture", UInt32Array::from(vec![0]))
        .put("name", StringArray::from(vec!["test"]))
        .put("sm_count", UInt32Array::from(vec![10]))
        .put("compute_major", UInt32Array::from(vec![8]))
        .put("compute_minor", UInt32Array::from(vec![0]))
        .put_names("limits_basis", [Some("capture")])
        .finish(1)
        .unwrap();
    crate::session::devices::complete(&device, &mut crate::table::quality::Quality::default()).unwrap()
}

/// Kernels of (pid, start, end, grid) with 256 threads and 32 registers.
fn kernels(rows: &[(u32, i64, i64, u32)]) -> Tables {
    let n = rows.len();
    let all = |v: u32| UInt32Array::from(vec![v; n]);
    let zero = || Int64Array::from(vec![0; n]);
    let batch = Builder::new(&KERNELS)
        .put("capture", all(0))
        .put("pid", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
        .put("device_id", all(0))
        .put("start_ns", rows.iter().map(|r| r.1).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|r| r.2).collect::<Int64Array>())
        .put("grid_x", rows.iter().map(|r| r.3).collect::<UInt32Array>())
        .put("grid_y", all(1))
        .put("grid_z", all(1))
        .put("block_x", all(256))
        .put("block_y", all(1))
        .put("block_z", all(1))
        .put("registers_per_thread", all(32))
        .put("static_shared_bytes", zero())
        .put("dynamic_shared_bytes", zero())
        .finish(n)
        .unwrap();
    [("kernels", batch)].into()
}

fn slices(rows: &[(u32, i64, i64)]) -> RecordBatch {
    let n = rows.len();
    Builder::new(&RESIDENCY)
        .put("capture", UInt32Array::from(vec![0; n]))
        .put("device_id", UInt32Array::from(vec![0; n]))
        .put("tenant_id", rows.iter().map(|r| Some(r.0)).collect::<UInt32Array>())
        .put("hw_context", rows.iter().map(|r| u64::from(r.0)).collect::<UInt64Array>())
        .put("start_ns", rows.iter().map(|r| r.1).collect::<Int64Array>())
        .put("end_ns", rows.iter().map(|r| r.2).collect::<Int64Array>())
        .put_names("ending", rows.iter().map(|_| Some("WFI")))
        .put("complete", arrow_array::BooleanArray::from(vec![true; n]))
        .put_names("basis", rows.iter().map(|_| Some("observed")))
        .finish(n)
        .unwrap()
}

fn placed(tables: &Tables, residency: Option<&RecordBatch>, policy: PlacementPolicy, n: usize) -> Placed {
    by_model(Model::Even, tables, residency, policy, n)
}

fn by_model(
    model: Model,
    tables: &Tables,
    residency: Option<&RecordBatch>,
    policy: PlacementPolicy,
    n: usize,
) -> Placed {
    let tenants: TenantMap = [((0, Some(1), 0), 1), ((0, Some(2), 0), 2)].into();
    Placement::new(&devices(), tenants, residency, policy, (0, 100), n)
        .unwrap()
        .with_model(model)
        .run(tables, &Unwatched)
        .unwrap()
}

fn replayed(tables: &Tables, policy: PlacementPolicy, n: usize) -> Placed {
    by_model(Model::Replay, tables, None, policy, n)
}

/// Mean warps of every SM, bin after bin.
fn per_sm(placed: &Placed) -> Vec<Vec<f64>> {
    let c = Columns::new(&SM_WARPS, &placed.sm_warps);
    let warps = c.f64("warps").unwrap();
    (0..c.rows()).map(|r| warps.value(r)).collect::<Vec<_>>().chunks(10).map(<[f64]>::to_vec).collect()
}

/// (SMs reached, waves, caveat)
fn reached(placed: &Placed) -> Vec<(Option<u32>, Option<f64>, Option<String>)> {
    let c = Columns::new(&KERNEL_PLACEMENT, &placed.kernel_placement);
    let (sms, waves) = (c.u32("sms_reached").unwrap(), c.f64("waves").unwrap());
    let caveat = c.names("caveat").unwrap();
    (0..c.rows()).map(|r| (at(sms, r), at(waves, r), caveat.get(r).map(str::to_owned))).collect()
}

/// (tenant, start, warps, sm_active)
fn rows(placed: &Placed) -> Vec<(u32, i64, f64, f64)> {
    let c = Columns::new(&SM_OCCUPANCY, &placed.sm_occupancy);
    (0..c.rows())
        .map(|r| {
            let (w, a) = (c.f64("warps").unwrap().value(r), c.f64("sm_active").unwrap().value(r));
            (c.u32("tenant_id").unwrap().value(r), c.i64("start_ns").unwrap().value(r), w, a)
        })
        .collect()
}

fn policy(sharing: Sharing, sms: &[(u32, u32)]) -> PlacementPolicy {
    let sms = sms.iter().map(|(tenant, n)| ((*tenant, None), SmSet::Count(*n))).collect();
    PlacementPolicy { sharing: [(0, sharing)].into(), sms, ..PlacementPolicy::default() }
}

#[test]
fn one_kernel() {
    // 5 blocks of 8 warps on 10 SMs of 64: 40 of 640 warp slots, 5 of 10 SMs, in 25 of 50 ns of each bin.
    let tables = kernels(&[(1, 25, 75, 5)]);
    let out = placed(&tables, None, PlacementPolicy::default(), 2);
    assert_eq!(rows(&out), [(1, 0, 0.03125, 0.25), (1, 50, 0.03125, 0.25)]);
    // Confined to 2 SMs: 2 active; 5 blocks still fit there.
    let out = placed(&tables, None, policy(Sharing::Disjoint, &[(1, 2)]), 1);
    assert_eq!(rows(&out), [(1, 0, 0.03125, 0.1)]);
}

#[test]
fn kernels_that_ask_for_too_much_share() {
    // Both fill the device for the whole window: half each. A tenant with 3 SMs gets no more than those.
    let tables = kernels(&[(1, 0, 100, 1000), (2, 0, 100, 1000)]);
    let out = placed(&tables, None, policy(Sharing::Shared, &[]), 1);
    assert_eq!(rows(&out), [(1, 0, 0.5, 0.5), (2, 0, 0.5, 0.5)]);
    let out = placed(&tables, None, policy(Sharing::Disjoint, &[(1, 3), (2, 7)]), 1);
    assert_eq!(rows(&out), [(1, 0, 0.3, 0.3), (2, 0, 0.7, 0.7)]);
}

#[test]
fn time_slices_count_only_while_resident() {
    // Tenant 1 resident in [0,20) and [60,80), tenant 2 in [20,60): both kernels in flight all the time.
    let tables = kernels(&[(1, 0, 100, 1000), (2, 0, 100, 5)]);
    let held = slices(&[(1, 0, 20), (2, 20, 60), (1, 60, 80)]);
    let out = placed(&tables, Some(&held), policy(Sharing::TimeSliced, &[]), 1);
    assert_eq!(rows(&out), [(1, 0, 0.4, 0.4), (2, 0, 0.025, 0.2)]);
    // Without switch records: equal shares of the time, not of the SMs.
    let out = placed(&tables, None, policy(Sharing::TimeSliced, &[]), 1);
    assert_eq!(rows(&out), [(1, 0, 0.5, 0.5), (2, 0, 0.03125, 0.25)]);
}

/// Turns of (tenant, start, end, latest start, earliest end).
fn inferred(turns: &[(u32, i64, i64, i64, i64)]) -> RecordBatch {
    let n = turns.len();
    let of = |f: fn(&(u32, i64, i64, i64, i64)) -> i64| turns.iter().map(f).collect::<Int64Array>();
    Builder::new(&INFERRED_RESIDENCY)
        .put("device_id", UInt32Array::from(vec![0; n]))
        .put("tenant_id", turns.iter().map(|t| Some(t.0)).collect::<UInt32Array>())
        .put("start_ns", of(|t| t.1))
        .put("end_ns", of(|t| t.2))
        .put("earliest_start_ns", of(|t| t.1))
        .put("latest_start_ns", of(|t| t.3))
        .put("earliest_end_ns", of(|t| t.4))
        .put("latest_end_ns", of(|t| t.2))
        .put_names("basis", turns.iter().map(|_| Some("inferred")))
        .finish(n)
        .unwrap()
}

#[test]
fn blocks_stand_still_while_turns_change() {
    // 520 ns between turns are 0.52 of a context switch: 360 ns of it before the end of a turn, 120 after the start of one.
    // 1 |0=======640|~~1000                          3040~~|3160==========4040|   a kernel that is still there at 4040
    // 2                    1520~~|1640==2160|~~2520                               a start and an end
    let turns = inferred(&[(1, 0, 1000, 0, 0), (2, 1520, 2520, 1640, 2160), (1, 3040, 4040, 4040, 4040)]);
    let tables = kernels(&[(1, 0, 4040, 80), (2, 1640, 2160, 5)]);
    let tenants: TenantMap = [((0, Some(1), 0), 1), ((0, Some(2), 0), 2)].into();
    let placement =
        Placement::new(&devices(), tenants, None, policy(Sharing::TimeSliced, &[]), (0, 4040), 1).unwrap();
    let out = placement.with_inferred(&turns).unwrap().run(&tables, &Unwatched).unwrap();
    let found = rows(&out);
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    assert!(near(found[0].2, (640.0 + 880.0) / 4040.0), "{found:?}");
    assert!(near(found[1].2, 520.0 / 4040.0 * 40.0 / 640.0), "{found:?}");
}

#[test]
fn inferred_turns_place_blocks_but_bound_nothing() {
    // As above, from turns that nobody recorded: where tenants were is the same, bounds hold for any turns.
    let inferred = inferred(&[(1, 0, 20, 0, 0), (2, 20, 60, 20, 20), (1, 60, 80, 60, 60)]);
    let tables = kernels(&[(1, 0, 100, 1000), (2, 0, 100, 5)]);
    let tenants: TenantMap = [((0, Some(1), 0), 1), ((0, Some(2), 0), 2)].into();
    let with = |observed: Option<&RecordBatch>| {
        Placement::new(&devices(), tenants.clone(), observed, policy(Sharing::TimeSliced, &[]), (0, 100), 1)
            .unwrap()
            .with_inferred(&inferred)
            .unwrap()
            .with_model(Model::Even)
            .run(&tables, &Unwatched)
            .unwrap()
    };
    let bounds = |out: &Placed| {
        let c = Columns::new(&SM_OCCUPANCY, &out.sm_occupancy);
        let of = |name: &str| c.f64(name).unwrap().values().to_vec();
        (of("warps_low"), of("warps_high"))
    };
    let out = with(None);
    assert_eq!(rows(&out), [(1, 0, 0.4, 0.4), (2, 0, 0.025, 0.2)]);
    assert_eq!(bounds(&out), (vec![0.0, 0.0], vec![1.0, 0.0625]));
    // What was observed needs no inference.
    let out = with(Some(&slices(&[(1, 0, 50), (2, 50, 100)])));
    assert_eq!(rows(&out), [(1, 0, 0.5, 0.5), (2, 0, 0.03125, 0.25)]);
    assert_eq!(bounds(&out), (vec![0.00625, 0.00625], vec![0.5, 0.03125]));
}

#[test]
fn what_cannot_be_modelled_is_counted() {
    let out = placed(&kernels(&[(9, 0, 10, 5), (1, 20, 30, 0)]), None, PlacementPolicy::default(), 4);
    assert_eq!((out.sm_occupancy.num_rows(), out.unmodelled_kernels, out.unmodelled_ns), (0, 2, 20));
    let none = Placement::new(&devices(), TenantMap::new(), None, PlacementPolicy::default(), (5, 5), 1);
    assert!(matches!(none, Err(Error::Argument(_))));
}

// 10 SMs of 64 warps; a block has 8, so 8 fit on an SM and 80 on the device.

#[test]
fn blocks_go_round_even_sms_first() {
    // 13 blocks: one each, then SMs 0, 2 and 4 a second one.
    let out = replayed(&kernels(&[(1, 0, 100, 13)]), PlacementPolicy::default(), 1);
    assert_eq!(per_sm(&out), [[16.0, 8.0, 16.0, 8.0, 16.0, 8.0, 8.0, 8.0, 8.0, 8.0]]);
    assert_eq!(reached(&out), [(Some(10), Some(1.0), None)]);
    // 7 of 640 / 8 places: two odd SMs.
    let out = replayed(&kernels(&[(1, 0, 100, 7)]), PlacementPolicy::default(), 1);
    assert_eq!(per_sm(&out), [[8.0, 8.0, 8.0, 8.0, 8.0, 0.0, 8.0, 0.0, 8.0, 0.0]]);
    assert_eq!(reached(&out), [(Some(7), Some(1.0), None)]);
    let bounds = Columns::new(&SM_OCCUPANCY, &out.sm_occupancy);
    let value = |name| bounds.f64(name).unwrap().value(0);
    assert_eq!(
        (value("warps_low"), value("warps"), value("warps_high")),
        (8.0 / 640.0, 56.0 / 640.0, 56.0 / 640.0)
    );
}

#[test]
fn waves_and_the_last_one() {
    // 164 blocks in waves of 80: two full ones, then 4 blocks on SMs 0, 2, 4, 6. Four bins: 4/3 of a bin a wave.
    let out = replayed(&kernels(&[(1, 0, 100, 164)]), PlacementPolicy::default(), 4);
    let bins = per_sm(&out);
    assert_eq!(bins[0], [64.0; 10]);
    let near = |a: &[f64], b: [f64; 10]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 0.01);
    let two_thirds = 64.0 * 2.0 / 3.0;
    let (a, b) = (two_thirds + 8.0 / 3.0, two_thirds);
    assert!(near(&bins[2], [a, b, a, b, a, b, a, b, b, b]), "{bins:?}");
    assert!(near(&bins[3], [8.0, 0.0, 8.0, 0.0, 8.0, 0.0, 8.0, 0.0, 0.0, 0.0]), "{bins:?}");
    assert_eq!(reached(&out), [(Some(10), Some(2.05), None)]);
}

#[test]
fn a_kernel_takes_what_the_last_wave_of_another_leaves() {
    // A: 120 blocks, two waves of 50 ns, 40 in the second, 4 on an SM. B (other context): 30 blocks from 50 on,
    // where most room is: 3 on each.
    let out = replayed(&kernels(&[(1, 0, 100, 120), (2, 50, 100, 30)]), PlacementPolicy::default(), 2);
    let bins = per_sm(&out);
    assert_eq!(bins[0], [64.0; 10]);
    assert_eq!(bins[1], [56.0; 10]);
    // A small one of 5 blocks begins on an empty device beside 5 of another: each has SMs of its own.
    let out = replayed(&kernels(&[(1, 0, 100, 5), (2, 0, 100, 5)]), PlacementPolicy::default(), 1);
    assert_eq!(per_sm(&out), [[8.0; 10]]);
    assert_eq!(rows(&out).iter().map(|r| r.3).collect::<Vec<_>>(), [0.5, 0.5]);
}

#[test]
fn sets_of_sms() {
    let these = |sms: &[u32]| SmSet::These(sms.to_vec());
    let policy = PlacementPolicy {
        sms: [((1, None), these(&[4, 5])), ((2, None), these(&[0, 9]))].into(),
        ..PlacementPolicy::default()
    };
    let out = replayed(&kernels(&[(1, 0, 100, 3), (2, 0, 100, 40)]), policy, 1);
    // Tenant 1: SM 4 first. Tenant 2: 40 blocks in waves of 16, 16 and 8.
    let bins = per_sm(&out);
    assert_eq!((bins[0][4], bins[0][5], bins[0][1]), (16.0, 8.0, 0.0));
    assert!((bins[0][0] - (64.0 + 64.0 + 32.0) / 3.0).abs() < 0.01, "{bins:?}");
    // Which SMs is not known: whole TPCs, disjoint while there are enough.
    let policy = policy_of_counts(&[(1, 4), (2, 6)]);
    let out = replayed(&kernels(&[(1, 0, 100, 4), (2, 0, 100, 12)]), policy, 1);
    assert_eq!(per_sm(&out), [[8.0, 8.0, 8.0, 8.0, 16.0, 16.0, 16.0, 16.0, 16.0, 16.0]]);
}

fn policy_of_counts(sms: &[(u32, u32)]) -> PlacementPolicy {
    policy(Sharing::Disjoint, sms)
}

#[test]
fn blocks_stand_still_while_others_are_resident() {
    // Tenant 1: 160 blocks, two waves, resident in [0, 20) and [60, 80): a wave in each. Its last block ends at 80.
    let tables = kernels(&[(1, 0, 100, 160), (2, 20, 60, 5)]);
    let held = slices(&[(1, 0, 20), (2, 20, 60), (1, 60, 80)]);
    let out = by_model(Model::Replay, &tables, Some(&held), policy(Sharing::TimeSliced, &[]), 5);
    let bins = per_sm(&out);
    assert_eq!((&bins[0], &bins[3], &bins[4]), (&vec![64.0; 10], &vec![64.0; 10], &vec![0.0; 10]));
    assert_eq!(bins[1], [8.0, 0.0, 8.0, 0.0, 8.0, 0.0, 8.0, 0.0, 8.0, 0.0]);
    assert_eq!(reached(&out)[0], (Some(10), Some(2.0), None));
}

#[test]
fn a_start_where_the_model_has_no_room_thins_out_what_is_there() {
    // A: one wave of 80 blocks for 100 ns, if they are equal. B started at 20 all the same.
    let out = replayed(&kernels(&[(1, 0, 100, 80), (2, 20, 100, 80)]), PlacementPolicy::default(), 5);
    assert_eq!(reached(&out)[0].2.as_deref(), Some("persistent"));
    let warps: Vec<f64> = per_sm(&out).iter().map(|bin| bin.iter().sum::<f64>() / 640.0).collect();
    assert!(warps.iter().take(3).all(|w| *w == 1.0) && warps.iter().all(|w| *w > 0.4), "{warps:?}");
    let ours = rows(&out);
    let of = |tenant: u32| ours.iter().filter(|r| r.0 == tenant).map(|r| r.2).collect::<Vec<_>>();
    assert!(of(1).windows(2).all(|w| w[0] >= w[1]) && of(1)[4] > 0.0, "{:?}", of(1));
    assert!(of(2)[1] > 0.0, "{:?}", of(2));
}

#[test]
fn a_kernel_that_started_comes_before_what_should_have_been_placed() {
    // A: 200 blocks, equal ones stand in waves of 80, 80 and 40, the second until 66.7. B began at 50 all the same:
    // an eighth of A's wave, 10 blocks, ends then, and B has their places: two rounds of blocks of 25 ns. At 66.7 the
    // other 70 end: first come B's other 10 blocks, which end with it, at 100, then A's 40.
    let out = replayed(&kernels(&[(1, 0, 100, 200), (2, 50, 100, 20)]), PlacementPolicy::default(), 2);
    let found = rows(&out);
    let near = |row: &(u32, i64, f64, f64), blocks: f64| (row.2 * 80.0 - blocks).abs() < 0.01;
    let (a, b) = ((70.0 * 16.667 + 40.0 * 33.333) / 50.0, (10.0 * 25.0 + 10.0 * 33.333) / 50.0);
    assert!(near(&found[0], 80.0) && near(&found[1], a) && near(&found[3], b), "{found:?}");
    let caveats: Vec<_> = reached(&out).into_iter().map(|r| r.2).collect();
    assert_eq!(caveats, [Some("uneven".to_owned()), None]);
}

#[test]
fn where_the_least_of_many_begin() {
    let edge = |seen: &[i64]| {
        let mut nearest = Nearest::default();
        seen.iter().for_each(|ns| nearest.see(*ns));
        nearest.edge(1000)
    };
    // Every 2 ns from 12 on: they begin at 10.
    assert_eq!(edge(&[40, 26, 24, 12, 14, 16, 18, 22, 20, 28]), Some(10));
    assert_eq!(edge(&[7; 9]), Some(7));
    // Too few; too far apart for slices of a microsecond; not at the edge at all.
    assert_eq!(edge(&[7; 7]), None);
    assert_eq!(edge(&[10, 31, 52, 73, 94, 115, 136, 160]), None);
    assert_eq!(edge(&[600; 9]), None);
}

#[test]
fn saving_and_restoring_is_not_running() {
    // Slices of 1000 ns every 2000. Each kernel fills the device, starts 100 ns into one slice and ends 100 ns before
    // the end of the next: 800 + 800 ns in 4000.
    let held = slices(&(0..20).map(|n| (1, 2000 * n, 2000 * n + 1000)).collect::<Vec<_>>());
    let ran: Vec<_> = (0..10).map(|n| (1, 4000 * n + 100, 4000 * n + 2900, 80)).collect();
    let tables = kernels(&ran);
    let tenants: TenantMap = [((0, Some(1), 0), 1)].into();
    let policy = policy(Sharing::TimeSliced, &[]);
    let placement = Placement::new(&devices(), tenants, Some(&held), policy, (0, 40_000), 1).unwrap();
    let out = placement.with_kernels(&tables["kernels"]).unwrap().run(&tables, &Unwatched).unwrap();
    assert!((rows(&out)[0].2 - 0.4).abs() < 1e-9, "{:?}", rows(&out));
    // Bounds do not rest on it: 900 + 900 ns.
    let bounds = Columns::new(&SM_OCCUPANCY, &out.sm_occupancy);
    assert!((bounds.f64("warps_high").unwrap().value(0) - 0.45).abs() < 1e-9);
}

#[test]
fn waves_of_a_short_kernel_where_nothing_fits_are_not_followed() {
    // As above, in bins of 500 ns: B holds the 10 places that it got until it ends. A's 70 others end at 66.7, B takes
    // its other 10 places then, A its last 40.
    let tables = kernels(&[(1, 0, 100, 200), (2, 50, 100, 20)]);
    let tenants: TenantMap = [((0, Some(1), 0), 1), ((0, Some(2), 0), 2)].into();
    let placement =
        Placement::new(&devices(), tenants, None, PlacementPolicy::default(), (0, 500), 1).unwrap();
    let found = rows(&placement.run(&tables, &Unwatched).unwrap());
    let near = |row: &(u32, i64, f64, f64), blocks: f64| (row.2 * 80.0 * 500.0 - blocks).abs() < 0.1;
    assert!(near(&found[0], 80.0 * 50.0 + 70.0 * 16.6667 + 40.0 * 33.3333), "{found:?}");
    assert!(near(&found[1], 10.0 * 50.0 + 10.0 * 33.3333), "{found:?}");
}

proptest! {
    #[test]
    fn the_replay_stays_within_its_bounds(
        mut drawn in prop::collection::vec((1_u32..3, 0_i64..100, 1_i64..50, 1_u32..400), 1..40),
        n in 1_usize..9,
        sliced in any::<bool>(),
    ) {
        drawn.sort_by_key(|r| r.1);
        let tables = kernels(&drawn.iter().map(|r| (r.0, r.1, r.1 + r.2, r.3)).collect::<Vec<_>>());
        let held = slices(&[(1, 0, 20), (2, 20, 60), (1, 60, 80)]);
        let sharing = if sliced { Sharing::TimeSliced } else { Sharing::Shared };
        let whole = by_model(Model::Replay, &tables, Some(&held), policy(sharing, &[]), n);
        let c = Columns::new(&SM_OCCUPANCY, &whole.sm_occupancy);
        let column = |name: &str| c.f64(name).unwrap().clone();
        let (low, warps, high) = (column("warps_low"), column("warps"), column("warps_high"));
        let mut by_bin: BTreeMap<i64, f64> = BTreeMap::new();
        for row in 0..c.rows() {
            prop_assert!(low.value(row) <= warps.value(row) && warps.value(row) <= high.value(row));
            *by_bin.entry(c.i64("start_ns").unwrap().value(row)).or_default() += warps.value(row) * 640.0;
        }
        // Tenants and SMs add up to the same.
        for (bin, sms) in by_bin.values().zip(per_sm(&whole)) {
            prop_assert!((bin - sms.iter().sum::<f64>()).abs() < 1e-6, "{bin} {sms:?}");
            // Only a forced start may stand beside what fills an SM.
            prop_assert!(sms.iter().all(|w| *w > -1e-9 && *w <= 64.0 + 8.0 * drawn.len() as f64));
        }
    }

    #[test]
    fn a_device_is_never_overfull(
        mut drawn in prop::collection::vec((1_u32..3, 0_i64..100, 1_i64..50, 1_u32..200), 1..40),
        n in 1_usize..9,
        sliced in any::<bool>(),
    ) {
        drawn.sort_by_key(|r| r.1);
        let tables = kernels(&drawn.iter().map(|r| (r.0, r.1, r.1 + r.2, r.3)).collect::<Vec<_>>());
        let held = slices(&[(1, 0, 20), (2, 20, 60), (1, 60, 80)]);
        let sharing = if sliced { Sharing::TimeSliced } else { Sharing::Shared };
        let whole = rows(&placed(&tables, Some(&held), policy(sharing, &[]), n));
        let mut sums: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
        for row in whole {
            let sum = sums.entry(row.1).or_default();
            *sum = (sum.0 + row.2, sum.1 + row.3);
        }
        prop_assert!(sums.values().all(|s| s.0 <= 1.0 + 1e-9 && s.1 <= 1.0 + 1e-9));
    }
}
