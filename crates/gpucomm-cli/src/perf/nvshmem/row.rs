//! What was measured, as perftest's table and as JSON.

use std::ops::AddAssign;

use serde_json::{Value, json};

use super::kind::Operation;
use crate::options::kind_name;
use crate::options::nvshmem::{Issue, NvshmemOptions};
use crate::perf::row::RankInfo;
use crate::perf::table;

/// What is the same for all rows.
pub struct Setup<'a> {
    pub options: &'a NvshmemOptions,
    /// Back end and versions, in words.
    pub libraries: String,
    pub pes: Vec<RankInfo>,
    /// How PEs lie on devices.
    pub status: String,
}

/// One size.
#[derive(Debug, Clone)]
pub struct Row {
    pub bytes: usize,
    /// Elements, of the type of the table.
    pub count: usize,
    pub times: Times,
    pub algbw: f64,
    pub busbw: f64,
    /// Nothing where nothing was checked.
    pub found: Option<Found>,
}

/// Seconds of one operation.
#[derive(Debug, Clone, Copy, Default)]
pub struct Times {
    pub mean: f64,
    /// Where each was timed by itself.
    pub least_and_most: Option<(f64, f64)>,
}

/// Elements that are wrong: in the result, and beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    pub wrong: u64,
    pub outside: u64,
}

impl AddAssign for Found {
    fn add_assign(&mut self, other: Self) {
        self.wrong += other.wrong;
        self.outside += other.outside;
    }
}

impl Found {
    /// What is wrong in `got`, which holds `want` behind `guard` elements, and `poison` elsewhere.
    pub fn in_memory<T: PartialEq + Copy>(got: &[T], guard: usize, want: &[T], poison: T) -> Self {
        let (before, rest) = got.split_at(guard);
        let (result, behind) = rest.split_at(want.len());
        let outside = before.iter().chain(behind).filter(|&&value| value != poison).count() as u64;
        Self { wrong: result.iter().zip(want).filter(|(got, want)| got != want).count() as u64, outside }
    }
}

/// The lines above the table.
pub fn header(setup: &Setup<'_>) -> Vec<String> {
    let NvshmemOptions { operation, issue, min, max, factor, iterations, warmup, checks, .. } = setup.options;
    let mut lines = vec![
        format!("# gpucomm {} {} on {}", env!("CARGO_PKG_VERSION"), operation.name(), setup.libraries),
        format!(
            "# PEs {} ({}) issue: {} minBytes {min} maxBytes {max} step: {factor}(factor) warmup iters: {warmup} iters: {iterations} \
             validation: {checks}",
            setup.pes.len(),
            setup.status,
            issue.name(),
        ),
        "#".to_owned(),
        "# Using devices".to_owned(),
    ];
    lines.extend(setup.pes.iter().map(table::device));
    lines.push("#".to_owned());
    lines.push(format!("#{:>10}{}", operation.name(), if *issue == Issue::Host { "" } else { "_on_stream" }));
    lines.push(match operation {
        Operation::Put | Operation::Get | Operation::PutSignal => {
            format!(
                "{:<10}  {:<8}  {:<16}  {:<16}  {:<6}",
                "size(B)", "scope", "latency(us)", "Bandwidth(GB/s)", "#wrong"
            )
        }
        _ => format!(
            "{:<10}  {:<8}  {:<8}  {:<8}  {:<16}  {:<16}  {:<16}  {:<12}  {:<12}  {:<6}",
            "size(B)",
            "count",
            "type",
            "redop",
            "latency(us)",
            "min_lat(us)",
            "max_lat(us)",
            "algbw(GB/s)",
            "busbw(GB/s)",
            "#wrong"
        ),
    });
    lines
}

/// A line of the table.
pub fn line(options: &NvshmemOptions, row: &Row) -> String {
    let Row { bytes, count, times, algbw, busbw, found } = row;
    let wrong = found.map_or("N/A".to_owned(), |found| found.wrong.to_string());
    let mean = times.mean * 1e6;
    if options.operation.is_of_two() {
        return format!("{bytes:<10}  {:<8}  {mean:<16.6}  {busbw:<16.6}  {wrong:<6}", "None");
    }
    let (least, most) = times.least_and_most.map_or((mean, mean), |(least, most)| (least * 1e6, most * 1e6));
    let redop = if options.operation.reduces() { options.redop.name() } else { "None" };
    let kind = if options.operation == Operation::Barrier { "None" } else { kind_name(options.kind) };
    format!(
        "{bytes:<10}  {count:<8}  {kind:<8}  {redop:<8}  {mean:<16.6}  {least:<16.3}  {most:<16.3}  {algbw:<12.3}  {busbw:<12.3}  {wrong:<6}"
    )
}

/// The lines below.
pub fn footer(options: &NvshmemOptions, found: Found) -> Vec<String> {
    if options.checks == 0 {
        return vec![format!("# {:<20} : not checked (-c 0)", "Out of bounds values")];
    }
    let Found { wrong, outside } = found;
    let verdict = if outside == 0 { "OK" } else { "FAILED" };
    let mut lines = vec![format!("# {:<20} : {outside} {verdict}", "Out of bounds values")];
    if wrong > 0 {
        lines.push(format!("# {:<20} : {wrong} FAILED", "Wrong values"));
    }
    lines
}

/// All of it.
pub fn report(setup: &Setup<'_>, rows: &[Row], found: Found) -> Value {
    let options = setup.options;
    let one = |row: &Row| {
        json!({
            "size": row.bytes,
            "count": row.count,
            "time_us": row.times.mean * 1e6,
            "min_us": row.times.least_and_most.map(|(least, _)| least * 1e6),
            "max_us": row.times.least_and_most.map(|(_, most)| most * 1e6),
            "algbw": row.algbw,
            "busbw": row.busbw,
            "wrong": row.found.map(|found| found.wrong),
            "out_of_bounds": row.found.map(|found| found.outside),
        })
    };
    json!({
        "program": concat!("gpucomm ", env!("CARGO_PKG_VERSION")),
        "operation": options.operation.name(),
        "setup": {
            "library": "nvshmem",
            "libraries": setup.libraries,
            "backend": format!("{:?}", gpucomm::backend()).to_lowercase(),
            "pes": setup.pes.iter().map(RankInfo::json).collect::<Vec<_>>(),
            "status": setup.status,
            "issue": options.issue.name(),
            "min_bytes": options.min,
            "max_bytes": options.max,
            "step_factor": options.factor,
            "iterations": options.iterations,
            "warmup_iterations": options.warmup,
            "check_iterations": options.checks,
            "type": (!options.operation.is_of_two()).then(|| kind_name(options.kind)),
            "redop": options.operation.reduces().then(|| options.redop.name()),
        },
        "rows": rows.iter().map(one).collect::<Vec<_>>(),
        "summary": { "checked": options.checks > 0, "wrong": found.wrong, "out_of_bounds": found.outside },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_found() {
        let found = |got: &[f32]| Found::in_memory(got, 2, &[1.0, 2.0, 3.0], -1.0);
        assert_eq!(found(&[-1.0, -1.0, 1.0, 2.0, 3.0, -1.0]), Found::default());
        assert_eq!(found(&[-1.0, -1.0, 1.0, -1.0, 4.0, -1.0]), Found { wrong: 2, outside: 0 });
        assert_eq!(found(&[0.0, -1.0, 1.0, f32::NAN, 3.0, 3.0]), Found { wrong: 1, outside: 2 });
    }
}
