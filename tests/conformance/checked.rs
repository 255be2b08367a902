//! Checked communicators: ranks in several processes that compare what they do.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gpucomm::exchange::{Directory, Exchange, TcpPlace};
use gpucomm::nccl::{Config, InitOptions};
use gpucomm::{Communicator, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, group};

#[cfg(nccl_ge_2_28_7)]
use crate::checked_made;
use crate::checked_starts::{ASKED, Way, by_way};
use crate::processes::use_all;
use crate::support::process::{Child, Finished, Role, all_succeed, spawn};
use crate::support::{rank_counts, slower, watched};
use crate::{checked_ends, checked_starts};

const CHILD: &str = "checked::child";

/// Where the ranks meet, in their environment: a directory, or an address.
const PLACE: &str = "GPUCOMM_TEST_PLACE";
/// What one of them does otherwise.
pub const CASE: &str = "GPUCOMM_TEST_CASE";

/// How long calls may take: far longer than it takes to be told.
pub const PATIENT: f64 = 40.0;

#[test]
#[ignore = "the body of child processes"]
fn child() {
    gpucomm::set_default_timeout(slower(PATIENT));
    let roles: &[(&str, fn(Role))] = &[
        ("alike", alike),
        ("one differs", one_differs),
        ("one is missing", checked_ends::one_is_missing),
        ("one is not checked", checked_ends::one_is_not_checked),
        ("one aborts", checked_ends::one_aborts),
        ("one dies behind a message", checked_ends::one_dies_behind_a_message),
        ("one dies on another stream", checked_ends::one_dies_on_another_stream),
        ("others go on", checked_ends::others_go_on),
        ("a dead one is sent to", checked_ends::a_dead_one_is_sent_to),
        ("one is short", checked_ends::one_is_short),
        ("by an id", checked_ends::not_over_an_exchange),
        #[cfg(nccl_ge_2_28_7)]
        ("one differs, made", checked_made::one_differs),
        #[cfg(nccl_ge_2_28_7)]
        ("alike, made", checked_made::alike),
        #[cfg(nccl_ge_2_28_7)]
        ("one dies, made", checked_made::one_dies),
        ("recovers", checked_starts::recovers),
        ("one aborts, stores fail", checked_starts::one_aborts),
        ("one has no threads", checked_starts::one_has_no_threads),
        ("one starts late", checked_starts::one_starts_late),
        ("stores go bad", checked_starts::stores_go_bad),
    ];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role);
        }
    }
}

/// The processes of a role.
pub struct Job {
    path: PathBuf,
    pub children: Vec<Child>,
}

impl Job {
    pub fn start(role: &str, size: usize, place: &str, env: &[(&str, &str)]) -> Self {
        let path = std::env::temp_dir().join(format!("gpucomm-checked-{}-{:x}", std::process::id(), fastrand::u64(..)));
        let place = if place.is_empty() { path.to_str().unwrap() } else { place };
        let id = UniqueId::new().unwrap();
        let all = [env, &[(PLACE, place)]].concat();
        let children = (0..size).map(|rank| spawn(CHILD, role, (rank, size), &id, &all)).collect();
        Self { path, children }
    }

    pub fn succeed(mut self) {
        all_succeed(std::mem::take(&mut self.children), slower(90.0));
    }

