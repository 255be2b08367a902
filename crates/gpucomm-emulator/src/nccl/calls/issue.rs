//! Issuing operations.

use std::sync::Arc;

use super::group;
use crate::cuda::core::stream;
use crate::nccl::basics::error::{Failure, Outcome, cuda};
use crate::nccl::requests::batch::StreamHandle;
use crate::nccl::requests::operation::Operation;
use crate::nccl::requests::order::Order;
use crate::nccl::requests::request::Request;
use crate::nccl::run::alone;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::inside::Manner;
use crate::nccl::state::registry;
use crate::sys::{cudaStream_t, ncclComm_t, ncclResult_t};

/// Issues one operation, as a group of its own or as part of the thread's.
pub(crate) fn issue(comm: ncclComm_t, stream: cudaStream_t, request: &Request) -> Outcome<ncclResult_t> {
    group::call(|| {
        let (comm, _inside) = registry::enter(comm, Manner::Alone)?;
        let epoch = comm.ensure_usable()?;
        add(&comm, epoch, stream, request).inspect_err(|failure| comm.refuse(failure))
    })
}

fn add(comm: &Arc<Comm>, epoch: u32, stream: cudaStream_t, request: &Request) -> Outcome {
    // The null stream is that of the communicator's device, which NCCL makes current.
    let (device, capture) = match stream::place(stream) {
        _ if stream::is_legacy(stream) => (comm.device, None),
        place => place.map_err(|error| cuda("the stream", error))?,
    };
    if device != comm.device {
        return Err(Failure::argument(format!(
            "the stream belongs to device {device}, expected device {} of rank {}",
            comm.device, comm.rank
        )));
    }
    let operation = Operation::start(comm, &Order::new(comm, request)?)?;
    if !request.kind.message() {
        if request.count == 0 {
            // NCCL drops it: it holds up nobody, and orders nothing.
            return Ok(());
        }
        if comm.size == 1 {
            return alone::launch(comm, operation, StreamHandle(stream));
        }
    }
    group::add_operation(comm, epoch, operation, (StreamHandle(stream), capture))
}
