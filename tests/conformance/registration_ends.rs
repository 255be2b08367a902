//! How registrations end, and the communicators that have some.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use gpucomm::nccl::{AbortOutcome, Registration};
use gpucomm::{Communicator, InPlace, ReduceOp, Stream};

use crate::failures::abort;
use crate::registration::{has_effect, large, mapped};
use crate::support::{Rig, rank_counts, slower, still_works, watched};

/// Ranks drop theirs at different points: it stays until all have.
#[test]
fn a_registration_stays_until_all_have_dropped_it() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = comm.alloc_local::<u32>(stream, 1000)?;
                let mut registered = Some(comm.register(&x)?);
                for round in 0..2 {
                    if comm.rank() % 2 == round {
                        registered = None;
                    }
                    for _ in 0..2 {
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
                        comm.reclaim()?;
                    }
                }
                drop(registered);
                comm.register(&x).map(drop)
            });
            rig.close();
        }
    });
}

#[derive(Debug, Clone, Copy)]
enum End {
    Close,
    Drop,
    Abort,
    AbortInUse,
    Forget,
}

/// Communicators end in any way while memory is registered, and used.
#[test]
fn communicators_end_while_memory_is_registered() {
    watched(200.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            for end in [End::Close, End::Drop, End::Abort, End::AbortInUse, End::Forget] {
                let (rig, meeting) = (Rig::new(ranks), Barrier::new(ranks));
                let freed = Arc::new(AtomicUsize::new(0));
                let _ = rig.try_run(|comm, stream| {
                    let mut x = comm.alloc_local::<u32>(stream, large() / 4)?;
                    let mut y = mapped(comm, (0, large()), &freed)?;
                    let mut z = comm.alloc_local::<u32>(stream, large() / 4)?;
                    let registered = [comm.register(&x)?, comm.register(&y)?, comm.register(&z)?];
                    // In rings NCCL makes use of what is registered out of place only.
                    comm.all_reduce((&x, &mut z), ReduceOp::Sum, stream)?;
                    comm.all_reduce(InPlace(&mut y), ReduceOp::Max, stream)?;
                    match end {
                        End::Close | End::Drop => drop(registered),
                        End::Abort | End::AbortInUse | End::Forget => std::mem::forget(registered),
                    }
                    stream.synchronize()?;
                    meeting.wait();
                    if matches!(end, End::AbortInUse) && comm.rank() == 0 && ranks > 1 {
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                    }
                    meeting.wait();
                    if matches!(end, End::Abort | End::AbortInUse) && comm.rank() == 0 {
                        abort(comm);
                    }
                    Ok(())
                });
                match end {
                    End::Drop => drop(rig),
                    End::Abort | End::AbortInUse => {
                        let outcome = rig.clique.abort("again");
                        assert!(matches!(outcome, AbortOutcome::Already | AbortOutcome::Done), "{outcome:?}");
                    }
                    End::Close | End::Forget => rig.close(),
                }
                let mut patience = 0;
                while freed.load(Ordering::SeqCst) < ranks && patience < 500 {
                    std::thread::sleep(slower(0.01));
                    patience += 1;
                }
                assert_eq!(freed.load(Ordering::SeqCst), ranks, "owners that went, {end:?}");
                still_works(ranks);
            }
        }
    });
}

/// A registration in one struct with its communicator.
struct Owned {
    registered: Registration<'static>,
    comm: Arc<Communicator>,
}

#[test]
fn a_registration_may_own_its_communicator() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let ranks = Rig::new(ranks).clique.into_ranks();
            std::thread::scope(|scope| {
                for comm in ranks {
                    scope.spawn(move || {
                        let comm = Arc::new(comm);
                        let stream = Stream::new(comm.device()).unwrap();
                        let x = comm.alloc_local::<u32>(&stream, 10).unwrap();
                        let registered = comm.register(&x).unwrap().into_shared(&comm).unwrap();
                        drop(x);
                        let owned = Owned { registered, comm };
                        assert_eq!(owned.registered.without_effect().is_none(), has_effect());
                        owned.comm.reclaim().unwrap();
                        drop(owned);
                    });
                }
            });
        }
    });
}
