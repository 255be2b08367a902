use super::*;
use std::sync::atomic::AtomicPtr;
use std::thread;

#[test]
fn one_holder_at_a_time() {
    let gate = Gate::new(0u64, None);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    loop {
                        if let Some(mut value) = gate.try_lock() {
                            *value += 1;
                            break;
                        }
                        thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(*gate.try_lock().unwrap(), 40_000);
}

#[test]
fn a_lock_is_shared_and_a_door_is_not() {
    let lock = Lock::new(0);
    let gates = [1, 2].map(|value| Gate::new(value, Some(Arc::clone(&lock))));
    let [one, other] = &gates;
    let held = one.try_lock().unwrap();
    assert!(one.try_lock().is_none() && other.try_lock().is_none());
    assert!(one.begin_visit("test", 7) && other.is_empty());
    other.shut();
    one.end_visit();
    drop(held);
    let held = other.try_lock().unwrap();
    assert!(!other.begin_visit("test", 7) && one.try_lock().is_none());
    drop(held);
    drop(one.try_lock().unwrap());
}

#[test]
fn several_at_once_take_each_lock_once() {
    let lock = Lock::new(0);
    let (one, other) = (Gate::new(1, Some(Arc::clone(&lock))), Gate::new(2, Some(lock)));
    let (alone, stranger) = (Gate::new(3, None), Gate::new(4, Some(Lock::new(0))));
    let mut all = LockedAll::new();
    assert!(!all.join(&one), "nobody has its lock");
    all.add(one.try_lock().unwrap());
    assert!(!all.join(&one), "it is there already");
    assert!(all.join(&other) && !all.join(&other));
    assert!(!all.join(&alone) && !all.join(&stranger));
    all.add(alone.try_lock().unwrap());
    all.values().for_each(|value| *value *= 10);
    assert_eq!(all.values().map(|value| *value).collect::<Vec<_>>(), [10, 20, 30]);
    assert!(one.try_lock().is_none() && other.try_lock().is_none() && alone.try_lock().is_none());
    drop(all);
    assert_eq!(*other.try_lock().unwrap(), 20);
    drop((one.try_lock().unwrap(), alone.try_lock().unwrap(), stranger.try_lock().unwrap()));
}

/// Threads that use either of two gates with one lock.
#[test]
fn one_holder_of_a_shared_lock() {
    let lock = Lock::new(0);
    let gates = [Gate::new((), Some(Arc::clone(&lock))), Gate::new((), Some(lock))];
    let inside = AtomicU32::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (gate, inside) = (&gates[thread % 2], &inside);
            scope.spawn(move || {
                for _ in 0..2000 {
                    while gate
                        .try_lock()
                        .map(|_held| {
                            assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                            inside.fetch_sub(1, Ordering::Relaxed);
                        })
                        .is_none()
                    {
                        thread::yield_now();
                    }
                }
            });
        }
    });
}

#[test]
fn a_panic_gives_the_lock_back() {
    let gate = Gate::new((), None);
    let caught = thread::scope(|scope| {
        scope
            .spawn(|| {
                let _locked = gate.try_lock().unwrap();
                panic!("under the lock");
            })
            .join()
    });
    assert!(caught.is_err());
    assert!(gate.try_lock().is_some());
}

#[test]
fn a_shut_gate_lets_nobody_in() {
    let gate = Gate::new((), None);
    let _locked = gate.try_lock().unwrap();
    assert!(gate.begin_visit("test", 7));
    assert!(gate.visit() % 2 == 1 && !gate.is_empty());
    assert_eq!(gate.visitor(), Some(("test", 7)));
    gate.shut();
    assert!(!gate.is_empty(), "who is inside stays until it leaves");
    gate.end_visit();
    assert!(gate.is_empty() && gate.visitor().is_none());
    assert!(!gate.begin_visit("test", 7));
    assert!(gate.is_empty());
    assert_eq!(gate.beside(|| 1), None);
}

#[test]
fn a_promise_is_kept_though_the_gate_is_shut() {
    let gate = Gate::new((), None);
    let _locked = gate.try_lock().unwrap();
    assert!(gate.promise() && gate.promise());
    assert!(!gate.is_empty());
    gate.shut();
    assert!(!gate.promise());
    assert_eq!(gate.beside(|| 1), None);
    for _ in 0..2 {
        assert!(gate.begin_visit("test", 7));
        gate.end_visit();
        assert!(!gate.is_empty());
        gate.redeem();
    }
    assert!(gate.is_empty() && !gate.begin_visit("test", 7));
}

/// Visitors and readers use what is freed once the gate is shut and empty.
#[test]
fn nobody_is_inside_what_is_freed() {
    for _ in 0..300 {
        let gate = Gate::new((), None);
        let value = AtomicPtr::new(Box::into_raw(Box::new(7)));
        // SAFETY: read inside only, and freed once the gate is shut and empty.
        let look = || assert_eq!(unsafe { *value.load(Ordering::Relaxed) }, 7);
        thread::scope(|scope| {
            scope.spawn(|| {
                let _locked = gate.try_lock().unwrap();
                while gate.begin_visit("test", 7) {
                    look();
                    gate.end_visit();
                }
            });
            scope.spawn(|| while gate.beside(look).is_some() {});
            scope.spawn(|| {
                thread::yield_now();
                gate.shut();
                while !gate.is_empty() {
                    std::hint::spin_loop();
                }
                // SAFETY: from `Box::into_raw`, freed once.
                drop(unsafe { Box::from_raw(value.swap(std::ptr::null_mut(), Ordering::Relaxed)) });
            });
        });
    }
}
