//! As what elements are moved, where they are not reduced: as they are, or as others of the same size.

use fastrand::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carried {
    Itself,
    /// `[u8; N]`.
    Bytes,
    /// `[u16; N]`; of one byte, the byte.
    Words,
}

impl Carried {
    pub const ALL: [Self; 3] = [Self::Itself, Self::Bytes, Self::Words];

    pub fn draw(rng: &mut Rng) -> Self {
        Self::ALL[rng.usize(..4).saturating_sub(1)]
    }

    /// Another type than that of this one, for elements of so many bytes.
    pub fn other(self) -> Self {
        if self == Self::Itself { Self::Bytes } else { Self::Itself }
    }
}
