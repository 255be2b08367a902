//! What a fault that was asked for does to a rank.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::fault::{self, Fault};
use crate::meet::segment::Life;
use crate::meet::segment::Segment;
use crate::nccl::basics::error::{Failure, Outcome};
use crate::nccl::requests::operation::Operation;
use crate::nccl::state::comm::Comm;
use crate::nccl::state::shared::Shared;
use crate::report;

/// The exit status of a process whose only rank dies.
const DEATH: i32 = 99;

/// Lets `fault` happen in front of `operation`.
pub(crate) fn suffer(
    comm: &Comm,
    segment: &Segment,
    operation: &Operation,
    fault: Fault,
    cancelled: &dyn Fn() -> bool,
) -> Outcome {
    let what = format!("rank {} at operation #{}, {}", comm.rank, operation.number, operation.kind.name());
    report::line(format!("injected by {}: {fault:?}, {what}", fault::VARIABLE));
    match fault {
        Fault::Late(delay) => {
            let until = Instant::now() + delay;
            while Instant::now() < until && !comm.stopped() && !cancelled() {
                let left = until.saturating_duration_since(Instant::now());
                std::thread::sleep(left.min(Duration::from_millis(10)));
            }
            Ok(())
        }
        Fault::AsyncError => {
            segment.common().arrival.close();
            Err(Failure::remote(format!("an error injected by {}: {what}", fault::VARIABLE)))
        }
        Fault::Hang => {
            stop_for_ever(comm, cancelled);
            Ok(())
        }
        Fault::Die => {
            let me = std::process::id();
            let here = (0..comm.size).filter(|&peer| segment.rank(peer).pid.load(Ordering::Acquire) == me).count();
            if here == 1 && comm.size > 1 {
                // SAFETY: ends the process at once, as a crash would, without running anything of it.
                unsafe { libc::_exit(DEATH) };
            }
            segment.rank(comm.rank).set_life(Life::Dead);
            for peer in 0..comm.size {
                segment.rank(peer).bell.ring();
            }
            segment.common().arrival.close();
            segment.head().news.ring();
            stop_for_ever(comm, cancelled);
            Ok(())
        }
    }
}

/// Does nothing until the communicator is aborted.
pub(crate) fn stop_for_ever(comm: &Comm, cancelled: &dyn Fn() -> bool) {
    while !comm.resources.abort.is_set() && !cancelled() {
        std::thread::sleep(Duration::from_millis(5));
    }
}
