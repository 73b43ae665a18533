//! Whether kernels of MPS clients overtook each other while they were recorded.

use crate::simulate::sharing_config::ClientOrder;

/// Times closer than this are not told apart: when a kernel became ready is estimated from its launch.
const APART_NS: i64 = 20_000;
/// Kernels that must have become ready while one of another client waited.
const ENOUGH: u32 = 20;
/// Part of them above which kernels overtake. Under MPS none of 107 did on an H100, and none of 307 on an H200; in a
/// simulation in which every block is placed for which there is room, about half.
const OVERTAKE: f64 = 0.1;

/// A kernel of an MPS client without a cap, as it was recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Started {
    /// Instance and number of the group of clients.
    pub group: (usize, u32),
    pub client: u32,
    /// It could have started: it had reached the device, and what it waits for had ended.
    pub ready_ns: i64,
    pub start_ns: i64,
    /// The first launch of its kind waits until the kernel is loaded, not for SMs.
    pub first: bool,
}

/// The order of clients that their kernels show; `None`: too few became ready while one of another client waited.
///
/// ```text
///   A, waits for SMs   ready |...............|=====   start
///   B                        ready |..|====           overtakes
///   C                        ready |..............|=  does not
/// ```
pub(crate) fn shown_order(kernels: &mut [Started]) -> Option<ClientOrder> {
    kernels.sort_unstable_by_key(|one| (one.group, one.ready_ns, one.start_ns));
    let (mut met, mut overtook) = (0_u32, 0_u32);
    // Of each stream at most one: a kernel is not ready before the one in front of it has ended.
    let mut waiting: Vec<Started> = Vec::new();
    for one in kernels.iter() {
        let later = |ns: i64, than: i64| ns > than.saturating_add(APART_NS);
        waiting.retain(|other| other.group == one.group && later(other.start_ns, one.ready_ns));
        let older = |other: &&Started| other.client != one.client && later(one.ready_ns, other.ready_ns);
        if let Some(last_ns) = waiting.iter().filter(older).map(|other| other.start_ns).max() {
            met = met.saturating_add(1);
            overtook = overtook.saturating_add(u32::from(later(last_ns, one.start_ns)));
        }
        if !one.first && later(one.start_ns, one.ready_ns) {
            waiting.push(*one);
        }
    }
    let overtaking = f64::from(overtook) > OVERTAKE * f64::from(met);
    (met >= ENOUGH).then_some(if overtaking { ClientOrder::Overtaking } else { ClientOrder::OneLine })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel of the first client that waits from `at_us` for 300 us, and one of the second that becomes ready after 100
    /// and starts `later_us` after it became ready.
    fn meeting(at_us: i64, later_us: i64) -> [Started; 2] {
        let of = |client, ready_us: i64, start_us: i64| Started {
            group: (0, 0),
            client,
            ready_ns: ready_us * 1000,
            start_ns: start_us * 1000,
            first: false,
        };
        [of(0, at_us, at_us + 300), of(1, at_us + 100, at_us + 100 + later_us)]
    }

    fn shown(later_us: &[i64], change: impl Fn(&mut Started)) -> Option<ClientOrder> {
        let mut kernels: Vec<Started> =
            (0..).zip(later_us).flat_map(|(n, later_us)| meeting(n * 1000, *later_us)).collect();
        kernels.iter_mut().for_each(change);
        shown_order(&mut kernels)
    }

    #[test]
    fn clients_overtake_where_more_than_a_tenth_of_their_kernels_do() {
        // Those that start 5 us after they were ready overtake, those after 250 us do not. 2 of 20 are a tenth.
        let of = |overtaking| [vec![5; overtaking], vec![250; 20 - overtaking]].concat();
        assert_eq!(shown(&of(0), |_| {}), Some(ClientOrder::OneLine));
        assert_eq!(shown(&of(2), |_| {}), Some(ClientOrder::OneLine));
        assert_eq!(shown(&of(3), |_| {}), Some(ClientOrder::Overtaking));
        // 19 meetings are too few to tell.
        assert_eq!(shown(&[5; 19], |_| {}), None);
    }

    #[test]
    fn only_other_clients_of_a_group_that_wait_for_sms_are_overtaken() {
        assert_eq!(shown(&[5; 20], |_| {}), Some(ClientOrder::Overtaking));
        assert_eq!(shown(&[5; 20], |one| one.client = 0), None);
        assert_eq!(shown(&[5; 20], |one| one.group = (0, one.client)), None);
        assert_eq!(shown(&[5; 20], |one| one.first = true), None);
    }
}
