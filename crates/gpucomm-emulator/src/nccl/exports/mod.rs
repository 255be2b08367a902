//! The C functions of NCCL. Each hands over to the module of its noun.
#![allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]

pub mod communicators;
pub mod memory;
pub mod operations;
pub mod parameters;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::basics::config::Config;
use super::basics::error::{self, Failure, Outcome, cuda, heed_captures};
use super::state::comm::Comm;
use super::state::registry;
use crate::cuda::core::device;
use crate::cuda::tasks::host;
use crate::nccl::state::resources::{Inside, Manner};
use crate::settings::settings;
use crate::sys::{cudaError, ncclComm_t, ncclConfig_t, ncclResult_t};
use crate::table::{Argument, Export, Function, OnNull};
use crate::{bugs, report};

/// The functions of the library that are declared.
pub(crate) const TABLES: &[&[Export]] = &[
    communicators::LIBRARY,
    communicators::COMMUNICATORS,
    operations::COLLECTIVES,
    operations::OPERATIONS,
    memory::MEMORY,
    parameters::NUMBERS,
    parameters::PARAMETERS,
];

/// What a function does to captures, from the source of NCCL 2.28.9. NCCL allocates, and asks about its own streams, in
/// relaxed mode where it expects captures: in what may be captured. Elsewhere it makes calls that CUDA calls potentially
/// unsafe as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Makes no such call: may be called at any time.
    Any,
    /// Puts work on the stream that it is given. If that is being captured, the work becomes part of the graph.
    Enqueues,
    /// Makes such calls on the thread that calls it, and fails with them. Its job, if it has one, may make others.
    Unsafe,
    /// Its job makes them: on the thread that ends the group if it is the only one and the communicator blocks, otherwise on
    /// a thread of NCCL, which has the default mode whatever the caller's is. The call fails with them.
    Job,
    /// Makes them to wait, and takes a wait that is forbidden for one that is over.
    Blind,
}

/// What the body of a function gives for a code.
pub(crate) trait Code {
    fn code(self) -> ncclResult_t;
}

impl Code for () {
    fn code(self) -> ncclResult_t {
        ncclResult_t::ncclSuccess
    }
}

impl Code for ncclResult_t {
    fn code(self) -> ncclResult_t {
        self
    }
}

/// Refuses functions that this version of NCCL does not have, and those that need devices in a forked process or in a host function. Turns a failure
/// into its code and keeps its text, and lets no panic cross into C.
fn frame<C: Code>(function: Function<Class>, body: impl FnOnce() -> Outcome<C>) -> ncclResult_t {
    let Function { name, class, first } = function;
    let body = || {
        if settings().nccl < first {
            return Err(Failure::unnoticed(format!(
                "there is no such function in NCCL {}, which the emulator stands for",
                bugs::text(settings().nccl)
            )));
        }
        if class != Class::Any {
            device::refuse_in_fork().map_err(|error| cuda("a forked process has no devices", error))?;
        }
        if class != Class::Any && host::is_callback() {
            report::violation(format!("{name} was called inside a host function of a stream"));
            return Err(cuda(name, cudaError::cudaErrorNotPermitted));
        }
        if class == Class::Unsafe {
            heed_captures(name)?;
        }
        body()
    };
    match catch_unwind(AssertUnwindSafe(|| report::during(name, body))) {
        Ok(Ok(done)) => {
            error::forget_own();
            done.code()
        }
        Ok(Err(failure)) => {
            error::remember_own(format!("{name}: {}", failure.text));
            failure.code
        }
        Err(panic) => {
            let text = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "no message".to_owned());
            error::remember_own(format!("{name}: the emulator panicked: {text}"));
            ncclResult_t::ncclInternalError
        }
    }
}

impl OnNull for Failure {
    fn null() -> Self {
        Self::argument("the place for the result is null")
    }
}

/// A communicator, with this thread inside it: a second thread that enters it at the same time is a violation.
#[derive(Debug)]
pub struct Entered {
    comm: Arc<Comm>,
    _inside: Inside,
}

/// The same of a call that may be made beside another one.
#[derive(Debug)]
pub struct Guest {
    comm: Arc<Comm>,
    _inside: Inside,
}

impl Argument<Failure> for Entered {
    type C = ncclComm_t;

    unsafe fn take(passed: ncclComm_t) -> Outcome<Self> {
        let (comm, _inside) = registry::enter(passed, Manner::Alone)?;
        Ok(Self { comm, _inside })
    }
}

impl Argument<Failure> for Guest {
    type C = ncclComm_t;

    unsafe fn take(passed: ncclComm_t) -> Outcome<Self> {
        let (comm, _inside) = registry::enter(passed, Manner::Guest)?;
        Ok(Self { comm, _inside })
    }
}

impl Argument<Failure> for Option<Config> {
    type C = *mut ncclConfig_t;

    unsafe fn take(passed: *mut ncclConfig_t) -> Outcome<Self> {
        // SAFETY: the caller promises null, or a config made by its initialiser.
        unsafe { Config::read(passed) }
    }
}
