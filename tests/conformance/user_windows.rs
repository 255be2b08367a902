//! Windows over memory that users have. On the emulator, windows that do not fit together, or lie over each other, end the process.

use gpucomm::cuda::vmm::{Access, AddressRange, HandleTypes, MemoryProperties, PhysicalMemory};
use gpucomm::nccl::Unsupported;
use gpucomm::{Clique, Communicator, Device, DeviceBuffer, Error, InPlace, ReduceOp, Result, Stream, Version, group};

use gpucomm_reference::{Number, hashes, sums_of_hashes};

use crate::support::{Rig, assert_argument, assert_names, assert_usage, places, rank_counts, still_works, watched};

/// Elements of a page.
pub const PAGE: usize = 4096 / 4;

/// Whether the windows of ranks may have different sizes.
pub fn sizes_may_differ() -> bool {
    gpucomm::nccl::version().unwrap() >= Version::new(2, 30, 7)
}

/// Whether a communicator has windows whose configuration does not ask for them all the same.
pub fn windows_are_sound() -> bool {
    gpucomm::nccl::version().unwrap() >= Version::new(2, 29, 7)
}

/// Mapped memory of this rank, made to be shared.
pub fn mapped(device: Device, bytes: usize) -> Result<DeviceBuffer<u32>> {
    let properties = MemoryProperties::new(device).with_handle_types(HandleTypes::FD);
    Ok(PhysicalMemory::new_with(&properties, bytes)?.map(&[Access::read_write(device)])?.into_buffer())
}

/// Sums of different values of each rank, in place and not, over all of `x` from an element on.
pub fn sums_are_right(comm: &Communicator, stream: &Stream, x: &mut DeviceBuffer<u32>, from: usize) -> Result<()> {
    let len = x.len() - from;
    let mine = hashes(comm.rank(), 0, len);
    for round in 0..2 {
        x.slice_mut(from..).copy_from_slice(stream, &mine)?;
        comm.all_reduce(InPlace(x.slice_mut(from + round..)), ReduceOp::Sum, stream)?;
        let got = x.slice(from + round..).to_vec(stream)?;
        let wrong = u32::differences(&got, &sums_of_hashes(comm.size(), round, got.len()));
        assert_eq!(wrong, None, "of {} elements from {from} on, {} ranks", got.len(), comm.size());
    }
    Ok(())
}

#[test]
fn sums_are_right_before_meanwhile_and_afterwards() {
    watched(120.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                for is_mapped in [false, true] {
                    let mut x = match is_mapped {
                        true => mapped(comm.device(), 2 << 20)?,
                        false => gpucomm::nccl::alloc::<u32>(stream, 5 * PAGE)?,
                    };
                    sums_are_right(comm, stream, &mut x, 0)?;
                    for from in [0, PAGE, 3 * PAGE] {
                        let window = comm.window(x.slice(from..))?;
                        assert_eq!(window.unsupported(), None);
                        assert_eq!(window.bytes(), 4 * (x.len() - from));
                        assert!((0..ranks).all(|rank| window.bytes_on(rank) == Some(window.bytes())));
                        assert_eq!(window.bytes_on(ranks), None);
                        assert!(window.as_raw().is_some_and(|raw| !raw.is_null()));
                        sums_are_right(comm, stream, &mut x, from)?;
                        drop(window);
                        // It stays a window until all ranks come together.
                        sums_are_right(comm, stream, &mut x, from)?;
                        comm.reclaim()?;
                        sums_are_right(comm, stream, &mut x, from)?;
                        sums_are_right(comm, stream, &mut x, 0)?;
                    }
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// Several windows in one buffer, and operations from one to another.
#[test]
fn parts_of_one_buffer() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = gpucomm::nccl::alloc::<u32>(stream, 8 * PAGE)?;
                let first = comm.window(x.slice(..2 * PAGE))?;
                let second = comm.window(x.slice(4 * PAGE..7 * PAGE))?;
                assert_usage(comm.window(x.slice(PAGE..3 * PAGE)), &["window", "already"]);
                assert_usage(comm.window(&x), &["window", "already"]);
                x.fill(stream, comm.rank() as u32 + 1)?;
                let (low, mut high) = x.split_at_mut(4 * PAGE);
                comm.all_reduce((low.slice(3..3 + PAGE), high.slice_mut(5..5 + PAGE)), ReduceOp::Sum, stream)?;
                let sum = (ranks * (ranks + 1) / 2) as u32;
                assert_eq!(high.slice(5..5 + PAGE).to_vec(stream)?, vec![sum; PAGE]);
                // What lies in a window in part is neither.
                for (part, word) in [(PAGE..2 * PAGE + 1, "partly"), (3 * PAGE..4 * PAGE + 1, "partly")] {
                    let refused = comm.all_reduce(InPlace(x.slice_mut(part)), ReduceOp::Sum, stream);
                    assert_argument(refused, "all_reduce", "within a window", word);
                }
                comm.all_reduce(InPlace(x.slice_mut(2 * PAGE..4 * PAGE)), ReduceOp::Sum, stream)?;
                assert_eq!(x.slice(2 * PAGE..2 * PAGE + 2).to_vec(stream)?, [sum; 2]);
                drop(first);
                drop(second);
                comm.reclaim()?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
                comm.window(&x).map(drop)
            });
            rig.close();
        }
    });
}

