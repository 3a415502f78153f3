//! The configuration file: reads YAML as a tree with the line of each key, turns fields into flags
//! and reports every mistake with its line.

use std::ffi::OsStr;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::DuplicateKeyPolicy;
use serde_saphyr::{Error, Location, Spanned};

use super::{API_VERSION, Argument, FIELDS, FOREIGN, Field, KIND, Layer, Origin, Shape, nearest};

/// Parses the text of the file `path`. Empty values count as absent, as in the configuration that
/// kube-controller-manager exposes.
pub(in crate::cli) fn read(path: &str, text: &str) -> Layer {
    let mut reader = Reader {
        path,
        layer: Layer::default(),
    };
    match read_tree(text) {
        Ok(root) => reader.root(&root),
        Err((line, sentence)) => {
            let at = line.map_or(path.to_owned(), |line| format!("{path}:{line}"));
            reader.layer.mistakes.push(format!("{at}: {sentence}"));
        }
    }
    reader.layer
}

struct Reader<'a> {
    path: &'a str,
    layer: Layer,
}

impl Reader<'_> {
    fn root(&mut self, root: &Node) {
        let at = root.referenced;
        let Value::Map(entries) = &root.value else {
            self.mistake(at, &format!("expected the fields of a {KIND}"));
            return;
        };
        for (name, expected) in [("apiVersion", API_VERSION), ("kind", KIND)] {
            match entries.iter().find(|(key, _)| key.value == name) {
                Some((_, node)) if scalar(node) == Some(expected) => {}
                Some((key, _)) => {
                    self.mistake(key.referenced, &format!("{name}: expected {expected}"));
                }
                None => self.mistake(at, &format!("{name} is missing: expected {expected}")),
            }
        }
        self.map("", entries);
    }

    fn map(&mut self, prefix: &str, entries: &[Entry]) {
        for (at, (key, node)) in entries.iter().enumerate() {
            let path = join(prefix, &key.value);
            let mut before = entries[..at].iter().map(|(key, _)| key);
            if let Some(first) = before.find(|it| it.value.eq_ignore_ascii_case(&key.value)) {
                let first = first.referenced.line();
                let twice = format!("{path} is set twice, first in line {first}");
                self.mistake(key.referenced, &twice);
                continue;
            }
            self.entry(&path, key.referenced, node);
        }
    }

    fn entry(&mut self, path: &str, at: Location, node: &Node) {
        if ["apiVersion", "kind"].contains(&path) {
            return;
        }
        let mut fields = FIELDS.iter();
        if let Some(field) = fields.find(|field| field.path.eq_ignore_ascii_case(path)) {
            self.field(field, node);
            return;
        }
        if FOREIGN
            .lines()
            .any(|foreign| foreign.eq_ignore_ascii_case(path))
        {
            let foreign = format!("{}:{}: {path}", self.path, at.line());
            self.layer.foreign.push(foreign);
            return;
        }
        let is_section = FIELDS.iter().any(|field| is_below(field.path, path));
        match &node.value {
            Value::Map(entries) if is_section => self.map(path, entries),
            Value::Null if is_section => {}
            _ if is_section => self.mistake(at, &format!("{path}: expected a map of fields")),
            _ => {
                let hint = meant_field(path);
                let hint = hint.map_or_else(String::new, |it| format!("; did you mean {it}?"));
                self.mistake(at, &format!("{path} is not a known field{hint}"));
            }
        }
    }

    fn field(&mut self, field: &Field, node: &Node) {
        match value_of(field.shape, &node.value) {
            Ok(None) => {}
            Ok(Some(value)) => {
                let origin = Origin::File {
                    path: self.path.to_owned(),
                    line: node.referenced.line(),
                };
                let argument = Argument::new(field.flag, OsStr::new(&value), origin);
                self.layer.arguments.push(argument);
            }
            Err(expected) => {
                let sentence = format!("{}: expected {expected}", field.path);
                self.mistake(node.referenced, &sentence);
            }
        }
    }

    fn mistake(&mut self, at: Location, sentence: &str) {
        let mistake = format!("{}:{}: {sentence}", self.path, at.line());
        self.layer.mistakes.push(mistake);
    }
}

/// Returns the flag's value, or `None` if the value is empty. The error says what was expected.
fn value_of(shape: Shape, value: &Value) -> Result<Option<String>, &'static str> {
    let given = match (shape, value) {
        (_, Value::Null) => return Ok(None),
        (_, Value::Scalar(text)) => text.clone(),
        (Shape::List, Value::List(items)) => {
            let items: Option<Vec<&str>> = items.iter().map(scalar).collect();
            items.ok_or("a list of names")?.join(",")
        }
        (Shape::Gates, Value::Map(gates)) => {
            let gate = |(key, is_on): &Entry| Some(format!("{}={}", key.value, scalar(is_on)?));
            let gates: Option<Vec<String>> = gates.iter().map(gate).collect();
            gates.ok_or("true or false for each gate")?.join(",")
        }
        (Shape::Text | Shape::Plain, _) => return Err("a single value"),
        (Shape::List, _) => return Err("a list"),
        (Shape::Gates, _) => return Err("a map of gates to true or false"),
    };
    Ok((!given.is_empty()).then_some(given))
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar(text) => Some(text),
        _ => None,
    }
}

