//! The manual against the program: every page is rendered, and the tables and runbooks name what
//! exists. Its links are checked with those of the other documents (`documents`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use replicaset_controller::devserver::behaviour;

use crate::documents::{prose, read};
use crate::tidy::{COLUMNS_MAX, assert_none, root};

const PAGES: &str = "src/manual";

/// Most pages, and most words of all pages, as `wc -w` counts them.
const PAGES_MAX: usize = 12;
const WORDS_MAX: usize = 15_000;

/// The text of a page of the manual.
pub(crate) fn page(name: &str) -> String {
    read(&root().join(PAGES).join(name))
}

fn pages() -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(PAGES)).expect("a readable folder");
    let paths = entries.map(|entry| entry.expect("a readable entry").path());
    let mut pages: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .collect();
    pages.sort();
    pages
}

fn name_of(path: &Path) -> String {
    let below = path.strip_prefix(root()).unwrap_or(path);
    below.display().to_string()
}

#[test]
fn every_page_is_rendered() {
    let module = read(&root().join("src/manual.rs"));
    let files = pages();
    let names = files.iter().filter_map(|path| path.file_name()?.to_str());
    let missing = names.filter(|name| !module.contains(&format!("\"manual/{name}\"")));
    let missing: Vec<String> = missing.map(str::to_owned).collect();
    assert_none("pages that src/manual.rs does not include", &missing);
}

#[test]
fn lines_of_the_manual_are_short() {
    let mut offences = Vec::new();
    for path in pages() {
        for (number, line) in prose(&read(&path)) {
            if line.chars().count() > COLUMNS_MAX && !line.trim_start().starts_with('|') {
                offences.push(format!("{}:{number}", name_of(&path)));
            }
        }
    }
    assert_none("lines of more than 100 columns", &offences);
}

/// An operator reads it to its end.
#[test]
fn the_manual_is_short() {
    let files = pages();
    let n_words: usize = files
        .iter()
        .map(|path| read(path).split_whitespace().count())
        .sum();
    assert!(
        files.len() <= PAGES_MAX && n_words <= WORDS_MAX,
        "the manual has {n_words} words on {} pages",
        files.len()
    );
}

/// Code hosts copy a block as a whole.
#[test]
fn commands_have_no_prompt() {
    let mut offences = Vec::new();
    for path in pages().into_iter().chain([root().join("README.md")]) {
        for (number, line) in read(&path).lines().enumerate() {
            if line.trim_start().starts_with("$ ") {
                offences.push(format!("{}:{}", name_of(&path), number + 1));
            }
        }
    }
    assert_none("commands that cannot be copied", &offences);
}

/// rustdoc compiles a code block without a language as Rust.
#[test]
fn every_code_block_names_its_language() {
    let mut offences = Vec::new();
    for path in pages() {
        let text = read(&path);
        let fences = text
            .lines()
            .filter(|line| line.trim_start().starts_with("```"));
        let openings = fences.step_by(2);
        let n_bare = openings.filter(|line| line.trim() == "```").count();
        if n_bare > 0 {
            offences.push(format!("{}: {n_bare}", name_of(&path)));
        }
    }
    assert_none("pages with code blocks without a language", &offences);
}

#[test]
fn every_annotation_of_the_simulated_nodes_is_in_dev_md() {
    let page = page("dev.md");
    let names = behaviour::ANNOTATIONS.map(|name| name.rsplit('/').next().unwrap_or_default());
    let words = names.into_iter().chain(behaviour::FATES);
    let missing = words.filter(|word| !page.contains(&format!("`{word}`")));
    let missing: Vec<String> = missing.map(str::to_owned).collect();
    assert_none("annotations that dev.md does not list", &missing);
}

#[test]
fn every_alert_has_a_runbook_in_metrics_md() {
    let rules = read(&root().join("config/prometheus-rules.yaml"));
    let alerts = rules
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: BTreeSet<&str> = alerts.collect();
    assert!(!alerts.is_empty(), "the rules are read wrongly");
    let page = page("metrics.md");
    let headings = prose(&page).into_iter();
    let headings = headings.filter_map(|(_, line)| line.strip_prefix("### "));
    let runbooks: BTreeSet<&str> = headings
        .filter(|heading| heading.starts_with("ReplicaSetController"))
        .collect();
    assert_eq!(runbooks, alerts);
    for alert in alerts {
        let section = alert.to_lowercase();
        let annotation = format!("      runbook: manual/metrics.md#{section}\n");
        assert_eq!(rules.matches(&annotation).count(), 1, "{annotation}");
    }
}
