//! An error that must stay on the thread of its rank.

use std::error::Error;

fn main() {
    let clique = gpucomm::Clique::init_all(&[]).unwrap();
    let _ = clique.try_spmd(|comm| -> Result<usize, Box<dyn Error>> {
        comm.async_error()?;
        Ok(comm.rank())
    });
}
