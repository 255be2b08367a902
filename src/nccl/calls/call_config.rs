//! How one call is to be made.

use std::ffi::{CString, c_int};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::OnceLock;

use crate::error::{Error, Result};
use crate::lock::Mutex;
use crate::nccl::setup::choices::CtaPolicy;
use crate::nccl::setup::environment::NO_COPY_ENGINES;
use crate::sys;
use crate::version::{self, Version};

/// Wraps `ncclCollConfig_t`: how one collective is to be made, by [`Communicator::configured`](crate::nccl::Communicator::configured) or
/// [`Group::configured`](crate::nccl::Group::configured). What is not set is as the communicator has it. Needs NCCL 2.31.2.
///
/// It may be used for many calls. Ranks of a clique compare what it says, but for
/// [`CallConfig::with_profiler_tag`].
///
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// use gpucomm::nccl::CallConfig;
/// use gpucomm::{Clique, Device, DeviceBuffer, InPlace, ReduceOp, Stream};
///
/// # if gpucomm::nccl::version()? < gpucomm::version::Version::new(2, 31, 2) { return Ok(()) }
/// let few = CallConfig::new().with_max_ctas(4).with_algorithms("ring")?;
/// let clique = Clique::init_all(&Device::all()?)?;
/// clique.spmd(|comm| {
///     let stream = Stream::new(comm.device())?;
///     let mut x = DeviceBuffer::from_slice(&stream, &[1f32; 1000])?;
///     comm.configured(&few).all_reduce(InPlace(&mut x), ReduceOp::Sum, &stream)?;
///     assert_eq!(x.to_vec(&stream)?, [comm.size() as f32; 1000]);
///     Ok(())
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// All that can be said:
/// ```
/// # fn main() -> gpucomm::Result<()> {
/// use gpucomm::nccl::{CallConfig, CtaPolicy};
///
/// let config = CallConfig::new()
///     .with_min_ctas(2)
///     .with_max_ctas(8)
///     .with_nvls_ctas(4)
///     .with_cga_cluster_size(2)
///     .with_cta_policy(CtaPolicy::Efficiency)
///     .with_algorithms("tree, ring + ^ring_ll128")?
///     .with_algorithm_fallback(true)
///     .with_profiler_tag(7);
/// // SAFETY: no event at all, which is recorded nowhere.
/// let config = unsafe { config.with_launch_completion(std::ptr::null_mut()) };
/// # drop(config);
/// # Ok(())
/// # }
/// ```
#[doc(alias = "ncclCollConfig_t")]
#[derive(Debug, Clone)]
#[must_use]
pub struct CallConfig {
    said: Said,
    tag: u64,
    event: Option<Event>,
    /// Of what was said.
    number: OnceLock<u16>,
}

/// What ranks compare.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Said {
    min_ctas: Option<c_int>,
    max_ctas: Option<c_int>,
    nvls_ctas: Option<c_int>,
    cga_cluster_size: Option<c_int>,
    cta_policy: Option<CtaPolicy>,
    algorithms: Option<CString>,
    falls_back: bool,
    has_event: bool,
}

/// A handle of the user's.
#[derive(Clone, Copy)]
struct Event(#[cfg_attr(not(nccl_ge_2_32), allow(dead_code))] sys::cudaEvent_t);

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Event")
    }
}

// SAFETY: a handle, which CUDA takes on any thread; who gave it has promised that it lives.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

/// The first version that has such calls, and the first that has events.
const FIRST: Version = Version::new(2, 31, 2);
const FIRST_WITH_EVENTS: Version = Version::new(2, 32, 3);

/// How many thread blocks there may be.
const BLOCKS: RangeInclusive<c_int> = 1..=64;

impl Default for CallConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl CallConfig {
    /// As the communicator has it.
    pub fn new() -> Self {
        Self { said: Said::default(), tag: 0, event: None, number: OnceLock::new() }
    }

    fn with(mut self, change: impl FnOnce(&mut Said)) -> Self {
        change(&mut self.said);
        self.number = OnceLock::new();
        self
    }