/// Windows of two communicators over the same memory, dropped in either order.
#[test]
fn several_communicators_have_windows_over_one_buffer() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let (rig, other) = (Rig::new(ranks), Rig::new(ranks));
            rig.run(|comm, stream| {
                let second = other.clique.rank(comm.rank());
                let mut x = mapped(comm.device(), 2 << 20)?;
                for swapped in [false, true] {
                    let windows = [comm.window(&x)?, second.window(&x)?];
                    assert!(windows.iter().all(|window| window.unsupported().is_none()));
                    sums_are_right(comm, stream, &mut x, 0)?;
                    sums_are_right(second, stream, &mut x, 0)?;
                    stream.synchronize()?;
                    let [one, two] = windows;
                    match swapped {
                        true => drop((two, one)),
                        false => drop((one, two)),
                    }
                    comm.reclaim()?;
                    second.reclaim()?;
                }
                Ok(())
            });
            rig.close();
            other.close();
        }
    });
}

#[test]
fn one_thread_makes_windows_for_all() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let rig = Rig::new(ranks);
            let clique = &rig.clique;
            let streams: Vec<_> = clique.ranks().iter().map(|comm| Stream::new(comm.device()).unwrap()).collect();
            let mut memory: Vec<_> =
                streams.iter().map(|stream| gpucomm::nccl::alloc::<u32>(stream, 2 * PAGE).unwrap()).collect();
            let windows = clique.window(&memory).unwrap();
            assert!(windows.iter().all(|window| window.unsupported().is_none()));
            group(|g| {
                let calls = clique.ranks().iter().zip(&mut memory).zip(&streams);
                calls
                    .into_iter()
                    .try_for_each(|((comm, x), stream)| g.all_reduce(comm, InPlace(x), ReduceOp::Sum, stream))
            })
            .unwrap();
            drop(windows);
            clique.reclaim().unwrap();
            let few = clique.window(&memory[1..]);
            assert_argument(few, "Clique::window", &format!("{ranks} buffers"), &format!("{} buffers", ranks - 1));
            drop(memory);
            rig.close();
        }
    });
}

/// Memory that NCCL makes no windows of is refused by name, on all ranks, and the communicator goes on.
#[test]
fn other_memory_is_refused_by_name() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let (rig, other) = (Rig::new(ranks), Rig::new(ranks));
            rig.run(|comm, stream| {
                let pool = DeviceBuffer::<u32>::zeroed(stream, PAGE)?;
                assert_argument(comm.window(&pool), "window", "nccl::alloc", "of a pool");
                let whole = gpucomm::nccl::alloc::<u32>(stream, 4 * PAGE)?;
                assert_argument(comm.window(whole.slice(PAGE..PAGE)), "window", "nccl::alloc", "no elements");
                for odd in [1..PAGE, PAGE..3 * PAGE - 1, 64..4 * PAGE] {
                    assert_argument(comm.window(whole.slice(odd)), "window", "nccl::alloc", "pages");
                }
                let device = comm.device();
                let access = [Access::read_write(device)];
                let private: DeviceBuffer<u32> = PhysicalMemory::new(device, 2 << 20)?.map(&access)?.into_buffer();
                assert_argument(comm.window(&private), "window", "cuda::vmm", "without handles");
                let properties = MemoryProperties::new(device).with_handle_types(HandleTypes::FD);
                let step = || PhysicalMemory::new_with(&properties, 2 << 20);
                let to_read: DeviceBuffer<u32> = step()?.map(&[Access::read(device)])?.into_buffer();
                assert_argument(comm.window(&to_read), "window", "may write", "to read only");
                let mut grown: DeviceBuffer<u32> = AddressRange::reserve(8 << 20)?.map(step()?, &access)?.into_buffer();
                grown.grow(step()?)?;
                assert_argument(comm.window(&grown), "window", "cuda::vmm", "not mapped as one");
                let theirs = other.clique.rank(comm.rank()).alloc_local::<u32>(stream, PAGE)?;
                let (own, another) = ("this communicator \"world\"", "another communicator \"world\"");
                assert_argument(comm.window(&theirs), "window", own, another);
                let far = Device::all()?.into_iter().find(|one| *one != device).unwrap();
                let far = DeviceBuffer::<u32>::zeroed(&Stream::new(far)?, PAGE)?;
                assert_argument(comm.window(&far), "window", &device.to_string(), &far.device().to_string());
                assert_usage(group(|_| comm.window(&whole).map(drop)), &["window", "group"]);
                let allocated = comm.alloc::<u32>(stream, PAGE)?;
                assert_usage(comm.window(&allocated), &["window", "already"]);
                let registered = comm.register(&whole)?;
                assert_usage(comm.window(&whole), &["window", "already"]);
                drop(registered);
                let window = comm.window(&whole)?;
                assert_argument(comm.register(&whole), "register", "not registered", "a window");
                drop(window);
                // Memory of NCCL that is no window may be one; it need not fill its pages.
                let local = comm.alloc_local::<u32>(stream, 10)?;
                assert_eq!(comm.window(&local)?.unsupported(), None);
                Ok(())
            });
            rig.close();
            other.close();
            still_works(ranks);
        }
    });
}

