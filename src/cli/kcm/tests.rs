//! Command lines of kube-controller-manager.

use std::ffi::OsString;
use std::io;

use super::{FLAGS, Ignored, names};
use crate::cli::{ParseOutcome, Parsed, Sources, parse};

/// The flags that are rejected, since another leader depends on them.
const MIGRATION: [&str; 2] = ["enable-leader-migration", "leader-migration-config"];

#[track_caller]
fn parsed(arguments: &[String]) -> Parsed {
    match outcome(arguments) {
        ParseOutcome::Run(parsed) => *parsed,
        other => panic!("{arguments:?}: {other:?}"),
    }
}

fn outcome(arguments: &[String]) -> ParseOutcome {
    let program = std::iter::once(OsString::from("replicaset-controller"));
    parse(&Sources {
        arguments: program
            .chain(arguments.iter().map(OsString::from))
            .collect(),
        environment: Vec::new(),
        read_file: &|_| Err(io::Error::from(io::ErrorKind::NotFound)),
    })
}

/// A value that the flag takes.
fn example(name: &str, kind: &str) -> &'static str {
    match (name, kind) {
        ("bind-address", _) => "127.0.0.1",
        ("leader-elect-resource-lock", _) => "leases",
        ("kube-api-content-type", _) => "application/json",
        ("tls-min-version", _) => "VersionTLS13",
        ("logging-format", _) => "json",
        ("authorization-always-allow-paths", _) => "/healthz",
        ("controllers", _) => "*,bootstrap-signer-controller,-job",
        ("feature-gates", _) => "AllAlpha=false,kube:PodDeletionCost=false",
        ("vmodule", _) => "controller_utils*=5",
        ("leader-elect-lease-duration", _) => "20s",
        ("leader-elect-renew-deadline", _) => "9s",
        ("leader-elect-retry-period", _) => "1s",
        (_, "duration") => "1m0s",
        (_, "float" | "float32" | "int" | "int32" | "Level") => "7",
        _ => "some-value",
    }
}

#[test]
fn every_flag_is_taken_in_every_form_with_the_right_arity() {
    let mut together = vec!["--kcm-compat".to_owned()];
    let flags: Vec<(&str, &str)> = FLAGS
        .lines()
        .map(|line| line.split_once(' ').unwrap_or((line, "")))
        .collect();
    assert!(flags.len() >= 150, "only {} flags", flags.len());
    for (name, kind) in flags {
        // The first two end the program.
        if ["help", "version", MIGRATION[0], MIGRATION[1]].contains(&name) {
            continue;
        }
        let forms = if kind.is_empty() {
            vec![vec![format!("--{name}")], vec![format!("--{name}=true")]]
        } else {
            let value = example(name, kind);
            vec![
                vec![format!("--{name}"), value.to_owned()],
                vec![format!("--{name}={value}")],
            ]
        };
        for form in &forms {
            together.extend_from_slice(form);
        }
    }
    let parsed = parsed(&together);
    let args = parsed.run_args();
    assert_eq!(args.client.kube_api_burst, 7);
    assert_eq!(args.controller.enabled().len(), 2);
    let texts = parsed.ignored.0;
    let foreign = names();
    assert!(foreign.len() > 100, "{foreign:?}");
    for name in foreign {
        let flag = format!("--{name}");
        assert_eq!(
            texts.iter().filter(|line| **line == flag).count(),
            1,
            "{name}"
        );
    }
}

#[test]
fn ignored_flags_are_logged_and_typos_are_rejected() {
    let arguments =
        |words: &[&str]| -> Vec<String> { words.iter().map(|&word| word.to_owned()).collect() };
    let words = [
        "--kcm-compat",
        "--allocate-node-cidrs=true",
        "--cluster_cidr",
        "10.0.0.0/8",
        "--kubeconfig=",
        "--controllers=*,-job",
        "--controllers=tokencleaner",
        "--feature-gates=AllBeta=true,kube:PodDeletionCost=false",
        "--use-service-account-credentials",
        "--dry-run",
    ];
    let taken = parsed(&arguments(&words));
    assert!(taken.run_args().mode.dry_run);
    let expected = Ignored(arguments(&[
        "--allocate-node-cidrs",
        "--cluster-cidr",
        "--controllers=-job",
        "--controllers=tokencleaner",
        "--feature-gates=AllBeta=true",
        "--use-service-account-credentials",
    ]));
    assert_eq!(taken.ignored, expected);
    for words in [
        &["--kcm-compat", "--alocate-node-cidrs"][..],
        &["--kcm-compat", "--controllers=*,-jobb"],
        &["--kcm-compat", "--controllers=deployment-controller,-job"],
    ] {
        let outcome = outcome(&arguments(words));
        assert!(matches!(outcome, ParseOutcome::Usage(_)), "{words:?}");
    }
    for off in ["0", "f", "False"] {
        let off = format!("--kcm-compat={off}");
        let outcome = outcome(&arguments(&[&off, "--cluster-cidr", "10.0.0.0/8"]));
        assert!(matches!(outcome, ParseOutcome::Usage(_)), "{off}");
    }
    let ParseOutcome::Usage(text) = outcome(&arguments(&["--cluster-cidr", "10.0.0.0/8"])) else {
        panic!("not without --kcm-compat");
    };
    assert!(
        text.contains("--kcm-compat accepts and ignores it"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn leader_migration_is_rejected_with_the_remedy() {
    let given = |flags: &[&str]| {
        let flags = ["--kcm-compat"].iter().chain(flags);
        outcome(&flags.map(|&flag| flag.to_owned()).collect::<Vec<_>>())
    };
    let off = given(&[
        "--enable-leader-migration=false",
        "--leader-migration-config=",
    ]);
    assert!(matches!(off, ParseOutcome::Run(_)), "{off:?}");
    for flag in ["--enable-leader-migration", "--leader-migration-config=f"] {
        let ParseOutcome::Usage(text) = given(&[flag]) else {
            panic!("{flag} is taken");
        };
        assert!(
            text.contains("set --leader-elect-resource-name to the leaderName"),
            "{text}"
        );
    }
}
