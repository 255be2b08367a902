//! Multicast objects of several ranks: made by one, joined by all, each with its own devices.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::AsFd;

use super::building::add;
use super::functions::refused;
use super::patience::{ATTEMPTS, pause};
use super::properties::ObjectProperties;
use super::state::{Building, Complete, Multicast};
use super::votes::{Party, decided, is_worth_another, vote};
use crate::cuda::devices::device::Device;
use crate::cuda::vmm::{FabricHandle, HandleTypes};
use crate::error::{Error, Result};
use crate::exchange::{Exchange, FdSocket};
use crate::refusal::Refusal;

const JOIN: &str = "Multicast::join";
const AGREE: &str = "Multicast::agree";

/// How an object gets from the rank that has made it to the others.
#[derive(Debug, Clone, Copy)]
pub enum Channel<'c> {
    /// As a file descriptor, between the ranks of one host.
    Fds(&'c FdSocket),
    /// As a fabric handle, between hosts of an NVLink fabric.
    Fabric(&'c Exchange),
}

impl Channel<'_> {
    fn exchange(&self) -> &Exchange {
        match self {
            Self::Fds(socket) => socket.exchange(),
            Self::Fabric(exchange) => exchange,
        }
    }

    fn kind(&self) -> HandleTypes {
        match self {
            Self::Fds(_) => HandleTypes::FD,
            Self::Fabric(_) => HandleTypes::FABRIC,
        }
    }
}

impl Multicast<Complete> {
    /// Wraps `cuMulticastCreate`, `cuMemExportToShareableHandle`, `cuMemImportFromShareableHandle` and `cuMulticastAddDevice`: an object that all
    /// ranks of an exchange have in common. Rank 0 makes it and hands it to the others; each adds its `devices`, all together as many as the
    /// properties say, and at least one. All ranks call it, with the same properties, and get the object or an error. It takes some steps, each of
    /// which waits for the timeout of the exchange at most. No rank binds memory before all devices were added, so none is left waiting in the
    /// driver for one that is gone.
    ///
    /// What the channel needs is added to the handle types of the properties.
    ///
    /// ```
    /// # fn main() -> gpucomm::Result<()> {
    /// use gpucomm::Device;
    /// use gpucomm::cuda::multicast::{Channel, Multicast, BindSource, ObjectProperties};
    /// use gpucomm::cuda::vmm::{self, HandleTypes, PhysicalMemory};
    /// use gpucomm::exchange::{Exchange, FdSocket, Threads};
    ///
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// let device = Device::new(exchange.rank())?;
    /// let socket = FdSocket::new(&exchange, std::env::temp_dir())?;
    /// let properties = ObjectProperties::new(exchange.size(), 1 << 20).rounded()?;
    /// let complete = Multicast::join(Channel::Fds(&socket), &properties, &[device])?;
    ///
    /// let shareable = vmm::MemoryProperties::new(device).with_handle_types(HandleTypes::FD);
    /// let memory = PhysicalMemory::new_with(&shareable, properties.bytes())?;
    /// let mapped = complete.bind(BindSource::memory(&memory))?.map()?;
    /// println!("{:p}, for kernels", mapped.ptr::<f32>(device)?.as_raw());
    /// mapped.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Where a rank does not come, [`Timeout`](Error::Timeout) on all others at the deadline, and [`Departed`](Error::Departed) at once where it is
    /// known to have ended; where one cannot go on, its own error there, and [`Multicast`](Error::Multicast) with
    /// [`Refusal::Peer`](super::Refusal::Peer) on the others; [`InvalidArgument`](Error::InvalidArgument) on all where the devices are not as
    /// many as the properties say, or a rank has none, and [`Disagreement`](Error::Disagreement) where properties differ.
    #[doc(alias(
        "cuMulticastCreate",
        "cuMemExportToShareableHandle",
        "cuMemImportFromShareableHandle",
        "cuMulticastAddDevice"
    ))]
    pub fn join(channel: Channel<'_>, properties: &ObjectProperties, devices: &[Device]) -> Result<Self> {
        let exchange = channel.exchange();
        let properties = properties.with_handle_types(properties.handle_types() | channel.kind());
        let mine = if exchange.rank() == 0 { Some(Multicast::create(&properties)) } else { None };
        let offered = mine.map(|made| offer(&channel, made));
        let head = match &offered {
            Some(Ok((_, handle))) => [&[1][..], handle].concat(),
            Some(Err(error)) => [&[0][..], error.to_string().as_bytes()].concat(),
            None => Vec::new(),
        };
        let told = exchange.broadcast(&head, 0);
        let building = match offered {
            Some(offered) => {
                let (building, _) = offered?;
                told?;
                building
            }
            None => {
                let told = told?;
                if let Some((0, why)) = told.split_first() {
                    // It has told all ranks so, and gone.
                    let why = format!("rank 0 says: {}", String::from_utf8_lossy(why));
                    return Err(refused(JOIN, Refusal::Peer, why));
                }
                return imported(exchange, take(&channel, &properties, &told))?.agree(exchange, devices);
            }
        };
        // Kept here until all have imported it: what comes later would get an object of its own.
        imported(exchange, Ok(building))?.agree(exchange, devices)
    }
}

