//! A server that is no rank.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use super::place::TcpPlace;
use super::server::{Ended, Outside};
use crate::error::Result;
use crate::exchange::net::server::Server;

/// A server of a TCP store that is no rank: made by [`TcpPlace::host`].
///
/// It serves any number of jobs, each with its own keys, and lasts until you drop it. All ranks
/// [connect](TcpPlace::connect) to it, rank 0 as well, so the death of no rank ends the store.
/// Ranks with the same [job](TcpPlace::with_job) belong together, and must agree on the number of
/// ranks.
///
/// A minute after the last rank of a job has left or died, the server forgets the job, its keys and
/// its departures. A job that is started again earlier finds the keys of its last run, and
/// [generations](crate::exchange#generations) keep the two apart.
///
/// The keys and values of all jobs together may take 1 GiB.
///
/// ```
/// # use gpucomm::exchange::{Exchange, TcpPlace};
/// # fn main() -> gpucomm::Result<()> {
/// // In a process that is no rank, such as a launcher:
/// let server = TcpPlace::new("127.0.0.1:0").host()?;
/// // In each rank:
/// let place = TcpPlace::new(server.address().to_string()).with_job("training-17");
/// std::thread::scope(|scope| {
///     let other = scope.spawn(|| Exchange::join(place.connect(1, 2)?)?.all_gather(b"one"));
///     let all = Exchange::join(place.connect(0, 2)?)?.all_gather(b"zero")?;
///     assert_eq!(all, [b"zero".to_vec(), b"one".to_vec()]);
///     other.join().expect("no panic").map(drop)
/// })?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TcpServer {
    server: Server,
    outside: Outside,
}

impl TcpPlace {
    /// Starts a server at the address, which is no rank and serves any job from a thread of its
    /// own. With port 0 the system chooses the port, and [`TcpServer::address`] returns it.
    ///
    /// If this place names a [job](Self::with_job), the server refuses ranks of other jobs. If it
    /// has a secret, the server admits only ranks with the same secret.
    ///
    /// The server uses about two file descriptors for each rank, as that of [`serve`](Self::serve).
    ///
    /// ```
    /// # use gpucomm::exchange::TcpPlace;
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = TcpPlace::new("127.0.0.1:0").host()?;
    /// println!("GPUCOMM_STORE=server://{}", server.address());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn host(&self) -> Result<TcpServer> {
        let outside = Outside::default();
        let server = self.start_hosting(outside.clone())?.without_lingering();
        Ok(TcpServer { server, outside })
    }
}

impl TcpServer {
    /// The address at which the server listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// How many ranks are connected, of all jobs.
    ///
    /// ```
    /// # use gpucomm::exchange::TcpPlace;
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = TcpPlace::new("127.0.0.1:0").host()?;
    /// let store = TcpPlace::new(server.address().to_string()).connect(0, 1)?;
    /// assert_eq!(server.connected(), 1);
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub fn connected(&self) -> usize {
        self.outside.connected.load(Ordering::Relaxed)
    }

    /// Tells the other ranks of `job` that `rank` has ended, and `how`, such as `was killed`.
    /// Closes its connections.
    ///
    /// The server notices the end of a process by itself. Call this if you know of the end in
    /// another way, because a child that the rank has forked may hold its connections open.
    ///
    /// ```
    /// # use gpucomm::exchange::{Store, TcpPlace};
    /// # use std::time::Duration;
    /// # fn main() -> gpucomm::Result<()> {
    /// let server = TcpPlace::new("127.0.0.1:0").host()?;
    /// let place = TcpPlace::new(server.address().to_string()).with_job("a");
    /// let (first, second) = (place.connect(0, 2)?, place.connect(1, 2)?);
    /// server.rank_ended("a", 1, "was killed");
    /// // Waits for a key that rank 1 does not set, until it is known that the rank has ended.
    /// first.get(&["key"], Duration::from_secs(60))?;
    /// assert_eq!(first.ended(&[second.id()], Duration::from_secs(1))?, [Some("was killed".to_owned())]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn rank_ended(&self, job: &str, rank: usize, how: &str) {
        self.outside.ended.lock().push(Ended { job: job.to_owned(), rank, how: how.to_owned() });
        self.server.notify();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::error::Error;
    use crate::exchange::store::Store;

    const WITHIN: Duration = Duration::from_secs(10);

    /// A job whose last rank has gone is forgotten without a request of anybody, and not before a
    /// while.
    #[test]
    fn a_server_gives_back_what_a_job_took() {
        let server = TcpPlace::new("127.0.0.1:0").host().unwrap();
        let place = TcpPlace::new(server.address().to_string()).with_job("a").with_timeout(WITHIN);
        let store = place.connect(0, 1).unwrap();
        store.set("key", &[7; 1 << 20], WITHIN).unwrap();
        drop(store);
        // Started again in place.
        let store = place.connect(0, 1).unwrap();
        assert!(store.get(&["key"], Duration::ZERO).unwrap()[0].is_some());
        drop(store);
        let begin = Instant::now();
        while {
            std::thread::sleep(Duration::from_millis(1300));
            place.connect(0, 1).unwrap().get(&["key"], Duration::ZERO).unwrap()[0].is_some()
        } {
            assert!(begin.elapsed() < WITHIN);
        }
        assert!(begin.elapsed() > Duration::from_secs(1));
    }

    #[test]
    fn a_server_that_is_dropped_ends_at_once() {
        let server = TcpPlace::new("127.0.0.1:0").host().unwrap();
        let store = TcpPlace::new(server.address().to_string()).connect(0, 2).unwrap();
        let begin = Instant::now();
        drop(server);
        let error = store.get(&["key"], Duration::from_secs(60)).unwrap_err();
        assert!(matches!(error, Error::Exchange { .. }) && begin.elapsed() < Duration::from_secs(3), "{error}");
    }
}
