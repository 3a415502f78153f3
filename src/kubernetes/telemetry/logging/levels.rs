//! The log filter: klog's `-v` and `-vmodule`, and `RUST_LOG`.

use std::fmt;

use env_logger::{Builder, Logger};
use log::{Level, LevelFilter, Log, Metadata};

use super::{PROGRAM, own_path, short};

/// The log levels of this program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Level of all modules.
    pub all: LevelFilter,
    /// Levels of modules whose file or path matches the pattern; the first match counts. A pattern
    /// only raises the level.
    pub modules: Vec<(String, LevelFilter)>,
}

impl fmt::Display for Levels {
    /// `INFO, sync=DEBUG`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.all)?;
        for (pattern, level) in &self.modules {
            write!(f, ", {pattern}={level}")?;
        }
        Ok(())
    }
}

impl From<LevelFilter> for Levels {
    fn from(all: LevelFilter) -> Self {
        Self {
            all,
            modules: Vec::new(),
        }
    }
}

/// [`Levels`] combined with `RUST_LOG`.
#[derive(Debug)]
pub(super) struct Filter {
    levels: Levels,
    /// Overrides `levels` if `RUST_LOG` is set.
    rust_log: Option<Logger>,
}

impl Filter {
    pub(super) fn new(levels: &Levels, rust_log: Option<&str>) -> Self {
        let rust_log = rust_log.filter(|directives| !directives.is_empty());
        let rust_log = rust_log.map(|directives| {
            let mut builder = Builder::new();
            builder.filter_level(LevelFilter::Warn);
            // A level without a module, which is for all of them, would lose against this one.
            if !has_level_for_all(directives) {
                builder.filter_module(PROGRAM, levels.all);
            }
            builder.parse_filters(directives);
            builder.build()
        });
        Self {
            levels: levels.clone(),
            rust_log,
        }
    }

    pub(super) fn levels(&self) -> &Levels {
        &self.levels
    }

    /// The highest level of any module.
    pub(super) fn max(&self) -> LevelFilter {
        if let Some(rust_log) = &self.rust_log {
            return rust_log.filter();
        }
        let modules = self.levels.modules.iter().map(|(_, level)| *level);
        modules
            .chain([self.levels.all, LevelFilter::Warn])
            .max()
            .unwrap_or(LevelFilter::Warn)
    }

    pub(super) fn enabled(&self, metadata: &Metadata<'_>, module: &str) -> bool {
        // INVARIANT: the log contains no secret. At trace level, libraries log bytes on the wire,
        // including headers with tokens and passwords.
        if metadata.level() == Level::Trace && own_path(module).is_none() {
            return false;
        }
        if let Some(rust_log) = &self.rust_log {
            let Some(path) = own_path(metadata.target()) else {
                return rust_log.enabled(metadata);
            };
            let target = format!("{PROGRAM}::{path}");
            let of_program = Metadata::builder()
                .level(metadata.level())
                .target(&target)
                .build();
            return rust_log.enabled(&of_program);
        }
        if own_path(module).is_none() {
            return metadata.level() <= self.levels.all.min(LevelFilter::Warn);
        }
        if metadata.level() <= self.levels.all {
            return true;
        }
        let module = short(module).replace("::", "/");
        let mut modules = self.levels.modules.iter();
        let found = modules.find(|(pattern, _)| matches_module(pattern, &module));
        found.is_some_and(|(_, level)| metadata.level() <= *level)
    }
}

/// True if `RUST_LOG` has a level for all modules, as in `debug,ureq=warn/pattern`.
fn has_level_for_all(directives: &str) -> bool {
    let directives = directives.split('/').next().unwrap_or_default();
    let mut directives = directives.split(',');
    directives.any(|it| it.trim().parse::<LevelFilter>().is_ok())
}

