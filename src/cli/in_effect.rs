//! Effective values of the flags, for the page `/flagz` and the command `config`.

use std::collections::BTreeMap;

use clap::{ArgMatches, Command};

use super::flags::RunArgs;
use super::values::parse_bool;

/// Returns the value of every flag of `command` as text, by its name without dashes. `args` is
/// parsed from `matches`.
pub(super) fn flags_in_effect(
    command: &Command,
    matches: &ArgMatches,
    args: &RunArgs,
) -> BTreeMap<String, String> {
    let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
    let flags = shown.filter_map(|flag| {
        let name = flag
            .get_long()
            .filter(|name| !matches!(*name, "help" | "version"))?;
        let raw = matches.try_get_raw(flag.get_id().as_str()).ok()?;
        let raw = raw.into_iter().flatten();
        let raw: Vec<_> = raw.map(|value| value.to_string_lossy()).collect();
        let given = || {
            let given = raw.join(",");
            // A bool has several spellings, such as 1 and T.
            let is_bool = matches!(flag.get_value_names(), Some([kind]) if kind == "BOOL");
            match parse_bool(&given) {
                Ok(is_on) if is_bool => is_on.to_string(),
                _ => given,
            }
        };
        let value = computed(name, args).unwrap_or_else(given);
        Some((name.to_owned(), value))
    });
    flags.collect()
}

/// Values that are not simply the last argument: a sum, or a default that depends on other flags.
fn computed(flag: &str, args: &RunArgs) -> Option<String> {
    match flag {
        "leader-elect-resource-namespace" => {
            let namespace = args.api.namespace.as_deref();
            let namespace = args.leader_election.resource_namespace(namespace);
            Some(namespace.to_owned())
        }
        "v" => Some(args.log.verbosity().to_string()),
        _ => None,
    }
}
