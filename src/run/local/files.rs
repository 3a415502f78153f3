//! The files of `dev`: documents of objects in YAML or JSON, which the main thread reads at the
//! start and writes at the end, and the kubeconfig. A file is written as a whole or not at all.
//! Only the user can read it, and another user with write access to the directory cannot redirect
//! the write.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use serde_json::{Value, json};

/// Readable for the user only.
const MODE: u32 = 0o600;

/// Replaces `path` with a new file that holds `text`. Replaces a symbolic link instead of following
/// it.
///
/// # Errors
/// If the file cannot be written. `path` is then unchanged.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".unfinished");
    // A file of an earlier run, or a link of another user.
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(MODE)
        .open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    // ORDER: after a power failure, a rename before the contents would leave an empty file.
    file.sync_all()?;
    fs::rename(&unfinished, path)
}

/// The first line of every file that this command writes. It overwrites no other file.
const MARK: &str = "# Written by replicaset-controller dev; it may be overwritten.";

/// Writes a kubeconfig for the server at `url`.
///
/// # Errors
/// If the file exists and is not from this command, such as a kubeconfig with credentials, or if it
/// cannot be written.
pub(super) fn write_kubeconfig(path: &Path, url: &str) -> io::Result<()> {
    // The target of a link can belong to another user, whatever its first line is.
    if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) {
        let why = "it is a symbolic link; name a regular file";
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    match fs::read(path) {
        Ok(text) if !text.starts_with(MARK.as_bytes()) && !text.is_empty() => {
            let why = "the file exists and is not from this command; name another file";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    replace(path, &kubeconfig_text(url))
}

/// JavaScript's client takes plain HTTP only from a cluster whose certificate is not verified.
/// One field a line, since scripts read the address by its line.
fn kubeconfig_text(url: &str) -> String {
    format!(
        "{MARK}
apiVersion: v1
kind: Config
clusters:
- cluster:
    insecure-skip-tls-verify: true
    server: \"{url}\"
  name: dev
users:
- name: dev
  user: {{}}
contexts:
- context:
    cluster: dev
    namespace: default
    user: dev
  name: dev
current-context: dev
"
    )
}

/// One object and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Document {
    /// Such as `pods.yaml, document 2, item 3`.
    pub(super) origin: String,
    pub(super) object: Value,
}

/// Reads all documents of the files and directories. Also returns a line for each file that cannot
/// be read and for each document that is neither YAML nor JSON. With `may_lack` a missing file
/// counts as empty.
pub(super) fn read(paths: &[PathBuf], may_lack: bool) -> (Vec<Document>, Vec<String>) {
    let (mut documents, mut errors) = (Vec::new(), Vec::new());
    for path in paths {
        let files = match files_of(path) {
            Ok(files) => files,
            Err(error) => {
                errors.push(format!("{}: {error}", path.display()));
                continue;
            }
        };
        for file in files {
            let name = file.display().to_string();
            match fs::read_to_string(&file) {
                Ok(text) => {
                    let (found, wrong) = parse(&name, &text);
                    documents.extend(found);
                    errors.extend(wrong);
                }
                Err(error) if may_lack && error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => errors.push(format!("{name}: {error}")),
            }
        }
    }
    (documents, errors)
}

/// Writes the objects to a file: as one JSON list if its name ends in `.json`, otherwise as YAML
/// documents. The file is replaced as a whole or not at all.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(path: &Path, objects: &[Value]) -> io::Result<()> {
    let text = if is_json(path) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let text = serde_json::to_string_pretty(&list).map_err(io::Error::other)?;
        format!("{text}\n")
    } else {
        let documents = objects.iter().map(serde_saphyr::to_string);
        let documents: Result<Vec<String>, _> = documents.collect();
        documents.map_err(io::Error::other)?.join("---\n")
    };
    replace(path, &text)
}

fn is_json(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "json")
}

