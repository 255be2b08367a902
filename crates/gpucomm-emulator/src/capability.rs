//! What devices can compute: `GPUCOMM_EMULATOR_CAPABILITY` names the compute capability of each device of the machine, with commas between; the
//! last one is that of all others.

/// Major and minor.
pub(crate) type Capability = (i32, i32);

/// Of the devices, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Capabilities(Vec<Capability>);

impl Default for Capabilities {
    /// That of H100s and H200s.
    fn default() -> Self {
        Self(vec![(9, 0)])
    }
}

impl Capabilities {
    /// What the variable may hold.
    pub const EXPECTED: &'static str = "compute capabilities such as 8.0, one for each device, with commas between";

    pub fn parse(text: &str) -> Option<Self> {
        let digits = |part: &str| part.parse().ok().filter(|number: &i32| (0..100).contains(number));
        let one =
            |text: &str| text.trim().split_once('.').and_then(|(major, minor)| Some((digits(major)?, digits(minor)?)));
        text.split(',').map(one).collect::<Option<_>>().map(Self)
    }

    /// That of the device of the machine with this number.
    pub fn of(&self, number: i32) -> Capability {
        let at = usize::try_from(number).unwrap_or_default();
        self.0.get(at).or(self.0.last()).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_is_that_of_the_rest() {
        let two = Capabilities::parse("8.0, 12.1").unwrap();
        assert_eq!([0, 1, 2, 63].map(|number| two.of(number)), [(8, 0), (12, 1), (12, 1), (12, 1)]);
        assert_eq!(Capabilities::default().of(5), (9, 0));
        for nonsense in ["", "9", "9.0,", "9.-1", "9.0.1", "x.y", "9.0;8.0"] {
            assert_eq!(Capabilities::parse(nonsense), None, "{nonsense}");
        }
    }
}
