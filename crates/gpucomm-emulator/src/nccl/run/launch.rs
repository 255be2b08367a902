//! Batches: the operations of one communicator that one group launches, on the streams they were issued to.
//!
//! A batch runs on the stream of its first operation. Operations that were issued to other streams join theirs to it: the
//! batch waits for what was enqueued there before, and none goes on before the batch is done. As NCCL does it with events:
//! each wait is for something that was enqueued earlier, so waits form no circle, whatever other threads enqueue meanwhile.

use std::sync::Arc;

use super::captured::Captured;
use super::turn::BatchRun;
use crate::cuda::core::plan::Owner;
use crate::cuda::core::{device, stream};
use crate::lock::lock;
use crate::nccl::basics::error::{Failure, Outcome, cuda};
use crate::nccl::basics::graphs::Usage;
use crate::nccl::basics::kind::Kind;
use crate::nccl::requests::batch::Batch;
use crate::nccl::requests::operation::Operation;
use crate::nccl::state::comm::Comm;
use crate::report;
use crate::sys::cudaError;

/// Enqueues a batch, or writes it down, where its streams are being captured.
pub(crate) fn launch(batch: Batch) -> Outcome {
    let Batch { comm, epoch, capture, main, others, operations } = batch;
    let Some(name) = operations.first().map(|operation| operation.kind.name()) else { return Ok(()) };
    check_self_messages(&comm, &operations)?;
    let failed = |error| cuda(&format!("cannot enqueue {name}"), error);
    if capture.is_some() {
        let work = Arc::new(Captured::new(&comm, name, &operations)?);
        let streams: Vec<_> = std::iter::once(main).chain(others).map(|stream| stream.0).collect();
        let captured = on_its_device(&comm, || stream::record(&streams, owner(&comm, name), || work));
        // The capture may have come to its end since.
        return match captured.map_err(failed)? {
            true => Ok(()),
            false => Err(failed(cudaError::cudaErrorStreamCaptureInvalidated)),
        };
    }
    let others: Vec<_> = others.into_iter().map(|stream| stream.0).collect();
    let mut launched = lock(&comm.resources.progress.launched);
    let run = Box::new(BatchRun::new(&comm, name, epoch, operations, &mut launched));
    // If this fails, the run is dropped, which finishes the batch.
    on_its_device(&comm, || stream::enqueue(main.0, &others, name, run)).map_err(failed)
}

/// Who captured operations of `comm` belong to: what shares its resources.
pub(crate) fn owner(comm: &Comm, name: &str) -> Owner {
    if comm.config.graphs.usage == Usage::None {
        report::violation(format!(
            "{name} of rank {} is captured, and graphUsageMode is 0, which says that nothing of the communicator is",
            comm.rank
        ));
    }
    Owner { at: Arc::as_ptr(&comm.resources.progress).addr(), orders: comm.config.graphs.ordered }
}

/// Calls CUDA for a communicator: the null stream is that of its device, whatever device the launching thread has.
pub(crate) fn on_its_device<R>(comm: &Comm, call: impl FnOnce() -> Result<R, cudaError>) -> Result<R, cudaError> {
    let current = device::current_device();
    device::set_current(comm.device)?;
    let done = call();
    device::set_current(current)?;
    done
}

/// A rank that sends to itself must receive in the same group, and the other way round.
fn check_self_messages(comm: &Comm, operations: &[Operation]) -> Outcome {
    let count = |kind: Kind| {
        operations.iter().filter(|operation| operation.kind == kind && operation.peer == comm.rank).count()
    };
    let (sends, receives) = (count(Kind::Send), count(Kind::Recv));
    if sends != receives {
        return Err(Failure::usage(format!(
            "rank {} sends {sends} messages to itself and receives {receives} in the same group, expected as many",
            comm.rank
        )));
    }
    Ok(())
}
