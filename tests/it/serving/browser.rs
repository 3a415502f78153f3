//! The page `/` in a real browser, a Chromium without a screen, if one is installed.

use std::ffi::OsStr;
use std::fs;
use std::process::{Child, Command, Stdio};

use replicaset_controller::stdx::stop::Stop;

use crate::support::{DaemonProcess, PlainPort, Reply, ScriptedServer, Waiting};
use crate::tidy::root;

/// Names of the browser, as packages install it.
const BROWSERS: [&str; 3] = ["chromium-headless-shell", "chromium", "google-chrome"];

/// A quota that is too small, and pods that crash.
const OBJECTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: ci}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ResourceQuota
metadata: {name: two, namespace: ci}
spec: {hard: {pods: '2'}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: jobs, namespace: ci}
spec:
  replicas: 3
  selector: {matchLabels: {app: jobs}}
  template:
    metadata: {labels: {app: jobs}}
    spec: {containers: [{name: jobs, image: example.invalid/jobs:1}]}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-6d4cf56db6, namespace: shop}
spec:
  replicas: 5
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {dev.replicaset-controller/fate: crash-loop}}
    spec: {containers: [{name: web, image: example.invalid/web:1}]}
";

/// Starts the browser; `None` if none is installed. A container gives it no sandbox of its own.
fn browser(arguments: &[&str]) -> Option<Command> {
    let is_installed = |name: &&str| {
        let probe = Command::new(name).arg("--version").output();
        probe.is_ok_and(|output| output.status.success())
    };
    let name = BROWSERS.into_iter().find(is_installed)?;
    let mut command = Command::new(name);
    command.args(["--headless", "--no-sandbox", "--disable-gpu"]);
    command.args(["--hide-scrollbars", "--no-proxy-server"]);
    command.args(arguments).stderr(Stdio::null());
    Some(command)
}

/// A daemon with the page of [`OBJECTS`], and its dev server.
fn daemon(port: &PlainPort) -> [DaemonProcess; 2] {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("objects.yaml"), OBJECTS).expect("a writable folder");
    let server = DaemonProcess::start(&[
        "dev",
        "--port=0",
        "--no-controller",
        "--pod-ready-after=0s",
        &format!("--data={}", at("objects.yaml")),
        &format!("--write-kubeconfig={}", at("kubeconfig")),
    ]);
    let waiting = Waiting::new(&Stop::new());
    waiting.eventually("the server answers", || {
        fs::exists(at("kubeconfig")).is_ok_and(|exists| exists)
    });
    let kubeconfig = format!("--kubeconfig={}", at("kubeconfig"));
    let daemon = DaemonProcess::start(&["run", &kubeconfig, &port.argument()]);
    waiting.eventually("both are on the page", || {
        let (_, page) = port.get_as("/", "text/html");
        page.contains("exceeded quota: two") && page.contains("0 of 5 available")
    });
    [server, daemon]
}

/// `UPDATE_EXPECT=picture` takes the manual's picture, which differs in each run.
#[test]
fn a_browser_shows_the_page() {
    let port = PlainPort::free();
    let url = port.url();
    let Some(mut dump) = browser(&["--dump-dom", &url]) else {
        return;
    };
    let _processes = daemon(&port);
    let shown = dump.output().expect("the browser runs");
    let dom = String::from_utf8_lossy(&shown.stdout);
    for part in [
        "<h2>2 of 2 ReplicaSets have not converged</h2>",
        // The browser adds it to a table that it understands.
        "<table class=\"objects\">\n<tbody><tr><th>NAMESPACE</th>",
        "<a href=\"/debug/replicasets/ci/jobs\">rs/jobs</a>",
        "exceeded quota: two",
        "<a href=\"/debug/replicasets/shop/web-6d4cf56db6\">",
    ] {
        assert!(dom.contains(part), "no {part} in {dom}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.png");
    let picture = format!("--screenshot={}", file.display());
    let taken = browser(&[&picture, "--window-size=1180,430", &url]).map(|mut it| it.output());
    assert!(taken.is_some_and(|it| it.is_ok_and(|it| it.status.success())));
    let manual = root().join("src/manual/page.png");
    if std::env::var_os("UPDATE_EXPECT").is_some_and(|what| what == OsStr::new("picture")) {
        fs::copy(&file, &manual).expect("a writable file");
    }
    let size = |path| {
        let bytes = fs::read(path).expect("a picture");
        assert!(bytes.len() > 20_000, "{} bytes: a blank page", bytes.len());
        bytes[16..24].to_vec()
    };
    assert_eq!(size(&file), size(&manual), "run `make picture`");
}

/// A browser that ends with the test.
struct Opened(Child);

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(|_| ()).unwrap_or_default();
    }
}

#[test]
fn a_browser_loads_the_page_again_and_nothing_else() {
    let port = PlainPort::free();
    if browser(&[]).is_none() {
        return;
    }
    let processes = daemon(&port);
    let (_, page) = port.get_as("/", "text/html");
    drop(processes);
    let server = ScriptedServer::start(move |_| {
        Some(Reply::typed("200 OK", "", "text/html", page.as_bytes()))
    });
    let opened = browser(&["--remote-debugging-port=0", &server.url()]).map(|mut it| it.spawn());
    let _opened = Opened(opened.expect("a browser").expect("the browser runs"));
    let paths = || {
        server
            .asked()
            .into_iter()
            .map(|it| it.path)
            .collect::<Vec<_>>()
    };
    let waiting = Waiting::new(&Stop::new());
    waiting.eventually("the page is loaded three times", || {
        paths().iter().filter(|path| *path == "/").count() >= 3
    });
    let others: Vec<_> = paths().into_iter().filter(|path| path != "/").collect();
    assert!(
        others.iter().all(|path| path == "/favicon.ico"),
        "{others:?}"
    );
}
