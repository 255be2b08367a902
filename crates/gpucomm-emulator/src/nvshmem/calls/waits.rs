//! Waits of a stream for values in symmetric memory.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::local::Local;
use super::stream::{Doing, Place as Where, enqueue};
use crate::cuda::core::work::Running;
use crate::meet::futex::SLICE;
use crate::meet::watch::{Deed as _, Phase, Watch};
use crate::nvshmem::basics::entry::{Outcome, wrong};
use crate::nvshmem::basics::kind::Kind;
use crate::nvshmem::state::deed::Activity;
use crate::nvshmem::state::heap::Place;
use crate::nvshmem::state::life;
use crate::nvshmem::state::pe::Pe;
use crate::races::touches::{Actor, Touching};
use crate::sys::*;

/// A type of values that are waited for.
pub(crate) trait Value: Copy + PartialOrd + Send + Sync + 'static {
    /// What lies at an address now.
    ///
    /// # Safety
    /// A value lies there, at a multiple of its size.
    unsafe fn load(at: *mut Self) -> Self;
}

macro_rules! values {
    ($($value:ty, $word:ty, $atomic:ty;)*) => {$(
        impl Value for $value {
            unsafe fn load(at: *mut Self) -> Self {
                // SAFETY: the caller vouches for the place.
                unsafe { <$atomic>::from_ptr(at.cast::<$word>()) }.load(Ordering::Acquire) as $value
            }
        }
    )*};
}
values! { i32, u32, AtomicU32; u32, u32, AtomicU32; i64, u64, AtomicU64; u64, u64, AtomicU64; }

fn compare<T: PartialOrd>(cmp: c_int, value: T, with: T) -> bool {
    match cmp {
        NVSHMEM_CMP_EQ => value == with,
        NVSHMEM_CMP_NE => value != with,
        NVSHMEM_CMP_GT => value > with,
        NVSHMEM_CMP_LE => value <= with,
        NVSHMEM_CMP_LT => value < with,
        _ => value >= with,
    }
}

/// What values are compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Wanted<T> {
    /// All with one.
    One(T),
    /// Each with its own.
    Each(*const T),
}

/// A wait, as it was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Waiting<T> {
    pub(crate) values: *mut T,
    pub(crate) count: usize,
    /// Those that do not count have something else than zero there; null: all count.
    pub(crate) skip: *const c_int,
    pub(crate) cmp: c_int,
    pub(crate) wanted: Wanted<T>,
}

// SAFETY: the pointers are to memory that is looked up before it is used.
unsafe impl<T: Value> Send for Waiting<T> {}
// SAFETY: as above; nothing in here changes.
unsafe impl<T: Value> Sync for Waiting<T> {}

impl<T: Value> Doing for Waiting<T> {
    type Kept = (Place, Local, Local);

    fn keep(&self, pe: &Arc<Pe>) -> Outcome<Self::Kept> {
        if !(NVSHMEM_CMP_EQ..=NVSHMEM_CMP_GE).contains(&self.cmp) {
            return Err(wrong(format!("{} is no comparison, expected NVSHMEM_CMP_EQ to NVSHMEM_CMP_GE", self.cmp)));
        }
        if !self.values.addr().is_multiple_of(size_of::<T>()) {
            return Err(wrong(format!("{:p} is not aligned to {} bytes", self.values, size_of::<T>())));
        }
        let bytes = |size: usize| {
            self.count
                .checked_mul(size)
                .ok_or_else(|| wrong(format!("{} values are more than there are addresses", self.count)))
        };
        let place = pe.heap.place("what is waited for", self.values.cast::<c_void>(), bytes(size_of::<T>())?)?;
        let skip = if self.skip.is_null() { 0 } else { bytes(size_of::<c_int>())? };
        let skip = Local::of(pe, "the status of values", self.skip.cast(), skip)?;
        let wanted = match self.wanted {
            Wanted::One(_) => Local::Registered,
            Wanted::Each(wanted) => {
                Local::of(pe, "what values are compared with", wanted.cast(), bytes(size_of::<T>())?)?
            }
        };
        Ok((place, skip, wanted))
    }

    fn tell<'a>(&self, (place, skip, wanted): &'a Self::Kept, name: &'static str, tell: &mut dyn FnMut(Touching<'a>)) {
        place.used.tell(false, Actor::alone(name), tell);
        skip.tell(false, name, tell);
        wanted.tell(false, name, tell);
    }

    fn act(&self, pe: &Arc<Pe>, _kept: Self::Kept, running: &Running) {
        let met = |index: usize| {
            // SAFETY: so many values, and what goes with them, were looked up, and are kept until this is over.
            unsafe {
                if !self.skip.is_null() && self.skip.add(index).read() != 0 {
                    return true;
                }
                let with = match self.wanted {
                    Wanted::One(with) => with,
                    Wanted::Each(all) => all.add(index).read(),
                };
                compare(self.cmp, T::load(self.values.add(index)), with)
            }
        };
        let boot = &pe.boot;
        let bell = &boot.segment.rank(pe.me()).bell;
        let activity = Activity { kind: Kind::WaitUntil, team: 0, number: 0, bytes: self.values.addr() as u64 };
        let cancelled = || running.cancelled();
        let mut watch = None;
        loop {
            let heard = bell.read();
            if (0..self.count).all(met) {
                break;
            }
            let new = || Watch::new(&**boot, &boot.segment, activity, Some(&cancelled));
            if watch.get_or_insert_with(new).check(|_| false).is_some() {
                break;
            }
            bell.sleep(heard, SLICE);
        }
        activity.publish(boot.segment.rank(pe.me()), Phase::Done);
    }
}

/// A stream waits.
pub(crate) fn on_stream<T: Value>(waiting: Waiting<T>, stream: cudaStream_t) -> Outcome {
    let pe = life::pe()?;
    pe.refuse_limited()?;
    if waiting.count == 0 {
        return Ok(());
    }
    enqueue(&pe, (stream, Where::On), waiting)
}
