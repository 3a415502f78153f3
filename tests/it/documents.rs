//! The documents: README stays short, and every relative link leads to a file and a heading that
//! exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::tidy::{COLUMNS_MAX, root};

/// Longest README, in lines and in bytes: it is read before anything else.
const README_MAX: (usize, usize) = (150, 12 * 1024);

/// Folders whose Markdown files are checked, from the root.
const FOLDERS: &[&str] = &[
    "",
    "src/manual",
    "tests",
    "tests/bench",
    "tests/control-plane",
    "tests/records",
    "tests/upstream",
];

fn documents() -> Vec<PathBuf> {
    let files = FOLDERS.iter().flat_map(|folder| {
        let entries = fs::read_dir(root().join(folder)).expect("a readable folder");
        entries.map(|entry| entry.expect("a readable entry").path())
    });
    let markdown = files.filter(|path| path.extension().is_some_and(|it| it == "md"));
    let mut markdown: Vec<PathBuf> = markdown.collect();
    markdown.sort();
    markdown
}

/// The text of a document.
pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines outside code blocks, with their numbers from 1.
pub(crate) fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut is_code = false;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        } else if !is_code {
            lines.push((number, line));
        }
    }
    lines
}

/// The targets of `[text](target)` in a document.
fn links(text: &str) -> Vec<String> {
    let lines: Vec<&str> = prose(text).into_iter().map(|(_, line)| line).collect();
    let parts = lines.join("\n");
    let targets = parts.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')'));
    targets.map(|(target, _)| target.to_owned()).collect()
}

/// The anchors of a document's headings, as GitHub derives them.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).into_iter().map(|(_, line)| line);
    let headings = headings.filter(|line| line.starts_with('#'));
    let anchor = |heading: &str| {
        let title = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(anchor).collect()
}

/// What is wrong with the link `target` in the document at `from`.
fn problem(from: &Path, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => from.to_owned(),
        _ => from.parent().expect("a folder").join(file),
    };
    if !path.exists() {
        return Some(format!("{}: no file {target}", from.display()));
    }
    let is_document = path.extension().is_some_and(|it| it == "md");
    if is_document && !anchor.is_empty() && !anchors(&read(&path)).contains(&anchor.to_owned()) {
        return Some(format!("{}: no heading {target}", from.display()));
    }
    None
}

#[test]
fn relative_links_resolve() {
    let mut problems = Vec::new();
    for document in documents() {
        for target in links(&read(&document)) {
            if !target.contains("://") {
                problems.extend(problem(&document, &target));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_readme_is_short() {
    let readme = read(&root().join("README.md"));
    let size = (readme.lines().count(), readme.len());
    assert!(
        size.0 <= README_MAX.0 && size.1 <= README_MAX.1,
        "README has {size:?} lines and bytes, at most {README_MAX:?}"
    );
}

#[test]
fn readme_lines_fit_100_columns() {
    let readme = read(&root().join("README.md"));
    let is_long = |line: &&str| line.chars().count() > COLUMNS_MAX && !line.starts_with('|');
    let long: Vec<&str> = readme.lines().filter(is_long).collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// The lines of `wc --bytes` in the transcripts of `make test-packages`: the size of each artefact.
#[test]
fn the_manual_has_the_sizes_of_the_tested_packages() {
    let manual = read(&root().join("src/manual/install.md"));
    let mut sizes = Vec::new();
    for part in ["tarballs", "deb"] {
        let transcript = read(&root().join(format!("tests/records/packages-{part}.txt")));
        let lines = transcript.lines().map(str::trim);
        let files = lines.filter_map(|line| line.split_once(" target/"));
        let bytes = files.filter(|(bytes, _)| bytes.bytes().all(|byte| byte.is_ascii_digit()));
        sizes.extend(bytes.map(|(bytes, _)| with_commas(bytes)));
    }
    assert_eq!(sizes.len(), 6, "{sizes:?}");
    for size in sizes {
        assert!(manual.contains(&size), "install.md lacks the size {size}");
    }
}

fn with_commas(digits: &str) -> String {
    let mut text = digits.to_owned();
    let mut at = digits.len();
    while at > 3 {
        at -= 3;
        text.insert(at, ',');
    }
    text
}

/// The names of functions in all Rust files below a folder.
fn functions(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            functions(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let text = read(&path);
            let names = text
                .split("fn ")
                .skip(1)
                .filter_map(|rest| rest.split_once('('));
            found.extend(names.map(|(name, _)| name.to_owned()));
        }
    }
}

#[test]
fn the_covering_tests_of_hazards_exist() {
    let mut known = BTreeSet::new();
    for folder in ["src", "tests"] {
        functions(&root().join(folder), &mut known);
    }
    let (mut n_named, mut missing) = (0, Vec::new());
    for page in documents() {
        let text = read(&page);
        let headings = ["\n## Hazards", "\n## What a user of one namespace can cost"];
        let sections = headings.map(|heading| text.split_once(heading));
        let Some((_, section)) = sections.into_iter().flatten().next() else {
            continue;
        };
        let rows = section.lines().take_while(|line| !line.starts_with("## "));
        for row in rows.filter(|line| line.starts_with('|')) {
            let last = row
                .trim_end_matches('|')
                .rsplit('|')
                .next()
                .unwrap_or_default();
            let quoted = last.split('`').skip(1).step_by(2);
            for name in quoted.filter(|name| name.contains('_')) {
                n_named += 1;
                let name = name.rsplit("::").next().unwrap_or_default();
                if !known.contains(name) {
                    missing.push(format!("{}: {name}", page.display()));
                }
            }
        }
    }
    assert_eq!(missing, [""; 0]);
    assert!(n_named > 20, "only {n_named} tests are named");
}