/// All ranks have it, or none goes on.
fn imported(exchange: &Exchange, taken: Result<Taken>) -> Result<Multicast<Building>> {
    let (result, building) = match taken {
        Ok(building) => (Ok(()), Some(building)),
        Err(error) => (Err(error), None),
    };
    vote(JOIN, exchange, result)?;
    building.ok_or_else(|| Error::InvalidUsage { operation: JOIN, reason: "there is no object".into() })
}

type Taken = Multicast<Building>;

/// Rank 0: hands the object to the others, and what is to be said of it.
fn offer(channel: &Channel<'_>, made: Result<Taken>) -> Result<(Taken, Vec<u8>)> {
    let building = made?;
    let handle = match channel {
        Channel::Fabric(_) => building.export_fabric()?.0.to_vec(),
        Channel::Fds(socket) => {
            // By which descriptors of an attempt that has failed are told from these.
            let nonce = number();
            let fd = building.export_fd()?;
            for rank in 1..socket.exchange().size() {
                socket.send(rank, &purpose(nonce), &[fd.as_fd()])?;
            }
            nonce.to_ne_bytes().to_vec()
        }
    };
    Ok((building, handle))
}

fn purpose(nonce: u64) -> String {
    format!("multicast {nonce:016x}")
}

/// Another rank: takes the object that rank 0 offers.
fn take(channel: &Channel<'_>, properties: &ObjectProperties, told: &[u8]) -> Result<Taken> {
    let wrong = |reason: String| Error::Exchange { operation: JOIN, key: "rank 0".to_owned(), reason };
    let handle = match told.split_first() {
        Some((1, handle)) => handle,
        _ => return Err(wrong(format!("expected a multicast object, got {} bytes that are none", told.len()))),
    };
    match channel {
        Channel::Fabric(_) => {
            let bytes = handle.try_into().map_err(|_| wrong(format!("a handle of {} bytes", handle.len())))?;
            // SAFETY: rank 0 of this exchange has sent it as the handle of an object, of properties that all ranks compare before it is used.
            unsafe { Multicast::import_fabric(&FabricHandle(bytes), properties) }
        }
        Channel::Fds(socket) => {
            let nonce = handle.try_into().map_err(|_| wrong(format!("a number of {} bytes", handle.len())))?;
            let fds = socket.receive(0, &purpose(u64::from_ne_bytes(nonce)))?;
            let [fd] = &fds[..] else { return Err(wrong(format!("expected one descriptor, got {}", fds.len()))) };
            // SAFETY: as above; it has come by the socket of this exchange.
            unsafe { Multicast::import_fd(fd, properties) }
        }
    }
}

