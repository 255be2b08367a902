//! A server of rank 0 at a port that the system has chosen. Another transport, such as MPI,
//! announces it to the other ranks.

use std::time::Duration;

use super::tcp::{Tcp, TcpPlace};
use super::wire::{Reader, Writer};
use crate::deadline::Deadline;
use crate::error::{Error, Result};

/// How long a rank tries one address before the next one.
const TRY: Duration = Duration::from_secs(2);

/// Where the server of rank 0 is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Announced {
    port: String,
    /// A name that no other server has. An address may belong to another host in another network,
    /// and another server may be there.
    job: String,
    addresses: Vec<String>,
}

impl Announced {
    /// Serves `size` ranks. Without the `name` of this host, all of them are on it.
    #[cfg(any(feature = "mpi", feature = "pmix", test))]
    pub(super) fn serve(size: usize, name: Option<String>) -> Result<(Tcp, Self)> {
        let job = format!("{:016x}{:016x}", super::store::nonce(), super::store::nonce());
        let serve = |at: &str| TcpPlace::new(at).with_job(job.as_str()).serve(size);
        let (server, hosts) = match name {
            None => (serve("127.0.0.1:0")?, Vec::new()),
            // At all addresses, of IPv6 and IPv4 if the host has both.
            Some(name) => {
                let server = serve("[::]:0")?;
                (server, host_addresses().into_iter().chain([name]).collect())
            }
        };
        let port = server.address().rsplit(':').next().unwrap_or_default().to_owned();
        let addresses = hosts.into_iter().map(|host| format!("{host}:{port}")).collect();
        Ok((server, Self { port, job, addresses }))
    }

    /// For a rank on the host of the server.
    pub(super) fn beside(mut self) -> Self {
        self.addresses.insert(0, format!("127.0.0.1:{}", self.port));
        self
    }

    /// Connects a rank to the server, at the first of its addresses at which the server is found.
    pub(super) fn reach(&self, operation: &'static str, rank: usize, size: usize, timeout: Duration) -> Result<Tcp> {
        let deadline = Deadline::after(timeout);
        let mut last = None;
        let found = deadline.until(|| {
            for address in &self.addresses {
                let place = TcpPlace::new(address.as_str())
                    .with_job(self.job.as_str())
                    .with_timeout(TRY.min(deadline.remaining()));
                match place.connect(rank, size) {
                    Ok(store) => return Ok(Some(store)),
                    Err(error) => last = Some(error),
                }
            }
            Ok(None)
        })?;
        found.ok_or_else(|| {
            let why = last.map_or_else(|| "it has no address".to_owned(), |error| error.to_string());
            let late =
                deadline.error(operation, format!("rank {rank}: rank 0 is not reached at {:?}: {why}", self.addresses));
            late.between((Some(rank), Some(0)))
        })
    }

    /// The announcement: this, or why there is no server.
    pub(super) fn encode(of: &Result<Self, String>) -> Vec<u8> {
        match of {
            Ok(Self { port, job, addresses }) => {
                let writer = Writer::default().u8(1).text(port).text(job).count(addresses.len());
                addresses.iter().fold(writer, |writer, address| writer.text(address)).0
            }
            Err(reason) => Writer::default().u8(0).text(reason).0,
        }
    }

    /// Reads an announcement.
    pub(super) fn decode(operation: &'static str, bytes: &[u8]) -> Result<Self> {
        let failed = |reason| Error::Exchange { operation, key: "the server of rank 0".to_owned(), reason };
        match Self::read(bytes) {
            Some(Ok(announced)) => Ok(announced),
            Some(Err(reason)) => Err(failed(reason)),
            None => Err(failed(format!("expected where it is, got {} bytes that do not say so", bytes.len()))),
        }
    }

    fn read(bytes: &[u8]) -> Option<Result<Self, String>> {
        let mut reader = Reader(bytes);
        let read = match reader.u8()? {
            0 => Err(reader.text()?.to_owned()),
            1 => {
                let (port, job) = (reader.text()?.to_owned(), reader.text()?.to_owned());
                Ok(Self { port, job, addresses: reader.list(|reader| Some(reader.text()?.to_owned()))? })
            }
            _ => return None,
        };
        reader.end(read)
    }
}

