//! Shrinks that are refused, and those to which somebody does not come.

use std::sync::Barrier;
use std::time::Instant;

use gpucomm::nccl::{Config, InitOptions};
use gpucomm::{Clique, Error, Stream};

use crate::split::{owners, sum};
use crate::support::{Rig, assert_argument, assert_names, places, rank_counts, slower, still_works, watched};

#[test]
fn ranks_that_differ_are_told() {
    watched(60.0, || {
        for ranks in rank_counts(&[3, 4]) {
            owners(ranks, |comm, _| {
                let without = match comm.rank() {
                    0 => return,
                    1 => vec![0],
                    _ => vec![0, 1],
                };
                // Those that would leave out rank 1 may be through before it comes; it is not.
                match comm.shrink(&without) {
                    Ok(_) => assert!(comm.rank() > 1),
                    Err(error) => assert!(!matches!(error, Error::Timeout { .. }), "{error}"),
                }
            });
            still_works(ranks);
        }
    });
}

#[test]
fn who_does_not_come_is_named() {
    watched(60.0, || {
        for ranks in rank_counts(&[3]) {
            let late = Barrier::new(2);
            owners(ranks, |comm, stream| {
                comm.set_timeout(slower(1.0));
                match comm.rank() {
                    0 => {
                        let error = comm.shrink(&[1]).unwrap_err();
                        assert!(matches!(error, Error::Timeout { .. }), "{error}");
                        assert_names(&error, &["rank 2 has not come", "without [1]"]);
                        assert!(comm.is_active(), "nothing has begun");
                        late.wait();
                        comm.set_timeout(slower(20.0));
                        sum(&comm.shrink(&[1]).unwrap(), stream).unwrap();
                    }
                    2 => {
                        late.wait();
                        comm.set_timeout(slower(20.0));
                        sum(&comm.shrink(&[1]).unwrap(), stream).unwrap();
                    }
                    _ => {}
                }
            });
            // One has left.
            owners(ranks, |comm, _| {
                if comm.rank() == 0 {
                    let begin = Instant::now();
                    let error = comm.shrink(&[1]).unwrap_err();
                    assert_names(&error, &["has closed its communicator"]);
                    assert!(begin.elapsed() < slower(10.0));
                }
            });
            still_works(ranks);
        }
    });
}

#[test]
fn lists_that_are_wrong() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let (own, other) = (comm.rank(), 1 - comm.rank());
                let all: [(&[usize], _, _); 5] = [
                    (&[], "at least one rank", "none".to_owned()),
                    (&[own], "other ranks", format!("{own}, this rank")),
                    (&[other, other], "each rank once", format!("rank {other} twice")),
                    (&[2], "a rank below 2", "2".to_owned()),
                    (&[other, 7], "a rank below 2", "7".to_owned()),
                ];
                for (without, expected, got) in all {
                    assert_argument(comm.shrink(without), "shrink", expected, &got);
                }
                sum(comm, stream)
            });
            assert_argument(rig.clique.shrink(&[0, 1]), "Clique::shrink", "fewer than all of the 2 ranks", "[0, 1]");
            rig.close();
            let options = InitOptions::new().with_config(Config::new().with_shrink_share(true));
            let clique = Clique::init_all_with(&places()[..2], &options).unwrap();
            let refused = clique.shrink(&[0]).unwrap_err();
            assert!(matches!(refused, Error::InvalidUsage { .. }), "{refused}");
            // NCCL hands it on to parts.
            let part = clique.split(|_| Some((0, 0))).unwrap();
            let refused = part[&0].shrink(&[0]).unwrap_err();
            assert!(matches!(refused, Error::InvalidUsage { .. }), "{refused}");
            drop(part);
            clique.revoke("to be shrunk").unwrap();
            assert_eq!(clique.shrink(&[0]).unwrap().size(), 1);
            let options = InitOptions::new().with_config(Config::new().with_split_share(true));
            let clique = Clique::init_all_with(&places()[..2], &options).unwrap();
            let refused = clique.revoke("no").unwrap_err();
            assert!(matches!(refused, Error::InvalidUsage { .. }), "{refused}");
            // What is left shares with what comes from it, and nothing else.
            let rest = clique.shrink(&[1]).unwrap();
            drop(clique);
            let part = rest.split(|_| Some((0, 0))).unwrap();
            part[&0].spmd(|comm| sum(comm, &Stream::new(comm.device())?)).unwrap();
        }
    });
}
