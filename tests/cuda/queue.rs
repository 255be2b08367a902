//! What is on its way on a stream is bounded, so that no call ever waits inside the driver.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gpucomm::{DeviceBuffer, Error, Event, PinnedBuffer, Stream};

use crate::child::alone;
use crate::launch::{raw_copy, raw_fill};
use crate::{Gate, LONG, device, random, stream};

/// More than the driver's launch queue holds.
const MANY: usize = 2000;

/// The most that may be on its way on a stream. The queue has about twice as many places.
const MOST: usize = 512;

/// So many may be on their way at least.
const LEAST: usize = 16;

/// Enqueues `one` again and again on a thread of its own, and counts.
fn enqueue_many(stream: &Stream, mut one: impl FnMut(&Stream, usize) + Send + 'static) -> (JoinHandle<()>, Count) {
    let count = Count::default();
    let thread = std::thread::spawn({
        let (stream, count) = (stream.clone(), Arc::clone(&count.0));
        move || {
            for at in 0..MANY {
                one(&stream, at);
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    (thread, count)
}

#[derive(Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// What they are once none of them changes any more. A thread that has not come far is waited for: the machine may be busy.
fn settled<'a>(counts: impl IntoIterator<Item = &'a Count> + Clone, far: impl Fn(&[usize]) -> bool) -> Vec<usize> {
    let now = || counts.clone().into_iter().map(Count::now).collect::<Vec<_>>();
    let start = Instant::now();
    let mut last = (now(), start);
    while (last.1.elapsed() < Duration::from_millis(300) || !far(&last.0)) && start.elapsed() < LONG {
        std::thread::sleep(Duration::from_millis(10));
        let now = now();
        if now != last.0 {
            last = (now, Instant::now());
        }
    }
    last.0
}

/// How many are on their way together, once no more may be.
fn taken<'a>(counts: impl IntoIterator<Item = &'a Count> + Clone) -> usize {
    settled(counts, |all| all.iter().sum::<usize>() >= LEAST).iter().sum()
}

/// Something that takes a place in the queue.
type Kind = (&'static str, fn(&Stream, &mut Things));

struct Things {
    a: DeviceBuffer<u32>,
    b: DeviceBuffer<u32>,
    pinned: PinnedBuffer<u32>,
    event: Event,
    timing: Event,
    calls: Arc<AtomicUsize>,
    kept: Vec<DeviceBuffer<u32>>,
}

const KINDS: [Kind; 11] = [
    ("fill", |stream, things| things.a.fill(stream, 0x0102_0304).unwrap()),
    ("upload", |stream, things| things.b.copy_from_slice(stream, &[5; 100]).unwrap()),
    ("copy", |stream, things| things.a.copy_from(stream, &things.b).unwrap()),
    ("from pinned", |stream, things| things.b.copy_from_pinned(stream, &things.pinned).unwrap()),
    ("record", |stream, things| things.event.record(stream).unwrap()),
    ("timed record", |stream, things| things.timing.record(stream).unwrap()),
    ("wait", |stream, things| stream.wait_event(&things.event).unwrap()),
    ("bracket", |stream, things| stream.launch(&mut things.a, |stream, mut a| raw_fill(stream, &mut a, 3)).unwrap()),
    ("bracket of four", |stream, things| {
        let launched = stream.launch_many(4, (&things.a, &mut things.b), |stream, (a, mut b)| {
            (0..4).for_each(|_| raw_copy(stream, &a, &mut b));
        });
        launched.unwrap();
    }),
    ("host function", |stream, things| {
        let calls = Arc::clone(&things.calls);
        stream
            .launch_host(move || {
                calls.fetch_add(1, Ordering::SeqCst);
            })
            .unwrap();
    }),
    ("alloc and free", |stream, things| {
        // Two in turn, so that one is freed each time.
        things.kept.push(DeviceBuffer::uninit(stream, 10).unwrap());
        if things.kept.len() > 1 {
            things.kept.remove(0);
        }
    }),
];

fn things(home: &Stream) -> Things {
    Things {
        a: DeviceBuffer::zeroed(home, 100).unwrap(),
        b: DeviceBuffer::zeroed(home, 100).unwrap(),
        pinned: PinnedBuffer::from_slice(&[6; 100]).unwrap(),
        event: Event::new(device()).unwrap(),
        timing: Event::timing(device()).unwrap(),
        calls: Arc::default(),
        kept: Vec::new(),
    }
}

/// Behind a gate, enqueues of some kinds come to a halt in time; other streams go on; and in the end all is done.
fn bounded(what: &str, pick: impl FnMut(usize) -> usize + Send + 'static) {
    let mut pick = pick;
    let stream = stream();
    let mut things = things(&stream);
    stream.synchronize().unwrap();
    let gate = Gate::close(&stream);
    let (thread, count) = enqueue_many(&stream, move |stream, at| KINDS[pick(at)].1(stream, &mut things));
    let taken = taken([&count]);
    println!("{what}: {taken}");
    assert!(taken <= MOST, "{what}: {taken} are on their way");
    assert!(taken >= LEAST, "{what}: only {taken} may be on their way");
    let other = crate::stream();
    let buffer = DeviceBuffer::from_slice(&other, &[1u32, 2, 3]).unwrap();
    assert_eq!(buffer.to_vec(&other).unwrap(), [1, 2, 3]);
    gate.open();
    thread.join().unwrap();
    assert_eq!(count.now(), MANY);
    stream.synchronize_timeout(LONG).unwrap();
}

#[test]
fn each_kind_is_bounded() {
    for (at, (name, _)) in KINDS.iter().enumerate() {
        bounded(name, move |_| at);
    }
}

#[test]
fn any_mix_is_bounded() {
    let mut random = random("any_mix_is_bounded");
    for round in 0..4 {
        let mut random = fastrand::Rng::with_seed(random.u64(..));
        bounded(&format!("mix {round}"), move |_| random.usize(..KINDS.len()));
    }
}

#[test]
fn threads_share_the_bound() {
    let stream = stream();
    let gate = Gate::close(&stream);
    let threads: Vec<_> =
        (0..4).map(|_| enqueue_many(&stream, |stream, _| stream.launch_host(|| ()).unwrap())).collect();
    let taken = taken(threads.iter().map(|(_, count)| count));
    assert!((LEAST..=MOST).contains(&taken), "{taken} are on their way");
    gate.open();
    threads.into_iter().for_each(|(thread, _)| thread.join().unwrap());
    stream.synchronize_timeout(LONG).unwrap();
}

/// Streams share channels of the hardware, and with them the launch queue: each has the less room the more there are.
#[test]
fn many_streams_are_bounded() {
    let streams: Vec<_> = (0..24).map(|_| stream()).collect();
    let gates: Vec<_> = streams.iter().map(Gate::close).collect();
    let threads: Vec<_> = streams
        .iter()
        .map(|stream| {
            let mut buffer = DeviceBuffer::<u32>::zeroed(stream, 10).unwrap();
            enqueue_many(stream, move |stream, _| buffer.fill(stream, 0x0102_0304).unwrap())
        })
        .collect();
    let each = settled(threads.iter().map(|(_, count)| count), |all| all.iter().all(|count| *count >= LEAST));
    assert!(each.iter().all(|count| (LEAST..=300).contains(count)), "{each:?} are on their way on many streams");
    gates.into_iter().for_each(Gate::open);
    threads.into_iter().for_each(|(thread, _)| thread.join().unwrap());
}

/// Handles that others made of one stream share one bound, which is lower: the others take places too.
#[test]
fn handles_of_one_stream_share_the_bound() {
    let owner = stream();
    // SAFETY: `owner` outlives everything that is used on the others.
    let other = || unsafe { Stream::from_raw(owner.device(), owner.as_raw()) };
    let gate = Gate::close(&owner);
    let threads: Vec<_> =
        (0..3).map(|_| enqueue_many(&other(), |stream, _| stream.launch_host(|| ()).unwrap())).collect();
    let taken = taken(threads.iter().map(|(_, count)| count));
    assert!((LEAST..=MOST / 4).contains(&taken), "{taken} are on their way");
    gate.open();
    threads.into_iter().for_each(|(thread, _)| thread.join().unwrap());
    owner.synchronize_timeout(LONG).unwrap();
}

/// Waits that give up leave nothing behind that fills the queue, nor do drops, nor other streams that wait for this one.
#[test]
fn what_must_not_wait_does_not() {
    let (stream, other) = (stream(), stream());
    let mut buffers: Vec<_> = (0..MANY).map(|_| DeviceBuffer::<u32>::zeroed(&stream, 10).unwrap()).collect();
    stream.synchronize_timeout(LONG).unwrap();
    let gate = Gate::close(&stream);
    let (thread, count) = enqueue_many(&stream, |stream, _| stream.launch_host(|| ()).unwrap());
    taken([&count]);
    let done = Arc::new(Mutex::new(0));
    let worker = std::thread::spawn({
        let (stream, other, done) = (stream.clone(), other.clone(), Arc::clone(&done));
        move || {
            for at in 0..MANY / 2 {
                assert!(matches!(stream.synchronize_timeout(Duration::ZERO), Err(Error::Timeout { .. })));
                // `other` has to wait for what `stream` did with the buffer.
                if let Some(buffer) = buffers.get_mut(at).filter(|_| at < 100) {
                    buffer.fill(&other, 3).unwrap();
                }
                *done.lock().unwrap() += 1;
            }
            drop(buffers);
        }
    });
    let start = Instant::now();
    while !worker.is_finished() && start.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let finished = worker.is_finished();
    gate.open();
    worker.join().unwrap();
    assert!(finished, "waits and drops were held up after {} rounds", done.lock().unwrap());
    thread.join().unwrap();
    stream.synchronize_timeout(LONG).unwrap();
    other.synchronize_timeout(LONG).unwrap();
}

/// What found no room to be freed is freed when there is some.
#[test]
fn memory_comes_back() {
    alone("queue::memory_comes_back", || {
        let stream = stream();
        let (many, bytes) = (300, 4 << 20);
        let before = device().memory_info().unwrap().free;
        for _ in 0..4 {
            let buffers: Vec<_> = (0..many).map(|_| DeviceBuffer::<u8>::uninit(&stream, bytes).unwrap()).collect();
            stream.synchronize_timeout(LONG).unwrap();
            let gate = Gate::close(&stream);
            let (thread, count) = enqueue_many(&stream, |stream, _| stream.launch_host(|| ()).unwrap());
            taken([&count]);
            drop(buffers);
            gate.open();
            thread.join().unwrap();
            stream.synchronize_timeout(LONG).unwrap();
            stream.synchronize_timeout(LONG).unwrap();
        }
        // The pool may keep what one round took.
        let after = device().memory_info().unwrap().free;
        assert!(after + (many + many / 4) * bytes > before, "{before} bytes were free, {after} are");
    });
}
