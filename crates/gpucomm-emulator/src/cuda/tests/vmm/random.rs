//! Random sequences of what programs do with mappings, against a model.

use super::*;

/// The model knows of each grain of a room what is mapped there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grain {
    /// Which of the pieces of memory, and which grain of it.
    memory: usize,
    grain: usize,
    /// Where the mapping begins, and how many grains it has.
    begin: usize,
    len: usize,
    /// What each device may do.
    rights: [u32; 2],
}

struct Memory {
    handle: u64,
    released: bool,
    /// What each grain of it was filled with.
    values: Vec<Option<u8>>,
}

const GRAINS: usize = 12;

#[test]
fn random_sequences_do_what_the_model_does() {
    isolated!(&[], || {
        let seed =
            std::env::var("GPUCOMM_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(fastrand::u64(..));
        println!("GPUCOMM_TEST_SEED={seed}");
        let mut done = [0; 5];
        let enough = |done: &[u32; 5]| done.iter().all(|&count| count > 20);
        for round in 0..200 {
            if round >= 24 && enough(&done) {
                break;
            }
            sequence(fastrand::Rng::with_seed(seed.wrapping_add(round)), &mut done);
        }
        println!("mapped, unmapped, opened, filled, read: {done:?}");
        assert!(enough(&done), "{done:?}");
        assert_eq!(report::count(), 0);
    });
}

/// Counts in `done` what was not refused.
fn sequence(mut random: fastrand::Rng, done: &mut [u32; 5]) {
    let before = [0, 1].map(free_memory);
    let streams = [0, 1].map(TestStream::new);
    let at = room(GRAINS * GRAIN);
    let address = |grain: usize| at + (grain * GRAIN) as u64;
    let mut memories: Vec<Memory> = Vec::new();
    let mut mapped: [Option<Grain>; GRAINS] = [None; GRAINS];
    for _ in 0..600 {
        let first = random.usize(..GRAINS);
        // Any range, or that of a mapping.
        let (first, len) = match mapped[first].filter(|_| random.u32(..4) > 0) {
            Some(here) => (here.begin, here.len),
            None => (first, random.usize(1..=(GRAINS - first).min(4))),
        };
        let range = first..first + len;
        let within = |here: &Grain| here.begin >= first && here.begin + here.len <= first + len;
        // Whether the range is that of whole mappings, without a gap.
        let whole = mapped[range.clone()].iter().all(|here| here.as_ref().is_some_and(within));
        match random.u32(..10) {
            0 if memories.iter().filter(|memory| !memory.released).count() < 4 => {
                let grains = random.usize(1..5);
                let handle = memory(random.i32(0..2), grains * GRAIN);
                memories.push(Memory { handle, released: false, values: vec![None; grains] });
            }
            1 | 2 if !memories.is_empty() => {
                let which = memories.len() - 1 - random.usize(..memories.len().min(4));
                let chosen = &memories[which];
                let free = range.clone().all(|grain| mapped[grain].is_none());
                let (all, fits) = (len == chosen.values.len(), !chosen.released && free);
                let code = map(address(first), len * GRAIN, 0, chosen.handle, 0);
                assert_eq!(
                    code,
                    if all && fits {
                        0
                    } else if all || chosen.released {
                        VALUE
                    } else {
                        PARTLY
                    }
                );
                let fits = all && fits;
                done[0] += u32::from(fits);
                for grain in range.filter(|_| fits) {
                    let here = Grain { memory: which, grain: grain - first, begin: first, len, rights: [0; 2] };
                    mapped[grain] = Some(here);
                }
            }
            3 => {
                let cut = mapped[range.clone()].iter().flatten().any(|here| !within(here));
                assert_eq!(unmap(address(first), len * GRAIN), if cut { VALUE } else { 0 });
                done[1] += u32::from(whole);
                if !cut {
                    mapped[range].fill(None);
                }
            }
            4 | 5 => {
                let (device, right) = (random.usize(..2), [NONE, READ, BOTH, BOTH][random.usize(..4)]);
                let code = allow(address(first), len * GRAIN, device as i32, right);
                assert_eq!(code, if whole { 0 } else { VALUE });
                done[2] += u32::from(whole);
                if whole {
                    for grain in mapped[range].iter_mut().flatten() {
                        grain.rights[device] = right;
                    }
                }
            }
            6 if !memories.is_empty() => {
                let which = memories.len() - 1 - random.usize(..memories.len().min(4));
                let code = release(memories[which].handle);
                assert_eq!(code, if memories[which].released { VALUE } else { 0 });
                memories[which].released = true;
            }
            7 => match mapped[first] {
                Some(here) => {
                    let mut handle = 0;
                    assert_eq!(retain(&mut handle, pointer(address(first) + 77)), 0);
                    let memory = &mut memories[here.memory];
                    if memory.released {
                        (memory.handle, memory.released) = (handle, false);
                    } else {
                        assert_eq!(handle, memory.handle);
                        assert_eq!(release(handle), 0);
                    }
                }
                None => assert_eq!(retain(&mut 0, pointer(address(first))), VALUE),
            },
            kind => {
                let device = random.usize(..2);
                let here: Option<Vec<Grain>> = mapped[range.clone()].iter().copied().collect();
                // What is not mapped at all is a violation, which other tests have.
                let Some(here) = here else { continue };
                let stream = &streams[device];
                if kind == 8 {
                    let value = random.u8(..);
                    let may = here.iter().all(|grain| grain.rights[device] == BOTH);
                    let code = c!(cudaMemsetAsync(pointer(address(first)), value.into(), len * GRAIN, stream.0));
                    assert_eq!(code == SUCCESS, may, "{code:?}");
                    stream.wait();
                    done[3] += u32::from(may);
                    if may {
                        here.iter().for_each(|grain| memories[grain.memory].values[grain.grain] = Some(value));
                    }
                } else {
                    // From the last byte of the first grain to the first one of the last: across all seams.
                    let bytes = if len == 1 { 1 } else { (len - 2) * GRAIN + 2 };
                    let (start, mut got) = (address(first) + GRAIN as u64 - 1, vec![0u8; bytes]);
                    let may = here.iter().all(|grain| grain.rights[device] != NONE);
                    let kind = cudaMemcpyKind::cudaMemcpyDeviceToHost;
                    ok!(cudaSetDevice(device as i32));
                    let code = c!(cudaMemcpyAsync(got.as_mut_ptr().cast(), pointer(start), bytes, kind, stream.0));
                    assert_eq!(code == SUCCESS, may, "{code:?}");
                    stream.wait();
                    done[4] += u32::from(may);
                    for (at, grain) in here.iter().enumerate().filter(|_| may) {
                        let seen = got[at.checked_sub(1).map_or(0, |before| before * GRAIN + 1)];
                        let want = memories[grain.memory].values[grain.grain];
                        assert!(want.is_none_or(|want| seen == want), "{seen} {want:?}");
                    }
                }
            }
        }
    }
    let in_the_way = mapped.iter().any(Option::is_some);
    assert_eq!(free(at, GRAINS * GRAIN), if in_the_way { VALUE } else { 0 });
    for (first, here) in mapped.iter().enumerate().filter_map(|(first, here)| Some((first, (*here)?))) {
        if here.begin == first {
            assert_eq!(unmap(address(first), here.len * GRAIN), 0);
        }
    }
    if in_the_way {
        assert_eq!(free(at, GRAINS * GRAIN), 0);
    }
    for memory in memories.iter().filter(|memory| !memory.released) {
        assert_eq!(release(memory.handle), 0);
    }
    assert_eq!([0, 1].map(free_memory), before, "nothing is left");
}
