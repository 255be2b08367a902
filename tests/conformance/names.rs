//! Names of communicators: which name each child has, and where names are told.

use std::sync::Mutex;

#[cfg(nccl_ge_2_29)]
use gpucomm::nccl::Invitation;
use gpucomm::nccl::{self, AbortOutcome, Config, InitOptions};
use gpucomm::{Clique, Communicator, DeviceBuffer, Error, ErrorKind, InPlace, ReduceOp, Stream, UniqueId, Version};

#[cfg(nccl_ge_2_29)]
use crate::grow;
use crate::support::newer::since;
use crate::support::{assert_argument, assert_names, places, rank_counts, slower, watched};

fn named(ranks: usize, name: &str) -> Clique {
    let options = InitOptions::new().with_name(name).unwrap();
    Clique::init_all_with(&places()[..ranks], &options).unwrap()
}

fn config(name: &str) -> Config {
    Config::new().with_name(name).unwrap()
}

/// All ranks of a clique have its name.
fn assert_called(clique: &Clique, name: &str) {
    assert_eq!(clique.name(), name);
    for comm in clique.ranks() {
        assert_eq!(comm.name(), name);
        assert!(format!("{comm:?}").contains(&format!("name: {name:?}")), "{comm:?}");
    }
}

#[test]
fn a_name_is_given_or_the_default() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            assert_called(&Clique::init_all(&places()[..ranks]).unwrap(), "world");
            assert_called(&named(ranks, "tp"), "tp");
            let options = InitOptions::new().with_config(config("of the configuration"));
            assert_called(&Clique::init_all_with(&places()[..ranks], &options).unwrap(), "of the configuration");
            let both = options.with_name("of the options").unwrap();
            assert_called(&Clique::init_all_with(&places()[..ranks], &both).unwrap(), "of the options");
        }
    });
}

#[test]
fn wrong_names_are_refused() {
    for (name, got) in [("", "0 bytes"), ("a\nb", "'\\n' in"), ("\u{7f}", "in"), (&"ü".repeat(65), "130 bytes")] {
        assert_argument(InitOptions::new().with_name(name).map(drop), "InitOptions::with_name", "", got);
        assert_argument(Config::new().with_name(name).map(drop), "Config::with_name", "", got);
    }
}

#[test]
fn parts_say_how_they_were_made() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let clique = named(ranks, "all of them");
            let parts = clique.split(|rank| Some((3 + rank % 2, rank))).unwrap();
            assert_eq!(parts.keys().copied().collect::<Vec<_>>(), [3, 4]);
            for (color, part) in &parts {
                let name = format!("all of them/split(color={color})");
                assert_called(part, &name);
                let again = part.split(|rank| Some((0, rank))).unwrap();
                assert_called(&again[&0], &format!("{name}/split(color=0)"));
            }
            let given = clique.split_with(|rank| Some((rank % 2, rank)), |color| config(["tp", "pp"][color])).unwrap();
            given.iter().for_each(|(color, part)| assert_called(part, ["tp", "pp"][*color]));
            // A name is not inherited.
            let of_given = given[&0].split_with(|rank| Some((1, rank)), |_| Config::new()).unwrap();
            assert_called(&of_given[&1], "tp/split(color=1)");
            // In threads.
            clique
                .spmd(|comm| {
                    let part = comm.split(Some(7), comm.rank())?.expect("a part");
                    assert_eq!(part.name(), "all of them/split(color=7)");
                    let part = comm.split_with(Some(7), 0, &config("ep"))?.expect("a part");
                    assert_eq!(part.name(), "ep");
                    Ok(())
                })
                .unwrap();
        }
    });
}

#[cfg(nccl_ge_2_27)]
#[test]
fn what_is_left_says_how_it_was_made() {
    since(Version::new(2, 28, 7), 90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let clique = named(ranks, "dp");
            assert_called(&clique.shrink(&[0]).unwrap(), "dp/shrink");
            assert_called(&clique.shrink_with(&[0], &config("rest")).unwrap(), "rest");
            assert_called(
                &clique.shrink(&[0]).unwrap().split(|_| Some((0, 0))).unwrap()[&0],
                "dp/shrink/split(color=0)",
            );
            let (recovered, _) = named(ranks, "dp").recover(&[1]).unwrap();
            assert_called(&recovered, "dp/recover");
        }
    });
}

