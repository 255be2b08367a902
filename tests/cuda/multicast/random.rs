//! Random programs: what a seed draws is done with objects, and by the host, which keeps what each memory must hold.
//!
//! `GPUCOMM_TEST_SEED` is the first seed, which is printed; `GPUCOMM_RANDOM_SECONDS` how long it goes on.

use std::ops::Range;
use std::time::{Duration, Instant};

use fastrand::Rng;
use gpucomm::cuda::multicast::{BindSource, Bound, Mapped, Multicast};
use gpucomm::cuda::vmm::PhysicalMemory;
use gpucomm::{DeviceBuffer, Error, Stream};

use super::{GRAIN, buffer, complete, devices, emulated, fill, values};

/// The longest object and memory, in steps.
const MOST: usize = 3;

/// Memory of a device: by its handle first, and mapped later.
enum Place {
    Handle(PhysicalMemory),
    Buffer(DeviceBuffer<u8>),
    /// Nobody has it any more but what it is bound to.
    Gone,
}

struct Memory {
    device: usize,
    steps: usize,
    place: Place,
    /// What was written there, the last one last.
    writes: Vec<(Range<usize>, u8)>,
}

/// Some steps of a memory, at some steps of an object.
#[derive(Debug, Clone, Copy)]
struct Binding {
    device: usize,
    at: usize,
    memory: usize,
    skip: usize,
    steps: usize,
}

struct Object {
    object: Multicast<Mapped>,
    steps: usize,
    bindings: Vec<Binding>,
}

struct Program {
    rng: Rng,
    count: usize,
    streams: Vec<Stream>,
    memory: Vec<Memory>,
    objects: Vec<Object>,
    log: Vec<String>,
}

