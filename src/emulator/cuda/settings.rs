//! The environment variables of the CUDA half, read once.

use crate::emulator::report;
use std::sync::LazyLock;

/// Devices when GPUCOMM_EMULATOR_DEVICES says nothing.
const DEVICES: usize = 4;
/// As many as a set of peers holds.
const MOST_DEVICES: usize = 64;
/// Bytes of a device when GPUCOMM_EMULATOR_MEMORY says nothing.
const MEMORY: u64 = 16 << 30;
const LEAST_MEMORY: u64 = 64 << 10;
const MOST_MEMORY: u64 = 1 << 40;

/// How the emulated machine looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Settings {
    /// GPUCOMM_EMULATOR_DEVICES: how many devices; 0 is a machine without a GPU.
    pub devices: usize,
    /// GPUCOMM_EMULATOR_MEMORY: bytes of memory of each device.
    pub memory: u64,
}

static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings {
    devices: read("GPUCOMM_EMULATOR_DEVICES", DEVICES, &format!("a number from 0 to {MOST_DEVICES}"), devices),
    memory: read(
        "GPUCOMM_EMULATOR_MEMORY",
        MEMORY,
        "bytes of memory of each device, such as 4294967296, 512M or 4G, from 64K to 1T",
        memory,
    ),
});

/// The settings of this process.
pub(super) fn settings() -> Settings {
    *SETTINGS
}

fn read<T: std::fmt::Display>(name: &str, default: T, expected: &str, parse: fn(&str) -> Option<T>) -> T {
    let Some(value) = std::env::var_os(name) else { return default };
    let text = value.to_string_lossy();
    if text.trim().is_empty() {
        return default;
    }
    parse(text.trim()).unwrap_or_else(|| {
        report::line(format!("{name}={text}: expected {expected}; using {default}"));
        default
    })
}

fn devices(text: &str) -> Option<usize> {
    text.parse().ok().filter(|&devices| devices <= MOST_DEVICES)
}

fn memory(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['b', 'B']).unwrap_or(text);
    let text = text.strip_suffix(['i', 'I']).unwrap_or(text);
    let shift = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 { text } else { &text[..text.len() - 1] };
    let bytes = digits.trim().parse::<u64>().ok()?.checked_mul(1 << shift)?;
    // Whole pages.
    (LEAST_MEMORY..=MOST_MEMORY).contains(&bytes).then_some(bytes / 4096 * 4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_devices() {
        assert_eq!(devices("0"), Some(0));
        assert_eq!(devices("64"), Some(64));
        for nonsense in ["65", "-1", "two", "1.5", ""] {
            assert_eq!(devices(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn amounts_of_memory() {
        for (text, bytes) in [
            ("1048576", 1 << 20),
            ("64K", 64 << 10),
            ("65537", 64 << 10),
            ("512M", 512 << 20),
            ("4g", 4 << 30),
            ("2GiB", 2 << 30),
        ] {
            assert_eq!(memory(text), Some(bytes), "{text}");
        }
        for nonsense in ["", "K", "1K", "-1", "much", "99999999999999G", "2T", "1.5G", "\u{e9}"] {
            assert_eq!(memory(nonsense), None, "{nonsense}");
        }
    }
}
