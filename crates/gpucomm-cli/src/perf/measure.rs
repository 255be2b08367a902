//! What each member of a run does: for every type, reduction, root and size, time the operation and check it.

use gpucomm::nccl::Communicator;
use gpucomm::{ElementKind, bf16, f16};
#[cfg(nccl_ge_2_24)]
use gpucomm::{F8E4M3, F8E5M2};

use super::buffers::Rank;
use super::check::{Found, each};
use super::data::Data;
use super::enqueue::Call;
use super::kinds;
use super::number::Number;
use super::ranks::Ranks;
use super::report::Report;
use super::row::{Row, Setup, Timing};
use super::team::Team;
use super::timing::{Loop, Stride};
use crate::failure::Result;
use crate::options::{PerfOptions, RedOp, Way, kind_name};
use crate::size::{Step, human, sweep};

/// Measures one table on the ranks of this member; true if nothing was wrong.
pub fn run(options: &PerfOptions, setup: &Setup, comms: &[&Communicator], team: &dyn Team) -> Result<bool> {
    // NCCL makes a communicator's device the current one and restores the other, at every call, where they differ.
    let _current = comms[0].device().set_current()?;
    let mut member = Member { options, way: setup.way, comms, team, salt: 0, report: Report::new(setup) };
    for line in member.report.header() {
        member.print(&line)?;
    }
    for kind in kinds::measured(options, comms, team)? {
        match kind {
            ElementKind::I8 => member.kind::<i8>(),
            ElementKind::U8 => member.kind::<u8>(),
            ElementKind::I32 => member.kind::<i32>(),
            ElementKind::U32 => member.kind::<u32>(),
            ElementKind::I64 => member.kind::<i64>(),
            ElementKind::U64 => member.kind::<u64>(),
            ElementKind::F16 => member.kind::<f16>(),
            ElementKind::Bf16 => member.kind::<bf16>(),
            ElementKind::F32 => member.kind::<f32>(),
            ElementKind::F64 => member.kind::<f64>(),
            #[cfg(nccl_ge_2_24)]
            ElementKind::F8E4M3 => member.kind::<F8E4M3>(),
            #[cfg(nccl_ge_2_24)]
            ElementKind::F8E5M2 => member.kind::<F8E5M2>(),
            other => Err(crate::failure::Failure::run(format!("perf does not know the type {other}"))),
        }?;
    }
    for line in member.report.footer() {
        member.print(&line)?;
    }
    if team.member() == 0 {
        team.report(member.report.json())?;
    }
    Ok(member.report.good())
}

struct Member<'a> {
    options: &'a PerfOptions,
    way: Way,
    comms: &'a [&'a Communicator],
    team: &'a dyn Team,
    /// Makes the data of each check different.
    salt: u64,
    report: Report<'a>,
}

