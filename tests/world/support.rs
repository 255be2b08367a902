//! What the tests share.

use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use fastrand::Rng;
use gpucomm::world::{
    World, WorldOptions,
    completion::{Blocking, Completion, HostCallback, Polling},
    health::Phase,
    requests::{At, Request},
};
use gpucomm::{Backend, Device, DeviceBuffer, Element, Result, Stream};

#[path = "../support/errors.rs"]
mod errors;
#[path = "../support/slower.rs"]
mod slower;

pub use errors::argument as assert_argument;
pub use slower::slower;

/// The number that a variable has.
pub fn number<T: FromStr>(variable: &str) -> Option<T> {
    std::env::var(variable).ok().and_then(|text| text.parse().ok())
}

/// What random programs begin with, `GPUCOMM_TEST_SEED`, which is printed; and how long they go on, `GPUCOMM_RANDOM_SECONDS`.
pub fn drawn() -> (u64, Duration) {
    let seed = number("GPUCOMM_TEST_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40));
    println!("GPUCOMM_TEST_SEED={seed}");
    (seed, Duration::from_secs_f64(number("GPUCOMM_RANDOM_SECONDS").unwrap_or(3.0)))
}

/// One of the completions of the crate.
pub fn completion(rng: &mut Rng) -> Arc<dyn Completion> {
    match rng.usize(..3) {
        0 => Arc::new(Polling::new().with_interval(Duration::from_micros(rng.u64(..100)))),
        1 => Arc::new(HostCallback),
        _ => Arc::new(Blocking),
    }
}

/// How many tests have worlds now, all of which are on the same devices.
static TURNS: (Mutex<usize>, Condvar) = (Mutex::new(0), Condvar::new());

/// How many tests may have worlds at a time. On GPUs, two worlds can wait for each other for good. The streams of a device share its
/// eight launch queues. An operation of one world waits there for another rank, and holds up the streams behind it, also those of the
/// other world. If that world does the same on another device, neither goes on. `GPUCOMM_EMULATOR_QUEUE_ORDER=1` shows it.
///
/// With more than two, the emulator has another such circle: while NCCL frees a communicator, its device takes nothing new.
fn most() -> usize {
    let shares_queues = gpucomm::backend() != Backend::Emulator || number("GPUCOMM_EMULATOR_QUEUE_ORDER") == Some(1);
    if shares_queues { 1 } else { 2 }
}

/// The turn of a test, until its thread ends.
struct Turn;

impl Turn {
    fn take() -> Self {
        let ((taken, given_back), most) = (&TURNS, most());
        let guard = taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = given_back.wait_timeout_while(guard, slower(300.0), |taken| *taken >= most);
        let (mut taken, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!waited.timed_out(), "a turn: other tests take too long");
        *taken += 1;
        Self
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        *TURNS.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        TURNS.1.notify_one();
    }
}

/// Waits for the turn of this test.
pub fn turn() {
    thread_local! {
        static TURN: Turn = Turn::take();
    }
    TURN.with(|_| {});
}

/// A world of at most `most` ranks.
pub fn world(most: usize, options: WorldOptions) -> World {
    turn();
    let devices = Device::all().unwrap();
    let ranks = devices.len().min(most);
    World::new_with(&devices[..ranks], &options).unwrap()
}

/// Values on a device, on a stream of their own.
pub fn on<T: Element>(device: Device, values: &[T]) -> DeviceBuffer<T> {
    DeviceBuffer::from_slice(&Stream::new(device).unwrap(), values).unwrap()
}

pub fn zeroed<T: Element>(device: Device, len: usize) -> DeviceBuffer<T> {
    DeviceBuffer::zeroed(&Stream::new(device).unwrap(), len).unwrap()
}

/// What a buffer holds.
pub fn values<T: Element>(buffer: &DeviceBuffer<T>) -> Vec<T> {
    buffer.to_vec(&Stream::new(buffer.device()).unwrap()).unwrap()
}

/// A request that holds up the thread of its rank until it is let go.
pub struct Hold(Receiver<()>, Option<Sender<()>>);

impl Hold {
    /// One, what lets it go when it is dropped, and what is told when it holds.
    pub fn new() -> (Self, Sender<()>, Receiver<()>) {
        let (let_go, waits) = channel();
        let (holds, held) = channel();
        (Self(waits, Some(holds)), let_go, held)
    }
}

impl Request for Hold {
    type Back = ();

    fn operation(&self) -> &'static str {
        "hold"
    }

    fn enqueue(&mut self, _: &At<'_>) -> Result<()> {
        drop(self.1.take());
        let _ = self.0.recv_timeout(Duration::from_secs(60));
        Ok(())
    }

    fn into_back(self) {}
}