#[cfg(nccl_ge_2_28_7)]
#[test]
fn parts_of_what_was_revoked_say_how_they_were_made() {
    since(Version::new(2, 28, 7), 90.0, || {
        for ranks in rank_counts(&[2]) {
            let clique = named(ranks, "dp");
            clique.revoke("a test").unwrap();
            let names = Mutex::new(Vec::new());
            std::thread::scope(|scope| {
                for comm in clique.ranks() {
                    let names = &names;
                    scope.spawn(move || {
                        let revoked = comm.revoked().expect("it was revoked");
                        let part = revoked.split(Some(5), comm.rank()).unwrap().expect("a part");
                        let given =
                            revoked.split_with(Some(5), comm.rank(), &config("given")).unwrap().expect("a part");
                        names.lock().unwrap().extend([part.name().to_owned(), given.name().to_owned()]);
                    });
                }
            });
            let mut names = names.into_inner().unwrap();
            names.sort_unstable();
            assert_eq!(names, ["dp/split(color=5)", "dp/split(color=5)", "given", "given"]);
            assert_called(&clique.shrink(&[0]).unwrap(), "dp/shrink");
        }
    });
}

#[cfg(nccl_ge_2_29)]
#[test]
fn new_ranks_have_the_name_of_those_that_invited_them() {
    since(grow::FIRST, 90.0, || {
        for ranks in rank_counts(&[2]) {
            let clique = named(ranks - 1, "few");
            assert_called(&clique.grow(&places()[ranks - 1..ranks]).unwrap(), "few/grow");
            let (id, devices) = (UniqueId::new().unwrap(), places());
            let options = InitOptions::new().with_name("größer").unwrap().with_timeout(slower(20.0));
            // SAFETY: the only rank.
            let first = unsafe { Communicator::init_rank_with(devices[0], 1, &id, 0, &options) }.unwrap();
            for (given, expected) in [(None, "größer/grow"), (Some("mine"), "mine")] {
                let invitation = first.invite(1).unwrap().pop().expect("one");
                let bytes = invitation.into_bytes().unwrap();
                let (grown, joined) = std::thread::scope(|scope| {
                    let device = devices[1];
                    let joins = scope.spawn(move || {
                        let options = InitOptions::new().with_timeout(slower(20.0));
                        let options = given.map_or(options.clone(), |name| options.with_name(name).unwrap());
                        // SAFETY: both ranks do nothing with it.
                        unsafe { Communicator::join(device, Invitation::from_bytes(bytes), &options) }
                    });
                    (first.grow(1).unwrap(), joins.join().unwrap().unwrap())
                });
                assert_eq!((grown.name(), joined.name()), ("größer/grow", expected));
            }
        }
    });
}

/// Ranks do not compare their names.
#[test]
fn each_rank_has_a_name_of_its_own() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let id = UniqueId::new().unwrap();
            std::thread::scope(|scope| {
                for (rank, device) in places().into_iter().take(ranks).enumerate() {
                    scope.spawn(move || {
                        let name = format!("that of rank {rank}");
                        let options = InitOptions::new().with_name(&name).unwrap();
                        // SAFETY: all ranks do the same.
                        let comm = unsafe { Communicator::init_rank_with(device, ranks, &id, rank, &options) }.unwrap();
                        let stream = Stream::new(device).unwrap();
                        let mut x = DeviceBuffer::from_slice(&stream, &[1u32; 3]).unwrap();
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
                        assert_eq!(x.to_vec(&stream).unwrap(), [ranks as u32; 3]);
                        assert_eq!(comm.name(), name);
                        let part = comm.split(Some(0), rank).unwrap().expect("a part");
                        assert_eq!(part.name(), format!("{name}/split(color=0)"));
                    });
                }
            });
        }
    });
}

/// What is too long keeps its beginning and its end.
#[test]
fn names_of_deep_parts_stay_short() {
    watched(60.0, || {
        let name = "n".repeat(128);
        let mut all = vec![named(1, &name)];
        for color in 0..5 {
            let clique =
                all.last().expect("the first").split(|_| Some((color, 0))).unwrap().remove(&color).expect("a part");
            let shown = clique.name();
            assert!(shown.len() <= 128 && shown.starts_with(&"n".repeat(40)), "{shown}");
            assert!(
                shown.ends_with(&format!("n/split(color={color})"))
                    || shown.ends_with(&format!(")/split(color={color})")),
                "{shown}"
            );
            assert_eq!(shown.matches('…').count(), 1, "{shown}");
            all.push(clique);
        }
    });
}

