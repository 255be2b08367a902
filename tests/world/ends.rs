//! How worlds end, and what others hear of it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use gpucomm::exchange::{Exchange, Threads};
use gpucomm::nccl::InitOptions;
use gpucomm::world::{
    Lane, Members, Reason, Rebuild, WhileDown, World, WorldOptions,
    health::Phase,
    requests::{self, At, Request},
};
use gpucomm::{Clique, Communicator, Device, InPlace, ReduceOp, Result, Stream};

use super::block_on::block_on;
use super::gate::Gate;
use super::hooked_store::HookedStore;
use super::stores::Faulty;
use super::support::{Occupy, child, eventually, hold, on, slower, turn, values, world, zeroed};

/// Worlds of one rank each, as processes have them.
pub fn apart(place: &Threads, options: &[WorldOptions]) -> Result<Vec<World>> {
    turn();
    let size = options.len();
    if Device::count()? < size {
        return Err(gpucomm::Error::InvalidUsage { operation: "test", reason: "too few devices".to_owned() });
    }
    let join = |rank: usize| {
        let exchange = Exchange::join(place.store(rank)?)?;
        // SAFETY: all ranks submit the same.
        unsafe { World::join(exchange, Device::new(rank)?, &options[rank]) }
    };
    std::thread::scope(|scope| {
        let join = &join;
        let all: Vec<_> = (0..size).map(|rank| scope.spawn(move || join(rank))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    })
}

pub fn two(place: &Threads, options: &WorldOptions) -> Result<[World; 2]> {
    Ok(apart(place, &[options.clone(), options.clone()])?.try_into().expect("two"))
}

/// A collective fails at once if a rank has closed its world, whether it is enqueued before or after that is known. Messages
/// between the other ranks are delivered.
#[test]
fn a_rank_that_has_left_is_not_waited_for() {
    for pause in [Duration::ZERO, Duration::from_millis(700)] {
        let place = Threads::new(3);
        let Ok(mut worlds) = apart(&place, &vec![WorldOptions::default(); 3]) else { return };
        let rank = |world: &World| world.ranks().remove(0).with_timeout(slower(600.0));
        let sum = |world: &World| rank(world).all_reduce(InPlace(on(world.devices()[0], &[1u8])), ReduceOp::Sum);
        let sums: Vec<_> = worlds.iter().map(sum).collect();
        sums.into_iter().for_each(|sum| drop(sum.wait().unwrap()));
        worlds.remove(1).close_timeout(slower(20.0)).unwrap();
        std::thread::sleep(pause);
        let sent = rank(&worlds[0]).send(on(worlds[0].devices()[0], &[7u8]), 2);
        let received = rank(&worlds[1]).recv(zeroed::<u8>(worlds[1].devices()[0], 1), 0);
        drop(sent.wait().unwrap());
        assert_eq!(values(&received.wait().unwrap()), [7]);
        let answers: Vec<_> = worlds.iter().map(sum).collect();
        for answer in answers {
            let failed = answer.wait_timeout(slower(60.0)).expect("an answer at once").unwrap_err();
            let text = failed.error.to_string();
            assert!(text.contains("rank 1 has closed its world"), "{text}");
        }
    }
}

/// A request that waits within its own code for a rank that has left is ended too.
#[test]
fn a_request_that_waits_by_itself_for_a_rank_that_has_left() {
    struct Waits;
    impl Request for Waits {
        type Back = ();
        fn operation(&self) -> &'static str {
            "waits"
        }
        fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
            let mut sum = on(at.device(), &[1u8]);
            at.communicator().all_reduce(InPlace(&mut sum), ReduceOp::Sum, at.stream())?;
            at.stream().synchronize_timeout(slower(600.0))
        }
        fn into_back(self) {}
    }
    let place = Threads::new(2);
    let Ok([one, other]) = two(&place, &WorldOptions::default()) else { return };
    let rank = |world: &World| world.ranks().remove(0).with_timeout(slower(600.0));
    // So that the ranks are connected: in its first operation, NCCL waits for the other rank.
    let [waits, waits_too] = [&one, &other].map(|world| rank(world).submit(Waits));
    waits.wait().unwrap();
    waits_too.wait().unwrap();
    let waits = rank(&one).submit(Waits);
    // Of one process, both ranks are aborted when the request fails, perhaps while this one closes.
    let _ = other.close_timeout(slower(20.0));
    let failed = waits.wait_timeout(slower(60.0)).expect("an answer at once").unwrap_err();
    let text = failed.error.to_string();
    assert!(text.contains("rank 1 has closed its world"), "{text}");
}

