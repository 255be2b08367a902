//! A manifest for Kubernetes: an indexed Job, which every cluster has, and which takes no operator.

use std::path::Path;

use serde_json::{Value, json};

use super::{Job, gpus};

const PORT: u16 = 29500;

/// A pod for each node, in which `gpucomm run` starts the ranks of the node, so that these see each other's GPUs and memory; and the service
/// by which pod 0 has a name.
pub fn manifest(job: &Job) -> String {
    let name = name(job.command[0]);
    let mut words: Vec<String> = vec!["gpucomm".to_owned(), "run".to_owned()];
    words.extend(["-n".to_owned(), job.ranks.to_string(), "--nodes".to_owned(), job.nodes.to_string()]);
    words.extend(["--node-rank".to_owned(), "$(NODE_RANK)".to_owned()]);
    words.extend(["--master".to_owned(), format!("{name}-0.{name}:{PORT}")]);
    words.push("--env=TORCHELASTIC_RUN_ID=$(JOB_UID)".to_owned());
    if !job.prefix {
        words.push("--no-prefix".to_owned());
    }
    words.push("--".to_owned());
    // Kubernetes puts in variables, $(NAME), unless the dollar is there twice.
    let words: Vec<_> = words.into_iter().chain(job.command.iter().map(|word| word.replace('$', "$$"))).collect();
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let mut env = vec![
        field("NODE_RANK", "metadata.annotations['batch.kubernetes.io/job-completion-index']"),
        field("JOB_UID", "metadata.labels['batch.kubernetes.io/controller-uid']"),
    ];
    env.extend(job.env.iter().map(|(name, value)| json!({"name": name, "value": value.replace('$', "$$")})));
    let mut container = json!({
        "name": "ranks",
        "image": "IMAGE",
        "command": words,
        "env": env,
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
    });
    if gpus() {
        container["resources"] = json!({"limits": {"nvidia.com/gpu": job.local}});
    }
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        // Rank 0 is asked for before its pod is ready.
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"job-name": name}},
    });
    let job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": job.nodes,
            "parallelism": job.nodes,
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "subdomain": name,
                    "restartPolicy": "Never",
                    "containers": [container],
                    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory"}}],
                },
            },
        },
    });
    let mut text = String::from(
        "# An indexed Job of batch/v1, of Kubernetes 1.27 or newer, and a service without an address of its own. Each pod is a node, in which\n\
         # gpucomm run starts the ranks. Put in the image that has the program and gpucomm for IMAGE. When a pod fails, all end.\n",
    );
    yaml(&service, 0, &mut text);
    text.push_str("---\n");
    yaml(&job, 0, &mut text);
    text
}

/// The name of the program as one that Kubernetes takes.
fn name(program: &str) -> String {
    let file = Path::new(program).file_stem().and_then(|name| name.to_str()).unwrap_or_default();
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = file.chars().map(letter).take(40).collect();
    let name = name.trim_matches(|c: char| c == '-').trim_start_matches(|c: char| !c.is_ascii_lowercase());
    if name.is_empty() { "ranks".to_owned() } else { name.to_owned() }
}

/// `value`, a map or a list, as YAML; single values are JSON's, which are YAML's too.
fn yaml(value: &Value, depth: usize, text: &mut String) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                text.push_str(&format!("{indent}{key}:"));
                below(value, depth + 1, text);
            }
        }
        Value::Array(list) => {
            for value in list {
                // The first line of what is below stands behind the dash.
                let mut item = String::new();
                match value {
                    Value::Object(_) | Value::Array(_) => yaml(value, depth + 1, &mut item),
                    single => item = format!("{indent}  {single}\n"),
                }
                text.push_str(&format!("{indent}- {}", item.trim_start()));
            }
        }
        single => text.push_str(&format!("{indent}{single}\n")),
    }
}

fn below(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(_) | Value::Array(_) => {
            text.push('\n');
            yaml(value, depth, text);
        }
        single => text.push_str(&format!(" {single}\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn names() {
        for (program, want) in
            [("./target/Train_All.py", "train-all"), ("/usr/bin/7z", "z"), ("--", "ranks"), ("", "ranks")]
        {
            assert_eq!(name(program), want, "{program}");
        }
    }
}
