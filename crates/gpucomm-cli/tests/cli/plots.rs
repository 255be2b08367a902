//! Several tables in one run, and the picture of them.

use serde_json::Value;

use crate::harness::{Table, parse, ranks, run};

/// Runs `perf` and reads its tables, the reports and the plot.
fn drawn(name: &str, args: &[&str]) -> (Vec<Table>, Value, String) {
    let path = |kind| std::env::temp_dir().join(format!("gpucomm-cli-{}-{name}.{kind}", std::process::id()));
    let paths = ["json", "svg"].map(path);
    let [json, svg] = paths.each_ref().map(|path| path.to_str().unwrap());
    let all: Vec<_> = ["perf"].iter().chain(args).copied().chain(["--json", json, "--plot", svg]).collect();
    let output = run(&all);
    assert_eq!((output.code, &*output.err), (Some(0), ""), "{args:?}\n{}", output.out);
    let mut tables: Vec<String> = Vec::new();
    for line in output.out.lines() {
        if line.starts_with("# gpucomm ") {
            tables.push(String::new());
        }
        *tables.last_mut().unwrap() += &format!("{line}\n");
    }
    let tables = tables.iter().map(|text| parse(text)).collect();
    let [json, svg] = paths.each_ref().map(|path| std::fs::read_to_string(path).unwrap());
    paths.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    (tables, serde_json::from_str(&json).unwrap(), svg)
}

/// Where the points are, line by line and panel by panel.
fn points(svg: &str) -> Vec<(f64, f64)> {
    let circles = svg.lines().filter(|line| line.starts_with("<circle "));
    let number = |line: &str, name: &str| {
        let value = line.split_once(&format!(" {name}=\"")).unwrap().1.split('"').next().unwrap();
        value.parse().unwrap()
    };
    circles.map(|line| (number(line, "cx"), number(line, "cy"))).collect()
}

/// How many lines are drawn solid, and how many pieces of others.
fn pieces(svg: &str) -> (usize, usize) {
    let thick = svg.lines().filter(|line| line.starts_with("<polyline") && line.contains("stroke-width=\"2\""));
    let lengths = thick.map(|line| line.split_whitespace().filter(|word| word.contains(',')).count());
    let (long, short): (Vec<_>, Vec<_>) = lengths.partition(|corners| *corners > 3);
    (long.len(), short.len())
}

/// Whether `drawn` is `values` moved and stretched, to a pixel.
fn straight(drawn: &[f64], values: &[f64]) -> bool {
    let least = |a: &usize, b: &usize| values[*a].total_cmp(&values[*b]);
    let (low, high) = ((0..values.len()).min_by(least).unwrap(), (0..values.len()).max_by(least).unwrap());
    let slope = (drawn[high] - drawn[low]) / (values[high] - values[low]);
    drawn.len() == values.len()
        && drawn.iter().zip(values).all(|(at, value)| (drawn[low] + slope * (value - values[low]) - at).abs() < 1.6)
}

