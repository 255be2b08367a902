//! Random numbers of tests, the same for the same seed.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::OnceLock;

use fastrand::Rng;

/// The seed of this run, from `GPUCOMM_TEST_SEED` or drawn; printed when it is first needed.
pub fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        let seed = match std::env::var("GPUCOMM_TEST_SEED") {
            Ok(text) => text.trim().parse().expect("GPUCOMM_TEST_SEED: a whole number"),
            Err(_) => fastrand::u64(..),
        };
        // Not `println!`, which the test harness hides while a test passes.
        let _ = writeln!(std::io::stdout(), "{}: GPUCOMM_TEST_SEED={seed}", env!("CARGO_CRATE_NAME"));
        seed
    })
}

/// Random numbers for one purpose.
pub fn rng(what: &str) -> Rng {
    let mut hasher = DefaultHasher::new();
    (seed(), what).hash(&mut hasher);
    Rng::with_seed(hasher.finish())
}
