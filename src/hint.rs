//! Hints to the processor's caches. They change neither memory nor what is computed; where there is none, nothing is done.

/// A value with cache lines of its own: two, since processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// `value` will be read soon.
#[inline]
pub(crate) fn soon_read<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that changes neither memory nor registers.
    unsafe {
        std::arch::asm!("prefetcht0 [{}]", in(reg) value, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}

/// `value` will be written soon, and not be read by others before that.
#[inline]
pub(crate) fn soon_written<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that changes neither memory nor registers; a processor without it takes it for a no-op.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) value, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
