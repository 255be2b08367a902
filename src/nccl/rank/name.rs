//! Names of methods, each in one word, which may be read while another one is written in its place.

/// Where the length begins. Addresses of programs are shorter.
const LENGTH: u32 = 56;

/// A name in one word, so that nobody takes the length of one for that of another; 0 where it does not fit.
#[inline]
pub(crate) fn pack(name: &'static str) -> u64 {
    let address = name.as_ptr().expose_provenance() as u64;
    if address >> LENGTH == 0 && name.len() >> (64 - LENGTH) == 0 { address | (name.len() as u64) << LENGTH } else { 0 }
}

/// The name in a word that [`pack`] has made, or in 0, which is none.
///
/// # Safety
/// The word is one of these.
pub(crate) unsafe fn unpack(word: u64) -> &'static str {
    let (address, length) = (word & ((1 << LENGTH) - 1), word >> LENGTH);
    if address == 0 {
        return "";
    }
    let start = std::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: the word was made, as a whole, of a string that is never freed.
    unsafe { std::str::from_utf8_unchecked(std::slice::from_raw_parts(start, length as usize)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for name in ["all_reduce", "send", ""] {
            // SAFETY: it was made by `pack`.
            assert_eq!(unsafe { unpack(pack(name)) }, name);
        }
        // SAFETY: none.
        assert_eq!(unsafe { unpack(0) }, "");
    }
}
