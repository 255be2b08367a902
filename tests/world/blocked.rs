//! User code that blocks: only its own answer suffers.

use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use gpucomm::exchange::{Exchange, Store, Threads};
use gpucomm::nccl::InitOptions;
use gpucomm::world::{
    Members, Reason, WhileDown, World, WorldOptions,
    completion::{Completion, HostCallback, InFlight, Polling},
    requests::{self, At, Request},
};
use gpucomm::{Device, Result, Stream};

use super::hooked_store::{HookedStore, Hooks};
use super::support::{Occupy, eventually, hold, slower, turn, world};

/// User code that blocks until this is dropped.
struct Gate(Arc<Inside>);

#[derive(Default)]
struct Inside {
    /// How many calls are blocked, and whether they go on.
    state: Mutex<(usize, bool)>,
    changed: Condvar,
}

impl Gate {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn inside(&self) -> Arc<Inside> {
        Arc::clone(&self.0)
    }

    /// Waits until so many calls are blocked.
    fn blocks(&self, calls: usize) {
        eventually("user code blocks", || self.0.state.lock().unwrap().0 >= calls);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().1 = true;
        self.0.changed.notify_all();
    }
}

impl Inside {
    fn block(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_timeout_while(state, slower(120.0), |(_, open)| !*open).unwrap());
    }
}

/// Blocks when it is woken.
struct Blocks(Arc<Inside>);

impl Wake for Blocks {
    fn wake(self: Arc<Self>) {
        self.0.block();
    }
}

/// Blocks when it is dropped.
struct BlocksDropped(Arc<Inside>);

impl Drop for BlocksDropped {
    fn drop(&mut self) {
        self.0.block();
    }
}

/// A request that says when it has begun, waits to go on, and blocks in one place.
struct Owner {
    begins: Option<(Sender<()>, Receiver<()>)>,
    back: Option<Arc<Inside>>,
    owns: Option<BlocksDropped>,
}

impl Request for Owner {
    type Back = Option<BlocksDropped>;

    fn operation(&self) -> &'static str {
        "owner"
    }

    fn enqueue(&mut self, _: &At<'_>) -> Result<()> {
        if let Some((begins, goes_on)) = self.begins.take() {
            drop(begins);
            let _ = goes_on.recv_timeout(slower(60.0));
        }
        Ok(())
    }

    fn into_back(self) -> Self::Back {
        self.back.iter().for_each(|inside| inside.block());
        self.owns
    }
}

/// The other ranks and later requests have their answers, and the world ends well.
fn goes_on(world: World) {
    let start = Instant::now();
    for _ in 0..3 {
        world.barrier().wait_timeout(slower(20.0)).expect("an answer").unwrap();
    }
    world.close_timeout(slower(20.0)).unwrap();
    assert!(start.elapsed() < slower(15.0), "{:?}", start.elapsed());
}

#[test]
fn into_back() {
    let (world, gate) = (world(2, WorldOptions::default()), Gate::new());
    let requests = world.ranks().into_iter().map(|_| Owner { begins: None, back: Some(gate.inside()), owns: None });
    let answers = world.submit(requests.collect::<Vec<_>>()).into_answers().unwrap();
    let ready = |answers: &[_]| answers.iter().all(gpucomm::world::Answer::<Option<BlocksDropped>>::is_ready);
    eventually("there are answers", || ready(&answers));
    let waits = std::thread::spawn(move || answers.into_iter().map(|answer| answer.wait().is_ok()).collect::<Vec<_>>());
    gate.blocks(1);
    goes_on(world);
    drop(gate);
    assert!(waits.join().unwrap().into_iter().all(|done| done));
}

#[test]
fn a_request_that_nobody_wants() {
    let (world, gate) = (world(2, WorldOptions::default()), Gate::new());
    let ranks = world.ranks();
    let begun = ranks.iter().map(|rank| {
        let ((begins, begun), (let_go, goes_on)) = (channel(), channel());
        let owns = Some(BlocksDropped(gate.inside()));
        let answer = rank.submit(Owner { begins: Some((begins, goes_on)), back: None, owns });
        let _ = begun.recv();
        drop(answer);
        let_go
    });
    let begun: Vec<_> = begun.collect();
    drop(begun);
    gate.blocks(ranks.len());
    goes_on(world);
}

