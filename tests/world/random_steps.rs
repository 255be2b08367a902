//! The steps of random programs: a request of all ranks, and what it makes of what they hold.

use gpucomm::world::{Part, PreMul, Rank, requests};
use gpucomm::{Device, InPlace, ReduceOp};

use super::random::{Buffer, Program};
use super::support::{on, zeroed};

/// What each rank holds.
type Model = Vec<Vec<u32>>;

fn fold(op: ReduceOp, one: u32, other: u32) -> u32 {
    match op {
        ReduceOp::Sum => one.wrapping_add(other),
        ReduceOp::Prod => one.wrapping_mul(other),
        ReduceOp::Min => one.min(other),
        _ => one.max(other),
    }
}

/// What all ranks make of what they hold at each place.
fn reduced(old: &Model, op: ReduceOp) -> Vec<u32> {
    (0..old[0].len()).map(|at| old.iter().map(|one| one[at]).reduce(|a, b| fold(op, a, b)).unwrap()).collect()
}

/// Where each of so many parts begins.
fn offsets(counts: &[usize]) -> Vec<usize> {
    counts.iter().scan(0, |end, count| Some(std::mem::replace(end, *end + count))).collect()
}

/// Room for the result of a root.
fn room(rank: &Rank, root: usize, len: usize) -> Option<Buffer> {
    (rank.rank() == root).then(|| zeroed(rank.device(), len))
}

fn new_part(device: Device, len: usize, range: std::ops::Range<usize>) -> Part<Buffer> {
    Part::new(zeroed(device, len), range).expect("a range within")
}

/// One step, which the program draws.
pub fn step(program: &mut Program) {
    let size = program.world.size();
    let (old, len) = (program.model.clone(), program.model[0].len());
    let (root, part) = (program.rng.usize(..size), len / size);
    let op = [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max][program.rng.usize(..4)];
    let kind = program.rng.usize(..20);
    program.log.push(format!("{kind} {op:?} {root}"));
    let own = |rank: usize| rank * part..(rank + 1) * part;
    let parts = |of: usize| old[of].clone();
    program.model = match kind {
        0 => {
            program.ask(|_, x| requests::all_reduce(InPlace(x), op), |x| x);
            vec![reduced(&old, op); size]
        }
        1 => {
            program.ask(|_, x| requests::broadcast(InPlace(x), root), |x| x);
            vec![parts(root); size]
        }
        2 => {
            program.ask(|_, x| requests::all_gather(InPlace(x)), |x| x);
            vec![(0..size).flat_map(|rank| old[rank][own(rank)].to_vec()).collect(); size]
        }
        3 => {
            program.ask(|rank, x| requests::all_to_all((x, zeroed::<u32>(rank.device(), len))), |(_, recv)| recv);
            (0..size).map(|to| (0..size).flat_map(|from| old[from][own(to)].to_vec()).collect()).collect()
        }
        4 => {
            let make = |rank: &Rank, x| {
                let (next, before) = ((rank.rank() + 1) % size, (rank.rank() + size - 1) % size);
                (requests::send(x, next), requests::recv(zeroed::<u32>(rank.device(), len), before))
            };
            program.ask(make, |(_, received)| received);
            (0..size).map(|rank| parts((rank + size - 1) % size)).collect()
        }
        5 => {
            // A list: the sum of a buffer, and one of something else.
            let make = |rank: &Rank, x| {
                vec![
                    requests::all_reduce(InPlace(x), op),
                    requests::all_reduce(InPlace(on(rank.device(), &[1])), ReduceOp::Sum),
                ]
            };
            program.ask(make, |mut list| list.swap_remove(0));
            vec![reduced(&old, op); size]
        }
        6 => {
            let make = |rank: &Rank, x| requests::reduce((x, room(rank, root, len)), op, root);
            program.ask(make, |(x, all)| all.unwrap_or(x));
            let mut new = old.clone();
            new[root] = reduced(&old, op);
            new
        }
        7 => {
            let make = |rank: &Rank, x| {
                requests::gather((Part::new(x, own(rank.rank())).expect("a range within"), room(rank, root, len)), root)
            };
            program.ask(make, |(x, all)| all.unwrap_or(x.into_whole()));
            let mut new = old.clone();
            new[root] = (0..size).flat_map(|rank| old[rank][own(rank)].to_vec()).collect();
            new
        }
        8 => {
            let make = |rank: &Rank, x| {
                let range = own(rank.rank());
                let form = if rank.rank() == root {
                    (Some(x), new_part(rank.device(), len, range))
                } else {
                    (None, Part::new(x, range).expect("a range within"))
                };
                requests::scatter(form, root)
            };
            program.ask(make, |(_, part): (Option<Buffer>, _)| part.into_whole());
            let put = |rank: usize| {
                let mut new = if rank == root { vec![0; len] } else { parts(rank) };
                new[own(rank)].copy_from_slice(&old[root][own(rank)]);
                new
            };
            (0..size).map(put).collect()
        }
        9 => {
            let make =
                |rank: &Rank, x| requests::reduce_scatter((x, new_part(rank.device(), len, own(rank.rank()))), op);
            program.ask(make, |(_, part)| part.into_whole());
            let put = |rank: usize| {
                let mut new = vec![0; len];
                new[own(rank)].copy_from_slice(&reduced(&old, op)[own(rank)]);
                new
            };
            (0..size).map(put).collect()
        }
        10 => {
            // Each rank has a factor of its own.
            let factor = program.rng.u32(..9);
            let of = move |rank: usize| factor + u32::try_from(rank).unwrap();
            program.ask(move |rank, x| requests::all_reduce(InPlace(x), PreMul(of(rank.rank()))), |x| x);
            let scaled = |(rank, one): (usize, &Vec<u32>)| one.iter().map(|x| x.wrapping_mul(of(rank))).collect();
            vec![reduced(&old.iter().enumerate().map(scaled).collect(), ReduceOp::Sum); size]
        }
        11 => {
            let sum = |_: &Rank, x| requests::all_reduce(InPlace(x), op);
            if program.ask_and_cancel(sum, |x| x, |x| x) { vec![reduced(&old, op); size] } else { old }
        }
        12 => {
            // The last rank has no room for one element.
            let make = |rank: &Rank, x| {
                let less = usize::from(rank.rank() + 1 == size);
                requests::all_gather((
                    Part::new(x, 0..part).expect("a range within"),
                    zeroed::<u32>(rank.device(), part * size - less),
                ))
            };
            program.ask_wrongly(make, |(x, _)| x.into_whole());
            old
        }
        _ => divided(program, kind, op, root),
    };
}

