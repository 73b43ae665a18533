//! Ways to share a device: instances, tenants on them, time slices.

use std::collections::BTreeMap;

use crate::base::error::{Error, Result};

/// Where a tenant stands in a config.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Assignment {
    /// Tenant.
    pub tenant: u32,
    /// Index of its instance.
    pub instance: usize,
    /// Tenants of an instance with the same number are resident together.
    pub group: u32,
    /// SMs that its kernels may use; `None`: all of the instance.
    pub sms: Option<u32>,
    /// Which copy of the tenant's program it is, from 0.
    pub copy: u32,
    /// The copy begins that much later than the program was recorded to begin.
    pub start_ns: i64,
    /// Part of the device's memory bandwidth that its kernels take while they run solo; 0: not known. Kernels of which
    /// it was measured one by one ([`Recorded::kernel_demands`]) take theirs.
    pub bandwidth: f64,
    /// Part of the throughput (issue slots, or the pipe that is used most) of the SMs that hold its blocks while it runs
    /// solo; 0: not known. Kernels of which it was measured one by one take theirs.
    pub sm_throughput: f64,
    /// What is assumed instead where that is not known: part of the throughput of an SM that its kernels take while the
    /// SM holds as many of their blocks as fit. With fewer of them they take less; 0: nothing is assumed.
    pub assumed_sm_throughput: f64,
    /// Part of the device's L2 cache that the data fill which its kernels come back to; 0: none.
    pub cache: f64,
}

/// What a kernel takes while it runs solo, as parts of what the device has; `None`: not measured.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Demand {
    /// Of the memory bandwidth.
    pub bandwidth: Option<f64>,
    /// Of the throughput of all SMs: issue slots, or the pipe that is used most.
    pub sm_throughput: Option<f64>,
}

/// Two tenants of which each wants the whole device lose nothing to each other.
pub const MOST_COMPLEMENTARY: f64 = -0.5;

/// Which kernels of MPS clients get blocks while one that was ready earlier waits for SM resources, where nobody of their
/// group is capped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClientOrder {
    /// None: kernels of all clients wait in one line, and no block of a kernel is placed before the last one of a kernel
    /// that was ready before it. Under MPS on an H100 and an H200 952 of 977 kernels that became ready while one of
    /// another client waited began after it, 373 of them with smaller blocks; of the others 18 overtook the first launch
    /// of a kernel, and 7 met a time slice of a process outside of MPS. With caps of 50 % each all of 180 went first.
    #[default]
    OneLine,
    /// Those of other clients for which there is room.
    Overtaking,
}

impl ClientOrder {
    /// Every order.
    pub const ALL: [Self; 2] = [Self::OneLine, Self::Overtaking];

    /// Its word in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OneLine => "one-line",
            Self::Overtaking => "overtaking",
        }
    }
}

/// A way to share a device.
#[derive(Debug, Clone, PartialEq)]
pub struct SharingConfig {
    /// Its name, as it stands in the table.
    pub name: String,
    /// SMs of each instance.
    pub instances: Vec<u32>,
    /// Part of the device's memory bandwidth that each instance has; empty: all of it.
    pub bandwidths: Vec<f64>,
    /// Who is on it; a tenant that is left out does not run.
    pub assignments: Vec<Assignment>,
    /// A group executes that long while others wait.
    pub slice_ns: i64,
    /// From the end of one group's execution to the begin of the next one's.
    pub switch_ns: i64,
    /// Part by which the SMs are slower while kernels of two tenants are on them. Below 0 the two need different units of
    /// an SM: where there is no room for all of their blocks, those that have some run faster, by up to as much as if
    /// each of two that want the whole device took so much less.
    pub contention: f64,
    /// A context without work keeps the engine that long once another has some; `None`: as the capture shows.
    pub linger_ns: Option<i64>,
    /// Pauses of hosts end at the moments at which they were recorded to end, and not after as long: what they wait for
    /// comes when it comes. Those of programs with a frame rate always do, those of programs that hardly pause never.
    pub anchored: bool,
    /// Block times of a kernel lie within this part of their mean; 0: all equal.
    pub block_imbalance: f64,
    /// Every operation, and every pause of a host, takes longer or shorter by up to this part, differently for each
    /// `seed` and copy. Programs that repeat themselves fall into step, or out of it, by chance: what holds for one phase
    /// need not hold for the next.
    pub jitter: f64,
    /// See `jitter`.
    pub seed: u64,
    /// DRAM traffic that is added where L2 holds nothing of what kernels come back to, as a part of the traffic where it
    /// holds all: hits over misses.
    pub hits_over_misses: f64,
    /// Which SM sets the pace of kernels whose blocks want more of some SMs than there is: the mean (0), or one of those
    /// with a block more than others (1).
    pub crowding: f64,
    /// Order of MPS clients without caps; `None`: as the capture shows.
    pub client_order: Option<ClientOrder>,
}