    pub fn ends(mut self) -> Vec<Finished> {
        self.children.drain(..).map(|child| child.finish(slower(60.0))).collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.children.clear();
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Where the ranks of this one meet.
pub fn place() -> String {
    std::env::var(PLACE).unwrap()
}

pub fn exchange(role: &Role) -> Exchange {
    let place = place();
    match place.strip_prefix("tcp ") {
        Some(address) => Exchange::join(TcpPlace::new(address).store(role.rank, role.size).unwrap()).unwrap(),
        None => Exchange::join(Directory::open(place, role.rank, role.size).unwrap()).unwrap(),
    }
}

pub fn begin(role: &Role, exchange: &Exchange, checked: bool) -> Result<Communicator> {
    let options = InitOptions::new().with_checked(checked);
    // SAFETY: where ranks differ they are checked, and nothing of it comes to the others.
    unsafe { Communicator::init_rank_over(role.device()?, exchange, &options) }
}

/// All that there is, where nobody differs; then parts, which are checked as well.
fn alike(role: Role) {
    let exchange = exchange(&role);
    let comm = begin(&role, &exchange, false).unwrap();
    let (rank, stream) = (comm.rank(), &Stream::new(comm.device()).unwrap());
    use_all(&comm, stream).unwrap();
    // More rounds than are kept.
    let mut x = DeviceBuffer::from_slice(stream, &[1u64; 3]).unwrap();
    let mut y = DeviceBuffer::from_slice(stream, &[0u64; 3]).unwrap();
    for _ in 0..150 {
        comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream).unwrap();
    }
    assert_eq!(x.to_vec(stream).unwrap(), [1; 3]);
    // Too much memory is an error on all of them, and they go on.
    let error = comm.alloc::<u8>(stream, 1 << 44).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error:?}");
    let windows: Vec<_> =
        (1..4).map(|count| comm.alloc_from(stream, &vec![rank as i32; 1000 * count]).unwrap()).collect();
    drop(windows);
    let graph = stream.capture(|stream| {
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
        comm.barrier_on_stream(stream)?;
        group(|g| {
            g.send(&comm, &x, (rank + 1) % comm.size(), stream)?;
            g.recv(&comm, &mut y, (rank + comm.size() - 1) % comm.size(), stream)
        })
    });
    let graph = graph.unwrap();
    for _ in 0..3 {
        graph.launch(stream).unwrap();
    }
    assert_eq!(y.to_vec(stream).unwrap(), [(comm.size() as u64).pow(3); 3]);
    for part in [comm.split(Some(rank % 2), 0), comm.split(Some(0), comm.size() - rank)] {
        let part = part.unwrap().unwrap();
        part.all_reduce(InPlace(&mut y), ReduceOp::Max, stream).unwrap();
        let again = part.split_with((part.rank() > 0).then_some(1), 0, &Config::new().with_min_ctas(1)).unwrap();
        assert_eq!(again.is_some(), part.rank() > 0);
        again.into_iter().for_each(|again| again.close_timeout(slower(PATIENT)).unwrap());
        part.close_timeout(slower(PATIENT)).unwrap();
    }
    drop(graph);
    if rank == 0 {
        // It may serve the others, and waits for them then, where it leaves.
        drop(exchange);
        return comm.close_timeout(slower(PATIENT)).unwrap();
    }
    comm.close_timeout(slower(PATIENT)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(exchange.try_get("nothing").unwrap(), None);
}

/// Waits for what the rank has issued, and for the end of its communicator: why that came.
pub fn end_of(comm: &Communicator, stream: &Stream, issued: Result<()>) -> Error {
    let result = issued.and_then(|()| stream.synchronize_timeout(slower(PATIENT))).and_then(|()| {
        let until = Instant::now() + slower(PATIENT);
        while comm.is_active() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        comm.async_error()
    });
    result.expect_err("a rank did not notice")
}

/// What the last rank does in a case, and the others in its place.
fn differ(case: &str, comm: &Communicator, stream: &Stream) -> Result<()> {
    let (rank, size) = (comm.rank(), comm.size());
    let odd = rank == size - 1;
    let one = if odd { 1 } else { 0 };
    let mut x = DeviceBuffer::<f32>::zeroed(stream, 12 + one)?;
    let mut y = DeviceBuffer::<f32>::zeroed(stream, 12 * size)?;
    match case {
        "count" => comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream),
        "behind alloc" => {
            drop(comm.alloc::<f32>(stream, 100)?);
            comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)
        }
        "operation" if odd => comm.broadcast(InPlace(x.slice_mut(..12)), 0, stream),
        "root" => comm.broadcast(InPlace(x.slice_mut(..12)), one, stream),
        "reduction" if odd => comm.all_reduce(InPlace(x.slice_mut(..12)), ReduceOp::Max, stream),
        "type" if odd => comm.all_reduce(InPlace(&mut DeviceBuffer::<i32>::zeroed(stream, 12)?), ReduceOp::Sum, stream),
        "place" if odd => comm.all_reduce((x.slice(..12), y.slice_mut(..12)), ReduceOp::Sum, stream),
        "group" => {
            group(|g| {
                g.all_reduce(comm, InPlace(x.slice_mut(..12)), ReduceOp::Sum, stream)?;
                if odd { Ok(()) } else { g.broadcast(comm, InPlace(&mut y), 0, stream) }
            })?;
            Ok(())
        }
        "split" if odd => comm.split(Some(0), 0).map(drop),
        "configuration" => comm.split_with(Some(0), 0, &Config::new().with_min_ctas(1 + one as i32)).map(drop),
        "window" => comm.alloc::<f32>(stream, 100 + one).map(drop),
        "capture" if odd => {
            let graph = stream.capture(|stream| comm.all_reduce(InPlace(x.slice_mut(..12)), ReduceOp::Sum, stream))?;
            graph.launch(stream)
        }
        "launch" => {
            let capture = || stream.capture(|stream| comm.barrier_on_stream(stream));
            let graphs = [capture()?, capture()?];
            graphs[one].launch(stream)
        }
        "message" if rank == 0 => comm.send(x.slice(..12), size - 1, stream),
        "message" if odd => comm.recv(&mut x, 0, stream),
        "order" => {
            let both = |x: &mut DeviceBuffer<f32>| match rank {
                0 => comm.send(x.slice(..12), size - 1, stream),
                _ if odd => comm.recv(x.slice_mut(..12), 0, stream),
                _ => Ok(()),
            };
            let all = |y: &mut DeviceBuffer<f32>| {
                comm.all_to_all((&DeviceBuffer::<f32>::zeroed(stream, size)?, y.slice_mut(..size)), stream)
            };
            // Connected before, so that nobody waits in NCCL.
            both(&mut x)?;
            all(&mut y)?;
            stream.synchronize_timeout(slower(PATIENT))?;
            if rank == 0 {
                both(&mut x)?;
            }
            all(&mut y)
        }
        _ => comm.all_reduce(InPlace(x.slice_mut(..12)), ReduceOp::Sum, stream),
    }
}