#[test]
fn wakers() {
    let (world, gate) = (world(2, WorldOptions::new().with_queue(1)), Gate::new());
    let ranks = world.ranks();
    let waker = Waker::from(Arc::new(Blocks(gate.inside())));
    let mut context = Context::from_waker(&waker);
    let held: Vec<_> = ranks.iter().map(hold).collect();
    let mut barriers: Vec<_> = ranks.iter().map(|rank| rank.submit(requests::barrier())).collect();
    let mut rooms: Vec<_> = ranks.iter().map(|rank| Box::pin(rank.room())).collect();
    for (barrier, room) in barriers.iter_mut().zip(&mut rooms) {
        assert!(pin!(barrier).poll(&mut context).is_pending() && room.as_mut().poll(&mut context).is_pending());
    }
    for (let_go, held) in held {
        drop(let_go);
        held.wait_timeout(slower(20.0)).expect("an answer").unwrap();
    }
    // Who waits for room, and who waits for an answer.
    gate.blocks(2 * ranks.len());
    for barrier in barriers {
        barrier.wait_timeout(slower(20.0)).expect("an answer").unwrap();
    }
    drop(rooms);
    goes_on(world);
}

#[test]
fn wakers_of_health() {
    let (world, gate) = (world(2, WorldOptions::default()), Gate::new());
    let waker = Waker::from(Arc::new(Blocks(gate.inside())));
    let mut watch = world.watch();
    assert!(pin!(watch.changed()).poll(&mut Context::from_waker(&waker)).is_pending());
    world.fail("a test");
    gate.blocks(1);
    world.rebuild(Members::Same).unwrap();
    goes_on(world);
}

/// The futures of streams have one thread for all.
#[test]
fn wakers_of_streams() {
    turn();
    let gate = Gate::new();
    let waker = Waker::from(Arc::new(Blocks(gate.inside())));
    let stream = Stream::new(Device::new(0).unwrap()).unwrap();
    let wait = |stream: &Stream| {
        let (let_go, goes_on) = channel::<()>();
        let wait = move || {
            let _ = goes_on.recv_timeout(slower(30.0));
        };
        stream.launch_host(wait).unwrap();
        let_go
    };
    let let_go = wait(&stream);
    let mut done = stream.done();
    assert!(pin!(&mut done).poll(&mut Context::from_waker(&waker)).is_pending());
    drop(let_go);
    gate.blocks(1);
    let other = Stream::new(Device::new(0).unwrap()).unwrap();
    let let_go = wait(&other);
    let (told, tells) = channel();
    let waits = other.done();
    std::thread::spawn(move || told.send(super::block_on::block_on(waits)));
    drop(let_go);
    tells.recv_timeout(slower(20.0)).expect("the other future ends").unwrap();
}

#[derive(Debug)]
struct Kept(#[allow(dead_code)] Shown<BlocksDropped>);

/// A part of a completion.
struct Shown<T>(T);

impl<T> std::fmt::Debug for Shown<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a completion of a test")
    }
}

impl Completion for Kept {
    fn watch(&self, work: InFlight) {
        Polling::default().watch(work);
    }
}

/// The thread of the rank has the last handle of a completion.
#[test]
fn a_completion_that_is_dropped() {
    let (world, gate) = (world(1, WorldOptions::default()), Gate::new());
    let rank = world.rank(0).unwrap().with_completion(Arc::new(Kept(Shown(BlocksDropped(gate.inside())))));
    let ((begins, begun), (let_go, goes_on_now)) = (channel(), channel());
    let answer = rank.submit(Owner { begins: Some((begins, goes_on_now)), back: None, owns: None });
    let _ = begun.recv();
    drop((answer, rank));
    drop(let_go);
    gate.blocks(1);
    goes_on(world);
}

/// Blocks when it is given work, and looks at it then.
#[derive(Debug)]
struct BlocksWatching(Shown<Arc<Inside>>, Arc<dyn Completion>);

