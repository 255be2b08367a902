//! Which ranks share a host, where the launcher does not say so.

use super::handle::Launch;
use crate::deadline::Deadline;
use crate::error::Result;

impl Launch {
    /// Which one this is of the ranks on its host, and how many these are: what the launcher says, or what the ranks tell each other,
    /// all of which call it then.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// let launch = gpucomm::Launch::new(0, 1, "tcp://127.0.0.1:0")?;
    /// assert_eq!(launch.local_rank(), None);
    /// assert_eq!(launch.find_local()?, (0, 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`join`](Self::join), and of [`Exchange::all_gather`](crate::exchange::Exchange::all_gather).
    pub fn find_local(&self) -> Result<(usize, usize)> {
        // Whether a launcher says so is the same on all ranks.
        if let (Some(rank), Some(size)) = (self.local_rank(), self.local_size()) {
            return Ok((rank, size));
        }
        let deadline = Deadline::after(self.timeout());
        let exchange = self.join()?;
        let hosts = exchange.with_timeout(deadline.remaining()).all_gather(&host())?;
        let mine = &hosts[self.rank()];
        let before = hosts[..self.rank()].iter().filter(|host| *host == mine).count();
        Ok((before, hosts.iter().filter(|host| *host == mine).count()))
    }
}

/// What distinguishes this host from others: its name, and a number that it drew when it started.
fn host() -> Vec<u8> {
    let read = |path| std::fs::read(path).unwrap_or_default();
    [read("/proc/sys/kernel/hostname"), read("/proc/sys/kernel/random/boot_id")].concat()
}
