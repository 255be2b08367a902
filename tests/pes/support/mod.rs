//! What the tests share: processes, what each of them is, and numbers from a seed.

#[allow(dead_code, reason = "here all children are waited for together")]
#[path = "../../support/child.rs"]
mod child;
#[path = "../../support/errors.rs"]
pub mod errors;
#[path = "../../support/farewell.rs"]
pub mod farewell;
#[path = "../../support/gate.rs"]
pub mod gate;
mod given_up;
mod here;
mod hooked;
#[path = "../../support/hooked_store.rs"]
mod hooked_store;
mod mpirun;
mod parent;
#[path = "../../support/places.rs"]
mod places;
pub mod random;
mod seat;
#[path = "../../support/seed.rs"]
mod seed;
#[path = "../../support/slower.rs"]
mod slower;
mod theirs;
mod work_loop;

pub use given_up::given_up_busy;
pub use here::{Here, with_context, with_contexts};
pub use hooked::{Fate, Hooked};
pub use mpirun::under_mpirun;
pub use parent::{End, as_pes, as_pes_of, as_pes_that_end, as_pes_that_end_with, as_pes_with, report, skip};
pub use seat::Seat;
pub use slower::slower;
pub use theirs::Theirs;
pub use work_loop::WorkLoop;

/// The numbers of PEs.
pub const SIZES: [usize; 4] = [1, 2, 3, 4];

/// Calls a function of one type parameter for every type that NVSHMEM reduces.
macro_rules! each_type {
    ($function:ident($($argument:expr),*)) => {{
        $function::<i8>($($argument),*);
        $function::<u8>($($argument),*);
        $function::<i16>($($argument),*);
        $function::<u16>($($argument),*);
        $function::<i32>($($argument),*);
        $function::<u32>($($argument),*);
        $function::<i64>($($argument),*);
        $function::<u64>($($argument),*);
        $function::<gpucomm::f16>($($argument),*);
        $function::<gpucomm::bf16>($($argument),*);
        $function::<f32>($($argument),*);
        $function::<f64>($($argument),*);
    }};
}
#[allow(unused_imports, reason = "not in every module")]
pub(crate) use each_type;
