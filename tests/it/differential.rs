//! Differential tests: the dev server against a real API server. Both get the same requests, some
//! hundred of them random with a fixed seed and some as scripted scenes, and must respond with the
//! same codes, reasons, messages and objects.
//!
//! [`side`] first normalises values that no two servers share. [`accepted`] lists all accepted
//! differences. Without a real control plane the requests go to two dev servers, which must agree
//! in everything. That checks the normalisation.
//!
//! `DIFFERENTIAL_SEED` and `DIFFERENTIAL_REQUESTS` in the environment override seed and number.

mod accepted;
mod compare;
mod generate;
mod objects;
mod scenes;
mod side;
mod step;

use std::io::Write;

use replicaset_controller::client::ClientConfig;
use replicaset_controller::devserver::{DevServer, DevServerOptions};
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Value, json};

use crate::support::{TestCluster, Waiting, admin_config, keep_from_other_daemons, text_at};
use accepted::{ACCEPTED, ACCEPTED_OF_OLDER};
use compare::{Rule, Tally};
use generate::Generator;
use scenes::Watched;
use side::{ReadResponse, Side};
use step::{MERGE_PATCH, Step};

/// The default seed.
const SEED: u64 = 20_240_501;

/// The default number of random requests.
const REQUESTS: u64 = 450;

/// Both servers, and the result so far.
struct Pair {
    real: Side,
    dev: Side,
    rules: Vec<&'static Rule>,
    tally: Tally,
    waiting: Waiting,
}

impl Pair {
    /// Sends a request to both servers and compares the responses.
    fn send(&mut self, step: &Step) {
        let as_json = |read: ReadResponse| json!({"HTTP": read.code, "body": read.body});
        let (real, dev) = (self.real.send(step), self.dev.send(step));
        self.tally.n_sent += 2;
        if real.code != dev.code {
            self.reset_object(step);
        }
        self.tally
            .compare(&self.rules, step, &as_json(real), &as_json(dev));
    }

    /// Deletes the object of a request with different responses on both servers, so that one
    /// difference does not cause others.
    fn reset_object(&mut self, step: &Step) {
        let Some(path) = step.object_named() else {
            return;
        };
        let remove_finalizers = Step::patch(
            MERGE_PATCH,
            &path,
            json!({"metadata": {"finalizers": null}}),
        );
        let delete = Step::delete(&path, json!({"gracePeriodSeconds": 0}));
        for side in [&mut self.real, &mut self.dev] {
            for step in [&delete, &remove_finalizers, &delete] {
                side.send(step);
            }
        }
        self.real.align_births(&path, &self.dev);
        self.dev.align_births(&path, &self.real);
    }

    fn watch(&mut self, watched: &Watched) {
        for step in &watched.before {
            self.send(step);
        }
        let events = |side: &mut Side| Value::from(side.watch(&watched.watch, watched.last));
        let (real, dev) = (events(&mut self.real), events(&mut self.dev));
        self.tally.n_sent += 2;
        self.tally.compare(&self.rules, &watched.watch, &real, &dev);
    }

    fn quota(&mut self, namespace: &str) {
        let (setup, rejected, steps) = scenes::quota(namespace);
        for step in &setup {
            self.send(step);
        }
        self.eventually("the quota is enforced", &rejected, 403);
        for step in &steps {
            self.send(step);
        }
    }

    /// Repeats a request until both servers respond with this code.
    fn eventually(&mut self, what: &str, step: &Step, code: u16) {
        for side in [&mut self.real, &mut self.dev] {
            let side = std::cell::RefCell::new(side);
            self.waiting
                .eventually_eq(what, &code, || side.borrow_mut().send(step).code);
        }
    }

    /// Creates a namespace that pods can be created in. The responses are not compared, as only a
    /// real control plane has controllers that create service accounts.
    fn create_namespace(&mut self, namespace: &str) {
        let new = json!({"metadata": {"name": namespace}});
        let accounts = objects::Subject::Accounts.collection(namespace);
        let pods = objects::Subject::Pods.collection(namespace);
        let account = json!({"metadata": {"name": "default"}});
        let probe = Step::post(pods, scenes::plain_pod("probe")).query("dryRun", "All");
        for side in [&mut self.real, &mut self.dev] {
            let created = side.send(&Step::post("/api/v1/namespaces", new.clone()));
            assert_eq!(created.code, 201, "{}", created.body);
            side.send(&Step::post(&accounts, account.clone()));
        }
        self.eventually("pods can be created", &probe, 201);
    }
}

#[test]
fn the_dev_server_responds_like_a_real_api_server() {
    let stop = Stop::new();
    let start = || DevServer::start(&DevServerOptions::default(), &stop).expect("a free port");
    let dev = start();
    let _alone = keep_from_other_daemons();
    let second = (!TestCluster::is_real()).then(start);
    let real = match &second {
        Some(second) => ClientConfig::plain(&second.url()),
        None => admin_config(),
    };
    let mut pair = Pair {
        real: Side::new(&real, &stop),
        dev: Side::new(&ClientConfig::plain(&dev.url()), &stop),
        rules: Vec::new(),
        tally: Tally::default(),
        waiting: Waiting::new(&stop),
    };
    if second.is_none() {
        let version = pair.real.send(&Step::get("/version")).body;
        let minor: u32 = text_at(&version, "/minor").parse().expect("a number");
        let of_older = ACCEPTED_OF_OLDER.iter().filter(|(until, _)| minor < *until);
        let of_older = of_older.map(|(_, rule)| rule);
        pair.rules = ACCEPTED.iter().chain(of_older).collect();
    }
    let (seed, n_drawn) = (
        from_environment("DIFFERENTIAL_SEED", SEED),
        from_environment("DIFFERENTIAL_REQUESTS", REQUESTS),
    );
    let namespace = format!("differential-{:08x}", fastrand::u32(..));
    pair.create_namespace(&namespace);
    let pods = objects::Subject::Pods.collection(&namespace);
    pair.send(&Step::get(pods).saves_version("start"));
    let mut generator = Generator::new(seed, &namespace);
    for _ in 0..n_drawn {
        pair.send(&generator.step());
    }
    let other = format!("{namespace}-quota");
    pair.create_namespace(&other);
    let scenes = [
        scenes::pages(&namespace),
        scenes::generated(&namespace),
        scenes::apply(&namespace),
        scenes::malformed(&namespace),
        scenes::namespaces(&namespace),
        scenes::fields(&namespace),
    ];
    for step in scenes.iter().flatten() {
        pair.send(step);
    }
    pair.quota(&other);
    for watched in scenes::watches(&namespace) {
        pair.watch(&watched);
    }
    let (tally, rules) = (pair.tally, pair.rules);
    let figures = format!("differential, seed {seed}: {}\n", tally.figures());
    // Not through the log, which the harness captures while the test passes.
    std::io::stderr()
        .write_all(figures.as_bytes())
        .unwrap_or_default();
    assert!(
        tally.failures.is_empty(),
        "{} responses differ (real is kube-apiserver, or a second dev server):\n{}",
        tally.failures.len(),
        tally.failures.join("\n")
    );
    let is_default = (seed, n_drawn) == (SEED, REQUESTS) && second.is_none();
    let unused = rules.iter().map(|rule| rule.name);
    let unused: Vec<&str> = unused
        .filter(|name| !tally.accepted.contains_key(name))
        .collect();
    assert!(
        !is_default || unused.is_empty(),
        "rules that accept no difference any more: {unused:?}"
    );
}

fn from_environment(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}
