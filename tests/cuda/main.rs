//! Devices, streams, events and memory, on the emulator and on real GPUs.
//!
//! Parts that need several devices are skipped where there is one.
#![allow(missing_docs)]

use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use gpucomm::{Device, Element, Stream, bf16, f16};

mod alias;
#[path = "../support/block_on.rs"]
mod block_on;
mod capture;
mod child;
mod contexts;
mod copy;
mod default_streams;
mod device;
mod done;
mod emulator;
mod fill;
mod foreign;
mod foreign_refused;
mod forget;
mod kernel;
mod launch;
mod lost;
mod moved;
mod multicast;
mod order;
mod owners;
mod parts;
mod pinned;
mod queue;
mod slice;
mod stream;
mod threads;
mod timeout;
mod vmm;

/// Time enough for anything that is not stuck.
pub const LONG: Duration = Duration::from_secs(60);

pub fn device() -> Device {
    Device::new(0).unwrap()
}

pub fn stream() -> Stream {
    Stream::new(device()).unwrap()
}

/// Two different devices, or nothing where there is one only.
pub fn two_devices() -> Option<(Device, Device)> {
    match Device::all().unwrap()[..] {
        [a, b, ..] => Some((a, b)),
        _ => {
            eprintln!("skipped: needs two devices");
            None
        }
    }
}

/// Random numbers from a seed that a failing test prints.
pub fn random(test: &str) -> fastrand::Rng {
    let seed =
        std::env::var("GPUCOMM_TEST_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("{test}: GPUCOMM_TEST_SEED={seed}");
    fastrand::Rng::with_seed(seed)
}

/// Holds up a stream until it is opened or dropped.
#[derive(Debug)]
pub struct Gate(Sender<()>);

impl Gate {
    pub fn close(stream: &Stream) -> Self {
        let (open, opened) = channel::<()>();
        stream
            .launch_host(move || {
                // Also when the sender is gone: a failing test must not hang.
                let _ = opened.recv_timeout(LONG);
            })
            .unwrap();
        Self(open)
    }

    pub fn open(self) {
        let _ = self.0.send(());
    }
}

/// An element from random bits; no NaN, so that values compare.
pub trait Sample: Element + std::fmt::Debug + PartialEq {
    fn sample(random: &mut fastrand::Rng) -> Self;
}

macro_rules! sample {
    ($($type:ty: |$random:ident| $value:expr;)*) => {$(
        impl Sample for $type {
            fn sample($random: &mut fastrand::Rng) -> Self {
                $value
            }
        }
    )*};
}

sample! {
    i8: |r| r.i8(..);
    u8: |r| r.u8(..);
    i32: |r| r.i32(..);
    u32: |r| r.u32(..);
    i64: |r| r.i64(..);
    u64: |r| r.u64(..);
    f16: |r| f16::from_f32(r.f32() - 0.5);
    bf16: |r| bf16::from_f32(r.f32() - 0.5);
    f32: |r| r.f32() - 0.5;
    f64: |r| r.f64() - 0.5;
    i16: |r| r.i16(..);
    u16: |r| r.u16(..);
    i128: |r| r.i128(..);
    usize: |r| r.usize(..);
    bool: |r| r.bool();
    char: |r| r.char(..);
    [u8; 2]: |r| [r.u8(..), r.u8(..)];
    [u16; 3]: |r| [r.u16(..), r.u16(..), r.u16(..)];
    [[bool; 2]; 2]: |r| [[r.bool(), r.bool()], [r.bool(), r.bool()]];
    Particle: |r| Particle { place: [r.f32(), r.f32(), r.f32()], mark: r.u16(..), kinds: [r.u8(..), r.u8(..)] };
}

/// What a user would define.
#[derive(Debug, Clone, Copy, PartialEq)]
#[repr(C)]
pub struct Particle {
    place: [f32; 3],
    mark: u16,
    kinds: [u8; 2],
}

// SAFETY: 16 bytes of numbers, and no padding between them.
unsafe impl Element for Particle {}

/// Panics unless `result` is an [`gpucomm::Error::InvalidArgument`] whose text holds each of `parts`.
#[track_caller]
pub fn refused<T>(result: gpucomm::Result<T>, parts: &[&str]) {
    let Err(error) = result else { panic!("accepted") };
    let text = error.to_string();
    assert!(matches!(error, gpucomm::Error::InvalidArgument { .. }), "{text}");
    assert!(parts.iter().all(|part| text.contains(part)), "{text}: expected {parts:?}");
}

pub fn samples<T: Sample>(random: &mut fastrand::Rng, len: usize) -> Vec<T> {
    (0..len).map(|_| T::sample(random)).collect()
}

#[cfg(feature = "float8")]
sample! {
    gpucomm::F8E4M3: |r| gpucomm::F8E4M3::from_f32(r.f32() - 0.5);
    gpucomm::F8E5M2: |r| gpucomm::F8E5M2::from_f32(r.f32() - 0.5);
}

/// Calls a generic function for each element type.
#[macro_export]
macro_rules! for_each_element {
    ($function:ident($($argument:expr),*)) => {
        $function::<i8>($($argument),*);
        $function::<u8>($($argument),*);
        $function::<i32>($($argument),*);
        $function::<u32>($($argument),*);
        $function::<i64>($($argument),*);
        $function::<u64>($($argument),*);
        $function::<gpucomm::f16>($($argument),*);
        $function::<gpucomm::bf16>($($argument),*);
        $function::<f32>($($argument),*);
        $function::<f64>($($argument),*);
        #[cfg(feature = "float8")]
        $function::<gpucomm::F8E4M3>($($argument),*);
        #[cfg(feature = "float8")]
        $function::<gpucomm::F8E5M2>($($argument),*);
        $function::<i16>($($argument),*);
        $function::<u16>($($argument),*);
        $function::<i128>($($argument),*);
        $function::<usize>($($argument),*);
        $function::<bool>($($argument),*);
        $function::<char>($($argument),*);
        $function::<[u8; 2]>($($argument),*);
        $function::<[u16; 3]>($($argument),*);
        $function::<[[bool; 2]; 2]>($($argument),*);
        $function::<$crate::Particle>($($argument),*);
    };
}