#[test]
fn programs() {
    if !emulated() {
        return;
    }
    let seconds = std::env::var("GPUCOMM_RANDOM_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let seed = std::env::var("GPUCOMM_TEST_SEED").ok().and_then(|text| text.parse().ok());
    let first: u64 = seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    let (start, mut seed) = (Instant::now(), first);
    println!("GPUCOMM_TEST_SEED={first}");
    loop {
        Program::new(seed).run(seed);
        seed += 1;
        if start.elapsed() >= Duration::from_secs_f64(seconds) {
            println!("{} programs", seed - first);
            return;
        }
    }
}

impl Program {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let count = rng.usize(2..=4);
        // Two of each device.
        let all = devices(count);
        let streams = all.iter().chain(&all).map(|device| Stream::new(*device).unwrap()).collect();
        Self { rng, count, streams, memory: Vec::new(), objects: Vec::new(), log: Vec::new() }
    }

    fn run(&mut self, seed: u64) {
        for _ in 0..60 {
            self.step(seed);
        }
        for at in 0..self.memory.len() {
            self.compare(at, seed);
        }
    }

    fn step(&mut self, seed: u64) {
        match self.rng.u8(..20) {
            0 | 1 => self.new_memory(),
            2 if self.objects.len() < 2 => self.new_object(),
            3..=6 => self.bind(),
            7 => self.unbind(),
            8..=12 => self.write(),
            13 | 14 => self.write_memory(),
            15 => self.show(),
            16 if self.rng.bool() => self.drop_memory(),
            17 if self.rng.bool() => self.end(),
            _ if !self.memory.is_empty() => {
                let at = self.rng.usize(..self.memory.len());
                self.compare(at, seed);
            }
            _ => {}
        }
    }

    fn stream(&mut self, device: usize) -> Stream {
        self.streams[device + self.count * self.rng.usize(..2)].clone()
    }

    fn new_memory(&mut self) {
        let (device, steps) = (self.rng.usize(..self.count), self.rng.usize(1..=MOST));
        self.log.push(format!("memory {} of {device}: {steps}", self.memory.len()));
        let memory = PhysicalMemory::new(devices(self.count)[device], steps * GRAIN).unwrap();
        self.memory.push(Memory { device, steps, place: Place::Handle(memory), writes: Vec::new() });
    }

    /// Bound with memory of its own for each device, in full or in part.
    fn new_object(&mut self) {
        let steps = self.rng.usize(1..=MOST);
        self.log.push(format!("object: {steps}"));
        let (mut bound, mut bindings) = (None::<Multicast<Bound>>, Vec::new());
        for device in 0..self.count {
            let own = self.rng.usize(1..=steps);
            let memory = PhysicalMemory::new(devices(self.count)[device], own * GRAIN).unwrap();
            let at = self.rng.usize(..=steps - own);
            let part = BindSource::memory(&memory).at(at * GRAIN);
            bound = Some(match bound {
                None => complete(self.count, steps * GRAIN).bind(part).unwrap(),
                Some(mut bound) => {
                    bound.bind_more(part).unwrap();
                    bound
                }
            });
            bindings.push(Binding { device, at, memory: self.memory.len(), skip: 0, steps: own });
            self.memory.push(Memory { device, steps: own, place: Place::Handle(memory), writes: Vec::new() });
        }
        self.objects.push(Object { object: bound.unwrap().map().unwrap(), steps, bindings });
    }

    /// Some memory, at some place: what does not fit is refused, and changes nothing.
    fn bind(&mut self) {
        if self.objects.is_empty() || self.memory.is_empty() {
            return;
        }
        let (to, which) = (self.rng.usize(..self.objects.len()), self.rng.usize(..self.memory.len()));
        let (memory, object) = (&self.memory[which], &mut self.objects[to]);
        let (at, skip, steps) = (self.rng.usize(..MOST), self.rng.usize(..2), self.rng.usize(1..=MOST));
        let odd = if self.rng.u8(..10) == 0 { self.rng.usize(1..GRAIN) } else { 0 };
        self.log.push(format!("bind {steps} of memory {which} from {skip} at {at} of object {to}, {odd} off"));
        let part = match &memory.place {
            Place::Handle(memory) => BindSource::memory(memory),
            Place::Buffer(buffer) => BindSource::buffer(buffer.slice(..)),
            Place::Gone => return,
        };
        let bound = object.object.bind_more(part.skip(skip * GRAIN).at(at * GRAIN + odd).bytes(steps * GRAIN));
        let device = memory.device;
        let free = |other: &Binding| other.device != device || other.at + other.steps <= at || at + steps <= other.at;
        let fits = odd == 0 && at + steps <= object.steps && skip + steps <= memory.steps;
        if fits && object.bindings.iter().all(free) {
            bound.unwrap();
            object.bindings.push(Binding { device, at, memory: which, skip, steps });
        } else {
            assert!(matches!(bound, Err(Error::InvalidArgument { .. })), "{bound:?} after {:?}", self.log);
        }
    }

    fn unbind(&mut self) {
        if self.objects.is_empty() {
            return;
        }
        let to = self.rng.usize(..self.objects.len());
        let (device, at) = (self.rng.usize(..self.count), self.rng.usize(..MOST));
        self.log.push(format!("unbind what is at {at} of object {to} for {device}"));
        let object = &mut self.objects[to];
        let unbound = object.object.unbind(devices(self.count)[device], at * GRAIN);
        match object.bindings.iter().position(|binding| (binding.device, binding.at) == (device, at)) {
            Some(found) => {
                unbound.unwrap();
                object.bindings.swap_remove(found);
            }
            None => assert!(matches!(unbound, Err(Error::InvalidArgument { .. })), "{unbound:?} after {:?}", self.log),
        }
    }

    /// To all devices, where something is bound for each.
    fn write(&mut self) {
        if self.objects.is_empty() {
            return;
        }
        let to = self.rng.usize(..self.objects.len());
        let (device, byte) = (self.rng.usize(..self.count), self.rng.u8(..));
        let stream = self.stream(device);
        let Object { object, steps, bindings } = &self.objects[to];
        let from = self.rng.usize(..steps * GRAIN);
        let end = self.rng.usize(from..=steps * GRAIN);
        self.log.push(format!("write {byte} from {from} to {end} of object {to} on {device}"));
        let bound = |device: usize| {
            let mut own: Vec<_> = bindings.iter().filter(|binding| binding.device == device).collect();
            own.sort_unstable_by_key(|binding| binding.at);
            let mut next = from;
            for binding in own {
                if (binding.at * GRAIN..(binding.at + binding.steps) * GRAIN).contains(&next) {
                    next = (binding.at + binding.steps) * GRAIN;
                }
            }
            next >= end
        };
        let part = object.part::<u8>(devices(self.count)[device], from, end - from);
        if !(0..self.count).all(bound) {
            assert!(matches!(part, Err(Error::InvalidArgument { .. })), "{part:?} after {:?}", self.log);
            return;
        }
        fill(&stream, &mut part.unwrap(), byte);
        for binding in bindings {
            let (begin, stop) = (from.max(binding.at * GRAIN), end.min((binding.at + binding.steps) * GRAIN));
            if begin < stop {
                let offset = |at: usize| at - binding.at * GRAIN + binding.skip * GRAIN;
                self.memory[binding.memory].writes.push((offset(begin)..offset(stop), byte));
            }
        }
    }

    /// To one device, by its own address.
    fn write_memory(&mut self) {
        if self.memory.is_empty() {
            return;
        }
        let (which, byte) = (self.rng.usize(..self.memory.len()), self.rng.u8(..));
        let stream = self.stream(self.memory[which].device);
        let memory = &mut self.memory[which];
        let Place::Buffer(buffer) = &mut memory.place else { return };
        let from = self.rng.usize(..memory.steps * GRAIN);
        let end = self.rng.usize(from..=memory.steps * GRAIN);
        self.log.push(format!("write {byte} from {from} to {end} of memory {which}"));
        buffer.slice_mut(from..end).fill(&stream, byte).unwrap();
        memory.writes.push((from..end, byte));
    }

    /// Memory that was known by its handle gets an address.
    fn show(&mut self) {
        if self.memory.is_empty() {
            return;
        }
        let which = self.rng.usize(..self.memory.len());
        let memory = &mut self.memory[which];
        memory.place = match std::mem::replace(&mut memory.place, Place::Gone) {
            Place::Handle(handle) => {
                self.log.push(format!("map memory {which}"));
                Place::Buffer(buffer(handle))
            }
            other => other,
        };
    }

    fn drop_memory(&mut self) {
        if !self.memory.is_empty() {
            let which = self.rng.usize(..self.memory.len());
            self.log.push(format!("drop memory {which}"));
            self.memory[which].place = Place::Gone;
        }
    }

    fn end(&mut self) {
        if self.objects.is_empty() {
            return;
        }
        let which = self.rng.usize(..self.objects.len());
        let closes = self.rng.bool();
        self.log.push(format!("{} object {which}", if closes { "close" } else { "drop" }));
        let ended = self.objects.swap_remove(which);
        if closes {
            ended.object.close().unwrap();
        }
    }

    fn compare(&mut self, which: usize, seed: u64) {
        let memory = &mut self.memory[which];
        let Place::Buffer(buffer) = &memory.place else { return };
        // What was never written holds nothing known.
        let mut want = vec![None; memory.steps * GRAIN];
        for (range, byte) in &memory.writes {
            want[range.clone()].fill(Some(*byte));
        }
        let held = values(buffer);
        let wrong = held.iter().zip(&want).position(|(held, want)| want.is_some_and(|want| want != *held));
        if let Some(at) = wrong {
            let (held, want, log) = (held[at], want[at], self.log.join("\n"));
            panic!("GPUCOMM_TEST_SEED={seed}: memory {which} holds {held} at {at}, not {want:?}, after\n{log}");
        }
    }
}
