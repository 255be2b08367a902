//! The communicator that a request is given is the rank's.
use gpucomm::world::{At, Request};
use gpucomm::{Communicator, Result};

struct Kept(Option<&'static Communicator>);

impl Request for Kept {
    type Back = ();

    fn operation(&self) -> &'static str {
        "kept"
    }

    fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
        self.0 = Some(at.communicator());
        Ok(())
    }

    fn into_back(self) {}
}

fn main() {}
