//! What the library would answer by the end of the process.

use gpucomm::nvshmem::Pe;
use gpucomm::{Device, DeviceBuffer, Stream};

use crate::support::{errors, with_context};

#[test]
fn what_cannot_be() {
    with_context(|here| {
        let (ctx, stream) = (here.ctx, here.stream);
        let there = ctx.alloc::<u32>(10).unwrap();
        let mut local = DeviceBuffer::<u32>::zeroed(stream, 9).unwrap();
        let below = format!("a PE below {}", here.n_pes());
        for pe in [here.n_pes(), usize::MAX, 1 << 31] {
            let pe = Pe(pe);
            let part = || there.symmetric(..9);
            errors::argument(ctx.put(part(), &local, pe), "Context::put", &below, "");
            errors::argument(ctx.get(&mut local, part(), pe), "Context::get", &below, "");
            errors::argument(ctx.on(stream).put(part(), &local, pe), "OnStream::put", &below, "");
            errors::argument(ctx.on(stream).get(&mut local, part(), pe), "OnStream::get", &below, "");
            errors::argument(ctx.put_value(there.symmetric(..1), 1, pe), "Context::put_value", &below, "");
            errors::argument(ctx.get_value(there.symmetric(..1), pe), "Context::get_value", &below, "");
            errors::argument(
                ctx.nonblocking(|scope| scope.put(part(), &local, pe)),
                "NonblockingScope::put",
                &below,
                "",
            );
        }
        let pe = here.next(1);
        errors::argument(ctx.put(&there, &local, pe), "Context::put", "10", "9");
        errors::argument(ctx.get(&mut local, &there, pe), "Context::get", "10", "9");
        errors::argument(ctx.on(stream).put(&there, &local, pe), "OnStream::put", "10", "9");
        errors::argument(ctx.put_value(there.symmetric(..2), 1, pe), "Context::put_value", "one element", "2");
        errors::argument(ctx.get_value(there.symmetric(..0), pe), "Context::get_value", "one element", "0");
        // To itself, over itself.
        let me = Pe(here.pe());
        let over = ctx.put(there.symmetric(..6), there.symmetric(4..).local(), me);
        assert!(matches!(over, Err(gpucomm::Error::InvalidArgument { .. })), "{over:?}");
        if let Some(device) = Device::all().unwrap().into_iter().find(|device| *device != here.seat.device) {
            let other = Stream::new(device).unwrap();
            let wrong = ctx.on(&other).put(there.symmetric(..9), &local, pe);
            errors::argument(wrong, "OnStream::put", "the device of this PE", "");
        }
        here.settle();
    });
}
