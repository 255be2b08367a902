//! Threads of one process that have one launch.

use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use gpucomm::exchange::Exchange;
use gpucomm::{Error, Launch};

use crate::support::{free_port, slower};

const SOON: Duration = Duration::from_millis(100);

#[test]
fn each_thread_waits_for_its_own_timeout() {
    for kind in ["tcp", "c10d"] {
        let address = format!("127.0.0.1:{}", free_port());
        let [first, second] =
            [0, 1].map(|rank| Launch::new(rank, 2, &format!("{kind}://{address}")).unwrap().with_timeout(slower(40.0)));
        thread::scope(|scope| {
            let joins = scope.spawn(|| first.join());
            while TcpStream::connect(&address).is_err() {
                assert!(!joins.is_finished(), "{:?}", joins.join());
                thread::yield_now();
            }
            // The other rank comes only after this.
            let hasty = first.clone().with_timeout(SOON);
            for error in [hasty.join().map(drop), hasty.find_local().map(drop)] {
                let error = error.expect_err("the other rank has not come");
                assert!(matches!(error, Error::Timeout { timeout: SOON, .. }), "{error:?}");
                assert!(error.to_string().contains("another thread of this process is in Launch::join"), "{error}");
            }
            let error = first.store().map(|_| ()).expect_err("it is being served");
            assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
            assert!(error.to_string().contains("another thread of this process is in Launch::join"), "{error}");
            let second = second.join().unwrap();
            joins.join().unwrap().unwrap();
            assert_eq!(hasty.join().unwrap().timeout(), SOON);
            let error = first.store().map(|_| ()).expect_err("it is served").to_string();
            assert!(error.contains("the store of Launch::join"), "{error}");
            drop(second);
        });
    }
}

#[test]
fn a_thread_joins_where_another_one_has_failed() {
    let [first, second] = {
        let store = format!("tcp://127.0.0.1:{}", free_port());
        [0, 1].map(|rank| Launch::new(rank, 2, &store).unwrap().with_timeout(slower(40.0)))
    };
    let error = first.clone().with_timeout(SOON).join().map(drop).expect_err("the other rank has not come");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    thread::scope(|scope| {
        let joins = [0, 1].map(|_| scope.spawn(|| first.join()));
        second.join().unwrap();
        joins.into_iter().for_each(|join| drop(join.join().unwrap().unwrap()));
    });
}

#[test]
fn a_store_is_served_once() {
    let launch = Launch::new(0, 1, &format!("tcp://127.0.0.1:{}", free_port())).unwrap().with_timeout(slower(20.0));
    let store = launch.store().unwrap();
    for error in [launch.store().map(|_| ()), launch.join().map(drop)] {
        let error = error.expect_err("it is served");
        assert!(matches!(error, Error::InvalidUsage { .. }), "{error:?}");
        assert!(error.to_string().contains("the store that Launch::store has returned"), "{error}");
    }
    drop(Exchange::join(store).unwrap());
    launch.join().unwrap();
}
