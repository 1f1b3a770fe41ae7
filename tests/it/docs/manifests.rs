//! The manifests of Kubernetes that are shipped: their commands, their probes, and what the pods are allowed.

use serde_json::{Value, json};

use super::commands::accepted;
use super::pages::root;

/// Reads a manifest of this kind, and returns it with the description of its pod.
fn manifest(file: &str, version: &str, kind: &str, pod: &str) -> (Value, Value) {
    let text = std::fs::read_to_string(root().join("packaging/kubernetes").join(file)).expect("a manifest");
    let manifest: Value = serde_yaml::from_str(&text).unwrap_or_else(|cause| panic!("{file}: {cause}"));
    assert_eq!((&manifest["apiVersion"], &manifest["kind"]), (&json!(version), &json!(kind)), "{file}");
    let pod = manifest.pointer(pod).unwrap_or_else(|| panic!("{file}: no {pod}")).clone();
    check(file, &pod);
    (manifest, pod)
}

/// Fails unless the command of a pod can be read, and the pod may do no more than it needs.
fn check(file: &str, pod: &Value) {
    let container = &pod["containers"][0];
    assert!(container["image"].as_str().expect("an image").ends_with(env!("CARGO_PKG_VERSION")), "{file}");
    assert_eq!(container["command"], Value::Null, "{file}: the program gets the signals itself");
    let args = container["args"].as_array().expect("args").iter().map(|arg| arg.as_str().expect("a string").to_owned());
    accepted(file, &args.collect::<Vec<_>>());

    let volumes = pod["volumes"].as_array().expect("volumes");
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let names = |of: &[Value]| of.iter().map(|one| one["name"].clone()).collect::<Vec<_>>();
    assert_eq!(names(mounts), names(volumes), "{file}");
    assert!(mounts.iter().all(|mount| mount["readOnly"] == true), "{file}");

    assert_eq!(pod["securityContext"]["runAsNonRoot"], true, "{file}");
    assert_ne!(pod["securityContext"]["runAsUser"], 0, "{file}");
    assert_eq!(pod["automountServiceAccountToken"], false, "{file}");
    let allowed = &container["securityContext"];
    assert_eq!(
        (&allowed["readOnlyRootFilesystem"], &allowed["allowPrivilegeEscalation"]),
        (&json!(true), &json!(false)),
        "{file}"
    );
    assert_eq!(allowed["capabilities"]["drop"], json!(["ALL"]), "{file}");
}

#[test]
fn the_job_of_each_night_runs_once() {
    let (job, pod) = manifest("cronjob.yaml", "batch/v1", "CronJob", "/spec/jobTemplate/spec/template/spec");
    let spec = &job["spec"];
    assert_eq!(spec["schedule"].as_str().expect("a schedule").split(' ').count(), 5);
    assert_eq!((&spec["timeZone"], &spec["concurrencyPolicy"]), (&json!("Etc/UTC"), &json!("Forbid")));
    assert_eq!((&spec["jobTemplate"]["spec"]["backoffLimit"], &pod["restartPolicy"]), (&json!(0), &json!("Never")));
}

#[test]
fn the_pod_that_stays_is_asked_whether_it_is_alive_and_ready() {
    let (deployment, pod) = manifest("deployment.yaml", "apps/v1", "Deployment", "/spec/template/spec");
    let spec = &deployment["spec"];
    assert_eq!(spec["selector"]["matchLabels"], spec["template"]["metadata"]["labels"]);
    assert_eq!((&spec["replicas"], &spec["strategy"]["type"]), (&json!(1), &json!("Recreate")));
    let container = &pod["containers"][0];
    let port = &container["ports"][0];
    let listens = container["args"].as_array().expect("args").iter().filter_map(Value::as_str);
    let listens = listens.skip_while(|arg| *arg != "--listen").nth(1).expect("an address");
    assert_eq!(listens, format!("0.0.0.0:{}", port["containerPort"]));
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": port["name"]}));
    }
}
