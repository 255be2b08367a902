//! What a collective reads is not what it writes.
use gpucomm::nvshmem::{Sum, SymmetricBuffer, Team};
use gpucomm::{Result, Stream};

fn reduce(team: &mut Team<'_>, both: &mut SymmetricBuffer<'_, f32>, stream: &Stream) -> Result<()> {
    team.reduce_on_stream(Sum, &mut *both, &*both, stream)
}

fn main() {}
