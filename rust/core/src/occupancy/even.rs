//! The even model: the warps of each tenant spread evenly over the SMs that it may use.
//!
//! It is the baseline that the replay is measured against, and gives the bounds of both models.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use crate::occupancy::placement::Placement;

/// Blocks of one kernel, or of all kernels of a tenant: warps and SMs. Whole numbers, so that what is added
/// and taken away again leaves nothing behind.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Load {
    pub(super) kernels: u64,
    pub(super) warps: u64,
    pub(super) sms: u64,
    /// Warps of one block of each.
    pub(super) least: u64,
}

/// A tenant on its device, as the even model and the bounds see it.
#[derive(Debug, Default)]
pub(super) struct Tenant {
    pub(super) load: Load,
    /// Slices of it that are open: more than one where it has several contexts.
    pub(super) resident: u32,
    pub(super) warps: Vec<f64>,
    pub(super) sm_active: Vec<f64>,
    pub(super) low: Vec<f64>,
    pub(super) high: Vec<f64>,
    pub(super) seen: bool,
}

#[derive(Debug, Default)]
pub(super) struct Device {
    pub(super) since_ns: Option<i64>,
    /// The bin in which the last change was.
    pub(super) cursor: usize,
    pub(super) tenants: BTreeMap<u32, Tenant>,
    /// Those with kernels in flight.
    pub(super) flying: BTreeSet<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Kernel { warps: u64, sms: u64, least: u64 },
    Slice,
}

/// Ends that lie ahead, soonest first: (time, device, tenant, what).
pub(super) type Ends = BinaryHeap<Reverse<(i64, u32, u32, End)>>;

impl Placement {
    /// Adds to the bins what was there from the device's last change until now.
    pub(super) fn settle(&mut self, device: u32, now_ns: i64) {
        let Some((_, all)) = self.sms(device, u32::MAX) else { return };
        let Some(max_warps) = self.limits.get(&device).and_then(|l| l.max_warps_per_sm) else { return };
        let state = self.devices.entry(device).or_default();
        let since_ns = state.since_ns.replace(now_ns).unwrap_or(now_ns);
        if since_ns >= now_ns {
            return;
        }
        let Some(state) = self.devices.get(&device).filter(|state| !state.flying.is_empty()) else { return };
        let mut asked = std::mem::take(&mut self.asked);
        asked.clear();
        let mut waiting = BTreeSet::new();
        let flying = || state.flying.iter().filter_map(|id| state.tenants.get_key_value(id));
        for (id, _) in flying() {
            if self.turns(device, *id) && !self.held.contains_key(&(device, self.holder(*id))) {
                waiting.insert(self.group(device, *id));
            }
        }
        for (id, tenant) in flying() {
            let holder = self.holder(*id);
            let turns = self.turns(device, *id);
            let known = self.held.contains_key(&(device, holder));
            let resident = || state.tenants.get(&holder).is_some_and(|t| t.resident > 0);
            let (weight, least, most) = match (turns, known) {
                (false, _) => (1.0, 1.0, 1.0),
                (true, false) if waiting.len() > 1 => (1.0 / waiting.len() as f64, 0.0, 1.0),
                (true, false) => (1.0, 1.0, 1.0),
                (true, true) => {
                    let here = f64::from(u8::from(resident()));
                    if self.inferred.contains(&device) {
                        (here, 0.0, 1.0)
                    } else {
                        (here, here, here)
                    }
                }
            };
            let own = self.sms(device, *id).map_or(all, |s| s.0);
            let cap = f64::from(own) / f64::from(all);
            let slots = f64::from(all) * f64::from(max_warps);
            let warps = (tenant.load.warps as f64 / slots).min(cap);
            let sms = (tenant.load.sms as f64 / f64::from(all)).min(cap);
            let low = (tenant.load.least as f64 / slots).min(cap);
            asked.push((*id, [weight * warps, weight * sms, least * low, most * warps]));
        }
        let total = asked.iter().fold((0.0, 0.0), |sum, (_, a)| (sum.0 + a[0], sum.1 + a[1]));
        let scale = (1.0 / f64::max(total.0, 1.0), 1.0 / f64::max(total.1, 1.0));
        let Some(state) = self.devices.get_mut(&device) else { return };
        let mut cursor = state.cursor;
        self.bins.each(&mut cursor, since_ns, now_ns, |bin, length| {
            for (id, [warps, sms, low, high]) in &asked {
                let Some(tenant) = state.tenants.get_mut(id) else { continue };
                let series = [&mut tenant.warps, &mut tenant.sm_active, &mut tenant.low, &mut tenant.high];
                for (series, value) in series.into_iter().zip([warps * scale.0, sms * scale.1, *low, *high]) {
                    if let Some(sum) = series.get_mut(bin) {
                        *sum += value * length;
                    }
                }
            }
        });
        state.cursor = cursor;
        self.asked = asked;
    }