    /// `minCTAs`: the fewest thread blocks, 1 to 64; not more than [`CallConfig::with_max_ctas`].
    pub fn with_min_ctas(self, blocks: i32) -> Self {
        self.with(|said| said.min_ctas = Some(blocks))
    }

    /// `maxCTAs`: the most thread blocks, 1 to 64; never more than the communicator has.
    pub fn with_max_ctas(self, blocks: i32) -> Self {
        self.with(|said| said.max_ctas = Some(blocks))
    }

    /// `nvlsCTAs`: thread blocks for NVLink SHARP, 1 to 64.
    pub fn with_nvls_ctas(self, blocks: i32) -> Self {
        self.with(|said| said.nvls_ctas = Some(blocks))
    }

    /// `cgaClusterSize`: thread blocks in a cluster, 0 to 8. All collectives of a group have the same, or the group is refused.
    pub fn with_cga_cluster_size(self, blocks: i32) -> Self {
        self.with(|said| said.cga_cluster_size = Some(blocks))
    }

    /// `CTAPolicy`: how many thread blocks there should be. A call with [`CtaPolicy::CopyEngines`] is refused.
    pub fn with_cta_policy(self, policy: CtaPolicy) -> Self {
        self.with(|said| said.cta_policy = Some(policy))
    }

    /// `algSelection`: which algorithms NCCL may choose among: beginnings of names, in any case, with `,` (or), `+` (and), `^` (not), such as
    /// `tree,ring` or `ring + ^RING_LL128`. Names are NCCL's, and may change; all_to_all, gather and scatter have none.
    ///
    /// Where that leaves none, NCCL says so, and the communicator is aborted, as after any error of NCCL; see
    /// [`CallConfig::with_algorithm_fallback`].
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a text with a NUL.
    pub fn with_algorithms(self, selection: &str) -> Result<Self> {
        let text = CString::new(selection).map_err(|_| {
            Error::argument("CallConfig", "algorithms", "text without NUL", format_args!("{selection:?}"))
        })?;
        Ok(self.with(|said| said.algorithms = Some(text)))
    }

    /// `forceAlgSelection`: with `true`, which sets it to 0, NCCL chooses among all algorithms if
    /// [`CallConfig::with_algorithms`] leaves none. `false` by default.
    pub fn with_algorithm_fallback(self, fallback: bool) -> Self {
        self.with(|said| said.falls_back = fallback)
    }

    /// `userProfilerTag`: what profilers are told of the call; 0 for none, the highest bit is NCCL's. Ranks may differ.
    pub fn with_profiler_tag(mut self, tag: u64) -> Self {
        self.tag = tag;
        self
    }

    /// `launchCompletionEvent`: an event that NCCL records when the kernel of the call has been launched. Needs NCCL 2.32.3. All ranks pass one
    /// to a call, each its own, or none does. A group has one for each communicator at most.
    ///
    /// # Safety
    /// The event was made by `cudaEventCreateWithFlags` with `cudaEventDisableTiming`, on the device of the communicator, and is not shared
    /// between processes, or it is null: no event. It lives until all is done that waits for it, and as long as this configuration and its clones are used.
    pub unsafe fn with_launch_completion(mut self, event: sys::cudaEvent_t) -> Self {
        self.event = Some(Event(event));
        self.with(|said| said.has_event = !event.is_null())
    }