impl Completion for BlocksWatching {
    fn watch(&self, work: InFlight) {
        self.0.0.block();
        self.1.watch(work);
    }
}

/// It blocks the thread of its rank. What the device has done is answered all the same, and so is what its deadline has passed.
#[test]
fn a_completion_that_is_given_work() {
    let completions: [Arc<dyn Completion>; 2] = [Arc::new(Polling::default()), Arc::new(HostCallback)];
    for (completion, ranks) in completions.into_iter().flat_map(|each| [(Arc::clone(&each), 1), (each, 2)]) {
        let options = WorldOptions::new().with_completion(Arc::clone(&completion));
        let (world, gate) = (world(ranks, options), Gate::new());
        let rank = world.rank(0).unwrap();
        let request = || Owner { begins: None, back: None, owns: None };
        let (let_go, until) = channel();
        let earlier = rank.submit(Occupy::until(until));
        let blocks = BlocksWatching(Shown(gate.inside()), completion);
        let blocked = rank.clone().with_completion(Arc::new(blocks)).submit(request());
        gate.blocks(1);
        assert!(!earlier.is_ready());
        drop(let_go);
        earlier.wait_timeout(slower(20.0)).expect("the answer of what is done").unwrap();
        for other in &world.ranks()[1..] {
            other.submit(request()).wait_timeout(slower(20.0)).expect("the answer of another rank").unwrap();
        }
        // What is late on one of several ranks takes the world down.
        if ranks == 1 {
            let late = rank.clone().with_timeout(Duration::from_millis(50)).submit(requests::barrier());
            let late = late.wait_timeout(slower(20.0)).expect("an answer at its deadline").unwrap_err();
            assert_eq!(late.reason, Reason::Late, "{late}");
        }
        drop(gate);
        blocked.wait_timeout(slower(20.0)).expect("an answer").unwrap();
        goes_on(world);
    }
}

/// A generation may take seconds to end. What waits for the next one has its deadline meanwhile.
#[test]
fn a_request_as_its_generation_ends() {
    let world = world(1, WorldOptions::new().with_while_down(WhileDown::Queue));
    let (let_go, held) = hold(&world.rank(0).unwrap());
    world.fail("a test");
    let rank = world.rank(0).unwrap().with_timeout(Duration::from_millis(50));
    let late = rank.submit(requests::barrier()).wait_timeout(slower(20.0)).expect("an answer").unwrap_err();
    // The one that holds up the end is answered without its buffers when that is over.
    assert!(late.reason == Reason::Late && !held.is_ready(), "{late}");
    drop(let_go);
    drop(held.wait_timeout(slower(20.0)).expect("an answer"));
}

/// What is known to be stuck is not waited for again.
#[test]
fn a_request_as_its_world_ends() {
    let (world, gate) = (world(2, WorldOptions::default()), Gate::new());
    struct Stuck(Arc<Inside>);
    impl Request for Stuck {
        type Back = ();
        fn operation(&self) -> &'static str {
            "stuck"
        }
        fn enqueue(&mut self, _: &At<'_>) -> Result<()> {
            self.0.block();
            Ok(())
        }
        fn into_back(self) {}
    }
    let answer = world.rank(0).unwrap().with_timeout(Duration::from_millis(100)).submit(Stuck(gate.inside()));
    let failed = answer.wait_timeout(slower(20.0)).expect("an answer").unwrap_err();
    assert!(failed.buffers.is_none(), "{failed}");
    let start = Instant::now();
    drop(world);
    assert!(start.elapsed() < slower(8.0), "{:?}", start.elapsed());
}

/// A store that blocks when it is told that a rank has failed.
struct Silent(Box<dyn Store>, Arc<OnceLock<Arc<Inside>>>);

impl Hooks for Silent {
    fn store(&self) -> &dyn Store {
        &*self.0
    }

    fn set(&self, key: &str, value: &[u8], within: Duration) -> Result<()> {
        self.1.get().into_iter().for_each(|inside| inside.block());
        self.0.set(key, value, within)
    }
}

