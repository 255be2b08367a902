//! Which devices of the machine this process sees, and in which order: `CUDA_VISIBLE_DEVICES`, as CUDA reads it.
//!
//! A device has one number on the machine, by which processes agree about it, and an ordinal in each process that sees it.

use std::ffi::{CStr, CString};
use std::sync::LazyLock;

use super::settings;

/// The environment variable.
const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

static VISIBLE: LazyLock<(Vec<i32>, Option<CString>)> = LazyLock::new(|| {
    // Where a variable of the emulator is wrong, nobody knows what machine was meant.
    if settings::wrong().is_some() {
        return (Vec::new(), None);
    }
    let devices = settings::settings().devices;
    let list = std::env::var_os(VARIABLE).map(|list| list.to_string_lossy().into_owned());
    let visible = choose(list.as_deref(), devices);
    let hidden = list.filter(|_| visible.is_empty() && devices > 0).map(|list| {
        let text = format!("there is no device: {VARIABLE}={list} hides all {devices} of the machine");
        CString::new(text).unwrap_or_default()
    });
    (visible, hidden)
});

/// The devices that this process sees, by their numbers on the machine.
pub(crate) fn visible() -> &'static [i32] {
    &VISIBLE.0
}

/// Why none is seen, where the machine has some.
pub(crate) fn hidden() -> Option<&'static CStr> {
    VISIBLE.1.as_deref()
}

/// The bytes that name a device among all. They differ from the first on, so that short forms name one device.
pub(crate) fn uuid(number: i32) -> [u8; 16] {
    let mut uuid = *b"....gpucomm emul";
    uuid[..4].copy_from_slice(&(number.cast_unsigned() + 1).wrapping_mul(0x9e37_79b1).to_be_bytes());
    uuid
}

/// The uuid of a device as lists name it.
fn name(number: i32) -> String {
    let hex = uuid(number).map(|byte| format!("{byte:02x}")).concat();
    format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// What a list leaves of so many devices. The first entry says whether it holds numbers or names; the list ends in front of what is
/// neither, or no device. One that names a device twice leaves none: that is not documented, but PyTorch counts on it.
fn choose(list: Option<&str>, devices: usize) -> Vec<i32> {
    let Some(list) = list else { return (0..devices as i32).collect() };
    let by_name = list.trim_start().starts_with("GPU-");
    let entries = list.split(',').map(str::trim);
    let find = |entry: &str| if by_name { named(entry, devices) } else { numbered(entry) };
    let mut chosen = Vec::new();
    for number in entries.map_while(find) {
        if chosen.contains(&number) {
            return Vec::new();
        }
        chosen.push(number);
    }
    let exist = chosen.iter().take_while(|&&number| (number as usize) < devices).count();
    chosen.truncate(exist);
    chosen
}

/// The number at the start of an entry, as `strtol` finds it.
fn numbered(entry: &str) -> Option<i32> {
    let digits = entry.strip_prefix('+').unwrap_or(entry);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().ok()
}

/// The one device whose name starts so.
fn named(entry: &str, devices: usize) -> Option<i32> {
    let entry = entry.to_ascii_lowercase();
    let mut found = (0..devices as i32)
        .filter(|&number| entry.starts_with("gpu-") && name(number).to_ascii_lowercase().starts_with(&entry));
    found.next().filter(|_| found.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_numbers() {
        for (list, want) in [
            ("0", &[0][..]),
            ("2,1", &[2, 1]),
            ("0,2,-1,1", &[0, 2]),
            ("3, 0 ,1", &[3, 0, 1]),
            ("0,4,1", &[0]),
            ("0,x,1", &[0]),
            ("1gpu2,2x", &[1, 2]),
            ("0,,1", &[0]),
            ("0,99999999999999999999,1", &[0]),
            ("", &[]),
            ("-1", &[]),
            ("NoDevFiles", &[]),
            ("0,1,0", &[]),
            ("GPU", &[]),
        ] {
            assert_eq!(choose(Some(list), 4), want, "{list:?}");
        }
        assert_eq!(choose(None, 3), [0, 1, 2]);
        assert_eq!(choose(None, 0), Vec::<i32>::new());
    }

    #[test]
    fn lists_of_names() {
        let all: Vec<String> = (0..64).map(name).collect();
        assert!(all.iter().all(|name| name.len() == 40));
        assert_eq!(choose(Some(&all.join(",")), 64), (0..64).collect::<Vec<_>>());
        let short = |number: usize| &all[number][..8];
        for (list, want) in [
            (format!("{},{}", short(3), short(1)), &[3, 1][..]),
            (all[2].to_ascii_uppercase(), &[2]),
            (format!("{},GPU-,{}", short(2), short(1)), &[2]),
            (format!("{},0", short(2)), &[2]),
            (format!("0,{}", short(2)), &[0]),
            (format!("{},{}", short(1), all[1]), &[]),
            (format!("{}0", all[1]), &[]),
            (all[63].clone(), &[]),
        ] {
            assert_eq!(choose(Some(&list), 4), want, "{list:?}");
        }
    }
}
