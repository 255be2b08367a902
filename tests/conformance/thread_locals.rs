//! Calls in destructors of thread-locals, when those of the crate are gone already, or not yet.

use std::cell::RefCell;
use std::sync::mpsc::{Sender, channel};

use gpucomm::{Clique, DeviceBuffer, InPlace, ReduceOp, Result, Stream};

use crate::support::{places, rank_counts, slower, watched};

/// Runs what it holds when the thread-local goes.
struct Last(Option<Box<dyn FnOnce()>>);

impl Drop for Last {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(|last| last());
    }
}

thread_local! {
    static LAST: RefCell<Last> = const { RefCell::new(Last(None)) };
}

/// A clique from its start to its end, and a part of it.
fn everything(ranks: usize) -> Result<()> {
    let clique = Clique::init_all(&places()[..ranks])?;
    let sums = clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let mut x = comm.alloc_from(&stream, &[comm.rank() as u32 + 1; 100])?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
        x.to_vec(&stream)
    })?;
    assert_eq!(sums, vec![vec![(ranks * (ranks + 1) / 2) as u32; 100]; ranks]);
    drop(clique.split(|rank| Some((0, rank)))?);
    let stream = Stream::new(places()[0])?;
    let mut x = DeviceBuffer::<u8>::zeroed(&stream, 10)?;
    let graph = stream.capture(|stream| x.fill(stream, 4))?;
    graph.launch(&stream)?;
    assert_eq!(x.to_vec(&stream)?, [4; 10]);
    // One that fails, which is told as everywhere.
    let failed = clique.spmd(|comm| comm.alloc::<u8>(&Stream::new(comm.device())?, usize::MAX).map(drop));
    assert!(failed.is_err());
    drop(clique);
    Ok(())
}

#[test]
fn a_thread_that_ends_uses_everything() {
    watched(100.0, || {
        for ranks in rank_counts(&[1, 2]) {
            // The destructors of a thread run in an order that depends on who came first.
            for crate_first in [true, false] {
                let (tell, told): (Sender<Result<()>>, _) = channel();
                let ending = std::thread::spawn(move || {
                    if crate_first {
                        everything(ranks).unwrap();
                    }
                    let last = Box::new(move || drop(tell.send(everything(ranks))));
                    LAST.with_borrow_mut(|all| all.0 = Some(last));
                    if !crate_first {
                        everything(ranks).unwrap();
                    }
                });
                told.recv_timeout(slower(60.0)).expect("no panic").unwrap();
                ending.join().unwrap();
            }
        }
    });
}
