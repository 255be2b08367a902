//! What the ranks of a world can do, as the machine says.

use super::at::At;
use super::request::Request;
use super::wide::WideAnswer;
use super::world::World;
use crate::cuda::Device;
use crate::cuda::multicast::Multicast;
use crate::error::{Error, Result};
use crate::nccl;
use crate::version::Version;

/// What a rank can do, asked of its device, its communicator and NCCL. What nobody can say is `None`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// The rank.
    pub rank: usize,
    /// Its device.
    pub device: Device,
    /// The NCCL that is running.
    pub version: Version,
    /// Whether floats of eight bits are reduced: NCCL 2.24 on devices of compute capability 9.0.
    pub fp8: bool,
    /// Whether memory that ranks allocate together becomes windows that they map of each other: one was made to see.
    pub windows: bool,
    /// Whether switches reduce for this communicator, as NCCL says (2.29.7), and the environment does not switch that off.
    pub nvls: Option<bool>,
    /// Whether its device has multicast objects, as attributes say: [`Multicast::supported`].
    pub multicast: bool,
    /// Whether networks reduce (SHARP), which NCCL does by a plugin where `NCCL_COLLNET_ENABLE` is 1. Whether that is there NCCL does not say.
    pub sharp: Option<bool>,
    /// Whether kernels reach other hosts by themselves (GIN), as NCCL says (2.29.7).
    pub gin: Option<bool>,
    /// Whether there are one-sided operations, as NCCL says (2.29.7).
    pub one_sided: Option<bool>,
}

/// A request for it. All ranks ask together, as they make a window.
#[derive(Debug, Default)]
struct Ask(Option<Capabilities>);

/// The first version with floats of eight bits.
const FLOAT8: Version = Version::new(2, 24, 0);

impl Request for Ask {
    type Back = Result<Capabilities>;

    fn operation(&self) -> &'static str {
        "capabilities"
    }

    fn enqueue(&mut self, at: &At<'_>) -> Result<()> {
        self.0 = Some(ask(at)?);
        Ok(())
    }

    fn into_back(self) -> Result<Capabilities> {
        let reason = "nothing was asked".to_owned();
        self.0.ok_or(Error::InvalidUsage { operation: "capabilities", reason })
    }
}

fn ask(at: &At<'_>) -> Result<Capabilities> {
    let (communicator, device) = (at.communicator(), at.device());
    let version = nccl::version()?;
    let windows = communicator.alloc::<u64>(at.stream(), 1)?.is_window();
    let properties = match communicator.properties() {
        Ok(properties) => Some(properties),
        Err(Error::Unsupported { .. } | Error::LibraryTooOld { .. }) => None,
        Err(error) => return Err(error),
    };
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|set| set == value);
    Ok(Capabilities {
        rank: at.rank(),
        device,
        version,
        fp8: version >= FLOAT8 && device.compute_capability()? >= (9, 0),
        windows,
        nvls: properties.map(|properties| properties.multimem && !is("NCCL_NVLS_ENABLE", "0")),
        multicast: Multicast::supported(&[device])?,
        sharp: (!is("NCCL_COLLNET_ENABLE", "1")).then_some(false),
        gin: properties.map(|properties| properties.gin_type != 0),
        one_sided: properties.map(|properties| properties.one_sided),
    })
}

impl World {
    /// What its ranks can do, of those in this process. Those of all processes ask together.
    ///
    /// ```
    /// use gpucomm::Device;
    /// use gpucomm::world::World;
    ///
    /// # fn main() -> gpucomm::Result<()> {
    /// let world = World::new(&Device::all()?)?;
    /// for rank in world.capabilities().wait()? {
    ///     let rank = rank?;
    ///     println!("rank {}: NCCL {}, windows: {}", rank.rank, rank.version, rank.windows);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn capabilities(&self) -> WideAnswer<Result<Capabilities>> {
        self.submit(self.ranks().iter().map(|_| Ask::default()))
    }
}
