//! Communicators that are made of others, and configured otherwise.

use gpucomm::nccl::{CommState, Config, InitOptions};
use gpucomm::{Clique, Error};

use crate::split::{gathered, owners, sum};
use crate::support::random::rng;
use crate::support::{Rig, assert_names, places, rank_counts, slower, watched};

/// `error` is of an argument of this name.
#[track_caller]
fn assert_argument(error: &Error, name: &str) {
    assert!(matches!(error, Error::InvalidArgument { what, .. } if *what == name), "{name}: {error:?}");
}

/// Configurations that change nothing for what is computed.
fn configs() -> [Config; 4] {
    let named = Config::new().with_net_name("Socket").unwrap();
    [
        Config::new(),
        Config::new().with_max_ctas(3),
        Config::new().with_min_ctas(2).with_max_ctas(4),
        named.with_cga_cluster_size(0),
    ]
}

#[test]
fn each_part_has_a_configuration_of_its_own() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let mut rng = rng(&format!("configured parts of {ranks}"));
            let rounds: Vec<(Vec<Option<usize>>, usize)> =
                (0..5).map(|_| ((0..ranks).map(|_| rng.usize(..4).checked_sub(1)).collect(), rng.usize(..4))).collect();
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                for (colors, shift) in &rounds {
                    let color = colors[comm.rank()];
                    let config = &configs()[(color.unwrap_or(0) + shift) % 4];
                    let part = comm.split_with(color, ranks - comm.rank(), config)?;
                    let want: Vec<_> = (0..ranks).rev().filter(|&rank| colors[rank] == color).collect();
                    assert_eq!(part.is_some(), color.is_some());
                    if let Some(part) = part {
                        assert_eq!(gathered(&part, stream, comm.rank())?, want);
                        assert_eq!(part.timeout(), comm.timeout());
                        // What it is configured with, its own parts inherit.
                        let again =
                            part.split_with(Some(0), part.rank(), &Config::new().with_min_ctas(1))?.expect("a part");
                        assert_eq!(gathered(&again, stream, comm.rank())?, want);
                        again.close_timeout(slower(10.0))?;
                        part.close_timeout(slower(10.0))?;
                    }
                    sum(comm, stream)?;
                }
                Ok(())
            });
            // One thread for all.
            let parts = rig.clique.split_with(|rank| Some((rank % 2, rank)), |color| configs()[color + 1].clone());
            let parts = parts.unwrap();
            assert_eq!(parts.len(), ranks.min(2));
            for part in parts.values() {
                let sizes = part.spmd(|comm| sum(comm, &gpucomm::Stream::new(comm.device())?)).unwrap();
                assert_eq!(sizes.len(), part.size());
            }
            drop(parts);
            rig.close();
        }
    });
}

#[test]
fn ranks_of_a_part_want_the_same() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            for case in 0..3 {
                let errors = owners(ranks, |comm, _| {
                    let own = match (case, comm.rank()) {
                        // The last rank of the part.
                        (0, 1) => Config::new().with_max_ctas(5).with_min_ctas(1),
                        (1, 1) => Config::new().with_net_name("IB").unwrap(),
                        (2, 1) => return comm.split(Some(0), 0).map(drop).unwrap_err(),
                        _ => Config::new().with_max_ctas(4),
                    };
                    // The others are in another part, which must not begin either.
                    comm.split_with(Some(comm.rank() / 2), 0, &own).map(drop).unwrap_err()
                });
                for error in &errors {
                    let &Error::Disagreement { rank, peer, .. } = error else { panic!("{error:?}") };
                    assert_eq!((rank, peer), (1, 0));
                    match case {
                        0 => assert_names(
                            error,
                            &["max_ctas 4, min_ctas not set", "min_ctas 1, max_ctas 5", "part of color 0"],
                        ),
                        1 => assert_names(error, &["max_ctas 4, net_name not set", "net_name IB"]),
                        _ => assert_names(error, &["a configuration for", "no configuration for"]),
                    }
                }
            }
        }
    });
}

#[test]
fn what_cannot_be_inherited_is_refused_by_name() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let devices = &places()[..ranks];
            let options = InitOptions::new().with_config(Config::new().with_max_ctas(4));
            let clique = Clique::init_all_with(devices, &options).unwrap();
            clique
                .spmd(|comm| {
                    let refused = |config: &Config| comm.split_with(Some(0), 0, config).unwrap_err();
                    for (config, what) in [
                        (Config::new().with_split_share(true), "split_share"),
                        (Config::new().with_min_ctas(5), "min_ctas"),
                        (Config::new().with_max_ctas(0), "max_ctas"),
                        (Config::new().with_cga_cluster_size(9), "cga_cluster_size"),
                    ] {
                        assert_argument(&refused(&config), what);
                        #[cfg(nccl_ge_2_27)]
                        assert_argument(&comm.shrink_with(&[1 - comm.rank()], &config).unwrap_err(), what);
                    }
                    #[cfg(nccl_ge_2_27)]
                    assert_argument(&refused(&Config::new().with_shrink_share(true)), "shrink_share");
                    // SAFETY: refused before NCCL sees it.
                    let raw = unsafe { Config::new().with_raw(|config| config.blocking = 0) };
                    assert_argument(&refused(&raw), "blocking");
                    // None of it has happened.
                    let config = Config::new().with_max_ctas(8).with_split_share(false);
                    let part = comm.split_with(Some(0), 0, &config)?.expect("a part");
                    sum(&part, &gpucomm::Stream::new(comm.device())?)
                })
                .unwrap();
        }
    });
}

