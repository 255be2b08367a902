//! Launching graphs.

use std::sync::Arc;
use std::time::Duration;

use super::graph::{Graph, Shared};
use super::life::LAUNCH;
use crate::cuda::order::gate::{self, Entered};
use crate::cuda::order::recording::{Kept, Launch, note, order};
use crate::cuda::order::stream::Stream;
use crate::cuda::order::turns::{LaunchTurns, Waits, outside_of_lending};
use crate::cuda::order::uses::Access;
use crate::cuda::works::carry;
use crate::cuda::works::carry::Form;
use crate::cuda::works::work::{Origins, Work};
use crate::deadline::default_timeout;
use crate::error::{Error, Result};

impl Graph {
    /// Wraps `cudaGraphLaunch`: does on `stream` what was captured, after the earlier work there, without waiting.
    ///
    /// Launches of one graph come one after the other, on whatever streams; so does whatever uses the same memory. With operations of
    /// communicators it counts as one operation of each of them: all ranks launch the same graphs in the same order, among their
    /// other operations, and what is waited for then has the deadline of the wait. A rank that does not come, or fails, is told as for
    /// any other operation.
    ///
    /// ```
    /// # use gpucomm::{Device, DeviceBuffer, Stream};
    /// # fn main() -> gpucomm::Result<()> {
    /// # let stream = Stream::new(Device::new(0)?)?;
    /// let (mut x, y) = (DeviceBuffer::<u8>::zeroed(&stream, 5)?, DeviceBuffer::from_slice(&stream, &[7u8; 5])?);
    /// let graph = stream.capture(|stream| x.copy_from(stream, &y))?;
    /// // The graph has what it needs.
    /// drop(y);
    /// let other = Stream::new(stream.device())?;
    /// graph.launch(&other)?;
    /// assert_eq!(x.to_vec(&stream)?, [7; 5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidArgument`](Error::InvalidArgument) for a stream of another device; why the graph has ended, such as
    /// [`Aborted`](Error::Aborted); as an operation of its communicators: [`Disagreement`](Error::Disagreement) where ranks of a clique
    /// launch something else, [`Timeout`](Error::Timeout) where too much is on its way; what CUDA says.
    #[doc(alias = "cudaGraphLaunch")]
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        let shared = self.shared();
        if stream.device() != shared.device {
            let (expected, got) = (format!("one of {}", shared.device), format!("one of {}", stream.device()));
            return Err(Error::argument(LAUNCH, "stream", expected, got));
        }
        let refusal = || shared.life.refusal();
        if let Some(error) = refusal() {
            return Err(error);
        }
        outside_of_lending(LAUNCH)?;
        let (read, turns) = (Vec::new(), LaunchTurns::default());
        let mut launch = OneLaunch { shared, stream, read, launched: false, turns, entered: None };
        match &shared.party {
            Some(party) => party.launch(stream, &mut launch),
            None => {
                stream.make_room(shared.cost, LAUNCH, default_timeout, refusal)?;
                launch.begin(None)?;
                let done = launch.enqueue();
                launch.mingle(done.is_ok());
                done
            }
        }
    }
}

struct OneLaunch<'l> {
    shared: &'l Shared,
    stream: &'l Stream,
    /// Where what it reads comes from, other than operations of its own.
    read: Vec<Origins>,
    /// Whether operations were carried on already.
    launched: bool,
    /// Until it is noted what the launch uses, and where that comes from.
    turns: LaunchTurns<'l>,
    /// The gate of the device.
    entered: Option<Entered>,
}

impl OneLaunch<'_> {
    /// After the launch of a graph that no communicator has to do with, or an attempt, which may have overwritten nothing.
    fn mingle(&self, launched: bool) {
        let history = self.stream.history();
        self.read.iter().for_each(|origins| history.cover(origins));
        for kept in self.written() {
            if launched && kept.is_fresh() {
                kept.used().lineage().overwrite();
            }
            self.read.iter().for_each(|origins| carry::mingle(origins, kept.used().lineage()));
        }
    }

    /// How long the launch waits for others.
    fn timeout(&self) -> Duration {
        self.shared.party.as_ref().map_or_else(default_timeout, |party| party.timeout())
    }

    fn written(&self) -> impl Iterator<Item = &Kept> {
        self.shared.memory.iter().filter(|kept| kept.access() == Access::Write)
    }
}

impl Launch for OneLaunch<'_> {
    fn cost(&self) -> u64 {
        self.shared.cost
    }

    fn begin(&mut self, own: Option<&Work>) -> Result<()> {
        let party = self.shared.party.as_ref();
        let waits = Waits {
            operation: LAUNCH,
            timeout: || self.timeout(),
            refusal: || party.and_then(|party| party.refusal()),
        };
        self.turns = LaunchTurns::take(&waits, self.shared.trackers())?;
        let history = self.stream.history();
        let read = self.shared.memory.iter().filter(|kept| !kept.is_fresh());
        self.read = read.filter_map(|kept| carry::reads(own, history, [Some(kept.used().lineage())])).collect();
        for kept in &self.shared.memory {
            if !order(kept.used(), kept.span(), kept.access(), self.stream)? {
                self.read.iter_mut().for_each(Origins::follow_nothing);
            }
        }
        // Not while a thread counts as being inside NCCL.
        self.entered = Some(gate::enter(LAUNCH, self.stream.device(), self.timeout())?);
        Ok(())
    }

    fn enqueue(&mut self) -> Result<()> {
        let (shared, stream) = (self.shared, self.stream);
        let (timeout, _entered) = (self.timeout(), self.entered.take());
        // SAFETY: the memory is kept alive by the graph, and by its uses, which are noted below; it was just ordered. Those who have to do
        // with the launch are ready: the handles of communicators are live, for who ends them ends their graphs before, and the ranks agree.
        let done = unsafe { shared.life.launch(stream, timeout) };
        stream.count(shared.cost);
        // A graph may hold host functions and kernels of the user.
        stream.in_flight().note_other_work();
        shared.memory.iter().for_each(|kept| note(kept.used(), kept.span(), kept.access(), stream));
        done
    }

    fn carry(&mut self, work: &Arc<Work>, number: u64) {
        let history = self.stream.history();
        let mut read = Origins::new();
        self.read.iter().for_each(|origins| read.merge(origins));
        let read = (!read.is_empty()).then_some(read);
        for kept in self.written() {
            let form = || if kept.is_fresh() && !self.launched { Form::Whole } else { Form::InPlace };
            carry::operation((work, number), read.as_ref(), Some(kept.used().lineage()), history, form);
        }
        if self.written().next().is_none() {
            carry::operation((work, number), read.as_ref(), None, history, || Form::InPlace);
        }
        self.launched = true;
    }
}
