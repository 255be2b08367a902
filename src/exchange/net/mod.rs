//! What the stores over TCP share: addresses, the server with its event loop, and the client with
//! its connections.

pub(super) mod address;
pub(super) mod client;
pub(super) mod server;
mod timers;
mod waits;

use std::net::TcpStream;
use std::time::Duration;

use rustix::net::sockopt;

/// Has TCP probe a silent peer after ten seconds, and give it up after another 15.
fn keep_alive(stream: &TcpStream) {
    // Without it, the end of a host is noticed later.
    let _ = sockopt::set_socket_keepalive(stream, true)
        .and_then(|()| sockopt::set_tcp_keepidle(stream, Duration::from_secs(10)))
        .and_then(|()| sockopt::set_tcp_keepintvl(stream, Duration::from_secs(5)))
        .and_then(|()| sockopt::set_tcp_keepcnt(stream, 3));
}
