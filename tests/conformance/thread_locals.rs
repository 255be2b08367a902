//! Calls in destructors of thread-locals, when those of the crate are gone already, or not yet.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};

use gpucomm::exchange::{Exchange, Threads};
use gpucomm::nccl::InitOptions;
use gpucomm::{Backend, Clique, Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, UniqueId};

use crate::support::process::{Role, spawn};
use crate::support::{places, rank_counts, slower, still_works, watched};

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

/// A clique of which rank 0 waits for the others.
fn waiting(ranks: usize) -> Clique {
    let clique = Clique::init_all(&places()[..ranks]).unwrap();
    // All have met once.
    clique.spmd(|comm| comm.all_reduce_scalar(1u32, ReduceOp::Sum, &Stream::new(comm.device())?)).unwrap();
    clique.ranks().iter().for_each(|comm| comm.set_timeout(slower(0.5)));
    let stream = Stream::new(places()[0]).unwrap();
    let mut x = DeviceBuffer::<f32>::zeroed(&stream, 4).unwrap();
    clique.rank(0).all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
    clique
}

/// What lets go of something, as the thread ends.
fn farewells(ranks: usize) -> Vec<Box<dyn FnOnce()>> {
    let (dropped, aborted, closed, parted) = (waiting(ranks), waiting(ranks), waiting(ranks), waiting(ranks));
    let stream = Stream::new(places()[0]).unwrap();
    let mut x = DeviceBuffer::<i32>::zeroed(&stream, 10).unwrap();
    let graph = stream.capture(|stream| x.fill(stream, 1)).unwrap();
    let id = UniqueId::new().unwrap();
    // SAFETY: the other rank never comes.
    let pending = unsafe { Communicator::begin_rank(places()[0], 2, &id, 0, &InitOptions::default()) }.unwrap();
    let exchange = Exchange::join(Threads::new(1).store(0).unwrap()).unwrap();
    vec![
        Box::new(move || drop(dropped)),
        Box::new(move || drop(aborted.abort("the thread ends"))),
        Box::new(move || drop(closed.close_timeout(slower(0.5)))),
        Box::new(move || drop(parted.into_ranks())),
        Box::new(move || drop((graph, x))),
        Box::new(move || drop(pending)),
        Box::new(move || drop(exchange)),
        Box::new(move || stream.launch_host(|| ()).unwrap()),
    ]
}

#[test]
fn what_a_thread_keeps_goes_with_it() {
    watched(100.0, || {
        for ranks in rank_counts(&[2]) {
            for crate_first in [true, false] {
                let (tell, told) = channel();
                let ending = std::thread::spawn(move || {
                    if crate_first {
                        everything(ranks).unwrap();
                    } else {
                        LAST.with_borrow_mut(|all| all.0 = Some(Box::new(|| ())));
                    }
                    let all = farewells(ranks);
                    let last = Box::new(move || {
                        all.into_iter().for_each(|farewell| farewell());
                        drop(tell.send(()));
                    });
                    LAST.with_borrow_mut(|all| all.0 = Some(last));
                });
                told.recv_timeout(slower(60.0)).expect("no panic");
                ending.join().unwrap();
                still_works(ranks);
            }
        }
    });
}

/// What the process still has when it exits.
static KEPT: Mutex<Option<(Clique, Stream, DeviceBuffer<u32>)>> = Mutex::new(None);

extern "C" fn at_exit() {
    let (clique, stream, x) = KEPT.lock().unwrap().take().unwrap();
    // CUDA may have ended: all of it may be an error.
    println!("copied: {:?}", x.to_vec(&stream).map(|x| x.len()));
    let sums = clique.spmd(|comm| comm.all_reduce_scalar(1u32, ReduceOp::Sum, &Stream::new(comm.device())?));
    println!("summed: {sums:?}");
    println!("split: {:?}", clique.split(|rank| Some((0, rank))).map(|parts| parts.len()));
    println!("another: {:?}", Clique::init_all(&places()[..1]).map(|clique| clique.size()));
    drop((clique, stream, x));
    println!("went");
}

#[test]
#[ignore = "the body of a child process"]
fn child() {
    if Role::of_this_process("exits").is_some() {
        let stream = Stream::new(places()[0]).unwrap();
        let clique = Clique::init_all(&places()[..2]).unwrap();
        let x = DeviceBuffer::from_slice(&stream, &[1u32; 100]).unwrap();
        *KEPT.lock().unwrap() = Some((clique, stream, x));
        // SAFETY: a function of the program, which does not unwind: a panic in it ends the process.
        assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
        std::process::exit(0);
    }
}

#[test]
fn a_process_that_exits_uses_everything() {
    watched(100.0, || {
        if !rank_counts(&[2]).is_empty() {
            let end =
                spawn("thread_locals::child", "exits", (0, 1), &UniqueId::new().unwrap(), &[]).finish(slower(80.0));
            end.assert_success();
            assert!(end.text.contains("went"), "{}", end.text);
            if gpucomm::backend() == Backend::Emulator {
                assert!(end.text.contains("summed: Ok([2, 2])"), "{}", end.text);
            }
        }
    });
}