/// Holds up a rank; lets it go when what is returned is dropped.
pub fn hold(rank: &gpucomm::world::Rank) -> (Sender<()>, gpucomm::world::Answer<()>) {
    let (request, let_go, held) = Hold::new();
    let answer = rank.submit(request);
    let _ = held.recv_timeout(Duration::from_secs(60));
    (let_go, answer)
}

/// Occupies the device until the other end of its channel is dropped.
pub struct Occupy(Option<Receiver<()>>);

impl Occupy {
    pub fn until(let_go: Receiver<()>) -> Self {
        Self(Some(let_go))
    }
}

impl Request for Occupy {
    type Back = ();

    fn operation(&self) -> &'static str {
        "occupy"
    }

    fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
        let until = self.0.take().expect("once");
        at.stream().launch_host(move || until.recv().unwrap_or_default())
    }

    fn into_back(self) {}
}

/// Asks until it is so.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < slower(60.0), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the next generation, and prints what comes before it.
pub fn until_rebuilt(world: &World) {
    let (since, mut last) = (Instant::now(), String::new());
    eventually("it is rebuilt", || {
        let health = world.health();
        let now = format!("{:?}, attempt: {:?}", health.phase, health.attempt);
        if now != last {
            println!("after {:?}: {now}", since.elapsed());
            last = now;
        }
        health.phase == Phase::Up && health.generation > 1
    });
}

/// This program again, for one test that is ignored otherwise, with these variables.
pub fn child(test: &str, set: &[(&str, &str)]) -> Killed {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("GPUCOMM_TIMEOUT", "60s").envs(set.iter().copied());
    Killed(Some(command.spawn().unwrap()))
}

/// A process that ends with the test.
pub struct Killed(Option<Child>);

impl Killed {
    /// What it has printed, once it has ended well.
    pub fn succeeds(mut self, name: &str) -> String {
        let child = self.0.take().unwrap();
        let ended = wait(child, slower(120.0));
        let (stdout, stderr) = (String::from_utf8_lossy(&ended.stdout), String::from_utf8_lossy(&ended.stderr));
        assert!(ended.status.success(), "{name}: {}\n{stdout}\n{stderr}", ended.status);
        stdout.into_owned()
    }

    /// Its code, once it has ended; `None` where it had to be killed.
    pub fn ends(mut self) -> Option<i32> {
        wait(self.0.take().unwrap(), slower(60.0)).status.code()
    }

    /// Reads what it prints until this comes.
    pub fn says(&mut self, what: &str) {
        let stdout = self.0.as_mut().and_then(|child| child.stdout.as_mut()).unwrap();
        let (mut text, mut byte) = (Vec::new(), [0]);
        while !text.ends_with(what.as_bytes()) {
            let read = std::io::Read::read(stdout, &mut byte).unwrap();
            assert!(read == 1, "it has ended, and has said {:?}", String::from_utf8_lossy(&text));
            text.extend(byte);
        }
    }

    pub fn kill(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait(mut child: Child, within: Duration) -> std::process::Output {
    let pid = child.id();
    let (done, over) = channel::<()>();
    let watch = std::thread::spawn(move || {
        if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = over.recv_timeout(within) {
            // The test fails by what is printed then.
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
    });
    let _ = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(done);
    watch.join().unwrap();
    output
}

impl Drop for Killed {
    fn drop(&mut self) {
        self.kill();
    }
}
