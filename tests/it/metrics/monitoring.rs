//! Alerts, dashboard and manifests for a monitor: they name what exists, and a real Prometheus
//! scrapes a daemon and evaluates each expression.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use replicaset_controller::client::{Client, ClientConfig, ClientOptions, Request};
use replicaset_controller::controller::memory::rejections::Rejection;
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Value, json};

use super::{all_families, picture, shapes};
use crate::manifests::manifests;
use crate::serving::users;
use crate::support::{
    DaemonProcess, PlainPort, Setup, TestCluster, forbidden, name, new_replica_set, text_at,
};
use crate::tidy::root;

/// Series that Prometheus itself makes.
const OF_PROMETHEUS: [&str; 1] = ["up"];

/// Largest picture, in bytes.
const PICTURE_MAX: usize = 150_000;

/// Families that a daemon without such an event has no series of.
const RARE: [&str; 2] = [
    "replicaset_controller_other_writer_total",
    "replicaset_controller_dry_run_decisions_total",
];

/// What `pods_created_total` and its like, `syncs_total` and `events_total` report.
const OUTCOMES: [&str; 13] = [
    "success",
    "not_needed",
    "rejected",
    "unknown",
    "not_sent",
    "synced",
    "too_early",
    "backed_off",
    "failed",
    "panicked",
    "sent",
    "filtered",
    "dropped",
];

fn read(file: &str) -> String {
    let text = fs::read_to_string(root().join("config").join(file));
    text.unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn dashboard() -> Value {
    serde_json::from_str(&read("monitoring/dashboard.json")).expect("JSON")
}

/// A panel that shows something.
struct Panel {
    title: String,
    /// Its expressions with their legends.
    targets: Vec<(String, String)>,
}

fn panels(dashboard: &Value) -> Vec<Panel> {
    let panels = dashboard["panels"].as_array().expect("panels");
    let shown = panels.iter().filter(|panel| panel["type"] != "row");
    let target = |it: &Value| (text_at(it, "/expr"), text_at(it, "/legendFormat"));
    let panel = |panel: &Value| Panel {
        title: text_at(panel, "/title"),
        targets: panel["targets"]
            .as_array()
            .expect("targets")
            .iter()
            .map(target)
            .collect(),
    };
    shown.map(panel).collect()
}

/// The expressions of all alerts, by name.
fn alerts() -> Vec<(String, String)> {
    let rules = manifests("prometheus-rules.yaml").remove(0);
    let groups = rules["groups"].as_array().expect("groups").iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().expect("rules").clone());
    rules
        .map(|rule| (text_at(&rule, "/alert"), text_at(&rule, "/expr")))
        .collect()
}

/// The metrics that a PromQL expression names: the words before a selector.
fn metrics_in(expression: &str) -> BTreeSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = BTreeSet::new();
    for (at, _) in expression.match_indices('{') {
        let word = expression[..at].rsplit(|c| !is_word(c)).next();
        found.extend(word.filter(|word| !word.is_empty()).map(str::to_owned));
    }
    // Without a selector only our own names can be distinguished from functions and labels.
    let words = expression.split(|c| !is_word(c));
    let own = words.filter(|word| word.starts_with("replicaset_controller_"));
    found.extend(own.map(str::to_owned));
    found
}

/// Labels and values that a PromQL expression selects by.
fn values_in(expression: &str) -> Vec<(String, String)> {
    let selectors = expression.split('{').skip(1);
    let selectors = selectors.map(|it| it.split('}').next().unwrap_or_default());
    let pairs = selectors.flat_map(|it| it.split(','));
    let pairs = pairs.filter_map(|pair| pair.split_once('='));
    pairs
        .flat_map(|(label, values)| {
            let values = values.trim_matches(['~', '"']).split('|');
            values.map(|value| (label.trim().to_owned(), value.to_owned()))
        })
        .collect()
}

#[track_caller]
fn check_metrics(place: &str, expression: &str) {
    let known = shapes(&all_families());
    let named = metrics_in(expression);
    assert!(!named.is_empty(), "{place}: no metric in {expression}");
    for name in named {
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix));
        let is_known = known.contains_key(&name)
            || family.is_some_and(|it| known.contains_key(it))
            || OF_PROMETHEUS.contains(&&*name);
        assert!(is_known, "{place}: {name} is no metric");
    }
    for (label, value) in values_in(expression) {
        let is_known = match &*label {
            "outcome" => OUTCOMES.contains(&&*value),
            "kind" => Rejection::KINDS.contains(&&*value),
            _ => true,
        };
        assert!(is_known, "{place}: {label} is never {value}");
    }
}

