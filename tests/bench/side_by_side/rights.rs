//! A daemon with the rights that its command `rbac` grants, instead of the administrator's.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::contestant::DAEMON;

/// The account that `rbac` grants rights to.
const ACCOUNT: &str = "system:serviceaccount:kube-system:replicaset-controller";

/// Grants the stock rights. Returns a kubeconfig whose user has no others.
pub(crate) fn stock_kubeconfig(cluster: &Cluster) -> Result<PathBuf, String> {
    let manifests = run(Command::new(DAEMON).arg("rbac"), b"")?;
    let kubectl = || {
        let mut command = Command::new(cluster.binaries.join("kubectl"));
        command.arg("--kubeconfig").arg(&cluster.kubeconfig);
        command
    };
    run(kubectl().args(["apply", "-f", "-"]), &manifests)?;
    let text = run(
        kubectl().args(["config", "view", "--raw", "-o", "json"]),
        b"",
    )?;
    let mut config: Value = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    for user in config["users"].as_array_mut().into_iter().flatten() {
        user["user"]["as"] = json!(ACCOUNT);
    }
    let file = cluster.folder.join("stock.kubeconfig");
    let written = std::fs::write(&file, config.to_string());
    written.map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    Ok(file)
}

fn run(command: &mut Command, input: &[u8]) -> Result<Vec<u8>, String> {
    let pipes = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = pipes.spawn().and_then(|mut child| {
        // The child ends with an error of its own if it does not read.
        let mut stdin = child.stdin.take();
        let written = stdin.as_mut().map_or(Ok(()), |pipe| pipe.write_all(input));
        drop(stdin);
        let output = child.wait_with_output()?;
        written.map(|()| output)
    });
    match output {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(output) => {
            let message = String::from_utf8_lossy(&output.stderr);
            Err(format!("{command:?}: {message}"))
        }
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}
