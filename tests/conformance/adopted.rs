//! What other libraries have made of NCCL, and what they are given: communicators, memory, configurations.

use std::ptr;

use gpucomm::nccl::{CommState, Config, InitOptions, error_string};
use gpucomm::{Clique, Communicator, Device, Error, InPlace, ReduceOp, Result, Stream, UniqueId, sys};

use crate::failures::{abort, assert_aborted};
use crate::support::{places, rank_counts, slower, still_works, watched};

/// All ranks of a communicator, as another library starts them.
fn started(ranks: usize) -> Vec<sys::ncclComm_t> {
    let id = UniqueId::new().unwrap();
    let id = sys::ncclUniqueId { internal: id.as_bytes().map(|byte| std::ffi::c_char::from_ne_bytes([byte])) };
    let mut raw = vec![ptr::null_mut(); ranks];
    // SAFETY: the shim writes the whole struct; the places for the handles are written when the group ends.
    unsafe {
        let mut config = std::mem::MaybeUninit::uninit();
        sys::gpucommNcclConfigInit(config.as_mut_ptr());
        let mut config = config.assume_init();
        config.blocking = 1;
        assert_eq!(sys::ncclGroupStart(), sys::ncclResult_t::ncclSuccess);
        for (rank, raw) in raw.iter_mut().enumerate() {
            let _current = Device::new(rank).unwrap().set_current().unwrap();
            let code = sys::ncclCommInitRankConfig(raw, ranks as i32, id, rank as i32, &raw mut config);
            assert_eq!(code, sys::ncclResult_t::ncclSuccess);
        }
        assert_eq!(sys::ncclGroupEnd(), sys::ncclResult_t::ncclSuccess);
    }
    raw
}

/// Where all communicators share their resources with their parts, whoever has made them.
pub fn is_refused_where_all_share() {
    let raw = started(1);
    // SAFETY: just started, and nobody else has it.
    let error = unsafe { Communicator::from_raw(raw[0]) }.expect_err("it shares");
    assert!(matches!(error, Error::InvalidArgument { what: "NCCL_COMM_SPLIT_SHARE_RESOURCES", .. }), "{error}");
    // SAFETY: it was refused, and is ours still.
    assert_eq!(unsafe { sys::ncclCommDestroy(raw[0]) }, sys::ncclResult_t::ncclSuccess);
}

fn adopted(ranks: usize) -> Vec<Communicator> {
    // SAFETY: just started, and nobody else has them; the tests issue the same on all ranks, but where they abort.
    let comms = unsafe { Communicator::from_raw_all(&started(ranks)) }.unwrap();
    for (rank, comm) in comms.iter().enumerate() {
        assert_eq!((comm.rank(), comm.size(), comm.device().ordinal()), (rank, ranks, rank as i32));
        assert!(comm.as_raw().is_some() && comm.is_active());
    }
    comms
}

/// Runs `body` on all ranks at the same time.
fn on_all(comms: &[Communicator], body: impl Fn(&Communicator, &Stream) -> Result<()> + Sync) {
    std::thread::scope(|scope| {
        let run = |comm| body(comm, &Stream::new(Communicator::device(comm))?);
        let threads: Vec<_> = comms.iter().map(|comm| scope.spawn(move || run(comm))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
}

#[test]
fn communicators_of_others_work() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let comms = adopted(ranks);
            on_all(&comms, |comm, stream| {
                let mut x = comm.alloc_from(stream, &[comm.rank() as i32; 1000])?;
                for _ in 0..3 {
                    comm.all_reduce(InPlace(&mut x), ReduceOp::Max, stream)?;
                }
                assert_eq!(x.to_vec(stream)?, [comm.size() as i32 - 1; 1000]);
                Ok(())
            });
            std::thread::scope(|scope| {
                let close = |comm: Communicator| scope.spawn(move || comm.close_timeout(slower(10.0)));
                let closing: Vec<_> = comms.into_iter().map(close).collect();
                closing.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
            });
            still_works(ranks);
        }
    });
}

/// One that is aborted takes the others of its communicator along.
#[test]
fn communicators_of_others_end_together() {
    watched(60.0, || {
        for ranks in rank_counts(&[2, 4]) {
            let comms = adopted(ranks);
            let stream = Stream::new(comms[0].device()).unwrap();
            let mut x = comms[0].alloc_local::<i32>(&stream, 10).unwrap();
            on_all(&comms, |comm, stream| {
                comm.all_reduce(InPlace(&mut comm.alloc_local::<i32>(stream, 10)?), ReduceOp::Sum, stream)
            });
            comms[0].all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream).unwrap();
            abort(&comms[0]);
            assert_aborted(x.to_vec(&stream));
            drop(x);
            assert!(comms.iter().all(|comm| !comm.is_active() && comm.as_raw().is_none()));
            assert!(comms.iter().all(|comm| !matches!(comm.state(), CommState::Active)));
            drop(comms);
            still_works(ranks);
        }
    });
}

