//! Two nodes of two PEs each, as only the emulator has them here: what is far, and what is there all the same.

use gpucomm::nvshmem::{Comparison, Pe, SignalOp, Strides, TeamPe};
use gpucomm::{Backend, DeviceBuffer, Error, ReduceOp, Result, Stream};

use crate::support::random::same;
use crate::support::{Here, as_pes_of, errors};

const NODE: usize = 2;
const LEN: usize = 1021;

/// Runs `body` on four PEs, two on each node, and ends the context.
fn on_nodes<F: Fn(&Here<'_>)>(body: F) {
    as_pes_of::<F>(&[2 * NODE], &[("GPUCOMM_EMULATOR_NODE", "2")], |seat| {
        if gpucomm::backend() != Backend::Emulator {
            return;
        }
        let ctx = seat.start().unwrap();
        let stream = Stream::new(seat.device).unwrap();
        body(&Here { seat, ctx: &ctx, stream: &stream });
        assert!(ctx.close().unwrap().is_empty());
    });
}

/// The PE of the other node with the same number there.
fn across(here: &Here<'_>) -> Pe {
    here.next(NODE)
}

fn values(here: &Here<'_>, pe: usize, len: usize) -> Vec<u32> {
    let mut rng = here.rng_of("across", pe);
    (0..len).map(|_| rng.u32(..)).collect()
}

/// Members, by their numbers among all.
fn members(team: &gpucomm::nvshmem::Team<'_>) -> Vec<usize> {
    (0..team.n_pes()).map(|at| team.world_pe(TeamPe(at)).unwrap().0).collect()
}

#[test]
fn who_is_near() {
    on_nodes(|here| {
        let (ctx, pe) = (here.ctx, here.pe());
        let buffer = ctx.alloc::<u32>(LEN).unwrap();
        for other in ctx.pes() {
            let near = other.0 / NODE == pe / NODE;
            assert_eq!(ctx.is_near(other).unwrap(), near);
            assert_eq!(buffer.peer(other).unwrap().is_some(), near, "{other}");
            assert_eq!(buffer.symmetric(3..7).peer(other).unwrap().is_some(), near, "{other}");
        }
        let node: Vec<usize> = (0..4).filter(|other| other / NODE == pe / NODE).collect();
        let same: Vec<usize> = (0..4).filter(|other| other % NODE == pe % NODE).collect();
        assert_eq!(members(&ctx.world().unwrap()), [0, 1, 2, 3]);
        for team in [ctx.node().unwrap(), ctx.shared().unwrap()] {
            assert_eq!((members(&team), team.pe()), (node.clone(), TeamPe(pe % NODE)), "{team:?}");
        }
        let team = ctx.same_pe_of_node().unwrap();
        assert_eq!((members(&team), team.pe()), (same, TeamPe(pe / NODE)));
        here.settle();
    });
}

/// What the library would end the process for is an error before.
#[test]
fn what_does_not_go_over_a_network() {
    on_nodes(|here| {
        let (ctx, stream, far) = (here.ctx, here.stream, across(here));
        let buffer = ctx.alloc::<u32>(8).unwrap();
        let mut local = DeviceBuffer::<u32>::zeroed(stream, 8).unwrap();
        let one = buffer.symmetric(..1);
        let strides = Strides { dest: 1, source: 2 };
        let unsupported = |result: Result<()>, operation: &str| {
            let error = result.expect_err(operation);
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            errors::names(&error, &[operation, &format!("memory of PE {}", far.0)]);
        };
        unsupported(ctx.get_value(one, far).map(drop), "Context::get_value");
        unsupported(ctx.on(stream).put_value(one, 3, far), "OnStream::put_value");
        unsupported(ctx.iput(&buffer, &local, strides, 3, far), "Context::iput");
        unsupported(ctx.on(stream).iput(&buffer, &local, strides, 3, far), "OnStream::iput");
        unsupported(ctx.iget(&mut local, &buffer, strides, 3, far), "Context::iget");
        unsupported(ctx.on(stream).iget(&mut local, &buffer, strides, 3, far), "OnStream::iget");
        // Memory that the network does not know.
        errors::argument(ctx.put(&buffer, &local, far), "Context::put", "registered", "");
        errors::argument(ctx.get(&mut local, &buffer, far), "Context::get", "registered", "");
        // All of it goes to the neighbour.
        let near = Pe(here.pe() ^ 1);
        ctx.put_value(one, 1, near).unwrap();
        ctx.barrier_all().unwrap();
        assert_eq!(ctx.get_value(one, near).unwrap(), 1);
        ctx.iput(&buffer, &local, strides, 3, near).unwrap();
        ctx.put(&buffer, &local, near).unwrap();
        ctx.barrier_all().unwrap();
        here.settle();
    });
}

