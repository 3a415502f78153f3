//! From arguments to flags, with all mistakes found at once.

use std::ffi::OsString;

use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::flags::Cli;

/// What came of the arguments.
#[derive(Debug)]
pub enum ParseOutcome {
    /// They are all right.
    Run(Box<Cli>),
    /// Help or the version was asked for: this text goes to standard output, exit code 0.
    Show(String),
    /// They are wrong: these lines go to standard error, exit code 2.
    Usage(String),
}

/// Reads the arguments; the first is the program's name.
///
/// The parser stops at the first mistake. To report them all, each argument that it complains of is
/// taken out and the rest is read again.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> ParseOutcome {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let mut mistakes: Vec<String> = Vec::new();
    loop {
        let error = match Cli::try_parse_from(&args) {
            Ok(cli) if mistakes.is_empty() => return ParseOutcome::Run(Box::new(cli)),
            Ok(_) => break,
            Err(error) => error,
        };
        if matches!(
            error.kind(),
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
        ) {
            return ParseOutcome::Show(error.render().to_string());
        }
        mistakes.push(describe(&error));
        if !take_out(&mut args, &error) {
            break;
        }
    }
    mistakes.dedup();
    let hint = "see replicaset-controller --help for all flags";
    ParseOutcome::Usage(format!("{}\n{hint}\n", mistakes.join("\n")))
}

/// The parser's own first lines, up to its usage hint.
fn describe(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let is_message = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more");
    let lines = text
        .lines()
        .take_while(is_message)
        .map(str::trim)
        .filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

/// Removes what the error complains of; false if that cannot be found.
fn take_out(args: &mut Vec<OsString>, error: &clap::Error) -> bool {
    let Some(ContextValue::String(culprit)) = error.get(ContextKind::InvalidArg) else {
        return false;
    };
    // As "--flag <VALUE>" or "-v[=<N>]"; only the flag itself is on the command line.
    let flag = culprit.split([' ', '[', '=']).next().unwrap_or_default();
    let is_flag = |arg: &OsString| {
        let arg = arg.to_string_lossy();
        *arg == *culprit || *arg == *flag || arg.starts_with(&format!("{flag}="))
    };
    let Some(at) = args.iter().skip(1).position(is_flag).map(|at| at + 1) else {
        return false;
    };
    let removed = args.remove(at);
    let has_own_value = removed.to_string_lossy().contains('=');
    let next_is_value = args
        .get(at)
        .is_some_and(|next| !next.to_string_lossy().starts_with('-'));
    if flag.starts_with("--") && !has_own_value && next_is_value {
        args.remove(at);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{Cli, OsString, ParseOutcome, parse};

    fn run(args: &[&str]) -> ParseOutcome {
        let program = std::iter::once("replicaset-controller");
        parse(program.chain(args.iter().copied()).map(OsString::from))
    }

    #[track_caller]
    fn usage(args: &[&str]) -> String {
        match run(args) {
            ParseOutcome::Usage(text) => text,
            other => panic!("expected mistakes, got {other:?}"),
        }
    }

    #[test]
    fn the_table_of_flags_is_sound() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn run_is_the_default() {
        let ParseOutcome::Run(cli) = run(&["--kube-api-qps=0", "--namespace", "shop", "-vv"])
        else {
            panic!("these flags are valid");
        };
        assert!(cli.command.is_none());
        assert!(cli.run.client.kube_api_qps.abs() < f32::EPSILON);
        assert_eq!(cli.run.api.namespace.as_deref(), Some("shop"));
        assert_eq!(cli.run.log.level(), log::LevelFilter::Trace);
        assert!(matches!(
            run(&["run", "--kube-api-qps", "-1", "-v=2"]),
            ParseOutcome::Run(_)
        ));
    }

    #[test]
    fn all_mistakes_are_reported_at_once_and_name_their_flags() {
        let text = usage(&[
            "--kube-api-qps=fast",
            "--no-such-flag",
            "value",
            "--concurrent-replicaset-syncs",
            "0",
            "--min-resync-period=never",
            "--namespace=UPPER",
        ]);
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
    fn help_and_version_are_no_mistakes() {
        assert!(matches!(run(&["--help"]), ParseOutcome::Show(text) if text.contains("--master")));
        assert!(
            matches!(run(&["--version"]), ParseOutcome::Show(text) if text.starts_with("replicaset-controller "))
        );
    }
}