/// Returns the file itself, or the YAML and JSON files of a directory, sorted by name.
fn files_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        let extension = file.extension().and_then(|extension| extension.to_str());
        if file.is_file() && matches!(extension, Some("yaml" | "yml" | "json")) {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

/// Returns the valid documents of a file, and the errors of the others.
fn parse(name: &str, text: &str) -> (Vec<Document>, Vec<String>) {
    let (mut documents, mut errors) = (Vec::new(), Vec::new());
    // Text that is not JSON may be YAML in flow style.
    let json: Result<Vec<Value>, _> = serde_json::Deserializer::from_str(text)
        .into_iter()
        .collect();
    let values: Vec<Result<Value, String>> = match json {
        Ok(values) => values.into_iter().map(Ok).collect(),
        Err(error) if is_json(Path::new(name)) => vec![Err(error.to_string())],
        Err(_) => {
            let pieces = pieces(text).into_iter();
            pieces
                .map(|piece| serde_saphyr::from_str(&piece).map_err(|error| first_line(&error)))
                .collect()
        }
    };
    for (index, value) in values.into_iter().enumerate() {
        let origin = format!("{name}, document {}", index + 1);
        match value {
            Ok(Value::Object(map)) => take_apart(&origin, Value::Object(map), &mut documents),
            Ok(_) => errors.push(format!("{origin}: expected an object")),
            Err(error) => errors.push(format!("{origin}: {error}")),
        }
    }
    (documents, errors)
}

fn first_line(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("error: ").to_owned()
}

/// Splits a text into its YAML documents that are not empty. Empty lines replace the text before
/// each document, so that error messages have the file's line numbers.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    for (number, line) in text.lines().enumerate() {
        let is_separator = line == "---" || line.starts_with("--- ") || line == "...";
        if is_separator {
            pieces.push("\n".repeat(number));
        }
        if let Some(piece) = pieces.last_mut() {
            let content = line.strip_prefix("---").unwrap_or(line);
            piece.push_str(if is_separator {
                content.trim_start_matches("...")
            } else {
                line
            });
            piece.push('\n');
        }
    }
    pieces.retain(|piece| {
        let mut lines = piece.lines().map(str::trim);
        lines.any(|line| !line.is_empty() && !line.starts_with('#'))
    });
    pieces
}

