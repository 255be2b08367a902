//! The server of an exchange.

use std::io;
use std::net::TcpListener;

use super::gate::Gate;
use super::service::Service;
use crate::exchange::net::server::Server;
use crate::exchange::net::serving::Serve;

/// Serves those who come to `listener`.
pub(super) fn start(listener: TcpListener, gate: Gate) -> io::Result<Server> {
    Server::start(listener, |listener, control| {
        let service = Service::new(listener, control, gate)?;
        Ok(move || service.run())
    })
}
