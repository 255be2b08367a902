//! Nobody else can say that every bit pattern of a type is valid.
use gpucomm::{Element, ElementKind};

#[derive(Debug, Clone, Copy, PartialEq)]
struct NonZero(u8);

impl Element for NonZero {
    const KIND: ElementKind = ElementKind::U8;
    const ZERO: Self = NonZero(1);
}

fn main() {}
