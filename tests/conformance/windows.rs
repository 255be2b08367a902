//! Operations between symmetric windows, at every alignment of what is sent.

use gpucomm::{Backend, CommBuffer, Communicator, ElementKind, InPlace, ReduceOp, Result, Stream, group};

use crate::support::reference::{Want, check, reduce};
use crate::support::{Case, Number, Op, OpExt, Rig, each_type, random, rank_counts, takes, watched};

/// Bytes after which alignments repeat: what kernels read at once is no larger.
const PERIOD: usize = 16;

/// Elements of poison that are looked at behind a result.
const GUARD: usize = 9;

/// Elements of each rank: around the words and packs in which kernels read, and some of a few blocks.
const LENGTHS: [usize; 6] = [1, 2, 3, 7, 64, 1021];

const LONGEST: usize = LENGTHS[LENGTHS.len() - 1];

/// Two windows of one rank, and what is tried with them.
struct Bench<'a, T: Number> {
    comm: &'a Communicator,
    stream: &'a Stream,
    case: &'a Case,
    send: CommBuffer<'a, T>,
    recv: CommBuffer<'a, T>,
    inputs: &'a [Vec<T>],
}

impl<'a, T: Number> Bench<'a, T> {
    fn new(comm: &'a Communicator, stream: &'a Stream, case: &'a Case, inputs: &'a [Vec<T>]) -> Result<Self> {
        let len = PERIOD + inputs[0].len() + GUARD;
        let (send, recv) = (comm.alloc(stream, len)?, comm.alloc(stream, len)?);
        Ok(Self { comm, stream, case, send, recv, inputs })
    }

    fn ranks(&self) -> usize {
        self.comm.size()
    }

    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn mine(&self) -> &'a [T] {
        &self.inputs[self.rank()]
    }

    /// The first `len` elements of each rank, one rank's after the other's.
    fn joined(&self, len: usize) -> Vec<T> {
        self.inputs.iter().flat_map(|input| &input[..len]).copied().collect()
    }

    /// Part `rank` of `len` elements from each rank.
    fn column(&self, rank: usize, len: usize) -> Vec<Vec<T>> {
        self.inputs.iter().map(|input| input[rank * len..][..len].to_vec()).collect()
    }

    /// Poison in `recv`, and the first `len` elements of this rank in `send`.
    fn prepare(&mut self, at: usize, len: usize) -> Result<()> {
        let mine = self.mine();
        self.recv.fill(self.stream, T::poison())?;
        self.send.slice_mut(at..at + len).copy_from_slice(self.stream, &mine[..len])
    }

    /// The same for what works in place: `values` in `recv`.
    fn prepare_in_place(&mut self, at: usize, values: &[T]) -> Result<()> {
        self.recv.fill(self.stream, T::poison())?;
        self.recv.slice_mut(at..at + values.len()).copy_from_slice(self.stream, values)
    }

    /// `len` elements of `recv`, between guards that are still there.
    fn result(&self, at: usize, len: usize) -> Result<Vec<T>> {
        let all = self.recv.slice(..at + len + GUARD).to_vec(self.stream)?;
        let intact = all[..at].iter().chain(&all[at + len..]).all(|guard| *guard == T::poison());
        assert!(intact, "{}: elements around {len} at {at} were overwritten: {all:?}", self.case);
        Ok(all[at..at + len].to_vec())
    }

    fn same(&self, at: usize, want: &[T]) -> Result<()> {
        self.case.same(self.rank(), &self.result(at, want.len())?, want);
        Ok(())
    }

    fn close_to(&self, at: usize, want: &[Want<T>]) -> Result<()> {
        check(self.case, self.rank(), &self.result(at, want.len())?, want);
        Ok(())
    }

    fn all_reduce(&mut self, op: Op, from: usize, to: usize, len: usize) -> Result<()> {
        let want = reduce(&self.column(0, len), op);
        self.prepare(from, len)?;
        let (send, recv) = (self.send.slice(from..from + len), self.recv.slice_mut(to..to + len));
        op.with(self.comm, |op| self.comm.all_reduce((send, recv), op, self.stream))?;
        self.close_to(to, &want)?;
        self.prepare_in_place(from, &self.mine()[..len])?;
        let both = self.recv.slice_mut(from..from + len);
        op.with(self.comm, |op| self.comm.all_reduce(InPlace(both), op, self.stream))?;
        self.close_to(from, &want)
    }

    fn reduce_scatter(&mut self, op: Op, from: usize, to: usize, len: usize) -> Result<()> {
        let (rank, whole) = (self.rank(), len * self.ranks());
        let want = reduce(&self.column(rank, len), op);
        self.prepare(from, whole)?;
        let (send, recv) = (self.send.slice(from..from + whole), self.recv.slice_mut(to..to + len));
        op.with(self.comm, |op| self.comm.reduce_scatter((send, recv), op, self.stream))?;
        self.close_to(to, &want)?;
        self.prepare_in_place(from, &self.mine()[..whole])?;
        let both = self.recv.slice_mut(from..from + whole);
        op.with(self.comm, |op| self.comm.reduce_scatter(InPlace(both), op, self.stream))?;
        // What is not this rank's part is unspecified.
        check(self.case, rank, &self.result(from, whole)?[rank * len..][..len], &want);
        Ok(())
    }

    fn all_gather(&mut self, from: usize, to: usize, len: usize) -> Result<()> {
        let (rank, want) = (self.rank(), self.joined(len));
        self.prepare(from, len)?;
        let (send, recv) = (self.send.slice(from..from + len), self.recv.slice_mut(to..to + want.len()));
        self.comm.all_gather((send, recv), self.stream)?;
        self.same(to, &want)?;
        let mut own = vec![T::poison(); want.len()];
        own[rank * len..][..len].copy_from_slice(&self.mine()[..len]);
        self.prepare_in_place(from, &own)?;
        self.comm.all_gather(InPlace(self.recv.slice_mut(from..from + want.len())), self.stream)?;
        self.same(from, &want)
    }

    /// Those that no kernel for windows does, but copies between them may.
    fn others(&mut self, from: usize, to: usize, len: usize) -> Result<()> {
        let (rank, ranks, whole) = (self.rank(), self.ranks(), len * self.ranks());
        let root = (from + len) % ranks;
        let (comm, stream) = (self.comm, self.stream);

        self.prepare(from, len)?;
        let (send, recv) = (self.send.slice(from..from + len), self.recv.slice_mut(to..to + len));
        comm.broadcast((send, recv), root, stream)?;
        self.same(to, &self.inputs[root][..len])?;

        self.prepare(from, len)?;
        let (send, recv) = (self.send.slice(from..from + len), self.recv.slice_mut(to..to + len));
        comm.reduce((send, recv), ReduceOp::Sum, root, stream)?;
        if rank == root {
            self.close_to(to, &reduce(&self.column(0, len), Op::Sum))?;
        }

        self.prepare(from, len)?;
        let (send, recv) = (self.send.slice(from..from + len), self.recv.slice_mut(to..to + whole));
        comm.gather((send, recv), root, stream)?;
        if rank == root {
            self.same(to, &self.joined(len))?;
        }

        self.prepare(from, whole)?;
        let (send, recv) = (self.send.slice(from..from + whole), self.recv.slice_mut(to..to + len));
        comm.scatter((send, recv), root, stream)?;
        self.same(to, &self.inputs[root][rank * len..][..len])?;

        self.prepare(from, whole)?;
        let (send, recv) = (self.send.slice(from..from + whole), self.recv.slice_mut(to..to + whole));
        comm.all_to_all((send, recv), stream)?;
        self.same(to, &self.column(rank, len).concat())?;

        self.prepare(from, len)?;
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let (send, recv) = (self.send.slice(from..from + len), self.recv.slice_mut(to..to + len));
        group(|g| {
            g.send(comm, send, next, stream)?;
            g.recv(comm, recv, before, stream)
        })?;
        self.same(to, &self.inputs[before][..len])
    }

    /// Two collectives in one group.
    fn grouped(&mut self, from: usize, to: usize, len: usize) -> Result<()> {
        let (comm, stream, whole) = (self.comm, self.stream, len * self.ranks());
        let (gathered, sums) = (self.joined(len), reduce(&self.column(0, len), Op::Sum));
        self.prepare(from, len)?;
        let mut more = comm.alloc::<T>(stream, to + len)?;
        let send = self.send.slice(from..from + len);
        let (recv, sum) = (self.recv.slice_mut(to..to + whole), more.slice_mut(to..));
        group(|g| {
            g.all_gather(comm, (send, recv), stream)?;
            g.all_reduce(comm, (send, sum), ReduceOp::Sum, stream)
        })?;
        self.same(to, &gathered)?;
        check(self.case, self.rank(), &more.slice(to..).to_vec(stream)?, &sums);
        Ok(())
    }
}