/// Splits a list into its items. An item without a kind gets the list's.
fn take_apart(origin: &str, object: Value, documents: &mut Vec<Document>) {
    let kind = object["kind"].as_str().unwrap_or_default();
    let (Some(item_kind), Some(items)) = (kind.strip_suffix("List"), object["items"].as_array())
    else {
        let origin = origin.to_owned();
        documents.push(Document { origin, object });
        return;
    };
    for (index, item) in items.iter().enumerate() {
        let mut item = item.clone();
        if let Some(map) = item.as_object_mut()
            && !item_kind.is_empty()
        {
            map.entry("kind").or_insert_with(|| json!(item_kind));
            map.entry("apiVersion")
                .or_insert_with(|| object["apiVersion"].clone());
        }
        take_apart(&format!("{origin}, item {}", index + 1), item, documents);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use serde_json::{Value, json};

    use super::{Document, parse, read, replace, write, write_kubeconfig};
    use crate::client::{ClientConfig, ConfigSource};

    #[test]
    fn a_new_file_is_the_users_alone_and_follows_no_link() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("victim"), "as it was").expect("there is room");
        for link in ["state", "state.unfinished"] {
            symlink(path("victim"), path(link)).expect("there is room");
        }
        for text in ["first", "second"] {
            replace(&path("state"), text).expect("there is room");
            assert_eq!(
                fs::read_to_string(path("state")).expect("it is there"),
                text
            );
        }
        let metadata = fs::symlink_metadata(path("state")).expect("it is there");
        assert!(metadata.is_file());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
        let victim = fs::read_to_string(path("victim")).expect("it is there");
        assert_eq!(victim, "as it was");
        assert!(!path("state.unfinished").exists());
    }

    #[test]
    fn it_is_read_back_and_only_its_own_is_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        for port in [1, 2] {
            let url = format!("http://127.0.0.1:{port}");
            write_kubeconfig(&path, &url).expect("a new file, or its own");
            let config = ClientConfig::load(&ConfigSource {
                kubeconfig: Some(path.clone()),
                ..ConfigSource::default()
            });
            let config = config.expect("a good kubeconfig");
            assert!(config.server().starts_with(&url), "{}", config.server());
        }
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("there is room");
        write_kubeconfig(&link, "http://127.0.0.1:4").expect_err("it is a link");
        fs::write(&path, "apiVersion: v1\n").expect("a file of a user");
        write_kubeconfig(&path, "http://127.0.0.1:3").expect_err("it is not its own");
        let text = fs::read_to_string(&path).expect("it is there");
        assert_eq!(text, "apiVersion: v1\n");
    }

    fn origins(documents: &[Document]) -> Vec<(&str, &str)> {
        let documents = documents.iter().map(|document| {
            let name = document.object["name"].as_str();
            (document.origin.as_str(), name.unwrap_or("-"))
        });
        documents.collect()
    }

    #[test]
    fn documents_and_lists_are_taken_apart() {
        let text = "# only a comment\n---\nname: a\n---\n\n---\nkind: PodList\napiVersion: v1\n\
                    items:\n- name: b\n- {name: c, kind: Other}\n";
        let (documents, errors) = parse("f", text);
        assert_eq!(errors, [""; 0]);
        let expected = [
            ("f, document 1", "a"),
            ("f, document 2, item 1", "b"),
            ("f, document 2, item 2", "c"),
        ];
        assert_eq!(origins(&documents), expected);
        assert_eq!(documents[1].object["kind"], json!("Pod"));
        assert_eq!(documents[2].object["kind"], json!("Other"));
        let (documents, errors) = parse("f", r#"{"name": "x"} {"name": "y"}"#);
        assert_eq!((documents.len(), errors.len()), (2, 0));
    }

    #[test]
    fn yaml_in_flow_style_is_read() {
        let text =
            "{apiVersion: v1, kind: Namespace, name: a}\n---\n{\"name\": \"b\"}\n---\nname: c\n";
        let (documents, errors) = parse("f", text);
        assert_eq!(errors, [""; 0]);
        let expected = [
            ("f, document 1", "a"),
            ("f, document 2", "b"),
            ("f, document 3", "c"),
        ];
        assert_eq!(origins(&documents), expected);
        assert_eq!(parse("f.json", "{name: a}").1.len(), 1);
        assert_eq!(parse("f", "{name: a").1.len(), 1);
    }

    #[test]
    fn errors_name_file_document_and_line_all_at_once() {
        let text = "name: a\n---\nname: [b\n---\njust words\n---\nname: d\n";
        let (documents, errors) = parse("f.yaml", text);
        assert_eq!(documents.len(), 2);
        assert!(errors[0].starts_with("f.yaml, document 2: "), "{errors:?}");
        assert_eq!(errors[1], "f.yaml, document 3: expected an object");
        let missing = read(
            &["/nonexistent/x.yaml".into(), "/nonexistent/y".into()],
            false,
        );
        assert_eq!((missing.0.len(), missing.1.len()), (0, 2));
        assert_eq!(
            read(&["/nonexistent/x.yaml".into()], true),
            (Vec::new(), Vec::new())
        );
    }

    #[test]
    fn what_is_written_is_read_back_from_yaml_and_json_and_folders() {
        let folder = tempfile::tempdir().expect("a folder");
        let objects = [
            json!({"kind": "Pod", "text": "yes", "number": "007", "empty": "", "none": null,
                "lines": "a\n---\nb: 'c'\n", "float": 1.5, "list": [], "map": {}}),
            json!({"kind": "Pod", "nested": [{"a": {"b": [true, -3, "- x", "#", "0x1f", "~"]}}]}),
        ];
        for name in ["b.yaml", "a.json"] {
            write(&folder.path().join(name), &objects).expect("a file");
        }
        fs::write(folder.path().join("note.txt"), "not read").expect("a file");
        let (documents, errors) = read(&[folder.path().to_owned()], false);
        assert_eq!(errors, [""; 0]);
        let found: Vec<&Value> = documents.iter().map(|document| &document.object).collect();
        let expected: Vec<&Value> = objects.iter().chain(&objects).collect();
        assert_eq!(found, expected);
        assert!(documents[0].origin.ends_with("a.json, document 1, item 1"));
    }
}
