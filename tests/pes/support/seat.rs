//! What a process of a test was started as.

use std::path::PathBuf;
use std::time::Duration;

use gpucomm::Device;
use gpucomm::exchange::{Directory, Exchange};
use gpucomm::nvshmem::{Context, ContextOptions};

use super::places::places_by;
use super::slower::slower;

/// In the environment of a PE; what `mpirun` has started has the first two from there.
pub const RANK: &str = "GPUCOMM_TEST_PE";
pub const SIZE: &str = "GPUCOMM_TEST_PES";
pub const DIRECTORY: &str = "GPUCOMM_TEST_PE_DIRECTORY";

/// One PE of a test, before it has started NVSHMEM. The exchange knows nothing of NVSHMEM, and tells what others do all the same.
#[derive(Debug)]
pub struct Seat {
    pub pe: usize,
    pub n_pes: usize,
    pub device: Device,
    pub exchange: Exchange,
}

impl Seat {
    /// Of this process, if it is a PE.
    pub fn of_this_process() -> Option<Self> {
        let directory = PathBuf::from(std::env::var_os(DIRECTORY)?);
        let number = |key: &str, else_of: &str| -> usize {
            let text = std::env::var(key).or_else(|_| std::env::var(else_of)).expect(key);
            text.parse().expect(key)
        };
        let (pe, n_pes) = (number(RANK, "OMPI_COMM_WORLD_RANK"), number(SIZE, "OMPI_COMM_WORLD_SIZE"));
        gpucomm::set_default_timeout(slower(30.0));
        let device = places_by("GPUCOMM_TEST_PES_PER_DEVICE")[pe];
        let store = Directory::open(directory, pe, n_pes).expect("the meeting");
        let exchange = Exchange::join(store).expect("an exchange");
        Some(Self { pe, n_pes, device, exchange })
    }

    /// How to start NVSHMEM here.
    pub fn options(&self) -> ContextOptions {
        ContextOptions::new().with_device(self.device).with_exchange(&self.exchange).with_timeout(self.limit())
    }

    /// How long calls may wait for others.
    pub fn limit(&self) -> Duration {
        slower(20.0)
    }

    /// Starts it. Collective.
    pub fn start(&self) -> gpucomm::Result<Context> {
        self.start_as(self.options())
    }

    /// Starts it as `options` says. Collective.
    pub fn start_as(&self, options: ContextOptions) -> gpucomm::Result<Context> {
        // SAFETY: all PEs of a test run it, and make the same calls in the same order, unless it is about what is compared.
        unsafe { Context::init(&options) }
    }

    /// Waits for all others, without NVSHMEM.
    pub fn meet(&self) {
        self.exchange.barrier().expect("all PEs");
    }

    /// What each of all PEs says.
    pub fn gather(&self, text: &str) -> Vec<String> {
        let all = self.exchange.all_gather(text.as_bytes()).expect("all PEs");
        all.into_iter().map(|bytes| String::from_utf8(bytes).expect("text")).collect()
    }
}
