//! All sources, as people give them.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use super::{Cli, Command, ParseOutcome, Parsed, Sources, parse};
use crate::api::workload_kind::{REPLICA_SET, REPLICATION_CONTROLLER};
use crate::cli::flags::ControllerName;
use crate::stdx::build;

/// A file that can be read.
struct File(&'static str, String);

#[derive(Default)]
struct Given<'a> {
    arguments: &'a [&'a str],
    environment: &'a [(&'a str, &'a str)],
    file: Option<File>,
}

impl Given<'_> {
    fn parse(&self) -> ParseOutcome {
        let program = std::iter::once("replicaset-controller");
        let words = program.chain(self.arguments.iter().copied());
        let variables = self.environment.iter();
        let read_file = |path: &Path| match &self.file {
            Some(File(name, text)) if path == Path::new(name) => Ok(text.clone()),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        };
        parse(&Sources {
            arguments: words.map(OsString::from).collect(),
            environment: variables
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            read_file: &read_file,
        })
    }

    #[track_caller]
    fn parsed(&self) -> Parsed {
        match self.parse() {
            ParseOutcome::Run(parsed) => *parsed,
            other => panic!("expected flags, got {other:?}"),
        }
    }

    #[track_caller]
    fn usage(&self) -> String {
        match self.parse() {
            ParseOutcome::Usage(text) => text,
            other => panic!("expected mistakes, got {other:?}"),
        }
    }

    #[track_caller]
    fn shown(&self) -> String {
        match self.parse() {
            ParseOutcome::Show(text) => text,
            other => panic!("expected a text, got {other:?}"),
        }
    }
}

