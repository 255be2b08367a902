//! What a plot shows, read off the reports of a run: lines, and what they are of.

use std::collections::BTreeSet;

use serde_json::Value;

/// What was measured for one size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    pub bytes: f64,
    pub micros: f64,
    /// Bus bandwidth in GB/s.
    pub busbw: f64,
}

/// The sizes of one table, or of a part of one that has the same type, reduction and root.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub name: String,
    /// Whether it is of graphs; then it is drawn as the line of the same family that is not, but dashed.
    pub captured: bool,
    pub family: usize,
    pub points: Vec<Point>,
}

/// What tells rows of one table apart, besides their size.
const PARTS: [&str; 3] = ["type", "redop", "root"];

/// A line for each way, type, reduction and root, named by what not all of them have. Sizes of no bytes have no place on a
/// logarithmic axis, and are left out.
pub fn lines(reports: &[Value]) -> Vec<Line> {
    let differs = PARTS.map(|part| distinct(reports, part).len() > 1);
    let (mut lines, mut families): (Vec<Line>, Vec<String>) = (Vec::new(), Vec::new());
    for report in reports {
        let (way, captured) = (text(&report["setup"]["buffers"]), launches(report) > 0);
        for row in rows(report) {
            let parts = PARTS.iter().zip(differs).filter(|(_, differs)| *differs);
            let words = parts.map(|(part, _)| match *part {
                "root" => format!("root {}", row["root"]),
                part => text(&row[part]),
            });
            let name = [way.clone()].into_iter().chain(words).collect::<Vec<_>>().join(", ");
            let family = place(&mut families, |family| *family == name, || name.clone());
            let at = place(
                &mut lines,
                |line| (line.family, line.captured) == (family, captured),
                || {
                    let name = if captured { format!("{name}, captured") } else { name.clone() };
                    Line { name, captured, family, points: Vec::new() }
                },
            );
            lines[at].points.extend(point(row));
        }
    }
    lines
}

/// Where it is among `all`, to which it is added where it is not.
fn place<T>(all: &mut Vec<T>, is: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> usize {
    all.iter().position(is).unwrap_or_else(|| {
        all.push(new());
        all.len() - 1
    })
}

/// Two lines of words: what was measured where, and how.
pub fn titles(reports: &[Value]) -> [String; 2] {
    let setup = &reports[0]["setup"];
    let ranks = setup["ranks"].as_array().map_or(&[][..], Vec::as_slice);
    let names: BTreeSet<_> = ranks.iter().map(|rank| text(&rank["name"])).collect();
    let count = ranks.len();
    let devices = match names.first() {
        Some(name) if names.len() == 1 => format!("{count} × {name}"),
        _ => format!("{count} GPUs"),
    };
    let what = format!("{} on {devices}", text(&reports[0]["operation"]));
    let mut how = vec![text(&setup["libraries"])];
    for part in ["type", "redop"] {
        let values = distinct(reports, part);
        if let (1, Some(value)) = (values.len(), values.first().filter(|value| *value != "none")) {
            how.push(value.clone());
        }
    }
    how.push("out of place".to_owned());
    how.push(format!("{} iterations", setup["iterations"]));
    if let Some(launches) = reports.iter().map(launches).find(|launches| *launches > 0) {
        how.push(format!("captured: {launches} launches of these"));
    }
    [what, how.join(", ")]
}

fn rows(report: &Value) -> &[Value] {
    report["rows"].as_array().map_or(&[], Vec::as_slice)
}

/// How often graphs of it were launched.
fn launches(report: &Value) -> u64 {
    report["setup"]["graph_launches"].as_u64().unwrap_or(0)
}

/// What rows have there.
fn distinct(reports: &[Value], part: &str) -> BTreeSet<String> {
    reports.iter().flat_map(rows).map(|row| text(&row[part])).collect()
}

/// A string without its quotation marks, anything else as JSON has it.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn point(row: &Value) -> Option<Point> {
    let (bytes, timing) = (row["size"].as_f64()?, &row["out_of_place"]);
    let point = Point { bytes, micros: timing["time_us"].as_f64()?, busbw: timing["busbw"].as_f64()? };
    (point.bytes > 0.0 && point.micros > 0.0).then_some(point)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(buffers: &str, rows: &[(usize, &str, i64)]) -> Value {
        launched(buffers, 0, rows)
    }

    fn launched(buffers: &str, launches: usize, rows: &[(usize, &str, i64)]) -> Value {
        let row = |&(size, kind, root): &(usize, &str, i64)| {
            json!({ "size": size, "type": kind, "redop": "sum", "root": root,
                    "out_of_place": { "time_us": 2.5, "busbw": size } })
        };
        let rank = json!({ "name": "GPU" });
        json!({
            "operation": "reduce",
            "setup": { "buffers": buffers, "graph_launches": launches, "libraries": "NCCL", "ranks": [rank, rank], "iterations": 7 },
            "rows": rows.iter().map(row).collect::<Vec<_>>(),
        })
    }

    #[test]
    fn named_by_what_differs() {
        let names = |reports: &[Value]| lines(reports).into_iter().map(|line| line.name).collect::<Vec<_>>();
        let (plain, windows) = (report("plain", &[(8, "float", 0)]), report("windows", &[(8, "float", 0)]));
        assert_eq!(names(&[plain, windows]), ["plain", "windows"]);
        let both = report("plain", &[(8, "float", 0), (8, "float", 1), (8, "half", 0), (8, "half", 1)]);
        let want = ["plain, float, root 0", "plain, float, root 1", "plain, half, root 0", "plain, half, root 1"];
        assert_eq!(names(&[both]), want);
    }

    #[test]
    fn points_are_in_order_and_have_a_size() {
        let got = lines(&[report("plain", &[(0, "float", 0), (8, "float", 0), (64, "float", 0)])]);
        let point = |bytes| Point { bytes, micros: 2.5, busbw: bytes };
        let points = vec![point(8.0), point(64.0)];
        assert_eq!(got, [Line { name: "plain".to_owned(), captured: false, family: 0, points }]);
    }

    #[test]
    fn what_is_captured_belongs_to_what_is_not() {
        let reports = [("plain", 0), ("windows", 0), ("plain", 20), ("windows", 20)]
            .map(|(buffers, launches)| launched(buffers, launches, &[(8, "float", 0)]));
        let lines = lines(&reports);
        let got: Vec<_> = lines.iter().map(|line| (&*line.name, line.captured, line.family)).collect();
        let captured = [("plain, captured", true, 0), ("windows, captured", true, 1)];
        assert_eq!(got, [("plain", false, 0), ("windows", false, 1), captured[0], captured[1]]);
        assert!(titles(&reports)[1].ends_with("7 iterations, captured: 20 launches of these"));
    }

    #[test]
    fn what_and_how() {
        let reports = [report("plain", &[(8, "float", 0)]), report("windows", &[(8, "float", 0)])];
        assert_eq!(titles(&reports), ["reduce on 2 × GPU", "NCCL, float, sum, out of place, 7 iterations"]);
        let reports = [report("plain", &[(8, "float", 0), (8, "half", 0)])];
        assert_eq!(titles(&reports)[1], "NCCL, sum, out of place, 7 iterations");
    }
}
