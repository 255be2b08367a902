//! What the environment tells the library, read as the library reads it.

/// A switch that is on; where it is not set, `otherwise`.
pub(crate) fn is_set(name: &str, otherwise: bool) -> bool {
    let Ok(value) = std::env::var(name) else { return otherwise };
    !matches!(value.trim_start().bytes().next(), None | Some(b'0' | b'n' | b'N' | b'f' | b'F'))
}

/// A number.
pub(crate) fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok()?.trim().parse().ok()
}

/// A size; where there is none, `otherwise`.
pub(crate) fn size(name: &str, otherwise: usize) -> usize {
    std::env::var(name).ok().and_then(|text| size_of_text(&text)).unwrap_or(otherwise)
}

/// A number, and K, M, G or T behind it.
fn size_of_text(text: &str) -> Option<usize> {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let number = text[..end].parse::<f64>().ok()?;
    let shift = match text[end..].trim().bytes().next().map(|letter| letter.to_ascii_lowercase()) {
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        Some(b't') => 40,
        _ => 0,
    };
    Some((number * (1u64 << shift) as f64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_library_reads_them() {
        let sizes = ["", "4096", "64K", "2m", "1.5M", "1GiB", "much"];
        let expected = [None, Some(4096), Some(64 << 10), Some(2 << 20), Some(3 << 19), Some(1 << 30), None];
        assert_eq!(sizes.map(size_of_text), expected);
    }
}
