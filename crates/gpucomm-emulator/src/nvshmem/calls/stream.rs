//! Work on streams.

use std::sync::{Arc, Weak};

use crate::cuda::core::work::{Run, Running, Work};
use crate::cuda::core::{device, stream};
use crate::nvshmem::basics::{Outcome, cuda, wrong};
use crate::nvshmem::state::pe::Pe;
use crate::races::Touching;
use crate::report;
use crate::sys::{cudaError, cudaStream_t};

/// What is to be done, as it was asked for.
pub(crate) trait Doing: Send + Sync + 'static {
    /// What one run of it uses.
    type Kept: Send + 'static;

    /// Looks up what a run uses, and keeps that for it.
    fn keep(&self, pe: &Arc<Pe>) -> Outcome<Self::Kept>;

    /// Tells which memory a run uses.
    fn tell<'a>(&self, _kept: &'a Self::Kept, _name: &'static str, _tell: &mut dyn FnMut(Touching<'a>)) {}

    fn act(&self, pe: &Arc<Pe>, kept: Self::Kept, running: &Running);

    /// Whether the library copies for it, by `cudaMemcpyAsync`, and launches no kernel.
    fn is_copy(&self, _pe: &Pe) -> bool {
        false
    }
}

/// Where work goes that is asked for on a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// On that stream.
    On,
    /// On that stream, after what the library does on its own stream.
    AfterInternal,
    /// On a stream of the library, where nothing waits for it.
    Beside,
}

struct Asked<D> {
    name: &'static str,
    /// A graph may outlive it.
    pe: Weak<Pe>,
    doing: Arc<D>,
}

impl<D> Clone for Asked<D> {
    fn clone(&self) -> Self {
        Self { name: self.name, pe: self.pe.clone(), doing: self.doing.clone() }
    }
}

struct Going<D: Doing> {
    name: &'static str,
    pe: Arc<Pe>,
    doing: Arc<D>,
    kept: D::Kept,
}

impl<D: Doing> Work for Asked<D> {
    type Run = Going<D>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&self) -> Result<Going<D>, cudaError> {
        let Some(pe) = self.pe.upgrade() else {
            report::violation(format!("a graph holds {} of NVSHMEM, which has finalized", self.name));
            return Err(cudaError::cudaErrorInvalidResourceHandle);
        };
        // What is wrong was told.
        let kept = self.doing.keep(&pe).map_err(|_| cudaError::cudaErrorInvalidValue)?;
        Ok(Going { name: self.name, pe, doing: self.doing.clone(), kept })
    }
}

impl<D: Doing> Run for Going<D> {
    fn run(self: Box<Self>, running: &Running) {
        let Self { name, pe, doing, kept } = *self;
        report::during(name, || doing.act(&pe, kept, running));
    }

    fn tell<'a>(&'a self, tell: &mut dyn FnMut(Touching<'a>)) {
        self.doing.tell(&self.kept, self.name, tell);
    }
}

/// Puts work on a stream of the PE's device; where that is captured, into the graph.
pub(crate) fn enqueue<D: Doing>(pe: &Arc<Pe>, (handle, place): (cudaStream_t, Place), doing: D) -> Outcome {
    let name = report::call();
    let stream = stream::find(handle).map_err(|error| cuda("the stream", error))?;
    // A copy goes on the stream of any device.
    if !doing.is_copy(pe) && stream.device.ordinal != pe.device.ordinal {
        return Err(wrong(format!(
            "the stream is one of device {}, expected one of device {}, that of PE {}",
            stream.device.ordinal,
            pe.device.ordinal,
            pe.me()
        )));
    }
    // A kernel needs the device of its stream to be current. A copy fails if the memory is not mapped for the current device.
    if device::current_device() != pe.device.ordinal {
        return Err(wrong(format!(
            "the current device is {}, expected {}, that of PE {}: CUDA refuses it, and the library ends the process",
            device::current_device(),
            pe.device.ordinal,
            pe.me()
        )));
    }
    let _shared = device::share_driver(stream.device);
    // A lost device takes no work; the library would end the process at its error.
    if stream.device.check().is_err() {
        report::line(format!("{name}: device {} is lost", stream.device.ordinal));
        return Ok(());
    }
    // Refused here, it was told why; what is refused below is CUDA's matter.
    drop(doing.keep(pe)?);
    let asked = Asked { name, pe: Arc::downgrade(pe), doing: Arc::new(doing) };
    let put = match place {
        Place::On => stream.submit(&asked),
        Place::AfterInternal => pe.internal.lead(&stream).and_then(|()| stream.submit(&asked)),
        Place::Beside => pe.internal.follow(&stream).and_then(|()| pe.internal.stream.submit(&asked)),
    };
    put.map_err(|error| cuda(name, error))
}

/// Refuses a stream that is being captured.
pub(crate) fn refuse_capture(handle: cudaStream_t, why: &str) -> Outcome {
    match stream::place(handle).map_err(|error| cuda("the stream", error))? {
        (_, Some(_)) => Err(wrong(format!("the stream is being captured, and {why}: expected a stream that is not"))),
        (_, None) => Ok(()),
    }
}
