//! `demo`: shows the controller at work in chapters, and checks each chapter against the server's
//! objects. Prints lines with times, each once.
//!
//! | file | what it does |
//! |---|---|
//! | `stage` | dev server, controller, the demo's own requests, snapshots and waits |
//! | `chapters` | the actions and the checks |

mod chapters;
mod stage;

use std::collections::HashMap;
use std::io;
use std::io::Write;
use std::iter::repeat_n;
use std::time::Duration;

use self::chapters::CHAPTERS;
use self::stage::{ChapterError, Pace, Stage};
use crate::cli::flags::DemoArgs;
use crate::devserver::{DevServer, DevServerOptions, KubeletOptions};
use crate::run::local::{SetFacts, World};
use crate::run::{RunError, program, seen_enough, signals};
use crate::stdx::stop::Stop;

/// Recorded requests of one demo. The limit is generous, since the end counts them all.
const RECORDER_LENGTH: usize = 1_000_000;

/// What the demo is, for a first-time user.
const INTRODUCTION: &str = "\
This process runs an API server in memory, simulated nodes and the ReplicaSet
controller. The server listens on this machine only and ends with the demo:
nothing leaves this machine, and no cluster is touched. Each chapter changes
objects and waits for the controller's reaction.";

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
        "Next steps:".to_owned(),
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

/// Minimum time between two lines about the counts of one ReplicaSet.
const ROW_PERIOD: Duration = Duration::from_millis(400);

/// The width of the terminal that everybody has.
const COLUMNS: usize = 80;

/// The meaning of the lines.
const SIGNS: &str = "\
desired is spec.replicas; current, ready and available are the status that the
controller wrote; pods counts the pods themselves. A chapter ends with ok if the
API server's objects are as they should be.";

/// What there is to print about a chapter at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
struct Scene {
    /// Time since the start of the demo.
    elapsed: Duration,
    /// Number of the chapter, from 1, and number of chapters.
    chapter: (usize, usize),
    /// Title of the chapter.
    headline: String,
    /// The command with the same effect; empty if there is none.
    command: String,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// A ReplicaSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    name: String,
    /// Desired, current, ready, available, and the pods that are neither terminating nor Failed.
    /// The status follows a little later.
    counts: [usize; 5],
}

fn rows(world: &World) -> Vec<Row> {
    let row = |set: &SetFacts| {
        let pods = world.pods_of(set);
        Row {
            name: match set.namespace.as_str() {
                "default" => set.name.clone(),
                namespace => format!("{namespace}/{}", set.name),
            },
            counts: [
                set.desired,
                set.current,
                set.ready,
                set.available,
                pods.iter().filter(|pod| pod.phase != "Failed").count(),
            ],
        }
    };
    world.sets.iter().map(row).collect()
}

/// Prints what is new of each [`Scene`]. Only [`Lines::end`] reports write errors: a closed pipe
/// must not end the demo, whose exit code still counts.
struct Lines<W> {
    out: W,
    shown: Scene,
    /// The last line about each ReplicaSet, and its time.
    rows: HashMap<String, (Row, Duration)>,
}

impl<W: Write> Lines<W> {
    fn new(out: W) -> Self {
        Self {
            out,
            shown: Scene::default(),
            rows: HashMap::new(),
        }
    }

    /// Prints a line, broken between words before column 80 unless it is a command.
    fn line(&mut self, at: Duration, text: &str) {
        let mut line = format!("{:5.1} s  ", at.as_secs_f64());
        let words = text.trim_start();
        let indent = line.len() + text.len() - words.len();
        line.extend(repeat_n(' ', indent - line.len()));
        for word in words.split_inclusive(' ') {
            let is_full = line.len() + word.trim_end().len() > COLUMNS && line.len() > indent;
            if is_full && !words.starts_with('$') {
                writeln!(self.out, "{}", line.trim_end()).unwrap_or_default();
                line = " ".repeat(indent);
            }
            line += word;
        }
        writeln!(self.out, "{}", line.trim_end()).unwrap_or_default();
    }

    fn show_row(&mut self, row: &Row, at: Duration) {
        let known = self.rows.get(&row.name);
        let is_same = known.is_some_and(|(known, _)| known == row);
        let is_recent = known.is_some_and(|(_, last)| at.saturating_sub(*last) < ROW_PERIOD);
        let [desired, current, ready, available, pods] = row.counts;
        let is_settled = [current, ready, available] == [desired; 3];
        if is_same || (is_recent && !is_settled) {
            return;
        }
        let line = format!(
            "  {:12} desired {desired:3} current {current:3} ready {ready:3} available \
             {available:3} pods {pods:3}",
            row.name
        );
        self.line(at, &line);
        self.rows.insert(row.name.clone(), (row.clone(), at));
    }