impl Member<'_> {
    fn print(&self, line: &str) -> Result<()> {
        if self.team.member() == 0 { self.team.line(line) } else { Ok(()) }
    }

    fn kind<T: Number>(&mut self) -> Result<()> {
        let reductions = self.options.reductions();
        let (bytes, buffers) = (self.options.max, self.way.buffers);
        // All at the same time, since all ranks make windows, and register, together.
        let mut comms = self.comms.to_vec();
        let mut ranks = each(&mut comms, |comm| Rank::<T>::new(comm, bytes, buffers, &reductions))?;
        self.sweep(&mut ranks)
    }

    /// Measures every reduction, root and size.
    fn sweep(&mut self, ranks: &mut dyn Ranks<'_>) -> Result<()> {
        let reductions = self.options.reductions();
        self.warm_up(ranks, reductions[0])?;
        for redop in reductions {
            for root in self.options.roots() {
                for size in sweep(self.options.min, self.options.max, self.options.step) {
                    self.row(ranks, redop, root, size)?;
                }
            }
        }
        Ok(())
    }

    /// Runs the operation at all sizes before the first is timed: NCCL connects the ranks at the first use of each of its
    /// algorithms, and devices that idle are slow at first.
    fn warm_up(&self, ranks: &mut dyn Ranks<'_>, redop: Option<RedOp>) -> Result<()> {
        let (operation, options, element) = (self.options.operation, self.options, ranks.kind().size());
        let root = options.roots().into_iter().next().and_then(|root| usize::try_from(root).ok()).unwrap_or(0);
        for size in sweep(options.min, options.max, Step::Factor(2)) {
            let shape = operation.shape(size, element, options.ranks());
            let stride = Stride::new(shape.extent(), options.max / element);
            for in_place in [false, true] {
                if !in_place || operation.in_place() {
                    ranks.lay_out(operation, &shape);
                    let call = Call { operation, redop, root, in_place, shape };
                    Loop { call: &call, times: options.warmup, stride }.run(ranks, 0, || Ok(()))?;
                }
            }
        }
        Ok(())
    }

    fn row(&mut self, ranks: &mut dyn Ranks<'_>, redop: Option<RedOp>, root: i64, size: usize) -> Result<()> {
        let operation = self.options.operation;
        let shape = operation.shape(size, ranks.kind().size(), self.options.ranks());
        let (kind, redop_name) = (kind_name(ranks.kind()), redop.map_or("none", RedOp::name));
        if self.team.member() == 0 {
            self.team.progress(&format!("{} {kind} {redop_name} {} ...", operation.name(), human(size)))?;
        }
        ranks.lay_out(operation, &shape);
        let mut call = Call { operation, redop, root: usize::try_from(root).unwrap_or(0), in_place: false, shape };
        let out_of_place = self.measure(ranks, &call)?;
        let in_place = if operation.in_place() {
            call.in_place = true;
            Some(self.measure(ranks, &call)?)
        } else {
            None
        };
        let row =
            Row { bytes: shape.bytes(), count: shape.count, kind, redop: redop_name, root, out_of_place, in_place };
        let line = self.report.add(row);
        if self.team.member() == 0 {
            self.team.progress("")?;
        }
        self.print(&line)
    }

    fn measure(&mut self, ranks: &mut dyn Ranks<'_>, call: &Call) -> Result<Timing> {
        let options = self.options;
        let stride = Stride::new(call.shape.extent(), options.max / ranks.kind().size());
        Loop { call, times: options.warmup, stride }.run(ranks, 0, || Ok(()))?;
        let launches = self.way.launches;
        let seconds = Loop { call, times: options.iterations, stride }.run(ranks, launches, || self.team.start())?;
        ranks.each().iter().try_for_each(|(comm, _)| comm.async_error())?;
        let seconds = options.average.of(&self.team.gather(seconds)?);
        let (algbw, busbw) = call.operation.bandwidth(&call.shape, seconds);

        let mut found = None;
        for _ in 0..options.checks {
            self.salt += 1;
            let data = Data::new(call.operation, call.redop, ranks.kind(), call.shape, call.root, self.salt);
            let mine = check(ranks, call, &data, launches > 0)?;
            let total = |values: Vec<f64>| values.iter().sum::<f64>() as u64;
            let all = Found {
                wrong: total(self.team.gather(mine.wrong as f64)?),
                outside: total(self.team.gather(mine.outside as f64)?),
            };
            *found.get_or_insert_with(Found::default) += all;
            if all != Found::default() {
                break;
            }
        }
        Ok(Timing { seconds, algbw, busbw, found })
    }
}

/// Fills the buffers, runs `call` once, within a graph or not, and looks at what it did.
fn check(ranks: &mut dyn Ranks<'_>, call: &Call, data: &Data, captured: bool) -> Result<Found> {
    ranks.prepare(data, call.in_place)?;
    Loop { call, times: 1, stride: Stride::NONE }.run(ranks, captured.into(), || Ok(()))?;
    ranks.examine(data, call.in_place)
}

#[cfg(all(test, gpucomm_emulator))]
mod tests {
    use gpucomm::{Clique, Device, ReduceOp};

    use super::*;
    use crate::options::Buffers;
    use crate::perf::check::examine;
    use crate::perf::operation::Operation;

    /// A check finds wrong results, and writes outside of the result.
    #[test]
    fn what_is_wrong_is_found() {
        const LEN: usize = 1000;
        let clique = Clique::init_all(&[Device::new(0).unwrap()]).unwrap();
        let mut ranks = vec![Rank::<f32>::new(&clique.ranks()[0], LEN * 4, Buffers::Plain, &[]).unwrap()];
        let operation = Operation::AllReduce;
        let shape = operation.shape(LEN * 4, 4, 1);
        let data = |salt| Data::new(operation, Some(RedOp::Op(ReduceOp::Sum)), ElementKind::F32, shape, 0, salt);
        for in_place in [false, true] {
            let call = Call { operation, redop: Some(RedOp::Op(ReduceOp::Sum)), root: 0, in_place, shape };
            assert_eq!(check(&mut ranks, &call, &data(1), false).unwrap(), Found::default());
            let rank = &mut ranks[0];
            let other = examine(rank, &data(2), in_place).unwrap();
            assert!(other.wrong > LEN as u64 - 10 && (other.outside == 0) == in_place, "{other:?}");

            let guard = Rank::<f32>::GUARD;
            let mut spoil = |places: &[usize], send: bool| {
                for &place in places {
                    let buffer = if send { &mut rank.send } else { &mut rank.recv };
                    buffer.slice_mut(place..place + 1).fill(&rank.stream, f32::NAN).unwrap();
                }
                examine(rank, &data(1), in_place).unwrap()
            };
            assert_eq!(spoil(&[guard, guard + LEN - 1, guard + 7], false), Found { wrong: 3, outside: 0 });
            let outside = [0, guard - 1, guard + LEN, 2 * guard + LEN - 1];
            assert_eq!(spoil(&outside, false), Found { wrong: 3, outside: 4 });
            let sent = spoil(&[guard - 1, guard + 5, guard + LEN], true);
            assert_eq!(sent, Found { wrong: 3, outside: if in_place { 4 } else { 7 } });
        }
    }
}
