//! A request goes to the thread of its rank.
use std::rc::Rc;

use gpucomm::Result;
use gpucomm::world::{At, Rank, Request};

struct Counted(Rc<u32>);

impl Request for Counted {
    type Back = ();

    fn operation(&self) -> &'static str {
        "counted"
    }

    fn enqueue(&mut self, _: &At<'_>) -> Result<()> {
        println!("{}", self.0);
        Ok(())
    }

    fn into_back(self) {}
}

fn submit(rank: &Rank) {
    let _ = rank.submit(Counted(Rc::new(1)));
}

fn main() {}
