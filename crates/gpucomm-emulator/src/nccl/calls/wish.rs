//! What the program asks of one communicator.

use crate::nccl::state::registry;
use crate::sys::ncclComm_t;

/// Asks for `faults` and a time of `deadlock`, in the words of the variables, on the communicator `handle`; what is not named stays. The
/// error says what is wrong.
pub fn ask(handle: ncclComm_t, faults: Option<&str>, deadlock: Option<&str>) -> Result<(), String> {
    let comm = registry::find(handle).ok_or("there is no such communicator")?;
    comm.wishes.take(faults, deadlock)
}