#[test]
fn alerts_and_dashboard_name_metrics_that_exist() {
    for (alert, expression) in alerts() {
        check_metrics(&alert, &expression);
    }
    let dashboard = dashboard();
    for panel in panels(&dashboard) {
        for (expression, _) in &panel.targets {
            check_metrics(&panel.title, expression);
        }
    }
    for annotation in dashboard["annotations"]["list"].as_array().expect("a list") {
        check_metrics("an annotation", &text_at(annotation, "/expr"));
    }
    let variables = dashboard["templating"]["list"].as_array().expect("a list");
    for variable in variables.iter().filter(|it| it["type"] == "query") {
        let query = text_at(variable, "/query/query");
        let metric = query.trim_start_matches("label_values(").split(',').next();
        let metric = metric.unwrap_or_default();
        check_metrics(
            &query,
            &format!("{}{{}}", metric.split('{').next().unwrap_or_default()),
        );
    }
}

#[test]
fn each_panel_has_an_id_a_title_and_a_place_of_its_own() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().expect("panels");
    let ids: BTreeSet<i64> = panels.iter().filter_map(|it| it["id"].as_i64()).collect();
    assert_eq!(ids.len(), panels.len());
    let mut taken = BTreeSet::new();
    for panel in panels {
        let title = text_at(panel, "/title");
        assert!(!title.is_empty(), "{panel}");
        let place = |member: &str| panel["gridPos"][member].as_u64().expect("a number");
        for x in place("x")..place("x") + place("w") {
            assert!(x < 24, "{title} is too wide");
            for y in place("y")..place("y") + place("h") {
                assert!(taken.insert((x, y)), "{title} covers another panel");
            }
        }
    }
}

#[test]
fn the_pod_monitor_selects_the_daemons_of_the_deployment() {
    let monitor = manifests("monitoring/podmonitor.yaml").remove(0);
    let deployment = manifests("deployment.yaml").remove(0);
    let pod = &deployment["spec"]["template"];
    let labels = &pod["metadata"]["labels"];
    assert_eq!(monitor["spec"]["selector"]["matchLabels"], *labels);
    assert_eq!(
        monitor["metadata"]["namespace"],
        deployment["metadata"]["namespace"]
    );
    let job = text_at(&monitor, "/spec/jobLabel");
    assert_eq!(
        labels[&job], "replicaset-controller",
        "the job of the alerts"
    );
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    let ports = pod["spec"]["containers"][0]["ports"].as_array();
    let ports = ports.expect("a list of ports");
    assert!(ports.iter().any(|port| port["name"] == endpoint["port"]));

    let access = manifests("monitoring/clusterrole.yaml");
    let of_kind = |kind: &str| access.iter().find(|it| it["kind"] == kind).expect(kind);
    let name = |object: &Value| text_at(object, "/metadata/name");
    let (account, secret) = (of_kind("ServiceAccount"), of_kind("Secret"));
    let credentials = &endpoint["authorization"]["credentials"];
    assert_eq!(text_at(credentials, "/name"), name(secret));
    let of_account = "kubernetes.io/service-account.name";
    assert_eq!(
        secret["metadata"]["annotations"][of_account],
        account["metadata"]["name"]
    );
    let binding = of_kind("ClusterRoleBinding");
    assert_eq!(text_at(binding, "/subjects/0/name"), name(account));
    assert_eq!(
        text_at(binding, "/roleRef/name"),
        name(of_kind("ClusterRole"))
    );
}

/// A running Prometheus; dropping the value stops it.
struct Prometheus {
    process: Child,
    client: Client,
    _port: PlainPort,
}

