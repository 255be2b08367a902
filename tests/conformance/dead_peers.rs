//! Peers that die or fail in the middle: what is handed out is right, or an error says that it is not, though nobody ever
//! asks for asynchronous errors.

use std::time::Duration;

use gpucomm::{
    Clique, Communicator, Device, DeviceBuffer, Error, InPlace, PinnedBuffer, ReduceOp, Result, Stream, UniqueId, group,
};

use crate::support::process::{Child, Finished, Role, spawn, spawn_all};
use crate::support::{is_thorough, quick, rank_counts, slower, takes, takes_faults, watched};

const CHILD: &str = "dead_peers::child";
const FAULTS: &str = "GPUCOMM_EMULATOR_FAULTS";
const DEAD_PEER: &str = "GPUCOMM_EMULATOR_DEAD_PEER";

/// What becomes of operations whose peer is dead: they go on, are told after a while, or end at once with wrong numbers.
const DEAD_PEERS: [&[(&str, &str)]; 3] = [&[(DEAD_PEER, "silent")], &[(DEAD_PEER, "told")], &[(DEAD_PEER, "ends")]];

const LEN: usize = 1000;
const STEPS: usize = 40;

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    gpucomm::set_default_timeout(slower(3.0));
    let roles: [(&str, fn(Role) -> Result<()>); 5] = [
        ("spmd", |_| as_spmd()),
        ("threads", |_| as_threads()),
        ("alone", alone),
        ("leaves", leaves),
        ("goes on", goes_on),
    ];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(role).unwrap();
            println!("finished");
        }
    }
}

/// How a step takes its values to the host.
#[derive(Debug, Clone, Copy)]
enum Way {
    Copy,
    OtherStream,
    Pinned,
    Event,
    Wait,
}

const WAYS: [Way; 5] = [Way::Copy, Way::OtherStream, Way::Pinned, Way::Event, Way::Wait];

/// What a rank keeps between its steps.
struct Halo<'a> {
    comm: &'a Communicator,
    stream: Stream,
    other: Stream,
    own: DeviceBuffer<i32>,
    left: DeviceBuffer<i32>,
    sum: DeviceBuffer<i32>,
    host: PinnedBuffer<i32>,
}

impl<'a> Halo<'a> {
    fn new(comm: &'a Communicator) -> Result<Self> {
        comm.set_timeout(slower(3.0));
        let stream = Stream::new(comm.device())?;
        let buffer = || DeviceBuffer::zeroed(&stream, LEN);
        let (own, left, sum) = (buffer()?, buffer()?, buffer()?);
        Ok(Self { comm, other: Stream::new(comm.device())?, own, left, sum, host: PinnedBuffer::zeroed(LEN)?, stream })
    }

    /// Sends to the right, receives from the left, sums up, and compares with what must come.
    fn step(&mut self, number: usize) -> Result<()> {
        let (rank, size, number) = (self.comm.rank(), self.comm.size(), number as i32);
        let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
        let (comm, stream) = (self.comm, &self.stream);
        self.own.fill(stream, 1000 * number + rank as i32)?;
        group(|g| {
            g.send(comm, &self.own, right, stream)?;
            g.recv(comm, &mut self.left, left, stream)
        })?;
        comm.all_reduce((&self.left, &mut self.sum), ReduceOp::Sum, stream)?;
        comm.all_reduce(InPlace(&mut self.own), ReduceOp::Max, stream)?;
        let way = WAYS[(number as usize + rank) % WAYS.len()];
        let received = read(way, &self.left, stream, &self.other, &mut self.host)?;
        assert_eq!(received, [1000 * number + left as i32; LEN], "{way:?} of rank {rank}, step {number}");
        let want = (0..size as i32).map(|rank| 1000 * number + rank).sum::<i32>();
        let sum = read(way, &self.sum, stream, &self.other, &mut self.host)?;
        assert_eq!(sum, [want; LEN], "{way:?} of rank {rank}, step {number}");
        let own = read(way, &self.own, stream, &self.other, &mut self.host)?;
        assert_eq!(own, [1000 * number + size as i32 - 1; LEN], "{way:?} of rank {rank}, step {number}");
        Ok(())
    }
}

fn read(
    way: Way,
    x: &DeviceBuffer<i32>,
    stream: &Stream,
    other: &Stream,
    host: &mut PinnedBuffer<i32>,
) -> Result<Vec<i32>> {
    match way {
        Way::Copy => return x.to_vec(stream),
        Way::OtherStream => return x.to_vec(other),
        Way::Pinned => x.copy_to_pinned(other, &mut *host)?,
        Way::Event => {
            x.copy_to_pinned(stream, &mut *host)?;
            stream.record()?.synchronize_timeout(slower(3.0))?;
            stream.query()?;
        }
        Way::Wait => {
            x.copy_to_pinned(stream, &mut *host)?;
            stream.synchronize_timeout(slower(3.0))?;
            // The second one sees what the first one has seen.
            stream.synchronize_timeout(slower(3.0))?;
        }
    }
    Ok(host.as_slice()?.to_vec())
}

/// Steps until one fails, which must happen.
fn until_it_fails(comm: &Communicator) -> Result<()> {
    let mut halo = Halo::new(comm)?;
    (1..=STEPS).try_for_each(|number| halo.step(number))
}

