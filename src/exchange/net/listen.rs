//! How a server comes to its address, which the one before it may still have.

use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::time::Duration;

use super::resolve::resolve;
use crate::deadline::Deadline;

/// How long a server waits for the address to be free: twice as long as the one of the last run stays for its ranks.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// Listens at the first of `addresses` that is free; where none is, for as long as somebody has one, tries again until `patience` is over, or the deadline.
pub(in crate::exchange) fn listen(
    addresses: &[String],
    patience: Duration,
    deadline: &Deadline,
) -> io::Result<TcpListener> {
    let patience = Deadline::after(patience.min(deadline.remaining()));
    loop {
        let mut why = io::Error::new(ErrorKind::InvalidInput, "expected an address to listen at, got none");
        let mut taken = false;
        for address in addresses {
            match resolve(address, deadline).and_then(|found| TcpListener::bind(&found[..])) {
                Ok(listener) => return Ok(listener),
                Err(error) => {
                    taken |= error.kind() == ErrorKind::AddrInUse;
                    why = error;
                }
            }
        }
        if !taken || patience.expired() {
            return Err(why);
        }
        std::thread::sleep(PAUSE.min(patience.remaining()));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn an_address_that_somebody_has_is_waited_for() {
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
        // Nobody waits for an address that this host has not, nor for one where there is another.
        let start = Instant::now();
        assert!(listen(&["192.0.2.1:1".to_owned()], Duration::from_secs(30), &deadline).is_err());
        let second = listen(&["127.0.0.1:0".to_owned()], Duration::ZERO, &deadline).unwrap();
        let both = [second.local_addr().unwrap().to_string(), "127.0.0.1:0".to_owned()];
        listen(&both, Duration::from_secs(30), &deadline).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    }
}
