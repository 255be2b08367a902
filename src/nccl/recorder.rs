//! The flight recorder, on demand.

use std::path::{Path, PathBuf};

use super::communicator::Communicator;
use super::flight::dump::Dump;
use super::flight::files;
use super::state::inner::HOUSEHOLDS;
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
    ///     assert!(dump.contains("all_reduce sum of 1000 f32"), "{dump}");
    ///     Ok(())
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn dump(&self) -> Dump {
        Dump::of(self.inner(), ASKED.to_owned())
    }
}

/// Writes what each rank of this process has issued last, of every communicator that has not ended, into files in `directory`, which is
/// made if need be: their paths. Wraps nothing, and waits for nobody.
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
/// # std::fs::remove_dir_all(&directory).expect("a directory");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`InvalidUsage`](Error::InvalidUsage) where a file cannot be written.
pub fn dump_all(directory: impl AsRef<Path>) -> Result<Vec<PathBuf>> {
    let open = HOUSEHOLDS.members().into_iter().filter(|inner| !inner.has_ended());
    open.map(|inner| files::write(&Dump::of(&inner, ASKED.to_owned()), directory.as_ref())).collect()
}