#[test]
fn what_is_no_communicator_is_refused() {
    // SAFETY: no communicator.
    let refused = unsafe {
        [Communicator::from_raw(ptr::null_mut()).map(drop), Communicator::from_raw_all(&[ptr::null_mut()]).map(drop)]
    };
    for refused in refused {
        let error = refused.expect_err("taken");
        assert!(matches!(error, Error::InvalidArgument { .. }) && error.to_string().contains("got null"), "{error}");
    }
    watched(60.0, || {
        let [raw] = started(1)[..] else { panic!("one rank") };
        // SAFETY: refused, and taken only then.
        unsafe {
            let error = Communicator::from_raw_all(&[raw, raw]).expect_err("one rank twice");
            assert!(error.to_string().contains("another rank beside rank 0 of 1, got rank 0 of 1"), "{error}");
            drop(Communicator::from_raw(raw).unwrap());
        }
    });
}

/// Memory of NCCL that belongs to no communicator outlives some, and goes by itself.
#[test]
fn memory_of_nccl_is_for_any_communicator() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2, 4]) {
            let streams: Vec<_> =
                Device::all().unwrap().into_iter().take(ranks).map(|device| Stream::new(device).unwrap()).collect();
            let mut memory: Vec<_> =
                streams.iter().map(|stream| gpucomm::nccl::alloc::<i32>(stream, 2048).unwrap()).collect();
            for (buffer, stream) in memory.iter_mut().zip(&streams) {
                assert_eq!((buffer.to_vec(stream).unwrap(), buffer.len()), (vec![0; 2048], 2048));
                buffer.fill(stream, 1).unwrap();
            }
            for round in 0..2 {
                let clique = Clique::init_all(&places()[..ranks]).unwrap();
                let each: Vec<_> = memory.iter_mut().map(std::sync::Mutex::new).collect();
                let done = clique.spmd(|comm| {
                    let mut x = each[comm.rank()].lock().unwrap();
                    let registration = comm.register(&**x)?;
                    comm.all_reduce(InPlace(&mut **x), ReduceOp::Sum, &streams[comm.rank()])?;
                    // Whole pages, mapped as one.
                    let old = gpucomm::nccl::version()? < gpucomm::Version::new(2, 28, 7);
                    assert_eq!(registration.without_effect().is_some(), old, "{registration:?}");
                    x.to_vec(&streams[comm.rank()])
                });
                for values in done.unwrap() {
                    assert_eq!(values, [(ranks as i32).pow(round + 1); 2048]);
                }
                clique.close_timeout(slower(10.0)).unwrap();
            }
            // Dropped while it is used: it goes when that is done.
            let (x, mut y) = (memory.swap_remove(0), memory.pop());
            let mut copy = gpucomm::DeviceBuffer::<i32>::zeroed(&streams[0], 2048).unwrap();
            copy.copy_from(&streams[0], &x).unwrap();
            drop(x);
            if let Some(y) = &mut y {
                y.fill(&streams[y.device().ordinal() as usize], 3).unwrap();
            }
            drop((y, memory));
            assert_eq!(copy.to_vec(&streams[0]).unwrap(), [(ranks as i32).pow(2); 2048]);
        }
        let stream = Stream::new(Device::new(0).unwrap()).unwrap();
        assert!(gpucomm::nccl::alloc::<i32>(&stream, 0).unwrap().to_vec(&stream).unwrap().is_empty());
        let error = gpucomm::nccl::alloc::<f64>(&stream, usize::MAX / 2).map(drop).expect_err("taken");
        assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
    });
}

#[test]
fn a_configuration_may_be_changed_at_last() {
    watched(60.0, || {
        for ranks in rank_counts(&[1, 2]) {
            let devices = &places()[..ranks];
            // SAFETY: numbers that NCCL takes for these fields, the same on all ranks.
            let config = unsafe { Config::new().with_min_ctas(1).with_raw(|config| config.maxCTAs = 4) };
            let clique = Clique::init_all_with(devices, &InitOptions::new().with_config(config)).unwrap();
            clique.close_timeout(slower(10.0)).unwrap();
            let refused = |config: Config, word: &str| {
                let error = Clique::init_all_with(devices, &InitOptions::new().with_config(config));
                let error = error.map(drop).expect_err("taken").to_string();
                assert!(error.contains(word), "{word}: {error}");
            };
            // SAFETY: nothing is made with these.
            unsafe {
                refused(Config::new().with_raw(|config| config.blocking = 0), "blocking: expected 1, got 0");
                refused(Config::new().with_raw(|config| config.splitShare = 1), "splitShare: expected ");
                refused(
                    Config::new().with_split_share(true).with_raw(|config| config.splitShare = 0),
                    "splitShare: expected 1, got 0",
                );
                #[cfg(nccl_ge_2_27)]
                refused(Config::new().with_raw(|config| config.CTAPolicy = 2), "CTAPolicy: expected ");
                // What NCCL refuses is its error.
                refused(Config::new().with_raw(|config| config.maxCTAs = -5), "ncclCommInitRankConfig");
            }
        }
    });
}

#[test]
fn codes_have_texts() {
    let codes =
        [sys::ncclResult_t::ncclSuccess, sys::ncclResult_t::ncclInvalidUsage, sys::ncclResult_t::ncclSystemError];
    let texts: Vec<_> = codes.into_iter().map(error_string).collect();
    assert!(texts.iter().all(|text| !text.is_empty()) && texts[1] != texts[2], "{texts:?}");
    assert!(!gpucomm::cuda::error_string(sys::cudaError::cudaErrorMemoryAllocation).is_empty());
}
