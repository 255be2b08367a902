//! Under `mpirun` of Open MPI: by the environment, and over communicators of MPI.

use gpucomm::nvshmem::{ContextOptions, WATCHDOG_EXIT_CODE};
use gpucomm::{Backend, Error};

use super::works;
use crate::support::{End, SIZES, Seat, errors, report, slower, under_mpirun};

fn options(seat: &Seat) -> ContextOptions {
    ContextOptions::new().with_device(seat.device).with_timeout(seat.limit()).with_environment()
}

/// All PEs have come to the end of the test.
fn well(end: &End, size: usize) {
    let all = end.text.matches("1 passed").count() == size;
    assert!(end.code == Some(0) && all, "{}", report(std::slice::from_ref(end)));
}

/// By the plug-in for MPI, and again.
#[test]
fn by_mpi() {
    let body = |seat: &Seat| {
        for _ in 0..2 {
            works(seat, seat.start_as(options(seat)).unwrap());
        }
    };
    under_mpirun(&SIZES, &[("NVSHMEM_BOOTSTRAP", "MPI")], body, well);
}

/// The library's plug-in for PMIx asks for a certain `libpmix`.
#[test]
fn by_pmix() {
    let body = |seat: &Seat| {
        if gpucomm::backend() == Backend::Emulator {
            works(seat, seat.start_as(options(seat)).unwrap());
        }
    };
    under_mpirun(&[1, 3], &[("NVSHMEM_BOOTSTRAP_PMI", "PMIX")], body, well);
}

/// There is no PMI, by which the library asks unless it is told otherwise: each process would be alone.
#[test]
fn without_a_word_of_mpi() {
    let body = |seat: &Seat| {
        let started = seat.start_as(options(seat));
        if seat.n_pes == 1 {
            return works(seat, started.unwrap());
        }
        let error = started.expect_err("each is alone");
        assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
        errors::names(&error, &["OMPI_COMM_WORLD_SIZE", "NVSHMEM_BOOTSTRAP=MPI"]);
        seat.meet();
    };
    under_mpirun(&[1, 2], &[], body, well);
}

#[test]
fn one_that_does_not_start() {
    let body = |seat: &Seat| {
        if seat.pe == 0 {
            std::thread::sleep(slower(20.0));
            return;
        }
        let started = seat.start_as(options(seat).with_timeout(slower(2.0)));
        panic!("PE 0 has not come: {started:?}");
    };
    under_mpirun(&[2], &[("NVSHMEM_BOOTSTRAP", "MPI")], body, |end, _| {
        assert_eq!(end.code, Some(WATCHDOG_EXIT_CODE), "{}", report(std::slice::from_ref(end)));
        assert!(end.text.contains("has waited within NVSHMEM for"), "{}", report(std::slice::from_ref(end)));
    });
}

#[cfg(feature = "mpi")]
mod communicators {
    use mpi::topology::{Color, Communicator as _, SimpleCommunicator};

    use super::*;

    /// Starts over `comm`, whose ranks are the PEs.
    fn over(seat: &Seat, comm: &SimpleCommunicator) {
        let (pe, n_pes) = (comm.rank() as usize, comm.size() as usize);
        let here = Seat { pe, n_pes, device: seat.device, exchange: seat.exchange.clone() };
        for _ in 0..2 {
            let options = ContextOptions::new().with_device(seat.device).with_timeout(seat.limit());
            works(&here, here.start_as(options.with_mpi(comm).unwrap()).unwrap());
        }
    }

    #[test]
    fn of_all() {
        let body = |seat: &Seat| {
            let universe = mpi::initialize().unwrap();
            over(seat, &universe.world());
        };
        under_mpirun(&SIZES, &[], body, well);
    }

    /// The other way round, and in two halves that know nothing of each other.
    #[test]
    fn of_some() {
        let body = |seat: &Seat| {
            let universe = mpi::initialize().unwrap();
            let world = universe.world();
            let key = world.size() - world.rank();
            let turned = world.split_by_color_with_key(Color::with_value(0), key).unwrap();
            assert_eq!(turned.rank(), key - 1);
            over(seat, &turned);
            let half = world.split_by_color(Color::with_value(world.rank() % 2)).unwrap();
            over(seat, &half);
        };
        under_mpirun(&[3, 4], &[], body, well);
    }

    /// One rank does not come: the others are told in time.
    #[test]
    fn one_that_does_not_come() {
        let body = |seat: &Seat| {
            let universe = mpi::initialize().unwrap();
            if seat.pe + 1 != seat.n_pes {
                let options = ContextOptions::new().with_device(seat.device).with_timeout(slower(1.5));
                let error = options.with_mpi(&universe.world()).expect_err("the last one does not come");
                assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            }
            println!("1 passed");
            seat.meet();
            // MPI has a collective open, which its end would wait for.
            std::process::exit(0);
        };
        under_mpirun(&[2, 3], &[], body, |end, size| {
            assert_eq!(end.text.matches("1 passed").count(), size, "{}", report(std::slice::from_ref(end)));
        });
    }
}
