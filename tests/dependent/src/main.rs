//! Says which versions it was built for and which are running; with devices, adds something up.

use gpucomm::{Backend, Clique, Device, Error, InPlace, ReduceOp, Result, Stream};

fn main() -> Result<()> {
    let built = gpucomm::nccl::built_version();
    let code = built.major * 10_000 + built.minor * 100 + built.patch;
    assert_eq!(code.to_string(), env!("NCCL_VERSION"), "gpucomm and its metadata disagree");
    let running = gpucomm::nccl::version()?;
    let cudart = gpucomm::cuda::runtime_version()?;
    println!("built for {built} and {}; {running} and {cudart} are running", env!("CUDART_VERSION"));

    let devices = match Device::all() {
        Err(Error::NoDevice { .. }) => {
            assert!(matches!(gpucomm::backend(), Backend::Nvidia), "the emulator has devices");
            println!("no device");
            return Ok(());
        }
        devices => devices?,
    };
    let clique = Clique::init_all(&devices)?;
    let sums = clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let mut x = comm.alloc_from(&stream, &[comm.rank() as f32 + 1.0; 3])?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
        x.to_vec(&stream)
    })?;
    let sum = (devices.len() * (devices.len() + 1) / 2) as f32;
    assert!(sums.iter().all(|of_rank| of_rank == &[sum; 3]), "{sums:?}");
    println!("the sum over {} ranks is {sum}", devices.len());
    Ok(())
}
