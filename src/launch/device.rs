//! Which device a rank takes.

use super::handle::Launch;
use crate::cuda::Device;
use crate::error::{Error, Result};

const DEVICE: &str = "Launch::device";

impl Launch {
    /// The device of this rank: the one whose number is that of the rank on its host; where each process is shown one device of its own
    /// (`CUDA_VISIBLE_DEVICES`, `srun --gpus-per-task=1`), that one; what `GPUCOMM_DEVICE` says before either.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// let launch = gpucomm::Launch::from_env()?;
    /// let device = launch.device()?;
    /// assert_eq!(device.ordinal(), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NoDevice`] where there is none. [`Error::InvalidUsage`] where there are fewer devices than ranks on this host, but more than one; where nothing says which rank of the host this is, see
    /// [`find_device`](Self::find_device).
    pub fn device(&self) -> Result<Device> {
        let known = self.local_rank().or_else(|| (self.size() == 1).then_some(0));
        self.choose(known, self.local_size())
    }

    /// As [`device`](Self::device); where the launcher does not say which ranks share a host, they tell each other, and all call it.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// let launch = gpucomm::Launch::new(0, 1, "tcp://127.0.0.1:0")?;
    /// assert_eq!(launch.find_device()?.ordinal(), 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`device`](Self::device) and [`find_local`](Self::find_local).
    pub fn find_device(&self) -> Result<Device> {
        match (self.shared.device, self.local_rank()) {
            (None, None) => {
                let (rank, size) = self.find_local()?;
                self.choose(Some(rank), Some(size))
            }
            _ => self.device(),
        }
    }

    fn choose(&self, rank: Option<usize>, size: Option<usize>) -> Result<Device> {
        if let Some(device) = self.shared.device {
            return Device::new(device);
        }
        // Says why, where there is none.
        let devices = Device::all()?;
        match number(devices.len(), rank, size) {
            Ok(at) => Ok(devices[at]),
            Err(reason) => Err(Error::InvalidUsage { operation: DEVICE, reason }),
        }
    }
}

/// Which of so many devices it is.
fn number(devices: usize, rank: Option<usize>, size: Option<usize>) -> Result<usize, String> {
    if devices == 1 {
        return Ok(0);
    }
    let Some(rank) = rank else {
        return Err(format!(
            "nothing says which of the ranks on this host this is, and {devices} devices are visible: expected GPUCOMM_LOCAL_RANK or GPUCOMM_DEVICE, or Launch::find_device"
        ));
    };
    let ranks = size.unwrap_or(rank + 1);
    if ranks > devices {
        return Err(format!(
            "{ranks} ranks are on this host, and {devices} devices are visible: expected as many, or one to each process (CUDA_VISIBLE_DEVICES), or GPUCOMM_DEVICE"
        ));
    }
    Ok(rank)
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn each_rank_of_a_host_has_its_own() {
        for (devices, rank, size, want) in [
            (4, Some(3), Some(4), Some(3)),
            (8, Some(3), Some(4), Some(3)),
            (8, Some(3), None, Some(3)),
            // Each process is shown its own.
            (1, Some(3), Some(4), Some(0)),
            (1, None, None, Some(0)),
            (2, Some(1), Some(4), None),
            (2, Some(2), None, None),
            (2, None, None, None),
        ] {
            assert_eq!(number(devices, rank, size).ok(), want, "{devices} {rank:?} {size:?}");
        }
    }
}