impl SharingConfig {
    /// Tenants whose kernels may overtake each other or not, with instance and number of their group: others are resident
    /// together with them, and none of those is capped.
    pub fn uncapped_clients(&self) -> BTreeMap<u32, (usize, u32)> {
        let mut groups: BTreeMap<(usize, u32), Vec<&Assignment>> = BTreeMap::new();
        for one in &self.assignments {
            groups.entry((one.instance, one.group)).or_default().push(one);
        }
        groups.retain(|_, clients| clients.len() > 1 && clients.iter().all(|one| one.sms.is_none()));
        let clients =
            groups.iter().flat_map(|(group, clients)| clients.iter().map(|one| (one.tenant, *group)));
        clients.collect()
    }

    /// Whether it can be replayed.
    ///
    /// # Errors
    /// [`Error::Argument`] with what is wrong.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: String| Err(Error::Argument(format!("config {}: {what}", self.name)));
        if self.slice_ns < 1000 || self.switch_ns < 0 {
            return wrong(format!(
                "a time slice of {} ns and a switch of {} ns cannot be modelled; take a slice of 1000 ns or more and a switch of 0 or more",
                self.slice_ns, self.switch_ns
            ));
        }
        if !(MOST_COMPLEMENTARY..=10.0).contains(&self.contention) {
            return wrong(format!(
                "contention {} is not between {MOST_COMPLEMENTARY} and 10",
                self.contention
            ));
        }
        if self.linger_ns.is_some_and(|ns| ns < 0) {
            return wrong("a context without work keeps the engine for 0 ns or longer".to_owned());
        }
        if !(0.0..=1.0).contains(&self.block_imbalance) || !(0.0..=0.5).contains(&self.jitter) {
            return wrong(format!(
                "spreads of {} and {} are not between 0 and 1, and 0 and 0.5",
                self.block_imbalance, self.jitter
            ));
        }
        if !(0.0..=1.0).contains(&self.crowding) {
            return wrong(format!("a crowding of {} is not between 0 and 1", self.crowding));
        }
        if !(0.0..=1000.0).contains(&self.hits_over_misses) {
            return wrong(format!("{} hits for each miss are not between 0 and 1000", self.hits_over_misses));
        }
        let widths = self.bandwidths.iter().all(|part| *part > 0.0 && part.is_finite());
        if !widths || !(self.bandwidths.is_empty() || self.bandwidths.len() == self.instances.len()) {
            return wrong("bandwidths must be above 0, one for each instance, or none".to_owned());
        }
        for assignment in &self.assignments {
            if self.instances.get(assignment.instance).is_none_or(|sms| *sms == 0) {
                return wrong(format!(
                    "tenant {} is on instance {}, which has no SMs",
                    assignment.tenant, assignment.instance
                ));
            }
            if assignment.start_ns < 0 || !(0.0..=10.0).contains(&assignment.bandwidth) {
                return wrong(format!(
                    "tenant {} begins {} ns later and takes {} of the memory bandwidth; take 0 or more, and 0 to 10",
                    assignment.tenant, assignment.start_ns, assignment.bandwidth
                ));
            }
            for part in [assignment.sm_throughput, assignment.assumed_sm_throughput] {
                if !(0.0..=1.0).contains(&part) {
                    return wrong(format!(
                        "tenant {} takes {part} of the throughput of its SMs; take 0 to 1",
                        assignment.tenant
                    ));
                }
            }
            if !(0.0..=10.0).contains(&assignment.cache) {
                return wrong(format!(
                    "tenant {} keeps {} of the L2 cache; take 0 to 10",
                    assignment.tenant, assignment.cache
                ));
            }
            if assignment.sms == Some(0) {
                return wrong(format!("tenant {} may use no SM", assignment.tenant));
            }
        }
        Ok(())
    }
}

/// Units of work of each tenant: when each begins, and when its range ends, in order of their begin.
pub type Units = BTreeMap<u32, Vec<(i64, i64)>>;

/// How a device was shared while it was recorded.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Recorded {
    /// SMs that a tenant's kernels could use, where those were not all of the device.
    pub visible_sms: BTreeMap<u32, u32>,
    /// Kernels of different tenants never ran at one instant, though their recorded intervals may overlap.
    pub time_sliced: bool,
    /// What a kernel takes solo, by its name; others take what their tenant does.
    pub kernel_demands: BTreeMap<String, Demand>,
    /// What is launched in this time is replayed; the rest shows what kernels take alone. `None`: all is.
    pub window: Option<(i64, i64)>,
    /// Units of work; their time is forecast where API calls were recorded.
    pub units: Units,
    /// The config that it was: what kernels take alone is fitted to it where none of equal shape was ever alone.
    pub config: Option<SharingConfig>,
}
