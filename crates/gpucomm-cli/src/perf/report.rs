//! What a run found, as table and as JSON.

use serde_json::{Value, json};

use super::check::Found;
use super::row::{RankInfo, Row, Setup, Timing};
use super::table;
use crate::options::{RedOp, Root, kind_name};
use crate::size::Step;

/// All that was found for one table so far.
#[derive(Debug)]
pub struct Report<'a> {
    setup: &'a Setup<'a>,
    rows: Vec<Row>,
}

impl<'a> Report<'a> {
    pub fn new(setup: &'a Setup<'a>) -> Self {
        Self { setup, rows: Vec::new() }
    }

    pub fn header(&self) -> Vec<String> {
        table::header(self.setup)
    }

    /// Takes a row and says how the table shows it.
    pub fn add(&mut self, row: Row) -> String {
        let line = table::row(&row);
        self.rows.push(row);
        line
    }

    pub fn footer(&self) -> Vec<String> {
        let Found { wrong, outside } = self.found();
        let mut lines = Vec::new();
        if self.setup.options.checks == 0 {
            lines.push(format!("# {:<20} : not checked (-c 0)", "Out of bounds values"));
        } else {
            let verdict = if outside == 0 { "OK" } else { "FAILED" };
            lines.push(format!("# {:<20} : {outside} {verdict}", "Out of bounds values"));
        }
        if wrong > 0 {
            lines.push(format!("# {:<20} : {wrong} FAILED", "Wrong values"));
        }
        lines.push(format!("# {:<20} : {} ", "Avg bus bandwidth", significant(self.busbw())));
        lines.push("#".to_owned());
        lines
    }

    /// Whether every value was right.
    pub fn good(&self) -> bool {
        self.found() == Found::default()
    }

    fn timings(&self) -> impl Iterator<Item = &Timing> {
        self.rows.iter().flat_map(|row| std::iter::once(&row.out_of_place).chain(row.in_place.as_ref()))
    }

    fn found(&self) -> Found {
        let mut all = Found::default();
        for found in self.timings().filter_map(|timing| timing.found) {
            all += found;
        }
        all
    }

    /// The mean over all rows, in and out of place, as nccl-tests has it.
    fn busbw(&self) -> f64 {
        let count = self.timings().count();
        if count == 0 { 0.0 } else { self.timings().map(|timing| timing.busbw).sum::<f64>() / count as f64 }
    }

    pub fn json(&self) -> Value {
        let options = self.setup.options;
        let (factor, increment) = match options.step {
            Step::Factor(factor) => (Some(factor), None),
            Step::Bytes(bytes) => (None, Some(bytes)),
        };
        let Found { wrong, outside } = self.found();
        json!({
            "program": concat!("gpucomm ", env!("CARGO_PKG_VERSION")),
            "operation": options.operation.name(),
            "setup": {
                "libraries": self.setup.libraries,
                "backend": format!("{:?}", gpucomm::backend()).to_lowercase(),
                "ranks": self.setup.ranks.iter().map(RankInfo::json).collect::<Vec<_>>(),
                "processes": options.procs.unwrap_or(1),
                "threads": if options.procs.is_some() { 1 } else { options.threads },
                "gpus_per_thread": if options.procs.is_some() { 1 } else { options.gpus },
                "min_bytes": options.min,
                "max_bytes": options.max,
                "step_factor": factor,
                "step_bytes": increment,
                "iterations": options.iterations,
                "warmup_iterations": options.warmup,
                "check_iterations": options.checks,
                "types": options.kinds.iter().map(|&kind| kind_name(kind)).collect::<Vec<_>>(),
                "redops": options.reductions().iter().flatten().map(|redop| RedOp::name(*redop)).collect::<Vec<_>>(),
                "root": match options.root {
                    _ if !options.operation.has_root() => Value::Null,
                    Root::All => "all".into(),
                    Root::Rank(rank) => rank.into(),
                },
                "buffers": self.setup.way.buffers.name(),
                "graph_launches": self.setup.way.launches,
                "time": options.average.name(),
            },
            "rows": self.rows.iter().map(row_json).collect::<Vec<_>>(),
            "summary": {
                "checked": options.checks > 0,
                "wrong": wrong,
                "out_of_bounds": outside,
                "average_bus_bandwidth": self.busbw(),
            },
        })
    }
}

fn row_json(row: &Row) -> Value {
    let timing = |timing: &Timing| {
        json!({
            "time_us": timing.seconds * 1e6,
            "algbw": timing.algbw,
            "busbw": timing.busbw,
            "wrong": timing.found.map(|found| found.wrong),
            "out_of_bounds": timing.found.map(|found| found.outside),
        })
    };
    json!({
        "size": row.bytes,
        "count": row.count,
        "type": row.kind,
        "redop": row.redop,
        "root": row.root,
        "out_of_place": timing(&row.out_of_place),
        "in_place": row.in_place.as_ref().map(timing),
    })
}

/// Six significant digits at most, without trailing zeros, as C's `%g` has it.
fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-4..6).contains(&magnitude) {
        return format!("{value:.5e}");
    }
    let text = format!("{value:.*}", (5 - magnitude) as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::significant;

    #[test]
    fn six_digits() {
        for (value, text) in [(0.0, "0"), (123.456789, "123.457"), (0.5, "0.5"), (100.0, "100"), (0.00123, "0.00123")] {
            assert_eq!(significant(value), text);
        }
    }
}
