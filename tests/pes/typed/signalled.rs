//! Puts with a signal.

use std::ffi::{c_int, c_void};

use gpucomm::nvshmem::{SignalOp, SymmetricBuffer};
use gpucomm::sys;

use super::{counts, drawn, each_size, of_sizes, of_types, over, symbol};
use crate::support::random::{Bits, same};
use crate::support::{Here, with_contexts};

type Call = unsafe extern "C" fn(*mut c_void, *const c_void, usize, *mut u64, u64, c_int, c_int, *mut c_void);

const LEN: usize = 37;

fn compare<const N: usize>(here: &Here<'_>, names: &[&str]) {
    let (ctx, stream, to) = (here.ctx, here.stream, here.next(1));
    let bytes = |buffer: &SymmetricBuffer<'_, [u8; N]>| buffer.to_vec(stream).unwrap().concat();
    let alloc = || ctx.alloc::<[u8; N]>(LEN + 3).unwrap();
    let (mut source, mut raw, mut own) = (alloc(), alloc(), alloc());
    let (mut word, signals) = (ctx.alloc::<u64>(1).unwrap(), ctx.alloc_signals(1).unwrap());
    let mut sum = 0;
    for (at, name) in names.iter().enumerate() {
        source.copy_from_slice(stream, &drawn::<N>(here, name, here.pe(), LEN + 3)).unwrap();
        raw.fill(stream, [u8::poison(); N]).unwrap();
        own.fill(stream, [u8::poison(); N]).unwrap();
        here.settle();
        let value = 10 + at as u64;
        let (op, code) = match at % 2 {
            0 => (SignalOp::Set(value), sys::NVSHMEM_SIGNAL_SET),
            _ => (SignalOp::Add(value), sys::NVSHMEM_SIGNAL_ADD),
        };
        sum = if at % 2 == 0 { value } else { sum + value };
        {
            let _current = here.seat.device.set_current().unwrap();
            let (pe, stream) = (to.0 as c_int, stream.as_raw().cast());
            // SAFETY: the header declares it so; all of it is symmetric memory, with room for so many elements and a word, which nobody else uses.
            unsafe {
                let function = std::mem::transmute::<*mut c_void, Call>(symbol(name));
                function(raw.as_raw(), source.as_raw(), LEN, word.as_raw().cast(), value, code, pe, stream);
            }
        }
        let (dest, from) = (own.symmetric(..LEN), source.symmetric(..LEN).local());
        match name.contains("_nbi") {
            true => ctx.on(stream).nonblocking(|scope| scope.put_signal(dest, from, signals.at(0), op, to)),
            false => ctx.on(stream).put_signal(dest, from, signals.at(0), op, to),
        }
        .unwrap();
        over(here);
        let arrived = bytes(&raw);
        same(name, &arrived, &bytes(&own));
        let expected = &drawn::<N>(here, name, here.before(1), LEN).concat();
        same(name, &arrived[..LEN * N], expected);
        assert_eq!((word.to_vec(stream).unwrap()[0], ctx.signal_fetch(signals.at(0)).unwrap()), (sum, sum), "{name}");
        here.settle();
    }
    word.fill(stream, 0).unwrap();
    here.settle();
}

#[test]
fn of_types_and_sizes() {
    with_contexts(counts(), |here| {
        let types = ["nvshmemx_TYPE_put_signal_on_stream", "nvshmemx_TYPE_put_signal_nbi_on_stream"];
        each_size!(of_types(&types), compare(here));
        let sizes = ["nvshmemx_putSIZE_signal_on_stream", "nvshmemx_putSIZE_signal_nbi_on_stream"];
        each_size!(of_sizes(&sizes), compare(here));
    });
}
