//! From a communicator that has failed to one of the ranks that are left.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpucomm::exchange::{Directory, Exchange, Threads};
use gpucomm::{
    Backend, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, UniqueId, default_timeout,
};

use crate::split::{gathered, sum};
use crate::support::process::{Child, Role, all_succeed, spawn};
use crate::support::{Rig, assert_names, rank_counts, skip, slower, still_works, watched};

const CHILD: &str = "recover::child";

/// Where the ranks find each other.
const PLACE: &str = "GPUCOMM_TEST_PLACE";

/// What a child process does; nothing when the tests are run by hand with `--ignored`.
#[test]
#[ignore = "the body of child processes"]
fn child() {
    gpucomm::set_default_timeout(slower(3.0));
    let roles: [(&str, fn(&Role) -> Result<()>); 5] = [
        ("trains", train),
        ("never comes", absent),
        ("hangs", hang),
        ("loses its device", lose),
        ("dies in a recovery", dies_again),
    ];
    for (name, body) in roles {
        if let Some(role) = Role::of_this_process(name) {
            body(&role).unwrap();
        }
    }
}

fn exchange(role: &Role) -> Result<Exchange> {
    let place = std::env::var(PLACE).expect(PLACE);
    let store = Directory::open(Path::new(&place), role.rank, role.size)?;
    Ok(Exchange::join_timeout(Arc::new(store), slower(40.0))?.with_timeout(slower(10.0)))
}

fn start(device: Device, exchange: &Exchange) -> Result<Communicator> {
    let id = UniqueId::shared(exchange)?;
    // SAFETY: all ranks of the exchange run this program.
    unsafe { Communicator::init_rank(device, exchange.size(), &id, exchange.rank()) }
}

/// Sums until the communicator fails, and goes on with those that are left, as often as ranks are lost.
fn train(role: &Role) -> Result<()> {
    let mut exchange = exchange(role)?;
    let mut comm = start(role.device()?, &exchange)?;
    let stream = Stream::new(comm.device())?;
    let mut ranks: Vec<usize> = (0..role.size).collect();
    while comm.size() > 1 {
        assert_eq!(gathered(&comm, &stream, role.rank)?, ranks);
        println!("{} at work", comm.size());
        let failed = loop {
            if let Err(error) = sum(&comm, &stream) {
                break error;
            }
        };
        assert!(!matches!(failed, Error::Disagreement { .. }), "{failed}");
        let begin = Instant::now();
        let recovered = comm.recover(&exchange)?;
        println!("recovered within {:?}: {:?}", begin.elapsed(), recovered.survivors);
        ranks = recovered.survivors.iter().map(|&rank| ranks[rank]).collect();
        (comm, exchange) = (recovered.comm, recovered.exchange);
    }
    sum(&comm, &stream)?;
    println!("alone");
    Ok(())
}

/// Rank 1 joins the exchange, and never comes to the start.
fn absent(role: &Role) -> Result<()> {
    let exchange = exchange(role)?;
    let id = UniqueId::shared(&exchange)?;
    if role.rank == 1 {
        println!("here");
        std::thread::sleep(slower(30.0));
        return Ok(());
    }
    let begin = Instant::now();
    // SAFETY: all ranks of the exchange run this program.
    let made = unsafe { Communicator::init_rank(role.device()?, role.size, &id, role.rank) };
    let error = made.expect_err("a rank is missing");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    assert!(begin.elapsed() < default_timeout() + slower(1.0), "{:?}", begin.elapsed());
    let rest = exchange.with_timeout(slower(2.0)).survivors()?;
    let comm = start(role.device()?, &rest.with_timeout(slower(10.0)))?;
    let stream = Stream::new(comm.device())?;
    let left: Vec<_> = (0..role.size).filter(|&rank| rank != 1).collect();
    assert_eq!(gathered(&comm, &stream, role.rank)?, left);
    println!("without it");
    Ok(())
}

/// The last rank stops, but lives; it comes when the others have gone on.
fn hang(role: &Role) -> Result<()> {
    let exchange = exchange(role)?.with_timeout(slower(2.0));
    let comm = start(role.device()?, &exchange.with_timeout(slower(20.0)))?;
    let stream = Stream::new(comm.device())?;
    sum(&comm, &stream)?;
    if role.rank == role.size - 1 {
        std::thread::sleep(slower(12.0));
        let error = comm.recover(&exchange).expect_err("the others have gone on");
        assert!(matches!(error, Error::Departed { .. }), "{error}");
        return Ok(());
    }
    sum(&comm, &stream).expect_err("the last rank does not come");
    let recovered = comm.recover(&exchange)?;
    let left: Vec<_> = (0..role.size - 1).collect();
    assert_eq!(recovered.survivors, left);
    assert_eq!(gathered(&recovered.comm, &stream, role.rank)?, left);
    // It has another chance to come too late.
    std::thread::sleep(slower(12.0));
    Ok(())
}

