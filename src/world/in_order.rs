//! Requests that are answered when they are enqueued.

use std::fmt;

use super::at::At;
use super::request::Request;
use crate::cuda::{Device, Event};
use crate::element::ElementKind;
use crate::error::Result;

/// A request whose answer comes when it is enqueued; see [`Rank::submit_in_order`](super::Rank::submit_in_order).
pub(super) struct InOrder<R: Request> {
    request: R,
    event: Option<Event>,
}

/// A request that was enqueued.
#[derive(Debug)]
pub struct Enqueued<B> {
    /// Its buffers. What uses them, on whatever stream, waits for it on the device; and waits of the host for that tell where it has failed.
    pub buffers: B,
    /// The end of it, on the stream of the rank. `None` where it was not enqueued.
    pub event: Option<Event>,
}

impl<R: Request> InOrder<R> {
    pub(super) fn new(request: R) -> Self {
        Self { request, event: None }
    }
}

impl<R: Request> fmt::Debug for InOrder<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InOrder").field(&self.request.operation()).finish()
    }
}

impl<R: Request> Request for InOrder<R> {
    type Back = Enqueued<R::Back>;

    fn operation(&self) -> &'static str {
        self.request.operation()
    }

    fn device(&self) -> Option<Device> {
        self.request.device()
    }

    fn element(&self) -> Option<ElementKind> {
        self.request.element()
    }

    fn check(&mut self, at: &At<'_>) -> Result<()> {
        self.request.check(at)
    }

    fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
        self.request.enqueue(at)?;
        self.event = Some(at.stream().record()?);
        Ok(())
    }

    fn into_back(self) -> Self::Back {
        Enqueued { buffers: self.request.into_back(), event: self.event }
    }
}
