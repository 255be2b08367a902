//! What the library would answer by the end of the process is an error before.

use gpucomm::nvshmem::{Pe, Strides};
use gpucomm::{DeviceBuffer, Error};

use crate::support::errors::argument;
use crate::support::with_contexts;

#[test]
fn operands_that_do_not_belong_together() {
    with_contexts(&[1, 2], |here| {
        let (ctx, stream, me) = (here.ctx, here.stream, Pe(here.pe()));
        let target = ctx.alloc::<u32>(8).unwrap();
        let mut local = DeviceBuffer::<u32>::zeroed(stream, 8).unwrap();
        let below = format!("a PE below {}", here.n_pes());
        argument(ctx.put(&target, &local, Pe(here.n_pes())), "Context::put", &below, &here.n_pes().to_string());
        argument(ctx.get(&mut local, &target, Pe(usize::MAX)), "Context::get", &below, "18446744073709551615");
        let short = target.symmetric(1..);
        argument(ctx.put(short, &local, me), "Context::put", "7 elements, as many as dest has", "8");
        argument(ctx.on(stream).get(&mut local, short, me), "OnStream::get", "7 elements", "8");
        let overlap = ctx.put(target.symmetric(..4), target.symmetric(3..7), me);
        argument(overlap, "Context::put", "memory apart", "overlaps");
        argument(ctx.put_value(&target, 1, me), "Context::put_value", "one element", "8");
        let strides = Strides { dest: 0, source: 1 };
        argument(ctx.iput(&target, &local, strides, 2, me), "Context::iput", "1 to", "0");
        let strides = Strides { dest: 2, source: 1 };
        argument(ctx.iput(&target, &local, strides, 5, me), "Context::iput", "at least 5 elements", "8");
        argument(ctx.iget(&mut local, &target, strides, usize::MAX, me), "Context::iget", "at least", "8");
        let odd = ctx.alloc::<[u8; 3]>(1).unwrap();
        argument(ctx.put_value(&odd, [1, 2, 3], me), "Context::put_value", "1, 2, 4 or 8", "3");
        let scoped = ctx.nonblocking(|_| ctx.quiet());
        assert!(matches!(scoped, Err(Error::InvalidUsage { operation: "Context::quiet", .. })), "{scoped:?}");
        ctx.quiet().unwrap();
        here.settle();
    });
}

/// Also where a scope's closure panics, its transfers are done, and the context goes on.
#[test]
fn a_panic_within_a_scope() {
    with_contexts(&[2], |here| {
        let (ctx, stream) = (here.ctx, here.stream);
        let target = ctx.alloc::<u32>(4).unwrap();
        let source = DeviceBuffer::from_slice(stream, &[here.pe() as u32; 4]).unwrap();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            ctx.nonblocking(|scope| -> gpucomm::Result<()> {
                scope.put(&target, &source, here.next(1))?;
                panic!("on purpose");
            })
        }));
        assert!(caught.is_err());
        ctx.barrier_all().unwrap();
        assert_eq!(target.to_vec(stream).unwrap(), [here.before(1) as u32; 4]);
        here.settle();
    });
}

/// The same on a stream: what such a scope has is enqueued at its end, so that nothing of it is there.
#[test]
fn a_panic_within_a_scope_of_a_stream() {
    with_contexts(&[1, 2], |here| {
        let (ctx, stream) = (here.ctx, here.stream);
        let target = ctx.alloc::<u32>(4).unwrap();
        let source = DeviceBuffer::from_slice(stream, &[here.pe() as u32 + 1; 4]).unwrap();
        let put = |panics: bool| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                ctx.on(stream).nonblocking(|scope| -> gpucomm::Result<()> {
                    scope.put(&target, &source, here.next(1))?;
                    if panics {
                        std::panic::resume_unwind(Box::new("on purpose"));
                    }
                    Ok(())
                })
            }))
        };
        assert!(put(true).is_err());
        ctx.on(stream).barrier_all().unwrap();
        assert_eq!(target.to_vec(stream).unwrap(), [0; 4]);
        here.settle();
        put(false).unwrap().unwrap();
        ctx.on(stream).barrier_all().unwrap();
        assert_eq!(target.to_vec(stream).unwrap(), [here.before(1) as u32 + 1; 4]);
        here.settle();
    });
}
