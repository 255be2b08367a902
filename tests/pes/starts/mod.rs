//! Ways to start, beside a unique id that is sent.

mod attach;
mod attributes;
mod environment;
mod launchers;
mod mpirun;
mod session;

use gpucomm::Stream;
use gpucomm::nvshmem::{Context, Pe};

use crate::support::{Seat, random};

/// Puts to the next PE, so that it shows that they have found each other, each under its number; and ends the context.
fn works(seat: &Seat, ctx: Context) {
    assert_eq!((ctx.pe(), ctx.n_pes()), (Pe(seat.pe), seat.n_pes));
    let stream = Stream::new(ctx.device()).unwrap();
    let values = |pe: usize| -> Vec<u64> {
        let mut rng = random::rng(&format!("values of {pe}"));
        (0..1021).map(|_| rng.u64(..)).collect()
    };
    let mut source = ctx.alloc::<u64>(1021).unwrap();
    let target = ctx.alloc::<u64>(1021).unwrap();
    source.copy_from_slice(&stream, &values(seat.pe)).unwrap();
    ctx.on(&stream).put(&target, &source, Pe((seat.pe + 1) % seat.n_pes)).unwrap();
    ctx.on(&stream).barrier_all().unwrap();
    assert_eq!(target.to_vec(&stream).unwrap(), values((seat.pe + seat.n_pes - 1) % seat.n_pes));
    drop((source, target));
    assert!(ctx.close().unwrap().is_empty());
}
