//! `gpucomm run --print`: lines that a shell reads back, and a manifest.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::run;

/// Words that shells, mpirun and Kubernetes make something of, were they not quoted.
const WORDS: [&str; 8] = ["it's", "a  b", "", "$HOME", "$(NODE_RANK)", "--n=4", "\"x\"\\", "line\nbreak ü"];

fn print(engine: &str, options: &[&str]) -> String {
    let mut args = vec!["run", "--print", engine];
    args.extend(options);
    args.extend(["--env", "A=it's $A", "--", "./my prog.sh"]);
    args.extend(WORDS);
    let output = run(&args);
    // The lines of others ask for no GPUs anyway.
    let asks = gpucomm::backend() == gpucomm::Backend::Nvidia || !["srun", "k8s"].contains(&engine);
    let note = "gpucomm: this program has the emulator in place of GPUs: what is printed asks for none\n";
    assert_eq!((output.code, output.err.as_str()), (Some(0), if asks { "" } else { note }), "{engine}");
    output.out
}

/// The words of the line, as a shell sees them that has the engine as a function.
fn words(engine: &str, line: &str, env: &[(&str, &str)]) -> Option<Vec<String>> {
    let script = format!(
        "env() {{ for word; do printf '%s\\0' \"$word\"; done; }}\n{engine}() {{ env {engine} \"$@\"; }}\n{line}"
    );
    let output = Command::new("bash")
        .args(["-c", &script])
        .env_remove("MASTER_ADDR")
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    output.status.success().then(|| text.split_terminator('\0').map(str::to_owned).collect())
}

#[test]
fn lines_are_read_back_by_a_shell() {
    for (engine, begins, has) in [
        (
            "srun",
            &["env", "A=it's $A", "srun"][1..],
            &["--nodes=2", "--ntasks=8", "--ntasks-per-node=4", "--kill-on-bad-exit=1", "--label"][..],
        ),
        (
            "mpirun",
            &["mpirun", "-n", "8"],
            &["--map-by", "ppr:4:node", "-x", "MASTER_ADDR=node1", "A=it's $A", "--tag-output"],
        ),
        (
            "torchrun",
            &["A=it's $A", "torchrun"],
            &["--nnodes=2", "--nproc_per_node=4", "--rdzv_endpoint=node1:29500", "--max_restarts=0", "--no_python"],
        ),
    ] {
        let line = print(engine, &["-n", "8", "--nodes", "2"]);
        let syntax = Command::new("bash").args(["-n", "-c", &line]).stderr(Stdio::inherit()).status().unwrap();
        assert!(syntax.success(), "{line}");
        let words = words(engine, &line, &[("MASTER_ADDR", "node1")]).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(&words[..begins.len()], begins, "{line}");
        let program = words.iter().position(|word| word == "./my prog.sh").unwrap_or_else(|| panic!("{line}"));
        assert_eq!(&words[program + 1..], &WORDS, "{line}");
        for word in has {
            assert!(words[..program].iter().any(|has| has == word), "{engine} without {word}: {line}");
        }
    }
    // Where the first node has no name, a shell says so.
    for engine in ["torchrun", "mpirun"] {
        assert_eq!(words(engine, &print(engine, &["-n", "8", "--nodes", "2"]), &[]), None, "{engine}");
    }
    for place in ["MASTER_ADDR=node2", "GPUCOMM_STORE=server://node2:29400"] {
        let line = print("mpirun", &["-n", "8", "--nodes", "2", "--env", place]);
        assert!(line.contains(place) && !line.contains(":?"), "{line}");
    }
    assert!(!print("mpirun", &["-n", "3"]).contains("MASTER_ADDR"));
    let alone = print("torchrun", &["-n", "3", "--max-restarts", "2"]);
    assert!(
        alone.contains("--standalone") && alone.contains("--nproc_per_node=3 ") && alone.contains("--max_restarts=2"),
        "{alone}"
    );
    assert!(!print("mpirun", &["-n", "3", "--no-prefix"]).contains("tag"));
    let output = run(&["run", "--print", "mpirun", "-n", "2", "--", "prog", ":"]);
    assert_eq!(output.code, Some(2), "{}", output.out);
}

