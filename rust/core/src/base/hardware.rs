//! Timing and sizes of GPUs and their drivers that captures do not show, one value each.
//!
//! Python reads the same values through the bindings ([`CONSTANTS`], [`mps_sms`]). Nanoseconds unless the name says
//! otherwise.

/// From here on hardware contexts in switch records are channels of the driver itself: it writes this number, and the
/// pid 0xFFFFFF, for all of them.
pub const DRIVER_HW_CONTEXT: u64 = 0xFFFF_FFFF;

/// The compute time slice seen on GeForce, RTX and data-centre boards alike, switch included.
pub const DEFAULT_SLICE_NS: i64 = 2_131_500;

/// A full context switch inside a kernel: execution of one context stops, that of the next resumes. 145 us measured on
/// an RTX 3090; an A100 takes 100 us before SAVE_END, the gap, and 30 us after RESTORE_START.
pub const SWITCH_NS: i64 = 145_000;

/// From the last kernel of one tenant to the first of the next where nothing has to be preempted: 67 us on an Ada (20
/// to SAVE_END, 43 to RESTORE_START, 4 to the kernel). Between that and [`SWITCH_NS`], since inferred residency cannot
/// tell the two apart.
pub const DRAINED_SWITCH_NS: i64 = 83_000;

/// Saving the state of a context, or restoring it, takes at most this part of its residency: half of [`SWITCH_NS`].
pub const STATE_NS: i64 = 73_000;

/// No board was seen to take longer for saving and restoring a context's state.
pub const MAX_STATE_NS: i64 = 200_000;

/// Restoring a context's state takes at most so long where a capture does not show it: execution resumes 27 to 38 us
/// after RESTORE_START on an A100.
pub const MOST_RESTORE_NS: i64 = 38_000;

/// Stopping a context and saving its state takes at most so long where a capture does not show it: execution stops 100 to
/// 111 us before SAVE_END on an A100.
pub const MOST_SAVE_NS: i64 = 111_000;

/// A longer gap between two residency intervals is an idle engine, not a switch: switches cost 40 to 200 us.
pub const IDLE_GAP_NS: i64 = 1_000_000;

/// Residency up to this length is what a context shows while it is created, or visited by the scheduler without work
/// (23 to 25 us on an Ada).
pub const IDLE_RESIDENCY_NS: i64 = 100_000;

/// A context without work keeps the engine that long once another context has some, where a capture does not show it.
/// On an H100 (driver 580) all of 6,000 contexts whose next launch came 9.5 us or more after their last kernel had lost
/// the engine by then.
pub const LINGER_NS: i64 = 10_000;

/// A kernel up to this length is short where no time slice was seen: a tenth of [`DEFAULT_SLICE_NS`].
pub const SHORT_KERNEL_NS: i64 = 200_000;

/// From the end of an operation until a call that waited for it returns, at most; what ended earlier was not what the
/// call waited for. In four of six real captures with synchronisation calls these return 0.9 to 2.2 us after the last
/// operation (median) and 99 % of them within 7 us; 60 us would catch 3 % more of the calls of one capture only.
pub const WAKE_NS: i64 = 20_000;

/// A thread without a call for so long may have slept until a moment, or waited for another thread or a call back.
pub const PAUSE_NS: i64 = 200_000;

/// It waited for what came this part of its pause, or less, before its end.
pub const SOON_PART: i64 = 4;

/// For one pause that says otherwise there must be so many that say that it waited.
pub const MOSTLY: u32 = 4;

/// From the begin of a launch call until an idle device can start, where a capture does not show it.
pub const SUBMIT_NS: i64 = 3_000;

/// From the end of an operation to the start of the next one in its stream, where a capture does not show it.
pub const RELEASE_NS: i64 = 1_000;

/// From when nothing is in the way of an operation any more until it starts, at most: what takes longer waited for
/// something else. Launches on an idle device take 3 to 10 us, the next operation of a stream 1 to 2 us.
pub const START_NS: i64 = 20_000;

/// Channels of a process to the device, where `CUDA_DEVICE_MAX_CONNECTIONS` is not set: streams beyond that share one.
pub const CONNECTIONS: usize = 8;

/// Two times of the host and of the device in one capture that are closer than this may be in either order.
pub const CLOCK_ERROR_NS: i64 = 1_000;

/// Operations that the driver queues for a context; a further launch call blocks.
pub const QUEUE_DEPTH: u32 = 1_022;

/// With so many operations of a process outstanding on a device the queue may be full: events and waits, of which no record
/// says how many there are, take entries as well, about as many as operations where each one has its event.
pub const FULL_QUEUE: u32 = QUEUE_DEPTH / 2;

/// SMs of a TPC, the unit in which MPS percentages are rounded down: steps of two SMs on an H200 (driver R580), 50 % of
/// the 170 SMs of an RTX 5090 are 84.
pub const SMS_PER_TPC: u32 = 2;

