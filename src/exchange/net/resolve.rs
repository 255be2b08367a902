//! The addresses of a name.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc;

use crate::deadline::Deadline;

/// The addresses of a name. Asking for them has no deadline of its own, so a thread does it, which is left behind where that takes too
/// long.
pub(crate) fn resolve(address: &str, deadline: &Deadline) -> io::Result<Vec<SocketAddr>> {
    by(address, deadline, |name| name.to_socket_addrs().map(Vec::from_iter))
}

fn by(
    address: &str,
    deadline: &Deadline,
    ask: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let (tell, told) = mpsc::sync_channel(1);
    let name = address.to_owned();
    let ask = move || {
        let _ = tell.send(ask(&name));
    };
    std::thread::Builder::new().name("gpucomm-resolve".into()).spawn(ask)?;
    let slow = |_| io::Error::new(ErrorKind::TimedOut, format!("nobody says which address {address} has"));
    told.recv_timeout(deadline.remaining()).map_err(slow)?
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn who_knows_no_name_is_not_waited_for() {
        let (start, (held, hold)) = (Instant::now(), mpsc::channel::<()>());
        let deadline = Deadline::after(Duration::from_millis(30));
        // Until this test has ended.
        let silent = move |_: &str| {
            let _ = hold.recv();
            Ok(Vec::new())
        };
        let error = by("nobody.invalid:1", &deadline, silent).expect_err("no answer");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(start.elapsed() >= Duration::from_millis(30));
        drop(held);
        let here = by("one:1", &Deadline::after(Duration::from_secs(60)), |_| Ok(vec!["10.0.0.1:7".parse().unwrap()]));
        assert_eq!(here.expect("an answer"), ["10.0.0.1:7".parse().unwrap()]);
        let asks = |_: &str| -> io::Result<Vec<SocketAddr>> { unreachable!("an address is no name") };
        assert_eq!(by("127.0.0.1:7", &deadline, asks).expect("itself"), ["127.0.0.1:7".parse().unwrap()]);
    }
}
