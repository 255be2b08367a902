//! The ten operations: their names, how a size is shared out, and what counts as bandwidth.

/// An operation that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather,
    Scatter,
    SendRecv,
    AllToAllV,
}

impl Operation {
    pub const ALL: [Self; 10] = [
        Self::AllReduce,
        Self::Reduce,
        Self::Broadcast,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Gather,
        Self::Scatter,
        Self::SendRecv,
        Self::AllToAllV,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::Reduce => "reduce",
            Self::Broadcast => "broadcast",
            Self::AllGather => "all_gather",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllToAll => "all_to_all",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::SendRecv => "sendrecv",
            Self::AllToAllV => "all_to_all_v",
        }
    }

    /// By any of the usual spellings: `all_reduce`, `allreduce`, `all-reduce`, `all_reduce_perf`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = |name: &str| name.replace(['_', '-'], "").to_ascii_lowercase();
        let wanted = plain(text);
        let wanted = wanted.strip_suffix("perf").unwrap_or(&wanted);
        Self::ALL.into_iter().find(|operation| plain(operation.name()) == wanted).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|operation| operation.name()).collect();
            let of_nvshmem = ["put", "get", "putsignal", "barrier", "fcollect"].contains(&wanted);
            let hint = if of_nvshmem { "; it is one of NVSHMEM's, with --nvshmem" } else { "" };
            format!("'{text}' is no operation: expected one of {}{hint}", names.join(", "))
        })
    }

    pub fn reduces(self) -> bool {
        matches!(self, Self::AllReduce | Self::Reduce | Self::ReduceScatter)
    }

    pub fn has_root(self) -> bool {
        matches!(self, Self::Reduce | Self::Broadcast | Self::Gather | Self::Scatter)
    }

    /// Whether it can work in place. An exchange cannot: it would read what it is overwriting.
    pub fn in_place(self) -> bool {
        !matches!(self, Self::AllToAll | Self::SendRecv | Self::AllToAllV)
    }

    /// How `bytes` in elements of `element` bytes are shared out among `ranks`.
    ///
    /// Operations whose buffers have a part for each rank round the part down to 16 bytes, as nccl-tests does, so that
    /// every part stays aligned.
    pub fn shape(self, bytes: usize, element: usize, ranks: usize) -> Shape {
        let count = bytes / element;
        let part = (count / ranks) & !(16 / element - 1);
        let whole = part * ranks;
        let (send, recv, count) = match self {
            Self::AllReduce | Self::Reduce | Self::Broadcast | Self::SendRecv => (count, count, count),
            Self::AllGather | Self::Gather => (part, whole, part),
            Self::ReduceScatter | Self::Scatter => (whole, part, part),
            Self::AllToAll => (whole, whole, part),
            Self::AllToAllV => {
                let total = (0..ranks).map(|peer| uneven(0, peer, ranks, whole * element) / element).sum();
                (total, total, part)
            }
        };
        Shape { send, recv, count, element, ranks }
    }

    /// Bandwidth for the algorithm and for the bus, in GB/s (10⁹), by nccl-tests' conventions.
    pub fn bandwidth(self, shape: &Shape, seconds: f64) -> (f64, f64) {
        let n = shape.ranks as f64;
        let bytes = shape.bytes() as f64;
        let factor = match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::Reduce | Self::Broadcast | Self::SendRecv => 1.0,
            _ => (n - 1.0) / n,
        };
        let algorithm = if seconds > 0.0 { bytes / 1e9 / seconds } else { 0.0 };
        (algorithm, algorithm * factor)
    }
}

/// How many elements a rank sends and receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Elements in the send buffer of the rank that sends most.
    pub send: usize,
    /// Elements in the receive buffer of the rank that receives most.
    pub recv: usize,
    /// The count that the table shows: what the C function would be given.
    pub count: usize,
    /// Bytes of an element.
    pub element: usize,
    pub ranks: usize,
}

impl Shape {
    /// Elements in the larger of the two buffers.
    pub fn extent(&self) -> usize {
        self.send.max(self.recv)
    }

    /// The size that the table shows.
    pub fn bytes(&self) -> usize {
        self.extent() * self.element
    }

    /// Elements that `from` sends to `to` in an all_to_all_v of this shape.
    pub fn uneven(&self, from: usize, to: usize) -> usize {
        uneven(from, to, self.ranks, self.count * self.ranks * self.element) / self.element
    }
}

/// Bytes that `from` sends to `to` when each rank sends `total`: nccl-tests' default pattern for all_to_all_v, in which
/// a rank gets more the further it is behind the sender in the ring, and the sender itself gets nothing.
fn uneven(from: usize, to: usize, ranks: usize, total: usize) -> usize {
    let bytes = if ranks == 1 {
        total
    } else {
        let distance = (to + ranks - from) % ranks;
        let distances = ranks * (ranks - 1) / 2;
        (distance as f64 * total as f64 / distances as f64) as usize
    };
    bytes & !15
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        for (text, operation) in [
            ("all_reduce", Operation::AllReduce),
            ("alltoall", Operation::AllToAll),
            ("alltoallv", Operation::AllToAllV),
            ("sendrecv", Operation::SendRecv),
            ("send_recv", Operation::SendRecv),
            ("reduce-scatter", Operation::ReduceScatter),
            ("all_gather_perf", Operation::AllGather),
        ] {
            assert_eq!(Operation::parse(text), Ok(operation), "{text}");
        }
        assert!(Operation::parse("all_reduces").unwrap_err().contains("all_to_all_v"));
        assert!(Operation::parse("").is_err());
    }

    #[test]
    fn parts_are_aligned_and_fit() {
        for operation in Operation::ALL {
            for element in [1, 2, 4, 8] {
                for ranks in 1..9 {
                    for bytes in [0, 1, 8, 63, 64, 4096, 1_000_003] {
                        let shape = operation.shape(bytes, element, ranks);
                        assert!(shape.bytes() <= bytes, "{operation:?} {shape:?}");
                        let sent: Vec<usize> = (0..ranks).map(|to| shape.uneven(0, to)).collect();
                        let received: usize = (0..ranks).map(|from| shape.uneven(from, 0)).sum();
                        assert_eq!(sent.iter().sum::<usize>(), received);
                        if operation == Operation::AllToAllV {
                            assert_eq!((received, received), (shape.send, shape.recv));
                        }
                    }
                }
            }
        }
        assert_eq!(Operation::AllGather.shape(1000, 4, 4).count, 60);
        assert_eq!(Operation::AllGather.shape(8, 4, 4).bytes(), 0);
    }
}
