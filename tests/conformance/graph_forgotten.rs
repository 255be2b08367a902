//! What NCCL has registered for graphs that are gone: it knows that by its addresses for a while. On the emulator, memory at addresses of which
//! NCCL still knows other memory ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gpucomm::cuda::vmm::{Access, AddressRange, PhysicalMemory};
use gpucomm::nccl::Local;
use gpucomm::{Clique, CommBuffer, Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, Version};

use crate::graph_registered::properties;
use crate::registration::{large, mapped};
use crate::support::{Rig, places, rank_counts, slower, watched};

/// Captures, launches and drops a graph that sums into `x`, where all elements are 1.
fn once(comm: &Communicator, stream: &Stream, x: &mut CommBuffer<'_, u32, Local>) -> Result<()> {
    let mut ones = comm.alloc_local::<u32>(stream, x.len())?;
    ones.fill(stream, 1)?;
    let graph = stream.capture(|lent| comm.all_reduce((&ones, &mut *x), ReduceOp::Sum, lent))?;
    graph.launch(stream)?;
    let sums = x.to_vec(stream)?;
    assert!(sums.iter().all(|sum| *sum == comm.size() as u32), "{:?}", &sums[..3]);
    Ok(())
}

/// Memory comes and goes with its graphs, and peers never write to what was there before.
#[test]
fn memory_that_goes_with_its_graph() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                for _ in 0..4 {
                    let mut x = comm.alloc_local::<u32>(stream, large() / 4)?;
                    once(comm, stream, &mut x)?;
                    drop(x);
                    // Longer than it takes to free what nobody uses.
                    thread::sleep(slower(0.15));
                }
                // What is registered meets the same records.
                let mut x = comm.alloc_local::<u32>(stream, large() / 4)?;
                let registered = comm.register(&x)?;
                x.fill(stream, 3)?;
                comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, stream)?;
                assert_eq!(x.slice(..4).to_vec(stream)?, [3 * ranks as u32; 4]);
                drop(registered);
                comm.reclaim()
            });
            rig.close();
        }
    });
}

/// Waits until so many are freed; whether they are.
fn comes_to(freed: &AtomicUsize, count: usize, time: Duration) -> bool {
    let end = Instant::now() + time;
    while freed.load(Ordering::SeqCst) < count {
        if Instant::now() > end {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Memory of a pool, and who counts that it is freed.
fn owned(stream: &Stream, freed: &Arc<AtomicUsize>) -> Result<DeviceBuffer<u8>> {
    struct Owner(Option<DeviceBuffer<u8>>, Arc<AtomicUsize>);

    impl Drop for Owner {
        fn drop(&mut self) {
            drop(self.0.take());
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }

    let own = DeviceBuffer::from_slice(stream, &[5u8; 9])?;
    let (device, ptr) = (own.device(), own.as_raw());
    // SAFETY: the memory goes with its owner; the stream uses it next.
    unsafe { DeviceBuffer::from_raw_parts(device, ptr, 9, Owner(Some(own), Arc::clone(freed))) }
}

/// Memory of a graph that is gone stays until NCCL has forgotten it: so many groups later, or when the communicator ends. What was part of no
/// operation of a communicator goes at once.
#[test]
fn memory_is_freed_when_nccl_has_forgotten_it() {
    watched(120.0, || {
        for ranks in rank_counts(&[2, 4]) {
            for many in [true, false] {
                let rig = Rig::new(ranks);
                let all: Vec<_> = (0..ranks).map(|_| Arc::new(AtomicUsize::new(0))).collect();
                rig.run(|comm, stream| {
                    let freed = &all[comm.rank()];
                    let mut x = mapped(comm, (0, large()), freed)?;
                    let mut y = mapped(comm, (0, large()), freed)?;
                    x.fill(stream, 1)?;
                    let pool = owned(stream, freed)?;
                    let graph = stream.capture(|lent| {
                        y.fill(lent, 3)?;
                        comm.all_reduce((&pool, x.slice_mut(..9)), ReduceOp::Sum, lent)?;
                        comm.all_reduce(InPlace(&mut x), ReduceOp::Max, lent)
                    })?;
                    graph.launch(stream)?;
                    assert_eq!(
                        x.slice(6..12).to_vec(stream)?,
                        [5 * ranks as u8, 5 * ranks as u8, 5 * ranks as u8, 1, 1, 1]
                    );
                    drop((x, y, pool, graph));
                    stream.synchronize()?;
                    assert!(comes_to(freed, 2, slower(5.0)), "the memory of a fill stays, or that of a pool");
                    let mut z = DeviceBuffer::<u8>::zeroed(stream, 10)?;
                    let mut groups = |count: usize| {
                        (0..count).try_for_each(|_| comm.all_reduce(InPlace(&mut z), ReduceOp::Sum, stream))
                    };
                    // Fewer than NCCL may need to look.
                    groups(10)?;
                    stream.synchronize()?;
                    thread::sleep(slower(3.0));
                    assert_eq!(freed.load(Ordering::SeqCst), 2, "NCCL may know it");
                    if many {
                        groups(40)?;
                        let known = gpucomm::nccl::version()? < Version::new(2, 31, 0);
                        assert_eq!(comes_to(freed, 3, slower(if known { 20.0 } else { 3.0 })), known);
                    }
                    // It waits for nothing that stays.
                    comm.reclaim()
                });
                rig.close();
                for freed in &all {
                    assert!(comes_to(freed, 3, slower(10.0)), "the communicator has ended");
                }
            }
        }
    });
}

/// Mapped memory grows as soon as the graph is gone: what NCCL knows of it stays where it is.
#[test]
fn mapped_memory_grows_behind_a_graph() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                let memory = || PhysicalMemory::new_with(&properties(comm), 1);
                let range = AddressRange::reserve(4 * memory()?.bytes())?;
                let mapping = range.map(memory()?, &[Access::read_write(comm.device())])?;
                let mut x = mapping.into_buffer::<u8>();
                for round in 1..=3 {
                    let last = x.len() - 1;
                    x.fill(stream, round)?;
                    let graph = stream.capture(|lent| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, lent))?;
                    graph.launch(stream)?;
                    assert_eq!(x.slice(last..).to_vec(stream)?, [round * ranks as u8]);
                    drop(graph);
                    x.grow(memory()?)?;
                    assert_eq!(x.slice(last..=last).to_vec(stream)?, [round * ranks as u8]);
                }
                Ok(())
            });
            rig.close();
        }
    });
}