/// Matches a pattern with `/` or `::` against the whole path, and any other pattern against each
/// part. So `sync` matches the file and `client` the directory.
fn matches_module(pattern: &str, module: &str) -> bool {
    let pattern = pattern.replace("::", "/");
    if pattern.contains('/') {
        matches(&pattern, module)
    } else {
        module.split('/').any(|part| matches(&pattern, part))
    }
}

/// Wildcard match: `*` matches any characters, `?` exactly one.
fn matches(pattern: &str, text: &str) -> bool {
    let mut of_pattern = pattern.chars();
    match of_pattern.next() {
        None => text.is_empty(),
        Some('*') => {
            let remaining = of_pattern.as_str();
            let starts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            starts.into_iter().any(|at| matches(remaining, &text[at..]))
        }
        Some(expected) => {
            let mut of_text = text.chars();
            let is_same = of_text
                .next()
                .is_some_and(|c| expected == '?' || expected == c);
            is_same && matches(of_pattern.as_str(), of_text.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Filter, Level, LevelFilter, Levels, matches_module};
    use log::Metadata;

    #[test]
    fn patterns_match_parts_or_whole_paths() {
        for (pattern, module, expected) in [
            ("sync", "controller/sync", true),
            ("sync", "controller/sync_more", false),
            ("client", "client/throttle", true),
            ("cli*", "client/throttle", true),
            ("con*/s?nc", "controller/sync", true),
            ("controller::sync", "controller/sync", true),
            ("controller/*", "cache/reflector", false),
            ("", "sync", false),
        ] {
            assert_eq!(
                matches_module(pattern, module),
                expected,
                "{pattern} {module}"
            );
        }
    }

    #[track_caller]
    fn check(filter: &Filter, target: &str, level: Level, expected: bool) {
        let metadata = Metadata::builder().level(level).target(target).build();
        assert_eq!(
            filter.enabled(&metadata, target),
            expected,
            "{target} {level}"
        );
        assert!(
            !expected || level <= filter.max(),
            "max() is below an enabled level"
        );
    }

    #[test]
    fn modules_raise_the_level_and_rust_log_overrides() {
        let levels = Levels {
            all: LevelFilter::Info,
            modules: vec![("sync".to_owned(), LevelFilter::Trace)],
        };
        let filter = Filter::new(&levels, None);
        check(
            &filter,
            "replicaset_controller::controller::sync",
            Level::Trace,
            true,
        );
        check(&filter, "replicaset_controller::client", Level::Info, true);
        check(
            &filter,
            "replicaset_controller::client",
            Level::Debug,
            false,
        );
        check(&filter, "ureq", Level::Warn, true);
        check(&filter, "ureq", Level::Info, false);
        let filter = Filter::new(
            &levels,
            Some("replicaset_controller::client=trace,ureq=info"),
        );
        check(&filter, "replicaset_controller::client", Level::Trace, true);
        check(&filter, "kubernetes::client", Level::Trace, true);
        check(
            &filter,
            "replicaset_controller::controller::sync",
            Level::Debug,
            false,
        );
        check(&filter, "ureq", Level::Info, true);
        let all = Filter::new(&levels, Some("trace,replicaset_controller=trace"));
        check(&all, "ureq_proto::util", Level::Debug, true);
        check(&all, "ureq_proto::util", Level::Trace, false);
        check(&all, "replicaset_controller::client", Level::Trace, true);
        let all = Filter::new(&levels, Some("debug,ureq=warn/pattern"));
        check(&all, "replicaset_controller::client", Level::Debug, true);
        check(&all, "ureq", Level::Info, false);
        let quiet = Filter::new(&levels, Some("error"));
        check(&quiet, "replicaset_controller::client", Level::Warn, false);
        let quiet = Filter::new(&Levels::from(LevelFilter::Error), None);
        check(&quiet, "replicaset_controller::client", Level::Warn, false);
        check(&quiet, "ureq", Level::Warn, false);
        check(&quiet, "ureq", Level::Error, true);
    }
}
