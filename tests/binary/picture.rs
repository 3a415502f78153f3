//! The picture of `demo` in README, `src/manual/demo.svg`. `make picture` records a run and
//! draws it.

mod svg;

use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use roxmltree::Document;

use crate::root;

/// The terminal, in characters.
const SIZE: Winsize = Winsize {
    ws_row: 25,
    ws_col: 100,
    ws_xpixel: 0,
    ws_ypixel: 0,
};

/// Time between two frames.
const PERIOD: Duration = Duration::from_millis(900);

/// Largest picture, in bytes.
const SIZE_MAX: usize = 60_000;

/// Longest demo that the manual admits, in seconds.
const SECONDS_MAX: f64 = 25.0;

const CHAPTERS: &str = include_str!("../../src/run/stand_in/demo/chapters.rs");

/// Runs `demo` on a pseudo-terminal and returns the screen every `PERIOD`, then the last screen.
fn record() -> Vec<vt100::Screen> {
    let terminal = openpty(&SIZE, None).expect("a pseudo-terminal");
    let mut child = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
        .arg0("replicaset-controller")
        .arg("demo")
        .env_remove("RUST_LOG")
        .env_remove("NO_COLOR")
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .stdout(terminal.slave)
        .spawn()
        .expect("the binary runs");
    let begun = Instant::now();
    let mut emulator = vt100::Parser::default();
    let [rows, columns] = [SIZE.ws_row, SIZE.ws_col].map(|n| n.try_into().expect("not zero"));
    emulator.set_size(rows, columns);
    let (mut frames, mut next) = (Vec::new(), PERIOD);
    let mut redrawn = emulator.screen().clone();
    let mut master = File::from(terminal.master);
    let mut buffer = [0; 1 << 14];
    // Linux returns EIO once the last process has closed the terminal.
    while let Ok(n_bytes @ 1..) = master.read(&mut buffer) {
        // The screen has not changed since the previous read, however long that read waited.
        while begun.elapsed() >= next {
            frames.push(redrawn.clone());
            next += PERIOD;
        }
        emulator.process(&buffer[..n_bytes]);
        // The demo ends each redraw with this sequence. A frame never shows half a redraw.
        if buffer[..n_bytes].ends_with(b"\x1b[J") {
            redrawn = emulator.screen().clone();
        }
    }
    frames.push(emulator.screen().clone());
    let status = child.wait().expect("the process can be waited for");
    assert!(status.success(), "{}", emulator.screen().contents());
    frames
}

#[test]
fn the_picture_shows_every_chapter_and_loads_nothing() {
    let path = root().join("src/manual/demo.svg");
    // Pod names and times differ in each run, so `UPDATE_EXPECT=1` leaves the picture alone.
    if env::var_os("UPDATE_EXPECT").is_some_and(|what| what == "picture") {
        fs::write(&path, svg::draw(&record(), PERIOD)).expect("a writable file");
    }
    let picture = fs::read_to_string(&path).expect("a picture");
    assert!(picture.len() <= SIZE_MAX, "{} bytes", picture.len());
    let document = Document::parse(&picture).expect("well-formed XML");
    for external in ["<script", "<image", "href", "url(", "@import"] {
        assert!(!picture.contains(external), "found {external}");
    }
    let elements = document.descendants().filter(roxmltree::Node::is_element);
    let texts: Vec<&str> = elements.filter_map(|element| element.text()).collect();
    let seconds = texts.iter().find_map(|text| {
        let figure = text.trim().strip_prefix("seconds")?;
        figure.trim().parse::<f64>().ok()
    });
    let is_short = seconds.is_some_and(|seconds| seconds <= SECONDS_MAX);
    assert!(is_short, "the demo took {seconds:?} s");
    let fields = CHAPTERS.split("headline: \"").skip(1);
    let titles: Vec<&str> = fields.filter_map(|rest| rest.split('"').next()).collect();
    assert!(!titles.is_empty(), "chapters.rs names no title");
    for title in titles {
        assert!(
            texts.contains(&title),
            "{title:?} is missing: run `make picture`"
        );
    }
    let drawn = without_values(&texts.join(" "));
    for result in results() {
        for clause in result.split(';').map(without_values) {
            assert!(
                drawn.contains(&clause),
                "{clause:?} is missing: run `make picture`"
            );
        }
    }
}

/// What `demo` says of each chapter.
fn results() -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"))
        .args(["demo", "--fast"])
        .stdin(Stdio::null())
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let results = text
        .lines()
        .filter_map(|line| line.split_once("  ok: "))
        .map(|(_, result)| result.to_owned());
    let results: Vec<String> = results.collect();
    assert!(output.status.success() && results.len() > 5, "{text}");
    results
}

/// The words of `text` but for numbers and names of pods, which differ in each run.
fn without_values(text: &str) -> String {
    let words = text.split_whitespace();
    let is_constant = |word: &&str| !word.contains(|it: char| it.is_ascii_digit() || it == '-');
    words.filter(is_constant).collect::<Vec<_>>().join(" ")
}
