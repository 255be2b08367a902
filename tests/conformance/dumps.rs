//! Dumps of the flight recorder: where a thread panics, when a signal comes, while something closes or waits.

use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpucomm::{Backend, DeviceBuffer, Error, InPlace, ReduceOp, nccl};

use crate::support::harness::devices;
use crate::support::process::{Role, spawn};
use crate::support::{Rig, skip, slower, watched_alone};

const CHILD: &str = "dumps::child";

/// A directory for dumps, which goes with this.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("gpucomm-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }

    /// The texts of all dumps that are there.
    fn texts(&self) -> Vec<String> {
        let Ok(files) = fs::read_dir(&self.0) else { return Vec::new() };
        let paths = files.map(|file| file.expect("a file").path());
        paths.filter(|path| is_dump(path)).map(|path| fs::read_to_string(path).expect("a dump")).collect()
    }

    /// Those that there are once there are so many that hold `text`.
    #[cfg(feature = "signals")]
    fn wait_for(&self, count: usize, text: &str) -> Vec<String> {
        let start = Instant::now();
        loop {
            let found: Vec<_> = self.texts().into_iter().filter(|dump| dump.contains(text)).collect();
            if found.len() >= count {
                return found;
            }
            assert!(
                start.elapsed() < slower(10.0),
                "{} of {count} dumps say {text:?}: {:?}",
                found.len(),
                self.texts()
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl AsRef<Path> for Place {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether it is whole, and not what NCCL's RAS service has said.
fn is_dump(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("gpucomm-") && name.ends_with(".json")
}

/// One dump of each rank, all of which say so.
fn all_say(dumps: &[String], ranks: usize, words: &[&str]) {
    assert_eq!(dumps.len(), ranks, "{dumps:?}");
    for (dump, word) in dumps.iter().flat_map(|dump| words.iter().map(move |word| (dump, word))) {
        assert!(dump.contains(word), "{word:?} is not in {dump}");
    }
}

#[test]
fn panics_are_written_down_before_the_hook_that_was_there() {
    watched_alone(60.0, || {
        let (place, called) = (Place::new("panics"), Arc::new(AtomicUsize::new(0)));
        let before = panic::take_hook();
        let (counts, seen) = (Arc::clone(&called), place.0.clone());
        panic::set_hook(Box::new(move |_| {
            // What was written comes first.
            let files = fs::read_dir(&seen).into_iter().flatten().flatten().filter(|file| is_dump(&file.path()));
            counts.fetch_add(1 + 1000 * files.count(), Ordering::Relaxed);
        }));
        nccl::dump_on_panic(place.as_ref()).expect("a hook");
        let ranks = devices();
        let rig = Rig::new(ranks);
        let name = || std::thread::Builder::new().name("a thinker".to_owned());
        let panicked = name().spawn(|| panic!("out of \"ideas\"")).expect("a thread").join();
        assert!(panicked.is_err());
        assert_eq!(called.load(Ordering::Relaxed), 1 + 1000 * ranks);
        all_say(
            &place.texts(),
            ranks,
            &["\"occasion\": \"thread \\\"a thinker\\\" panicked at ", "out of \\\"ideas\\\""],
        );
        rig.close();
        // Nobody is left to be written down; and on a thread that panics there is no hook to be had.
        let again = std::thread::spawn(|| {
            struct Late;
            impl Drop for Late {
                fn drop(&mut self) {
                    let error = nccl::dump_on_panic("nowhere").expect_err("a hook");
                    assert!(matches!(error, Error::InvalidUsage { operation: "dump_on_panic", .. }), "{error:?}");
                    println!("refused");
                }
            }
            let _late = Late;
            panic!("again");
        });
        assert!(again.join().is_err());
        assert_eq!(called.load(Ordering::Relaxed) % 1000, 2);
        panic::set_hook(before);
    });
}

#[test]
#[ignore = "the body of child processes"]
fn child() {
    if let Some(role) = Role::of_this_process("panics") {
        let rig = Rig::new(role.size);
        let run = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            rig.try_run(|comm, stream| {
                assert!(comm.rank() != 1, "rank 1 is fed up");
                let mut x = DeviceBuffer::from_slice(stream, &[1f32; 10])?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                stream.synchronize()
            })
        }));
        assert!(run.is_err());
        println!("finished");
    }
}

/// With the variable, without any hook: the program of one rank panics, and all ranks are written down.
#[test]
fn a_rank_that_panics_has_all_written_down() {
    if devices() < 2 {
        return skip("two ranks: this machine has one device");
    }
    watched_alone(60.0, || {
        let place = Place::new("panicking");
        let id = gpucomm::UniqueId::from_bytes([0; gpucomm::UniqueId::BYTES]);
        let env = [("GPUCOMM_DUMP", place.0.to_str().expect("a path in UTF-8"))];
        let end = spawn(CHILD, "panics", (0, 2), &id, &env).finish(slower(40.0));
        end.assert_success();
        assert!(end.text.contains("finished"), "{}", end.text);
        all_say(&place.texts(), 2, &["rank 1 panicked: rank 1 is fed up", "\"cause_kind\": \"Aborted\""]);
    });
}

/// Somebody asks while a rank closes that waits for another.
#[test]
fn who_closes_can_be_asked() {
    if devices() < 2 {
        return skip("two ranks: this machine has one device");
    }
    watched_alone(60.0, || {
        let place = Place::new("closing");
        let rig = Rig::new(2);
        let stream = gpucomm::Stream::new(rig.clique.rank(0).device()).expect("a stream");
        // NCCL takes some megabytes that nobody receives, and says that they are sent.
        let len = if gpucomm::backend() == Backend::Nvidia { 100 << 20 } else { 10 };
        let x = DeviceBuffer::<f32>::zeroed(&stream, len).expect("a buffer");
        let (mut ranks, late) = (rig.clique.into_ranks().into_iter(), slower(4.0));
        let (first, second) = (ranks.next().expect("rank 0"), ranks.next().expect("rank 1"));
        // Collectives are compared before they are launched; this waits on the device for who receives it.
        first.send(&x, 1, &stream).expect("a message on its way");
        let closes = std::thread::spawn(move || first.close_timeout(late));
        let start = Instant::now();
        std::thread::sleep(Duration::from_millis(300));
        let written = nccl::dump_all(&place).expect("dumps");
        assert!(start.elapsed() < late, "whoever asked has waited for the end of the close");
        let error = closes.join().expect("no panic").expect_err("the message was never received");
        assert!(matches!(error, Error::Timeout { .. } | Error::Disagreement { .. }), "{error:?}");
        assert_eq!(written.len(), 2);
        all_say(&place.texts(), 2, &["\"occasion\": \"asked for\"", "\"schema\": \"gpucomm-dump/1\""]);
        assert!(place.texts().iter().any(|dump| dump.contains(&format!("send of {len} f32"))), "{:?}", place.texts());
        drop(second);
    });
}

/// The others may wait for a rank that has closed its communicator, or aborted it.
#[test]
fn what_has_ended_is_written_down_as_well() {
    watched_alone(60.0, || {
        let (place, ranks) = (Place::new("ended"), devices());
        let rig = Rig::new(ranks);
        rig.run(|comm, stream| {
            let mut x = DeviceBuffer::from_slice(stream, &[1f32; 77])?;
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
            stream.synchronize()
        });
        rig.close();
        nccl::dump_all(&place).expect("dumps");
        let of = |state: &str| {
            let all = place.texts();
            all.into_iter().filter(|dump| dump.contains(&format!("\"state\": \"{state}\""))).collect::<Vec<_>>()
        };
        let closed = of("closed");
        let words = ["all_reduce of 77 f32, sum", "\"occasion\": \"the communicator was closed\"", "\"waits\": null"];
        all_say(&closed, ranks, &words);
        assert!(closed.iter().all(|dump| !dump.contains("\"state\": \"issued\"")), "{closed:?}");
        let rig = Rig::new(ranks);
        let outcome = rig.clique.rank(0).aborter().abort("nobody needs it");
        println!("{outcome:?}");
        nccl::dump_all(&place).expect("dumps");
        assert_eq!(of("closed").len(), ranks);
        assert_eq!(of("aborted").len() + of("aborting").len(), ranks, "{:?}", place.texts());
    });
}

/// From outside, while a rank waits for another; and the program goes on.
#[cfg(feature = "signals")]
#[test]
fn signals_are_answered_by_dumps() {
    use rustix::process::{Signal, getpid, kill_process};

    if devices() < 2 {
        return skip("two ranks: this machine has one device");
    }
    watched_alone(60.0, || {
        let (place, other) = (Place::new("signals"), Place::new("other"));
        nccl::dump_on_signal(None, &place.0).expect("a thread that waits");
        nccl::dump_on_signal(Some(Signal::WINCH.as_raw()), &other.0).expect("a thread that waits");
        let rig = Rig::new(2);
        rig.run(|comm, stream| {
            let mut x = DeviceBuffer::from_slice(stream, &[1f32; 33])?;
            if comm.rank() == 0 {
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                return stream.synchronize();
            }
            // Rank 0 waits for this one.
            std::thread::sleep(Duration::from_millis(200));
            kill_process(getpid(), Signal::USR2).expect("a signal");
            let dumps = place.wait_for(2, "signal SIGUSR2");
            all_say(&dumps, 2, &["\"occasion\": \"signal SIGUSR2\""]);
            assert!(
                dumps.iter().any(|dump| dump.contains("\"waits\": \"rank 0 waits for all_reduce of 33 f32")),
                "{dumps:?}"
            );
            assert_eq!(other.texts(), [""; 0]);
            kill_process(getpid(), Signal::WINCH).expect("a signal");
            other.wait_for(2, "signal SIGWINCH");
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
            assert_eq!(x.to_vec(stream)?, [2.0; 33]);
            // Once more: those that were there are written anew.
            while place.0.exists() {
                // What RAS says may come meanwhile.
                let _ = fs::remove_dir_all(&place.0);
            }
            kill_process(getpid(), Signal::USR2).expect("a signal");
            place.wait_for(2, "signal SIGUSR2");
            Ok(())
        });
        rig.close();
        for (signal, got) in [(9, "SIGKILL"), (11, "SIGSEGV"), (-1, "-1"), (1000, "1000")] {
            let error = nccl::dump_on_signal(Some(signal), &place.0).expect_err("no handler");
            assert!(matches!(error, Error::InvalidArgument { what: "signal", .. }), "{error:?}");
            crate::support::assert_names(&error, &["dump_on_signal", "SIGUSR2", &format!("got {got}")]);
        }
    });
}