type Body = fn(&Communicator, &Stream) -> Result<()>;

/// What ranks do not do alike is told on all of them.
#[test]
fn ranks_whose_memory_does_not_fit_together_are_told() {
    let mut cases: Vec<(&[&str], Body)> = vec![
        (&["window over mapped memory", "makes none of"], |comm, stream| {
            let plain = DeviceBuffer::<u32>::zeroed(stream, PAGE)?;
            let memory = gpucomm::nccl::alloc::<u32>(stream, PAGE)?;
            let window = if comm.rank() == 0 { comm.window(&memory) } else { comm.window(&plain) };
            window.map(drop)
        }),
        (&["window", "8192 bytes behind its start", "4096 bytes behind its start"], |comm, stream| {
            let memory = gpucomm::nccl::alloc::<u32>(stream, 4 * PAGE)?;
            let from = if comm.rank() == 0 { PAGE } else { 2 * PAGE };
            comm.window(memory.slice(from..from + PAGE)).map(drop)
        }),
        (&["window", "register"], |comm, stream| {
            let memory = gpucomm::nccl::alloc::<u32>(stream, PAGE)?;
            if comm.rank() == 0 { comm.window(&memory).map(drop) } else { comm.register(&memory).map(drop) }
        }),
        (&["all_reduce", "of window"], |comm, stream| {
            let mut both = [gpucomm::nccl::alloc::<u32>(stream, PAGE)?, gpucomm::nccl::alloc::<u32>(stream, PAGE)?];
            let _windows = [comm.window(&both[0])?, comm.window(&both[1])?];
            comm.all_reduce(InPlace(&mut both[comm.rank() % 2]), ReduceOp::Sum, stream)
        }),
        (&["window", "beside window"], |comm, stream| {
            let both = [gpucomm::nccl::alloc::<u32>(stream, 2 * PAGE)?, gpucomm::nccl::alloc::<u32>(stream, 2 * PAGE)?];
            let _first = comm.window(both[0].slice(..PAGE))?;
            comm.window(both[comm.rank() % 2].slice(PAGE..)).map(drop)
        }),
    ];
    if !sizes_may_differ() {
        cases.push((&["window", "of 4096 bytes", "of 8192 bytes"], |comm, stream| {
            let memory = gpucomm::nccl::alloc::<u32>(stream, 2 * PAGE)?;
            comm.window(memory.slice(..if comm.rank() == 0 { PAGE } else { 2 * PAGE })).map(drop)
        }));
    }
    watched(100.0, move || {
        for ranks in rank_counts(&[2]) {
            for (words, body) in &cases {
                let rig = Rig::new(ranks);
                let error = rig.try_run(body).map(drop).expect_err("ranks disagree");
                assert!(matches!(error, Error::Disagreement { .. }), "{error:?}");
                assert_names(&error, words);
            }
            still_works(ranks);
        }
    });
}

/// Ranks with windows of different sizes are told each other's.
#[test]
fn sizes_differ_where_they_may() {
    watched(60.0, || {
        if !sizes_may_differ() {
            return;
        }
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let mut x = gpucomm::nccl::alloc::<u32>(stream, (comm.rank() + 2) * PAGE)?;
                let window = comm.window(x.slice(PAGE..))?;
                for rank in 0..ranks {
                    assert_eq!(window.bytes_on(rank), Some((rank + 1) * 4096));
                }
                // A later one lies at one place all the same.
                let y = comm.alloc_from(stream, &[comm.rank() as u32; 7])?;
                comm.all_reduce((&y, x.slice_mut(PAGE..PAGE + 7)), ReduceOp::Sum, stream)?;
                assert_eq!(x.slice(PAGE..PAGE + 7).to_vec(stream)?, [(ranks * (ranks - 1) / 2) as u32; 7]);
                Ok(())
            });
            rig.close();
        }
    });
}

/// Why there is none is told, and operations go on.
#[test]
fn known_bugs_are_named() {
    watched(60.0, || {
        let expected = if windows_are_sound() { None } else { Some(Unsupported::KnownBug("endless-windows")) };
        for ranks in rank_counts(&[1, 2]) {
            let clique = Clique::init_all(&places()[..ranks]).unwrap();
            clique
                .spmd(|comm| {
                    let stream = Stream::new(comm.device())?;
                    let mut x = gpucomm::nccl::alloc::<u32>(&stream, PAGE)?;
                    let window = comm.window(&x)?;
                    assert_eq!(window.unsupported(), expected);
                    assert_eq!(window.as_raw().is_some(), expected.is_none());
                    sums_are_right(comm, &stream, &mut x, 0)
                })
                .unwrap();
            clique.close_timeout(gpucomm::default_timeout()).unwrap();
        }
    });
}
