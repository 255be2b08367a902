//! A manifest for Kubernetes: an indexed Job, which every cluster has, and which takes no operator.

use std::path::Path;

use serde_json::{Value, json};

use super::{Job, gpus};

const PORT: u16 = 29500;

/// Where the store listens.
const STORE_PORT: u16 = 29400;

/// A pod for each node, in which `gpucomm run` starts the ranks of the node, so that these see each
/// other's GPUs and memory; the service by which pod 0 has a name; and a pod for the store, which
/// outlives every rank, with a service of its own.
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
    // Both ends have the secret, if the user has made one.
    let store = format!("{name}-store");
    let secret = json!({
        "name": "GPUCOMM_STORE_SECRET",
        "valueFrom": {"secretKeyRef": {"name": store, "key": "secret", "optional": true}},
    });
    let mut env = vec![
        field("NODE_RANK", "metadata.annotations['batch.kubernetes.io/job-completion-index']"),
        field("JOB_UID", "metadata.labels['batch.kubernetes.io/controller-uid']"),
    ];
    let is_named = job.env.iter().any(|(name, _)| *name == "GPUCOMM_STORE");
    if !is_named {
        env.push(json!({"name": "GPUCOMM_STORE", "value": format!("server://{store}:{STORE_PORT}")}));
        env.push(secret.clone());
    }
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
    let mut parts = vec![service];
    let mut text = String::from(
        "# An indexed Job of batch/v1, of Kubernetes 1.27 or newer, and a service without an address of its own. Each pod is a node, in which\n\
         # gpucomm run starts the ranks. Put in the image that has the program and gpucomm for IMAGE. When a pod fails, all end.\n",
    );
    if !is_named {
        text.push_str(&format!(
            "# The ranks meet at the store in a pod of its own, which stays until it is deleted. Only ranks with its secret are admitted if there is one,\n\
             # for which gpucomm and the program need the feature `secret`:\n\
             # kubectl create secret generic {store} --from-literal=secret=\"$(head -c 16 /dev/urandom | base64)\"\n",
        ));
        parts.extend(of_store(&store, &secret));
    }
    parts.push(job);
    for (at, part) in parts.iter().enumerate() {
        if at > 0 {
            text.push_str("---\n");
        }
        yaml(part, 0, &mut text);
    }
    text
}

/// The pod of the store, and the service by which ranks find it.
fn of_store(store: &str, secret: &Value) -> [Value; 2] {
    let pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": store, "labels": {"gpucomm-store": store}},
        "spec": {
            "restartPolicy": "Always",
            "containers": [{
                "name": "store",
                "image": "IMAGE",
                "command": ["gpucomm", "store", "--listen", format!("0.0.0.0:{STORE_PORT}")],
                "env": [secret],
            }],
        },
    });
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": store},
        "spec": {"selector": {"gpucomm-store": store}, "ports": [{"port": STORE_PORT, "targetPort": STORE_PORT}]},
    });
    [pod, service]
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
