//! Communication between ranks outside NCCL: an id before there is a communicator, and votes after
//! a failure.
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
//!                 // Rank 0 sends bytes to all ranks.
//!                 let id = exchange.broadcast(if rank == 0 { b"an id" } else { b"" }, 0)?;
//!                 // All ranks learn whether all are ready, and otherwise which are not and why.
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
//! # Stores and exchanges
//!
//! A [`Store`] is a map of keys to bytes that all ranks see: set, get with a wait, add,
//! compare-and-set, delete, and which ranks have ended. An [`Exchange`] is one rank's handle for
//! everything else: [`all_gather`](Exchange::all_gather), [`broadcast`](Exchange::broadcast),
//! [`barrier`](Exchange::barrier), [`vote`](Exchange::vote), and exchanges of some of the ranks:
//! [`subset`](Exchange::subset), [`split`](Exchange::split), [`survivors`](Exchange::survivors). If
//! you implement the trait, all of that works over your own store.
//!
//! | store | between | the end of a rank is noticed | keys outlive rank 0 |
//! |---|---|---|---|
//! | [`Threads`] | threads of one process | when its store is dropped | yes |
//! | [`Directory`] | processes that share a directory | by a lock that the system releases | yes |
//! | [`Tcp`] | processes that reach rank 0, or a [`TcpServer`] | by a connection that the system closes | at a [`TcpServer`] |
//! | [`C10d`] | processes that reach a TCPStore of PyTorch, or rank 0 | at the deadline | if the server does |
//!
//! Processes that MPI has started meet at an `MpiPlace`, with the feature `mpi`: MPI announces the
//! address of rank 0, and a [`Tcp`] does the rest. Processes that a launcher with PMIx has started,
//! such as Slurm, meet in the same way at a `PmixPlace`, with the feature `pmix`.
//!
//! Between the processes of one host an [`FdSocket`] passes file descriptors.
//!
//! # Timeouts and peer failure
//!
//! Every wait has a deadline: the [default timeout](crate::default_timeout), or that of
//! [`Exchange::with_timeout`]. An [`Error::Timeout`](crate::Error::Timeout) lists the ranks that have not
//! come. When a rank is known to have ended, killed or not, ranks that wait for it get
//! [`Error::Departed`](crate::Error::Departed) at once. After a timeout all ranks can go on with the next
//! call: a late rank finds the values that it has missed. A rank that calls another operation than
//! the others gets [`Error::Disagreement`](crate::Error::Disagreement).
//!
//! # Generations
//!
//! All keys belong to a generation, which begins with [`Exchange::join`], and again with
//! [`Exchange::next_generation`]. All ranks make it together, and each is known by a number that it
//! draws for it. So a run never reads keys that another run has left in the store. The next
//! generation removes them.

#[cfg(any(feature = "mpi", feature = "pmix", test, fuzzing))]
mod announced;
mod c10d;
mod collectives;
mod combine;
mod combined;
mod digest;
mod directory;
#[cfg(feature = "nccl")]
pub(crate) mod farewell;
mod fds;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
#[path = "../../fuzz/harness/mod.rs"]
pub mod fuzz;
mod generation;
mod handle;
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
mod id;
mod live;
#[cfg(feature = "mpi")]
mod mpi_place;
mod net;
mod notes;
mod owner_process;
#[cfg(feature = "pmix")]
mod pmix;
mod store;
mod subsets;
mod table;
mod tcp;
mod threads;
mod turns;
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
pub use tcp::{Tcp, TcpPlace, TcpServer};
pub use threads::{ThreadStore, Threads};
#[cfg(any(feature = "nccl", feature = "nvshmem"))]
pub(crate) use view::Came;
pub(crate) use vote::No;
pub use vote::Vote;
#[cfg(feature = "nccl")]
pub(crate) use wire::{Reader, Writer};
