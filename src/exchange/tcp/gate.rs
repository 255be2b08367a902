//! Who is let in by the server: the state of a greeting, without the connection on which it happens.

// Without the feature, nothing comes after a secret, as there is none.
#![cfg_attr(not(feature = "secret"), allow(unreachable_code, unused_variables))]

use super::greeting::{Hello, Number, Reception, draw};
use super::proof::End;
use super::secret::{Seals, Secret};
use crate::exchange::store::nonce;

/// What the server asks of those who come.
#[derive(Debug)]
pub(super) struct Gate {
    job: String,
    size: usize,
    secret: Option<Secret>,
    /// A number by which this start of the server is known.
    server: u64,
}

/// A client that was asked for a proof.
#[derive(Debug)]
pub(super) struct Asked {
    hello: Hello,
    said: Vec<u8>,
    number: Number,
}

/// What comes of a frame.
#[derive(Debug)]
pub(super) enum Step {
    /// It is asked for a proof.
    Ask(Box<Asked>),
    /// It is let in, and what both say from now on has marks.
    In(Hello, Option<Box<Seals>>),
    Refused,
    /// It is none of ours, and not answered.
    Stranger,
}

impl Gate {
    pub(super) fn new(job: String, size: usize, secret: Option<Secret>) -> Self {
        Self { job, size, secret, server: nonce() }
    }

    /// What comes of a frame of a client, which was asked for a proof or was not; and what it is answered.
    pub(super) fn hear(&self, asked: Option<&Asked>, frame: &[u8]) -> (Step, Vec<u8>) {
        let heard = match asked {
            None => self.greeted(frame),
            Some(asked) => self.proved(asked, frame),
        };
        heard.unwrap_or_else(|reason| match reason {
            Some(reason) => (Step::Refused, Reception::Refused(reason).encode()),
            None => (Step::Stranger, Vec::new()),
        })
    }

    fn greeted(&self, frame: &[u8]) -> Result<(Step, Vec<u8>), Option<String>> {
        let hello = Hello::decode(frame)?;
        match (&self.secret, hello.number) {
            (None, None) => {
                self.check(&hello)?;
                let welcome = Reception::Welcome { server: self.server, proof: None };
                Ok((Step::In(hello, None), welcome.encode()))
            }
            (Some(_), None) => Err(Some("expected a rank with the shared secret, got one without any".to_owned())),
            (None, Some(_)) => Err(Some("expected a rank without a shared secret, got one with a secret".to_owned())),
            (Some(_), Some(_)) => {
                let number = draw();
                let asked = Asked { hello, said: frame.to_vec(), number };
                Ok((Step::Ask(Box::new(asked)), Reception::Asked(number).encode()))
            }
        }
    }

    fn proved(&self, asked: &Asked, proof: &[u8]) -> Result<(Step, Vec<u8>), Option<String>> {
        // Nobody is asked by a server without one.
        let secret = self.secret.as_ref().ok_or(None)?;
        let said: &[&[u8]] = &[&asked.number, &asked.said];
        if !secret.proves(End::Client, said, proof) {
            return Err(Some(
                "expected a proof of the shared secret, got one that is none: it has another one".to_owned(),
            ));
        }
        // Only who has the secret learns of what job this is.
        self.check(&asked.hello)?;
        let proof = secret.prove(End::Server, &[&asked.number, &self.server.to_le_bytes(), &asked.said]);
        let welcome = Reception::Welcome { server: self.server, proof: Some(proof) };
        Ok((Step::In(asked.hello.clone(), Some(Box::new(secret.seals(End::Server, said)))), welcome.encode()))
    }

    fn check(&self, hello: &Hello) -> Result<(), Option<String>> {
        hello.objection(&self.job, self.size, self.server).map_or(Ok(()), |why| Err(Some(why)))
    }
}

/// The client's part once it was asked: its proof.
pub(super) fn prove(secret: &Secret, number: &Number, said: &[u8]) -> Vec<u8> {
    secret.prove(End::Client, &[number, said]).to_vec()
}

/// The client's part once it was welcomed: the marks of this connection, if the server has proved that it knows the secret.
pub(super) fn trust(secret: &Secret, number: &Number, said: &[u8], server: u64, proof: &[u8]) -> Option<Seals> {
    let proved = secret.proves(End::Server, &[number, &server.to_le_bytes(), said], proof);
    proved.then(|| secret.seals(End::Client, &[number, said]))
}

#[cfg(test)]
#[path = "gate_tests.rs"]
mod tests;
