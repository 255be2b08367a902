//! What checks look at.

use gpucomm::known_bugs::KnownBug;

use super::files::Files;
use super::interfaces::Interface;
use super::settings::Settings;
use crate::gpus::Gpu;
use crate::libraries::Library;

/// This machine, or one that a test makes up.
pub struct Machine<'a> {
    /// Whether it is this one.
    pub is_this: bool,
    pub files: &'a dyn Files,
    pub settings: Settings,
    pub interfaces: Vec<Interface>,
    pub is_emulated: bool,
    /// The newest CUDA that the driver supports, as a code; 0 where there is no driver.
    pub driver: Result<i32, String>,
    /// The CUDA runtime, as a code.
    pub runtime: Result<i32, String>,
    pub gpus: Result<Vec<Gpu>, String>,
    pub libraries: Vec<Library>,
    pub bugs: Vec<&'static KnownBug>,
}

impl Machine<'_> {
    /// The GPUs; none where it cannot be said which there are.
    pub fn gpus(&self) -> &[Gpu] {
        self.gpus.as_deref().unwrap_or_default()
    }

    /// The number in a file, such as `/sys/.../numa_node`.
    pub fn number(&self, path: &str) -> Option<i64> {
        self.files.read(path)?.trim().parse().ok()
    }
}

/// How many ranks there are, as far as somebody has said so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ranks {
    pub size: usize,
    /// On this host.
    pub local: usize,
    /// Which of those on this host this process is, where a launcher has said so.
    pub mine: Option<usize>,
}
