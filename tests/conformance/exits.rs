//! Processes that end in the middle of things: each with the status that it ends with, and soon.

use std::process::exit;
use std::sync::mpsc::channel;
use std::time::Duration;

use gpucomm::{Clique, DeviceBuffer, InPlace, ReduceOp, Stream, UniqueId};

use crate::split::sum;
use crate::support::process::{Role, spawn};
use crate::support::{places, rank_counts, slower, watched};

const CHILD: &str = "exits::child";

/// How a process ends, and its status then.
const WAYS: [(&str, i32); 6] =
    [("exits", 7), ("returns", 0), ("panics", 101), ("exits in a rank", 9), ("exits in a capture", 6), ("aborts", -1)];

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    if let Some((way, _)) = WAYS.into_iter().find(|(way, _)| Role::of_this_process(way).is_some()) {
        end(way);
    }
}

/// A rank waits in NCCL for one that does not come, and a thread for that; another stream has a host function that does not return.
fn end(way: &str) {
    gpucomm::set_default_timeout(Duration::from_secs(3600));
    let devices = &places()[..2];
    let clique: &'static Clique = Box::leak(Box::new(Clique::init_all(devices).unwrap()));
    clique.spmd(|comm| sum(comm, &Stream::new(comm.device())?)).unwrap();
    let (sender, enqueued) = channel();
    std::thread::spawn(move || {
        let comm = clique.rank(0);
        let stream = Stream::new(comm.device()).unwrap();
        let mut x = DeviceBuffer::<f32>::zeroed(&stream, 10).unwrap();
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
        sender.send(()).unwrap();
        let _ = x.to_vec(&stream);
    });
    let stuck = Stream::new(devices[1]).unwrap();
    stuck.launch_host(|| std::thread::sleep(Duration::from_secs(3600))).unwrap();
    enqueued.recv().unwrap();
    println!("in the middle");
    match way {
        "exits" => exit(7),
        "panics" => panic!("in the middle"),
        "exits in a rank" => {
            let ranks = clique.spmd(|comm| match comm.rank() {
                1 => exit(9),
                _ => {
                    std::thread::sleep(Duration::from_secs(3600));
                    Ok(())
                }
            });
            panic!("{ranks:?}");
        }
        "exits in a capture" => {
            let stream = Stream::new(devices[1]).unwrap();
            let mut x = DeviceBuffer::<f32>::zeroed(&stream, 10).unwrap();
            let graph = stream.capture(|stream| {
                x.fill(stream, 1.0)?;
                exit(6)
            });
            panic!("{graph:?}");
        }
        "aborts" => std::process::abort(),
        _ => {}
    }
}

#[test]
fn in_the_middle_of_things() {
    watched(90.0, || {
        for _ in rank_counts(&[2]) {
            let id = UniqueId::new().unwrap();
            let mut all: Vec<_> = WAYS.map(|(way, status)| (spawn(CHILD, way, (0, 1), &id, &[]), status)).into();
            all.iter_mut().for_each(|(child, _)| child.wait_for("in the middle", slower(40.0)));
            for (child, status) in all {
                let end = child.finish(slower(15.0));
                let code = (status >= 0).then_some(status);
                assert_eq!(end.status.code(), code, "{}: {}\n{}", end.what, end.status, end.text);
            }
        }
    });
}