/// The addresses at which other hosts may reach this one, without a port: those of all interfaces
/// that are up, IPv4 first. Loopback and link-local addresses are left out. Empty if the system
/// does not list them.
#[cfg(any(feature = "mpi", feature = "pmix", test))]
fn host_addresses() -> Vec<String> {
    use std::net::IpAddr;

    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let up = interfaces.iter().filter(|one| one.is_oper_up() && !one.is_loopback() && !one.is_link_local());
    let (fours, sixes): (Vec<IpAddr>, Vec<IpAddr>) = up.map(if_addrs::Interface::ip).partition(IpAddr::is_ipv4);
    // IPv6 addresses stand in brackets before a port.
    fours.iter().map(IpAddr::to_string).chain(sixes.iter().map(|ip| format!("[{ip}]"))).collect()
}

/// The server of rank 0: in this process, or announced by another one.
#[cfg(any(feature = "mpi", feature = "pmix"))]
#[derive(Debug)]
pub(super) enum Host {
    Own(Box<Tcp>),
    Other(Announced),
}

#[cfg(any(feature = "mpi", feature = "pmix"))]
impl Host {
    /// Reads the announcement of rank 0, which `is_beside` this rank if both are on one host.
    pub(super) fn told(operation: &'static str, bytes: &[u8], is_beside: bool) -> Result<Self> {
        let announced = Announced::decode(operation, bytes)?;
        Ok(Self::Other(if is_beside { announced.beside() } else { announced }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::Exchange;

    #[test]
    fn what_is_told_arrives_whole_or_not_at_all() {
        let addresses = vec!["10.0.0.1:7".to_owned(), "[fd00::1]:7".to_owned()];
        let at = Announced { port: "7".to_owned(), job: "a job".to_owned(), addresses };
        for told in [Ok(at), Err("no port is free".to_owned())] {
            let bytes = Announced::encode(&told);
            assert_eq!(Announced::read(&bytes).as_ref(), Some(&told));
            assert_eq!(Announced::decode("a test", &bytes).ok(), told.ok());
            for len in 0..bytes.len() {
                assert_eq!(Announced::read(&bytes[..len]), None);
            }
        }
        assert!(Announced::decode("a test", &[2]).is_err());
    }

    #[test]
    fn a_server_for_one_host_is_reached_from_there_only() {
        let (server, announced) = Announced::serve(1, None).unwrap();
        assert!(server.address().starts_with("127.0.0.1:"));
        assert_eq!(announced.addresses.len(), 0);
        assert_eq!(announced.beside().addresses, [server.address()]);
    }

    #[test]
    fn a_server_is_found_behind_addresses_that_lead_nowhere() {
        let (server, announced) = Announced::serve(2, Some("localhost".to_owned())).unwrap();
        let mut announced = announced.beside();
        // Nobody listens there, and somebody else.
        let stranger = TcpPlace::new("127.0.0.1:0").with_job("another").serve(2).unwrap();
        announced.addresses.splice(0..0, ["127.0.0.1:9".to_owned(), stranger.address().to_owned()]);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let store = announced.reach("a test", 1, 2, Duration::from_secs(60)).unwrap();
                Exchange::join(store).unwrap().broadcast(&[], 0).unwrap()
            });
            let own = Exchange::join(server).unwrap();
            own.broadcast(b"here", 0).unwrap();
            assert_eq!(other.join().unwrap(), b"here");
        });
    }

    #[test]
    fn who_finds_no_server_says_where_it_has_looked() {
        let stranger = TcpPlace::new("127.0.0.1:0").with_job("another").serve(2).unwrap();
        let at = stranger.address().to_owned();
        let announced = Announced { port: String::new(), job: "mine".to_owned(), addresses: vec![at.clone()] };
        let error = announced.reach("a test", 1, 2, Duration::from_millis(50)).unwrap_err();
        assert!(matches!(&error, Error::Timeout { detail, .. } if detail.contains(&at)), "{error}");
    }

    #[test]
    fn addresses_of_this_host_are_no_loopback_addresses() {
        for host in host_addresses() {
            let address: std::net::SocketAddr = format!("{host}:0").parse().unwrap();
            assert!(!address.ip().is_loopback(), "{address}");
            // Only an address of this host can be listened at.
            std::net::TcpListener::bind(address).unwrap();
        }
    }
}
