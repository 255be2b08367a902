//! What the environment tells the library.

/// A number, and K, M, G or T behind it.
pub(crate) fn size(name: &str, otherwise: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return otherwise };
    let text = text.trim().trim_end_matches(['b', 'B']).trim_end_matches('i');
    let (digits, shift) = match text.bytes().last().map(|letter| letter.to_ascii_lowercase()) {
        Some(b'k') => (&text[..text.len() - 1], 10),
        Some(b'm') => (&text[..text.len() - 1], 20),
        Some(b'g') => (&text[..text.len() - 1], 30),
        Some(b't') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    digits.parse::<f64>().map_or(otherwise, |number| (number * (1u64 << shift) as f64) as u64)
}

/// A number.
pub(crate) fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.trim().parse().ok()
}

/// A switch that is on; where it is not set, `otherwise`.
pub(crate) fn is_set(name: &str, otherwise: bool) -> bool {
    let Ok(value) = std::env::var(name) else { return otherwise };
    !matches!(value.trim_start().bytes().next(), None | Some(b'0' | b'n' | b'N' | b'f' | b'F'))
}