fn of<'a>(arguments: &'a [&'a str]) -> Given<'a> {
    Given {
        arguments,
        ..Given::default()
    }
}

fn file(fields: &str) -> File {
    let head = "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\n\
                kind: KubeControllerManagerConfiguration\n";
    File("f.yaml", format!("{head}{fields}"))
}

#[test]
fn the_table_of_flags_is_sound() {
    <Cli as clap::CommandFactory>::command().debug_assert();
}

#[test]
fn run_is_the_default() {
    let parsed = of(&["--kube-api-qps=0", "--namespace", "shop", "-vv"]).parsed();
    assert!(parsed.cli.command.is_none());
    let args = parsed.run_args();
    assert!(args.client.kube_api_qps.abs() < f32::EPSILON);
    assert_eq!(args.api.namespace.as_deref(), Some("shop"));
    assert_eq!(args.log.verbosity(), 8);
    let parsed = of(&["run", "--kube-api-qps", "-1", "-v=2"]).parsed();
    assert!(matches!(parsed.cli.command, Some(Command::Run(_))));
}

#[test]
fn the_plugin_of_kubectl_is_explain() {
    let plugin = |arguments: &[&str]| {
        let name = ["/usr/local/bin/kubectl-rs_explain"];
        parse(&Sources {
            arguments: name.iter().chain(arguments).map(Into::into).collect(),
            environment: Vec::new(),
            read_file: &|_| Err(io::ErrorKind::NotFound.into()),
        })
    };
    let ParseOutcome::Run(parsed) = plugin(&["-n", "shop", "rs/web", "-o", "json"]) else {
        panic!("valid flags");
    };
    let Some(Command::Explain(args)) = parsed.cli.command else {
        panic!("not explain: {:?}", parsed.cli.command);
    };
    assert_eq!(args.namespace.as_deref(), Some("shop"));
    assert_eq!(args.object, ["rs/web"]);
    let ParseOutcome::Show(help) = plugin(&["--help"]) else {
        panic!("no help");
    };
    assert!(help.contains("Usage: kubectl rs-explain ["), "{help}");
    let ParseOutcome::Usage(mistakes) = plugin(&["--dry-run"]) else {
        panic!("no mistake");
    };
    let advice = "see kubectl rs-explain --help";
    assert!(mistakes.contains(advice), "{mistakes}");
}

#[test]
fn every_form_of_v_is_klogs() {
    for (arguments, expected) in [
        (&["-v"][..], 4),
        (&["-vv"], 8),
        (&["-v", "-v"], 8),
        (&["-v=2"], 2),
        (&["-v2"], 2),
        (&["-v", "2"], 2),
        (&["--v", "2"], 2),
        (&["--v=2"], 2),
        (&["--v", "--leader-elect=false"], 4),
    ] {
        let parsed = of(arguments).parsed();
        assert_eq!(parsed.run_args().log.verbosity(), expected, "{arguments:?}");
    }
    assert!(
        of(&["-v=loud"]).usage().contains("--v"),
        "{}",
        of(&["-v=loud"]).usage()
    );
}

#[test]
fn bools_are_gos_and_the_last_of_a_flag_wins() {
    for (arguments, expected) in [
        (&["--leader-elect"][..], true),
        (&["--leader-elect=T"], true),
        (&["--leader-elect=0"], false),
        (&["--leader_elect=false"], false),
        (&["--leader-elect=false", "--leader-elect"], true),
    ] {
        let parsed = of(arguments).parsed();
        let election = &parsed.run_args().leader_election;
        assert_eq!(election.leader_elect, expected, "{arguments:?}");
    }
    let usage = of(&["--leader-elect=maybe"]).usage();
    assert!(usage.contains("expected true or false"), "{usage}");
}

#[test]
fn bools_are_shown_as_true_or_false() {
    let arguments = ["--leader-elect=0", "--dry-run=T", "--profiling=F"];
    let parsed = of(&arguments).parsed();
    let shown = &parsed.run_args().in_effect;
    let values = ["leader-elect", "dry-run", "profiling"].map(|flag| &*shown[flag]);
    assert_eq!(values, ["false", "true", "false"]);
    let gates = "--feature-gates=PodDeletionCost=0";
    let config = of(&[&["config", gates][..], &arguments].concat()).shown();
    for line in [
        "leaderElect: false ",
        "dryRun: true ",
        "{PodDeletionCost: false}",
    ] {
        assert!(config.contains(line), "no {line} in\n{config}");
    }
}

/// A cluster has a Deployment controller already; `dev` has none.
#[test]
fn deployments_are_controlled_only_if_named_except_in_dev() {
    for (list, named, in_dev) in [
        ("*", false, true),
        ("*,-deployment-controller", false, false),
        ("replicaset-controller", false, false),
        ("replicaset-controller,deployment-controller", true, true),
        ("deployment", true, true),
    ] {
        let parsed = of(&[&*format!("--controllers={list}")]).parsed();
        let args = &parsed.run_args().controller;
        let runs = (
            args.runs_deployments(),
            args.is_enabled(ControllerName::Deployments),
        );
        assert_eq!(runs, (named, in_dev), "{list}");
    }
    let parsed = of(&["--controllers=deployment-controller", "--dry-run"]).parsed();
    assert!(parsed.run_args().mode.dry_run);
}

#[test]
fn controllers_are_chosen_as_upstream_does() {
    let (rs, rc) = (&REPLICA_SET, &REPLICATION_CONTROLLER);
    for (arguments, expected) in [
        (&[][..], vec![rs]),
        (&["--controllers=*"], vec![rs, rc]),
        (&["--controllers=*,-replicationcontroller"], vec![rs]),
        (&["--controllers", "-replicaset-controller,*"], vec![rc]),
        (&["--controllers=replicaset,-replicaset"], vec![rs]),
        (
            &[
                "--controllers=replicaset",
                "--controllers=replicationcontroller",
            ],
            vec![rs, rc],
        ),
    ] {
        let parsed = of(arguments).parsed();
        assert_eq!(
            parsed.run_args().controller.enabled(),
            expected,
            "{arguments:?}"
        );
    }
    let usage = of(&["--controllers=-replicaset"]).usage();
    assert!(
        usage.contains("--controllers: leaves no controller to run"),
        "{usage}"
    );
    let usage = of(&["--controllers=job"]).usage();
    assert!(
        usage.contains("replicationcontroller-controller"),
        "{usage}"
    );
}

#[test]
fn all_mistakes_are_reported_at_once_and_name_their_flags() {
    let text = of(&[
        "--kube-api-qps=fast",
        "--no-such-flag",
        "value",
        "--concurrent-replicaset-syncs",
        "0",
        "--min-resync-period=never",
        "--namespace=UPPER",
    ])
    .usage();
    for flag in [
        "--kube-api-qps",
        "--no-such-flag",
        "--concurrent-replicaset-syncs",
        "--min-resync-period",
        "--namespace",
    ] {
        assert!(text.contains(flag), "{flag} is missing in:\n{text}");
    }
    assert_eq!(text.lines().count(), 6, "{text}");
}

#[test]
fn a_value_that_is_no_text_is_named() {
    let no_text = |before: &str| {
        let mut bytes = OsString::from(before).into_vec();
        bytes.push(0xff);
        OsString::from_vec(bytes)
    };
    let variable = ("REPLICASET_CONTROLLER_NAMESPACE".into(), no_text("a"));
    let outcome = parse(&Sources {
        arguments: vec![
            "replicaset-controller".into(),
            no_text("--kubeconfig="),
            no_text("--context="),
        ],
        environment: vec![variable, ("OTHER".into(), no_text(""))],
        read_file: &|_| Err(io::Error::from(io::ErrorKind::NotFound)),
    });
    let ParseOutcome::Usage(mistakes) = outcome else {
        panic!("expected mistakes, got {outcome:?}");
    };
    let expected = "--context: the value is not UTF-8\n\
                    $REPLICASET_CONTROLLER_NAMESPACE: --namespace: the value is not UTF-8\n\
                    see replicaset-controller --help\n";
    assert_eq!(mistakes, expected);
}

#[test]
fn mistakes_of_all_sources_are_reported_together() {
    let given = Given {
        arguments: &["--config=f.yaml", "--secure-prot=1", "--kube-api-burst=-1"],
        environment: &[
            ("REPLICASET_CONTROLLER_CONCURRENT_RC_SYNCS", "many"),
            ("REPLICASET_CONTROLLER_NAMESPCE", "a"),
        ],
        file: Some(file(
            "generic:\n  minResyncPeriod: soon\n  clientConnection: {qps: 1, bursts: 2}\n",
        )),
    };
    let usage = given.usage();
    for words in [
        &["--secure-prot", "--secure-port"][..],
        &["--kube-api-burst", "-1"],
        &[
            "$REPLICASET_CONTROLLER_CONCURRENT_RC_SYNCS: ",
            "many",
            "--concurrent-rc-syncs",
        ],
        &[
            "$REPLICASET_CONTROLLER_NAMESPCE: ",
            "did you mean REPLICASET_CONTROLLER_NAMESPACE?",
        ],
        &[
            "f.yaml:4: generic.minResyncPeriod (--min-resync-period): ",
            "soon",
        ],
        &[
            "f.yaml:5: ",
            "bursts",
            "did you mean generic.clientConnection.burst?",
        ],
    ] {
        let is_described = |line: &str| words.iter().all(|word| line.contains(word));
        assert!(usage.lines().any(is_described), "no {words:?} in\n{usage}");
    }
    assert_eq!(usage.lines().count(), 7, "{usage}");
    let missing = of(&["--config=missing.yaml"]).usage();
    assert!(
        missing.contains("--config: cannot read missing.yaml"),
        "{missing}"
    );
}

#[test]
fn l_15_conflicting_flags_are_reported_with_their_sources() {
    let given = Given {
        arguments: &[
            "--config=f.yaml",
            "--tls-cert-file=c",
            "--enable-leader-migration",
        ],
        environment: &[("REPLICASET_CONTROLLER_KUBE_API_BURST", "0")],
        file: Some(file(
            "generic:\n  leaderElection: {leaseDuration: 5s, retryPeriod: 9s}\n\
             serving:\n  insecurePort: 10257\n",
        )),
    };
    let usage = given.usage();
    for start in [
        "$REPLICASET_CONTROLLER_KUBE_API_BURST: --kube-api-burst: must be at least 1",
        "f.yaml:4: generic.leaderElection.leaseDuration (--leader-elect-lease-duration): must be \
         longer than --leader-elect-renew",
        "--leader-elect-renew-deadline: must be longer than 1.2 times",
        "--enable-leader-migration: leader migration is not supported",
        "--tls-cert-file: needs --tls-private-key-file",
        "f.yaml:6: serving.insecurePort (--insecure-port): must differ from --secure-port",
    ] {
        assert!(
            usage.lines().any(|line| line.starts_with(start)),
            "no {start} in\n{usage}"
        );
    }
    assert_eq!(usage.lines().count(), 7, "{usage}");
    let of_rbac = Given {
        arguments: &[&["rbac"], given.arguments].concat(),
        ..given
    };
    assert_eq!(of_rbac.usage(), usage.replace(" --help", " rbac --help"));
    let without = of(&["--leader-elect=false", "--leader-elect-lease-duration=1s"]);
    without.parsed();
}

/// The clocks of the daemon panic at a time that they cannot count to.
#[test]
fn a_duration_has_a_maximum_wherever_it_is_given() {
    let long = "9223372036854775807s";
    let yaml = format!("generic:\n  minResyncPeriod: {long}\n");
    let flag = format!("--min-resync-period={long}");
    let variable = [("REPLICASET_CONTROLLER_MIN_RESYNC_PERIOD", long)];
    for (arguments, environment, file) in [
        (&[flag.as_str()][..], &[][..], None),
        (&[], &variable, None),
        (&["--config=f.yaml"], &[], Some(file(&yaml))),
    ] {
        let given = Given {
            arguments,
            environment,
            file,
        };
        let usage = given.usage();
        assert!(usage.contains("at most 876600h, 100 years"), "{usage}");
    }
}

#[test]
fn l_15_durations_of_a_lease_have_a_minimum() {
    for (durations, flag, expected) in [
        (
            ["999ms", "500ms", "100ms"],
            "lease-duration",
            "must be at least 1s",
        ),
        (
            ["10s", "10s", "2s"],
            "lease-duration",
            "must be longer than --leader-elect-renew",
        ),
        (
            ["15s", "2400ms", "2s"],
            "renew-deadline",
            "must be longer than 1.2 times",
        ),
        (
            ["15s", "10s", "0s"],
            "retry-period",
            "must be longer than 0",
        ),
    ] {
        let [lease, deadline, period] = durations;
        let usage = of(&[
            &format!("--leader-elect-lease-duration={lease}"),
            &format!("--leader-elect-renew-deadline={deadline}"),
            &format!("--leader-elect-retry-period={period}"),
        ])
        .usage();
        let expected = format!("--leader-elect-{flag}: {expected}");
        assert!(usage.starts_with(&expected), "{durations:?}: {usage}");
        assert_eq!(usage.lines().count(), 2, "{durations:?}: {usage}");
    }
}

#[test]
fn flag_beats_environment_beats_file_beats_default() {
    let config = |arguments: &[&str]| {
        let given = Given {
            arguments: &[&["config", "--config=f.yaml"], arguments].concat(),
            environment: &[
                ("REPLICASET_CONTROLLER_KUBE_API_QPS", "2"),
                ("REPLICASET_CONTROLLER_CONTROLLERS", "replicationcontroller"),
            ],
            file: Some(file(
                "generic:\n  clientConnection: {qps: 1, burst: 1}\n  controllers: ['*']\n\
                 logging: {verbosity: 4}\n",
            )),
        };
        given.shown()
    };
    let text = config(&[
        "--kube-api-qps=3",
        "--leader-elect",
        "--namespace",
        "shop",
        "-v",
    ]);
    for line in [
        "    qps: 3  # flag",
        "    burst: 1  # f.yaml:4",
        "  controllers: [replicationcontroller]  # $REPLICASET_CONTROLLER_CONTROLLERS",
        "  minResyncPeriod: 12h  # default",
        "    leaderElect: true  # flag",
        "    resourceNamespace: \"shop\"  # default",
        "  verbosity: 4  # flag",
        "    kubeconfig: \"\"  # default",
    ] {
        assert!(
            text.lines().any(|of_text| of_text == line),
            "no {line:?} in\n{text}"
        );
    }
    let text = config(&[]);
    assert!(
        text.contains("    qps: 2  # $REPLICASET_CONTROLLER_KUBE_API_QPS\n"),
        "{text}"
    );
    assert!(text.contains("  verbosity: 4  # f.yaml:6\n"), "{text}");
}

#[test]
fn what_config_prints_is_a_file_that_means_the_same() {
    let arguments = [
        "config",
        "--kubeconfig=/a b/c",
        "--controllers=*,-replicaset",
        "--feature-gates=PodDeletionCost=False,CoordinatedLeaderElection=false",
        "--bind-address=::1",
        "--leader-elect-resource-name=1e3",
        "--leader-elect-lease-duration=1m0s",
        "--authorization-always-allow-paths=/healthz,/metrics*",
        "-vv",
    ];
    let printed = of(&arguments).shown();
    let given = Given {
        arguments: &["config", "--config=p.yaml"],
        file: Some(File("p.yaml", printed.clone())),
        ..Given::default()
    };
    let again = given.shown();
    let values = |text: &str| -> Vec<String> {
        let lines = text.lines();
        let values = lines.map(|line| line.split("  # ").next().unwrap_or_default().to_owned());
        values.collect()
    };
    assert_eq!(values(&printed), values(&again));
}

#[test]
fn every_flag_of_run_has_a_field_and_every_field_a_flag() {
    let command = <Cli as clap::CommandFactory>::command();
    let elsewhere = ["help", "version", "config", "kcm-compat"];
    let flags = command.get_arguments().filter_map(clap::Arg::get_long);
    let mut flags: Vec<&str> = flags.filter(|flag| !elsewhere.contains(flag)).collect();
    let fields = crate::cli::sources::FIELDS.iter();
    let mut fields: Vec<&str> = fields.map(|field| field.flag).collect();
    flags.sort_unstable();
    fields.sort_unstable();
    assert_eq!(flags, fields);
}

#[track_caller]
fn check_mistake(arguments: &[&str], expected: &str) {
    let usage = of(arguments).usage();
    let command = arguments[0];
    let cli = <Cli as clap::CommandFactory>::command();
    let hint = match cli.find_subcommand(command) {
        Some(_) => format!("see replicaset-controller {command} --help\n"),
        None => "see replicaset-controller --help\n".to_owned(),
    };
    assert_eq!(usage, format!("{expected}\n{hint}"), "{arguments:?}");
}

#[test]
fn a_mistake_names_the_flag_and_the_remedy() {
    check_mistake(
        &["--leader-elect", "false"],
        "--leader-elect false: write --leader-elect=false",
    );
    check_mistake(
        &["explain", "web", "--server", "https://10.0.0.1:10257"],
        "--server https://10.0.0.1:10257: write --server=https://10.0.0.1:10257",
    );
    check_mistake(
        &["--v=abc"],
        "--v: invalid value 'abc': expected a number from 0 to 255",
    );
    check_mistake(
        &["explain", "-n", "Shop", "web"],
        "--namespace: invalid value 'Shop': expected lower-case letters, digits and '-', at most \
         63 characters",
    );
    check_mistake(
        &["--logging-format=xml"],
        "--logging-format: invalid value 'xml': expected one of text, json",
    );
    for master in ["http://u:secret@h", "u:secret@h:1"] {
        check_mistake(
            &[&format!("--master={master}")],
            "--master: user and password do not belong in the server's URL",
        );
    }
    check_mistake(
        &["--kubeconfig"],
        "--kubeconfig: a value is missing, expected --kubeconfig <FILE>",
    );
    check_mistake(
        &["completions"],
        "the following required arguments were not provided: <SHELL>",
    );
    check_mistake(
        &["--dry-run", "rbac"],
        "'rbac': put the command before its flags: replicaset-controller rbac ...",
    );
    check_mistake(&["--dry-run", "now"], "unexpected argument 'now'");
    check_mistake(&["explain", "web", "-Z"], "-Z: unknown flag");
    check_mistake(
        &["explain", "rs", "web", "api"],
        "unexpected argument 'api'",
    );
    check_mistake(
        &["explain", "-A", "-n", "shop"],
        "the argument '--all-namespaces' cannot be used with '--namespace <NAME>'",
    );
}

#[cfg(feature = "devserver")]
#[test]
fn a_mistake_in_a_flag_of_dev_names_it_too() {
    check_mistake(
        &["dev", "--save"],
        "the following required arguments were not provided: --data <FILE|DIR>",
    );
    check_mistake(
        &["dev", "--port=abc"],
        "--port: invalid value 'abc': expected a number from 0 to 65535",
    );
    check_mistake(
        &["dev", "--prot=1"],
        "--prot: unknown flag; did you mean --port?",
    );
}

#[cfg(feature = "devserver")]
#[test]
fn single_simulated_controllers_of_dev_are_chosen() {
    use crate::cli::flags::{LocalCommand, SIMULATED};
    for (list, expected) in [
        ("*", &SIMULATED[..]),
        ("*,-job-controller", &SIMULATED[1..]),
        ("-job,*", &SIMULATED[1..]),
        ("replicaset-controller,job", &SIMULATED[..1]),
        ("deployment-controller", &[]),
    ] {
        let parsed = of(&["dev", &*format!("--controllers={list}")]).parsed();
        let Some(Command::Local(local)) = &parsed.cli.command else {
            panic!("{list}: another command");
        };
        let LocalCommand::Dev(args) = &**local else {
            panic!("{list}: another command");
        };
        let chosen = SIMULATED
            .iter()
            .filter(|name| args.controller.is_enabled(ControllerName::Simulated(name)));
        assert!(chosen.eq(expected), "{list}");
    }
    let usage = of(&["dev", "--controllers=*,-cronjob-controller"]).usage();
    assert!(usage.contains("endpointslice-controller"), "{usage}");
    // A cluster has these controllers.
    let usage = of(&["--controllers=job-controller"]).usage();
    assert!(!usage.contains("endpointslice-controller"), "{usage}");
}

#[test]
fn only_a_near_name_is_offered() {
    let of_kcm = "not supported here (a flag of kube-controller-manager); --kcm-compat accepts and \
                  ignores it";
    for flag in ["--requestheader-client-ca-file", "--root-ca-file"] {
        check_mistake(&[flag, "f"], &format!("{flag}: {of_kcm}"));
    }
    check_mistake(
        &["--vmodule=sync=4"],
        "--vmodule: not supported here (a flag of kube-controller-manager); RUST_LOG sets the \
         level of single modules, as in RUST_LOG=replicaset_controller::client=trace; \
         --kcm-compat accepts and ignores it",
    );
    check_mistake(
        &["--kcm-compat", "--clutser-cidr=10.0.0.0/8"],
        "--clutser-cidr: unknown flag; did you mean --cluster-cidr?",
    );
    check_mistake(
        &["--clutser-cidr=10.0.0.0/8"],
        "--clutser-cidr: unknown flag",
    );
    check_mistake(&["help", "nope"], "unknown command 'nope'");
    check_mistake(
        &["help", "rbca"],
        "unknown command 'rbca'; did you mean rbac?",
    );
    check_mistake(&["deamon"], "unknown command 'deamon'");
    check_mistake(&["rnu"], "unknown command 'rnu'; did you mean run?");
    check_mistake(
        &["version"],
        "unknown command 'version'; did you mean --version?",
    );
}

#[test]
fn short_help_shows_the_flags_that_one_sets_and_long_help_all() {
    let flags = |text: &str| -> Vec<String> {
        let words = text.lines().filter_map(|line| {
            let line = line.trim_start();
            let flag = line.split([' ', '[']).find(|word| word.starts_with("--"))?;
            let opens =
                line.starts_with(flag) || line.starts_with(['-']) && !line.starts_with("--");
            opens.then(|| flag.to_owned())
        });
        words.collect()
    };
    let short = flags(&of(&["-h"]).shown());
    let expected = [
        "--help",
        "--version",
        "--kubeconfig",
        "--namespace",
        "--kube-api-qps",
        "--controllers",
        "--concurrent-replicaset-syncs",
        "--dry-run",
        "--leader-elect",
        "--secure-port",
        "--v",
        "--config",
    ];
    assert_eq!(short, expected);
    assert_eq!(flags(&of(&["run", "-h"]).shown()), expected);
    let command = <Cli as clap::CommandFactory>::command();
    let long = flags(&of(&["--help"]).shown());
    let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
    for flag in shown.filter_map(clap::Arg::get_long) {
        assert!(
            long.contains(&format!("--{flag}")),
            "no --{flag} in {long:?}"
        );
    }
}

#[test]
fn no_help_is_longer_than_two_lines() {
    let cli = <Cli as clap::CommandFactory>::command();
    for command in std::iter::once(&cli).chain(cli.get_subcommands()) {
        for arg in command.get_arguments() {
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let at = format!("{} {}", command.get_name(), arg.get_id());
            assert!((1..=180).contains(&help.len()), "{at}: {help}");
            assert!(arg.get_long_help().is_none(), "{at}: no second text");
        }
    }
}

#[test]
fn help_and_version_are_no_mistakes() {
    assert!(of(&["--help"]).shown().contains("--master"));
    assert!(of(&["run", "--help"]).shown().contains("Leader election:"));
    for arguments in [
        &["--version"][..],
        &["run", "--version"],
        &["config", "--version"],
        &["--version=raw"],
    ] {
        let expected = format!("replicaset-controller {}\n", build::version());
        assert_eq!(of(arguments).shown(), expected, "{arguments:?}");
    }
    assert!(of(&["help", "rbac"]).shown().contains("rbac [OPTIONS]"));
    assert_eq!(of(&["help", "-h"]).shown(), of(&["help"]).shown());
    assert!(of(&["man"]).shown().starts_with(".ie"));
    assert!(
        of(&["completions", "bash"])
            .shown()
            .contains("--leader-elect")
    );
}

#[cfg(not(feature = "devserver"))]
#[test]
fn a_command_that_is_not_built_in_is_unknown() {
    for command in ["dev", "demo"] {
        let expected = of(&["no-such-command"]).usage();
        let expected = expected.replace("no-such-command", command);
        assert_eq!(of(&[command]).usage(), expected);
    }
    let help = of(&["--help"]).shown();
    assert!(
        !help.contains("  demo ") && !help.contains("  dev "),
        "{help}"
    );
}
