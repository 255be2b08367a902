//! A forked child that drops a server or a store of its parent, which goes on using it.

use std::time::Duration;

use gpucomm::exchange::{C10dPlace, Directory, Store, TcpPlace};

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
