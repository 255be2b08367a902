//! Tables, and JSON that says the same.

use serde_json::Value;

use crate::harness::{OPERATIONS, REDOPS, TYPES, bus_factor, perf, ranks, run};

#[test]
fn every_operation_prints_a_table_whose_numbers_belong_together() {
    let n = ranks();
    for operation in OPERATIONS {
        let table = perf(&[operation, "-b", "8", "-e", "64K", "-f", "8", "-n", "3"]);
        assert_eq!(table.rows.len(), 5, "{operation}");
        let (mut sum, mut number) = (0.0, 0);
        for (row, asked) in table.rows.iter().zip([8, 64, 512, 4096, 32768]) {
            assert!(row.size <= asked, "{operation} {row:?}");
            let parts = match operation {
                "all_reduce" | "reduce" | "broadcast" | "sendrecv" => 1,
                _ => n,
            };
            // Parts are whole multiples of 16 bytes.
            let count = if parts == 1 { asked / 4 } else { asked / 4 / parts / 4 * 4 };
            assert_eq!(row.count, count, "{operation} {row:?}");
            if operation != "all_to_all_v" {
                assert_eq!(row.size, count * parts * 4, "{operation} {row:?}");
            }
            assert_eq!(row.kind, "float");
            assert_eq!(row.redop, if operation.contains("reduce") { "sum" } else { "none" });
            let rooted = ["reduce", "broadcast", "gather", "scatter"].contains(&operation);
            assert_eq!(row.root, if rooted { 0 } else { -1 });
            let exchange = ["all_to_all", "all_to_all_v", "sendrecv"].contains(&operation);
            assert_eq!(row.places[1].is_none(), exchange, "{operation} {row:?}");
            for [time, algbw, busbw, _] in row.places.iter().flatten() {
                assert!(*time > 0.0);
                let expected = row.size as f64 / time / 1e3;
                assert!((algbw - expected).abs() <= 0.006 + expected * 0.01, "{operation} {row:?}");
                let expected = algbw * bus_factor(operation, n);
                assert!((busbw - expected).abs() <= 0.016, "{operation} {row:?}");
                (sum, number) = (sum + busbw, number + 1);
            }
        }
        let mean = sum / f64::from(number);
        assert!((table.busbw - mean).abs() <= 0.006, "{operation}: {} instead of {mean}", table.busbw);
        let devices: Vec<_> = table.header.iter().filter(|line| line.starts_with("#  Rank ")).collect();
        assert_eq!(devices.len(), n);
        for (rank, line) in devices.iter().enumerate() {
            let fields: Vec<_> = line.split_whitespace().collect();
            assert_eq!((fields[2], fields[5]), (&*rank.to_string(), "Pid"), "{line}");
        }
    }
}

#[test]
fn every_type_and_reduction_is_right() {
    // One rank alone cannot multiply numbers of eight bits.
    let reduced = TYPES.iter().filter(|kind| ranks() > 1 || !kind.starts_with("f8"));
    for operation in ["all_reduce", "reduce_scatter", "reduce"] {
        let table = perf(&[operation, "-d", "all", "-o", "all", "-b", "4000", "-e", "4000", "-n", "1", "-w", "0"]);
        let got: Vec<_> = table.rows.iter().map(|row| (&*row.kind, &*row.redop)).collect();
        let want: Vec<_> = reduced.clone().flat_map(|kind| REDOPS.map(|redop| (*kind, redop))).collect();
        assert_eq!(got, want, "{operation}");
    }
    for operation in ["broadcast", "all_gather", "all_to_all", "gather", "scatter", "sendrecv", "all_to_all_v"] {
        let table = perf(&[operation, "-d", "all", "-b", "4000", "-e", "4000", "-n", "1"]);
        assert_eq!(table.rows.iter().map(|row| &*row.kind).collect::<Vec<_>>(), TYPES, "{operation}");
    }
}

#[test]
fn every_root_takes_its_turn() {
    for operation in ["reduce", "broadcast", "gather", "scatter"] {
        for all in ["all", "-1"] {
            let table = perf(&[operation, "-r", all, "-b", "1000", "-e", "1000", "-n", "1"]);
            let roots: Vec<_> = table.rows.iter().map(|row| row.root).collect();
            assert_eq!(roots, (0..ranks() as i64).collect::<Vec<_>>(), "{operation}");
        }
    }
    let last = ranks() - 1;
    assert_eq!(perf(&["broadcast", "-r", &last.to_string(), "-b", "64", "-e", "64"]).rows[0].root, last as i64);
}

