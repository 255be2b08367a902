//! Communicators that have the same devices, and the order in which ranks use them.

use super::*;
use crate::report::expected::expect;

/// Has two communicators of two ranks on the same devices launch a collective each, twice: rank 1 in the order of `second`.
fn use_two(second: [usize; 2]) {
    within_limit(move || {
        let ids = [unique_id(), unique_id()];
        std::thread::scope(|scope| {
            for rank in 0..2 {
                scope.spawn(move || {
                    set_device(rank);
                    let comms = ids.map(|id| Rank::new(rank, 2, init(2, id, rank, config(true)).1));
                    comms.iter().for_each(Rank::connect);
                    let buffers = [(); 2].map(|()| Buffer::new(&[1.0; 4]));
                    for at in [[0, 1], if rank == 0 { [0, 1] } else { second }].concat() {
                        assert_eq!(comms[at].all_reduce(&buffers[at]), OK, "{}", last_error());
                    }
                    for (comm, buffer) in comms.iter().zip(&buffers) {
                        comm.wait();
                        assert_eq!(buffer.values(), [4.0; 4]);
                        comm.end();
                    }
                });
            }
        });
    });
}

#[test]
#[ignore = "a part of the test below, which starts it as a process"]
fn in_a_child() {
    let told = expect("are used in different orders on the devices of ranks");
    use_two([0, 1]);
    assert_eq!(told.count(), 0);
    use_two([1, 0]);
    assert!(told.count() > 0);
}

/// They run side by side here, as they may on a GPU that has room for both.
#[test]
fn different_orders_of_two_communicators_are_reported() {
    alone!();
    let run = |variable: &str| {
        let mut command = std::process::Command::new(std::env::current_exe().expect("this program"));
        command.args(["--exact", "nccl::tests::orders::in_a_child", "--ignored", "--nocapture"]);
        command.env("GPUCOMM_EMULATOR_ORDER", variable).output().expect("a process")
    };
    let violation = run("1");
    assert!(violation.status.success(), "{violation:?}");
    // Else it is a line.
    let told = String::from_utf8_lossy(&run("0").stderr).into_owned();
    assert!(told.contains("deadlock? communicators ") && told.contains("collectives of the second"), "{told}");
}