#[test]
fn errors_name_both_communicators() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let (one, two) = (named(ranks, "tp"), named(ranks, "it's a \"world\""));
            one.spmd(|comm| {
                let stream = Stream::new(comm.device())?;
                let other = two.rank(comm.rank());
                let mut x = other.alloc_from(&stream, &[1.0f32; 8])?;
                let refused = comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream);
                let got = "a buffer of communicator \"it's a \\\"world\\\"\"; allocate it from \"tp\", or use a DeviceBuffer, which works \
                           with any communicator";
                assert_argument(refused, "all_reduce", "memory of communicator \"tp\"", got);
                let factor = other.pre_mul_sum(2.0f32)?;
                let mut y = DeviceBuffer::from_slice(&stream, &[1.0f32; 8])?;
                let refused = comm.all_reduce(InPlace(&mut y), &factor, &stream);
                let got = "one of communicator \"it's a \\\"world\\\"\"";
                assert_argument(refused, "all_reduce", "a PreMulSum of communicator \"tp\"", got);
                Ok(())
            })
            .unwrap();
        }
    });
}

/// Each rank of a clique has pre-multiplied sums of its own.
#[test]
fn errors_name_both_ranks() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let clique = named(ranks, "tp");
            let factor = clique.rank(0).pre_mul_sum(2.0f32).unwrap();
            let stream = Stream::new(clique.rank(1).device()).unwrap();
            let mut x = DeviceBuffer::from_slice(&stream, &[1.0f32; 8]).unwrap();
            let refused = clique.rank(1).all_reduce(InPlace(&mut x), &factor, &stream);
            let expected = "a PreMulSum of rank 1 of communicator \"tp\"";
            assert_argument(refused, "all_reduce", expected, "one of its rank 0");
        }
    });
}

/// The error of a call on a communicator that takes none.
fn refused(comm: &Communicator) -> Error {
    comm.barrier(&Stream::new(comm.device()).unwrap()).expect_err("it is not active")
}

/// Errors about the end of a communicator, in its own process and in its parts.
#[test]
fn errors_about_an_end_have_the_name() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let clique = named(ranks, "tp");
            let parts = clique.split(|rank| Some((0, rank))).unwrap();
            assert_eq!(parts[&0].rank(1).aborter().abort("the test aborts"), AbortOutcome::Done);
            let ended = parts[&0].rank(0).async_error().expect_err("it has ended");
            assert_eq!((ended.kind(), ended.rank()), (ErrorKind::Aborted, Some(1)), "{ended:?}");
            assert_names(&ended, &["communicator \"tp/split(color=0)\" was aborted: the test aborts"]);
            // A rank that fails ends all of them, and the error says which one it was.
            let failed = clique.spmd(|comm| match comm.rank() {
                0 => Err(Error::Unsupported { operation: "step", needs: "more".into() }),
                _ => Stream::new(comm.device()).map(drop),
            });
            assert_names(&failed.expect_err("a rank has failed"), &["step: not supported: needs more", "of rank 0"]);
            let ended = clique.rank(1).async_error().expect_err("it has ended");
            assert_eq!(ended.rank(), Some(0), "{ended:?}");
            assert_names(&ended, &["communicator \"tp\" was aborted: rank 0 returned an error: step"]);
            let late = refused(clique.rank(1));
            assert_names(&late, &["barrier: communicator \"tp\" was aborted: rank 0 returned"]);
            // The default name says nothing.
            let clique = Clique::init_all(&places()[..ranks]).unwrap();
            assert_eq!(clique.rank(0).aborter().abort("the test aborts"), AbortOutcome::Done);
            let ended = clique.rank(1).async_error().expect_err("it has ended");
            assert_names(&ended, &["the communicator was aborted: the test aborts"]);
        }
    });
}

