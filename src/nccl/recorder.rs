//! The flight recorder: dumps on demand, at panics, and when signals come.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::communicator::Communicator;
use super::flight::dump::Dump;
#[cfg(feature = "signals")]
use super::flight::signal;
use super::flight::{files, panic, ras};
use crate::cuda::refuse_in_child;
use crate::deadline::default_timeout;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;

/// Why it is written.
const ASKED: &str = "asked for";

impl Communicator {
    /// What this rank has issued last, and how far that is; wraps nothing. Waits for nobody, and can be asked from any thread, also while
    /// another is inside a call that hangs, through [`dump_all`].
    ///
    /// ```
    /// # use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let clique = Clique::init_all(&Device::all()?)?;
    /// clique.spmd(|comm| {
    ///     let stream = Stream::new(comm.device())?;
    ///     let mut x = DeviceBuffer::from_slice(&stream, &[1.0f32; 1000])?;
    ///     comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
    ///     let dump = comm.dump().to_string();
    ///     assert!(dump.contains("all_reduce of 1000 f32, sum"), "{dump}");
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn dump(&self) -> Dump {
        Dump::of(self.inner(), ASKED.to_owned())
    }
}

/// Writes what each rank of this process has issued last, of every communicator that has not ended, and of the last 64 ranks whose
/// communicators have, into files in `directory`, which is made if need be: their paths. Wraps nothing, and waits for nobody but NCCL's RAS service, where it runs, for two seconds at most; what
/// that says lies beside them.
///
/// With the variable `GPUCOMM_DUMP` the same comes of its own, into the directory that it names, wherever a communicator fails.
///
/// ```
/// # use gpucomm::{Clique, Device, nccl};
/// # fn main() -> gpucomm::Result<()> {
/// let clique = Clique::init_all(&Device::all()?)?;
/// let directory = std::env::temp_dir().join(format!("dumps-{}", std::process::id()));
/// // `gpucomm diagnose DIRECTORY/*` says what they come to.
/// assert!(nccl::dump_all(&directory)?.len() >= clique.size());
/// # // What RAS says may still come.
/// # let _ = std::fs::remove_dir_all(&directory);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`InvalidUsage`](Error::InvalidUsage) where a file cannot be written: the others are, all the same.
pub fn dump_all(directory: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    refuse_in_child("nccl::dump_all", "NCCL")?;
    let dumps = files::all(ASKED);
    let written = files::write_each(&dumps, directory.as_ref());
    files::add_ras(dumps, directory.as_ref());
    written
}

/// What NCCL's RAS service says, in JSON: which ranks of which communicators answer, in all processes of the job, how many collectives each
/// has issued, and which have errors or are being aborted. It is asked at `address`, such as `node7:28028`, or where `NCCL_RAS_ADDR` says
/// it is, or at `localhost:28028`. Wraps nothing: it is a service that every process that uses NCCL has a thread of, unless
/// `NCCL_RAS_ENABLE=0`, and need not be of this program. `gpucomm diagnose --ras` puts it into words.
///
/// It waits for the [default timeout](crate::default_timeout).
///
/// ```
/// use gpucomm::nccl;
///
/// match nccl::ras_status(None) {
///     Ok(json) => println!("{json}"),
///     // On the emulator there is none.
///     Err(error) => println!("{error}"),
/// }
/// ```
///
/// # Errors
/// [`Timeout`](Error::Timeout) where there is no answer in time; [`InvalidUsage`](Error::InvalidUsage) where there is nobody to ask;
/// [`Unsupported`](Error::Unsupported) for a service of NCCL before 2.28.7; [`InvalidArgument`](Error::InvalidArgument) where something
/// else answers.
pub fn ras_status(address: Option<&str>) -> Result<String> {
    ras_status_timeout(address, default_timeout())
}

/// As [`ras_status`], with the given timeout.
///
/// ```
/// use std::time::Duration;
///
/// use gpucomm::nccl;
///
/// match nccl::ras_status_timeout(None, Duration::from_secs(1)) {
///     Ok(json) => println!("{json}"),
///     Err(error) => println!("{error}"),
/// }
/// ```
///
/// # Errors
/// As there.
pub fn ras_status_timeout(address: Option<&str>, timeout: Duration) -> Result<String> {
    let address = address.map_or_else(ras::address, str::to_owned);
    ras::ask("ras_status", &address, timeout)
}

/// Has every panic of the process do what [`dump_all`] does, by a panic hook that then calls the hook which was there. Wraps nothing.
///
/// Panics that somebody catches count as well; the last one stands in the files. Without it, a panic that ends a communicator, by
/// dropping it or as the program of a rank in [`Clique::spmd`](super::Clique::spmd), writes dumps with `GPUCOMM_DUMP`. That a
/// directory cannot be written is said once, on stderr. The panic waits for files for two seconds at most.
///
/// ```
/// # use gpucomm::{Clique, Device, nccl};
/// # fn main() -> gpucomm::Result<()> {
/// let directory = std::env::temp_dir().join(format!("panics-{}", std::process::id()));
/// nccl::dump_on_panic(&directory)?;
/// let clique = Clique::init_all(&Device::all()?)?;
/// let panicked = std::thread::spawn(|| panic!("out of ideas")).join();
/// assert!(panicked.is_err());
/// assert!(std::fs::read_dir(&directory).expect("a directory").count() >= clique.size());
/// # // What RAS says may still come.
/// # let _ = std::fs::remove_dir_all(&directory);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`InvalidUsage`](Error::InvalidUsage) on a thread that panics.
pub fn dump_on_panic(directory: impl Into<PathBuf>) -> Result<()> {
    panic::watch("dump_on_panic", directory.into())
}

/// Has a signal do what [`dump_all`] does, `SIGUSR2` if it is `None`: for who asks from outside why a program hangs. Wraps nothing; needs the
/// feature `signals`.
///
/// The files are written by a thread that waits for the signal from now on, as long as the process lives. The handler wakes it, and calls
/// the one that was there before; a signal that would have ended the process does no more. That a directory cannot be
/// written is said once, on stderr.
///
/// ```
/// # use gpucomm::{Clique, Device, nccl};
/// # fn main() -> gpucomm::Result<()> {
/// let directory = std::env::temp_dir().join(format!("signals-{}", std::process::id()));
/// nccl::dump_on_signal(None, &directory)?;
/// let clique = Clique::init_all(&Device::all()?)?;
/// // `kill -USR2 PID` writes down what each rank of the process has issued last.
/// # let kill = std::process::Command::new("sh").args(["-c", &format!("kill -USR2 {}", std::process::id())]).status();
/// # assert!(kill.expect("a shell").success());
/// # let files = || std::fs::read_dir(&directory).map_or(0, |files| files.count());
/// # let start = std::time::Instant::now();
/// # while files() < clique.size() {
/// #     assert!(start.elapsed().as_secs() < 10);
/// # }
/// # // What RAS says may still come.
/// # let _ = std::fs::remove_dir_all(&directory);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`InvalidArgument`](Error::InvalidArgument) for a signal that cannot be handled, such as `SIGKILL` or `SIGSEGV`;
/// [`InvalidUsage`](Error::InvalidUsage) where no thread can be started.
#[cfg(feature = "signals")]
pub fn dump_on_signal(signal: Option<i32>, directory: impl Into<PathBuf>) -> Result<()> {
    signal::watch("dump_on_signal", signal.unwrap_or(libc::SIGUSR2), directory.into())
}