impl Prometheus {
    /// Starts a Prometheus with this configuration, and its data in `folder`. `None` where there is
    /// none.
    fn start(configuration: &Value, folder: &Path) -> Option<Self> {
        let file = folder.join("prometheus.yml");
        fs::write(&file, configuration.to_string()).expect("the folder is writable");
        let port = PlainPort::free();
        let address = port.url().replace("http://", "");
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                folder.join("data").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .arg("--log.level=warn")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(process) = process else {
            let line = "no prometheus in PATH (Debian: prometheus): nothing is scraped with it\n";
            std::io::stderr()
                .write_all(line.as_bytes())
                .unwrap_or_default();
            return None;
        };
        let config = ClientConfig::plain(&port.url());
        let client = Client::new(&config, &ClientOptions::default(), &Stop::new());
        Some(Self {
            process,
            client,
            _port: port,
        })
    }

    /// The data of a response of its API; the error otherwise.
    fn ask(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, String> {
        let mut request = Request::get(path).accept("*/*").once();
        for (name, value) in query {
            request = request.query(name, *value);
        }
        let response = self.client.send(&request);
        let response = response.map_err(|error| error.to_string())?;
        let mut body: Value = serde_json::from_slice(&response.body).expect("JSON");
        Ok(body["data"].take())
    }

    /// The number of series of an expression; the error if there is no answer yet, or a wrong
    /// expression.
    fn n_series(&self, expression: &str) -> Result<usize, String> {
        let data = self.ask("/api/v1/query", &[("query", expression)])?;
        Ok(data["result"].as_array().map_or(0, Vec::len))
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.process.kill().unwrap_or_default();
        drop(self.process.wait());
    }
}

/// Prometheus' configuration: the job of `scrape-config.yaml` for machines, with this target and
/// file of the token, and the alerts, all of them each second.
fn configuration(target: &str, token_file: &Path) -> Value {
    let scrape = manifests("monitoring/scrape-config.yaml").remove(0);
    let mut job = scrape["scrape_configs"][0].clone();
    job["authorization"]["credentials_file"] = json!(token_file);
    job["static_configs"][0]["targets"] = json!([target]);
    json!({
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [root().join("config/prometheus-rules.yaml")],
        "scrape_configs": [job],
    })
}

/// A cluster, a daemon with leader election, and a Prometheus that scrapes it each second.
struct Rig {
    cluster: TestCluster,
    prometheus: Prometheus,
    _daemon: DaemonProcess,
    _port: PlainPort,
    _folder: tempfile::TempDir,
}

impl Rig {
    /// `None` where there is no Prometheus.
    fn start() -> Option<Self> {
        let cluster = TestCluster::with(Setup {
            has_nodes: true,
            ..Setup::default()
        });
        let users = users(&cluster);
        let folder = tempfile::tempdir().expect("a folder");
        let token_file = folder.path().join("token");
        fs::write(&token_file, users.allowed.1).expect("the folder is writable");
        let port = PlainPort::free();
        let target = port.url().replace("http://", "");
        let configuration = configuration(&target, &token_file);
        let prometheus = Prometheus::start(&configuration, folder.path())?;
        let secure_port = port.argument().replace("insecure", "secure");
        let daemon = cluster.start_process(&[
            "--bind-address=127.0.0.1",
            &secure_port,
            "--leader-elect",
            "--leader-elect-retry-period=200ms",
        ]);
        Some(Self {
            cluster,
            prometheus,
            _daemon: daemon,
            _port: port,
            _folder: folder,
        })
    }
}

/// An expression of the dashboard with values for its variables.
fn expanded(expression: &str, interval: &str) -> String {
    let values = [
        ("$__rate_interval", interval),
        ("$__range", interval),
        ("$job", "replicaset-controller"),
        ("$instance", ".+"),
    ];
    let expanded = values
        .iter()
        .fold(expression.to_owned(), |text, (variable, value)| {
            text.replace(variable, value)
        });
    assert!(!expanded.contains('$'), "{expanded}");
    expanded
}

#[test]
fn prometheus_scrapes_a_daemon_and_fills_the_dashboard() {
    if TestCluster::is_real() {
        return;
    }
    let Some(rig) = Rig::start() else { return };
    let (cluster, prometheus) = (&rig.cluster, &rig.prometheus);
    cluster.create_replica_set(&new_replica_set("a", 3));
    cluster.stable("a");
    cluster.scale("a", 1);
    cluster.stable("a");
    for panel in panels(&dashboard()) {
        for (expression, _) in &panel.targets {
            let expression = expanded(expression, "1m");
            let is_rare = RARE.iter().any(|family| expression.contains(family));
            cluster.eventually(&format!("{} shows {expression}", panel.title), || {
                let n = prometheus.n_series(&expression);
                n.is_ok_and(|n| n > 0 || is_rare)
            });
        }
    }
    cluster.eventually("each alert is evaluated, and none fires", || {
        let data = prometheus.ask("/api/v1/rules", &[]).unwrap_or_default();
        let rules = data["groups"][0]["rules"].as_array();
        rules.is_some_and(|rules| {
            rules.len() == alerts().len()
                && rules
                    .iter()
                    .all(|rule| rule["health"] == "ok" && rule["state"] == "inactive")
        })
    });
}

/// Works the daemon for a minute and a half: scale-ups, a scale-down, lost pods, a quota.
fn work(cluster: &TestCluster) {
    let pause = || cluster.waiting().pause(Duration::from_secs(5));
    for name in ["a", "b", "c"] {
        cluster.create_replica_set(&new_replica_set(name, 20));
        pause();
    }
    cluster.create_replica_set(&new_replica_set("d", 300));
    pause();
    let quota = cluster.fault("create", "pods", forbidden("exceeded quota: two"));
    cluster.scale("a", 40);
    pause();
    pause();
    quota.remove();
    for pod in cluster.live().iter().take(30) {
        cluster.kill_pod(&name(pod));
    }
    pause();
    cluster.scale("d", 50);
    pause();
    for replicas in [60, 20, 80, 10] {
        cluster.scale("b", replicas);
        pause();
        cluster.scale("c", replicas);
        pause();
    }
}

/// What the dashboard shows after [`work`].
fn recorded(rig: &Rig) -> String {
    let begin = SystemTime::now();
    work(&rig.cluster);
    let seconds = |at: SystemTime| {
        let since = at.duration_since(SystemTime::UNIX_EPOCH);
        since.expect("the clock is right").as_secs().to_string()
    };
    let (start, end) = (seconds(begin), seconds(SystemTime::now()));
    let dashboard = dashboard();
    let series_of = |(expression, legend): &(String, String)| {
        let expression = expanded(expression, "15s");
        let query = [
            ("query", &*expression),
            ("start", &*start),
            ("end", &*end),
            ("step", "1"),
        ];
        let data = rig.prometheus.ask("/api/v1/query_range", &query);
        let data = data.unwrap_or_else(|error| panic!("{expression}: {error}"));
        let result = data["result"].as_array().expect("a matrix").clone();
        let series = result.into_iter().map(|series| {
            let values = series["values"].as_array().expect("points").iter();
            let points = values.filter_map(|it| {
                let value: f64 = it[1].as_str()?.parse().ok()?;
                value.is_finite().then_some((it[0].as_f64()?, value))
            });
            let labels = series["metric"].as_object().expect("labels");
            let legend = labels.iter().fold(legend.clone(), |text, (label, value)| {
                text.replace(
                    &format!("{{{{{label}}}}}"),
                    value.as_str().unwrap_or_default(),
                )
            });
            (legend, points.collect())
        });
        series.collect::<Vec<picture::Series>>()
    };
    let panels = panels(&dashboard);
    let series: Vec<_> = panels
        .iter()
        .map(|panel| panel.targets.iter().flat_map(series_of).collect())
        .collect();
    picture::draw(&dashboard, &series)
}

#[test]
fn the_picture_of_the_dashboard_shows_each_panel() {
    let path = root().join("src/manual/dashboard.svg");
    // The figures differ in each run, so `UPDATE_EXPECT=1` leaves the picture alone.
    if std::env::var_os("UPDATE_EXPECT").is_some_and(|what| what == "picture") {
        let rig = Rig::start().expect("Prometheus is installed");
        fs::write(&path, recorded(&rig)).expect("a writable file");
    }
    let picture = fs::read_to_string(&path).expect("a picture");
    assert!(picture.len() <= PICTURE_MAX, "{} bytes", picture.len());
    let document = roxmltree::Document::parse(&picture).expect("well-formed XML");
    let texts: Vec<&str> = document
        .descendants()
        .filter_map(|element| element.text())
        .collect();
    for panel in panels(&dashboard()) {
        let title = &*panel.title;
        assert!(texts.contains(&title), "no {title:?}: run `make picture`");
    }
}
