//! Where kernels reach the windows of other ranks.

use gpucomm::nccl::{DeviceAddress, Window};
use gpucomm::{Backend, Clique, CommBuffer, Communicator, Error, ErrorKind, Result, Stream, UniqueId, Version, sys};

use crate::support::each_version::{self, each_version};
use crate::support::process::{Role, all_succeed, spawn};
use crate::support::{Rig, assert_argument, assert_names, places, rank_counts, slower, watched};

const CHILD: &str = "device_address::child";

#[test]
#[ignore = "the body of child processes"]
fn child() {
    each_version::child(&[("told", told), ("without", without)]);
    if let Some(role) = Role::of_this_process("apart") {
        apart(role);
    }
}

#[test]
fn every_version_tells_or_says_which_does() {
    watched(240.0, || {
        each_version(CHILD, "told");
        if gpucomm::backend() != Backend::Nvidia {
            // SAFETY: read by children only, which are started after this.
            unsafe { std::env::set_var("GPUCOMM_EMULATOR_WINDOWS", "0") };
            each_version(CHILD, "without");
        }
    });
}

/// Ranks of other processes are reached on GPUs, and not on the emulator, whose kernels are functions of the process.
#[test]
fn of_other_processes() {
    watched(60.0, || {
        for ranks in rank_counts(&[2]) {
            let id = UniqueId::new().unwrap();
            let version = [("GPUCOMM_EMULATOR_NCCL", "2.29.7")];
            let children = (0..ranks).map(|rank| spawn(CHILD, "apart", (rank, ranks), &id, &version));
            all_succeed(children.collect(), slower(60.0));
        }
    });
}

fn apart(role: Role) {
    let comm = role.join().unwrap();
    let stream = Stream::new(comm.device()).unwrap();
    let x = comm.alloc_from(&stream, &[role.rank as u32; 64]).unwrap();
    stream.synchronize().unwrap();
    comm.barrier(&stream).unwrap();
    if tells() && x.is_window() {
        let own = comm.peer_address(CommBuffer::at(&x, 5), role.rank).unwrap();
        assert_eq!(read::<1>(own, &stream).unwrap(), [role.rank as u32]);
        match comm.peer_address(CommBuffer::at(&x, 5), 1 - role.rank) {
            Ok(address) => assert_eq!(read::<1>(address, &stream).unwrap(), [1 - role.rank as u32]),
            Err(error) => {
                assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
                assert_names(&error, &["peer_address", "whose memory rank"]);
            }
        }
    }
    comm.barrier(&stream).unwrap();
}

/// Whether the library tells addresses at all.
fn tells() -> bool {
    gpucomm::nccl::version().unwrap() >= Version::new(2, 29, 2)
}

/// `elements` of `T` at an address that kernels of this rank are told, as the copy engines see them.
fn read<const N: usize>(address: DeviceAddress, stream: &Stream) -> Result<[u32; N]> {
    let mut values = [0u32; N];
    // SAFETY: so many elements of a window that is there until the end of the test, and a place for them, which is waited for.
    let code = unsafe {
        sys::cudaMemcpyAsync(
            values.as_mut_ptr().cast(),
            address.as_raw(),
            size_of_val(&values),
            sys::cudaMemcpyKind::cudaMemcpyDefault,
            stream.as_raw(),
        )
    };
    assert_eq!(code, sys::cudaError::cudaSuccess);
    stream.synchronize()?;
    Ok(values)
}

fn told(ranks: usize) {
    let Some(ranks) = rank_counts(&[1, 2, 3, 4]).into_iter().rfind(|count| *count <= ranks) else {
        return;
    };
    let rig = Rig::new(ranks);
    rig.run(|comm, stream| {
        let rank = comm.rank();
        let mine: Vec<u32> = (0..4096).map(|at| (rank * 10_000 + at) as u32).collect();
        let x = comm.alloc_from(stream, &mine)?;
        stream.synchronize()?;
        comm.barrier(stream)?;
        if !tells() {
            let error = comm.peer_address(CommBuffer::at(&x, 0), 0).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            assert_names(&error, &["peer_address", "2.29.2 or newer"]);
            let error = comm.lsa_address(CommBuffer::at(&x, 0), 0).unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
            return Ok(());
        }
        if !x.is_window() {
            assert_eq!(gpucomm::backend(), Backend::Nvidia, "the emulator has windows");
            return Ok(());
        }
        for peer in 0..ranks {
            for at in [0, 1, 4000, 4093] {
                let address = comm.peer_address(CommBuffer::at(&x, at), peer)?;
                let want = [0, 1, 2].map(|more| (peer * 10_000 + at + more) as u32);
                assert_eq!(read::<3>(address, stream)?, want, "rank {peer} at {at}");
                let lsa = comm.lsa_address(CommBuffer::at(&x, at), peer)?;
                if comm.properties().is_ok_and(|properties| properties.lsa_teams == 1) {
                    assert_eq!(lsa, address);
                }
            }
        }
        let window = in_user_memory(comm, stream, ranks)?;
        refused(comm, &x, &window, stream)?;
        multimem(comm, &x);
        comm.barrier(stream)?;
        drop(window);
        Ok(())
    });
    rig.close();
}

