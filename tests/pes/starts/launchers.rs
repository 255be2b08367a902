//! Environments that say what cannot be: errors, and no PE alone where others were meant.

use std::net::{Ipv4Addr, TcpListener};

use gpucomm::nvshmem::{Context, ContextOptions, Pe};
use gpucomm::{Backend, Error, Launch};

use crate::support::{Seat, as_pes_with, errors};

fn start(seat: &Seat) -> gpucomm::Result<Context> {
    seat.start_as(ContextOptions::new().with_device(seat.device).with_timeout(seat.limit()).with_environment())
}

/// The library refuses to start, with this code.
fn refuses(seat: &Seat, codes: &[i32]) {
    let error = start(seat).expect_err("it cannot start");
    let Error::Nvshmem { code, .. } = error else { panic!("{error:?}") };
    assert!(codes.contains(&code.as_raw()), "{error:?}");
    errors::names(&error, &["nvshmemx_hostlib_init_attr"]);
    // The library has been called, and nobody knows how far it has come.
    let again = start(seat).expect_err("it was called");
    assert!(matches!(again, Error::InvalidUsage { .. }), "{again:?}");
}

#[test]
fn a_bootstrap_that_there_is_none() {
    as_pes_with(&[1], &[("NVSHMEM_BOOTSTRAP", "quark")], |seat| refuses(seat, &[7]));
}

/// An id has to be given.
#[test]
fn a_unique_id_by_the_environment() {
    as_pes_with(&[1], &[("NVSHMEM_BOOTSTRAP", "UID")], |seat| refuses(seat, &[7]));
}

#[test]
fn a_pmi_that_there_is_none() {
    as_pes_with(&[1], &[("NVSHMEM_BOOTSTRAP_PMI", "PMI-3")], |seat| refuses(seat, &[7]));
}

#[test]
fn a_plug_in_without_a_name() {
    as_pes_with(&[1], &[("NVSHMEM_BOOTSTRAP", "plugin")], |seat| refuses(seat, &[7]));
}

/// Here NVSHMEM ends the process, or loads what the emulator cannot.
#[test]
fn what_the_emulator_has_not() {
    as_pes_with(&[1], &[("NVSHMEM_BOOTSTRAP", "plugin"), ("NVSHMEM_BOOTSTRAP_PLUGIN", "mine.so")], |seat| {
        if gpucomm::backend() == Backend::Emulator {
            refuses(seat, &[3]);
        }
    });
}

#[test]
fn pmix_without_pmix() {
    as_pes_with(&[1], &[("NVSHMEM_BOOTSTRAP_PMI", "pmix")], |seat| {
        if gpucomm::backend() == Backend::Emulator {
            refuses(seat, &[7]);
        }
    });
}

#[test]
fn a_number_out_of_range() {
    as_pes_with(&[1], &[("PMI_FD", "9"), ("PMI_RANK", "1"), ("PMI_SIZE", "1"), ("PMI_JOBID", "{job}")], |seat| {
        if gpucomm::backend() == Backend::Emulator {
            refuses(seat, &[1]);
        }
    });
}

/// As under Open MPI's `mpirun`, which has no PMI: the library makes each process a PE 0 of one, and says nothing.
fn is_alone(seat: &Seat, variable: &str) {
    let error = start(seat).expect_err("each is alone");
    assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
    errors::names(&error, &[variable, "2 processes", "NVSHMEM_BOOTSTRAP=MPI"]);
}

#[test]
fn open_mpi_that_the_library_does_not_find() {
    as_pes_with(&[2], &[("OMPI_COMM_WORLD_SIZE", "{n_pes}")], |seat| is_alone(seat, "OMPI_COMM_WORLD_SIZE"));
}

#[test]
fn slurm_that_the_library_does_not_find() {
    as_pes_with(&[2], &[("SLURM_STEP_NUM_TASKS", "{n_pes}")], |seat| is_alone(seat, "SLURM_STEP_NUM_TASKS"));
}

#[test]
fn pmi_that_the_library_does_not_find() {
    as_pes_with(&[2], &[("PMI_SIZE", "{n_pes}")], |seat| is_alone(seat, "PMI_SIZE"));
}

/// One process of a launcher is alone, and so it is where what the launcher says is no number.
#[test]
fn a_launcher_of_one() {
    as_pes_with(&[1], &[("OMPI_COMM_WORLD_SIZE", "1"), ("SLURM_STEP_NUM_TASKS", "many")], |seat| {
        let ctx = start(seat).unwrap();
        assert_eq!(ctx.n_pes(), 1);
        assert!(ctx.close().unwrap().is_empty());
    });
}

/// A launch is joined again and again, by the same processes at the same address.
#[test]
fn a_launch_again_and_again() {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let variables = [
        ("GPUCOMM_RANK", "{pe}"),
        ("GPUCOMM_SIZE", "{n_pes}"),
        ("GPUCOMM_LOCAL_RANK", "{pe}"),
        ("GPUCOMM_STORE", &format!("tcp://127.0.0.1:{port}")),
    ];
    as_pes_with(&[2], &variables, |seat| {
        for _ in 0..6 {
            let launch = Launch::from_env().unwrap();
            let ctx =
                seat.start_as(ContextOptions::new().with_launch(&launch).unwrap().with_timeout(seat.limit())).unwrap();
            assert_eq!((ctx.pe(), ctx.n_pes()), (Pe(seat.pe), seat.n_pes));
            drop(ctx.alloc::<u32>(100).unwrap());
            assert!(ctx.close().unwrap().is_empty());
        }
    });
}