impl Multicast<Building> {
    /// Wraps `cuMulticastAddDevice`: adds devices of this process, as all ranks of an exchange do, and finds out whether all devices were added.
    /// For objects that came to the other ranks by other ways than [`Multicast::join`]; devices that were [added](Multicast::add) before count.
    /// Where the system is not ready for some rank, all ask again, in step, a few times.
    ///
    /// Whether the ranks mean *the same* object it cannot tell: CUDA has nothing by which a process knows an object of another one again. Ranks
    /// that hold different ones, of the same properties, are told that all devices were added, and the first [bind](Multicast::bind) ends at its
    /// deadline: a thread and the object are lost then. [`Multicast::join`] hands one object to all.
    ///
    /// ```
    /// # use gpucomm::Device;
    /// # use gpucomm::cuda::multicast::{Multicast, ObjectProperties};
    /// # use gpucomm::exchange::{Exchange, Threads};
    /// # fn main() -> gpucomm::Result<()> {
    /// # if gpucomm::backend() != gpucomm::Backend::Emulator { return Ok(()) }
    /// # let exchange = Exchange::join(Threads::new(1).store(0)?)?;
    /// let building = Multicast::create(&ObjectProperties::new(1, 1 << 20).rounded()?)?;
    /// let complete = building.agree(&exchange, &[Device::new(0)?])?;
    /// # complete.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Multicast::join`].
    #[doc(alias = "cuMulticastAddDevice")]
    pub fn agree(mut self, exchange: &Exchange, devices: &[Device]) -> Result<Multicast<Complete>> {
        let (properties, added) = (*self.properties(), self.devices().len());
        let said = format!("{} {} {}", properties.devices(), properties.bytes(), properties.handle_types().bits());
        let all = exchange.all_gather(format!("{:x} {} {said}", number(), added + devices.len()).as_bytes())?;
        let number = compare(exchange.rank(), &said, &properties, &all)?;
        let party = Party { exchange: exchange.clone(), number };
        let mut attempt = 1;
        loop {
            let object = self.object_mut();
            let missing: Vec<_> =
                devices.iter().filter(|device| !object.devices[added..].contains(device)).copied().collect();
            let result = missing.into_iter().try_for_each(|device| add(object, device));
            let vote = party.ask(AGREE, &result)?;
            if vote.unanimous() {
                break;
            }
            if attempt == ATTEMPTS || !is_worth_another(&vote) {
                result?;
                decided(AGREE, exchange, &vote)?;
            }
            std::thread::sleep(pause(attempt));
            attempt += 1;
        }
        self.object_mut().party = Some(party);
        Ok(Multicast::of(self.into_object()))
    }
}

/// A number that no other object has.
fn number() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Whether all ranks say the same of the object, and have as many devices as that is for, each at least one. The number that rank 0 gives it.
fn compare(rank: usize, said: &str, properties: &ObjectProperties, all: &[Vec<u8>]) -> Result<u64> {
    let (mut devices, mut without, mut number) = (0, None, 0);
    for (peer, bytes) in all.iter().enumerate() {
        let text = String::from_utf8_lossy(bytes);
        let mut words = text.splitn(3, ' ');
        let (its, count, theirs) = (words.next(), words.next(), words.next().unwrap_or(&text));
        if theirs != said {
            let words = |text: &str| format!("an object of devices, bytes and handles {text}");
            return Err(Error::Disagreement {
                operation: AGREE,
                rank: peer,
                peer: rank,
                expected: words(said),
                got: words(theirs),
                departed: false,
                in_part: false,
            });
        }
        if peer == 0 {
            number = its.and_then(|text| u64::from_str_radix(text, 16).ok()).unwrap_or(0);
        }
        let count = count.and_then(|text| text.parse::<usize>().ok()).unwrap_or(0);
        // Without a device it could neither bind nor map, and the others would wait for it.
        without = without.or((count == 0).then_some(peer));
        devices += count;
    }
    if let Some(peer) = without {
        return Err(Error::argument(
            AGREE,
            "devices",
            "at least one of each rank",
            format_args!("none of rank {peer}"),
        ));
    }
    if devices != properties.devices() {
        let expected = format!("{} of all ranks together, as the properties say", properties.devices());
        return Err(Error::argument(AGREE, "devices", expected, devices));
    }
    Ok(number)
}
