//! Sizes in bytes, as they are written on a command line, and sweeps over them.

/// Reads `8`, `64M`, `1.5G`: a number with K, M or G for powers of 1024.
pub fn parse(text: &str) -> Result<usize, String> {
    let bad = || format!("'{text}' is not a size: expected bytes, or a number with K, M or G such as 64M");
    let (number, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1u64 << 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1 << 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
        return Err(bad());
    }
    let too_large = || format!("'{text}' is too large for a size");
    if let Ok(whole) = number.parse::<u64>() {
        let bytes = whole.checked_mul(unit).filter(|&bytes| bytes <= MAX).ok_or_else(too_large)?;
        return Ok(bytes as usize);
    }
    let bytes = number.parse::<f64>().map_err(|_| bad())? * unit as f64;
    if bytes > MAX as f64 {
        return Err(too_large());
    }
    if bytes.fract() != 0.0 {
        return Err(format!("'{text}' is no whole number of bytes"));
    }
    Ok(bytes as usize)
}

/// The largest size taken: what a signed 64-bit number of bytes can say, halved, so that sums of two cannot overflow.
const MAX: u64 = 1 << 62;

/// How a sweep goes from one size to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Factor(usize),
    Bytes(usize),
}

/// The sizes from `min` to `max`.
pub fn sweep(min: usize, max: usize, step: Step) -> impl Iterator<Item = usize> {
    let next = move |&size: &usize| {
        let next = match step {
            Step::Factor(factor) => size.checked_mul(factor)?,
            Step::Bytes(bytes) => size.checked_add(bytes)?,
        };
        (next > size && next <= max).then_some(next)
    };
    std::iter::successors((min <= max).then_some(min), next)
}

/// A size for people: `64 MiB`, `1.5 GiB`, `8 B`.
pub fn human(bytes: usize) -> String {
    for (unit, name) in [(1usize << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit {
            let tenths = (bytes as f64 / unit as f64 * 10.0).round() / 10.0;
            return format!("{tenths} {name}");
        }
    }
    format!("{bytes} B")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("8", 8), ("64M", 64 << 20), ("1.5g", 3 << 29), ("4k", 4096), ("0.5K", 512)] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "8Q", "1e3", "8 M", "0x10", "1.2.3", ".", "99999999999G", "1.3", "inf", "8MB", "٣"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sweeps() {
        assert_eq!(sweep(8, 512, Step::Factor(8)).collect::<Vec<_>>(), [8, 64, 512]);
        assert_eq!(sweep(8, 100, Step::Factor(8)).collect::<Vec<_>>(), [8, 64]);
        assert_eq!(sweep(0, 8, Step::Bytes(4)).collect::<Vec<_>>(), [0, 4, 8]);
        assert_eq!(sweep(0, 0, Step::Factor(2)).collect::<Vec<_>>(), [0]);
        assert_eq!(sweep(usize::MAX - 1, usize::MAX, Step::Factor(2)).count(), 1);
    }

    #[test]
    fn for_people() {
        assert_eq!([human(8), human(1536), human(64 << 20), human(3 << 29)], ["8 B", "1.5 KiB", "64 MiB", "1.5 GiB"]);
    }
}
