//! What the program says when it has no table to show.

#[cfg(gpucomm_emulator)]
use std::process::Stdio;

use serde_json::Value;

use crate::harness::{OPERATIONS, run};
#[cfg(gpucomm_emulator)]
use crate::harness::{command, finish};

#[test]
fn nonsense_is_one_line_and_exit_code_2() {
    let too_many = "100000";
    for (args, says) in [
        (&["perf"] as &[&str], "<OP>"),
        (&["perf", "all_reduces"], "all_to_all_v"),
        (&["perf", "all_reduce", "broadcast"], "broadcast"),
        (&["perf", "all_reduce", "--frobnicate"], "--frobnicate"),
        (&["perf", "all_reduce", "-q"], "-q"),
        (&["perf", "all_reduce", "-g", "0"], "from 1"),
        (&["perf", "all_reduce", "-g", "-1"], "-1"),
        (&["perf", "all_reduce", "-g", "many"], "many"),
        (&["perf", "all_reduce", "-g", too_many], "GPUs"),
        (&["perf", "all_reduce", "-g", "4294967295", "-t", "4294967295"], ""),
        (&["perf", "all_reduce", "-t", "0"], "from 1"),
        (&["perf", "all_reduce", "--procs", "0"], "from 1"),
        (&["perf", "all_reduce", "--procs", too_many], "GPUs"),
        (&["perf", "all_reduce", "--procs", "2", "-g", "2"], "--procs"),
        (&["perf", "all_reduce", "-b", "8Q"], "8Q"),
        (&["perf", "all_reduce", "-b", ""], "size"),
        (&["perf", "all_reduce", "-b"], "minbytes"),
        (&["perf", "all_reduce", "-b", "64", "-e", "8"], "above"),
        (&["perf", "all_reduce", "-b", "0", "-e", "8", "-f", "2"], "-b 0"),
        (&["perf", "all_reduce", "-e", "99999999999G"], "too large"),
        (&["perf", "all_reduce", "-b", "1.3"], "whole"),
        (&["perf", "all_reduce", "-f", "1"], "at least 2"),
        (&["perf", "all_reduce", "-f", "0"], "at least 2"),
        (&["perf", "all_reduce", "-f", "1.5"], "at least 2"),
        (&["perf", "all_reduce", "-i", "0"], "increment"),
        (&["perf", "all_reduce", "-f", "2", "-i", "8"], "exclude"),
        (&["perf", "all_reduce", "-n", "0"], "from 1"),
        (&["perf", "all_reduce", "-w", "-1"], "-1"),
        (&["perf", "all_reduce", "-d", "complex"], "bfloat16"),
        (&["perf", "all_reduce", "-o", "xor"], "mulsum"),
        (&["perf", "broadcast", "-r", "1"], "root"),
        (&["perf", "broadcast", "-r", "-2"], "rank"),
        (&["perf", "all_reduce", "-c", "x"], "number"),
        (&["perf", "all_reduce", "-R", "3"], "symmetric"),
        (&["perf", "all_reduce", "-R", "-1"], "-1"),
        (&["perf", "all_reduce", "-R", ""], "1 (registered)"),
        (&["perf", "all_reduce", "-R", "0,"], "1 (registered)"),
        (&["perf", "all_reduce", "-R", "0,1,0"], "0 is there twice"),
        (&["perf", "all_reduce", "-a", "4"], "maximum"),
        (&["perf", "all_reduce", "-T", "0"], "from 1"),
        (&["perf", "all_reduce", "--json"], "--json"),
        (&["perf", "all_reduce", "--plot"], "--plot"),
        (&["perf", "all_reduce", "--plot", "x", "--json", "x"], "same file"),
        (&["perf", "all_reduce", "--plot", "x", "-d", "all"], "room for 8 lines, and this run has 12"),
        (&["perf", "all_reduce", "--plot", "x", "-o", "all", "-R", "0,2"], "this run has 12"),
        (&["perf", "all_reduce", "--plot", "x", "-b", "0", "-e", "0"], "nothing to show"),
        (&["perf", "all_gather", "--plot", "x", "-b", "8", "-e", "15", "-f", "2"], "nothing to show"),
        (&["perf", "all_reduce", "-m", "4"], "'--agg_iters <N>': expected 1: operations are not aggregated; -n"),
        (&["perf", "all_reduce", "-N", "0"], "'--run_cycles <N>': expected 1: "),
        (&["perf", "all_reduce", "-p", "1"], "'--parallel_init <0|1>': expected 0: "),
        (&["perf", "all_reduce", "-z", "1"], "'--blocking <0|1>': expected 0: "),
        (&["perf", "all_reduce", "-y", "1"], "'--stream_null <0|1>': expected 0: "),
        (&["perf", "all_reduce", "-G", "x"], "'--cudagraph <LIST>': expected 0 (no graphs)"),
        (&["perf", "all_reduce", "-G", "-1"], "-1"),
        (&["perf", "all_reduce", "-G", "20,0,20"], "20 is there twice"),
        (&["perf", "all_reduce", "--plot", "x", "-G", "10,0,20"], "-G has 10 and 20 launches"),
        (&["perf", "all_reduce", "-C", "1"], "'--report_cputime <0|1>': expected 0: "),
        (&["perf", "all_reduce", "-S", "1"], "'--report_timestamps <0|1>': expected 0: "),
        (&["perf", "all_reduce", "-M", "x"], "'--memory_report <0|1>': expected 0: "),
        (&["perf", "all_reduce", "-x", "2"], "'--cta_policy <0..2>': expected 0: set NCCL_CTA_POLICY"),
        (&["perf", "all_reduce", "-D", "1"], "'--device_implementation <N>': expected 0: "),
        (&["perf", "all_reduce", "-V", "x"], "device_cta_count"),
        (&["perf", "all_reduce", "--child", "0"], "--procs"),
        (&["perf", "no\nsuch\u{1b}[2Jop"], "no such"),
        (&["perf", "x\n\ny"], "x"),
        (&["info", "everything"], "everything"),
        (&["--hlep"], "'--hlep' found: did you mean '--help'?"),
        (&["run", "--rank", "2", "x"], "did you mean '--ranks'?"),
        (&["inof"], "did you mean 'info'?"),
        (&["run", "-np", "4", "x"], "mpirun's `-np N` is `-n N` here"),
        (&["run", "-n", "-1", "x"], "'-1' for '--ranks <N>': expected a number from 1"),
        (&["run", "-n", "2", "--nproc-per-node", "2", "x"], "cannot be used with"),
        (&["run", "--nproc_per_node=gpu", "x"], "'gpu' for '--nproc-per-node <N>': expected a number from 1"),
        (&["diagnose", "--ras", "host:1"], "host:1: there is no such dump; an address is given as --ras=host:1"),
        (&["dance"], "dance"),
        (&[], "no command"),
    ] {
        let output = run(args);
        assert_eq!(output.code, Some(2), "{args:?}\n{}\n{}", output.out, output.err);
        assert_eq!(output.out, "", "{args:?}");
        assert_eq!(output.err.lines().count(), 1, "{args:?}\n{}", output.err);
        assert!(output.err.starts_with("gpucomm: ") && output.err.ends_with('\n'), "{args:?}\n{}", output.err);
        assert!(output.err.contains(says), "{args:?} should say {says}: {}", output.err);
        assert!(!output.err.contains('\u{1b}'));
    }
}

