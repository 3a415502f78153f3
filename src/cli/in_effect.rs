//! Flags with the values that they have in effect, for the page `/flagz` and for people.

use std::collections::BTreeMap;
use std::ffi::OsString;

use clap::{ArgMatches, Command, CommandFactory};

use super::flags::Cli;

/// Every flag of `run` by its name without dashes, as text; given or by default. Empty for arguments
/// that are no command line of `run`.
pub(super) fn flags_in_effect(args: &[OsString]) -> BTreeMap<String, String> {
    let command = Cli::command();
    let Ok(matches) = command.clone().try_get_matches_from(args) else {
        return BTreeMap::new();
    };
    match matches.subcommand() {
        None => values(&command, &matches),
        Some(("run", matches)) => {
            let run = command.find_subcommand("run");
            run.map_or_else(BTreeMap::new, |run| values(run, matches))
        }
        Some(_) => BTreeMap::new(),
    }
}

fn values(command: &Command, matches: &ArgMatches) -> BTreeMap<String, String> {
    let flags = command.get_arguments().filter_map(|flag| {
        let name = flag
            .get_long()
            .filter(|name| !matches!(*name, "help" | "version"))?;
        let raw = matches.try_get_raw(flag.get_id().as_str()).ok()?;
        let raw = raw.into_iter().flatten();
        let raw: Vec<_> = raw.map(|value| value.to_string_lossy()).collect();
        Some((name.to_owned(), raw.join(",")))
    });
    flags.collect()
}

#[cfg(test)]
mod tests {
    use super::flags_in_effect;

    #[test]
    fn given_and_default_values() {
        for args in [
            vec!["replicaset-controller", "--kube-api-qps=5"],
            vec!["replicaset-controller", "run", "--kube-api-qps", "5"],
        ] {
            let args: Vec<_> = args.into_iter().map(Into::into).collect();
            let flags = flags_in_effect(&args);
            let value = |name| flags.get(name).map(String::as_str);
            assert_eq!(value("kube-api-qps"), Some("5"));
            assert_eq!(value("secure-port"), Some("10257"));
            assert_eq!(value("kubeconfig"), Some(""));
            assert_eq!(
                value("authorization-always-allow-paths"),
                Some("/healthz,/readyz,/livez")
            );
            assert_eq!(value("help"), None);
        }
    }
}
