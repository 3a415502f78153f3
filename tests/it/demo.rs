//! The command `demo --fast` as a process, writing to a pipe and to a terminal.

use std::fs::File;
use std::io::Read;
use std::process::{Command, Stdio};

use nix::pty::{Winsize, openpty};

const N_CHAPTERS: usize = 7;

fn demo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_replicaset-controller"));
    command
        .args(["demo", "--fast"])
        .env_remove("RUST_LOG")
        .env_remove("NO_COLOR")
        .env("LC_ALL", "C.UTF-8")
        .env("TERM", "xterm")
        .stdin(Stdio::null());
    command
}

#[test]
fn a_pipe_gets_plain_lines_and_all_chapters_pass() {
    let output = demo().output().expect("the binary runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(!stdout.contains('\x1b'), "{stdout}");
    for number in 1..=N_CHAPTERS {
        let headline = format!(" s  {number}/{N_CHAPTERS} ");
        assert!(stdout.contains(&headline), "{number} is missing:\n{stdout}");
    }
    assert_eq!(stdout.matches(" s    ok: ").count(), N_CHAPTERS, "{stdout}");
    for figure in ["pods created", "pods deleted", "seconds", "API requests"] {
        assert!(stdout.contains(figure), "{figure} is missing:\n{stdout}");
    }
    assert_eq!(stderr, "");
    assert!(
        stdout.starts_with("This process runs an API server"),
        "{stdout}"
    );
    let way_on = format!("  {} dev ", env!("CARGO_BIN_EXE_replicaset-controller"));
    assert!(stdout.contains(&way_on), "{stdout}");
}

#[test]
fn a_terminal_gets_a_table_that_is_erased_at_the_end() {
    let size = Winsize {
        ws_row: 40,
        ws_col: 160,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let terminal = openpty(&size, None).expect("a pseudo-terminal");
    let mut child = demo()
        .env("NO_COLOR", "1")
        .stdout(terminal.slave)
        .spawn()
        .expect("the binary runs");
    let mut bytes = Vec::new();
    // Linux returns EIO once the last process has closed the terminal; the bytes read so far
    // remain.
    File::from(terminal.master)
        .read_to_end(&mut bytes)
        .unwrap_or_default();
    let status = child.wait().expect("the process can be reaped");
    let text = String::from_utf8_lossy(&bytes);
    assert!(status.success(), "{text}");
    assert!(
        !text.contains("\x1b[3") && text.contains("LAST EVENT"),
        "{text}"
    );
    let screen = screen(&text);
    let marks = screen.iter().filter(|line| line.starts_with('✓')).count();
    assert_eq!(marks, N_CHAPTERS, "{}", screen.join("\n"));
    let has_table = screen.iter().any(|line| line.contains("LAST EVENT"));
    assert!(!has_table, "{}", screen.join("\n"));
}

/// Renders the output as a terminal of sufficient size would show it.
fn screen(text: &str) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0, 0);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\n' => {
                row += 1;
                if row == lines.len() {
                    lines.push(Vec::new());
                }
            }
            '\r' => column = 0,
            '\x1b' => {
                let (mut count, mut letter) = (0, None);
                for character in characters.by_ref().skip(1) {
                    let Some(digit) = character.to_digit(10) else {
                        letter = Some(character);
                        break;
                    };
                    count = count * 10 + digit as usize;
                }
                match letter {
                    Some('A') => row -= count,
                    Some('K') => lines[row].truncate(column),
                    Some('J') => {
                        lines[row].truncate(column);
                        lines.truncate(row + 1);
                    }
                    other => panic!("an unknown sequence {other:?}"),
                }
            }
            character => {
                if lines[row].len() <= column {
                    lines[row].resize(column + 1, ' ');
                }
                lines[row][column] = character;
                column += 1;
            }
        }
    }
    lines.into_iter().map(String::from_iter).collect()
}