fn join(prefix: &str, key: &str) -> String {
    if prefix.is_empty() {
        key.to_owned()
    } else {
        format!("{prefix}.{key}")
    }
}

fn is_below(path: &'static str, section: &str) -> bool {
    let mut sections = sections_of(path);
    sections.any(|of| of.eq_ignore_ascii_case(section))
}

/// Returns the field or section that `path` may mean. Only the last words are compared at first,
/// since the fields of one section resemble each other.
fn meant_field(path: &str) -> Option<&'static str> {
    /// Maximum edits of the last word.
    const EDITS_MAX: usize = 2;
    let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_lowercase();
    let fields = FIELDS.iter().map(|field| field.path);
    let known = fields.clone().chain(fields.flat_map(sections_of));
    let is_near = |it: &&str| strsim::osa_distance(&last(it), &last(path)) <= EDITS_MAX;
    nearest(path, known.filter(is_near))
}

/// Returns the sections of a field: `a` and `a.b` for `a.b.c`.
fn sections_of(path: &'static str) -> impl Iterator<Item = &'static str> + use<> {
    path.match_indices('.').map(|(at, _)| &path[..at])
}

type Node = Spanned<Value>;

type Entry = (Spanned<String>, Node);

/// A value. Scalars stay text; the flag decides which of them are numbers.
#[derive(Debug)]
enum Value {
    Null,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// Parses one document.
fn read_tree(text: &str) -> Result<Node, (Option<u64>, String)> {
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map(|location| location.line());
        if let Error::MultipleDocuments { .. } = error {
            let why = "a second YAML document begins here; the file may have only one";
            return (line, why.to_owned());
        }
        let text = error.to_string();
        let sentence = text.lines().next().unwrap_or_default().to_owned();
        (line, sentence)
    })
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

macro_rules! scalars {
    ($($visit:ident: $of:ty),+) => {
        $(fn $visit<E>(self, value: $of) -> Result<Value, E> {
            Ok(Value::Scalar(value.to_string()))
        })+
    };
}

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    const HEAD: &str = "apiVersion: kubecontrollermanager.config.k8s.io/v1alpha1\n\
                        kind: KubeControllerManagerConfiguration\n";

    #[test]
    fn fields_become_flags_with_their_lines() {
        let text = format!(
            "{HEAD}Generic:\n  ClientConnection: {{qps: 7, Burst: 8}}\n\
             \x20 controllers: ['*', -replicaset]\n\
             \x20 leaderElection:\n    leaderElect: false\n\
             featureGates: {{PodDeletionCost: true}}\n\
             logging:\n  format: json\n  verbosity: ~\n"
        );
        let layer = read("f", &text);
        assert_eq!(layer.mistakes, [""; 0]);
        let arguments: Vec<String> = layer
            .arguments
            .iter()
            .map(|argument| format!("{} {}", argument.origin, argument.word.display()))
            .collect();
        assert_eq!(
            arguments,
            [
                "f:4 --kube-api-qps=7",
                "f:4 --kube-api-burst=8",
                "f:5 --controllers=*,-replicaset",
                "f:7 --leader-elect=false",
                "f:8 --feature-gates=PodDeletionCost=true",
                "f:10 --logging-format=json",
            ]
        );
    }

    #[test]
    fn every_mistake_is_found_with_its_line() {
        let text = "kind: Deployment\ngeneric:\n  clientConnection:\n    qsp: 1\n    qps: 2\n\
                    \x20   qps: 3\n    burst: [1]\n  leaderElection: 7\npods: {dryrun: {}}\n\
                    deploymentController: {}\ngenerik: {}\ngeneric.foo: {}\n";
        let layer = read("f", text);
        let expected = [
            "f:1: apiVersion is missing: expected kubecontrollermanager.config.k8s.io/v1alpha1",
            "f:1: kind: expected KubeControllerManagerConfiguration",
            "f:4: generic.clientConnection.qsp is not a known field; did you mean \
             generic.clientConnection.qps?",
            "f:6: generic.clientConnection.qps is set twice, first in line 5",
            "f:7: generic.clientConnection.burst: expected a single value",
            "f:8: generic.leaderElection: expected a map of fields",
            "f:9: pods.dryRun: expected a single value",
            "f:11: generik is not a known field; did you mean generic?",
            "f:12: generic.foo is not a known field",
        ];
        assert_eq!(layer.mistakes, expected);
        assert_eq!(layer.foreign, ["f:10: deploymentController"]);
    }

    #[test]
    fn a_second_document_is_an_error() {
        let layer = read("f", "a: b\n---\nc: d\n");
        let why = "f:3: a second YAML document begins here; the file may have only one";
        assert_eq!(layer.mistakes, [why]);
    }

    #[test]
    fn an_error_in_yaml_names_the_file() {
        let layer = read("f", "a: b\n  c: [\n");
        assert_eq!(layer.mistakes.len(), 1);
        assert!(layer.mistakes[0].starts_with("f:"), "{:?}", layer.mistakes);
    }
}
