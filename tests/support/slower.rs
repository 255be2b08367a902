//! Time limits of tests.

use std::time::Duration;

/// A time limit, multiplied by `GPUCOMM_TEST_SLOWER`.
pub fn slower(seconds: f64) -> Duration {
    let factor = std::env::var("GPUCOMM_TEST_SLOWER").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    Duration::from_secs_f64(seconds * factor)
}