fn every_alignment_of<T: Number>(rig: &Rig) {
    let case = Case::reducing::<T>("windows at every alignment", Op::Sum, rig.size(), LONGEST, true);
    let inputs = case.inputs::<T>(rig.size(), LONGEST * rig.size());
    let period = PERIOD / size_of::<T>();
    // The emulator moves types of one size by the same code: all offsets for f32, two for the others, each time others.
    let all = gpucomm::backend() == Backend::Nvidia || T::KIND == ElementKind::F32;
    let drawn = random::rng(&case.to_string()).usize(0..period);
    let offsets: Vec<usize> = if all { (0..period).collect() } else { vec![drawn, period - 1 - drawn] };
    rig.run(|comm, stream| {
        let mut bench = Bench::new(comm, stream, &case, &inputs)?;
        for &from in &offsets {
            for to in [0, from, (5 * from + 3) % period] {
                for len in LENGTHS.into_iter().filter(|len| takes((T::KIND, comm.size(), from, to, len))) {
                    bench.all_reduce(Op::Sum, from, to, len)?;
                    bench.reduce_scatter(Op::Sum, from, to, len)?;
                    bench.all_gather(from, to, len)?;
                }
                let len = LENGTHS[(from + to) % LENGTHS.len()];
                for op in Op::of::<T>(comm.size())
                    .into_iter()
                    .filter(|op| [Op::Max, Op::Avg, Op::PreMul].contains(op))
                    .filter(|op| takes((T::KIND, comm.size(), from, to, op)))
                {
                    bench.all_reduce(op, from, to, len)?;
                    bench.reduce_scatter(op, from, to, len)?;
                }
                if takes((T::KIND, comm.size(), from, to, "others")) {
                    bench.others(from, to, len)?;
                }
            }
            bench.grouped(from, period - 1 - from, LENGTHS[from % LENGTHS.len()])?;
        }
        Ok(())
    });
}

#[test]
fn every_operation_at_every_alignment() {
    // More work than any other test.
    watched(600.0, || {
        for ranks in rank_counts(&[1, 2, 3, 4]) {
            let rig = Rig::new(ranks);
            each_type!(every_alignment_of(&rig));
            rig.close();
        }
    });
}