    /// Prints the first paragraph, and what the lines mean.
    fn introduce(&mut self, text: &str) {
        for paragraph in [text, SIGNS] {
            writeln!(self.out, "{paragraph}\n").unwrap_or_default();
        }
    }

    /// Prints what is new.
    fn show(&mut self, scene: &Scene) {
        let at = scene.elapsed;
        if scene.chapter != self.shown.chapter {
            let (number, of) = scene.chapter;
            self.line(at, &format!("{number}/{of} {}", scene.headline));
        }
        if scene.command != self.shown.command && !scene.command.is_empty() {
            self.line(at, &format!("  $ {}", scene.command));
        }
        for row in &scene.rows {
            self.show_row(row, at);
        }
        for note in &scene.notes {
            if !self.shown.notes.contains(note) && !note.is_empty() {
                self.line(at, &format!("  {note}"));
            }
        }
        self.shown = scene.clone();
        self.out.flush().unwrap_or_default();
    }

    fn end_chapter(&mut self, outcome: &Result<String, String>, elapsed: Duration) {
        let line = match outcome {
            Ok(text) => format!("  ok: {text}"),
            Err(why) => format!("  FAILED: {why}"),
        };
        self.line(elapsed, &line);
    }

    /// Prints the final lines.
    ///
    /// # Errors
    /// If the lines cannot be written.
    fn end(&mut self, lines: &[String]) -> io::Result<()> {
        for line in lines {
            writeln!(self.out, "{line}")?;
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Lines, Row, Scene, peak_memory_mib, ways_on};

    #[test]
    fn peak_memory_is_read_from_proc() {
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

    fn scene(ms: u64, ready: usize, notes: &[&str]) -> Scene {
        Scene {
            elapsed: Duration::from_millis(ms),
            chapter: (2, 6),
            headline: "A pod is killed".to_owned(),
            command: "kubectl delete pod web-1".to_owned(),
            rows: vec![Row {
                name: "web".to_owned(),
                counts: [3, 3, ready, ready, 3],
            }],
            notes: notes.iter().map(|note| (*note).to_owned()).collect(),
        }
    }

    #[test]
    fn lines_break_between_words_and_keep_the_indent() {
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        let command = format!("  $ kubectl {}", "word ".repeat(20).trim_end());
        lines.line(Duration::ZERO, &command);
        lines.line(Duration::ZERO, &format!("  {}", "word ".repeat(20)));
        let text = String::from_utf8(out).expect("text");
        let words = |n| ["word"; 14][..n].join(" ");
        let note = format!("  0.0 s    {}\n           {}\n", words(14), words(6));
        assert_eq!(text, format!("  0.0 s  {command}\n{note}"));
        for text in [super::INTRODUCTION, super::SIGNS] {
            assert!(text.lines().all(|line| line.len() <= super::COLUMNS));
        }
    }

    #[test]
    fn the_lines_are_explained_first() {
        let mut out = Vec::new();
        Lines::new(&mut out).introduce("One process.");
        let text = String::from_utf8(out).expect("text");
        assert!(text.starts_with("One process.\n\ndesired is"), "{text}");
        assert!(text.ends_with("\n\n"), "{text}");
    }

    #[test]
    fn each_change_is_printed_once_and_rows_at_a_steady_pace() {
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        lines.show(&scene(0, 0, &[]));
        lines.show(&scene(100, 1, &["one", ""]));
        lines.show(&scene(450, 2, &["one", "two"]));
        lines.show(&scene(500, 3, &["one", "two"]));
        lines.show(&scene(600, 3, &["one", "two"]));
        for outcome in [Ok("replaced".to_owned()), Err("no pod came".to_owned())] {
            lines.end_chapter(&outcome, Duration::from_secs(1));
        }
        let expected = "  0.0 s  2/6 A pod is killed
  0.0 s    $ kubectl delete pod web-1
  0.0 s    web          desired   3 current   3 ready   0 available   0 pods   3
  0.1 s    one
  0.5 s    web          desired   3 current   3 ready   2 available   2 pods   3
  0.5 s    two
  0.5 s    web          desired   3 current   3 ready   3 available   3 pods   3
  1.0 s    ok: replaced
  1.0 s    FAILED: no pod came
";
        assert_eq!(String::from_utf8(out).expect("text"), expected);
    }
}