/// A case, and what its error must hold.
pub type Case = (&'static str, &'static [&'static str]);

pub const CASES: &[Case] = &[
    ("count", &["all_reduce of 12 f32, sum", "all_reduce of 13 f32, sum"]),
    // An allocation has one number, as in a clique.
    ("behind alloc", &["all_reduce of 13 f32, sum", " (collective 2), got "]),
    ("operation", &["expected all_reduce of 12 f32", "got broadcast of 12 f32, root 0"]),
    ("root", &["broadcast of 12 f32, root 0", "broadcast of 12 f32, root 1"]),
    ("reduction", &["all_reduce of 12 f32, sum", "all_reduce of 12 f32, max"]),
    ("type", &["all_reduce of 12 f32", "all_reduce of 12 i32"]),
    ("group", &["in a group of 2 collectives", "by itself"]),
    ("split", &["expected all_reduce of 12 f32", "got split"]),
    ("configuration", &["a configuration with min_ctas 1", "a configuration with min_ctas 2"]),
    ("window", &["alloc of 400 bytes", "alloc of 404 bytes"]),
    ("capture", &["captured into a graph"]),
    ("launch", &["launch of the graph with collective 1", "launch of the graph with collective 2"]),
    ("close", &["expected all_reduce of 12 f32", "has closed its communicator, after 1 collective"]),
    ("message", &["of 12 f32", "of 13 f32", "(message 1 from rank 0 to rank "]),
    #[cfg(nccl_ge_2_28)]
    ("order", &["of 12 f32", "before that"]),
];

fn one_differs(role: Role) {
    let case = std::env::var(CASE).unwrap();
    let (comm, exchange) = by_way(&role);
    let stream = Stream::new(comm.device()).unwrap();
    if case == "close" {
        let mut x = DeviceBuffer::<f32>::zeroed(&stream, 12).unwrap();
        comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
        stream.synchronize_timeout(slower(PATIENT)).unwrap();
    }
    exchange.barrier().unwrap();
    let start = Instant::now();
    if case == "close" && role.rank == role.size - 1 {
        // NCCL waits for the others, which abort.
        let _ = comm.close_timeout(slower(5.0));
    } else {
        let issued = differ(&case, &comm, &stream);
        let error = end_of(&comm, &stream, issued);
        assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
        assert!(start.elapsed() < slower(PATIENT / 4.0), "not at once: {:?}", start.elapsed());
        println!("told: {}", error.to_string().split_once(": ").unwrap().1);
        assert!(comm.all_reduce_scalar(1u32, ReduceOp::Sum, &stream).is_err(), "it goes on");
    }
    // Nobody leaves before all have been told.
    exchange.barrier().unwrap();
}

/// What stands behind `mark` in what a process has printed.
pub fn said<'a>(end: &'a Finished, mark: &str) -> Option<&'a str> {
    end.text.lines().find_map(|line| Some(line.split_once(mark)?.1))
}

/// All ranks are told at once, and the same.
pub fn check(case: &Case, ranks: usize, place: &str, way: &Way) {
    let (name, holds) = case;
    let ends = Job::start("one differs", ranks, place, &[&[(CASE, *name)], way].concat()).ends();
    ends.iter().for_each(Finished::assert_success);
    let told: Vec<_> = ends.iter().filter_map(|end| said(end, "told: ")).collect();
    assert_eq!(told.len(), if *name == "close" { ranks - 1 } else { ranks }, "{name}: {ends:?}");
    assert!(told.iter().all(|line| line == &told[0]), "{name}: {told:#?}");
    assert!(holds.iter().all(|text| told[0].contains(text)), "{name}: {} has not {holds:?}", told[0]);
}

#[test]
fn all_are_told_how_one_differs() {
    watched(240.0, || {
        for case in CASES {
            for ranks in rank_counts(&[3]) {
                check(case, ranks, "", ASKED);
            }
        }
        for ranks in rank_counts(&[2]) {
            for case in &CASES[..2] {
                check(case, ranks, "", ASKED);
            }
        }
    });
}

/// An address of this host at which nobody listens.
pub fn address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    format!("tcp {}", listener.local_addr().unwrap())
}

#[test]
fn over_tcp_too() {
    watched(90.0, || {
        for ranks in rank_counts(&[2, 4]) {
            check(&CASES[0], ranks, &address(), ASKED);
            check(CASES.iter().find(|(name, _)| *name == "message").unwrap(), ranks, &address(), ASKED);
        }
    });
}

/// What the environment says is enough, and where nobody differs nobody notices.
#[test]
fn who_does_the_same_goes_on() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3]) {
            for checked in if ranks == 2 { &["0", "1"][..] } else { &["1"] } {
                let place = if ranks == 2 { String::new() } else { address() };
                let env = [("GPUCOMM_CHECKED", *checked)];
                Job::start("alike", ranks, &place, &env).succeed();
            }
        }
    });
}
