//! The log filter: klog's `-v`, and `RUST_LOG`.

use env_logger::{Builder, Logger};
use log::{Level, LevelFilter, Log, Metadata};

use super::{PROGRAM, own_path};

/// The level of this program, combined with `RUST_LOG`.
#[derive(Debug)]
pub(super) struct Filter {
    level: LevelFilter,
    /// Overrides `level` if `RUST_LOG` is set.
    rust_log: Option<Logger>,
}

impl Filter {
    pub(super) fn new(level: LevelFilter, rust_log: Option<&str>) -> Self {
        let rust_log = rust_log.filter(|directives| !directives.is_empty());
        let rust_log = rust_log.map(|directives| {
            let mut builder = Builder::new();
            builder.filter_level(LevelFilter::Warn);
            // A level without a module, which is for all of them, would lose against this one.
            if !has_level_for_all(directives) {
                builder.filter_module(PROGRAM, level);
            }
            builder.parse_filters(directives);
            builder.build()
        });
        Self { level, rust_log }
    }

    pub(super) fn level(&self) -> LevelFilter {
        self.level
    }

    /// The highest level of any module.
    pub(super) fn max(&self) -> LevelFilter {
        let rust_log = self.rust_log.as_ref().map(Logger::filter);
        rust_log.unwrap_or(self.level.max(LevelFilter::Warn))
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
        metadata.level()
            <= match own_path(module) {
                Some(_) => self.level,
                None => self.level.min(LevelFilter::Warn),
            }
    }
}

/// True if `RUST_LOG` has a level for all modules, as in `debug,ureq=warn/pattern`.
fn has_level_for_all(directives: &str) -> bool {
    let directives = directives.split('/').next().unwrap_or_default();
    let mut directives = directives.split(',');
    directives.any(|it| it.trim().parse::<LevelFilter>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::{Filter, Level, LevelFilter};
    use crate::telemetry::logging::level_of;
    use log::Metadata;

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
    fn rust_log_overrides_the_level() {
        assert_eq!(level_of(8), LevelFilter::Trace);
        let filter = Filter::new(LevelFilter::Info, None);
        check(
            &filter,
            "replicaset_controller::controller::sync",
            Level::Info,
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
            LevelFilter::Info,
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
        let all = Filter::new(LevelFilter::Info, Some("trace,replicaset_controller=trace"));
        check(&all, "ureq_proto::util", Level::Debug, true);
        check(&all, "ureq_proto::util", Level::Trace, false);
        check(&all, "replicaset_controller::client", Level::Trace, true);
        let all = Filter::new(LevelFilter::Info, Some("debug,ureq=warn/pattern"));
        check(&all, "replicaset_controller::client", Level::Debug, true);
        check(&all, "ureq", Level::Info, false);
        let quiet = Filter::new(LevelFilter::Info, Some("error"));
        check(&quiet, "replicaset_controller::client", Level::Warn, false);
        let quiet = Filter::new(LevelFilter::Error, None);
        check(&quiet, "replicaset_controller::client", Level::Warn, false);
        check(&quiet, "ureq", Level::Warn, false);
        check(&quiet, "ureq", Level::Error, true);
    }
}
