//! Transfers that the library may send together.

use gpucomm::nvshmem::Pe;
use gpucomm::{DeviceBuffer, Error};

use crate::support::random::same;
use crate::support::{errors, with_context};

/// Small ones, inside of a batch and outside, in one order.
#[test]
fn small_ones_among_others() {
    with_context(|here| {
        let (ctx, stream, pe, n_pes) = (here.ctx, here.stream, here.pe(), here.n_pes());
        let each = here.rng("lengths").usize(1..300);
        let values = |from: usize, to: usize| -> Vec<u32> {
            let mut rng = here.rng_of(&format!("to {to}"), from);
            (0..each).map(|_| rng.u32(..)).collect()
        };
        let dest = ctx.alloc::<u32>(each * n_pes).unwrap();
        let mut got = DeviceBuffer::<u32>::zeroed(stream, each).unwrap();
        let sources: Vec<_> = (0..n_pes).map(|to| DeviceBuffer::from_slice(stream, &values(pe, to)).unwrap()).collect();
        let done: Result<(), Error> = ctx.nonblocking(|scope| {
            for (to, source) in sources.iter().enumerate() {
                // What comes last is not in a batch.
                let last = each - 1;
                scope.batched(|scope| {
                    (0..last).try_for_each(|at| {
                        let place = pe * each + at;
                        scope.put(dest.symmetric(place..=place), source.slice(at..=at), Pe(to))
                    })
                })?;
                let place = pe * each + last;
                scope.put(dest.symmetric(place..=place), source.slice(last..=last), Pe(to))?;
            }
            Ok(())
        });
        done.unwrap();
        ctx.on(stream).barrier_all().unwrap();
        let want: Vec<u32> = (0..n_pes).flat_map(|from| values(from, pe)).collect();
        same("in batches", &dest.to_vec(stream).unwrap(), &want);
        // The other way.
        let peer = here.next(1);
        ctx.nonblocking(|scope| {
            scope.batched(|scope| scope.get(&mut got, dest.symmetric(pe * each..(pe + 1) * each), peer))
        })
        .unwrap();
        same("got in a batch", &got.to_vec(stream).unwrap(), &values(pe, peer.0));
        here.settle();
    });
}

/// There is one at a time, which ends as well where it fails or panics.
#[test]
fn one_at_a_time() {
    with_context(|here| {
        let (ctx, stream) = (here.ctx, here.stream);
        let dest = ctx.alloc::<u8>(3).unwrap();
        let source = DeviceBuffer::from_slice(stream, &[1u8, 2, 3]).unwrap();
        let me = Pe(here.pe());
        ctx.nonblocking(|scope| {
            let nested = scope.batched(|scope| {
                scope.put(dest.symmetric(..1), source.slice(..1), me)?;
                scope.batched(|_| Ok(()))
            });
            assert!(matches!(nested, Err(Error::InvalidUsage { .. })), "{nested:?}");
            let failed = scope.batched(|scope| scope.put(dest.symmetric(..1), source.slice(..2), me));
            errors::argument(failed, "NonblockingScope::put", "1", "2");
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                scope.batched(|scope| -> gpucomm::Result<()> {
                    scope.put(dest.symmetric(1..2), source.slice(1..2), me)?;
                    panic!("within a batch, as it should")
                })
            }));
            assert!(panicked.is_err());
            scope.batched(|scope| scope.put(dest.symmetric(2..), source.slice(2..), me))
        })
        .unwrap();
        same("of all", &dest.to_vec(stream).unwrap(), &[1, 2, 3]);
        here.settle();
    });
}
