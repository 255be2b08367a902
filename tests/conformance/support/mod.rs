//! What the tests share: numbers, the host's reference, random inputs, ranks, processes and a watchdog.

pub mod alone;
#[path = "../../support/block_on.rs"]
pub mod block_on;
pub mod each_version;
#[path = "../../support/errors.rs"]
mod errors;
pub mod expect;
pub mod guarded;
pub mod harness;
#[path = "../../support/hooked_store.rs"]
pub mod hooked_store;
#[cfg(nccl_ge_2_22)]
pub mod newer;
pub mod no_threads;
pub mod number;
#[path = "../../support/places.rs"]
pub mod places;
#[path = "../../support/process.rs"]
pub mod process;
pub mod random;
pub mod reference;
#[path = "../../support/seed.rs"]
mod seed;
#[path = "../../support/slower.rs"]
mod slower;

pub use errors::{argument as assert_argument, names as assert_names};
pub use expect::{assert_usage, quick, still_works};
pub use guarded::Guarded;
pub use harness::{Rig, rank_counts, skip, takes_faults, watched, watched_alone};
pub use number::{Number, Op, OpExt};
pub use places::places;
pub use random::{Case, is_thorough, takes};
pub use slower::slower;

/// What child processes have in their environment.
fn environment() -> [(&'static str, String); 1] {
    [("GPUCOMM_TEST_SEED", random::seed().to_string())]
}

/// Calls a function of one type parameter for every element type that the devices reduce.
macro_rules! each_type {
    ($function:ident($($argument:expr),*)) => {{
        $function::<i8>($($argument),*);
        $function::<u8>($($argument),*);
        $function::<i32>($($argument),*);
        $function::<u32>($($argument),*);
        $function::<i64>($($argument),*);
        $function::<u64>($($argument),*);
        $function::<gpucomm::f16>($($argument),*);
        $function::<gpucomm::bf16>($($argument),*);
        $function::<f32>($($argument),*);
        $function::<f64>($($argument),*);
        #[cfg(all(feature = "float8", nccl_ge_2_24))]
        if $crate::support::harness::reduces_float8() {
            $function::<gpucomm::F8E4M3>($($argument),*);
            $function::<gpucomm::F8E5M2>($($argument),*);
        }
    }};
}
pub(crate) use each_type;