/// Who gets a communicator goes on with what NCCL knows of it.
#[test]
fn memory_of_a_communicator_that_is_given_away_stays() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let comms = Clique::init_all(&places()[..ranks]).unwrap().into_ranks();
            let freed = Arc::new(AtomicUsize::new(0));
            let give = |comm: Communicator| {
                let stream = Stream::new(comm.device())?;
                let mut x = mapped(&comm, (0, large()), &freed)?;
                x.fill(&stream, 1)?;
                let graph = stream.capture(|lent| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, lent))?;
                graph.launch(&stream)?;
                drop((x, graph));
                comm.into_raw().map(|raw| raw.expose_provenance())
            };
            let given: Vec<_> = thread::scope(|scope| {
                let give = &give;
                let threads: Vec<_> = comms.into_iter().map(|comm| scope.spawn(move || give(comm))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
            });
            thread::sleep(slower(1.0));
            assert_eq!(freed.load(Ordering::SeqCst), 0);
            let given: Vec<_> = given.into_iter().map(std::ptr::with_exposed_provenance_mut).collect();
            // SAFETY: they were given away, with nothing registered that is used, and these are all that the process has.
            let comms = unsafe { Communicator::from_raw_all(&given) }.unwrap();
            let all = gpucomm::nccl::close_all_timeout(comms, slower(20.0));
            all.into_iter().for_each(|closed| closed.unwrap());
            assert_eq!(freed.load(Ordering::SeqCst), 0);
        }
    });
}

/// The window under a buffer goes when all have dropped it, and its memory when NCCL has forgotten the graph.
#[test]
fn windows_in_graphs() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let rig = Rig::new(ranks);
            rig.run(|comm, stream| {
                for value in 1..4u32 {
                    let mut x = comm.alloc::<u32>(stream, large() / 4)?;
                    x.fill(stream, value)?;
                    let graph = stream.capture(|lent| comm.all_reduce(InPlace(&mut x), ReduceOp::Sum, lent))?;
                    graph.launch(stream)?;
                    assert_eq!(x.slice(..9).to_vec(stream)?, [value * ranks as u32; 9]);
                    drop((x, graph));
                    comm.reclaim()?;
                }
                Ok(())
            });
            rig.close();
        }
    });
}
