//! Numbers of eight bits: four bits of exponent and three of fraction, or five and two.
//!
//! NCCL widens two of them to half precision, adds or multiplies there, and rounds the result to eight bits, to the nearest, ties to even. What
//! the second rounding meets after the first is what it would have met without it, since half precision has more than twice as many bits, and
//! two more; the tests try all pairs. So an `f32` does as well in between. What is too large, infinities among it, becomes the largest number
//! of its sign, and whatever is none becomes one NaN. A pre-multiplied sum rounds each product by itself: it goes through eight bits before it
//! is added, so nothing can be fused.

use super::element::Element;

/// A number with a sign, `7 - FRACTION` bits of exponent, and `FRACTION` bits behind them.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub(super) struct Float8<const FRACTION: u32>(u8);

/// `ncclFloat8e4m3`: it has no infinities, and one NaN of each sign.
pub(super) type E4m3 = Float8<3>;

/// `ncclFloat8e5m2`: the upper half of an f16.
pub(super) type E5m2 = Float8<2>;

/// What all that is no number becomes.
const NAN: u8 = 0x7f;
const SIGN: u8 = 0x80;
/// Of an f32.
const FRACTION_BITS: u32 = f32::MANTISSA_DIGITS - 1;
const F32_BIAS: u32 = 127;

impl<const FRACTION: u32> Float8<FRACTION> {
    const BIAS: u32 = (1 << (6 - FRACTION)) - 1;
    /// Above the bits of it there are NaN, and infinity where there is one.
    const LARGEST: u8 = if FRACTION == 3 { 0x7e } else { 0x7b };
    const HAS_INFINITY: bool = FRACTION == 2;
    /// The least number, of which those that are not normal are multiples.
    const LEAST: f32 = power(1 - Self::BIAS as i32 - FRACTION as i32);
    const LEAST_NORMAL: f32 = power(1 - Self::BIAS as i32);
    /// All of them.
    const WIDE: [f32; 256] = {
        let (mut wide, mut bits) = ([0.0; 256], 0);
        while bits < 256 {
            wide[bits] = Self::value(bits as u8);
            bits += 1;
        }
        wide
    };

    #[cfg(test)]
    pub(super) const fn of(bits: u8) -> Self {
        Self(bits)
    }

    const fn value(bits: u8) -> f32 {
        let magnitude = bits & !SIGN;
        let (exponent, fraction) = (magnitude >> FRACTION, magnitude & ((1 << FRACTION) - 1));
        let size = if magnitude > Self::LARGEST {
            if Self::HAS_INFINITY && fraction == 0 { f32::INFINITY } else { f32::NAN }
        } else if exponent == 0 {
            fraction as f32 * Self::LEAST
        } else {
            let exponent = exponent as u32 + F32_BIAS - Self::BIAS;
            f32::from_bits(exponent << FRACTION_BITS | (fraction as u32) << (FRACTION_BITS - FRACTION))
        };
        if bits & SIGN == 0 { size } else { -size }
    }

    /// The nearest of these numbers.
    #[inline(always)]
    fn narrow(number: f32) -> u8 {
        let size = number.abs().min(Self::WIDE[Self::LARGEST as usize]);
        // Where the fraction of an f32 begins with multiples of the least number.
        let steps = (size / Self::LEAST + power(FRACTION_BITS as i32)).to_bits() as u8;
        let (bits, cut) = (size.to_bits(), FRACTION_BITS - FRACTION);
        // Adding this carries where what is cut off is past, or on the way to, an even tie.
        let rounded = (bits + (1 << (cut - 1)) - 1 + (bits >> cut & 1)) >> cut;
        let normal = rounded.wrapping_sub((F32_BIAS - Self::BIAS) << FRACTION) as u8;
        let magnitude = if size < Self::LEAST_NORMAL { steps } else { normal };
        if number.is_nan() { NAN } else { magnitude | (number.to_bits() >> 24) as u8 & SIGN }
    }
}

/// Two to the power of a number, as a normal f32.
const fn power(of: i32) -> f32 {
    f32::from_bits(((F32_BIAS as i32 + of) as u32) << FRACTION_BITS)
}

impl<const FRACTION: u32> Element for Float8<FRACTION> {
    type Number = f32;

    #[inline(always)]
    unsafe fn load(from: *const u8, into: &mut [f32]) {
        for (i, number) in into.iter_mut().enumerate() {
            // SAFETY: the caller vouches for this many elements.
            *number = Self::WIDE[usize::from(unsafe { *from.add(i) })];
        }
    }

    #[inline(always)]
    unsafe fn store(from: &[f32], into: *mut u8) {
        for (i, number) in from.iter().enumerate() {
            // SAFETY: the caller vouches for this many elements.
            unsafe { *into.add(i) = Self::narrow(*number) };
        }
    }

    fn scalar(bits: u64) -> f32 {
        Self::value(bits as u8)
    }

    fn share(ranks: usize) -> Option<u64> {
        Some(u64::from(Self::narrow((1.0 / ranks as f64) as f32)))
    }

    #[inline(always)]
    fn round(numbers: &mut [f32]) {
        numbers.iter_mut().for_each(|number| *number = Self::WIDE[usize::from(Self::narrow(*number))]);
    }