    /// Refuses what the running NCCL would not take, or pass over.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        version::needs(operation, FIRST).map_err(|error| error.noted("for a configured call"))?;
        if self.said.has_event {
            version::needs(operation, FIRST_WITH_EVENTS).map_err(|error| error.noted("for launch_completion"))?;
        }
        let said = &self.said;
        for (name, value, range) in [
            ("min_ctas", said.min_ctas, BLOCKS),
            ("max_ctas", said.max_ctas, BLOCKS),
            ("nvls_ctas", said.nvls_ctas, BLOCKS),
            ("cga_cluster_size", said.cga_cluster_size, 0..=8),
        ] {
            if let Some(value) = value.filter(|value| !range.contains(value)) {
                let expected = format_args!("{} to {}", range.start(), range.end()).to_string();
                return Err(Error::argument(operation, name, expected, value));
            }
        }
        if let (Some(min), Some(max)) = (said.min_ctas, said.max_ctas)
            && min > max
        {
            return Err(Error::argument(operation, "min_ctas", format_args!("at most max_ctas, which is {max}"), min));
        }
        if said.cta_policy == Some(CtaPolicy::CopyEngines) {
            return Err(Error::argument(operation, "cta_policy", NO_COPY_ENGINES, CtaPolicy::CopyEngines.raw()));
        }
        if self.tag >> 63 != 0 {
            let expected = "a number without the highest bit, which NCCL keeps for itself";
            return Err(Error::argument(operation, "profiler_tag", expected, format_args!("{:#x}", self.tag)));
        }
        if self.number() == 0 {
            let reason = "there are too many configurations of calls in this process, which are all different".into();
            return Err(Error::InvalidUsage { operation, reason });
        }
        Ok(())
    }

    /// Refuses a policy by which NCCL chooses by what is registered, where two runs are to be equal bit by bit.
    pub(crate) fn check_policy(&self, operation: &'static str, deterministic: bool) -> Result<()> {
        match self.said.cta_policy.filter(|policy| deterministic && *policy != CtaPolicy::Default) {
            None => Ok(()),
            Some(policy) => {
                let expected = "CtaPolicy::Default, with Config::with_deterministic";
                Err(Error::argument(operation, "cta_policy", expected, policy.raw()))
            }
        }
    }

    /// A number that all configurations of this process have in common that say the same; 0 where there are too many.
    pub(crate) fn number(&self) -> u16 {
        static KNOWN: Mutex<Vec<Said>> = Mutex::new(Vec::new());
        *self.number.get_or_init(|| {
            let mut known = KNOWN.lock();
            let at = known.iter().position(|said| *said == self.said).unwrap_or(known.len());
            let Some(number) = u16::try_from(at + 1).ok() else { return 0 };
            if at == known.len() {
                known.push(self.said.clone());
            }
            number
        })
    }

    /// A number that configurations which say the same have in other processes too. Others may have it as well: one of 65535.
    pub(crate) fn digest(&self) -> u16 {
        // FNV-1a.
        let said = format!("{:?}", self.said);
        let hash = said.bytes().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        (hash % u32::from(u16::MAX)) as u16 + 1
    }

    /// What it says of clusters.
    pub(crate) fn cluster(&self) -> Option<c_int> {
        self.said.cga_cluster_size
    }

    /// Whether it has an event.
    pub(crate) fn has_event(&self) -> bool {
        self.said.has_event
    }

    /// The C struct. It points into `self`.
    pub(crate) fn to_raw(&self) -> sys::ncclCollConfig_t {
        let mut raw = std::mem::MaybeUninit::uninit();
        // SAFETY: the shim writes the whole struct.
        let mut raw = unsafe {
            sys::gpucommNcclCollConfigInit(raw.as_mut_ptr());
            raw.assume_init()
        };
        let set = |field: &mut c_int, value: Option<c_int>| {
            if let Some(value) = value {
                *field = value;
            }
        };
        let said = &self.said;
        set(&mut raw.minCTAs, said.min_ctas);
        set(&mut raw.maxCTAs, said.max_ctas);
        set(&mut raw.nvlsCTAs, said.nvls_ctas);
        set(&mut raw.cgaClusterSize, said.cga_cluster_size);
        set(&mut raw.CTAPolicy, said.cta_policy.map(CtaPolicy::raw));
        if let Some(text) = &said.algorithms {
            raw.algSelection = text.as_ptr();
        }
        raw.forceAlgSelection = c_int::from(!said.falls_back);
        raw.userProfilerTag = self.tag;
        #[cfg(nccl_ge_2_32)]
        if let Some(Event(event)) = self.event {
            raw.launchCompletionEvent = event;
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_the_same_has_one_number() {
        let ring = || CallConfig::new().with_algorithms("ring").unwrap();
        assert_eq!(ring().number(), ring().with_profiler_tag(7).number());
        assert_ne!(ring().number(), ring().with_algorithm_fallback(true).number());
        let used = ring();
        let number = used.number();
        assert_ne!(used.with_max_ctas(3).number(), number);
        assert_ne!(CallConfig::new().number(), 0);
    }
}
