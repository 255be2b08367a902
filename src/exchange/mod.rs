//! What ranks tell each other outside NCCL: an id before there is a communicator, who is still there after a failure.
//!
//! ```
//! use gpucomm::exchange::{Exchange, Threads};
//!
//! # fn main() -> gpucomm::Result<()> {
//! let place = Threads::new(3);
//! std::thread::scope(|scope| {
//!     let ranks: Vec<_> = (0..3)
//!         .map(|rank| {
//!             let place = &place;
//!             scope.spawn(move || {
//!                 let exchange = Exchange::join(place.store(rank)?)?;
//!                 // Rank 0 tells all what only it knows.
//!                 let id = exchange.broadcast(0, if rank == 0 { b"an id" } else { b"" })?;
//!                 // All ranks learn whether all are ready, and if not, who is not and why.
//!                 let vote = exchange.vote(if id.is_empty() { Err("no id".to_owned()) } else { Ok(()) })?;
//!                 assert!(vote.unanimous(), "{vote}");
//!                 exchange.all_gather(format!("rank {rank}").as_bytes())
//!             })
//!         })
//!         .collect();
//!     for rank in ranks {
//!         let names = rank.join().expect("no rank panics")?;
//!         assert_eq!(names, [b"rank 0", b"rank 1", b"rank 2"]);
//!     }
//!     Ok(())
//! })
//! # }
//! ```
//!
//! # What is primitive, and what is built on it
//!
//! A [`Store`] is a map of keys to bytes that all ranks see: set, get with a wait, add, compare-and-set, delete, and who has ended. An
//! [`Exchange`] is one rank's end of all else: [`all_gather`](Exchange::all_gather), [`broadcast`](Exchange::broadcast),
//! [`barrier`](Exchange::barrier), [`vote`](Exchange::vote), and exchanges of some of the ranks: [`subset`](Exchange::subset),
//! [`split`](Exchange::split), [`survivors`](Exchange::survivors). Whoever implements the trait has it all over a store of their own.
//!
//! | store | between | who has died is noticed | keys outlive rank 0 |
//! |---|---|---|---|
//! | [`Threads`] | threads of one process | when a store is dropped | yes |
//! | [`Directory`] | processes that share a directory | by a lock that goes with the process | yes |
//! | [`Tcp`] | processes that reach rank 0 | by a connection that goes with the process | no |
//! | [`C10d`] | processes that reach a TCPStore of PyTorch, or rank 0 | at the deadline | where the server does |
//!
//! Processes that MPI has started meet at an `MpiPlace`, with the feature `mpi`: MPI tells them where rank 0 is, and a [`Tcp`] does the rest. Those that a
//! launcher with PMIx has started, such as Slurm, meet in the same way at a `PmixPlace`, with the feature `pmix`.
//!
//! Between the processes of one host an [`FdSocket`] passes file descriptors.
//!
//! # Who waits for whom
//!
//! Nothing waits without a deadline: the [default timeout](crate::default_timeout), or that of [`Exchange::within`]. An
//! [`Error::Timeout`](crate::Error::Timeout) lists the ranks that have not come. Who is known to have ended, killed or in good order, is
//! [`Error::Gone`](crate::Error::Gone) to those that wait for it, at once. Who was late finds what it has missed: after a timeout all
//! can go on with the next call. The rank that calls something else than the others is [`Error::Disagreement`](crate::Error::Disagreement).
//!
//! # Generations
//!
//! All keys lie in a generation, which begins with [`Exchange::join`], and again with [`Exchange::next_generation`]. It is made by
//! all ranks, each of which is known by a number drawn anew: a run never reads what another run has left in a store that outlives
//! it, whoever died and when. What is left is removed by the next generation.

#[cfg(any(feature = "mpi", feature = "pmix", test, fuzzing))]
mod announced;
mod c10d;
mod collectives;
mod digest;
mod directory;
mod fds;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "../../fuzz/harness/mod.rs"]
pub mod fuzz;
mod generation;
mod handle;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
mod id;
#[cfg(feature = "mpi")]
mod mpi_place;
mod net;
mod notes;
#[cfg(feature = "pmix")]
mod pmix;
mod store;
mod subsets;
mod table;
mod tcp;
mod threads;
mod view;
mod vote;
mod wire;

pub use c10d::{C10d, C10dPlace};
#[cfg(feature = "nccl")]
pub(crate) use digest::digest;
pub use directory::Directory;
pub use fds::{FdSocket, MAX_FDS};
pub use handle::Exchange;
#[cfg(feature = "mpi")]
pub use mpi_place::MpiPlace;
pub(crate) use net::address::PATIENCE;
#[cfg(feature = "nccl")]
pub(crate) use net::address::resolve;
#[cfg(feature = "pmix")]
pub use pmix::PmixPlace;
pub use store::{MAX_KEY, MAX_KEYS, MAX_NAME, MAX_VALUE, Store, Swap};
pub use tcp::{Tcp, TcpPlace};
pub use threads::{ThreadStore, Threads};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use view::Came;
pub use vote::Vote;
#[cfg(feature = "nccl")]
pub(crate) use wire::{Reader, Writer};
