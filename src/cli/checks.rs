//! Conditions between flags, checked once each flag is valid by itself.

use std::time::Duration;

use super::flags::RunArgs;

/// The renew deadline must exceed the retry period by this factor
/// (client-go `tools/leaderelection/leaderelection.go:JitterFactor`).
const JITTER_FACTOR: f64 = 1.2;

/// Minimum of `leaseDurationSeconds`.
///
/// DIFFERS: upstream accepts any duration above zero. The Lease would carry 0 s, and anybody could
/// take it at any time.
const LEASE_DURATION_MIN: Duration = Duration::from_secs(1);

/// What replaces a leader migration configuration.
const LEADER_MIGRATION: &str = "leader migration has no file here: if its controllerLeaders name \
    replicaset-controller, set --leader-elect-resource-name to its leaderName instead";

/// Returns the violated conditions. `at` renders where a flag is set.
pub(super) fn check(args: &RunArgs, at: &dyn Fn(&str) -> String) -> Vec<String> {
    let mut mistakes = Vec::new();
    let mut require = |holds: bool, flag: &str, sentence: &str| {
        if !holds {
            mistakes.push(format!("{}: {sentence}", at(flag)));
        }
    };

    let client = &args.client;
    require(
        client.kube_api_qps <= 0.0 || client.kube_api_burst > 0,
        "kube-api-burst",
        "must be at least 1, unless --kube-api-qps sets no limit",
    );
    require(
        !args.api.master.as_deref().is_some_and(names_a_user),
        "master",
        "user and password do not belong in the server's URL",
    );
    require(
        !args.controller.enabled().is_empty(),
        "controllers",
        "leaves no controller to run",
    );

    let election = &args.leader_election;
    if election.leader_elect {
        require(
            election.leader_elect_lease_duration >= LEASE_DURATION_MIN,
            "leader-elect-lease-duration",
            "must be at least 1s, since a Lease counts whole seconds",
        );
        for (flag, duration) in [
            (
                "leader-elect-renew-deadline",
                election.leader_elect_renew_deadline,
            ),
            (
                "leader-elect-retry-period",
                election.leader_elect_retry_period,
            ),
        ] {
            require(!duration.is_zero(), flag, "must be longer than 0");
        }
        require(
            election.leader_elect_lease_duration > election.leader_elect_renew_deadline,
            "leader-elect-lease-duration",
            "must be longer than --leader-elect-renew-deadline, so that the leader gives up before \
             another daemon takes over",
        );
        require(
            election.leader_elect_renew_deadline
                > election.leader_elect_retry_period.mul_f64(JITTER_FACTOR),
            "leader-elect-renew-deadline",
            "must be longer than 1.2 times --leader-elect-retry-period, so that the leader retries \
             before the deadline",
        );
    }
    // Without its file, this daemon would lead by another Lease beside the other leader.
    require(
        !election.enable_leader_migration,
        "enable-leader-migration",
        LEADER_MIGRATION,
    );
    require(
        election.leader_migration_config.is_none(),
        "leader-migration-config",
        LEADER_MIGRATION,
    );

    let serving = &args.serving;
    require(
        serving.tls_cert_file.is_none() || serving.tls_private_key_file.is_some(),
        "tls-cert-file",
        "needs --tls-private-key-file",
    );
    require(
        serving.tls_private_key_file.is_none() || serving.tls_cert_file.is_some(),
        "tls-private-key-file",
        "needs --tls-cert-file",
    );
    require(
        serving.insecure_port == 0 || serving.insecure_port != serving.secure_port,
        "insecure-port",
        "must differ from --secure-port",
    );
    mistakes
}

fn names_a_user(url: &str) -> bool {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = after_scheme.split('/').next();
    authority.is_some_and(|authority| authority.contains('@'))
}