#[test]
fn threads_windows_and_other_ways_to_run() {
    let n = &ranks().to_string();
    let ways: [&[&str]; 9] = [
        &["-t", n, "-b", "1K", "-e", "256K", "-f", "16"],
        &["-t", n, "-R", "2", "-b", "1K", "-e", "16K", "-f", "4"],
        &["-R", "2", "-b", "1K", "-e", "1K"],
        &["-R", "1", "-b", "1K", "-e", "1K"],
        &["-t", n, "-R", "1", "-b", "1K", "-e", "16K", "-f", "4", "-d", "half"],
        &["-g", "1", "-b", "1K", "-e", "1K"],
        &["-G", "2", "-b", "1K", "-e", "32K", "-f", "32"],
        &["-t", n, "-G", "3", "-b", "1K", "-e", "1K", "-c", "2"],
        &["--procs", n, "-G", "3", "-b", "1K", "-e", "1K"],
    ];
    // Each way with some of the operations, drawn anew each time, and each operation in some way; or all of them.
    let thorough = std::env::var_os("GPUCOMM_TEST_THOROUGH").is_some();
    for (at, operation) in OPERATIONS.into_iter().enumerate() {
        for (number, way) in ways.into_iter().enumerate() {
            if thorough || number == at % ways.len() || fastrand::u8(..4) == 0 {
                perf(&[&[operation, "-n", "2"], way].concat());
            }
        }
    }
    if ranks() == 4 {
        perf(&["all_reduce", "-t", "2", "-g", "2", "-b", "1K", "-e", "1K"]);
    }
    let sizes = |args: &[&str]| perf(args).rows.iter().map(|row| row.size).collect::<Vec<_>>();
    assert_eq!(sizes(&["all_reduce", "-b", "0", "-e", "2K", "-i", "1K", "-n", "1"]), [0, 1024, 2048]);
    assert_eq!(sizes(&["allreduce_perf", "-b", "1.5K", "-e", "1.5K", "-c", "3", "-a", "3"]), [1536]);
}

#[test]
fn nothing_is_claimed_where_nothing_was_checked() {
    let output = run(&["perf", "all_reduce", "-b", "64", "-e", "64", "-c", "0"]);
    assert_eq!(output.code, Some(0), "{}", output.err);
    let row = output.out.lines().find(|line| !line.starts_with('#')).unwrap();
    let fields: Vec<_> = row.split_whitespace().collect();
    assert_eq!((fields[8], fields[12]), ("N/A", "N/A"));
    assert!(output.out.contains("# Out of bounds values : not checked"), "{}", output.out);
}

#[test]
fn json_says_what_the_table_says_and_more() {
    let n = ranks();
    for (procs, operation) in [(false, "reduce_scatter"), (false, "all_to_all"), (true, "all_reduce")] {
        let path = std::env::temp_dir().join(format!("gpucomm-cli-{}-{operation}.json", std::process::id()));
        let file = path.to_str().unwrap();
        let count = n.to_string();
        let table = perf(&[
            operation,
            "-b",
            "1K",
            "-e",
            "16K",
            "-f",
            "4",
            "-n",
            "7",
            "-w",
            "2",
            "--json",
            file,
            if procs { "--procs" } else { "-t" },
            &count,
        ]);
        let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(json["operation"], operation);
        let setup = &json["setup"];
        assert_eq!(setup["iterations"], 7);
        assert_eq!(setup["warmup_iterations"], 2);
        assert_eq!(setup["step_factor"], 4);
        assert_eq!(setup["processes"], if procs { n } else { 1 });
        assert_eq!(setup["ranks"].as_array().unwrap().len(), n);
        for (rank, info) in setup["ranks"].as_array().unwrap().iter().enumerate() {
            assert_eq!((&info["rank"], &info["device"]), (&Value::from(rank), &Value::from(rank)));
        }
        let rows = json["rows"].as_array().unwrap();
        assert_eq!(rows.len(), table.rows.len());
        let mut rates = Vec::new();
        for (json, row) in rows.iter().zip(&table.rows) {
            assert_eq!((&json["size"], &json["count"]), (&Value::from(row.size), &Value::from(row.count)));
            assert_eq!((&json["type"], &json["redop"]), (&Value::from(&*row.kind), &Value::from(&*row.redop)));
            for (place, printed) in [&json["out_of_place"], &json["in_place"]].into_iter().zip(&row.places) {
                assert_eq!(place.is_null(), printed.is_none());
                let Some([time, ..]) = printed else { continue };
                let number = |key: &str| place[key].as_f64().unwrap();
                assert!((number("time_us") - time).abs() <= 0.006 + time * 1e-4);
                let algbw = row.size as f64 / number("time_us") / 1e3;
                assert!((number("algbw") - algbw).abs() <= 1e-9 * algbw);
                let busbw = algbw * bus_factor(operation, n);
                assert!((number("busbw") - busbw).abs() <= 1e-9 * busbw);
                assert_eq!((&place["wrong"], &place["out_of_bounds"]), (&Value::from(0), &Value::from(0)));
                rates.push(busbw);
            }
        }
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        assert!((json["summary"]["average_bus_bandwidth"].as_f64().unwrap() - mean).abs() <= 1e-9 * mean);
        assert_eq!((&json["summary"]["checked"], &json["summary"]["wrong"]), (&Value::Bool(true), &Value::from(0)));
    }
}
