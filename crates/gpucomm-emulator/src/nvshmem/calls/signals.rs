//! Signals, which are words of 64 bits in symmetric memory, and waits for values there.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cuda::core::stream::find;
use crate::cuda::core::work::Running;
use crate::meet::futex::SLICE;
use crate::meet::watch::{Deed as _, Phase, Watch};
use crate::nvshmem::basics::{Kind, Outcome, cuda, wrong};
use crate::nvshmem::calls::local::Local;
use crate::nvshmem::calls::stream;
use crate::nvshmem::calls::stream::{Doing, Place as Where, enqueue};
use crate::nvshmem::state::boot::Activity;
use crate::nvshmem::state::heap::Place;
use crate::nvshmem::state::life;
use crate::nvshmem::state::pe::Pe;
use crate::races::{Actor, Touching};
use crate::sys::{NVSHMEM_SIGNAL_ADD, NVSHMEM_SIGNAL_SET, cudaStream_t, *};

/// What is done to a signal.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Signal {
    pub(crate) address: *mut u64,
    pub(crate) value: u64,
    pub(crate) operation: i32,
}

// SAFETY: the pointer is to symmetric memory, which is looked up before it is used.
unsafe impl Send for Signal {}
// SAFETY: as above; nothing in here changes.
unsafe impl Sync for Signal {}

/// The same, at the PE that it is for.
#[derive(Debug)]
pub(crate) struct Given {
    there: *mut u64,
    value: u64,
    adds: bool,
    _place: Place,
}

// SAFETY: the place is kept, and used by atomic operations only.
unsafe impl Send for Given {}

/// A signal of this PE.
fn place(pe: &Pe, address: *const u64) -> Outcome<Place> {
    if !address.addr().is_multiple_of(8) {
        return Err(wrong(format!("the signal at {address:p} is not aligned to 8 bytes")));
    }
    pe.heap.place("the signal", address.cast::<c_void>(), 8)
}

impl Signal {
    /// At PE `other`.
    pub(crate) fn at(&self, pe: &Pe, other: usize) -> Outcome<Given> {
        let adds = match self.operation {
            NVSHMEM_SIGNAL_SET => false,
            NVSHMEM_SIGNAL_ADD => true,
            operation => {
                return Err(wrong(format!(
                    "{operation} is no operation of signals, expected NVSHMEM_SIGNAL_SET or NVSHMEM_SIGNAL_ADD"
                )));
            }
        };
        let place = place(pe, self.address)?;
        Ok(Given { there: pe.heap.at(other, place.offset).cast(), value: self.value, adds, _place: place })
    }
}

impl Given {
    pub(crate) fn give(&self) {
        // SAFETY: the word is aligned and looked up, and kept as long as this lives.
        let word = unsafe { AtomicU64::from_ptr(self.there) };
        if self.adds {
            word.fetch_add(self.value, Ordering::AcqRel);
        } else {
            word.store(self.value, Ordering::Release);
        }
    }
}

/// Nothing but a place in the order of a stream.
struct Turn;

impl Doing for Turn {
    type Kept = ();

    fn keep(&self, _: &Arc<Pe>) -> Outcome<()> {
        Ok(())
    }

    fn act(&self, _: &Arc<Pe>, (): (), _: &Running) {}

    fn is_copy(&self, _: &Pe) -> bool {
        true
    }
}

/// `nvshmem_signal_fetch`, which copies by the legacy default stream.
pub(crate) fn fetch(address: *mut u64) -> Outcome<u64> {
    let pe = life::pe()?;
    let place = place(&pe, address)?;
    let legacy = std::ptr::null_mut();
    enqueue(&pe, (legacy, Where::On), Turn)?;
    find(legacy).map_err(|error| cuda("cudaMemcpy", error))?.line.last().wait();
    // SAFETY: the word is aligned and looked up, and kept until this returns.
    Ok(unsafe { AtomicU64::from_ptr(pe.heap.at(pe.me(), place.offset).cast()) }.load(Ordering::Acquire))
}

/// A signal by itself, on a stream.
struct Alone(Signal, i32);

impl Doing for Alone {
    type Kept = (Given, usize);

    fn keep(&self, pe: &Arc<Pe>) -> Outcome<Self::Kept> {
        let other = pe.pe(self.1)?;
        Ok((self.0.at(pe, other)?, other))
    }

    fn act(&self, pe: &Arc<Pe>, (given, other): Self::Kept, _: &Running) {
        given.give();
        pe.boot.ring(other);
    }
}

/// `nvshmemx_signal_op_on_stream`.
pub(crate) fn on_stream(signal: Signal, pe: i32, stream: cudaStream_t) -> Outcome {
    enqueue(&life::pe()?, (stream, stream::Place::On), Alone(signal, pe))
}

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
pub(crate) fn wait_on_stream<T: Value>(waiting: Waiting<T>, stream: cudaStream_t) -> Outcome {
    let pe = life::pe()?;
    pe.refuse_limited()?;
    if waiting.count == 0 {
        return Ok(());
    }
    enqueue(&pe, (stream, Where::On), waiting)
}
