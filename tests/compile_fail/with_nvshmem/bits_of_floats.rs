//! Floats have no and.
use gpucomm::nvshmem::{And, SymmetricBuffer, Team};
use gpucomm::{Result, Stream};

fn reduce(team: &mut Team<'_>, dest: &mut SymmetricBuffer<'_, f32>, source: &SymmetricBuffer<'_, f32>, stream: &Stream) -> Result<()> {
    team.reduce_on_stream(And, dest, source, stream)
}

fn main() {}
