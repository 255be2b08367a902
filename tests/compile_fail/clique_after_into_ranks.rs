//! A clique that was taken apart is gone.
use gpucomm::{Clique, Result};

fn gone(clique: Clique) -> Result<Vec<usize>> {
    let ranks = clique.into_ranks();
    drop(ranks);
    clique.spmd(|comm| Ok(comm.rank()))
}

fn main() {}
