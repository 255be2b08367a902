//! A forked child that drops a server or a store of its parent, which goes on using it.

use std::time::{Duration, Instant};

use gpucomm::Error;
use gpucomm::exchange::{C10dPlace, Directory, Exchange, Store, TcpPlace, Threads};

use crate::support::slower;

/// Runs `act` in a forked child. Returns the status with which the child ends.
fn in_child(act: impl FnOnce()) -> i32 {
    // SAFETY: the child takes no lock that another thread may hold, and ends without exit handlers.
    match unsafe { libc::fork() } {
        0 => {
            act();
            // SAFETY: may be called at any time.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 1;
            // SAFETY: a place for the status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status
        }
    }
}

const WITHIN: Duration = Duration::from_secs(20);

#[test]
fn server_stays_with_the_parent() {
    let server = TcpPlace::new("127.0.0.1:0").host().unwrap();
    let store = TcpPlace::new(server.address().to_string()).connect(0, 1).unwrap();
    let mut server = Some(server);
    assert_eq!(in_child(|| drop(server.take())), 0);
    store.set("key", b"value", WITHIN).expect("the server is the parent's");
}

#[test]
fn store_of_the_parent_has_not_left() {
    let server = TcpPlace::new("127.0.0.1:0").host().unwrap();
    let place = TcpPlace::new(server.address().to_string());
    let path = std::env::temp_dir().join(format!("gpucomm-forked-store-{}", std::process::id()));
    let tcp = [0, 1].map(|rank| place.connect(rank, 2).unwrap());
    let directory = [0, 1].map(|rank| Directory::open(&path, rank, 2).unwrap());
    fn check<S: Store>([first, other]: [S; 2]) {
        let id = first.id();
        let mut first = Some(first);
        assert_eq!(in_child(|| drop(first.take())), 0);
        assert_eq!(other.ended(&[id], WITHIN).unwrap(), [None]);
        first.as_ref().unwrap().set("key", b"value", WITHIN).expect("the store is the parent's");
    }
    check(tcp);
    check(directory);
}

#[test]
fn store_that_serves_stays_with_the_parent() {
    let place = TcpPlace::new("127.0.0.1:0");
    let mut tcp = Some(place.serve(1).unwrap());
    assert_eq!(in_child(|| drop(tcp.take())), 0);
    tcp.as_ref().unwrap().set("key", b"value", WITHIN).expect("the server is the parent's");
    let mut c10d = Some(C10dPlace::new("127.0.0.1:0").serve(1).unwrap());
    assert_eq!(in_child(|| drop(c10d.take())), 0);
    c10d.as_ref().unwrap().set("key", b"value", WITHIN).expect("the server is the parent's");
}

#[test]
fn a_call_in_a_child_waits_for_no_thread_of_the_parent() {
    let place = &Threads::new(2);
    let join = |rank| Exchange::join_timeout(place.store(rank).unwrap(), slower(60.0)).unwrap();
    let [first, other] =
        std::thread::scope(|scope| [0, 1].map(|rank| scope.spawn(move || join(rank))).map(|one| one.join().unwrap()));
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| first.barrier().unwrap());
        // It waits, or comes to that soon.
        std::thread::sleep(Duration::from_millis(50));
        let code = in_child(|| {
            let begin = Instant::now();
            let error = first.all_gather(b"of a child").unwrap_err();
            assert!(matches!(error, Error::InvalidUsage { .. }), "{error}");
            assert!(begin.elapsed() < slower(20.0), "{:?}", begin.elapsed());
        });
        assert_eq!(code, 0);
        other.barrier().unwrap();
        waits.join().unwrap();
    });
}