/// Who has failed does not say that it leaves in good order.
#[test]
fn what_has_failed_says_so() {
    for _ in 0..3 {
        let place = Threads::new(2);
        let Ok([one, other]) = two(&place, &WorldOptions::default()) else { return };
        let waits = other.rank(1).unwrap().all_reduce(InPlace(on(other.devices()[0], &[1u8])), ReduceOp::Sum);
        one.fail("rank 0 of a test");
        drop(one);
        eventually("the other one hears of it", || other.health().phase == Phase::Down);
        let cause = other.health().cause.unwrap().to_string();
        assert!(cause.contains("rank 0 of a test"), "{cause}");
        assert!(waits.wait().unwrap_err().buffers.is_some());
    }
}

/// What one process alone could not enqueue may have begun in others.
#[test]
fn what_is_not_enqueued_ends_all() {
    struct Fails;
    impl gpucomm::world::requests::Request for Fails {
        type Back = ();
        fn operation(&self) -> &'static str {
            "fails"
        }
        fn enqueue(&mut self, _: &gpucomm::world::requests::At<'_>) -> Result<()> {
            Err(gpucomm::Error::InvalidUsage { operation: "fails", reason: "a test".to_owned() })
        }
        fn into_back(self) {}
    }
    let place = Threads::new(2);
    let Ok([one, other]) = two(&place, &WorldOptions::default()) else { return };
    assert!(one.rank(0).unwrap().submit(Fails).wait().is_err());
    eventually("all are down", || [&one, &other].iter().all(|world| world.health().phase == Phase::Down));
}

/// What waited for more ranks than there are is for none of them, whichever number they have now.
#[test]
fn fewer_ranks() {
    let options = WorldOptions::new().with_while_down(WhileDown::Queue);
    let place = Threads::new(3);
    let Ok(mut worlds) = apart(&place, &vec![options; 3]) else { return };
    worlds[0].fail("a test");
    eventually("all are down", || worlds.iter().all(|world| world.health().phase == Phase::Down));
    let waiting: Vec<_> = worlds.iter().map(|world| world.ranks().remove(0).submit(requests::barrier())).collect();
    drop(worlds.remove(1));
    std::thread::scope(|scope| {
        for world in &worlds {
            scope.spawn(|| world.rebuild(Members::Survivors).unwrap());
        }
    });
    let reasons: Vec<_> = waiting.into_iter().map(|answer| answer.wait().unwrap_err().reason).collect();
    assert_eq!(reasons, [Reason::Stale, Reason::Closed, Reason::Stale]);
    let barriers: Vec<_> = worlds.iter().map(|world| world.ranks().remove(0).submit(requests::barrier())).collect();
    barriers.into_iter().for_each(|barrier| barrier.wait().unwrap());
}

/// Ranks that ask for different members are told so, and may ask again.
#[test]
fn different_members() {
    let place = Threads::new(3);
    let init = InitOptions::new().with_timeout(slower(20.0));
    let Ok(worlds) = apart(&place, &vec![WorldOptions::new().with_init(init); 3]) else { return };
    let rebuild = |members: [Members; 3]| -> Vec<Result<()>> {
        std::thread::scope(|scope| {
            let all = worlds.iter().zip(members).map(|(world, members)| scope.spawn(move || world.rebuild(members)));
            all.collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect()
        })
    };
    let (same, survivors) = (Members::Same, Members::Survivors);
    for (generation, members) in [(2, same), (3, survivors)] {
        worlds[0].fail("a test");
        eventually("all are down", || worlds.iter().all(|world| world.health().phase == Phase::Down));
        for different in [[same, survivors, same], [survivors, survivors, same]] {
            let start = Instant::now();
            for refused in rebuild(different) {
                let error = refused.unwrap_err().to_string();
                assert!(error.contains("Members::Same") && error.contains("Members::Survivors"), "{error}");
            }
            assert!(start.elapsed() < slower(15.0), "{:?}", start.elapsed());
        }
        rebuild([members; 3]).into_iter().for_each(Result::unwrap);
        assert!(worlds.iter().all(|world| (world.health().generation, world.size()) == (generation, 3)));
        let barriers: Vec<_> = worlds.iter().map(|world| world.ranks().remove(0).submit(requests::barrier())).collect();
        barriers.into_iter().for_each(|barrier| barrier.wait().unwrap());
    }
}

