//! Collectives of a communicator of one rank.
//!
//! NCCL makes a copy of them, or starts a small kernel, at once on the stream that they are given: also inside a group, whatever becomes
//! of that. They keep no order with each other but that of their streams, no end of the communicator waits for them, and none stops them.

use std::sync::Arc;

use super::{inject, share};
use crate::cuda::core::stream;
use crate::cuda::core::work::{Run, Running, Work};
use crate::fault::Fault;
use crate::lock::lock;
use crate::memory::space::reach::reach;
use crate::nccl::basics::error::{Failure, Outcome, cuda};
use crate::nccl::requests::batch::StreamHandle;
use crate::nccl::requests::operation::Operation;
use crate::nccl::requests::order::Order;
use crate::nccl::state::comm::Comm;
use crate::races::touches::{Actor, Touching};
use crate::sys::cudaError;

/// A collective of one rank, as it was asked for.
#[derive(Debug, Clone)]
struct Alone {
    comm: Arc<Comm>,
    order: Order,
}

impl Alone {
    fn run(&self, mut operation: Operation) -> AloneRun {
        let mut issued = lock(&self.comm.issued);
        issued.operations += 1;
        operation.number = issued.operations;
        drop(issued);
        AloneRun { comm: self.comm.clone(), operation }
    }
}

impl Work for Alone {
    type Run = AloneRun;

    fn name(&self) -> &'static str {
        self.order.kind.name()
    }

    fn fixed(&self) -> String {
        format!("{} {:?}", self.comm.handle, self.order)
    }

    fn start(&self) -> Result<AloneRun, cudaError> {
        // What is wrong is reported.
        let operation = Operation::start(&self.comm, &self.order).map_err(|_| cudaError::cudaErrorInvalidValue)?;
        Ok(self.run(operation))
    }
}

/// One run of it.
#[derive(Debug)]
struct AloneRun {
    comm: Arc<Comm>,
    operation: Operation,
}

impl Run for AloneRun {
    fn tell<'a>(&'a self, tell: &mut dyn FnMut(Touching<'a>)) {
        self.operation.tell(Actor { rank: Some(self.comm.rank), ..Actor::alone(self.operation.kind.name()) }, tell);
    }

    fn run(self: Box<Self>, running: &Running) {
        let Self { comm, operation } = *self;
        let done = match (comm.wishes.fault(comm.rank, operation.number), comm.segment()) {
            (None, _) | (_, Err(_)) => work(&operation),
            (Some(fault), Ok(segment)) => inject::suffer(&comm, segment, &operation, fault, &|| running.cancelled())
                .and_then(|()| if matches!(fault, Fault::Late(_)) { work(&operation) } else { Ok(()) }),
        };
        if let Err(failure) = done {
            comm.fail(&failure);
        }
    }
}

fn work(operation: &Operation) -> Outcome {
    let [send, recv] = operation.spans(1, 0);
    let at =
        |place, bytes| reach(place, bytes).map_err(|error| Failure::system(format!("the memory of the rank: {error}")));
    let (send, recv) = (at(&operation.send, send)?, at(&operation.recv, recv)?);
    // SAFETY: the buffers were checked to hold what the operation says, and are kept from reuse until it is done. No other rank has
    // anything to do with it.
    unsafe { share::alone(operation, send, recv, operation.scalar.bits(operation.size)?) };
    Ok(())
}

/// Puts `operation` of a communicator of one rank on its stream, or into the capture of that.
pub(crate) fn launch(comm: &Arc<Comm>, operation: Operation, stream: StreamHandle) -> Outcome {
    let alone = Alone { comm: comm.clone(), order: operation.order };
    let name = alone.name();
    let captured = stream::find(stream.0).and_then(|found| found.captures(&alone));
    let enqueue = || stream::enqueue(stream.0, &[], name, Box::new(alone.run(operation)));
    let done = captured.and_then(|captured| if captured { Ok(()) } else { enqueue() });
    done.map_err(|error| cuda(&format!("cannot enqueue {name}"), error))
}
