//! nccl-tests' table, column by column, so that what reads theirs reads ours.

use super::row::{RankInfo, Row, Setup, Timing};
use crate::options::{Buffers, PerfOptions};
use crate::size::Step;

/// The lines above the table.
pub fn header(setup: &Setup) -> Vec<String> {
    let PerfOptions { min, max, step, iterations, warmup, checks, .. } = *setup.options;
    let (threads, gpus) =
        if setup.options.procs.is_some() { (1, 1) } else { (setup.options.threads, setup.options.gpus) };
    let step = match step {
        Step::Factor(factor) => format!("{factor}(factor)"),
        Step::Bytes(bytes) => format!("{bytes}(bytes)"),
    };
    let mut lines = vec![
        format!("# gpucomm {} {} on {}", env!("CARGO_PKG_VERSION"), setup.options.operation.name(), setup.libraries),
        format!(
            "# nThread {threads} nGpus {gpus} minBytes {min} maxBytes {max} step: {step} warmup iters: {warmup} \
             iters: {iterations} agg iters: 1 validation: {checks} graph: {}",
            setup.way.launches
        ),
        format!(
            "# {}, time: {} over ranks",
            match setup.way.buffers {
                Buffers::Plain => "plain buffers (-R 0)",
                Buffers::Registered => "registered buffers (-R 1)",
                Buffers::Windows => "symmetric windows (-R 2)",
            },
            setup.options.average.name()
        ),
        "#".to_owned(),
        "# Using devices".to_owned(),
    ];
    lines.extend(setup.ranks.iter().map(device));
    lines.push("#".to_owned());
    lines.push(format!(
        "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           out-of-place                       in-place          ",
        "", "", "", "", ""
    ));
    let names = ["time", "algbw", "busbw", "#wrong"];
    let units = ["(us)", "(GB/s)", "(GB/s)", ""];
    for (columns, [time, algbw, busbw, wrong]) in
        [(["size", "count", "type", "redop", "root"], names), (["(B)", "(elements)", "", "", ""], units)]
    {
        let [size, count, kind, redop, root] = columns;
        let place = format!("  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}");
        lines.push(format!("# {size:>10}  {count:>12}  {kind:>8}  {redop:>6}  {root:>6}{place}{place} "));
    }
    lines
}

pub fn device(rank: &RankInfo) -> String {
    let RankInfo { rank, pid, host, device, pci, name } = rank;
    format!("#  Rank {rank:>2} Group  0 Pid {pid:>6} on {host:>10} device {device:>2} [{pci}] {name}")
}

/// One line of the table.
pub fn row(row: &Row) -> String {
    let Row { bytes, count, kind, redop, root, out_of_place, in_place } = row;
    let mut line = format!("{bytes:>12}  {count:>12}  {kind:>8}  {redop:>6}  {root:>6}");
    line += &timing(Some(out_of_place));
    line += &timing(in_place.as_ref());
    line
}

fn timing(timing: Option<&Timing>) -> String {
    let Some(Timing { seconds, algbw, busbw, found }) = timing else {
        return format!("  {:>7}  {:>6}  {:>6}  {:>6}", "N/A", "N/A", "N/A", "N/A");
    };
    let wrong = found.map_or("N/A".to_owned(), |found| found.wrong.to_string());
    let (time, algbw, busbw) = (fit(seconds * 1e6, 7), fit(*algbw, 6), fit(*busbw, 6));
    format!("  {time:>7}  {algbw:>6}  {busbw:>6}  {wrong:>6}")
}

/// With as many decimals, two at most, as there is room for.
fn fit(value: f64, width: usize) -> String {
    (0..=2)
        .rev()
        .map(|decimals| format!("{value:.decimals$}"))
        .find(|text| text.len() <= width)
        .unwrap_or_else(|| format!("{value:.1e}"))
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn numbers_fit_their_columns() {
        for (value, text) in
            [(0.0, "0.00"), (2.34567, "2.35"), (12345.678, "12345.7"), (1234567.8, "1234568"), (12345678.9, "1.2e7")]
        {
            assert_eq!(fit(value, 7), text);
        }
    }
}