/// One of them had something, and has it no more, before there is a generation for it.
#[test]
fn late_in_one_process_while_down() {
    let options = WorldOptions::new().with_while_down(WhileDown::Queue);
    let place = Threads::new(2);
    let Ok(worlds) = two(&place, &options) else { return };
    worlds[0].fail("a test");
    eventually("both are down", || worlds.iter().all(|world| world.health().phase == Phase::Down));
    let ask = |world: &World| {
        let rank = world.ranks().remove(0);
        (rank.clone(), InPlace(on(rank.device(), &[1u8])))
    };
    let (rank, x) = ask(&worlds[0]);
    let late = rank.with_timeout(Duration::from_millis(10)).all_reduce(x, ReduceOp::Sum).wait().unwrap_err();
    assert_eq!(late.reason, Reason::Late);
    let (rank, x) = ask(&worlds[0]);
    let next = rank.all_reduce(x, ReduceOp::Sum);
    let (rank, x) = ask(&worlds[1]);
    let first = rank.all_reduce(x, ReduceOp::Sum);
    std::thread::scope(|scope| {
        for world in &worlds {
            scope.spawn(|| world.rebuild(Members::Same).unwrap());
        }
    });
    assert_eq!((next.wait().unwrap_err().reason, first.wait().is_err()), (Reason::Down, true));
}

/// Room that somebody has for a request holds up nobody.
#[test]
fn with_room_that_is_held() {
    let world = world(1, WorldOptions::default());
    let rank = world.rank(0).unwrap();
    let room = block_on(rank.room()).unwrap();
    let start = Instant::now();
    world.close_timeout(slower(20.0)).unwrap();
    assert!(start.elapsed() < slower(10.0), "{:?}", start.elapsed());
    assert_eq!(room.submit(requests::barrier()).wait().unwrap_err().reason, Reason::Closed);
}

/// One that is down ends at once, and well.
#[test]
fn one_that_is_down() {
    let world = world(2, WorldOptions::default());
    world.barrier().wait().unwrap();
    world.fail("a test");
    let start = Instant::now();
    world.close_timeout(slower(20.0)).unwrap();
    assert!(start.elapsed() < slower(10.0), "{:?}", start.elapsed());
}

#[test]
fn answers_one_by_one() {
    let world = world(2, WorldOptions::default());
    let wrong = world.devices().into_iter().map(|device| (on(device, &[1u8; 3]), zeroed::<u8>(device, 1)));
    let failed = world.all_reduce(wrong, ReduceOp::Sum).into_answers().unwrap_err();
    assert_eq!((failed.reason, failed.buffers.unwrap().len()), (Reason::Refused, world.size()));
    // One that was asked, and has some of its answers.
    let wide = world.barrier().wait_timeout(Duration::ZERO);
    if let Err(wide) = wide {
        let answers = wide.into_answers().unwrap();
        assert_eq!(answers.len(), world.size());
        answers.into_iter().for_each(|answer| answer.wait().unwrap());
    }
}

struct Nothing;

impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