/// The same of a window over memory of the user's.
fn in_user_memory<'c>(comm: &'c Communicator, stream: &Stream, ranks: usize) -> Result<Window<'c>> {
    let mut memory = gpucomm::nccl::alloc::<u32>(stream, 8192)?;
    memory.fill(stream, 7 + comm.rank() as u32)?;
    let window = comm.window(memory.slice(4096..))?;
    if window.unsupported().is_none() {
        comm.barrier(stream)?;
        for peer in 0..ranks {
            let address = comm.peer_address(window.at::<u32>(4095), peer)?;
            assert_eq!(read::<1>(address, stream)?, [7 + peer as u32]);
        }
        // What lies behind the last byte, of elements of any size.
        assert_argument(
            comm.peer_address(window.at::<u32>(4096), 0),
            "peer_address",
            "within the 16384 bytes",
            "16384 to 16388",
        );
        assert_argument(
            comm.lsa_address(window.at::<u64>(2048), 0),
            "lsa_address",
            "within the 16384 bytes",
            "16384 to 16392",
        );
        assert!(comm.lsa_address(window.at::<u64>(2047), comm.rank()).is_ok());
        assert!(comm.peer_address(window.at::<u64>(usize::MAX), 0).is_err());
    }
    Ok(window)
}

fn refused(comm: &Communicator, x: &CommBuffer<'_, u32>, window: &Window<'_>, stream: &Stream) -> Result<()> {
    let ranks = comm.size();
    let below = format!("a rank below {ranks}");
    assert_argument(comm.peer_address(CommBuffer::at(x, 0), ranks), "peer_address", &below, &ranks.to_string());
    assert_argument(comm.lsa_address(CommBuffer::at(x, 0), usize::MAX), "lsa_address", &below, &usize::MAX.to_string());
    let local = comm.alloc_local::<u32>(stream, 8)?;
    let outside = comm.peer_address(CommBuffer::at(&local, 0), 0);
    assert_argument(outside, "peer_address", "a window of communicator \"world\"", "");
    let part = comm.split(Some(0), comm.rank())?.expect("a part");
    assert_argument(
        part.peer_address(CommBuffer::at(x, 0), 0),
        "peer_address",
        "a window of communicator \"world/split(color=0)\"",
        "a buffer of communicator \"world\"; make it of \"world/split(color=0)\"",
    );
    if window.unsupported().is_none() {
        assert_argument(
            part.lsa_address(window.at::<u32>(0), 0),
            "lsa_address",
            "a window of communicator \"world/split(color=0)\"",
            "one of communicator \"world\"; make it of \"world/split(color=0)\"",
        );
    }
    Ok(())
}

/// No machine of the tests has switches that are on.
fn multimem(comm: &Communicator, x: &CommBuffer<'_, u32>) {
    if comm.properties().is_ok_and(|properties| properties.multimem) {
        return;
    }
    // SAFETY: all ranks of the test do so, each on a thread of its own.
    let error = unsafe { comm.multimem_address(CommBuffer::at(x, 0)) }.unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
    assert_names(&error, &["multimem_address", "switches"]);
}

/// Where ranks cannot map each other's memory there are no windows.
fn without(ranks: usize) {
    let clique = Clique::init_all(&places()[..ranks]).unwrap();
    clique
        .spmd(|comm| {
            let stream = Stream::new(comm.device())?;
            let (x, memory) = (comm.alloc::<u32>(&stream, 64)?, gpucomm::nccl::alloc::<u32>(&stream, 4096)?);
            let window = comm.window(&memory)?;
            let errors = [
                comm.peer_address(CommBuffer::at(&x, 0), 0).unwrap_err(),
                comm.lsa_address(window.at::<u32>(0), 0).unwrap_err(),
            ];
            // Memory without a window, and a window that NCCL has not made.
            let of_memory = if tells() { ErrorKind::InvalidArgument } else { ErrorKind::Unsupported };
            assert_eq!(errors.each_ref().map(Error::kind), [of_memory, ErrorKind::Unsupported], "{errors:?}");
            Ok(())
        })
        .unwrap();
}

/// After the end nothing is told.
#[test]
fn an_ended_communicator_tells_none() {
    watched(60.0, || {
        let rig = Rig::new(1);
        rig.run(|comm, stream| {
            let x = comm.alloc::<u32>(stream, 8)?;
            let _ = comm.aborter().abort("a test");
            let error = comm.peer_address(CommBuffer::at(&x, 0), 0).unwrap_err();
            assert!(!tells() || matches!(error, Error::Aborted { .. } | Error::InvalidArgument { .. }), "{error:?}");
            Ok(())
        });
    });
}
