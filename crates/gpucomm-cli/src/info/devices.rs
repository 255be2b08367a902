//! The devices and the ways between them.

use serde_json::{Value, json};

use crate::gpus::{Gpu, Link};

/// A list of devices, or a text that says why there is none.
pub fn describe(gpus: &gpucomm::Result<Vec<Gpu>>) -> Value {
    match gpus {
        Ok(gpus) => gpus.iter().map(one).collect(),
        Err(error) => error.to_string().into(),
    }
}

fn one(gpu: &Gpu) -> Value {
    json!({
        "ordinal": gpu.ordinal,
        "name": gpu.name,
        "compute_capability": gpu.capability.map(|(major, minor)| format!("{major}.{minor}")),
        "memory_bytes": gpu.memory,
        "pci": gpu.pci,
        "uuid": gpu.uuid,
        "multiprocessors": gpu.multiprocessors,
        "memory_pools": gpu.memory_pools,
        "gpu_direct_rdma": gpu.rdma,
        "links": gpu.links.iter().map(|to| to.as_ref().map(link)).collect::<Vec<_>>(),
    })
}

fn link(link: &Link) -> Value {
    json!({
        "to": link.to,
        "access": link.access,
        "performance_rank": link.performance_rank,
        "native_atomics": link.native_atomics,
    })
}