/// A watch keeps one waker, and none when it is dropped.
#[test]
fn watches_that_are_dropped() {
    let world = world(1, WorldOptions::default());
    let nothing = Arc::new(Nothing);
    let mut kept = world.watch();
    for round in 0..10 {
        let mut watch = world.watch();
        // Each a waker of its own.
        let wakers = [Arc::new(Nothing), Arc::clone(&nothing)].map(Waker::from);
        for watch in [&mut watch, &mut kept] {
            for waker in &wakers {
                assert!(std::pin::pin!(watch.changed()).poll(&mut Context::from_waker(waker)).is_pending());
            }
        }
        drop((watch, wakers));
        assert_eq!(Arc::strong_count(&nothing), 2, "after {round}");
    }
}

/// What has no lane is of one of its own, of which one rank alone says whose turn it is.
#[test]
fn with_lanes_and_without() {
    let place = Threads::new(3);
    let options = WorldOptions::new().with_sequenced(true).with_timeout(slower(20.0));
    let Ok(worlds) = apart(&place, &vec![options; 3]) else { return };
    let lane = Lane::new("a lane");
    for _ in 0..10 {
        let ask = |world: &World| {
            let rank = &world.ranks()[0];
            let plain = rank.all_reduce(InPlace(on(rank.device(), &[1u8])), ReduceOp::Sum);
            (plain, rank.clone().with_lane(&lane).all_reduce(InPlace(on(rank.device(), &[2u8])), ReduceOp::Sum))
        };
        let asked: Vec<_> = worlds.iter().map(ask).collect();
        for (plain, in_lane) in asked {
            let sums = [plain.wait().unwrap(), in_lane.wait().unwrap()];
            assert_eq!(sums.each_ref().map(values), [[3u8], [6]]);
        }
    }
}

/// Several share it, if one thread drops them one after the other.
#[test]
fn a_drop_takes_little_more_than_the_timeout() {
    turn();
    let init = InitOptions::new().with_timeout(slower(1.0));
    let options = WorldOptions::new().with_init(init);
    let start = |device: &Device| World::new_with(&[*device], &options).unwrap();
    let worlds: Vec<_> = Device::all().unwrap().iter().take(3).map(start).collect();
    let (let_go, answers): (Vec<Sender<()>>, Vec<_>) = worlds
        .iter()
        .map(|world| {
            let (let_go, until) = channel();
            (let_go, world.rank(0).unwrap().submit(Occupy::until(until)))
        })
        .unzip();
    eventually("all are enqueued", || worlds.iter().all(|world| world.metrics().enqueued == 1));
    let begin = Instant::now();
    drop(worlds);
    let took = begin.elapsed();
    drop(let_go);
    for answer in answers {
        assert!(answer.wait().is_err());
    }
    // Less than a second for the first, and half a second and more for what each has on its device.
    assert!(took < slower(8.0), "{took:?}");
}

/// Keeps the communicator and the stream of its rank.
struct Keep(Sender<(Arc<Communicator>, Stream)>);

impl Request for Keep {
    type Back = ();

    fn operation(&self) -> &'static str {
        "keep"
    }

    fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
        self.0.send((Arc::clone(at.shared()), at.stream().clone())).expect("who keeps them");
        Ok(())
    }

    fn into_back(self) {}
}

