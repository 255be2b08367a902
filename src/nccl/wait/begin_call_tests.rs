//! In which order threads take several locks.

use std::time::Duration;

use super::*;
use crate::cuda::Device;
use crate::nccl::clique::Clique;

/// Who waits for one has none of those that come after it.
#[test]
fn all_threads_have_one_order() {
    let clique = Clique::init_all(&Device::all().unwrap()[..3]).unwrap();
    let inner = |rank| -> &Inner { clique.rank(rank).inner() };
    let held = inner(1).try_lock().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| begin_calls(&[inner(2), inner(1), inner(0)], "test").map(drop));
        while inner(0).try_lock().is_some() {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(50));
        assert!(inner(2).try_lock().is_some());
        drop(held);
        waits.join().unwrap().unwrap();
    });
}