/// All options of nccl-tests, as they are when nobody gives them.
#[test]
fn a_command_line_of_nccl_tests() {
    let short = "-t 1 -g 1 -b 8 -e 8 -i 1048576 -n 2 -m 1 -w 1 -N 1 -p 0 -c 1 -o sum -d float -r 0 -z 0 -y 0 -T 60 -G 0 -C 0 \
                 -S 0 -a 1 -R 0 -x 0 -D 0 -V 16 -M 0";
    let long = "--nthreads 1 --ngpus 1 --minbytes 8 --maxbytes 8 --stepbytes 1048576 --iters 2 --agg_iters 1 --warmup_iters 1 \
                --run_cycles 1 --parallel_init 0 --check 0 --op sum --datatype float --root 0 --blocking 0 --stream_null 0 \
                --timeout 60 --cudagraph 0 --report_cputime 0 --report_timestamps 0 --output_file /dev/null --average 1 \
                --local_register 0 --cta_policy 0 --device_implementation 0 --device_cta_count 16 --memory 0";
    for options in [short, long] {
        let args: Vec<_> = ["perf", "all_reduce"].into_iter().chain(options.split_whitespace()).collect();
        // Where there is no GPU, that is what it says, and nothing about the options.
        let output = run(&args);
        let lacks_gpu = output.code == Some(1) && output.err.contains("no usable GPU");
        assert!(output.code == Some(0) || lacks_gpu, "{options}\n{}\n{}", output.out, output.err);
    }
}

#[test]
fn help_and_version() {
    for args in [&["--help"] as &[&str], &["perf", "--help"], &["info", "-h"], &["--version"]] {
        let output = run(args);
        assert_eq!((output.code, &*output.err), (Some(0), ""), "{args:?}");
        assert!(output.out.contains("gpucomm"), "{args:?}\n{}", output.out);
    }
    for operation in OPERATIONS {
        assert!(run(&["perf", "--help"]).out.contains(operation));
    }
}

#[test]
fn a_file_that_cannot_be_written_fails_before_the_run() {
    for option in ["--json", "--plot"] {
        let output = run(&["perf", "all_reduce", "-b", "8", "-e", "8", option, "/no/such/directory/x"]);
        assert_eq!((output.code, &*output.out), (Some(1), ""));
        assert!(output.err.contains("/no/such/directory/x") && output.err.lines().count() == 1, "{}", output.err);
    }
}

