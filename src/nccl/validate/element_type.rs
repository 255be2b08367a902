//! Numbers for element types. Ranks of one process compare these; ranks of several processes
//! exchange the names of the types.

use std::any::TypeId;
use std::fmt;
use std::sync::OnceLock;

use crate::element::{self, Element, ElementKind};

/// Bits of a number.
pub(crate) const BITS: u32 = 6;

/// The first number of a type that is only moved.
const FIRST: u8 = ElementKind::ALL.len() as u8;

/// The number that all types have in common for which there was none left.
const LAST: u8 = (1 << BITS) - 1;

/// How many types that are only moved have a number of their own.
const MOST: usize = (LAST - FIRST) as usize;

/// The number of an element type. What NCCL reduces has a fixed one, any other type one that it
/// gets when it is first used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Type(u8);

#[derive(Debug, Clone, Copy)]
struct Known {
    /// `None`: it is known only from another process.
    id: Option<TypeId>,
    name: &'static str,
    size: usize,
}

impl Known {
    fn is(&self, wanted: &Self) -> bool {
        match (self.id, wanted.id) {
            (Some(own), Some(other)) => own == other,
            _ => self.is_called(wanted.name, wanted.size),
        }
    }

    fn is_called(&self, name: &str, size: usize) -> bool {
        (self.name, self.size) == (name, size)
    }
}

/// The types that are only moved, in the order of their numbers.
static MOVED: [OnceLock<Known>; MOST] = [const { OnceLock::new() }; MOST];

impl Type {
    #[inline]
    pub(crate) fn of<T: Element>() -> Self {
        match const { element::kind::<T>() } {
            Some(kind) => kind.into(),
            None => Self::find(Known { id: Some(TypeId::of::<T>()), name: element::name::<T>(), size: size_of::<T>() }),
        }
    }

    fn find(wanted: Known) -> Self {
        let place = MOVED.iter().position(|place| place.get_or_init(|| wanted).is(&wanted));
        Self(place.map_or(LAST, |place| FIRST + place as u8))
    }

    /// What other processes know it by: its name, and its size in bytes; `None` where all have the
    /// same number for it.
    pub(crate) fn told(self) -> Option<(&'static str, usize)> {
        let place = usize::from(self.0.checked_sub(FIRST)?);
        MOVED.get(place)?.get().map(|Known { name, size, .. }| (*name, *size))
    }

    /// That of which another process tells: one of this process, if there is one that is called so.
    pub(crate) fn of_another(name: &str, size: usize) -> Self {
        let known = || Known { id: None, name: String::leak(name.to_owned()), size };
        let place = MOVED.iter().position(|place| place.get_or_init(known).is_called(name, size));
        Self(place.map_or(LAST, |place| FIRST + place as u8))
    }

    /// The type with this number.
    pub(crate) fn numbered(number: u64) -> Self {
        Self(number as u8)
    }

    #[inline]
    pub(crate) fn number(self) -> u64 {
        u64::from(self.0)
    }

    /// Whether other types have this number, too: of those, bytes are counted.
    #[inline]
    pub(crate) fn is_shared(self) -> bool {
        self.0 == LAST
    }
}

impl From<ElementKind> for Type {
    #[inline]
    fn from(kind: ElementKind) -> Self {
        Self(kind as u8)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(kind) = ElementKind::ALL.iter().find(|&&kind| Self::from(kind) == *self) {
            return f.write_str(kind.name());
        }
        let place = usize::from(self.0 - FIRST);
        match MOVED.get(place).and_then(OnceLock::get) {
            Some(Known { name, size: 1, .. }) => write!(f, "{name} of 1 byte"),
            Some(Known { name, size, .. }) => write!(f, "{name} of {size} bytes"),
            None => f.write_str("bytes of another type"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_keep_their_numbers() {
        let all = [Type::of::<u8>(), Type::of::<f64>(), Type::of::<u16>(), Type::of::<i16>(), Type::of::<[u16; 3]>()];
        for (at, one) in all.iter().enumerate() {
            assert_eq!(all.iter().filter(|other| *other == one).count(), 1, "{at}");
            assert_eq!(Type::numbered(one.number()), *one);
            assert!(one.number() < 1 << BITS && !one.is_shared());
        }
        let texts = all.map(|one| one.to_string());
        assert_eq!(texts, ["u8", "f64", "u16 of 2 bytes", "i16 of 2 bytes", "[u16; 3] of 6 bytes"]);
        assert_eq!(Type::of::<[u16; 3]>(), all[4]);
    }

    /// One that comes after it was told of, and one that was there before.
    #[test]
    fn what_another_process_tells_of_is_known_by_name() {
        let here = Type::of::<[u16; 5]>();
        let (name, size) = here.told().unwrap();
        assert_eq!((Type::of_another(name, size), Type::of::<u8>().told()), (here, None));
        assert_ne!(Type::of_another(name, 11), here);
        let there = Type::of_another(&name.replace('5', "6"), 12);
        assert_eq!((Type::of::<[u16; 6]>(), there.to_string()), (there, "[u16; 6] of 12 bytes".to_owned()));
    }

    #[test]
    fn there_is_a_number_for_those_that_find_none() {
        let last = Type(LAST);
        assert!(last.is_shared());
        assert_eq!(last.to_string(), "bytes of another type");
    }
}