fn noticed(result: Result<()>) {
    let error = result.expect_err("a rank with a fault has answered");
    assert!(matches!(error, Error::Timeout { .. } | Error::Nccl { .. } | Error::Aborted { .. }), "{error:?}");
    println!("noticed: {error}");
}

fn clique() -> Result<Clique> {
    let devices = Device::all()?;
    Clique::init_all(&devices[..devices.len().min(4)])
}

/// The ranks of a clique as a new user writes it.
fn as_spmd() -> Result<()> {
    let clique = clique()?;
    noticed(quick(slower(15.0), || clique.spmd(until_it_fails)).map(drop));
    Ok(())
}

/// The ranks of a clique on threads that know nothing of each other.
fn as_threads() -> Result<()> {
    let ranks = clique()?.into_ranks();
    std::thread::scope(|scope| {
        for comm in &ranks {
            scope.spawn(|| {
                let result = quick(slower(20.0), || until_it_fails(comm));
                // A wait that finds an error makes an end of the communicator.
                assert!(matches!(result, Err(Error::Timeout { .. })) || !comm.is_active(), "{result:?}");
                noticed(result);
            });
        }
    });
    Ok(())
}

fn start(role: &str, faults: &str, peers: &[(&str, &str)]) -> Finished {
    let id = UniqueId::new().unwrap();
    let env: Vec<_> = peers.iter().copied().chain([(FAULTS, faults)]).collect();
    spawn(CHILD, role, (0, 1), &id, &env).finish(slower(60.0))
}

/// Four operations a step: these come before the first, in the middle, and within a group.
const PLACES: [&str; 4] = ["rank1@op1", "rank0@op1", "rank1@op27", "rank2@op41"];

fn every_place(fault: &str, peers: &[(&str, &str)]) {
    for role in ["spmd", "threads"] {
        for place in PLACES.into_iter().filter(|place| takes((fault, peers, role, place))) {
            let end = start(role, &format!("{fault}={place}"), peers);
            end.assert_success();
            assert!(end.text.contains("noticed") && end.text.contains("finished"), "{}", end.text);
        }
    }
}

#[test]
fn asynchronous_errors_that_nobody_asks_for() {
    watched(120.0, || {
        if takes_faults() {
            every_place("async_error", &[]);
        }
    });
}

#[test]
fn ranks_that_die() {
    watched(180.0, || {
        if takes_faults() {
            DEAD_PEERS.into_iter().for_each(|peers| every_place("die", peers));
        }
    });
}

/// Goes away when it has met the others.
fn leaves(role: Role) -> Result<()> {
    let comm = role.join()?;
    std::mem::forget(comm);
    println!("gone");
    std::process::exit(0)
}

/// Reduces with a peer that is gone.
fn alone(role: Role) -> Result<()> {
    let comm = role.join()?;
    comm.set_timeout(slower(3.0));
    std::thread::sleep(Duration::from_millis(50) * (role.rank as u32));
    let stream = Stream::new(comm.device())?;
    let mut x = DeviceBuffer::from_slice(&stream, &[7; LEN])?;
    let reduced = comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream);
    noticed(reduced.and_then(|()| x.to_vec(&stream)).map(drop));
    // The second answer is the first one. An abort makes an end of it, if nothing has.
    let _ = comm.aborter().abort("a peer is gone");
    assert!(x.to_vec(&stream).is_err(), "a copy of what was never reduced");
    Ok(())
}

#[test]
fn a_process_that_leaves_after_the_start() {
    watched(120.0, || {
        if !takes_faults() {
            return;
        }
        for peers in DEAD_PEERS.into_iter().cycle().take(if is_thorough() { 9 } else { 3 }) {
            let id = UniqueId::new().unwrap();
            let gone = spawn(CHILD, "leaves", (1, 2), &id, &[]);
            let end = spawn(CHILD, "alone", (0, 2), &id, peers).finish(slower(30.0));
            end.assert_success();
            assert!(end.text.contains("noticed"), "{}", end.text);
            gone.finish(slower(10.0)).assert_success();
        }
    });
}

/// Steps until it is killed, or a step fails.
fn goes_on(role: Role) -> Result<()> {
    let comm = role.join()?;
    let mut halo = Halo::new(&comm)?;
    println!("started");
    noticed((1..).try_for_each(|number| halo.step(number)));
    Ok(())
}

#[test]
fn processes_that_are_killed() {
    watched(120.0, || {
        if !takes_faults() {
            return;
        }
        for ranks in rank_counts(&[2, 4]) {
            for peers in DEAD_PEERS.into_iter().cycle().take(if is_thorough() { 6 } else { 3 }) {
                let mut children = spawn_all(CHILD, "goes on", ranks, peers);
                children.iter_mut().for_each(|child: &mut Child| child.wait_for("started", slower(20.0)));
                std::thread::sleep(Duration::from_micros(fastrand::u64(1000..60_000)));
                children[fastrand::usize(..ranks)].kill();
                for end in children.into_iter().map(|child| child.finish(slower(30.0))) {
                    // The one that was killed has no exit code.
                    if end.status.code().is_some() {
                        end.assert_success();
                        assert!(end.text.contains("noticed") && end.text.contains("finished"), "{}", end.text);
                    }
                }
            }
        }
    });
}
