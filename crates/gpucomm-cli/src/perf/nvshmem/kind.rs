//! The operations of NVSHMEM that can be measured: their names, how a size is shared out, and what counts as bandwidth.

/// An operation of NVSHMEM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Put,
    Get,
    PutSignal,
    Barrier,
    Reduce,
    Broadcast,
    Fcollect,
    AllToAll,
    ReduceScatter,
}

/// Elements of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// What each PE gives.
    pub source: usize,
    /// What each PE gets.
    pub dest: usize,
    /// The size that the table shows, in bytes.
    pub bytes: usize,
}

impl Operation {
    pub const ALL: [Self; 9] = [
        Self::Put,
        Self::Get,
        Self::PutSignal,
        Self::Barrier,
        Self::Reduce,
        Self::Broadcast,
        Self::Fcollect,
        Self::AllToAll,
        Self::ReduceScatter,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Get => "get",
            Self::PutSignal => "put_signal",
            Self::Barrier => "barrier",
            Self::Reduce => "reduce",
            Self::Broadcast => "broadcast",
            Self::Fcollect => "fcollect",
            Self::AllToAll => "alltoall",
            Self::ReduceScatter => "reducescatter",
        }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let plain = |name: &str| name.replace(['_', '-'], "").to_ascii_lowercase();
        let wanted = plain(text);
        Self::ALL.into_iter().find(|operation| plain(operation.name()) == wanted).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|operation| operation.name()).collect();
            format!("'{text}' is no operation of NVSHMEM: expected one of {}", names.join(", "))
        })
    }

    /// Whether one PE does it to another.
    pub fn is_of_two(self) -> bool {
        matches!(self, Self::Put | Self::Get | Self::PutSignal)
    }

    pub fn reduces(self) -> bool {
        matches!(self, Self::Reduce | Self::ReduceScatter)
    }

    /// How `bytes` in elements of `element` bytes are shared out among `pes`, as perftest has it.
    pub fn shape(self, bytes: usize, element: usize, pes: usize) -> Shape {
        let count = bytes / element;
        let part = count / pes;
        let (source, dest) = match self {
            Self::Barrier => (0, 0),
            Self::Put | Self::Get | Self::PutSignal | Self::Reduce | Self::Broadcast => (count, count),
            Self::Fcollect => (part, part * pes),
            Self::AllToAll => (part * pes, part * pes),
            Self::ReduceScatter => (part * pes, part),
        };
        Shape { source, dest, bytes: source.max(dest) * element }
    }

    /// Bandwidth for the algorithm and for the bus, in GB/s (10⁹), by perftest's conventions.
    pub fn bandwidth(self, bytes: usize, pes: usize, seconds: f64) -> (f64, f64) {
        let n = pes as f64;
        let factor = match self {
            Self::Reduce => 2.0 * (n - 1.0) / n,
            Self::Fcollect | Self::AllToAll | Self::ReduceScatter => (n - 1.0) / n,
            _ => 1.0,
        };
        let algorithm = if seconds > 0.0 { bytes as f64 / 1e9 / seconds } else { 0.0 };
        (algorithm, algorithm * factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        assert_eq!(Operation::parse("put-signal"), Ok(Operation::PutSignal));
        assert_eq!(Operation::parse("reduce_scatter"), Ok(Operation::ReduceScatter));
        assert!(Operation::parse("all_reduce").unwrap_err().contains("fcollect"));
    }

    #[test]
    fn parts_fit() {
        for operation in Operation::ALL {
            for (bytes, element, pes) in [(0, 4, 2), (1, 1, 3), (1000, 8, 3), (4096, 4, 4)] {
                let shape = operation.shape(bytes, element, pes);
                assert!(shape.bytes <= bytes && shape.source.max(shape.dest) * element == shape.bytes, "{shape:?}");
            }
        }
        let (algorithm, bus) = Operation::Reduce.bandwidth(1000, 4, 1e-6);
        assert!((algorithm - 1.0).abs() < 1e-9 && (bus - 1.5).abs() < 1e-9);
        assert_eq!(Operation::ReduceScatter.shape(1000, 8, 3), Shape { source: 123, dest: 41, bytes: 984 });
    }
}
