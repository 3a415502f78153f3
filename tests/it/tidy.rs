//! Rules of this repository that the compiler does not check: imports between modules, sizes,
//! banned calls, and that no async runtime is in the shipped binary.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Which modules a module may use. `lib.rs` shows this table to people.
const MAY_USE: &[(&str, &[&str])] = &[
    ("api", &[]),
    ("stdx", &[]),
    ("cli", &["api", "stdx"]),
    ("manual", &[]),
    ("telemetry", &["stdx"]),
    ("workqueue", &["stdx", "telemetry"]),
    ("batches", &["stdx"]),
    ("client", &["api", "stdx", "telemetry"]),
    ("http_server", &["api", "stdx"]),
    (
        "serving",
        &["api", "client", "http_server", "stdx", "telemetry"],
    ),
    ("devserver", &["api", "http_server", "stdx"]),
    ("cache", &["api", "client", "stdx"]),
    ("leader_election", &["api", "client", "stdx", "telemetry"]),
    ("rights", &["api", "client", "live", "stdx", "telemetry"]),
    ("live", &["api", "client", "stdx", "writes"]),
    ("event_recorder", &["api", "client", "stdx"]),
    ("writes", &["api", "client", "event_recorder", "stdx"]),
    (
        "deployment",
        &[
            "api",
            "cache",
            "client",
            "event_recorder",
            "stdx",
            "workqueue",
        ],
    ),
    (
        "controller",
        &[
            "api",
            "batches",
            "cache",
            "live",
            "stdx",
            "telemetry",
            "workqueue",
            "writes",
        ],
    ),
    (
        "explain",
        &[
            "api",
            "cache",
            "client",
            "controller",
            "deployment",
            "live",
            "rights",
            "stdx",
            "workqueue",
        ],
    ),
    (
        "manager",
        &[
            "api",
            "batches",
            "cache",
            "client",
            "controller",
            "deployment",
            "event_recorder",
            "leader_election",
            "live",
            "rights",
            "serving",
            "stdx",
            "telemetry",
            "workqueue",
            "writes",
            "explain",
            "http_server",
        ],
    ),
    (
        "run",
        &[
            "api",
            "cache",
            "cli",
            "client",
            "controller",
            "deployment",
            "devserver",
            "leader_election",
            "explain",
            "manager",
            "rights",
            "serving",
            "stdx",
            "telemetry",
        ],
    ),
];

/// Banned texts, with the files in which they are allowed.
const BANNED: &[(&str, &[&str])] = &[
    ("std::thread::spawn(", &[]),
    ("thread::Builder::new(", &[]),
    ("Builder::new().name(", &["src/kubernetes/stdx/thread.rs"]),
    ("println!(", &[]),
    ("todo!(", &[]),
    ("unimplemented!(", &[]),
    // Other files use what these import, so that the table of modules covers it.
    (
        "use kubernetes::",
        &[
            "src/lib.rs",
            "src/deployment/lib.rs",
            "src/devserver/lib.rs",
        ],
    ),
    ("TODO", &[]),
    ("FIXME", &[]),
    ("#[ignore", &[]),
    ("#[should_panic", &[]),
    ("thread::sleep(", &[]),
    // What only Linux has is in three files, each with a branch for other systems; the simulation's
    // scheduler needs Linux. Facts from a file below /proc are omitted where it does not exist.
    ("TcpUserTimeout", &["src/kubernetes/client/fence.rs"]),
    ("TcpKeepIdle", &["src/kubernetes/client/tcp.rs"]),
    ("CLOCK_BOOTTIME", &["src/kubernetes/stdx/clock.rs"]),
    ("nix::sched", &["src/kubernetes/stdx/turns/simulation.rs"]),
    ("os::linux", &[]),
    ("gettid", &[]),
    ("signalfd", &[]),
    ("epoll", &[]),
];

/// Non-test lines above which a file is two modules.
const FILE_LINES_MAX: usize = 800;

/// Half of the files have at least this many lines: a file holds an idea with its state.
const FILE_LINES_MEDIAN_MIN: usize = 180;