/// A table of registered buffers where there are none would mislead.
#[cfg(gpucomm_emulator)]
#[test]
fn registration_without_effect_is_an_error() {
    for way in [&["-t", "2"], &["-g", "2"], &["--procs", "2"]] {
        let mut command = command(&[&["perf", "all_reduce", "-b", "8", "-e", "8", "-R", "1"], &way[..]].concat());
        let child = command.env("NCCL_LOCAL_REGISTER", "0").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let output = finish(child.unwrap());
        assert!(output.code == Some(1) && output.err.lines().count() == 1, "{way:?} {}", output.err);
        assert!(output.err.contains("(-R 1): NCCL registers nothing"), "{way:?} {}", output.err);
    }
}

#[test]
fn info_tells_what_there_is() {
    let output = run(&["info"]);
    assert_eq!((output.code, &*output.err), (Some(0), ""));
    for text in ["NCCL", "CUDA runtime", "driver", "is running, built for", "symmetric windows"] {
        assert!(output.out.contains(text), "no {text} in\n{}", output.out);
    }
    let json: Value = serde_json::from_str(&run(&["info", "--json"]).out).unwrap();
    for library in [
        "nccl",
        "cuda_runtime",
        #[cfg(feature = "nvshmem")]
        "nvshmem",
    ] {
        for version in ["built_for", "running"] {
            let text = json["libraries"][library][version].as_str().unwrap();
            assert!(text.starts_with(|c: char| c.is_ascii_digit()), "{library} {version}: {text}");
        }
    }
    #[cfg(feature = "nvshmem")]
    {
        let text = json["libraries"]["nvshmem"]["collectives"].as_str().unwrap();
        assert!(
            text.contains(if cfg!(gpucomm_emulator) { "no NCCL" } else { "libnccl" }) && output.out.contains(text),
            "{text}"
        );
    }
    for (ordinal, device) in json["devices"].as_array().unwrap().iter().enumerate() {
        assert_eq!(device["ordinal"], ordinal);
        assert!(device["memory_bytes"].as_u64().unwrap() > 0);
        assert!(device["links"][ordinal].is_null());
    }
}

#[test]
fn info_names_the_known_bugs_of_what_is_running() {
    let json: Value = serde_json::from_str(&run(&["info", "--json"]).out).unwrap();
    let running = json["libraries"]["nccl"]["running"].as_str().unwrap();
    let numbers: Vec<u32> = running.split('.').map(|number| number.parse().unwrap()).collect();
    let bugs = json["known_bugs"].as_array().unwrap();
    let named: Vec<_> = bugs.iter().map(|bug| bug["name"].as_str().unwrap()).collect();
    // This one has no end; that one has.
    assert!(named.contains(&"destroy-after-error"), "{named:?}");
    let misaligned = (&[2, 27, 3][..]..=&[2, 29, 7]).contains(&&numbers[..]);
    assert_eq!(named.contains(&"misaligned-windows"), misaligned, "{running}: {named:?}");
    let (text, all) = (run(&["info"]).out, run(&["info", "--verbose"]).out);
    for bug in bugs {
        for key in ["library", "name", "what", "status", "how"] {
            assert!(all.contains(bug[key].as_str().unwrap()), "{bug}: {all}");
        }
        // Without the option, only what is worked around is listed, by its name.
        let is_listed =
            text.contains(&format!("{} {}", bug["library"].as_str().unwrap(), bug["name"].as_str().unwrap()));
        assert_eq!(is_listed, bug["status"] == "worked around", "{bug}: {text}");
        assert!(!text.contains(bug["how"].as_str().unwrap()), "{bug}: {text}");
    }
}

#[test]
fn info_tries_what_there_is() {
    let output = run(&["info", "--probe", "--json"]);
    assert_eq!((output.code, &*output.err), (Some(0), ""));
    let json: Value = serde_json::from_str(&output.out).unwrap();
    assert_eq!(json["probe"]["ranks"], json["devices"].as_array().unwrap().len());
    assert_eq!(json["probe"]["all_reduce"], "right");
    assert!(run(&["info", "--probe"]).out.contains("all_reduce         right"));
}

#[cfg(gpucomm_emulator)]
#[test]
fn without_a_gpu_info_says_so_and_perf_fails() {
    let none = |args: &[&str]| {
        let mut command = command(args);
        finish(
            command.env("GPUCOMM_EMULATOR_DEVICES", "0").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap(),
        )
    };
    let info = none(&["info"]);
    assert_eq!((info.code, &*info.err), (Some(0), ""));
    assert!(info.out.contains("no usable GPU: ") && info.out.contains("is running, built for"), "{}", info.out);
    for args in [&["perf", "all_reduce"] as &[&str], &["perf", "all_reduce", "--procs", "2"]] {
        let output = none(args);
        assert_eq!((output.code, &*output.out), (Some(1), ""));
        assert!(output.err.contains("no usable GPU") && output.err.lines().count() == 1, "{}", output.err);
    }
}
