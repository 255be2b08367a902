//! What is told by the crate `tracing`, to a subscriber of this test.

use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpucomm::nccl::{AbortOutcome, InitOptions};
use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Result, Stream, group};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What was told, a line each: the level, the name of a span, and all fields.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether the subscriber panics over each event.
static PANICS: AtomicBool = AtomicBool::new(false);

struct Listener;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}

fn tell(line: Line) {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).push(line.0);
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "gpucomm"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(format!("{} span {}", span.metadata().level(), span.metadata().name()));
        span.record(&mut line);
        tell(line);
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        assert!(!PANICS.load(Ordering::Relaxed), "whoever listens panics");
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        tell(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// How many lines were told that hold all of `parts`.
fn told(parts: &[&str]) -> usize {
    let all = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    all.iter().filter(|line| parts.iter().all(|part| line.contains(part))).count()
}

fn work(clique: &Clique) -> Result<()> {
    clique.spmd(|comm| {
        let stream = Stream::new(comm.device())?;
        let mut x = DeviceBuffer::from_slice(&stream, &[1.0f32; 7])?;
        let mut y = DeviceBuffer::from_slice(&stream, &[1u16; 5])?;
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
        group(|g| {
            g.all_reduce(comm, InPlace(&mut x), ReduceOp::Max, &stream)?;
            g.broadcast(comm, InPlace(&mut y), 0, &stream)
        })?;
        let graph = stream.capture(|stream| comm.all_reduce(InPlace(&mut x), ReduceOp::Min, stream))?;
        graph.launch(&stream)?;
        stream.synchronize()?;
        x.to_vec(&stream).map(drop)
    })?;
    Ok(())
}

#[test]
fn operations_waits_and_ends_are_told() -> Result<()> {
    tracing::subscriber::set_global_default(Listener).expect("there is no other");
    let devices = Device::all()?;
    let size = devices.len();
    let clique = Clique::init_all_with(&devices, &InitOptions::new().with_name("tp")?)?;
    assert_eq!(told(&["DEBUG", "communicator made", "name=\"tp\"", &format!("size={size}")]), size);
    work(&clique)?;
    // Each rank tells of each of its operations once.
    for what in [
        "what=\"all_reduce of 7 f32, sum\"",
        "what=\"all_reduce of 7 f32, max\"",
        "what=\"broadcast of 5 u16 of 2 bytes, root 0\"",
        "what=\"all_reduce of 7 f32, min\"",
        "operation=\"Graph::launch\"",
    ] {
        assert_eq!(told(&["TRACE", "enqueued", what]), size, "{what}");
        for rank in 0..size {
            assert_eq!(told(&["enqueued", what, " name=\"tp\" ", &format!(" rank={rank} ")]), 1, "{what}, rank {rank}");
        }
    }
    assert_eq!(told(&["enqueued", "element=\"f32\"", "count=7", "captured=true"]), size);
    assert_eq!(told(&["captured=true"]), size);
    assert!(told(&["TRACE span wait", "operation=\"Stream::synchronize\"", "device=0"]) > 0);
    assert_eq!(told(&["TRACE span wait", "operation=\"Slice::to_vec\"", "device=0"]), 1);
    clique.close_timeout(Duration::from_secs(20))?;
    assert_eq!((told(&["DEBUG", "communicator ended", "name=\"tp\""]), told(&["WARN"])), (size, 0));

    let clique = Clique::init_all(&devices[..1])?;
    let _ = clique.abort("the test wants it");
    assert_eq!(told(&["WARN", "communicator aborted", "name=\"world\"", "size=1", "the test wants it"]), 1);
    // Who panics over what is told ends nothing.
    let clique = Clique::init_all(&devices)?;
    PANICS.store(true, Ordering::Relaxed);
    panics(clique)
}

/// Who is told panics: the operation is done, and the abort goes on.
fn panics(clique: Clique) -> Result<()> {
    let streams: Vec<_> = clique.ranks().iter().map(|rank| Stream::new(rank.device())).collect::<Result<_>>()?;
    let buffers = streams.iter().map(|stream| DeviceBuffer::from_slice(stream, &[1.0f32; 7]));
    let mut buffers = buffers.collect::<Result<Vec<_>>>()?;
    group(|g| {
        let ranks = clique.ranks().iter().zip(&mut buffers).zip(&streams);
        ranks.into_iter().try_for_each(|((rank, x), stream)| g.all_reduce(rank, InPlace(x), ReduceOp::Sum, stream))
    })?;
    for (x, stream) in buffers.iter().zip(&streams) {
        assert_eq!(x.to_vec(stream)?, [clique.size() as f32; 7]);
    }
    assert_eq!(clique.abort("the test wants it"), AbortOutcome::Done);
    Ok(())
}
