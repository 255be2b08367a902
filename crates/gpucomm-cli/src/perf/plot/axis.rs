//! Where an axis begins and ends, and which of its values are named there.

use std::ops::Range;

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

use crate::size::human;

/// An axis: what it is of, and where values stand on it.
#[derive(Debug, Clone)]
pub struct Axis {
    pub name: &'static str,
    /// The values from one end to the other.
    values: Range<f64>,
    /// Those with a name beside them.
    ticks: Vec<f64>,
    /// A value as it is written.
    write: fn(f64) -> String,
    /// What is the same number apart is drawn the same length apart.
    scale: fn(f64) -> f64,
}

/// How many values are named on an axis, at most.
const TICKS: usize = 12;

impl Axis {
    /// A logarithmic axis of sizes, with powers of two.
    pub fn sizes(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = bounds(values);
        let powers: Vec<f64> = (0..64).map(|power| 2f64.powi(power)).filter(|at| (low..=high).contains(at)).collect();
        let ticks = match powers.len() {
            // A single size, or all between two powers.
            0 | 1 => {
                if low < high {
                    vec![low, high]
                } else {
                    vec![low]
                }
            }
            many => powers.into_iter().step_by(many.div_ceil(TICKS)).collect(),
        };
        let values = if low < high { low..high } else { low / 2.0..high * 2.0 };
        Self { name: "size", values, ticks, write: |bytes| human(bytes as usize), scale: f64::ln }
    }

    /// A logarithmic axis of times, with powers of ten, and with what is twice and five times these where there is room.
    pub fn times(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = bounds(values);
        let values = low / 1.3..high * 1.3;
        let named = |steps: &[f64]| -> Vec<f64> {
            let all = (-6..16).flat_map(|power| steps.iter().map(move |step| step * 10f64.powi(power)));
            all.filter(|at| values.contains(at)).collect()
        };
        let fine = named(&[1.0, 2.0, 5.0]);
        let ticks = match fine.len() {
            0..2 => vec![low, high],
            2..=TICKS => fine,
            _ => named(&[1.0]),
        };
        Self { name: "time (µs)", values, ticks, write: number, scale: f64::ln }
    }

    /// A linear axis of rates, from 0, with whole steps of 1, 2 or 5 times a power of ten.
    pub fn rates(values: impl Iterator<Item = f64>) -> Self {
        let high = values.fold(0.0, f64::max);
        let high = if high > 0.0 { high } else { 1.0 };
        let power = 10f64.powf(high.log10().floor() - 1.0);
        let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|step| step * power);
        let step = steps.into_iter().find(|step| high / step < 10.0).unwrap_or(high);
        let ticks = (0..=10).map(|at| f64::from(at) * step).filter(|at| *at <= high * 1.05).collect();
        Self { name: "bus bandwidth (GB/s)", values: 0.0..high * 1.05, ticks, write: number, scale: |value| value }
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        let [low, high, at] = [self.values.start, self.values.end, *value].map(self.scale);
        start + ((at - low) / (high - low) * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.values.clone()
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        (self.write)(*value)
    }
}

/// With three significant digits at most.
fn number(value: f64) -> String {
    let decimals = if value > 0.0 { (2 - value.log10().floor() as i32).clamp(0, 9) as usize } else { 0 };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The least and the greatest; 1 and 1 of nothing.
fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.map(|value| (value, value)).reduce(|(a, b), (low, high)| (a.min(low), b.max(high))).unwrap_or((1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(axis: &Axis) -> Vec<String> {
        let places: Vec<i32> = axis.ticks.iter().map(|value| axis.map(value, (100, 500))).collect();
        assert!(places.iter().all(|place| (100..=500).contains(place)) && places.is_sorted(), "{axis:?}: {places:?}");
        axis.ticks.iter().map(|value| axis.format_ext(value)).collect()
    }

    fn sizes(values: &[f64]) -> Axis {
        Axis::sizes(values.iter().copied())
    }

    #[test]
    fn sizes_are_powers_of_two() {
        let axis = sizes(&[8.0, 4096.0, 536_870_912.0]);
        assert_eq!([8.0, 64.0, 536_870_912.0].map(|size| axis.map(&size, (500, 1020))), [500, 560, 1020]);
        let want = ["8 B", "64 B", "512 B", "4 KiB", "32 KiB", "256 KiB", "2 MiB", "16 MiB", "128 MiB"];
        assert_eq!(named(&axis), want);
        assert_eq!(named(&sizes(&[2048.0, 1024.0])), ["1 KiB", "2 KiB"]);
        assert_eq!(named(&sizes(&[1000.0, 900.0])), ["900 B", "1000 B"]);
        let single = sizes(&[1000.0]);
        assert_eq!((named(&single), single.map(&1000.0, (0, 100))), (vec!["1000 B".to_owned()], 50));
    }

    #[test]
    fn times_are_round() {
        let times = |values: &[f64]| named(&Axis::times(values.iter().copied()));
        assert_eq!(times(&[700.0, 3.5]), ["5", "10", "20", "50", "100", "200", "500"]);
        assert_eq!(times(&[0.9, 90_000.0]), ["1", "10", "100", "1000", "10000", "100000"]);
        assert_eq!(times(&[0.021, 0.04]), ["0.02", "0.05"]);
        for value in [0.0123, 3.0, 8e7] {
            assert!(!times(&[value]).is_empty(), "{value}");
        }
    }

    #[test]
    fn rates_begin_at_nothing() {
        let rates = |values: &[f64]| named(&Axis::rates(values.iter().copied()));
        assert_eq!(rates(&[0.1, 361.0]), ["0", "50", "100", "150", "200", "250", "300", "350"]);
        assert_eq!(rates(&[0.6]), ["0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]);
        assert_eq!(rates(&[0.0]).first().map(String::as_str), Some("0"));
    }
}