/// The fewest SMs that an MPS percentage leaves from compute capability 9.0 on: 8 measured on an H200 (1 to 7 % of 132
/// SMs) and on a B200.
pub const MPS_FLOOR_SMS: u32 = 8;

/// The first major compute capability with [`MPS_FLOOR_SMS`]. Nobody has published a floor of an older chip, and no
/// capture that we have shows one, so for those it is one TPC: 5 % of the 108 SMs of an A100 are 4.
pub const MPS_FLOOR_FROM_MAJOR: u32 = 9;

/// The first major compute capability whose block scheduler prefers even numbers among SMs with equal room: 12,478 of
/// 12,478 first-wave blocks of single kernels on a TITAN V (7.0), published for Turing (7.5). Pascal takes them in order.
pub const EVEN_SMS_FIRST_FROM_MAJOR: u32 = 7;

/// From this major compute capability on that order is assumed, and so is which SM is which: nobody has published one.
pub const SM_ORDER_ASSUMED_FROM_MAJOR: u32 = 8;

/// A gap between two operations of a tenant that is at most so long comes from launching, not from a program that does
/// something else: launch calls take 2 to 20 us, with their synchronisation and a slow host up to ten times that.
pub const LAUNCH_GAP_NS: i64 = 250_000;

/// Solo, a host may need so much less of its own time, thoughts and calls: beside another process of the same machine those
/// of a served `PyTorch` model took 1.07 and 1.11 times as long as solo on an H100, its launch calls two to three times
/// (`tests/bench/hardware.py`). No trace of the run shows it: they are as slow while the other one pauses.
pub const HOST_FASTER_PERCENT: i64 = 12;

/// A kernel that starts within this time after nothing is in its way any more did not wait for another tenant's time
/// slice: a small part of any.
pub const PROMPT_NS: i64 = 100_000;

/// Kernels that a device holds at once: twice the 128 resident grids of compute capability 7.0 and later, since starts and
/// ends are recorded with an error.
pub const MOST_RESIDENT_GRIDS: usize = 256;

/// The constants that Python uses, by name.
pub const CONSTANTS: &[(&str, i64)] = &[
    ("default_slice_ns", DEFAULT_SLICE_NS),
    ("switch_ns", SWITCH_NS),
    ("drained_switch_ns", DRAINED_SWITCH_NS),
    ("state_ns", STATE_NS),
    ("max_state_ns", MAX_STATE_NS),
    ("idle_gap_ns", IDLE_GAP_NS),
    ("idle_residency_ns", IDLE_RESIDENCY_NS),
    ("short_kernel_ns", SHORT_KERNEL_NS),
    ("wake_ns", WAKE_NS),
    ("pause_ns", PAUSE_NS),
    ("start_ns", START_NS),
    ("launch_gap_ns", LAUNCH_GAP_NS),
    ("prompt_ns", PROMPT_NS),
    ("host_faster_percent", HOST_FASTER_PERCENT),
    ("sms_per_tpc", SMS_PER_TPC as i64),
    ("sm_order_assumed_from_major", SM_ORDER_ASSUMED_FROM_MAJOR as i64),
];

/// The SMs that an MPS active thread percentage leaves to a client; the floor depends on the major compute capability,
/// without which it is one TPC.
#[must_use]
pub fn mps_sms(sm_count: u32, percentage: f64, compute_major: Option<u32>) -> u32 {
    // 29 % of 100 is 28.999999999999996 in binary.
    let asked = (f64::from(sm_count) * percentage / 100.0 + 1e-9).floor().max(0.0) as u32;
    let floored = compute_major.is_some_and(|major| major >= MPS_FLOOR_FROM_MAJOR);
    let floor = if floored { MPS_FLOOR_SMS } else { SMS_PER_TPC };
    (asked / SMS_PER_TPC * SMS_PER_TPC).max(floor).min(sm_count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mps_percentages_give_the_sms_that_were_measured() {
        // H200, 132 SMs, driver R580.
        for (percentage, sms) in [
            (1.0, 8),
            (7.0, 8),
            (8.0, 10),
            (9.0, 10),
            (10.0, 12),
            (11.0, 14),
            (12.0, 14),
            (13.0, 16),
            (15.0, 18),
        ] {
            assert_eq!(mps_sms(132, percentage, Some(9)), sms, "{percentage} %");
        }
        assert_eq!(mps_sms(132, 100.0, Some(9)), 132);
        // RTX 5090: 50 % of 170 SMs are 84 visible ones, not 85.
        assert_eq!(mps_sms(170, 50.0, Some(12)), 84);
        // No floor is known of an A100 (108 SMs): whole TPCs, rounded down.
        assert_eq!([1.0, 5.0, 50.0].map(|percentage| mps_sms(108, percentage, Some(8))), [2, 4, 54]);
        assert_eq!([mps_sms(100, 29.0, None), mps_sms(1, 50.0, Some(9))], [28, 1]);
    }
}
