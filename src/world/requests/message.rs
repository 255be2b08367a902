//! Messages from one rank to another.

use super::whole::request;
use crate::world::memory::{Source, Target};

request! {
    /// [`send`](crate::Communicator::send) as a request.
    Send<B: Source> of <B as Source>::Element;
    { data: B, peer: usize }
    "send" -> B = |this| this.data;
    |this, at, group| group.send(at.communicator(), this.data.source(), this.peer, at.stream())
}

impl<B: Source> Send<B> {
    /// What is sent, and to whom.
    pub fn new(data: B, peer: usize) -> Self {
        Self { data, peer }
    }
}

request! {
    /// [`recv`](crate::Communicator::recv) as a request.
    Recv<B: Target> of <B as Source>::Element;
    { data: B, peer: usize }
    "recv" -> B = |this| this.data;
    |this, at, group| group.recv(at.communicator(), this.data.target(), this.peer, at.stream())
}

impl<B: Target> Recv<B> {
    /// Where it goes, and from whom it comes.
    pub fn new(data: B, peer: usize) -> Self {
        Self { data, peer }
    }
}
