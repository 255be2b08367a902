//! How a client is let in by the server.

use std::net::TcpStream;

use super::gate::{prove, trust};
use super::greeting::{Hello, Purpose, Reception, draw};
use super::link::Link;
use super::secret::Secret;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::exchange::net::dial::{self, Failure};
use crate::exchange::store::nonce;

/// The longest answer to a hello.
const MAX_RECEPTION: usize = 4096;

/// Comes to the server at `address` and says `hello`, with a proof where there is a secret; tries again while nobody answers, until
/// the deadline, or until there is no `hope` that anybody will. With what it was let in by, which has the number of the server.
pub(super) fn dial(
    operation: &'static str,
    address: &str,
    (hello, secret): (&Hello, Option<&Secret>),
    deadline: &Deadline,
    hope: impl Fn() -> bool,
) -> Result<(Link, Hello)> {
    dial::dial(operation, address, hello.rank, deadline, hope, |stream, deadline| {
        greet(stream, hello, secret, deadline)
    })
}

fn greet(
    stream: TcpStream,
    hello: &Hello,
    secret: Option<&Secret>,
    deadline: &Deadline,
) -> Result<(Link, Hello), Failure> {
    let mut link = Link::new(stream);
    let id = match hello.purpose {
        // A server that was too slow may hear of a try when that has been given up, and takes its rank for one that has died.
        Purpose::Presence => nonce(),
        Purpose::Requests => hello.id,
    };
    // Drawn anew for each connection.
    let hello = Hello { id, number: secret.map(|_| draw()), ..hello.clone() };
    let said = hello.encode();
    let met = |server| Hello { server, number: None, ..hello };
    link.send(&said, deadline)?;
    let mut asked = None;
    loop {
        let reception = Reception::decode(&link.receive(MAX_RECEPTION, deadline)?);
        match (reception, secret, asked) {
            (Reception::Refused(reason), ..) => return Err(Failure::Never(reason)),
            (Reception::Welcome { server, proof: None }, None, _) => return Ok((link, met(server))),
            (Reception::Asked(number), Some(secret), None) => {
                link.send(&prove(secret, &number, &said), deadline)?;
                asked = Some(number);
            }
            (Reception::Welcome { server, proof: Some(proof) }, Some(secret), Some(number)) => {
                let seals = trust(secret, &number, &said, server, &proof);
                link.seals = Some(seals.ok_or_else(|| {
                    stranger("expected a server with the shared secret, got one that does not prove that it has it")
                })?);
                return Ok((link, met(server)));
            }
            (Reception::Welcome { .. }, Some(_), _) => {
                return Err(stranger("expected a server with the shared secret, got one that proves none"));
            }
            (Reception::Asked(_) | Reception::Welcome { .. }, None, _) => {
                return Err(stranger("expected a server without a shared secret, got one that asks for it"));
            }
            (Reception::Asked(_) | Reception::Unknown, ..) => {
                return Err(stranger("expected a server of an exchange, got something else"));
            }
        }
    }
}

fn stranger(reason: &str) -> Failure {
    Failure::Never(reason.to_owned())
}
