//! Recovery: a rank hangs, a watchdog aborts, and a new clique on the same devices carries on.
//!
//! An `Aborter` may be cloned and used from any thread. After an abort every waiting rank gets an error instead of
//! waiting for ever, and nobody gets numbers that were never reduced. The devices and the streams are as good as before;
//! only the communicators are gone, and new ones are made.
//!
//! Without a GPU: `cargo run --example recovery --features emulator`.

use std::thread;
use std::time::{Duration, Instant};

use gpucomm::{Clique, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream};

/// What every rank does. The last one is `delay` late.
fn step(comm: &Communicator, stream: &Stream, delay: Duration) -> Result<Vec<i32>> {
    let mut x = DeviceBuffer::from_slice(stream, &[1; 256])?;
    if comm.rank() + 1 == comm.size() {
        thread::sleep(delay);
    }
    comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
    // An abort ends what is in flight, wherever it was: this returns an error then, and no numbers.
    x.to_vec(stream)
}

fn main() -> Result<()> {
    let mut devices = Device::all()?;
    devices.truncate(4);
    let streams = devices.iter().map(|device| Stream::new(*device)).collect::<Result<Vec<_>>>()?;

    let clique = Clique::init_all(&devices)?;
    let aborters: Vec<_> = clique.ranks().iter().map(Communicator::aborter).collect();
    let watchdog = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        for aborter in &aborters {
            let outcome = aborter.abort("no progress for 300 ms");
            println!("the watchdog aborts a rank: {outcome:?}");
        }
    });
    let start = Instant::now();
    let failed = clique.spmd(|comm| step(comm, &streams[comm.rank()], Duration::from_secs(2)));
    watchdog.join().expect("the watchdog does not panic");
    match failed {
        Err(Error::Aborted { reason, .. }) => println!("aborted after {:.1?}: {reason}", start.elapsed()),
        other => panic!("expected an abort, got {other:?}"),
    }
    // Dropping an aborted clique waits for nobody.
    drop(clique);

    let clique = Clique::init_all(&devices)?;
    let sums = clique.spmd(|comm| step(comm, &streams[comm.rank()], Duration::ZERO))?;
    let expected = [clique.size() as i32; 256];
    assert!(sums.iter().all(|sum| sum == &expected));
    println!("a new clique of {} ranks works on the same devices and streams", clique.size());
    Ok(())
}