#[test]
fn a_part_goes_on_sharing() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let devices = &places()[..ranks];
            let options = InitOptions::new().with_config(Config::new().with_split_share(true));
            let clique = Clique::init_all_with(devices, &options).unwrap();
            clique
                .spmd(|comm| {
                    let stream = gpucomm::Stream::new(comm.device())?;
                    let error = comm.split_with(Some(0), 0, &Config::new().with_split_share(false)).unwrap_err();
                    assert_argument(&error, "split_share");
                    let part = comm.split_with(Some(0), 0, &Config::new().with_max_ctas(2))?.expect("a part");
                    let again = part.split(Some(0), 0)?.expect("a part");
                    sum(&again, &stream)?;
                    let watch = again.aborter();
                    again.close_timeout(slower(10.0))?;
                    // It shares with what it comes from, and so rests.
                    assert_eq!(watch.state(), Some(CommState::Closing));
                    sum(&part, &stream)
                })
                .unwrap();
        }
    });
}

#[cfg(nccl_ge_2_28_7)]
#[test]
fn those_that_are_left_are_configured_alike() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                if comm.rank() == 0 {
                    return Ok(());
                }
                let rest = comm.shrink_with(&[0], &Config::new().with_max_ctas(2))?;
                assert_eq!(gathered(&rest, stream, comm.rank())?, (1..ranks).collect::<Vec<_>>());
                let again = rest.split(Some(0), 0)?.expect("a part");
                sum(&again, stream)
            });
            let rest = rig.clique.shrink_with(&[ranks - 1], &Config::new().with_max_ctas(2)).unwrap();
            rest.spmd(|comm| sum(comm, &gpucomm::Stream::new(comm.device())?)).unwrap();
            drop(rest);
            rig.close();
            // Of what was revoked: a part, and what is left.
            owners(ranks, |comm, stream| {
                let revoked = comm.revoke("a test").unwrap();
                let part =
                    revoked.split_with(Some(0), comm.rank(), &Config::new().with_max_ctas(3)).unwrap().expect("a part");
                sum(&part, stream).unwrap();
                if comm.rank() > 0 {
                    let rest = revoked.shrink_with(&[0], &Config::new().with_min_ctas(1)).unwrap();
                    assert_eq!(gathered(&rest, stream, comm.rank()).unwrap(), (1..ranks).collect::<Vec<_>>());
                }
            });
        }
        // Who is left differs.
        for ranks in rank_counts(&[3]) {
            for revoke in [false, true] {
                let errors = owners(ranks, |comm, _| {
                    let config = Config::new().with_max_ctas(4 + comm.rank() as i32);
                    if revoke {
                        let revoked = comm.revoke("a test").unwrap();
                        return Some(revoked.split_with(Some(0), 0, &config).map(drop).unwrap_err());
                    }
                    (comm.rank() > 0).then(|| comm.shrink_with(&[0], &config).map(drop).unwrap_err())
                });
                assert_eq!(errors.iter().flatten().count(), if revoke { 3 } else { 2 });
                for error in errors.iter().flatten() {
                    assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
                    assert_names(error, &["a configuration with max_ctas 5"]);
                }
            }
        }
    });
}

/// Each is a communicator of its own, whatever has become of the others of the same ranks.
#[test]
#[cfg(nccl_ge_2_28_7)]
fn the_same_ranks_again_otherwise_configured() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                if comm.rank() == 0 {
                    return Ok(());
                }
                let mut kept = Vec::new();
                for config in configs() {
                    let rest = comm.shrink_with(&[0], &config)?;
                    sum(&rest, stream)?;
                    kept.push(rest);
                }
                kept.push(comm.shrink(&[0])?);
                for rest in &kept {
                    // Others may be faster.
                    for result in [rest.barrier(stream), rest.revoke("the test revokes").map(drop)] {
                        assert!(matches!(result, Ok(()) | Err(Error::Revoked { .. })), "{result:?}");
                    }
                    let next = comm.shrink_with(&[0], &Config::new().with_max_ctas(5))?;
                    sum(&next, stream)?;
                }
                Ok(())
            });
            rig.close();
        }
    });
}