/// Those with a number of elements for each rank.
fn divided(program: &mut Program, kind: usize, op: ReduceOp, root: usize) -> Model {
    let size = program.world.size();
    let (old, len) = (program.model.clone(), program.model[0].len());
    // Some have none.
    let counts: Vec<usize> = (0..size).map(|_| program.rng.usize(..=len / size)).collect();
    let (begin, total) = (offsets(&counts), counts.iter().sum::<usize>());
    let range = |rank: usize| begin[rank]..begin[rank] + counts[rank];
    let zeros = || vec![0; len];
    match kind {
        13 => {
            let make = |rank: &Rank, x| {
                let recv = new_part(rank.device(), len, 0..total);
                requests::all_gather_v(
                    (Part::new(x, 0..counts[rank.rank()]).expect("a range within"), recv),
                    counts.clone(),
                )
            };
            program.ask(make, |(_, all)| all.into_whole());
            let mut all = zeros();
            (0..size).for_each(|rank| all[range(rank)].copy_from_slice(&old[rank][..counts[rank]]));
            vec![all; size]
        }
        14 => {
            let make = |rank: &Rank, x| {
                let recv = new_part(rank.device(), len, 0..counts[rank.rank()]);
                requests::reduce_scatter_v((Part::new(x, 0..total).expect("a range within"), recv), counts.clone(), op)
            };
            program.ask(make, |(_, own)| own.into_whole());
            let put = |rank: usize| {
                let mut new = zeros();
                new[..counts[rank]].copy_from_slice(&reduced(&old, op)[range(rank)]);
                new
            };
            (0..size).map(put).collect()
        }
        15 => {
            let make = |rank: &Rank, x| {
                let recv = (rank.rank() == root).then(|| new_part(rank.device(), len, 0..total));
                requests::gather_v(
                    (Part::new(x, 0..counts[rank.rank()]).expect("a range within"), recv),
                    counts.clone(),
                    root,
                )
            };
            program.ask(make, |(x, all)| all.unwrap_or(x).into_whole());
            let mut new = old.clone();
            new[root] = zeros();
            for rank in 0..size {
                new[root][range(rank)].copy_from_slice(&old[rank][..counts[rank]]);
            }
            new
        }
        16 => {
            let make = |rank: &Rank, x| {
                let own = 0..counts[rank.rank()];
                let form = if rank.rank() == root {
                    (Some(Part::new(x, 0..total).expect("a range within")), new_part(rank.device(), len, own))
                } else {
                    (None, Part::new(x, own).expect("a range within"))
                };
                requests::scatter_v(form, counts.clone(), root)
            };
            program.ask(make, |(_, own): (Option<Part<Buffer>>, _)| own.into_whole());
            let mut new = old.clone();
            new[root] = zeros();
            for rank in 0..size {
                new[rank][..counts[rank]].copy_from_slice(&old[root][range(rank)]);
            }
            new
        }
        _ => {
            // As many from each rank to each other as is drawn for the two, at places with gaps between.
            let most = len / size;
            let table: Vec<Vec<usize>> =
                (0..size).map(|_| (0..size).map(|_| program.rng.usize(..=most)).collect()).collect();
            let places: Vec<usize> = (0..size).map(|rank| rank * most).collect();
            let make = |rank: &Rank, x| {
                let own = rank.rank();
                let from = table.iter().map(|counts| counts[own]).collect::<Vec<_>>();
                let recv = zeroed::<u32>(rank.device(), len);
                requests::all_to_all_v((x, recv), (table[own].clone(), places.clone()), (from, places.clone()))
            };
            program.ask(make, |(_, recv)| recv);
            let mut new = vec![zeros(); size];
            for (to, own) in new.iter_mut().enumerate() {
                for from in 0..size {
                    let count = table[from][to];
                    own[places[from]..][..count].copy_from_slice(&old[from][places[to]..][..count]);
                }
            }
            new
        }
    }
}
