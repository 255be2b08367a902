//! Addresses: the names of hosts, and the address at which a server listens.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, ToSocketAddrs, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::deadline::Deadline;

/// How long a server waits until its address is free: twice as long as the server of the last run
/// stays for its ranks.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// How many clients may wait to be let in. The system allows fewer if it is set so.
const BACKLOG: i32 = 4096;

/// The pause between two attempts to listen.
const PAUSE: Duration = Duration::from_millis(50);

/// The addresses of a name.
///
/// The system's resolver has no deadline. A thread calls it, and is left behind if it takes too
/// long.
pub(crate) fn resolve(address: &str, deadline: &Deadline) -> io::Result<Vec<SocketAddr>> {
    resolve_by(address, deadline, |name| name.to_socket_addrs().map(Vec::from_iter))
}

fn resolve_by(
    address: &str,
    deadline: &Deadline,
    resolver: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let (sender, answer) = mpsc::sync_channel(1);
    let name = address.to_owned();
    let call = move || {
        let _ = sender.send(resolver(&name));
    };
    std::thread::Builder::new().name("gpucomm-resolve".into()).spawn(call)?;
    let timed_out = |_| io::Error::new(ErrorKind::TimedOut, format!("no answer from the resolver for {address}"));
    answer.recv_timeout(deadline.remaining()).map_err(timed_out)?
}

/// Listens at the first of `addresses` that is free. If all are in use, tries again until
/// `patience` or the deadline has passed.
pub(in crate::exchange) fn listen(
    addresses: &[String],
    patience: Duration,
    deadline: &Deadline,
) -> io::Result<TcpListener> {
    let patience = Deadline::after(patience.min(deadline.remaining()));
    loop {
        let mut last = io::Error::new(ErrorKind::InvalidInput, "expected an address to listen at, got none");
        let mut in_use = false;
        for address in addresses {
            match resolve(address, deadline).and_then(|found| bind(&found)) {
                Ok(listener) => return Ok(listener),
                Err(error) => {
                    in_use |= error.kind() == ErrorKind::AddrInUse;
                    last = error;
                }
            }
        }
        if !in_use || patience.expired() {
            return Err(last);
        }
        std::thread::sleep(PAUSE.min(patience.remaining()));
    }
}

/// The address at which a client in this process reaches a server that listens at `address`. All
/// interfaces of IPv6 include those of IPv4, and have no address of IPv6 where that is disabled.
pub(in crate::exchange) fn own_address(address: SocketAddr) -> SocketAddr {
    if !address.ip().is_unspecified() {
        return address;
    }
    let has_ipv4 = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).is_ok();
    let loopback = if has_ipv4() { IpAddr::from(Ipv4Addr::LOCALHOST) } else { IpAddr::from(Ipv6Addr::LOCALHOST) };
    SocketAddr::new(loopback, address.port())
}

/// Listens at the first of these addresses that is free. All interfaces of IPv6 include those of IPv4,
/// whatever the system has set.
fn bind(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut last = io::Error::new(ErrorKind::InvalidInput, "expected an address to listen at, got none");
    for address in addresses {
        let listener = match address {
            SocketAddr::V6(of_all) if of_all.ip().is_unspecified() => bind_all(of_all),
            _ => TcpListener::bind(address),
        };
        match listener.and_then(with_backlog) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// With room for [`BACKLOG`] clients: std makes room for 128, and a client that finds none tries again
/// after a second.
fn with_backlog(listener: TcpListener) -> io::Result<TcpListener> {
    net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// As [`TcpListener::bind`], for all interfaces of IPv6 and IPv4; of IPv4 alone on a host that has no
/// IPv6, or on which it is disabled.
fn bind_all(address: &SocketAddrV6) -> io::Result<TcpListener> {
    match bind_both(address) {
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())),
        listener => Ok(listener?),
    }
}

fn bind_both(address: &SocketAddrV6) -> rustix::io::Result<TcpListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = net::socket_with(AddressFamily::INET6, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    sockopt::set_ipv6_v6only(&socket, false)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    net::bind(&socket, address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(TcpListener::from(socket))
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Instant;

    use super::*;

    #[test]
    fn own_client_reaches_a_server_of_all_interfaces() {
        for at in ["[::]:0", "0.0.0.0:0", "127.0.0.1:0"] {
            let listener = bind(&[at.parse().unwrap()]).unwrap();
            let address = own_address(listener.local_addr().unwrap());
            assert!(address.ip().is_loopback(), "{at}: {address}");
            TcpStream::connect(address).unwrap();
        }
    }

    /// The server lets all of them wait; without room, a client tries again after a second.
    #[test]
    fn many_clients_wait_to_be_let_in() {
        let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
        let clients = limit.trim().parse::<usize>().unwrap().min(400);
        for at in ["[::]:0", "0.0.0.0:0", "127.0.0.1:0"] {
            let listener = bind(&[at.parse().unwrap()]).unwrap();
            let address = own_address(listener.local_addr().unwrap());
            let start = Instant::now();
            let come = |_| TcpStream::connect_timeout(&address, Duration::from_secs(60)).unwrap();
            let clients: Vec<_> = (0..clients).map(come).collect();
            assert!(start.elapsed() < Duration::from_secs(30), "{at}: {:?}", start.elapsed());
            drop(clients);
        }
    }

    #[test]
    fn an_address_in_use_is_tried_again() {
        let deadline = Deadline::after(Duration::from_secs(60));
        let first = listen(&["127.0.0.1:0".to_owned()], Duration::ZERO, &deadline).unwrap();
        let addresses = [first.local_addr().unwrap().to_string()];
        let start = Instant::now();
        let error = listen(&addresses, Duration::from_millis(60), &deadline).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AddrInUse);
        assert!(start.elapsed() >= Duration::from_millis(60));
        let leaves = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(first);
        });
        listen(&addresses, Duration::from_secs(30), &deadline).unwrap();
        leaves.join().unwrap();
        // An address of another host is an error at once. If there is another address, that is
        // taken at once.
        let start = Instant::now();
        assert!(listen(&["192.0.2.1:1".to_owned()], Duration::from_secs(30), &deadline).is_err());
        let second = listen(&["127.0.0.1:0".to_owned()], Duration::ZERO, &deadline).unwrap();
        let both = [second.local_addr().unwrap().to_string(), "127.0.0.1:0".to_owned()];
        listen(&both, Duration::from_secs(30), &deadline).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_resolver_that_does_not_answer_is_left_behind() {
        let (start, (held, hold)) = (Instant::now(), mpsc::channel::<()>());
        let deadline = Deadline::after(Duration::from_millis(30));
        // Until this test has ended.
        let silent = move |_: &str| {
            let _ = hold.recv();
            Ok(Vec::new())
        };
        let error = resolve_by("nobody.invalid:1", &deadline, silent).expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(start.elapsed() >= Duration::from_millis(30));
        drop(held);
        let long = Deadline::after(Duration::from_secs(60));
        let found = resolve_by("one:1", &long, |_| Ok(vec!["10.0.0.1:7".parse().unwrap()]));
        assert_eq!(found.expect("an answer"), ["10.0.0.1:7".parse().unwrap()]);
        let unused = |_: &str| -> io::Result<Vec<SocketAddr>> { unreachable!("an address is no name") };
        assert_eq!(resolve_by("127.0.0.1:7", &deadline, unused).expect("itself"), ["127.0.0.1:7".parse().unwrap()]);
    }
}