/// Somebody keeps communicators for longer than the world has them: nobody waits for that.
#[test]
fn communicators_that_are_kept() {
    for end in ["close", "drop", "rebuild"] {
        let options = WorldOptions::new().with_timeout(slower(20.0));
        let world = world(2, options);
        let (keep, kept) = channel();
        world.submit(world.ranks().iter().map(|_| Keep(keep.clone()))).wait().unwrap();
        drop(keep);
        let kept: Vec<_> = kept.iter().collect();
        let begin = Instant::now();
        let stays = match end {
            "close" => {
                world.close_timeout(slower(20.0)).unwrap();
                true
            }
            "drop" => {
                drop(world);
                true
            }
            _ => {
                world.fail("a test");
                world.rebuild(Members::Same).unwrap();
                world.barrier().wait().unwrap();
                false
            }
        };
        assert!(begin.elapsed() < slower(10.0), "{end}: {:?}", begin.elapsed());
        let sums: Vec<_> = std::thread::scope(|scope| {
            let all: Vec<_> = kept
                .iter()
                .map(|(comm, stream)| scope.spawn(|| comm.all_reduce_scalar(1u32, ReduceOp::Sum, stream)))
                .collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        for sum in sums {
            // Communicators of a generation that has failed are aborted, whoever has them.
            match sum {
                Ok(sum) => assert!(stays && sum as usize == kept.len(), "{end}: {sum}"),
                Err(error) => assert!(!stays && error.to_string().contains("a test"), "{end}: {error}"),
            }
        }
        let begin = Instant::now();
        drop(kept);
        assert!(begin.elapsed() < slower(10.0), "{end}: {:?}", begin.elapsed());
    }
}

/// A host function holds up a stream that no rank uses: worlds work, end and begin all the same.
#[test]
fn beside_a_foreign_stream_that_is_held() {
    child("ends::held", &[]).succeeds("held");
}

#[test]
#[ignore = "the body of a child process"]
fn held() {
    let devices = Device::all().unwrap();
    let Some(devices) = devices.get(..2) else { return };
    let init = InitOptions::new().with_timeout(slower(5.0));
    let options = WorldOptions::new().with_init(init).with_timeout(slower(20.0));
    let start = || World::new_with(devices, &options).unwrap();
    let (world, warm) = (start(), start());
    warm.barrier().wait().unwrap();
    let (gate, stream) = (Gate::default(), Stream::new(devices[0]).unwrap());
    gate.hold(&stream).unwrap();
    // Every call comes back soon, and holds up no other call on the device.
    let quick = |what: &str, run: &mut dyn FnMut()| {
        let begin = Instant::now();
        run();
        assert!(begin.elapsed() < slower(5.0), "{what}: {:?}", begin.elapsed());
        for device in devices {
            let begin = Instant::now();
            assert_eq!(values(&on(*device, &[7u8; 5000])), [7; 5000]);
            assert!(begin.elapsed() < slower(1.0), "a copy after {what}: {:?}", begin.elapsed());
        }
    };
    let request = |world: &World| {
        let sums = world.all_reduce(devices.iter().map(|device| InPlace(on(*device, &[1u32; 1000]))), ReduceOp::Sum);
        sums.wait().unwrap().iter().for_each(|x| assert_eq!(values(x), [2; 1000]));
    };
    quick("the first request", &mut || request(&world));
    quick("another request", &mut || request(&warm));
    quick("a rebuild", &mut || {
        world.fail("a test");
        world.rebuild(Members::Same).unwrap();
    });
    quick("a request to the next generation", &mut || request(&world));
    let mut warm = Some(warm);
    quick("a close", &mut || warm.take().into_iter().for_each(|world| world.close_timeout(slower(5.0)).unwrap()));
    let mut fresh = Some(start());
    quick("an abort", &mut || fresh.take().into_iter().for_each(|world| world.abort("a test").unwrap()));
    let mut world = Some(world);
    quick("a drop", &mut || drop(world.take()));
    gate.open();
    stream.synchronize().unwrap();
}

/// How a process ends that has a world whose rank waits for the others.
const EXIT: &str = "GPUCOMM_TEST_EXIT";

/// Nobody waits for what ranks wait for, nor for a stream that is held up.
#[test]
fn a_process_that_ends() {
    for (how, code) in [("exit", 7), ("returns", 0), ("panics", 101)] {
        let begin = Instant::now();
        assert_eq!(child("ends::exits", &[(EXIT, how)]).ends(), Some(code), "{how}");
        assert!(begin.elapsed() < slower(20.0), "{how}: {:?}", begin.elapsed());
    }
}

#[test]
#[ignore = "the body of a child process"]
fn exits() {
    static WORLD: OnceLock<World> = OnceLock::new();
    let Ok(how) = std::env::var(EXIT) else { return };
    let devices = Device::all().unwrap();
    let ranks = devices.len().min(2);
    let options = WorldOptions::new().with_timeout(Duration::from_secs(3600));
    let world = WORLD.get_or_init(|| World::new_with(&devices[..ranks], &options).unwrap());
    world.barrier().wait().unwrap();
    let stream = Stream::new(devices[0]).unwrap();
    let gate = Gate::default();
    gate.hold(&stream).unwrap();
    // Rank 0 waits for the others on its device, and for this thread on its own.
    std::mem::forget((world.rank(0).unwrap().submit(requests::barrier()), hold(&world.rank(0).unwrap()), gate));
    match how.as_str() {
        "exit" => std::process::exit(7),
        "panics" => panic!("a test"),
        _ => {}
    }
}

/// They have one time for all, and so has the clique that holds up the device, which frees no
/// communicator meanwhile.
#[test]
fn worlds_dropped_behind_a_device_that_is_held_up() {
    let timeout = slower(4.0);
    let init = InitOptions::new().with_timeout(timeout);
    let worlds: Vec<_> = (0..3).map(|_| world(2, WorldOptions::new().with_init(init.clone()))).collect();
    worlds.iter().for_each(|world| drop(world.barrier().wait().unwrap()));
    let devices = worlds[0].devices();
    let clique = Clique::init_all_with(&devices, &init).unwrap();
    let streams: Vec<_> = devices.iter().map(|device| Stream::new(*device).unwrap()).collect();
    let (let_go, until) = channel::<()>();
    streams[0].launch_host(move || _ = until.recv()).unwrap();
    clique.barrier_on_stream(&streams).unwrap();
    fn timed<T>(one: T) -> Duration {
        let begin = Instant::now();
        drop(one);
        begin.elapsed()
    }
    let times: Vec<_> = worlds.into_iter().map(timed).collect();
    let last = timed(clique);
    drop(let_go);
    let all = times.iter().sum::<Duration>() + last;
    assert!(all < timeout + slower(1.5), "{times:?}, then {last:?}");
}

/// A world of rank 0 that rebuilds itself of the same ranks, and one of rank 1 that does not. `sees`
/// gets each call of the store of rank 0.
fn one_that_rebuilds_itself(
    sees: impl Fn(&str, &str) + Send + Sync + Clone + 'static,
) -> Option<([World; 2], [Exchange; 2])> {
    turn();
    if Device::count().unwrap() < 2 {
        return None;
    }
    let place = Threads::new(2);
    let join = |rank: usize| {
        let sees = sees.clone();
        let store = Faulty(place.store(rank).unwrap(), move |operation: &str, key: &str| {
            if rank == 0 {
                sees(operation, key);
            }
            Ok(())
        });
        let exchange = Exchange::join(HookedStore(store)).unwrap();
        let (first, longest) = (Duration::from_millis(10), Duration::from_millis(100));
        let automatic = Rebuild::Automatic { members: Members::Same, first, longest, attempts: 100 };
        let options = WorldOptions::new()
            .with_rebuild(if rank == 0 { automatic } else { Rebuild::ByHand })
            .with_init(InitOptions::new().with_timeout(slower(60.0)));
        // SAFETY: both ranks do the same.
        (unsafe { World::join(exchange.clone(), Device::new(rank).unwrap(), &options) }.unwrap(), exchange)
    };
    let ((own, mine), (other, its)) = std::thread::scope(|scope| {
        let other = scope.spawn(|| join(1));
        (join(0), other.join().unwrap())
    });
    Some(([own, other], [mine, its]))
}

/// A world whose rebuild waits for another rank ends at once. Then nothing uses its store, and the
/// other rank learns that this one has left, though its exchange is still there.
#[test]
fn an_end_beside_a_rebuild() {
    for how in ["close", "abort", "drop"] {
        let (waits, ended, uses) = <(Arc<AtomicBool>, Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
        let (seen, over, used) = (Arc::clone(&waits), Arc::clone(&ended), Arc::clone(&uses));
        let worlds = one_that_rebuilds_itself(move |operation, key| {
            seen.fetch_or(operation == "compare_and_set" && key.ends_with("/s/0"), Ordering::Relaxed);
            used.fetch_add(over.load(Ordering::Relaxed).into(), Ordering::Relaxed);
        });
        let Some(([own, other], _exchanges)) = worlds else { return };
        own.fail("a test");
        eventually("the rebuild waits for rank 1", || waits.load(Ordering::Relaxed));
        let begin = Instant::now();
        match how {
            "close" => own.close_timeout(slower(60.0)).unwrap(),
            "abort" => own.abort("a test").unwrap(),
            _ => drop(own),
        }
        assert!(begin.elapsed() < slower(6.0), "{how}: {:?}", begin.elapsed());
        ended.store(true, Ordering::Relaxed);
        eventually("rank 1 hears of the failure", || other.health().phase == Phase::Down);
        let begin = Instant::now();
        let error = other.rebuild(Members::Same).unwrap_err().to_string();
        assert!(error.contains("1 of 2 ranks are left"), "{how}: {error}");
        other.rebuild(Members::Survivors).unwrap();
        assert!(begin.elapsed() < slower(10.0), "{how}: {:?}", begin.elapsed());
        assert_eq!((other.health().generation, other.size()), (2, 1));
        other.barrier().wait().unwrap();
        assert_eq!(uses.load(Ordering::Relaxed), 0, "{how:?}");
    }
}

/// The same while the ranks that are left vote on the members.
#[test]
fn an_end_beside_a_vote() {
    let waits = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&waits);
    let worlds = one_that_rebuilds_itself(move |operation, key| {
        seen.fetch_or(operation == "set" && key.contains("/s/v/") && key.ends_with("/c/2/0"), Ordering::Relaxed);
    });
    let Some(([own, other], [mine, _its])) = worlds else { return };
    own.fail("a test");
    eventually("rank 1 hears of the failure", || other.health().phase == Phase::Down);
    other.rebuild(Members::Survivors).expect_err("rank 0 asks for the same");
    eventually("rank 0 votes again", || waits.load(Ordering::Relaxed));
    let begin = Instant::now();
    own.close_timeout(slower(60.0)).unwrap();
    assert!(begin.elapsed() < slower(6.0), "{:?}", begin.elapsed());
    let begin = Instant::now();
    let error = other.rebuild(Members::Same).unwrap_err().to_string();
    assert!(error.contains("rank 0 says no") && error.contains("the world was closed"), "{error}");
    drop(mine);
    other.rebuild(Members::Survivors).unwrap();
    assert!(begin.elapsed() < slower(10.0), "{:?}", begin.elapsed());
    assert_eq!((other.health().generation, other.size()), (2, 1));
}

/// The same while the rebuild is inside a call of the store that does not return.
#[test]
fn an_end_beside_a_store_that_hangs() {
    let (waits, (let_go, until)) = (Arc::new(AtomicBool::new(false)), channel::<()>());
    let (seen, until) = (Arc::clone(&waits), Arc::new(Mutex::new(until)));
    let worlds = one_that_rebuilds_itself(move |operation, key| {
        if operation == "compare_and_set" && key.ends_with("/s/0") {
            seen.store(true, Ordering::Relaxed);
            until.lock().unwrap().recv().unwrap_or_default();
        }
    });
    let Some(([own, other], _exchanges)) = worlds else { return };
    own.fail("a test");
    eventually("the rebuild asks the store", || waits.load(Ordering::Relaxed));
    let begin = Instant::now();
    own.close_timeout(slower(60.0)).unwrap();
    assert!(begin.elapsed() < slower(20.0), "{:?}", begin.elapsed());
    drop(let_go);
    drop(other);
}

/// An end waits for the threads of earlier generations, too, which may be inside a call of the store.
#[test]
fn an_end_soon_after_a_rebuild() {
    turn();
    if Device::count().unwrap() < 2 {
        return;
    }
    let (place, (is_held, held), (let_go, until)) = (Threads::new(2), channel(), channel::<()>());
    let once = Arc::new(Mutex::new(Some((is_held, until))));
    let join = |rank: usize| {
        let once = Arc::clone(&once);
        let store = Faulty(place.store(rank).unwrap(), move |operation: &str, key: &str| {
            let holds = rank == 0 && operation == "get" && key.contains("world/end/");
            let first = once.lock().unwrap().take_if(|_| holds);
            if let Some((is_held, until)) = first {
                is_held.send(()).unwrap();
                until.recv().unwrap_or_default();
            }
            Ok(())
        });
        let exchange = Exchange::join(HookedStore(store)).unwrap();
        // SAFETY: both ranks do the same.
        unsafe { World::join(exchange, Device::new(rank).unwrap(), &WorldOptions::default()) }.unwrap()
    };
    let (own, other) = std::thread::scope(|scope| {
        let other = scope.spawn(|| join(1));
        (join(0), other.join().unwrap())
    });
    held.recv_timeout(slower(60.0)).unwrap();
    own.fail("a test");
    other.fail("a test");
    std::thread::scope(|scope| {
        scope.spawn(|| other.rebuild(Members::Same).unwrap());
        own.rebuild(Members::Same).unwrap();
    });
    let begin = Instant::now();
    own.close_timeout(slower(20.0)).unwrap();
    // The thread is held: the end waits as long as it waits for any thread. Those of the second
    // generation end within half of that time.
    assert!(begin.elapsed() >= Duration::from_millis(500), "{:?}", begin.elapsed());
    drop((let_go, other));
}

/// A request that waits within its own code for a rank that has left is ended also in a world that drains.
#[test]
fn a_request_that_waits_by_itself_in_a_world_that_drains() {
    struct Waits(Option<std::sync::mpsc::Receiver<()>>);
    impl Request for Waits {
        type Back = ();
        fn operation(&self) -> &'static str {
            "waits"
        }
        fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
            let mut from = on(at.device(), &[1u8]);
            let _ = self.0.take().map(|go| go.recv());
            at.communicator().recv(&mut from, 1, at.stream())?;
            at.stream().synchronize_timeout(slower(600.0))
        }
        fn into_back(self) {}
    }
    let place = Threads::new(2);
    let Ok([one, other]) = two(&place, &WorldOptions::default()) else { return };
    let sent = other.ranks().remove(0).send(on(other.devices()[0], &[7u8]), 0);
    let first = one.ranks().remove(0).submit(Waits(None));
    drop((sent.wait().unwrap(), first.wait().unwrap()));
    let (go, waits) = channel();
    let answer = one.ranks().remove(0).with_timeout(slower(600.0)).submit(Waits(Some(waits)));
    other.close_timeout(slower(20.0)).unwrap();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let ends = scope.spawn(move || one.close_timeout(slower(60.0)));
        // It drains by then, or soon.
        std::thread::sleep(slower(0.3));
        drop(go);
        assert!(answer.wait().unwrap_err().error.to_string().contains("rank 1 has closed its world"));
        ends.join().unwrap().expect_err("a request has failed");
    });
    assert!(begin.elapsed() < slower(30.0), "{:?}", begin.elapsed());
}

