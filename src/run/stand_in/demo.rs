//! `demo`: shows the controller at work in chapters, and checks each chapter against the server's
//! objects.
//!
//! | file | what it does |
//! |---|---|
//! | `stage` | dev server, controller, the demo's own requests, snapshots and waits |
//! | `lines` | what is printed |
//! | `chapters` | the actions and the checks |

mod chapters;
mod lines;
mod stage;

use std::time::Duration;

use self::chapters::CHAPTERS;
use self::stage::{ChapterError, Pace, Stage};
use crate::cli::flags::DemoArgs;
use crate::devserver::{DevServer, DevServerOptions, KubeletOptions};
use crate::run::{RunError, program, seen_enough, signals};
use crate::stdx::stop::Stop;

/// Recorded requests of one demo. The limit is generous, since the end counts them all.
const RECORDER_LENGTH: usize = 1_000_000;

/// What the demo is, for somebody who sees it for the first time.
const INTRODUCTION: &str = "This process runs an API server in memory, simulated nodes and the \
     ReplicaSet controller. The server listens on this machine only and ends with the demo: \
     nothing leaves this machine, and no cluster is touched. Each chapter changes objects and \
     waits for the controller's reaction.";

/// Pace for people.
const STEADY: Pace = Pace {
    ready_after: Duration::from_millis(400),
    pause_scale: 1.0,
};

/// Pace for CI.
const FAST: Pace = Pace {
    ready_after: Duration::from_millis(100),
    pause_scale: 0.05,
};

/// Plays all chapters and reports their outcomes. Blocks for a few minutes at most: every wait ends
/// at a deadline or at `stop`.
///
/// # Errors
/// If a chapter failed, or if `stop` was given before the end.
pub(super) fn demo(args: &DemoArgs, stop: &Stop) -> Result<(), RunError> {
    signals::stop_in_order();
    let pace = if args.fast { FAST } else { STEADY };
    let server_stop = Stop::new();
    let options = DevServerOptions {
        recorder_length: RECORDER_LENGTH,
        garbage_collection: true,
        kubelet: Some(KubeletOptions {
            ready_after: pace.ready_after,
            ..KubeletOptions::default()
        }),
        ..DevServerOptions::default()
    };
    let mut server = DevServer::start(&options, &server_stop).map_err(RunError::DevServer)?;
    let mut stage = Stage::new(&server, pace, stop);
    let result = play(&mut stage);
    let stopped = stage.stop_controller().map_err(|miss| failure(&miss));
    drop(stage);
    server.stop();
    result.and(stopped)
}

fn play(stage: &mut Stage<'_>) -> Result<(), RunError> {
    let begun = stage.version();
    stage.lines().introduce(INTRODUCTION);
    stage.start_controller().map_err(|miss| failure(&miss))?;
    let mut failed = Vec::new();
    for (index, chapter) in CHAPTERS.iter().enumerate() {
        let number = (index + 1, CHAPTERS.len());
        stage.open(number, chapter.headline);
        let outcome = match (chapter.play)(stage) {
            Ok(text) => Ok(text),
            Err(ChapterError::Missed(why)) => Err(why),
            Err(ChapterError::Stopped) => return Err(failure(&ChapterError::Stopped)),
        };
        let elapsed = stage.elapsed();
        stage.lines().end_chapter(&outcome, elapsed);
        if let Err(why) = outcome {
            failed.push(format!(
                "chapter {} ({}): {why}",
                number.0, chapter.headline
            ));
        }
    }
    let mut lines = totals(stage, begun);
    lines.extend(ways_on(&program()));
    seen_enough(stage.lines().end(&lines)).map_err(RunError::Output)?;
    if failed.is_empty() {
        return Ok(());
    }
    let n_failed = failed.len();
    let failed = failed.join("\n  ");
    Err(RunError::Demo(format!(
        "{n_failed} of {} chapters failed:\n  {failed}",
        CHAPTERS.len()
    )))
}

fn failure(miss: &ChapterError) -> RunError {
    RunError::Demo(match miss {
        ChapterError::Missed(why) => why.clone(),
        ChapterError::Stopped => "stopped before the end".to_owned(),
    })
}

/// Returns the figures at the end, one per line.
fn totals(stage: &Stage<'_>, begun: u64) -> Vec<String> {
    let pods = stage.pods_since(begun, "");
    let mut figures = vec![
        ("pods created", pods.added.to_string()),
        ("pods deleted", pods.deleted.to_string()),
        ("seconds", format!("{:.1}", stage.elapsed().as_secs_f64())),
        ("API requests", stage.n_requests().to_string()),
    ];
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    // A build without optimisation takes more memory than the one that people run.
    if !cfg!(debug_assertions)
        && let Some(mib) = peak_memory_mib(&status)
    {
        let text = format!("{mib} MiB for API server, kubelet and controller");
        figures.push(("peak memory", text));
    }
    let mut lines = vec![String::new()];
    let figures = figures.into_iter();
    lines.extend(figures.map(|(name, figure)| format!("  {name:13} {figure}")));
    lines
}

/// Returns the final lines: what to try next.
fn ways_on(program: &str) -> Vec<String> {
    vec![
        String::new(),
        "Two ways on:".to_owned(),
        format!("  {program} dev    keeps such a cluster running for kubectl"),
        format!("  {program} --kubeconfig=FILE --dry-run    reports what it would do in yours"),
    ]
}

/// Parses the peak memory of the process from `/proc/self/status`.
fn peak_memory_mib(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib.div_ceil(1024))
}

#[cfg(test)]
mod tests {
    use super::{peak_memory_mib, ways_on};

    #[test]
    fn peak_memory_is_read_where_it_is_told() {
        assert_eq!(peak_memory_mib("Name:\tx\nVmHWM:\t   20481 kB\n"), Some(21));
        assert_eq!(peak_memory_mib("Name:\tx\n"), None);
    }

    #[test]
    fn the_end_names_commands_as_they_can_be_typed() {
        let text = ways_on("target/debug/replicaset-controller").join("\n");
        assert!(
            text.contains("  target/debug/replicaset-controller dev "),
            "{text}"
        );
    }
}
