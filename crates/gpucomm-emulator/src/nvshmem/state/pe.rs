//! This PE: its device, its heap and its teams.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::boot::Boot;
use super::heap::Symmetric;
use super::internal::Internal;
use super::team::{PREDEFINED, Team, Teams};
use crate::cuda::core::device::{self, Device};
use crate::lock::Mutex;
use crate::memory::object::Location;
use crate::memory::symmetric;
use crate::nvshmem::basics::Kind;
use crate::nvshmem::basics::{Outcome, refused, variable_number, wrong};
use crate::nvshmem::state::boot::{Activity, MAX_TEAMS, own_part};
use crate::nvshmem::state::internal::Late;
use crate::nvshmem::state::team::Group;
use crate::settings::settings;
use crate::sys::*;

/// A PE with a device.
#[derive(Debug)]
pub(crate) struct Pe {
    pub(crate) boot: Arc<Boot>,
    pub(crate) device: &'static Device,
    /// What `nvshmemx_init_status` says.
    pub(crate) status: i32,
    pub(crate) heap: Symmetric,
    pub(crate) teams: Teams,
    pub(crate) late: Arc<Late>,
    pub(crate) internal: Internal,
    /// Memory of the host that was registered.
    pub(crate) registered: Mutex<Vec<Range<usize>>>,
    /// How many PEs a node has.
    node: usize,
}

/// How much of its device a process of MPS has, in percent.
fn share_of_mps() -> Option<f64> {
    std::env::var("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE").ok()?.trim().parse().ok()
}

/// The configuration of a team that was made without one.
pub(crate) fn config() -> nvshmem_team_config_t {
    nvshmem_team_config_t { version: 2 << 16 | 64, num_contexts: -1, uniqueid: u64::MAX, padding: [0; 48] }
}

impl Pe {
    /// All PEs start, each on the device that is current to it.
    pub(crate) fn start(boot: &Arc<Boot>, ordinal: i32) -> Outcome<Arc<Self>> {
        let failed = |text: String| refused(NVSHMEMX_ERROR_INTERNAL, text);
        device::start(ordinal).map_err(|error| failed(format!("device {ordinal} does not answer: {}", error.0)))?;
        let device = device::device(ordinal).map_err(|error| failed(format!("no device {ordinal}: {}", error.0)))?;
        let mine = own_part(&boot.segment, boot.me);
        let mapped = |error: std::io::Error| failed(format!("the symmetric heap cannot be mapped: {error}"));
        let heap = symmetric::own(ordinal).map_err(mapped)?;
        let place = symmetric::begin(heap).ok_or_else(|| failed("the symmetric heap has no memory".to_owned()))?;
        mine.heap.iter().zip(place.words()).for_each(|(slot, word)| slot.store(word, Ordering::Relaxed));
        mine.device.store(device.number(), Ordering::Relaxed);
        let share = share_of_mps().map_or(0, |share| (share * 1000.0) as u32);
        mine.share.store(share, Ordering::Relaxed);
        let begin = Activity { kind: Kind::Init, team: 0, number: 0, bytes: 0 };
        let least = if settings().nvls { 64 } else { 0 };
        let most = if settings().nvshmem >= 3_05_00 { 128 } else { 32 };
        let most = variable_number("NVSHMEM_MAX_TEAMS").unwrap_or(most).max(least).max(PREDEFINED as i64) as usize;
        if most > MAX_TEAMS {
            return Err(failed(format!("NVSHMEM_MAX_TEAMS is {most}: the emulator takes at most {MAX_TEAMS}")));
        }
        let first = Group::new(0, 1, boot.me, (0..boot.size).collect());
        let turn = first.meet(boot, begin, &[], None)?;
        let others: Vec<_> = (0..boot.size).map(|pe| own_part(&boot.segment, pe)).collect();
        let places: Vec<Location> = others
            .iter()
            .map(|other| Location::from_words(other.heap.each_ref().map(|word| word.load(Ordering::Relaxed))))
            .collect();
        let heap = Symmetric::new(boot.me, ordinal, &places).map_err(mapped);
        let status = sharing(
            &others
                .iter()
                .map(|other| (other.device.load(Ordering::Relaxed), other.share.load(Ordering::Relaxed)))
                .collect::<Vec<_>>(),
        );
        turn.end()?;
        let node = settings().node.unwrap_or(boot.size).clamp(1, boot.size);
        let pe = Self {
            boot: boot.clone(),
            device,
            status,
            heap: heap?,
            teams: Teams::new(most),
            late: Arc::default(),
            internal: Internal::new(device),
            registered: Mutex::default(),
            node,
        };
        pe.predefine();
        Ok(Arc::new(pe))
    }

