//! Communicators that are split off, work for themselves, and go.

use std::time::Duration;

use gpucomm::{Communicator, DeviceBuffer, InPlace, ReduceOp, Result, Stream, group, nccl};

use crate::configs::Settings;
use crate::generator::Generator;
use crate::model::Model;
use crate::rank::Rank;
use crate::settings::slower;
use crate::step::Step;

/// How many colors there are.
const COLORS: usize = 3;

/// How a part ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Closed,
    Dropped,
    /// Together with what was split off from it.
    Several,
    /// With the program.
    Late,
}

/// Each rank splits, and what it is in then tells which ranks are there, once or twice.
#[derive(Debug)]
struct Split {
    colors: Vec<Option<usize>>,
    keys: Vec<usize>,
    /// How the part of each color is configured, if not as the whole.
    settings: Option<[Settings; COLORS]>,
    streams: Vec<usize>,
    /// Whether the parts are split again, by their ranks.
    again: bool,
    /// Whether one group holds calls on the whole and the part, which is waited for when the part has ended, or never; and then another one
    /// messages on both.
    beside: bool,
    /// One for all: to be closed, a rank waits for the others of its part.
    end: End,
}

pub fn split(g: &mut Generator) -> Option<Box<dyn Step>> {
    let colors = g.each(|g| if g.chance(5) { None } else { Some(g.rng.usize(..COLORS)) });
    let (keys, again, beside) = (g.each(|g| g.rng.usize(..3)), g.chance(3), g.chance(2));
    let end = g.choose(&[End::Closed, End::Dropped, End::Several, End::Late]);
    let settings = g.chance(2).then(|| std::array::from_fn(|_| Settings::draw(&mut g.rng)));
    Some(Box::new(Split { colors, keys, settings, streams: g.streams(), again, beside, end }))
}

impl Step for Split {
    fn apply(&self, _: &mut Model) {}

    fn run(&self, rank: &mut Rank<'_>) -> Result<()> {
        let me = rank.number();
        let (color, key) = (self.colors[me], self.keys[me]);
        let part = match self.settings {
            None => rank.comm.split(color, key)?,
            Some(settings) => rank.comm.split_with(color, key, &settings[color.unwrap_or(0)].config())?,
        };
        assert_eq!(part.is_some(), self.colors[me].is_some());
        if self.beside {
            let stream = rank.stream(&self.streams);
            let mut sums = [DeviceBuffer::<u32>::zeroed(stream, 9)?, DeviceBuffer::zeroed(stream, 9)?];
            let [of_all, of_part] = &mut sums;
            group(|group| {
                if let Some(part) = &part {
                    group.all_reduce(part, InPlace(of_part), ReduceOp::Sum, stream)?;
                }
                group.all_reduce(rank.comm, InPlace(of_all), ReduceOp::Sum, stream)
            })?;
            rings(&[Some(rank.comm), part.as_ref()].into_iter().flatten().collect::<Vec<_>>(), stream)?;
        }
        let Some(part) = part else { return Ok(()) };
        let mut there: Vec<_> = (0..rank.comm.size()).filter(|&other| self.colors[other] == self.colors[me]).collect();
        there.sort_by_key(|&other| self.keys[other]);
        works(&part, rank.stream(&self.streams), me, &there)?;
        let mut halves = Vec::new();
        if self.again {
            let half = part.split(Some(part.rank() % 2), part.rank())?.expect("a part");
            let there: Vec<_> = there.iter().copied().skip(part.rank() % 2).step_by(2).collect();
            works(&half, rank.stream(&self.streams), me, &there)?;
            rings(&[&half, &part], rank.stream(&self.streams))?;
            // Else it goes before the part does.
            halves.extend(Some(half).filter(|_| matches!(self.end, End::Several)));
        }
        match self.end {
            End::Closed => part.close_timeout(slower(Duration::from_secs(20)))?,
            End::Dropped => drop(part),
            End::Several => {
                let all = [part].into_iter().chain(halves);
                nccl::close_all_timeout(all, slower(Duration::from_secs(20))).into_iter().collect::<Result<()>>()?;
            }
            End::Late => rank.parts.push(part),
        }
        Ok(())
    }
}

/// Rank `me` of all, in a part of these ranks, learns that they are there.
pub fn works(part: &Communicator, stream: &Stream, me: usize, there: &[usize]) -> Result<()> {
    assert_eq!((part.size(), there[part.rank()]), (there.len(), me), "of a part");
    let mine = DeviceBuffer::from_slice(stream, &[me as u32 + 1; 3])?;
    let mut all = DeviceBuffer::<u32>::zeroed(stream, 3 * there.len())?;
    part.all_gather((&mine, &mut all), stream)?;
    let want: Vec<_> = there.iter().flat_map(|&other| [other as u32 + 1; 3]).collect();
    assert_eq!(all.to_vec(stream)?, want, "ranks of a part");
    let mut sum = DeviceBuffer::from_slice(stream, &[me as u64; 100])?;
    part.all_reduce(InPlace(&mut sum), ReduceOp::Sum, stream)?;
    assert_eq!(sum.to_vec(stream)?, [there.iter().sum::<usize>() as u64; 100], "a sum of a part");
    Ok(())
}

/// In one group each rank of each of these sends to the next rank of it.
fn rings(comms: &[&Communicator], stream: &Stream) -> Result<()> {
    let sent = |comm: &&Communicator| DeviceBuffer::from_slice(stream, &[comm.rank() as u32; 7]);
    let sent: Vec<_> = comms.iter().map(sent).collect::<Result<_>>()?;
    let got = comms.iter().map(|_| DeviceBuffer::<u32>::zeroed(stream, 7));
    let mut got: Vec<_> = got.collect::<Result<_>>()?;
    group(|group| {
        for ((comm, sent), got) in comms.iter().zip(&sent).zip(&mut got) {
            group.send(comm, sent, (comm.rank() + 1) % comm.size(), stream)?;
            group.recv(comm, got, (comm.rank() + comm.size() - 1) % comm.size(), stream)?;
        }
        Ok(())
    })?;
    for (comm, got) in comms.iter().zip(&got) {
        let before = (comm.rank() + comm.size() - 1) % comm.size();
        assert_eq!(got.to_vec(stream)?, [before as u32; 7], "what the rank before has sent");
    }
    Ok(())
}
