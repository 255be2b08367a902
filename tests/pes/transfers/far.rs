//! PEs that are reached by a transport that does nothing for the host: what the host puts and gets goes by a stream.

use gpucomm::nvshmem::Pe;
use gpucomm::{Backend, Stream};

use crate::support::as_pes_with;

#[test]
fn what_the_host_puts_and_gets() {
    if gpucomm::backend() != Backend::Emulator {
        return;
    }
    let environment = [("GPUCOMM_EMULATOR_NODE", "1"), ("NVSHMEM_IB_ENABLE_IBGDA", "1")];
    as_pes_with(&[2, 3], &environment, |seat| {
        let ctx = seat.start().unwrap();
        let stream = Stream::new(seat.device).unwrap();
        let (next, before) = (Pe((seat.pe + 1) % seat.n_pes), (seat.pe + seat.n_pes - 1) % seat.n_pes);
        assert!(!ctx.is_near(next).unwrap());
        let own = ctx.alloc_uninit::<u32>(6).unwrap();
        let mut own = own;
        own.fill(&stream, 10 + seat.pe as u32).unwrap();
        let mut there = ctx.alloc::<u32>(6).unwrap();
        let mut got = ctx.alloc::<u32>(6).unwrap();
        ctx.put(there.symmetric(..2), own.symmetric(..2).local(), next).unwrap();
        ctx.put_value(there.symmetric(2..3), 77 + seat.pe as u32, next).unwrap();
        ctx.nonblocking(|scope| {
            scope.put(there.symmetric(3..5), own.symmetric(..2).local(), next)?;
            scope.fence()?;
            scope.put(there.symmetric(5..), own.symmetric(5..).local(), next)
        })
        .unwrap();
        stream.synchronize().unwrap();
        ctx.barrier_all().unwrap();
        let (of, value) = (10 + before as u32, 77 + before as u32);
        assert_eq!(there.to_vec(&stream).unwrap(), [of, of, value, of, of, of]);
        ctx.get(got.symmetric_mut(..3).into_local(), own.symmetric(..3), next).unwrap();
        ctx.nonblocking(|scope| scope.get(got.symmetric_mut(3..).into_local(), own.symmetric(3..), next)).unwrap();
        assert_eq!(got.to_vec(&stream).unwrap(), [10 + next.0 as u32; 6]);
        there.fill(&stream, 0).unwrap();
        stream.synchronize().unwrap();
        ctx.barrier_all().unwrap();
        drop((own, there, got));
        assert!(ctx.close().unwrap().is_empty());
    });
}
