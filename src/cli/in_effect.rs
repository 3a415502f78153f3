//! Flags with the values that they have in effect, for the page `/flagz` and for people.

use std::collections::BTreeMap;

use clap::{ArgMatches, Command};

/// Every flag of `command` by its name without dashes, as text; given or by default.
pub(super) fn flags_in_effect(command: &Command, matches: &ArgMatches) -> BTreeMap<String, String> {
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