/// The last rank lives on, without a device. Nobody waits for it.
fn lose(role: &Role) -> Result<()> {
    let exchange = exchange(role)?.with_timeout(slower(60.0));
    let comm = start(role.device()?, &exchange)?;
    let stream = Stream::new(comm.device())?;
    let summed = || (0..1000).try_for_each(|_| sum(&comm, &stream).map(drop));
    summed().expect_err("the last rank has no device");
    let begin = Instant::now();
    let recovered = comm.recover(&exchange);
    if role.rank == role.size - 1 {
        let error = recovered.expect_err("its device is lost");
        assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
        assert_eq!(exchange.get("done")?, b"1");
        return Ok(());
    }
    let recovered = recovered?;
    assert!(begin.elapsed() < slower(20.0), "{:?}", begin.elapsed());
    let left: Vec<_> = (0..role.size - 1).collect();
    assert_eq!((&recovered.survivors, gathered(&recovered.comm, &stream, role.rank)?), (&left, left.clone()));
    recovered.exchange.barrier()?;
    exchange.set("done", b"1")
}

/// The last rank comes to a recovery, and dies before the start in it. The others do not wait for their timeout.
fn dies_again(role: &Role) -> Result<()> {
    gpucomm::set_default_timeout(slower(60.0));
    let exchange = exchange(role)?.with_timeout(slower(60.0));
    let comm = start(role.device()?, &exchange)?;
    if role.rank == role.size - 1 {
        UniqueId::shared(&exchange.survivors()?)?;
        std::process::exit(0);
    }
    let begin = Instant::now();
    let recovered = comm.recover(&exchange)?;
    assert!(begin.elapsed() < slower(15.0), "{:?}", begin.elapsed());
    let left: Vec<_> = (0..role.size - 1).collect();
    let stream = Stream::new(recovered.comm.device())?;
    assert_eq!((&recovered.survivors, gathered(&recovered.comm, &stream, role.rank)?), (&left, left.clone()));
    Ok(())
}

/// Starts all ranks of a role, which meet in a directory that goes with what this returns.
fn spawn_all(role: &str, size: usize) -> (Vec<Child>, tempdir::TempDir) {
    spawn_with(role, size, &[])
}

fn spawn_with(role: &str, size: usize, more: &[(&str, &str)]) -> (Vec<Child>, tempdir::TempDir) {
    let place = tempdir::TempDir::new();
    let id = UniqueId::from_bytes([0; UniqueId::BYTES]);
    let env = [&[(PLACE, place.path().to_str().expect("a path in UTF-8"))], more].concat();
    ((0..size).map(|rank| spawn(CHILD, role, (rank, size), &id, &env)).collect(), place)
}

mod tempdir {
    //! A directory that is removed again.

    use std::path::{Path, PathBuf};
    use std::sync::atomic::{AtomicU32, Ordering};

    pub struct TempDir(PathBuf);

    impl TempDir {
        pub fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!("gpucomm-recover-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).expect("a directory");
            Self(path)
        }

        pub fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }
}

/// How often ranks are killed.
fn rounds() -> usize {
    let asked = std::env::var("GPUCOMM_TEST_ROUNDS").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(2)
}

#[test]
fn ranks_that_are_killed_one_after_the_other() {
    watched(60.0 + 60.0 * rounds() as f64, || {
        for ranks in rank_counts(&[2, 4]) {
            for round in 0..rounds() {
                let (mut children, _place) = spawn_all("trains", ranks);
                let mut order: Vec<_> = (0..ranks).collect();
                order.rotate_left(round % ranks);
                for left in (1..ranks).rev() {
                    let victim = order[left];
                    let alive: Vec<_> = order[..=left].to_vec();
                    for &rank in &alive {
                        children[rank].wait_for(&format!("{} at work", left + 1), slower(40.0));
                    }
                    std::thread::sleep(Duration::from_millis(fastrand::u64(..20)));
                    children[victim].kill();
                }
                let last = children.swap_remove(order[0]);
                all_succeed(vec![last], slower(40.0));
            }
        }
    });
}

#[test]
fn a_rank_that_never_comes_to_the_start() {
    watched(60.0 + 40.0 * rounds() as f64, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            for _ in 0..rounds() {
                let (mut children, _place) = spawn_all("never comes", ranks);
                children[1].wait_for("here", slower(30.0));
                // It lives until the others have done without it.
                let absent = children.remove(1);
                all_succeed(children, slower(40.0));
                drop(absent);
            }
        }
    });
}

#[test]
fn a_rank_that_hangs_is_left_out_and_told() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let (children, _place) = spawn_all("hangs", ranks);
            all_succeed(children, slower(60.0));
        }
    });
}

#[test]
fn a_rank_that_dies_in_a_recovery_is_left_out_at_once() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let (children, _place) = spawn_all("dies in a recovery", ranks);
            all_succeed(children, slower(40.0));
        }
    });
}

#[test]
fn a_rank_whose_device_is_lost_is_left_out_at_once() {
    if gpucomm::backend() != Backend::Emulator {
        skip("devices are lost on the emulator only");
        return;
    }
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let fault = format!("lose=device{}@op{}", ranks - 1, fastrand::u32(20..60));
            let (children, _place) = spawn_with("loses its device", ranks, &[("GPUCOMM_EMULATOR_FAULTS", &fault)]);
            all_succeed(children, slower(60.0));
        }
    });
}

