//! By what launchers put into the environment. Their own programs are asked by the library: so here the emulator alone is, which takes their word.

use gpucomm::nvshmem::{ContextOptions, ContextUniqueId, WATCHDOG_EXIT_CODE};
use gpucomm::{Backend, Error};

use super::works;
use crate::support::{SIZES, Seat, as_pes_that_end_with, as_pes_with, errors, report, slower};

/// What the variables of a launcher are.
type Variables = &'static [(&'static str, &'static str)];

const HYDRA: Variables = &[
    ("PMI_FD", "9"),
    ("PMI_RANK", "{pe}"),
    ("PMI_SIZE", "{n_pes}"),
    ("PMI_JOBID", "{job}"),
    ("NVSHMEM_BOOTSTRAP", "pmi"),
];

const SLURM_PMI2: Variables = &[
    ("PMI_FD", "9"),
    ("PMI_RANK", "{pe}"),
    ("PMI_SIZE", "{n_pes}"),
    ("SLURM_JOB_ID", "{job}"),
    ("SLURM_STEP_ID", "3"),
    ("SLURM_STEP_NUM_TASKS", "{n_pes}"),
    ("NVSHMEM_BOOTSTRAP_PMI", "PMI-2"),
];

const SLURM_PMIX: Variables = &[
    ("PMIX_NAMESPACE", "{job}"),
    ("PMIX_RANK", "{pe}"),
    ("SLURM_STEP_NUM_TASKS", "{n_pes}"),
    ("NVSHMEM_BOOTSTRAP_PMI", "PMIX"),
];

const OPEN_MPI: Variables = &[
    ("OMPI_COMM_WORLD_RANK", "{pe}"),
    ("OMPI_COMM_WORLD_SIZE", "{n_pes}"),
    ("PMIX_NAMESPACE", "{job}"),
    ("NVSHMEM_BOOTSTRAP", "MPI"),
];

fn options(seat: &Seat) -> ContextOptions {
    ContextOptions::new().with_device(seat.device).with_timeout(seat.limit()).with_environment()
}

/// Runs `body` as PEs that have these variables.
fn launched<F: Fn(&Seat)>(sizes: &[usize], variables: Variables, body: F) {
    if gpucomm::backend() == Backend::Emulator {
        as_pes_with(sizes, variables, body);
    }
}

#[test]
fn hydra() {
    launched(&SIZES, HYDRA, |seat| works(seat, seat.start_as(options(seat)).unwrap()));
}

#[test]
fn slurm_with_pmi_2() {
    launched(&SIZES, SLURM_PMI2, |seat| works(seat, seat.start_as(options(seat)).unwrap()));
}

#[test]
fn slurm_with_pmix() {
    launched(&SIZES, SLURM_PMIX, |seat| works(seat, seat.start_as(options(seat)).unwrap()));
}

#[test]
fn open_mpi() {
    launched(&SIZES, OPEN_MPI, |seat| works(seat, seat.start_as(options(seat)).unwrap()));
}

/// Each process is the only PE, and none waits for another.
#[test]
fn no_launcher() {
    launched(&[1, 3], &[], |seat| {
        let ctx = seat.start_as(options(seat)).unwrap();
        assert_eq!((ctx.pe().0, ctx.n_pes()), (0, 1));
        ctx.barrier_all().unwrap();
        assert!(ctx.close().unwrap().is_empty());
    });
}

/// It keeps its PEs: they start again, and no other way to start is taken.
#[test]
fn again_and_only_so() {
    launched(&[1, 2, 4], HYDRA, |seat| {
        for _ in 0..3 {
            works(seat, seat.start_as(options(seat)).unwrap());
            let id = ContextUniqueId::from_bytes([0; ContextUniqueId::BYTES]);
            let error = seat
                .start_as(ContextOptions::new().with_device(seat.device).with_unique_id(&id, 0, 1))
                .expect_err("other PEs");
            assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
            errors::names(&error, &["keeps them", "ContextOptions::with_environment again"]);
            let error = seat
                .start_as(ContextOptions::new().with_device(seat.device).with_attached())
                .expect_err("it has ended");
            errors::names(&error, &["nvshmemx_init_status"]);
        }
    });
}

/// With an exchange, the watchdog knows who is missing.
#[test]
fn one_that_does_not_start() {
    if gpucomm::backend() != Backend::Emulator {
        return;
    }
    as_pes_that_end_with(
        &[2, 3],
        SLURM_PMIX,
        |seat| {
            if seat.pe == 0 {
                std::thread::sleep(slower(8.0));
                return;
            }
            let options = if seat.pe == 1 { options(seat).with_exchange(&seat.exchange) } else { options(seat) };
            let started = seat.start_as(options.with_timeout(slower(2.0)));
            panic!("PE 0 has not come: {started:?}");
        },
        |ends| {
            assert_eq!(ends[0].code, Some(0), "{}", report(ends));
            for (pe, end) in ends.iter().enumerate().skip(1) {
                assert_eq!(end.code, Some(WATCHDOG_EXIT_CODE), "{}", report(ends));
                let (who, says) = match pe {
                    1 => (format!("PE 1 of {}", ends.len()), "PE 0 has not come"),
                    _ => ("a PE without a number".to_owned(), "has no exchange to ask"),
                };
                assert!(end.text.contains(&format!("{who} has waited within NVSHMEM for")), "{}", report(ends));
                assert!(end.text.contains(says), "{}", report(ends));
            }
        },
    );
}
