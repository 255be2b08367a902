//! Broadcasts, all-gathers and all-to-alls of types.

use std::ffi::{c_int, c_void};

use gpucomm::nvshmem::TeamPe;

use super::{counts, drawn, each_size, of_types, symbol};
use crate::support::random::{Bits, same};
use crate::support::{Here, with_contexts};

type Host = unsafe extern "C" fn(i32, *mut c_void, *const c_void, usize) -> c_int;
type OnStream = unsafe extern "C" fn(i32, *mut c_void, *const c_void, usize, *mut c_void) -> c_int;
type Rooted = unsafe extern "C" fn(i32, *mut c_void, *const c_void, usize, c_int) -> c_int;
type RootedOnStream = unsafe extern "C" fn(i32, *mut c_void, *const c_void, usize, c_int, *mut c_void) -> c_int;

/// Elements for each PE.
pub const LEN: usize = 21;

/// Calls it as a program of C would, for the world.
pub fn call(here: &Here<'_>, name: &str, dest: *mut c_void, source: *const c_void, count: usize, root: usize) {
    let (function, root, team) = (symbol(name), root as c_int, here.ctx.world().unwrap().as_raw());
    let stream = here.stream.as_raw().cast();
    let _current = here.seat.device.set_current().unwrap();
    // SAFETY: the header declares them so; symmetric memory with room for so many elements of each member, and all of them call it.
    let code = unsafe {
        match (name.contains("broadcast"), name.ends_with("_on_stream")) {
            (false, false) => std::mem::transmute::<*mut c_void, Host>(function)(team, dest, source, count),
            (false, true) => std::mem::transmute::<*mut c_void, OnStream>(function)(team, dest, source, count, stream),
            (true, false) => std::mem::transmute::<*mut c_void, Rooted>(function)(team, dest, source, count, root),
            (true, true) => {
                let function = std::mem::transmute::<*mut c_void, RootedOnStream>(function);
                function(team, dest, source, count, root, stream)
            }
        }
    };
    assert_eq!(code, 0, "{name}");
}

/// What `name` does, and what this crate does in its place, come to the same; `scale` elements of the one are one of the other's.
pub fn compare_one<const N: usize>(
    here: &Here<'_>,
    name: &str,
    scale: usize,
    by: impl Fn(*mut c_void, *const c_void, usize, usize),
) {
    let (n, stream) = (here.n_pes(), here.stream);
    let alloc = || here.ctx.alloc::<[u8; N]>(LEN * n).unwrap();
    let (mut source, mut raw, mut own) = (alloc(), alloc(), alloc());
    let mut world = here.ctx.world().unwrap();
    let root = n - 1;
    source.copy_from_slice(stream, &drawn::<N>(here, name, here.pe(), LEN * n)).unwrap();
    raw.fill(stream, [u8::poison(); N]).unwrap();
    own.fill(stream, [u8::poison(); N]).unwrap();
    here.settle();
    by(raw.as_raw(), source.as_raw(), LEN * scale, root);
    here.settle();
    if name.contains("broadcast") {
        world.broadcast(own.symmetric_mut(..LEN), source.symmetric(..LEN), TeamPe(root)).unwrap();
    } else if name.contains("fcollect") {
        world.fcollect(&mut own, source.symmetric(..LEN)).unwrap();
    } else {
        world.on(stream).alltoall(&mut own, &source).unwrap();
    }
    let got = raw.to_vec(stream).unwrap().concat();
    assert!(got.iter().any(|byte| *byte != u8::poison()), "{name} has done nothing");
    same(name, &got, &own.to_vec(stream).unwrap().concat());
    here.settle();
}

fn compare<const N: usize>(here: &Here<'_>, names: &[&str]) {
    for name in names {
        compare_one::<N>(here, name, 1, |dest, source, count, root| call(here, name, dest, source, count, root));
    }
}

#[test]
fn on_the_host() {
    with_contexts(counts(), |here| {
        if here.is_whole() {
            let names = ["nvshmem_TYPE_broadcast", "nvshmem_TYPE_fcollect", "nvshmem_TYPE_alltoall"];
            each_size!(of_types(&names), compare(here));
        }
    });
}

#[test]
fn on_a_stream() {
    with_contexts(counts(), |here| {
        if here.is_whole() {
            let names = ["broadcast", "fcollect", "alltoall"].map(|what| format!("nvshmemx_TYPE_{what}_on_stream"));
            each_size!(of_types(&names.each_ref().map(String::as_str)), compare(here));
        }
    });
}