/// Puts, gets and signals from registered and from symmetric memory.
#[test]
fn what_does() {
    on_nodes(|here| {
        let (ctx, stream, far) = (here.ctx, here.stream, across(here));
        let mut source = ctx.alloc::<u32>(LEN).unwrap();
        source.copy_from_slice(stream, &values(here, here.pe(), LEN)).unwrap();
        let mut target = ctx.alloc::<u32>(LEN).unwrap();
        let signals = ctx.alloc_signals(1).unwrap();
        let registered =
            ctx.register(DeviceBuffer::from_slice(stream, &values(here, here.pe(), LEN)).unwrap()).unwrap();
        let mut sent = 0;
        for round in 0..6 {
            target.fill(stream, 0).unwrap();
            here.settle();
            let (from, signal, op) = (source.as_symmetric().local(), signals.at(0), SignalOp::Add(1));
            sent += u64::from(round > 1);
            match round {
                0 => ctx.put(&target, from, far),
                1 => ctx.on(stream).put(&target, registered.as_slice(), far),
                2 => ctx.put_signal(&target, registered.as_slice(), signal, op, far),
                3 => ctx.on(stream).put_signal(&target, from, signal, op, far),
                4 => ctx.nonblocking(|scope| scope.put_signal(&target, from, signal, op, far)),
                _ => ctx.on(stream).nonblocking(|scope| scope.put_signal(&target, from, signal, op, far)),
            }
            .unwrap();
            if round > 1 {
                let mut arrives = target.as_slice_mut();
                ctx.on(stream).signal_wait_until(signal, Comparison::Ge, sent, &mut arrives).unwrap();
            } else {
                ctx.on(stream).barrier_all().unwrap();
            }
            same("over the network", &target.to_vec(stream).unwrap(), &values(here, far.0, LEN));
            here.settle();
        }
        let mut got = ctx.alloc::<u32>(LEN).unwrap();
        ctx.get(got.as_slice_mut(), &source, far).unwrap();
        same("got over the network", &got.to_vec(stream).unwrap(), &values(here, far.0, LEN));
        // All have got theirs, which is written to now.
        here.settle();
        ctx.put_value(got.symmetric(..1), 7, far).unwrap();
        ctx.barrier_all().unwrap();
        assert_eq!(got.symmetric(..1).local().to_vec(stream).unwrap(), [7]);
        drop(registered);
        here.settle();
    });
}

/// Among all, and on each node, and between them.
#[test]
fn collectives_on_and_between_nodes() {
    on_nodes(|here| {
        let (ctx, stream) = (here.ctx, here.stream);
        let mut source = ctx.alloc::<u32>(4 * LEN).unwrap();
        source.copy_from_slice(stream, &values(here, here.pe(), 4 * LEN)).unwrap();
        let mut dest = ctx.alloc::<u32>(4 * LEN).unwrap();
        here.settle();
        for mut team in [ctx.world(), ctx.node(), ctx.same_pe_of_node()].map(Result::unwrap) {
            let (all, n) = (members(&team), team.n_pes());
            let given: Vec<Vec<u32>> = all.iter().map(|pe| values(here, *pe, 4 * LEN)).collect();
            let part = source.symmetric(..LEN);
            team.on(stream).reduce(dest.symmetric_mut(..LEN), part, ReduceOp::Sum).unwrap();
            let sums: Vec<u32> =
                (0..LEN).map(|at| given.iter().fold(0, |sum: u32, one| sum.wrapping_add(one[at]))).collect();
            same("sums", &dest.to_vec(stream).unwrap()[..LEN], &sums);
            here.settle();
            team.broadcast(dest.symmetric_mut(..LEN), part, TeamPe(n - 1)).unwrap();
            same("from the last", &dest.to_vec(stream).unwrap()[..LEN], &given[n - 1][..LEN]);
            here.settle();
            team.fcollect(dest.symmetric_mut(..n * LEN), part).unwrap();
            let gathered: Vec<u32> = given.iter().flat_map(|one| one[..LEN].to_vec()).collect();
            same("gathered", &dest.to_vec(stream).unwrap()[..n * LEN], &gathered);
            here.settle();
            let (to, from) = (dest.symmetric_mut(..n * LEN), source.symmetric(..n * LEN));
            team.on(stream).alltoall(to, from).unwrap();
            let me = team.pe().0;
            let exchanged: Vec<u32> = given.iter().flat_map(|one| one[me * LEN..(me + 1) * LEN].to_vec()).collect();
            same("exchanged", &dest.to_vec(stream).unwrap()[..n * LEN], &exchanged);
            team.barrier().unwrap();
            here.settle();
        }
    });
}
