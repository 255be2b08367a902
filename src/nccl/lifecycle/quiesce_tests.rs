//! How long others are kept out while NCCL frees.

use super::*;
use crate::nccl::clique::Clique;
use crate::nccl::lifecycle::last_device;
use crate::nccl::setup::init_options::InitOptions;

/// Long enough for what does not wait at a gate.
const SOON: Duration = Duration::from_secs(2);

/// Others get a pause between two attempts to keep them out, whichever threads make these.
#[test]
fn others_are_not_kept_out_by_one_thread_after_the_other() {
    let turns = Turns(Mutex::new(None));
    assert_eq!(turns.take(SOON, || Some(turns.take(SOON, || Some(())))), Some(Some(None)), "one at a time");
    assert_eq!(turns.take(SOON, || Some(())), Some(Some(())), "no pause after one that was not in vain");
    assert_eq!(turns.take(LOOKS, || None::<()>), Some(None));
    thread::sleep(LOOKS);
    assert_eq!(turns.take(SOON * 30, || None::<()>), Some(None), "the pause was as long as the attempt");
    assert_eq!(turns.take(LOOKS, || Some(())), None, "a pause");
}

/// A communicator that starts while NCCL frees another one on its device is not in the list of
/// those that are kept out. So it starts before the gate is shut, or after that.
#[test]
fn no_communicator_starts_while_the_gate_of_its_device_is_shut() {
    let (_alone, device) = last_device();
    let options = InitOptions::new().with_timeout(SOON);
    let start = || Clique::init_all_with(&[device], &options);
    let clique = start().unwrap();
    let shut = cuda::shut_gates(&[device], SOON).expect("no launch is inside");
    for late in [start().map(drop), clique.rank(0).split(Some(0), 0).map(drop)] {
        let late = late.expect_err("it has started behind a gate that is shut");
        assert!(matches!(late, Error::Timeout { .. }) && late.to_string().contains("frees a communicator"), "{late}");
    }
    drop(shut);
    start().unwrap().close_timeout(SOON).unwrap();
    clique.close_timeout(SOON).unwrap();
}
