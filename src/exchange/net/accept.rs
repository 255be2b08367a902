//! Who comes to a server.

use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};

use super::events::keep_asking;
use crate::exchange::system::is;

/// The process or the system has no more file descriptors or memory for a connection.
const OUT_OF_FILES: &[i32] = &[libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];

/// What comes of looking whether somebody has come.
pub(in crate::exchange) enum Arrival {
    Here(TcpStream),
    Nobody,
    /// Somebody has, and there is no room.
    NoRoom,
}

/// Who has come to `listener`, which does not wait; nor does the connection.
pub(in crate::exchange) fn accept(listener: &TcpListener) -> Arrival {
    loop {
        match listener.accept() {
            Ok((stream, _)) if stream.set_nonblocking(true).is_ok() => {
                let _ = stream.set_nodelay(true);
                keep_asking(&stream);
                return Arrival::Here(stream);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Arrival::Nobody,
            Err(error) if is(&error, OUT_OF_FILES) => return Arrival::NoRoom,
            // That one has gone again.
            Ok(_) | Err(_) => {}
        }
    }
}
