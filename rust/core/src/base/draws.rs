//! Random numbers for tests, the same in every run.

/// Numbers below `below`, drawn one after the other.
pub fn draws(mut seed: u64) -> impl FnMut(u64) -> i64 {
    move |below| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from((seed >> 33) % below).unwrap()
    }
}