    /// Makes the teams that are there from the start.
    fn predefine(&self) {
        let (me, size, node) = (self.me(), self.size(), self.node);
        let of_node: Vec<usize> = (0..size).filter(|pe| pe / node == me / node).collect();
        // Where nodes differ in size, nobody shares with anybody.
        let shared = if size.is_multiple_of(node) { of_node.clone() } else { vec![me] };
        let same = (0..size).filter(|pe| pe % node == me % node).collect();
        let all = [(0..size).collect(), shared, of_node, same, vec![me], vec![me], vec![me]];
        debug_assert_eq!(all.len(), PREDEFINED);
        for (slot, members) in all.into_iter().enumerate() {
            let mine = members.iter().position(|&pe| pe == me).unwrap_or(0);
            // The start has used the place of the world, with another tag.
            let group = Group::new(slot, 2, mine, members);
            if slot < 4 && self.switches(&group.members) {
                self.teams.multiply(slot);
            }
            self.teams.put(Team { group, config: config() });
        }
        // Those that have a device for themselves.
        if self.switches(&(0..size).collect::<Vec<_>>()) {
            self.teams.multiply(5);
        }
    }

    /// Whether switches add up and spread data for a team.
    pub(crate) fn switches(&self, members: &[usize]) -> bool {
        settings().nvls && members.len() > 1 && !self.is_limited() && members.iter().all(|&pe| self.reaches(pe))
    }

    pub(crate) fn me(&self) -> usize {
        self.boot.me
    }

    pub(crate) fn size(&self) -> usize {
        self.boot.size
    }

    /// Whether this PE can map the memory of another.
    pub(crate) fn reaches(&self, pe: usize) -> bool {
        pe / self.node == self.me() / self.node
    }

    /// The number of a PE that a call names.
    pub(crate) fn pe(&self, pe: i32) -> Outcome<usize> {
        usize::try_from(pe).ok().filter(|&pe| pe < self.size()).ok_or_else(|| {
            wrong(format!("the PE is {pe}, expected 0 to {}: NVSHMEM reads beyond the end of a table", self.size() - 1))
        })
    }

    /// Everything has come that this PE has asked for, and that its streams have come to.
    pub(crate) fn quiet(&self) {
        self.late.quiet(&self.boot);
    }

    /// The same, of what does not block a stream too: the host waits for that.
    pub(crate) fn quiesce(&self) {
        self.internal.wait();
        self.quiet();
    }

    /// Several PEs have this device, and cannot wait for each other inside kernels.
    pub(crate) fn is_limited(&self) -> bool {
        self.status == NVSHMEM_STATUS_LIMITED_MPG
    }

    /// A call that the library ends the process at, where several PEs share a device by time.
    pub(crate) fn refuse_limited(&self) -> Outcome {
        if self.is_limited() {
            return Err(wrong(
                "several PEs share a device without MPS (limited MPG), where NVSHMEM ends the process at this call",
            ));
        }
        Ok(())
    }
}

/// How PEs of such devices and shares of them share those.
fn sharing(all: &[(i32, u32)]) -> i32 {
    let on = |device: i32| all.iter().filter(move |(other, _)| *other == device);
    let shared = |&&(device, _): &&(i32, u32)| on(device).count() > 1;
    if !all.iter().any(|pe| shared(&pe)) {
        return NVSHMEM_STATUS_IS_INITIALIZED;
    }
    let fits = |device: i32| {
        on(device).all(|(_, share)| *share > 0) && on(device).map(|(_, share)| share).sum::<u32>() <= 100_000
    };
    let full = all.iter().filter(shared).all(|&(device, _)| fits(device));
    if full { NVSHMEM_STATUS_FULL_MPG } else { NVSHMEM_STATUS_LIMITED_MPG }
}
