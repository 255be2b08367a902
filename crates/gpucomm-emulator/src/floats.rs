//! How reductions of floating-point numbers round, where GPUs differ: `GPUCOMM_EMULATOR_FLOATS` names what is to be otherwise, with commas
//! between.

/// What is otherwise; nothing unless asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Floats {
    /// `wide-sums`: all sums of floats of one and two bytes are kept in `f32` and rounded once, as NVLink switches do those of two.
    pub wide_sums: bool,
    /// `flush-denormals`: an `f32` that is no normal number is zero, before and after each step.
    pub flush_denormals: bool,
    /// `any-order`: where switches may add up (NVLS), sums begin at another rank each time.
    pub any_order: bool,
}

impl Floats {
    /// What the variable may hold.
    pub const EXPECTED: &'static str = "names with commas between, of wide-sums, flush-denormals and any-order";

    pub fn parse(text: &str) -> Option<Self> {
        let mut floats = Self::default();
        for name in text.split(',') {
            match name.trim() {
                "wide-sums" => floats.wide_sums = true,
                "flush-denormals" => floats.flush_denormals = true,
                "any-order" => floats.any_order = true,
                _ => return None,
            }
        }
        Some(floats)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(Floats::parse("wide-sums"), Some(Floats { wide_sums: true, ..Floats::default() }));
        let both = Floats { wide_sums: true, flush_denormals: true, any_order: false };
        assert_eq!(Floats::parse("flush-denormals , wide-sums"), Some(both));
        assert_eq!(Floats::parse("any-order"), Some(Floats { any_order: true, ..Floats::default() }));
        assert_eq!(Floats::parse("wide-sums,"), None);
    }
}
