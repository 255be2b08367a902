//! Children by `fork` of a process that has used CUDA: CUDA does not work there, and what a child calls says so. It does not hang, and the
//! parent goes on.

use std::io::{PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;

use gpucomm::{Clique, Device, DeviceBuffer, InPlace, PinnedBuffer, ReduceOp, Result, Stream, UniqueId};

use crate::support::{places, rank_counts, slower, still_works, watched};

/// What the parent has.
struct Work {
    clique: Clique,
    streams: Vec<Stream>,
    buffers: Vec<DeviceBuffer<u32>>,
    _pinned: PinnedBuffer<u32>,
}

impl Work {
    fn begin(ranks: usize) -> Self {
        let devices = &places()[..ranks];
        let clique = Clique::init_all(devices).unwrap();
        let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device).unwrap()).collect();
        let buffers = streams.iter().map(|stream| DeviceBuffer::from_slice(stream, &[5; 100]).unwrap()).collect();
        Self { clique, streams, buffers, _pinned: PinnedBuffer::zeroed(100).unwrap() }
    }

    fn step(&self) -> Result<Vec<u32>> {
        self.clique.spmd(|comm| comm.all_reduce_scalar(1u32, ReduceOp::Sum, &self.streams[comm.rank()]))
    }
}

/// What a child does with what the parent has.
type Act = fn(Work) -> Result<()>;

/// What says that it is a child.
const REFUSED: [(&str, Act); 9] = [
    ("a program", |work| work.step().map(drop)),
    ("an operation", |mut work| {
        work.clique.rank(0).all_reduce(InPlace(&mut work.buffers[0]), ReduceOp::Sum, &work.streams[0])
    }),
    ("to_vec", |work| work.buffers[0].to_vec(&work.streams[0]).map(drop)),
    ("a buffer", |work| DeviceBuffer::from_slice(&work.streams[0], &[1u8; 3]).map(drop)),
    ("pinned memory", |_| PinnedBuffer::<u8>::zeroed(1 << 20).map(drop)),
    ("a stream", |work| Stream::new(work.streams[0].device()).map(drop)),
    ("synchronize", |work| work.streams[0].synchronize()),
    ("a clique", |work| Clique::init_all(&[work.streams[0].device()]).map(drop)),
    ("devices", |_| Device::all().map(drop)),
];

/// What ends in a child, be it well or not.
const ENDS: [(&str, Act); 6] = [
    ("drops", |work| {
        drop(work);
        Ok(())
    }),
    ("the drop of a clique", |work| {
        drop(work.clique);
        Ok(())
    }),
    ("a close", |work| work.clique.close_timeout(slower(2.0))),
    ("an abort", |work| {
        let _ = work.clique.abort("in a child");
        Ok(())
    }),
    ("the end of the process", |_| std::process::exit(0)),
    ("an id", |_| UniqueId::new().map(drop)),
];

/// Forks, has the child do this with a copy of `work`, and returns what that has come to. Panics if that takes long.
fn in_child(what: &str, work: &Work, act: Act) -> String {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    // SAFETY: the C library makes its allocator usable in a child, and the child runs code that takes no lock which another thread of
    // this process holds at the moment, other than what is tested: that this does not hang. It ends without running anything else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: a copy of what the parent has, which the child, in memory of its own, has to itself. The parent's stays.
        let copy = unsafe { std::ptr::read(work) };
        answer(&mut writer, copy, act);
        // SAFETY: ends this process at once.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0, "{}", std::io::Error::last_os_error());
    drop(writer);
    let (sender, said) = channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = reader.read_to_string(&mut text);
        let _ = sender.send(text);
    });
    let text = said.recv_timeout(slower(10.0));
    // SAFETY: a child that nobody else waits for.
    unsafe {
        if text.is_err() {
            libc::kill(child, libc::SIGKILL);
        }
        assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
    }
    text.unwrap_or_else(|_| panic!("{what}: the child hangs"))
}

fn answer(writer: &mut PipeWriter, work: Work, act: Act) {
    let text = match catch_unwind(AssertUnwindSafe(|| act(work))) {
        Ok(Ok(())) => "done".to_owned(),
        Ok(Err(error)) => format!("{error} {error:?}"),
        Err(_) => "a panic".to_owned(),
    };
    let _ = writer.write_all(text.as_bytes());
}

fn goes_on(work: &Work) {
    let ranks = work.clique.size();
    assert_eq!(work.step().unwrap(), vec![ranks as u32; ranks]);
    for (buffer, stream) in work.buffers.iter().zip(&work.streams) {
        assert_eq!(buffer.to_vec(stream).unwrap(), [5; 100]);
    }
}

#[test]
fn what_a_child_calls_says_fork() {
    watched(90.0, || {
        for ranks in rank_counts(&[2]) {
            let work = Work::begin(ranks);
            goes_on(&work);
            for (what, act) in REFUSED {
                let text = in_child(what, &work, act);
                assert!(text.contains("fork"), "{what}: {text}");
                goes_on(&work);
            }
            work.clique.close_timeout(slower(10.0)).unwrap();
            still_works(ranks);
        }
    });
}

#[test]
fn what_ends_in_a_child_does_not_hang() {
    watched(120.0, || {
        for ranks in rank_counts(&[2]) {
            let work = Work::begin(ranks);
            goes_on(&work);
            for (what, act) in ENDS {
                let text = in_child(what, &work, act);
                println!("{what}: {text}");
                assert!(["", "done"].contains(&text.as_str()) || text.contains("fork"), "{what}: {text}");
                goes_on(&work);
            }
            work.clique.close_timeout(slower(10.0)).unwrap();
            still_works(ranks);
        }
    });
}