#[test]
fn a_store() {
    turn();
    let (place, gate, blocks) = (Threads::new(1), Gate::new(), Arc::new(OnceLock::new()));
    let store = HookedStore(Silent(Box::new(place.store(0).unwrap()), Arc::clone(&blocks)));
    let exchange = Exchange::join(store).unwrap();
    // SAFETY: it is the only rank.
    let world = unsafe { World::join(exchange, Device::new(0).unwrap(), &WorldOptions::default()) }.unwrap();
    let (let_go, held) = hold(&world.rank(0).unwrap());
    let waits = world.rank(0).unwrap().submit(requests::barrier());
    assert!(blocks.set(gate.inside()).is_ok());
    world.fail("a test");
    gate.blocks(1);
    waits.wait_timeout(slower(20.0)).expect("an answer").unwrap_err();
    drop(let_go);
    drop(held.wait_timeout(slower(20.0)).expect("an answer"));
    let start = Instant::now();
    drop(world);
    assert!(start.elapsed() < slower(8.0), "{:?}", start.elapsed());
}

/// The ranks of a checked world compare over the store. A request is answered at its deadline all the same.
#[test]
fn a_store_of_a_checked_world() {
    turn();
    let (place, gate) = (Threads::new(2), Gate::new());
    let limit = slower(1.0);
    let init = InitOptions::new().with_checked(true).with_timeout(slower(20.0));
    let options = WorldOptions::new().with_init(init).with_timeout(limit);
    let start = |rank: usize, blocks: &Arc<OnceLock<Arc<Inside>>>| {
        let store = HookedStore(Silent(Box::new(place.store(rank).unwrap()), Arc::clone(blocks)));
        let exchange = Exchange::join(store).unwrap();
        // SAFETY: all ranks do the same.
        unsafe { World::join(exchange, Device::new(rank).unwrap(), &options) }.unwrap()
    };
    let blocks = [(); 2].map(|()| Arc::new(OnceLock::new()));
    let worlds = std::thread::scope(|scope| {
        let ranks = [0, 1].map(|rank| {
            let (start, blocks) = (&start, &blocks[rank]);
            scope.spawn(move || start(rank, blocks))
        });
        ranks.map(|rank| rank.join().unwrap())
    });
    for blocks in &blocks {
        assert!(blocks.set(gate.inside()).is_ok());
    }
    let begin = Instant::now();
    let answers: Vec<_> =
        worlds.iter().enumerate().map(|(at, world)| world.rank(at).unwrap().submit(requests::barrier())).collect();
    for answer in answers {
        answer.wait_timeout(slower(30.0)).expect("an answer").unwrap_err();
    }
    let took = begin.elapsed();
    drop(worlds);
    assert!(took < limit + slower(3.0), "{took:?}");
}

/// A future that waits for room leaves nothing when it is dropped.
#[test]
fn room_that_is_given_up() {
    struct Nothing;
    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }
    let world = world(1, WorldOptions::new().with_queue(1));
    let rank = world.rank(0).unwrap();
    let (let_go, held) = hold(&rank);
    let waits = rank.submit(requests::barrier());
    let [dropped, kept] = [(); 2].map(|()| Arc::new(Nothing));
    let poll = |room: &mut std::pin::Pin<Box<gpucomm::world::requests::Room<'_>>>, waker: &Arc<Nothing>| {
        let waker = Waker::from(Arc::clone(waker));
        room.as_mut().poll(&mut Context::from_waker(&waker)).is_pending()
    };
    let mut stays = Box::pin(rank.room());
    assert!(poll(&mut stays, &dropped) && poll(&mut stays, &kept));
    assert_eq!((Arc::strong_count(&dropped), Arc::strong_count(&kept)), (1, 2));
    for _ in 0..10 {
        let mut leaves = Box::pin(rank.room());
        assert!(poll(&mut leaves, &dropped));
        assert_eq!(Arc::strong_count(&dropped), 2);
        drop(leaves);
        assert_eq!((Arc::strong_count(&dropped), Arc::strong_count(&kept)), (1, 2));
    }
    drop(let_go);
    held.wait().unwrap();
    waits.wait().unwrap();
    assert!(super::block_on::block_on(stays).is_ok());
}
