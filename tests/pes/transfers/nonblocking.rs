//! Transfers that go on while others begin.

use gpucomm::DeviceBuffer;
use gpucomm::nvshmem::Pe;

use crate::support::random::same;
use crate::support::with_context;

/// Many at a time, of random lengths, to all PEs.
#[test]
fn many_in_one_scope() {
    with_context(|here| {
        let (pe, n_pes, stream) = (here.pe(), here.n_pes(), here.stream);
        for on_stream in [false, true] {
            let lengths: Vec<usize> = (0..40).map(|_| here.rng("lengths").usize(..500)).collect();
            let total: usize = lengths.iter().sum();
            let values = |from: usize, to: usize| -> Vec<u16> {
                let mut rng = here.rng_of(&format!("{on_stream} to {to}"), from);
                (0..total).map(|_| rng.u16(..)).collect()
            };
            let dest = here.ctx.alloc::<u16>(total * n_pes).unwrap();
            let sources: Vec<_> =
                (0..n_pes).map(|to| DeviceBuffer::from_slice(stream, &values(pe, to)).unwrap()).collect();
            let mut ranges = Vec::new();
            let mut at = 0;
            for len in &lengths {
                ranges.push(at..at + len);
                at += len;
            }
            let place = |range: &std::ops::Range<usize>| range.start + pe * total..range.end + pe * total;
            if on_stream {
                here.ctx
                    .on(stream)
                    .nonblocking(|scope| {
                        for (to, source) in sources.iter().enumerate() {
                            for range in &ranges {
                                scope.put(dest.symmetric(place(range)), source.slice(range.clone()), Pe(to))?;
                            }
                        }
                        Ok(())
                    })
                    .unwrap();
            } else {
                here.ctx
                    .nonblocking(|scope| {
                        for (to, source) in sources.iter().enumerate() {
                            for range in &ranges {
                                scope.put(dest.symmetric(place(range)), source.slice(range.clone()), Pe(to))?;
                            }
                            scope.fence()?;
                        }
                        Ok(())
                    })
                    .unwrap();
            }
            here.ctx.on(stream).barrier_all().unwrap();
            let want: Vec<u16> = (0..n_pes).flat_map(|from| values(from, pe)).collect();
            same("of many", &dest.to_vec(stream).unwrap(), &want);
            here.settle();
        }
    });
}

/// A scope that ends with an error, or by a panic, leaves nothing under way.
#[test]
fn scopes_that_end_early() {
    with_context(|here| {
        let stream = here.stream;
        let dest = here.ctx.alloc::<u8>(1000).unwrap();
        for round in 0..3u8 {
            let source = DeviceBuffer::from_slice(stream, &[round + 1; 1000]).unwrap();
            let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                here.ctx.nonblocking(|scope| {
                    scope.put(&dest, &source, here.next(1))?;
                    match round {
                        0 => Ok(()),
                        1 => scope.put(&dest, source.slice(..5), here.next(1)),
                        _ => std::panic::resume_unwind(Box::new("on purpose")),
                    }
                })
            }));
            drop(source);
            assert_eq!(ended.is_err(), round == 2);
            assert_eq!(ended.is_ok_and(|result| result.is_ok()), round == 0);
            here.ctx.on(stream).barrier_all().unwrap();
            same("what had begun", &dest.to_vec(stream).unwrap(), &[round + 1; 1000]);
            here.settle();
        }
    });
}
