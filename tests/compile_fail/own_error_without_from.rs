//! An error type of the program's own that cannot be made of one of this crate.

#[derive(Debug)]
struct Own;

fn main() {
    let clique = gpucomm::Clique::init_all(&[]).unwrap();
    let _ = clique.try_spmd(|_| -> Result<(), Own> { Err(Own) });
}
