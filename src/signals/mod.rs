//! Signals that ask a program to end: waited for, polled in a training loop, and answered in order.
//!
//! Slurm that takes a job's nodes for another one, Kubernetes that evicts a pod and a cloud that takes a machine back
//! send `SIGTERM`, and after a grace time, often 30 seconds, `SIGKILL`; `gpucomm run` passes on what it is sent, and sends `SIGTERM` by itself, with `SIGKILL` after `--grace`, where another rank has failed. A program that has a [`Termination`] finishes its step, writes a checkpoint,
//! closes its communicators and exits with 0:
//!
//! ```
//! # use std::time::Duration;
//! # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
//! use gpucomm::nccl;
//! use gpucomm::signals::Termination;
//!
//! # fn save(_step: u64) -> gpucomm::Result<()> { Ok(()) }
//! # fn main() -> gpucomm::Result<()> {
//! let termination = Termination::new()?;
//! # let me = std::process::id();
//! # let clique = Clique::init_all(&Device::all()?)?;
//! # let train = |comm: gpucomm::Communicator| -> gpucomm::Result<()> {
//! # let stream = Stream::new(comm.device())?;
//! // Should a rank hang, its waits end 20 seconds after the signal: ten before SIGKILL.
//! let grace = termination.abort_after(Duration::from_secs(20), [&comm])?;
//! let mut asked = DeviceBuffer::<u32>::zeroed(&stream, 1)?;
//! for step in 0.. {
//!     // …
//! #   if step == 3 && comm.rank() == 1 {
//! #       let sent = std::process::Command::new("kill").args(["-TERM", &me.to_string()]).status();
//! #       assert!(sent.expect("kill").success());
//! #   }
//!     // The signal comes to each process at another time, or to one alone: all leave after the same step.
//!     asked.copy_from_slice(&stream, &[u32::from(termination.is_requested())])?;
//!     comm.all_reduce(InPlace(&mut asked), ReduceOp::Max, &stream)?;
//!     if asked.to_vec(&stream)? == [1] {
//!         save(step)?;
//!         break;
//!     }
//! }
//! nccl::close_all_timeout([comm], Duration::from_secs(5)).into_iter().collect::<gpucomm::Result<()>>()?;
//! drop(grace);
//! # Ok(())
//! # };
//! # std::thread::scope(|scope| {
//! #     let ranks: Vec<_> = clique.into_ranks().into_iter().map(|comm| scope.spawn(|| train(comm))).collect();
//! #     ranks.into_iter().try_for_each(|rank| rank.join().expect("no panic"))
//! # })
//! # }
//! ```
//!
//! A signal that comes twice ends the program, as it would without all this: who wrote a loop that does not look is still ended by Ctrl-C. What comes within
//! a second counts as once: managers of processes send it to all of a job, and launchers, which get it too, pass it on.

mod came;
#[cfg(feature = "nccl")]
mod grace;
mod termination;

#[cfg(feature = "nccl")]
pub use grace::Grace;
pub use termination::Termination;