    #[inline(always)]
    fn add_scaled(sums: &mut [f32], inputs: &[f32], factor: f32) {
        for (sum, input) in sums.iter_mut().zip(inputs) {
            *sum += Self::WIDE[usize::from(Self::narrow(input * factor))];
        }
    }
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    /// Every number of a type as what its bits mean, computed in doubles.
    fn meaning<const FRACTION: u32>(bits: u8) -> f64 {
        let (exponent, fraction) = (i32::from(bits & 0x7f) >> FRACTION, f64::from(bits & ((1 << FRACTION) - 1)));
        let (bias, unit) = ((1 << (6 - FRACTION)) - 1, 2f64.powi(-(FRACTION as i32)));
        let size = match (FRACTION, exponent, bits & 0x7f) {
            (3, _, 0x7f) => f64::NAN,
            (2, 31, 0x7c) => f64::INFINITY,
            (2, 31, _) => f64::NAN,
            (_, 0, _) => fraction * unit * 2f64.powi(1 - bias),
            _ => (1.0 + fraction * unit) * 2f64.powi(exponent - bias),
        };
        if bits & 0x80 == 0 { size } else { -size }
    }

    /// All numbers from zero up that are finite, by their bits.
    fn finite<const FRACTION: u32>() -> Vec<f64> {
        (0..0x7f).map(meaning::<FRACTION>).take_while(|number| number.is_finite()).collect()
    }

    /// The nearest of these numbers, which are in order; of two, the one with even bits; none is infinite.
    fn nearest(finite: &[f64], value: f64) -> u8 {
        if value.is_nan() {
            return 0x7f;
        }
        let sign = u8::from(value.is_sign_negative()) << 7;
        let above = finite.partition_point(|number| *number < value.abs());
        if above == finite.len() {
            return sign | (above - 1) as u8;
        }
        let key = |bits: &usize| ((finite[*bits] - value.abs()).abs(), bits & 1);
        let neighbours = above.saturating_sub(1)..=above;
        sign | neighbours.min_by(|a, b| key(a).partial_cmp(&key(b)).unwrap()).unwrap() as u8
    }

    fn every_number_is_what_its_bits_mean<const FRACTION: u32>() {
        for bits in 0..=u8::MAX {
            let (got, want) = (f64::from(Float8::<FRACTION>::value(bits)), meaning::<FRACTION>(bits));
            assert!(got == want || got.is_nan() && want.is_nan(), "{bits:#x}: {got} {want}");
            assert_eq!(got.is_sign_negative(), want.is_sign_negative(), "{bits:#x}");
        }
    }

    /// Every half, and what lies around it.
    fn what_is_narrowed_is_nearest<const FRACTION: u32>() {
        let finite = finite::<FRACTION>();
        for bits in 0..=u16::MAX {
            let half = f16::from_bits(bits).to_f32();
            for number in [half, half.next_up(), half.next_down()] {
                let want = nearest(&finite, f64::from(number));
                assert_eq!(Float8::<FRACTION>::narrow(number), want, "{number:e}");
            }
        }
        for number in [f32::MAX, f32::MIN, f32::from_bits(1), -f32::from_bits(1), 1e-30, f32::INFINITY, f32::NAN] {
            assert_eq!(Float8::<FRACTION>::narrow(number), nearest(&finite, f64::from(number)), "{number:e}");
        }
    }

    /// As the kernels do it: in half precision, and from there to eight bits.
    fn all_pairs_are_as_by_way_of_halves<const FRACTION: u32>() {
        let finite = finite::<FRACTION>();
        // By the bits of a half.
        let narrow: Vec<u8> = (0..=u16::MAX).map(|bits| nearest(&finite, f16::from_bits(bits).to_f64())).collect();
        let half = |exact: f64| narrow[usize::from(f16::from_f64(exact).to_bits())];
        for (a, b) in (0..=u8::MAX).flat_map(|a| (0..=u8::MAX).map(move |b| (a, b))) {
            let [x, y] = [a, b].map(meaning::<FRACTION>);
            let [mut sum, other] = [a, b].map(Float8::<FRACTION>::value);
            let product = Float8::<FRACTION>::narrow(sum * other);
            assert_eq!(product, half(x * y), "{a:#x} * {b:#x}");
            assert_eq!(Float8::<FRACTION>::narrow(sum + other), half(x + y), "{a:#x} + {b:#x}");
            // One plus the product, which was rounded before.
            let mut sums = [1.0];
            Float8::<FRACTION>::add_scaled(&mut sums, &[sum], other);
            sum = meaning::<FRACTION>(half(x * y)) as f32;
            assert_eq!(Float8::<FRACTION>::narrow(sums[0]), half(1.0 + f64::from(sum)), "1 + {a:#x} * {b:#x}");
        }
    }

    #[test]
    fn of_four_bits_of_exponent() {
        every_number_is_what_its_bits_mean::<3>();
        what_is_narrowed_is_nearest::<3>();
        all_pairs_are_as_by_way_of_halves::<3>();
        assert_eq!(E4m3::share(3).map(E4m3::scalar), Some(0.343_75));
    }

    #[test]
    fn of_five_bits_of_exponent() {
        every_number_is_what_its_bits_mean::<2>();
        what_is_narrowed_is_nearest::<2>();
        all_pairs_are_as_by_way_of_halves::<2>();
        assert_eq!(E5m2::share(3).map(E5m2::scalar), Some(0.312_5));
    }
}
