//! Barriers, fences and quiets: what has arrived after them.

use gpucomm::DeviceBuffer;
use gpucomm::nvshmem::Pe;

use crate::support::random::same;
use crate::support::{Here, with_context};

/// How everybody comes together, with what was put before.
type Together<'a> = (&'static str, Box<dyn Fn() + 'a>);

fn ways<'a>(here: &'a Here<'a>) -> Vec<Together<'a>> {
    let (ctx, stream) = (here.ctx, here.stream);
    vec![
        ("barrier_all", Box::new(|| ctx.barrier_all().unwrap())),
        ("OnStream::barrier_all", Box::new(|| ctx.on(stream).barrier_all().unwrap())),
        (
            "quiet, sync_all",
            Box::new(|| {
                ctx.quiet().unwrap();
                ctx.sync_all().unwrap();
            }),
        ),
        (
            "OnStream::quiet, OnStream::sync_all",
            Box::new(|| {
                ctx.on(stream).quiet().unwrap();
                ctx.on(stream).sync_all().unwrap();
            }),
        ),
        (
            "OnStream::quiet, others' meeting",
            Box::new(|| {
                ctx.on(stream).quiet().unwrap();
                here.settle();
            }),
        ),
    ]
}

/// Puts on a stream, then together, then everybody reads what came.
#[test]
fn what_was_put_has_come() {
    with_context(|here| {
        for (name, together) in ways(here) {
            for round in 0..5u64 {
                let dest = here.ctx.alloc::<u64>(1021 * here.n_pes()).unwrap();
                let value = |from: usize, to: usize| round * 1000 + from as u64 * 10 + to as u64;
                for to in 0..here.n_pes() {
                    let source = DeviceBuffer::from_slice(here.stream, &[value(here.pe(), to); 1021]).unwrap();
                    let slot = dest.symmetric(here.pe() * 1021..(here.pe() + 1) * 1021);
                    here.ctx.on(here.stream).put(slot, &source, Pe(to)).unwrap();
                }
                here.stream.synchronize().unwrap();
                together();
                let want: Vec<u64> = (0..here.n_pes()).flat_map(|from| [value(from, here.pe()); 1021]).collect();
                same(name, &dest.to_vec(here.stream).unwrap(), &want);
                here.settle();
            }
        }
    });
}

/// Nobody is through before all have come.
#[test]
fn nobody_is_through_early() {
    with_context(|here| {
        for late in 0..here.n_pes() {
            for on_stream in [false, true] {
                let came = |what: &str| here.seat.exchange.add(&format!("{late} {on_stream} {what}"), 1).unwrap();
                if here.pe() == late {
                    std::thread::sleep(std::time::Duration::from_millis(60));
                }
                came("before");
                if on_stream {
                    here.ctx.on(here.stream).sync_all().unwrap();
                    here.stream.synchronize().unwrap();
                } else {
                    here.ctx.sync_all().unwrap();
                }
                let there = here.seat.exchange.add(&format!("{late} {on_stream} before"), 0).unwrap();
                assert_eq!(there, here.n_pes() as i64, "through before all had come");
                here.seat.meet();
            }
        }
    });
}

/// They can be called where nothing is under way.
#[test]
fn nothing_to_order() {
    with_context(|here| {
        let (ctx, stream) = (here.ctx, here.stream);
        for _ in 0..20 {
            ctx.fence().unwrap();
            ctx.quiet().unwrap();
            ctx.flush().unwrap();
            ctx.on(stream).quiet().unwrap();
            ctx.on(stream).flush().unwrap();
        }
        here.settle();
    });
}

/// A hundred barriers on two streams in turn: they come in one order.
#[test]
fn barriers_of_two_streams() {
    with_context(|here| {
        let other = gpucomm::Stream::new(here.seat.device).unwrap();
        for round in 0..50 {
            here.ctx.on(if round % 2 == 0 { here.stream } else { &other }).barrier_all().unwrap();
            if round % 7 == 0 {
                here.ctx.barrier_all().unwrap();
            }
        }
        other.synchronize().unwrap();
        here.settle();
    });
}
