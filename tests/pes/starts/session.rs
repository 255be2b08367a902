//! At an address that all know.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use gpucomm::nvshmem::ContextOptions;
use gpucomm::{Error, NvshmemCode};

use super::works;
use crate::support::{SIZES, Seat, as_pes, as_pes_with, errors, slower};

/// An address at which nobody listens, which PE 0 has chosen, and what listens there no longer.
fn address(seat: &Seat) -> SocketAddr {
    let own = if seat.pe == 0 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap().to_string()
    } else {
        String::new()
    };
    seat.gather(&own)[0].parse().unwrap()
}

fn options(seat: &Seat, address: SocketAddr) -> ContextOptions {
    ContextOptions::new().with_device(seat.device).with_timeout(seat.limit()).with_session(address, seat.pe, seat.n_pes)
}

fn short() -> Duration {
    slower(2.0)
}

#[test]
fn all_come_to_it_again_and_again() {
    as_pes(&SIZES, |seat| {
        let address = address(seat);
        for _ in 0..3 {
            works(seat, seat.start_as(options(seat, address)).unwrap());
        }
    });
}

/// They come in any order, and the ones that are early wait.
#[test]
fn pe_0_comes_last() {
    as_pes(&[2, 3], |seat| {
        let address = address(seat);
        if seat.pe == 0 {
            std::thread::sleep(slower(0.7));
        }
        works(seat, seat.start_as(options(seat, address)).unwrap());
    });
}

/// The exchange is for the watchdog.
#[test]
fn beside_an_exchange() {
    as_pes(&[1, 3], |seat| {
        let address = address(seat);
        let options = seat.options().with_session(address, seat.pe, seat.n_pes);
        works(seat, seat.start_as(options).unwrap());
    });
}

#[test]
fn numbers_and_ports_that_there_are_none() {
    as_pes(&[1, 2], |seat| {
        const INIT: &str = "Context::init";
        let address = address(seat);
        let with = |address, pe, n_pes| {
            seat.start_as(ContextOptions::new().with_device(seat.device).with_session(address, pe, n_pes))
        };
        for (pe, n_pes) in [(2, 2), (0, 0), (usize::MAX, 3), (1, usize::MAX)] {
            errors::argument(with(address, pe, n_pes), INIT, "a PE below the number of PEs", &pe.to_string());
        }
        let none = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        errors::argument(with(none, seat.pe, seat.n_pes), INIT, "a port that all PEs know", "127.0.0.1:0");
        works(seat, seat.start_as(options(seat, address)).unwrap());
    });
}

/// PE 0 does not come: nobody answers. The others are told so in time, and can try again.
#[test]
fn nobody_answers() {
    as_pes(&[2, 4], |seat| {
        let address = address(seat);
        if seat.pe != 0 {
            let begin = Instant::now();
            let error = seat.start_as(options(seat, address).with_timeout(short())).expect_err("PE 0 does not come");
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
            errors::names(&error, &[&address.to_string()]);
            assert!(begin.elapsed() < short() + slower(5.0), "{:?}", begin.elapsed());
        }
        seat.meet();
        works(seat, seat.start_as(options(seat, address)).unwrap());
    });
}

/// Another one does not come: all are told who.
#[test]
fn one_does_not_come() {
    as_pes(&[2, 3], |seat| {
        let address = address(seat);
        let last = seat.n_pes - 1;
        if seat.pe != last {
            let error =
                seat.start_as(options(seat, address).with_timeout(short())).expect_err("the last one does not come");
            assert!(matches!(error, Error::Timeout { .. } | Error::Departed { .. }), "{error:?}");
            if seat.pe == 0 {
                errors::names(&error, &[&last.to_string()]);
            }
        }
        seat.meet();
        works(seat, seat.start_as(options(seat, address)).unwrap());
    });
}

/// One says another number of PEs than PE 0, which waits in vain for the right one.
#[test]
fn sizes_that_differ() {
    as_pes(&[2], |seat| {
        let address = address(seat);
        let n_pes = if seat.pe == 0 { 2 } else { 3 };
        let options =
            ContextOptions::new().with_device(seat.device).with_timeout(short()).with_session(address, seat.pe, n_pes);
        let error = seat.start_as(options).expect_err("they differ");
        if seat.pe == 0 {
            assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        } else {
            assert!(matches!(error, Error::Exchange { .. }), "{error:?}");
            errors::names(&error, &["2", "3"]);
        }
    });
}

#[test]
fn an_address_that_somebody_else_has() {
    as_pes(&[1], |seat| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let error = seat.start_as(options(seat, address)).expect_err("it is taken");
        assert!(matches!(error, Error::Exchange { .. }), "{error:?}");
        errors::names(&error, &[&address.to_string(), "in use"]);
        drop(listener);
        works(seat, seat.start_as(options(seat, address)).unwrap());
    });
}

/// The library's own session is the address that it uses itself, with an id that is sent all the same.
#[test]
fn the_session_of_the_library() {
    as_pes_with(&[1, 2], &[("NVSHMEM_BOOTSTRAP_UID_SESSION_ID", "127.0.0.1:29457")], |seat| {
        works(seat, seat.start().unwrap());
    });
}

#[test]
fn the_session_of_the_library_where_no_address_is() {
    as_pes_with(&[1], &[("NVSHMEM_BOOTSTRAP_UID_SESSION_ID", "no address")], |_| {
        let error = gpucomm::nvshmem::ContextUniqueId::new().expect_err("no address");
        assert!(matches!(error, Error::Nvshmem { code: NvshmemCode(7), .. }), "{error:?}");
        errors::names(&error, &["nvshmemx_get_uniqueid"]);
    });
}
