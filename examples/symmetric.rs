//! NVSHMEM: a ring of puts with signals, and the same by a collective.
//!
//! Each PE (processing element) is a process with a device of its own. The first one is PE 0, and starts this program again for each of
//! the others. They meet in a directory; a launcher, a socket or MPI would do as well.
//!
//! Without a GPU: `cargo run --example symmetric --features emulator,nvshmem`.
//!
//! What a launcher has started is a PE as it is: `NVSHMEM_BOOTSTRAP=MPI mpirun -n 4 target/debug/examples/symmetric launched`, with Open MPI.

use std::error::Error;
use std::path::Path;
use std::process::{Child, Command};

use gpucomm::exchange::{Directory, Exchange};
use gpucomm::nvshmem::{Comparison, Context, ContextOptions, Pe, SignalOp};
use gpucomm::{Device, Stream};

/// Elements of each PE.
const PART: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [place, pe, n_pes] => return run(met(Path::new(place), pe.parse()?, n_pes.parse()?)?),
        ["launched"] => return run(launched()?),
        _ => {}
    }
    let n_pes = Device::all()?.len().min(4);
    let place = std::env::temp_dir().join(format!("gpucomm-symmetric-{}", std::process::id()));
    std::fs::create_dir_all(&place)?;
    let mut others = (1..n_pes).map(|pe| start(&place, pe, n_pes)).collect::<Result<Vec<_>, _>>()?;
    let own = met(&place, 0, n_pes).and_then(run);
    for child in &mut others {
        if own.is_err() {
            child.kill()?;
        }
        let status = child.wait()?;
        assert!(own.is_err() || status.success(), "process {} failed: {status}", child.id());
    }
    std::fs::remove_dir_all(&place)?;
    own?;
    println!("{n_pes} PEs have what all of them had");
    Ok(())
}

/// Starts this program as PE `pe`.
fn start(place: &Path, pe: usize, n_pes: usize) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).arg(place).args([pe.to_string(), n_pes.to_string()]).spawn()
}

/// A PE that meets the others in a directory.
fn met(place: &Path, pe: usize, n_pes: usize) -> Result<ContextOptions, Box<dyn Error>> {
    let exchange = Exchange::join(Directory::open(place, pe, n_pes)?)?;
    Ok(ContextOptions::new().with_device(Device::new(pe)?).with_exchange(&exchange))
}

/// A PE that a launcher has started, which says which process of its host this is. The library asks it for the rest.
fn launched() -> Result<ContextOptions, Box<dyn Error>> {
    let names = ["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"];
    let local = names.iter().find_map(|name| std::env::var(name).ok()).ok_or("no launcher has started this")?;
    Ok(ContextOptions::new().with_device(Device::new(local.parse()?)?).with_environment())
}

/// What every PE does.
fn run(options: ContextOptions) -> Result<(), Box<dyn Error>> {
    // SAFETY: all PEs run this function: they make the same collective calls, in the same order, with operands of the same lengths.
    let ctx = unsafe { Context::init(&options) }?;
    let (pe, n_pes) = (ctx.pe().0, ctx.n_pes());
    let stream = Stream::new(ctx.device())?;
    let mine: Vec<u32> = (0..PART).map(|at| (pe * PART + at) as u32).collect();
    let part = |of: usize| of * PART..(of + 1) * PART;

    // Memory on each PE, of which any PE writes what it likes, and a signal for each part that comes.
    let mut all = ctx.alloc::<u32>(n_pes * PART)?;
    let came = ctx.alloc_signals(n_pes)?;
    all.as_slice_mut().slice_mut(part(pe)).copy_from_slice(&stream, &mine)?;
    // Parts go round: what came from the left goes on to the right, to its place there. The signal comes behind it.
    let right = Pe((pe + 1) % n_pes);
    for step in 1..n_pes {
        let (goes, comes) = ((pe + n_pes + 1 - step) % n_pes, (pe + n_pes - step) % n_pes);
        let elements = all.symmetric(part(goes));
        ctx.on(&stream).put_signal(elements, elements, came.at(goes), SignalOp::Set(1), right)?;
        // Later work of this stream finds the part here.
        ctx.on(&stream).signal_wait_until(came.at(comes), Comparison::Eq, 1, ())?;
    }
    let by_ring = all.to_vec(&stream)?;

    // The same in one call of the team of all PEs. The barrier sees to it that nobody is still at work in `all`.
    let mut source = ctx.alloc::<u32>(PART)?;
    source.copy_from_slice(&stream, &mine)?;
    all.fill(&stream, 0)?;
    let mut world = ctx.world()?;
    world.on(&stream).barrier()?;
    world.on(&stream).fcollect(&mut all, &source)?;
    let by_team = all.to_vec(&stream)?;

    let expected: Vec<u32> = (0..(n_pes * PART) as u32).collect();
    assert_eq!(by_ring, expected, "PE {pe}: the ring");
    assert_eq!(by_team, expected, "PE {pe}: the collective");
    // What is dropped is freed where all PEs come together; the end is such a place, and says what was not given back.
    drop((all, came, source, world));
    assert!(ctx.close()?.is_empty());
    Ok(())
}