/// A request may suspend the communicator, and another one resume it.
#[cfg(nccl_ge_2_29_7)]
#[test]
fn a_communicator_that_is_suspended_and_resumed() {
    if gpucomm::backend() == gpucomm::Backend::Emulator {
        child("ends::suspended_and_resumed", &[("GPUCOMM_EMULATOR_NCCL", "2.32.3")]).succeeds("suspended and resumed");
    }
}

#[cfg(nccl_ge_2_29_7)]
#[test]
#[ignore = "the body of a child process"]
fn suspended_and_resumed() {
    use gpucomm::nccl::Suspend;

    struct Does(bool);
    impl Request for Does {
        type Back = ();
        fn operation(&self) -> &'static str {
            "suspends"
        }
        fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
            match (self.0, at.communicator().suspended()) {
                (true, _) => at.communicator().suspend(Suspend::MEMORY, "a test").map(drop),
                (false, Some(suspended)) => suspended.resume().map(drop),
                (false, None) => panic!("it is suspended"),
            }
        }
        fn into_back(self) {}
    }
    let world = world(2, WorldOptions::default());
    let every = |suspends: bool| {
        let answers: Vec<_> = world.ranks().into_iter().map(|rank| rank.submit(Does(suspends))).collect();
        answers.into_iter().for_each(|answer| answer.wait().unwrap());
    };
    every(true);
    // Longer than the world takes to look.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(world.health().phase, Phase::Up);
    every(false);
    world.barrier().wait().unwrap();
}