/// Maximum characters of a line.
pub(crate) const COLUMNS_MAX: usize = 100;

/// Maximum characters of a function's name, tests included.
const NAME_LENGTH_MAX: usize = 60;

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below `folder`, with their paths from the root and their texts.
pub(crate) fn rust_files(folder: &str) -> Vec<(String, String)> {
    fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
        let entries = fs::read_dir(folder).expect("a readable folder");
        for path in entries.map(|entry| entry.expect("a readable entry").path()) {
            if path.is_dir() {
                collect(&path, files);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    let mut files = Vec::new();
    collect(&root().join(folder), &mut files);
    files.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a readable file");
        let name = path
            .strip_prefix(root())
            .expect("below the root")
            .display()
            .to_string();
        (name, text)
    };
    files.into_iter().map(read).collect()
}

fn is_test_file(name: &str) -> bool {
    name.contains("tests") || name.contains("testing")
}

#[track_caller]
pub(crate) fn assert_none(what: &str, offences: &[String]) {
    assert!(offences.is_empty(), "{what}:\n{}", offences.join("\n"));
}

#[test]
fn every_file_states_its_purpose() {
    let files = [rust_files("src"), rust_files("tests")].concat();
    let silent = files.iter().filter(|(_, text)| !text.starts_with("//!"));
    let silent: Vec<String> = silent.map(|(name, _)| name.clone()).collect();
    assert_none("files that do not open with //!", &silent);
}

/// The tests of a file that no module declares are not compiled.
#[test]
fn every_file_is_a_module() {
    let files = ["src", "tests/it"].into_iter().flat_map(rust_files);
    let files: BTreeMap<String, String> = files.collect();
    let is_lost = |name: &&String| {
        let (folder, file) = name.rsplit_once('/').expect("a folder");
        let parents = [".rs", "/lib.rs", "/main.rs"].map(|end| format!("{folder}{end}"));
        let declaration = format!("mod {};", file.trim_end_matches(".rs"));
        let mut parents = parents.iter().filter_map(|parent| files.get(parent));
        !matches!(file, "lib.rs" | "main.rs") && !parents.any(|text| text.contains(&declaration))
    };
    let lost: Vec<String> = files.keys().filter(is_lost).cloned().collect();
    assert_none("no module declares", &lost);
}

#[test]
fn modules_use_only_what_they_may() {
    let mut offences = Vec::new();
    for (name, text) in rust_files("src") {
        let path = name.trim_start_matches("src/");
        let path = path.trim_start_matches("kubernetes/");
        let module = path.split(['/', '.']).next().unwrap_or_default();
        if matches!(module, "lib" | "main" | "fuzzing") || is_test_file(&name) {
            continue;
        }
        let allowed = MAY_USE.iter().find(|(of, _)| *of == module);
        let Some((_, allowed)) = allowed else {
            offences.push(format!("{name}: module {module} is not in the table"));
            continue;
        };
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        for used in code.flat_map(|line| line.split("crate::").skip(1)) {
            let used = used
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            let used = used.unwrap_or_default();
            // The modules of a package; the next test draws their order.
            let is_package = matches!(module, "deployment" | "devserver");
            let is_own = is_package && MAY_USE.iter().all(|(of, _)| *of != used);
            if used != module && !is_own && !allowed.contains(&used) {
                offences.push(format!("{name}: {module} may not use {used}"));
            }
        }
    }
    assert_none("arrows that the table does not allow", &offences);
}

/// The paths below `crate` that a text names, with the groups of imports taken apart.
fn paths_in(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for rest in code.split("crate::").skip(1) {
        let mut prefixes = vec![String::new()];
        let mut path = String::new();
        for c in rest.chars().filter(|c| !c.is_whitespace()) {
            match c {
                '{' => prefixes.push(std::mem::take(&mut path)),
                ',' | '}' if prefixes.len() > 1 => {
                    paths.push(prefixes.concat() + &std::mem::take(&mut path));
                    if c == '}' {
                        prefixes.pop();
                    }
                }
                c if c.is_alphanumeric() || matches!(c, '_' | ':') => path.push(c),
                _ => break,
            }
        }
        paths.push(prefixes.concat() + &path);
    }
    paths
}

/// The files below a folder that each file uses or declares as its modules. Names are module paths.
fn uses(folder: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut texts = BTreeMap::new();
    for (name, text) in rust_files(folder) {
        let module = name.trim_start_matches(folder).trim_start_matches('/');
        let module = module.trim_end_matches(".rs").replace('/', "::");
        if !is_test_file(&name) && module != "lib" {
            let code = text
                .lines()
                .take_while(|line| !line.starts_with("mod tests {"));
            let code = code.filter(|line| !line.trim_start().starts_with("//"));
            texts.insert(module, code.collect::<Vec<_>>().join("\n"));
        }
    }
    let longest = |path: &str| {
        let is_in = |module: &&String| {
            let rest = path.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        texts.keys().filter(is_in).max_by_key(|module| module.len())
    };
    let used_by = |module: &String, code: &String| {
        let declared = code.lines().filter_map(|line| {
            let line = line.trim_end().strip_suffix(';')?;
            let (_, name) = line.split_once("mod ")?;
            Some(format!("{module}::{name}"))
        });
        let paths = paths_in(code).into_iter().chain(declared);
        let modules = paths.filter_map(|path| longest(&path).cloned());
        modules.filter(|used| used != module).collect()
    };
    let all = texts.iter();
    all.map(|(module, code)| (module.clone(), used_by(module, code)))
        .collect()
}

/// Data flows one way: what a file uses, directly or through others, never uses the file.
#[test]
fn the_files_of_the_dev_server_have_an_order() {
    let mut uses = uses("src/devserver");
    assert!(
        uses["store"].contains("resource"),
        "the files are read wrongly"
    );
    while let Some(last) = uses.iter().find(|(_, used)| used.is_empty()) {
        let last = last.0.clone();
        uses.remove(&last);
        for used in uses.values_mut() {
            used.remove(&last);
        }
    }
    let left: Vec<String> = uses
        .iter()
        .map(|(module, used)| format!("{module} uses {used:?}"))
        .collect();
    assert_none("files in circles, or above one", &left);
}

#[test]
fn files_are_neither_large_nor_small() {
    let mut offences = Vec::new();
    let mut sizes = Vec::new();
    for (name, text) in rust_files("src") {
        let lines = text
            .lines()
            .take_while(|line| !line.starts_with("mod tests {"))
            .count();
        if is_test_file(&name) {
            continue;
        }
        sizes.push(lines);
        if lines > FILE_LINES_MAX {
            offences.push(format!("{name}: {lines} lines"));
        }
    }
    assert_none("files that are two modules", &offences);
    sizes.sort_unstable();
    let median = sizes[sizes.len() / 2];
    assert!(
        median >= FILE_LINES_MEDIAN_MIN,
        "half of the files have less than {median} lines: merge small ones with what they serve"
    );
}

/// A longer name is a riddle or two tests.
#[test]
fn names_are_short() {
    let mut offences = Vec::new();
    for (file, text) in [rust_files("src"), rust_files("tests")].concat() {
        let names = text.lines().filter_map(|line| {
            let (_, rest) = line.split_once("fn ")?;
            rest.split(['(', '<']).next()
        });
        let long = names.filter(|name| name.len() > NAME_LENGTH_MAX && !name.contains(' '));
        offences.extend(long.map(|name| format!("{file}: {name}")));
    }
    assert_none("names of more than 60 characters", &offences);
}

/// A line that is nothing but a string is what a terminal shows, and stays whole.
#[test]
fn lines_are_short() {
    let mut offences = Vec::new();
    for (name, text) in [rust_files("src"), rust_files("tests")].concat() {
        for (number, line) in (1..).zip(text.lines()) {
            if line.chars().count() > COLUMNS_MAX && !line.trim_start().starts_with('"') {
                offences.push(format!("{name}:{number}"));
            }
        }
    }
    assert_none("lines of more than 100 columns", &offences);
}

#[test]
fn nothing_banned_is_used() {
    let mut offences = Vec::new();
    for (name, text) in [rust_files("src"), rust_files("tests")].concat() {
        if name.ends_with("tidy.rs") {
            continue;
        }
        for (banned, excepted) in BANNED {
            if text.contains(banned) && !excepted.contains(&name.as_str()) {
                offences.push(format!("{name}: {banned}"));
            }
        }
    }
    assert_none("banned calls and debugging remains", &offences);
}

/// The crates and features of a build with `flags`, by `edges` to dependencies.
fn features_of(edges: &str, flags: &[&str]) -> String {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args(["tree", "--locked", "--offline", "--prefix", "none"])
        .args(["--edges", edges])
        .args(flags)
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    String::from_utf8(tree.stdout).expect("text")
}

/// Only tests have the seams of the simulation and the faults of the dev server: packages ask for
/// them as a dev-dependency, and no verb and no script turns them on.
#[test]
fn no_build_but_of_tests_has_the_simulation() {
    let seams = [
        "kubernetes feature \"simulation\"",
        "devserver feature \"faults\"",
    ];
    let of_tests = features_of("features,all", &["--workspace"]);
    for seam in seams {
        assert!(of_tests.contains(seam), "the tree is read wrongly: {seam}");
    }
    for flags in [
        ["--workspace"].as_slice(),
        &["--all-features", "--package", "replicaset-controller"],
        &[
            "--no-default-features",
            "--package",
            "replicaset-controller",
        ],
    ] {
        let of_build = features_of("features,normal,build", flags);
        let found = seams.iter().find(|seam| of_build.contains(**seam));
        assert_eq!(found, None, "{flags:?}");
    }
    let mut scripts = vec!["Makefile".to_owned(), ".ci/run".to_owned()];
    let packages = fs::read_dir(root().join("config/packages")).expect("a folder");
    let packages = packages.map(|entry| entry.expect("a readable entry"));
    let files = packages.filter(|entry| entry.path().is_file());
    scripts.extend(files.map(|file| {
        let name = file.file_name();
        format!("config/packages/{}", name.to_string_lossy())
    }));
    scripts.retain(|file| {
        let text = fs::read_to_string(root().join(file)).expect("a readable file");
        text.contains("--all-features") || text.contains("features simulation")
    });
    assert_none("scripts that build with the simulation", &scripts);
}

#[test]
fn no_async_runtime_is_in_the_binary() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args([
            "tree",
            "--locked",
            "--offline",
            "--edges",
            "normal",
            "--prefix",
            "none",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let tree = String::from_utf8_lossy(&tree.stdout);
    assert!(
        tree.lines().any(|line| line.starts_with("ureq ")),
        "the tree is read wrongly"
    );
    let runtimes = ["tokio", "async-std", "smol", "hyper", "futures-executor"];
    let crates = tree.lines().filter_map(|line| line.split(' ').next());
    let found: Vec<String> = crates
        .filter(|name| runtimes.contains(name))
        .map(str::to_owned)
        .collect();
    assert_none("async runtimes in cargo tree", &found);
}

/// The opt-ins, and their own observers.
const OPT_INS: [&str; 3] = [
    "src/controller/decide/optional",
    "src/controller/warnings.rs",
    "src/controller/act/old_failed_pods.rs",
];

/// What only [`OPT_INS`] name.
const OF_OPT_INS: [&str; 7] = [
    "optional::failed_pods",
    "optional::order",
    "optional::protection",
    "effects.back_off",
    "effects.block",
    "effects.old_failed_pods",
    "scale_down_protection",
];

#[test]
fn the_core_names_no_single_opt_in() {
    let mut offences = Vec::new();
    for (name, text) in rust_files("src/controller") {
        if !is_test_file(&name) && !OPT_INS.iter().any(|it| name.starts_with(it)) {
            let named = OF_OPT_INS.iter().filter(|word| text.contains(**word));
            offences.extend(named.map(|word| format!("{name}: {word}")));
        }
    }
    assert_none("names of opt-ins outside decide/optional", &offences);
}