#[test]
fn the_manifest_is_what_kubernetes_reads() {
    let text = print("k8s", &["-n", "8", "--nodes", "2"]);
    assert!(text.starts_with("# An indexed Job of batch/v1"), "{text}");
    let read = "import json, sys\ntry:\n import yaml\nexcept ImportError:\n sys.exit(77)\njson.dump(list(yaml.safe_load_all(sys.stdin)), sys.stdout)";
    let mut python = Command::new("python3");
    python.args(["-c", read]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let parsed = python.spawn().and_then(|mut child| {
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes())?;
        child.wait_with_output()
    });
    let Some(parsed) = parsed.ok().filter(|output| output.status.code() != Some(77)) else {
        // Without PyYAML: it is there, in two parts.
        assert_eq!(text.matches("\n---\n").count(), 3, "{text}");
        assert!(text.contains("\nkind: \"Service\"\n") && text.contains("\nkind: \"Job\"\n"), "{text}");
        return;
    };
    assert!(parsed.status.success(), "{text}");
    let all: Value = serde_json::from_slice(&parsed.stdout).unwrap();
    let [service, store, store_service, job] = &all.as_array().unwrap()[..] else { panic!("{text}") };
    // The store in a pod of its own, which its service finds and this program starts.
    assert_eq!((store["kind"].as_str(), store_service["kind"].as_str()), (Some("Pod"), Some("Service")));
    assert_eq!(store["metadata"]["labels"], store_service["spec"]["selector"]);
    let served = &store["spec"]["containers"][0];
    assert_eq!(served["command"], serde_json::json!(["gpucomm", "store", "--listen", "0.0.0.0:29400"]));
    let port = &store_service["spec"]["ports"][0]["port"];
    let named = format!("server://{}:{port}", store_service["metadata"]["name"].as_str().unwrap());
    assert_eq!(named, "server://my-prog-store:29400");
    assert_eq!((service["apiVersion"].as_str(), service["kind"].as_str()), (Some("v1"), Some("Service")));
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(service["spec"]["selector"]["job-name"], "my-prog");
    assert_eq!((job["apiVersion"].as_str(), job["kind"].as_str()), (Some("batch/v1"), Some("Job")));
    let spec = &job["spec"];
    assert_eq!((spec["completions"].as_u64(), spec["parallelism"].as_u64()), (Some(2), Some(2)));
    assert_eq!((spec["completionMode"].as_str(), spec["backoffLimit"].as_u64()), (Some("Indexed"), Some(0)));
    let pod = &spec["template"]["spec"];
    assert_eq!((pod["subdomain"].as_str(), pod["restartPolicy"].as_str()), (Some("my-prog"), Some("Never")));
    let container = &pod["containers"][0];
    assert!(container["env"].as_array().unwrap().contains(&serde_json::json!({"name": "A", "value": "it's $$A"})));
    assert!(
        container["env"].as_array().unwrap().contains(&serde_json::json!({"name": "GPUCOMM_STORE", "value": named}))
    );
    // Both ends get the secret, or none does.
    assert!(container["env"].as_array().unwrap().contains(&served["env"][0]), "{text}");
    assert_eq!(served["env"][0]["valueFrom"]["secretKeyRef"]["optional"], true);
    let command: Vec<_> = container["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let program = command.iter().position(|word| *word == "./my prog.sh").unwrap();
    // As Kubernetes has it after it has looked for variables.
    let program_words: Vec<_> = command[program + 1..].iter().map(|word| word.replace("$$", "$")).collect();
    assert_eq!(program_words, WORDS);
    // What a pod runs is a command of this program: here in the place of pod 1.
    let own: Vec<_> =
        command[1..program].iter().map(|word| word.replace("$(NODE_RANK)", "1").replace("$(JOB_UID)", "a1")).collect();
    let script = "echo $RANK $WORLD_SIZE $MASTER_ADDR:$MASTER_PORT $TORCHELASTIC_RUN_ID";
    let own: Vec<&str> = own.iter().map(String::as_str).chain(["sh", "-c", script]).collect();
    let output = run(&own);
    assert_eq!(output.code, Some(0), "{}", output.err);
    let mut lines: Vec<_> = output.out.lines().collect();
    lines.sort_unstable();
    let want = [4, 5, 6, 7].map(|rank| format!("[{rank}] {rank} 8 my-prog-0.my-prog:29500 a1"));
    assert_eq!(lines, want);
}
