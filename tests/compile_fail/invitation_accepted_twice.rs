//! An invitation is for one rank.

use gpucomm::nccl::Invitation;
use gpucomm::{Communicator, Device, Result};

fn both(invitation: Invitation, devices: [Device; 2]) -> Result<[Communicator; 2]> {
    Ok([invitation.accept(devices[0])?, invitation.accept(devices[1])?])
}

fn main() {
    let _ = both;
}