#[test]
fn every_table_is_a_line_in_both_panels() {
    const BUFFERS: [&str; 3] = ["plain", "registered", "windows"];
    let n = ranks().to_string();
    for (way, operation) in [("-t", "all_reduce"), ("-g", "reduce_scatter"), ("--procs", "broadcast")] {
        let name = format!("lines{way}");
        let options = [way, &n, "-R", "0,1,2", "-G", "0,3", "-b", "256", "-e", "16K", "-f", "4", "-n", "2"];
        let (tables, json, svg) = drawn(&name, &[&[operation], &options[..]].concat());
        let words = ["plain buffers (-R 0)", "registered buffers (-R 1)", "symmetric windows (-R 2)"];
        assert_eq!(tables.len(), 6, "{way}");
        for (at, (table, words)) in tables.iter().zip(words.iter().cycle()).enumerate() {
            assert!(table.header[2].contains(words), "{way}: {:?} should say {words}", table.header);
            let graph = if at < 3 { " graph: 0" } else { " graph: 3" };
            assert!(table.header[1].ends_with(graph), "{way}: {:?} should say {graph}", table.header);
            assert_eq!((table.rows.len(), &*table.out_of_bounds), (4, "0 OK"));
            assert!(table.rows.iter().all(|row| row.places.iter().flatten().all(|place| place[3] == 0.0)));
        }
        let reports = json.as_array().unwrap();
        let names: Vec<_> = reports.iter().map(|report| report["setup"]["buffers"].as_str().unwrap()).collect();
        assert_eq!(names, [BUFFERS, BUFFERS].concat());
        let launches: Vec<_> =
            reports.iter().map(|report| report["setup"]["graph_launches"].as_u64().unwrap()).collect();
        assert_eq!(launches, [0, 0, 0, 3, 3, 3]);

        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        let texts: Vec<_> = svg.lines().filter(|line| !line.starts_with('<')).collect();
        for text in BUFFERS.into_iter().flat_map(|name| [name.to_owned(), format!("{name}, captured")]) {
            assert_eq!(texts.iter().filter(|got| **got == text).count(), 2, "{text} in {texts:?}");
        }
        for text in ["time (µs)", "bus bandwidth (GB/s)", "size", "256 B", "8 KiB"] {
            assert!(texts.contains(&text), "no {text} in {texts:?}");
        }
        assert!(texts[0].starts_with(operation) && texts[1].contains("out of place"), "{texts:?}");

        let (lines, dashes) = pieces(&svg);
        assert!(lines == 6 && dashes > 100, "{way}: {lines} lines and {dashes} dashes");
        // Of all lines of a panel at once, since they share its axes.
        let all = |value: &dyn Fn(&Value) -> f64| -> Vec<f64> {
            reports.iter().flat_map(|report| report["rows"].as_array().unwrap()).map(value).collect()
        };
        let logarithm = |value: &Value| value.as_f64().unwrap().ln();
        let sizes = all(&|row| logarithm(&row["size"]));
        let times = all(&|row| logarithm(&row["out_of_place"]["time_us"]));
        let rates = all(&|row| row["out_of_place"]["busbw"].as_f64().unwrap());
        for (panel, values) in points(&svg).chunks(24).zip([times, rates]) {
            let (x, y): (Vec<_>, Vec<_>) = panel.iter().copied().unzip();
            assert!(straight(&x, &sizes), "{x:?} of {sizes:?}");
            // Upwards is less on a screen.
            let up: Vec<_> = y.iter().map(|y| -y).collect();
            assert!(ranks() == 1 || straight(&up, &values), "{up:?} of {values:?}");
        }
    }
}

#[test]
fn types_and_roots_are_lines_of_their_own() {
    let options = ["-b", "1K", "-e", "4K", "-f", "2", "-n", "1", "-o", "all", "-G", "0"];
    let (tables, json, svg) = drawn("redops", &[&["all_reduce"], &options[..]].concat());
    assert_eq!((tables.len(), json["setup"]["buffers"].as_str()), (1, Some("plain")));
    for redop in ["sum", "prod", "min", "max", "avg", "mulsum"] {
        assert_eq!(svg.lines().filter(|line| *line == format!("plain, {redop}")).count(), 2, "{redop}");
    }
    assert_eq!(points(&svg).len(), 36);
}

/// A single size, sizes that come to nothing, and one rank, whose bus has nothing to carry.
#[test]
fn little_is_drawn_too() {
    for args in [
        &["all_reduce", "-b", "1000", "-e", "1000", "-n", "1"] as &[&str],
        &["all_gather", "-b", "0", "-e", "2K", "-i", "1K", "-n", "1"],
    ] {
        let (_, _, svg) = drawn("little", args);
        assert!(svg.contains("<circle") && !svg.contains("NaN") && !svg.contains("inf"), "{args:?}\n{svg}");
    }
}