    pub(super) fn tenant(&mut self, device: u32, tenant: u32) -> &mut Tenant {
        self.devices.entry(device).or_default().tenants.entry(tenant).or_default()
    }

    /// Lets slices begin and kernels and slices end, until `now_ns`.
    pub(super) fn advance(&mut self, now_ns: i64) {
        loop {
            let slice_ns = self.next_slice.map(|s| s.0).filter(|t| *t <= now_ns);
            let end_ns = self.ends.peek().map(|Reverse(e)| e.0).filter(|t| *t <= now_ns);
            match (slice_ns, end_ns) {
                (None, None) => return,
                (Some(start), end) if end.is_none_or(|end| start < end) => {
                    let Some((_, until, device, tenant)) = self.next_slice.take() else { return };
                    self.next_slice = self.slices.next();
                    self.settle(device, start);
                    self.tenant(device, tenant).resident += 1;
                    self.ends.push(Reverse((until, device, tenant, End::Slice)));
                }
                _ => {
                    let Some(Reverse((time, device, id, end))) = self.ends.pop() else { return };
                    self.settle(device, time);
                    let tenant = self.tenant(device, id);
                    match end {
                        End::Slice => tenant.resident = tenant.resident.saturating_sub(1),
                        End::Kernel { warps, sms, least } => {
                            tenant.load.kernels = tenant.load.kernels.saturating_sub(1);
                            tenant.load.warps = tenant.load.warps.saturating_sub(warps);
                            tenant.load.sms = tenant.load.sms.saturating_sub(sms);
                            tenant.load.least = tenant.load.least.saturating_sub(least);
                            if tenant.load.kernels == 0 {
                                self.devices.entry(device).or_default().flying.remove(&id);
                            }
                        }
                    }
                }
            }
        }
    }

    /// Puts the warps of the even model on the SMs that each tenant may use.
    #[allow(clippy::cast_precision_loss)] // a few hundred SMs
    pub(super) fn spread_evenly(&mut self) {
        for (device, state) in &self.devices {
            let Some(max_warps) = self.limits.get(device).and_then(|l| l.max_warps_per_sm) else { continue };
            let Some(replay) = self.replays.get_mut(device) else { continue };
            let n = replay.sums.sms.max(1);
            for (id, tenant) in state.tenants.iter().filter(|t| t.1.seen) {
                let sm_group = replay.sm_groups.iter().find(|c| c.by_tenant.contains_key(id));
                let set =
                    sm_group.and_then(|c| c.sets.get(&(*id, None)).and_then(|set| c.machine.set(set.0)));
                let set: Vec<f64> = match set {
                    Some(set) => set.iter().map(|s| f64::from(*s)).collect(),
                    None => vec![1.0; n],
                };
                let own = set.iter().sum::<f64>().max(1.0);
                let rows = replay.sums.warps.chunks_mut(n).zip(replay.sums.active.chunks_mut(n));
                for ((warps, active), (w, a)) in rows.zip(tenant.warps.iter().zip(&tenant.sm_active)) {
                    for ((warps, active), may) in warps.iter_mut().zip(active).zip(&set) {
                        *warps += may * w * n as f64 / own * f64::from(max_warps);
                        *active += may * a * n as f64 / own;
                    }
                }
            }
        }
    }
}