/// The abort, and the drop of the old communicator, take half of the time of the exchange together.
#[test]
fn a_rank_that_is_held_up_takes_no_longer_than_the_exchange_allows() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let (place, time) = (Threads::new(ranks), slower(4.0));
            let enqueued = std::sync::Barrier::new(ranks);
            let join = |rank: usize| {
                let exchange = Exchange::join(place.store(rank).unwrap()).unwrap().with_timeout(time);
                let comm = start(Device::new(rank).unwrap(), &exchange).unwrap();
                let stream = Stream::new(comm.device()).unwrap();
                sum(&comm, &stream).unwrap();
                let (let_go, until) = std::sync::mpsc::channel::<()>();
                if rank == 0 {
                    stream.launch_host(move || drop(until.recv())).unwrap();
                }
                let mut x = DeviceBuffer::<f32>::zeroed(&Stream::new(comm.device()).unwrap(), 4).unwrap();
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
                enqueued.wait();
                let begin = Instant::now();
                let recovered = comm.recover(&exchange);
                let took = begin.elapsed();
                drop(let_go);
                assert!(took < time + time / 2, "rank {rank}: {took:?}");
                drop(recovered);
            };
            std::thread::scope(|scope| {
                let join = &join;
                (0..ranks).for_each(|rank| drop(scope.spawn(move || join(rank))));
            });
        }
    });
}

#[test]
fn in_one_process() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 3, 4]) {
            let rig = Rig::new(ranks);
            let failed = rig.clique.spmd(|comm| {
                let stream = Stream::new(comm.device())?;
                match comm.rank() {
                    1 => Err(Error::InvalidUsage { operation: "the test", reason: "rank 1 gives up".into() }),
                    _ => sum(comm, &stream),
                }
            });
            assert_names(&failed.unwrap_err(), &["rank 1 gives up"]);
            let (clique, survivors) = rig.clique.recover(&[1]).unwrap();
            assert_eq!(survivors, (0..ranks).filter(|&rank| rank != 1).collect::<Vec<_>>());
            clique.spmd(|comm| sum(comm, &Stream::new(comm.device())?)).unwrap();
            let (clique, survivors) = clique.recover(&[]).unwrap();
            assert_eq!(survivors.len(), ranks - 1);
            clique.spmd(|comm| sum(comm, &Stream::new(comm.device())?)).unwrap();
            let all: Vec<_> = (0..ranks - 1).collect();
            assert!(matches!(clique.recover(&all), Err(Error::InvalidArgument { .. })));
            still_works(ranks);
        }
    });
}

#[test]
fn what_is_refused() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let place = Threads::new(ranks);
            let comms = Rig::new(ranks).clique.into_ranks();
            std::thread::scope(|scope| {
                for (rank, comm) in comms.into_iter().enumerate() {
                    let place = &place;
                    scope.spawn(move || {
                        let exchange = Exchange::join(place.store(rank).unwrap()).unwrap();
                        let error = comm.recover(&exchange).unwrap_err();
                        assert!(matches!(error, Error::InvalidUsage { .. }), "{error}");
                        // Another exchange than that of these ranks.
                        let comm = start(Device::new(rank).unwrap(), &exchange).unwrap();
                        sum(&comm, &Stream::new(comm.device()).unwrap()).unwrap();
                        let smaller = exchange.subset(&[rank]).unwrap();
                        let error = comm.recover(&smaller).unwrap_err();
                        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
                    });
                }
            });
        }
    });
}

#[test]
fn buffers_in_other_memory_stay() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let place = Threads::new(ranks);
            std::thread::scope(|scope| {
                for rank in 0..ranks {
                    let place = &place;
                    scope.spawn(move || {
                        let exchange = Exchange::join(place.store(rank).unwrap()).unwrap();
                        let comm = start(Device::new(rank).unwrap(), &exchange).unwrap();
                        let stream = Stream::new(comm.device()).unwrap();
                        let kept = DeviceBuffer::from_slice(&stream, &[7u32; 100]).unwrap();
                        sum(&comm, &stream).unwrap();
                        // An abort is one of all ranks of this process.
                        exchange.barrier().unwrap();
                        let recovered = comm.recover(&exchange).unwrap();
                        assert_eq!(recovered.survivors, (0..ranks).collect::<Vec<_>>());
                        let mut x = DeviceBuffer::<u32>::zeroed(&stream, 100).unwrap();
                        recovered.comm.all_reduce((&kept, &mut x), ReduceOp::Sum, &stream).unwrap();
                        assert_eq!(x.to_vec(&stream).unwrap(), [7 * ranks as u32; 100]);
                        recovered.exchange.barrier().unwrap();
                        let again = recovered.comm.recover(&recovered.exchange).unwrap();
                        again.comm.all_reduce(InPlace(&mut x), ReduceOp::Max, &stream).unwrap();
                        assert_eq!(x.to_vec(&stream).unwrap(), [7 * ranks as u32; 100]);
                        again.exchange.barrier().unwrap();
                    });
                }
            });
        }
    });
}
