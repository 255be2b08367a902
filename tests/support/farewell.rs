//! How values go: at once, never, and in odd places.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use fastrand::Rng;
use gpucomm::{Result, Stream};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    Drop,
    Forget,
    /// While a panic unwinds.
    Unwinding,
    /// On another thread.
    Elsewhere,
    /// In a destructor of a thread-local, of a thread that does nothing else with CUDA.
    ThreadLocal,
    /// In a host function of a stream.
    HostFunction,
}

thread_local! {
    static LAST: RefCell<Option<Box<dyn Any + Send>>> = const { RefCell::new(None) };
}

impl Farewell {
    /// All that let a value go, by and by.
    pub const ENDS: [Self; 5] = [Self::Drop, Self::Unwinding, Self::Elsewhere, Self::ThreadLocal, Self::HostFunction];

    /// One in three is odd.
    pub fn draw(rng: &mut Rng, forget: bool) -> Self {
        match rng.u32(..15) {
            0 if forget => Self::Forget,
            1 => Self::Unwinding,
            2 => Self::Elsewhere,
            3 => Self::ThreadLocal,
            4 => Self::HostFunction,
            _ => Self::Drop,
        }
    }

    /// Lets go of a value that may go anywhere; `stream` is for a host function.
    pub fn to<T: Send + 'static>(self, value: T, stream: &Stream) -> Result<()> {
        match self {
            Self::ThreadLocal => {
                at_the_end_of_a_thread(value, || ());
                Ok(())
            }
            Self::HostFunction => stream.launch_host(move || drop(value)),
            _ => {
                self.to_borrower(value);
                Ok(())
            }
        }
    }

    /// The same for what borrows something, and so stays on threads that end before that.
    pub fn to_borrower<T: Send>(self, value: T) {
        match self {
            Self::Drop => drop(value),
            Self::Forget => std::mem::forget(value),
            Self::Elsewhere => std::thread::scope(|scope| {
                scope.spawn(move || drop(value));
            }),
            Self::Unwinding | Self::ThreadLocal | Self::HostFunction => {
                let unwinds = catch_unwind(AssertUnwindSafe(move || {
                    let _held = value;
                    resume_unwind(Box::new("a panic, while something is held"));
                }));
                assert!(unwinds.is_err());
            }
        }
    }
}

/// Lets go of a value in a destructor of a thread-local, of a thread that does `more` before: the thread-locals of that go first.
pub fn at_the_end_of_a_thread<T: Send + 'static>(value: T, more: impl FnOnce() + Send + 'static) {
    let thread = move || {
        LAST.set(Some(Box::new(value)));
        more();
    };
    // Unlike the end of a scope, this waits for destructors of thread-locals.
    std::thread::spawn(thread).join().expect("no panic in a destructor of a thread-local");
}