#[test]
fn errors_of_waits_have_the_name() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let clique = named(ranks, "tp");
            let reduce = |comm: &Communicator, stream: &Stream| {
                let mut x = DeviceBuffer::from_slice(stream, &[1i32; 5])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                Ok(x)
            };
            // Ranks meet before the first one.
            clique.spmd(|comm| reduce(comm, &Stream::new(comm.device())?).map(drop)).unwrap();
            let comm = clique.rank(0);
            comm.set_timeout(slower(0.3));
            let stream = Stream::new(comm.device()).unwrap();
            let x = reduce(comm, &stream).unwrap();
            let late = comm.split(None, 0).expect_err("the other rank does not come");
            assert_names(&late, &["rank 0 of \"tp\" has work in flight"]);
            let late = stream.synchronize_timeout(slower(0.3)).expect_err("the other rank does not come");
            assert_eq!((late.kind(), late.rank(), late.peer()), (ErrorKind::Timeout, Some(0), Some(1)), "{late:?}");
            assert_names(&late, &["rank 0 of \"tp\" waits for all_reduce of 5 i32"]);
            drop(x);

            let clique = named(ranks, "dp");
            let differs = clique.spmd(|comm| {
                let stream = Stream::new(comm.device())?;
                let mut x = DeviceBuffer::<i32>::zeroed(&stream, 5 + comm.rank())?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
                x.to_vec(&stream)
            });
            assert_names(&differs.expect_err("ranks disagree"), &["disagrees", "(ranks of \"dp\")"]);
        }
    });
}

/// Revoked and suspended communicators say which they are.
#[cfg(nccl_ge_2_29_7)]
#[test]
fn errors_about_a_revoked_one_have_the_name() {
    since(Version::new(2, 29, 7), 60.0, || {
        for ranks in rank_counts(&[2]) {
            let clique = named(ranks, "tp");
            clique.suspend(nccl::Suspend::MEMORY, "the test suspends").unwrap();
            let late = refused(clique.rank(0));
            assert_names(&late, &["communicator \"tp\" is suspended: the test suspends"]);
            let clique = named(ranks, "dp");
            clique.rank(0).revoke("the test revokes").unwrap();
            let late = refused(clique.rank(1));
            assert_eq!((late.kind(), late.rank()), (ErrorKind::Revoked, Some(0)), "{late:?}");
            assert_names(&late, &["communicator \"dp\" was revoked: the test revokes"]);
        }
    });
}

#[test]
fn dumps_have_the_name() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let clique = named(ranks, "größe \"1\"");
            let parts = clique.split(|rank| Some((0, rank))).unwrap();
            for comm in clique.ranks() {
                let text = comm.dump().to_string();
                assert!(text.contains("\"name\": \"größe \\\"1\\\"\", \"part\": null"), "{text}");
            }
            let text = parts[&0].rank(1).dump().to_string();
            assert!(text.contains("\"name\": \"größe \\\"1\\\"/split(color=0)\", \"part\": \"of color 0\""), "{text}");
            let directory = std::env::temp_dir().join(format!("gpucomm-names-{}", std::process::id()));
            let files = nccl::dump_all(&directory).unwrap();
            let named =
                files.iter().filter(|file| std::fs::read_to_string(file).unwrap().contains("\"name\": \"größe"));
            assert_eq!(named.count(), 2 * ranks);
            std::fs::remove_dir_all(directory).unwrap();
        }
    });
}

/// NCCL gets the name, where the version has a place for it.
#[cfg(nccl_ge_2_27)]
#[test]
fn nccl_gets_the_name() {
    watched(60.0, || {
        let seen = std::sync::Arc::new(Mutex::new(Vec::new()));
        let look = {
            let seen = std::sync::Arc::clone(&seen);
            move |raw: &mut gpucomm::sys::ncclConfig_t| {
                // SAFETY: a text that lives as long as the configuration.
                let name = (!raw.commName.is_null()).then(|| unsafe { std::ffi::CStr::from_ptr(raw.commName) });
                seen.lock().unwrap().push(name.map(|name| name.to_str().unwrap().to_owned()));
            }
        };
        let last = || seen.lock().unwrap().last().cloned().flatten();
        // SAFETY: it changes nothing.
        let config = unsafe { Config::new().with_raw(look) };
        let options = InitOptions::new().with_config(config.clone());
        let clique = Clique::init_all_with(&places()[..1], &options.clone().with_name("größe").unwrap()).unwrap();
        assert_eq!(last().as_deref(), Some("größe"));
        let parts = clique.split_with(|_| Some((2, 0)), |_| config.clone()).unwrap();
        assert_eq!(parts[&2].name(), "größe/split(color=2)");
        assert_eq!(last().as_deref(), Some("größe/split(color=2)"));
        let _given = clique.split_with(|_| Some((2, 0)), |_| config.clone().with_name("tp").unwrap()).unwrap();
        assert_eq!(last().as_deref(), Some("tp"));
        let _default = Clique::init_all_with(&places()[..1], &options).unwrap();
        assert_eq!(last().as_deref(), Some("world"));
    });
}
