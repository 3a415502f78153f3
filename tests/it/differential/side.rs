//! One of the two servers, and the values in its responses so far: they resolve the references in
//! requests, and normalise its responses so that they are comparable.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};

use replicaset_controller::client::{
    Client, ClientConfig, ClientError, ClientOptions, Request, Response,
};
use replicaset_controller::stdx::stop::Stop;
use serde_json::{Map, Value, json};

use super::step::{Body, Step};

/// A UID that no object has.
pub(super) const NO_UID: &str = "00000000-0000-4000-8000-000000000000";

/// A normalised response.
#[derive(Clone, Debug)]
pub(super) struct ReadResponse {
    /// 0 if there was no response.
    pub(super) code: u16,
    /// The normalised body, or the error if there was no response.
    pub(super) body: Value,
}

/// A server, and the values of its responses.
pub(super) struct Side {
    client: Client,
    memory: Memory,
}

#[derive(Default)]
struct Memory {
    /// Objects as last returned, by path.
    objects: BTreeMap<String, Value>,
    /// The replacement for each UID, which is the same on both sides.
    uids: BTreeMap<String, String>,
    /// Number of objects created so far under each path.
    n_born: BTreeMap<String, usize>,
    /// The latest resource version by UID.
    versions: BTreeMap<String, String>,
    /// All resource versions returned so far.
    all_versions: BTreeSet<String>,
    /// Saved resource versions of lists, by name.
    saved: BTreeMap<String, String>,
    /// Generated names, and their replacements.
    generated: Vec<(String, String)>,
    continue_token: String,
}

impl Side {
    pub(super) fn new(config: &ClientConfig, stop: &Stop) -> Self {
        let options = ClientOptions {
            qps: 0.0,
            ..ClientOptions::default()
        };
        let client = Client::new(config, &options, stop);
        Self {
            client,
            memory: Memory::default(),
        }
    }

    /// Sends a request with its references resolved. Records the values of the response, and
    /// normalises it.
    pub(super) fn send(&mut self, step: &Step) -> ReadResponse {
        // A 429 is a response to compare, not one to wait for.
        let request = self.request(step).once();
        let (code, mut body) = match self.client.send(&request) {
            Ok(Response { code, body }) => (code, parse(&body)),
            Err(ClientError::Status(status)) => {
                let object = serde_json::to_value(status.object());
                (status.code(), object.expect("a status is JSON"))
            }
            Err(error) => (0, json!(error.to_string())),
        };
        self.memory.record(step, &body);
        self.memory.normalise(&mut body, true);
        ReadResponse { code, body }
    }

    /// The normalised events of a watch, up to the event whose object has the name `last`, or whose
    /// type is `last`.
    pub(super) fn watch(&mut self, step: &Step, last: &str) -> Vec<Value> {
        let request = self.request(step);
        let stream = self.client.stream_client().open_watch(&request);
        let stream = match stream {
            Ok(stream) => BufReader::new(stream),
            Err(error) => return vec![json!(error.to_string())],
        };
        let mut events = Vec::new();
        let mut last_version = 0;
        for line in stream.lines().map_while(Result::ok) {
            let mut event: Value = parse(line.as_bytes());
            let metadata = &event["object"]["metadata"];
            let is_last = metadata["name"] == last || event["type"] == last;
            let version = metadata["resourceVersion"].as_str();
            if let Some(version) = version.and_then(|text| text.parse::<u64>().ok()) {
                // A streaming list begins with its objects in the order of their names.
                if !request.path_and_query().contains("sendInitialEvents=true") {
                    assert!(
                        version > last_version,
                        "{step}: {version} after {last_version}"
                    );
                }
                last_version = version;
            }
            self.memory.normalise(&mut event, false);
            events.push(event);
            if is_last {
                break;
            }
        }
        events
    }

    /// Raises the number of objects created under `path` to that of `other`.
    pub(super) fn align_births(&mut self, path: &str, other: &Self) {
        let n_born = other.memory.n_born.get(path).copied().unwrap_or(0);
        let own = self.memory.n_born.entry(path.to_owned()).or_default();
        *own = n_born.max(*own);
    }

    fn request(&self, step: &Step) -> Request {
        let path = self.memory.fill(&step.path);
        let mut request = match step.method {
            "GET" => Request::get(path),
            "POST" => Request::post(path),
            "PUT" => Request::put(path),
            "PATCH" => Request::patch(path),
            _ => Request::delete(path),
        };
        for (name, value) in &step.query {
            request = request.query(name, self.memory.fill(value));
        }
        if let Some(accept) = step.accept {
            request = request.accept(accept);
        }
        match &step.body {
            Body::None => request,
            Body::Text(text) => request.body(step.content_type, text.as_str()),
            Body::Json(value) => {
                let value = self.memory.filled(value);
                request.body(step.content_type, value.to_string())
            }
            Body::Edited(path, edit) => {
                let mut object = self.memory.objects.get(path).cloned().unwrap_or_default();
                merge(&mut object, &self.memory.filled(edit));
                request.body(step.content_type, object.to_string())
            }
        }
    }
}

impl Memory {
    fn fill(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let Some((reference, after)) = after.split_once('}') else {
                break;
            };
            filled += before;
            filled += &self.resolve(reference);
            rest = after;
        }
        filled + rest
    }

    fn resolve(&self, reference: &str) -> String {
        let of_object = |path: &str, pointer: &str, default: &str| {
            let object = self.objects.get(path);
            let found = object.and_then(|object| object.pointer(pointer)?.as_str());
            found.unwrap_or(default).to_owned()
        };
        match reference.split_once(' ') {
            Some(("uid", path)) => of_object(path, "/metadata/uid", NO_UID),
            Some(("version", name)) => match self.saved.get(name) {
                Some(version) => version.clone(),
                None => of_object(name, "/metadata/resourceVersion", "1"),
            },
            _ if reference == "continue" => self.continue_token.clone(),
            _ if reference == "generated" => {
                let latest = self.generated.last();
                latest.map(|(name, _)| name.clone()).unwrap_or_default()
            }
            _ => panic!("unknown reference {{{reference}}}"),
        }
    }

    fn filled(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.fill(text)),
            Value::Array(values) => values.iter().map(|value| self.filled(value)).collect(),
            Value::Object(map) => {
                let members = map.iter();
                let filled = members.map(|(name, value)| (name.clone(), self.filled(value)));
                Value::Object(filled.collect())
            }
            other => other.clone(),
        }
    }

    fn record(&mut self, step: &Step, response: &Value) {
        let text = |pointer: &str| response.pointer(pointer).and_then(Value::as_str);
        if let Some(token) = text("/metadata/continue") {
            token.clone_into(&mut self.continue_token);
        }
        let version = text("/metadata/resourceVersion").unwrap_or_default();
        // A server's versions have at least three digits. Shorter ones are copied from requests.
        if version.len() > 2 {
            self.all_versions.insert(version.to_owned());
        }
        if let Some(name) = step.saves_version {
            self.saved.insert(name.to_owned(), version.to_owned());
        }
        let name = text("/metadata/name").or_else(|| text("/details/name"));
        if let (Some(name), Some(prefix)) = (name, generated_prefix(step)) {
            let is_known = self.generated.iter().any(|(known, _)| known == name);
            if !is_known && name.len() == prefix.len() + 5 && name.starts_with(&prefix) {
                let words = format!("{prefix}<{}>", self.generated.len());
                self.generated.push((name.to_owned(), words));
            }
        }
        let (Some(path), Some(uid)) = (step.object_path(response), text("/metadata/uid")) else {
            return;
        };
        let is_dry = step.query.iter().any(|(name, _)| name == "dryRun");
        let is_born = !self.uids.contains_key(uid);
        if is_born {
            let born = self.n_born.get(&path).map_or(1, |born| born + 1);
            self.n_born.insert(path.clone(), born);
            let words = if is_dry {
                "<uid of a dry run>".to_owned()
            } else {
                format!("<uid {born} of {}>", self.normal_text(last_two(&path)))
            };
            self.uids.insert(uid.to_owned(), words);
        }
        if !is_dry {
            self.objects.insert(path, response.clone());
        }
    }

    /// Replaces the values that differ between any two servers: managed fields, resource versions
    /// (except for whether an object's version has changed), UIDs, current times, generated names,
    /// tokens, and repeated causes.
    fn normalise(&mut self, value: &mut Value, compare_versions: bool) {
        match value {
            Value::String(text) => *text = self.normal_text(text),
            Value::Array(values) => {
                for value in values {
                    self.normalise(value, compare_versions);
                }
            }
            Value::Object(map) => {
                map.remove("managedFields");
                if let Some(Value::Array(causes)) = map.get_mut("causes") {
                    drop_repeated(causes);
                }
                self.normalise_version(map, compare_versions);
                if let Some(token @ Value::String(_)) = map.get_mut("continue") {
                    *token = json!("<token>");
                }
                let keyed = map.keys().any(|name| self.normal_text(name) != *name);
                for value in map.values_mut() {
                    self.normalise(value, compare_versions);
                }
                if keyed {
                    let members = std::mem::take(map).into_iter();
                    *map = members.map(|(k, v)| (self.normal_text(&k), v)).collect();
                }
            }
            _ => {}
        }
    }

    fn normalise_version(&mut self, map: &mut Map<String, Value>, compare_versions: bool) {
        let uid = map.get("uid").and_then(Value::as_str).map(str::to_owned);
        let Some(Value::String(version)) = map.get_mut("resourceVersion") else {
            return;
        };
        if version.is_empty() {
            return;
        }
        let uid = uid.filter(|_| compare_versions);
        let last = uid.and_then(|uid| self.versions.insert(uid, version.clone()));
        let words = match last {
            _ if !version.bytes().all(|c| c.is_ascii_digit()) => return,
            Some(last) if last == *version => "<same version>",
            _ => "<version>",
        };
        words.clone_into(version);
    }

    fn normal_text(&self, text: &str) -> String {
        if is_age(text) {
            return "<age>".to_owned();
        }
        if let Ok(time) = text.parse::<jiff::Timestamp>() {
            let age = jiff::Timestamp::now().duration_since(time);
            if age.as_hours().abs() < 2 {
                return "<now>".to_owned();
            }
            return text.to_owned();
        }
        let mut text = text.to_owned();
        for (name, words) in &self.generated {
            if text.contains(name) {
                text = text.replace(name, words);
            }
        }
        let names_versions = text.contains("ResourceVersion in ");
        let is_version = |word: &str| {
            let is_number = word.bytes().all(|c| c.is_ascii_digit());
            self.all_versions.contains(word) || (names_versions && is_number)
        };
        let words = split_words(&text).enumerate();
        let normal = words.map(|(at, word)| match self.uids.get(word) {
            Some(words) => words.as_str(),
            // A number at the beginning is the status code, which may equal a version.
            None if at > 0 && is_version(word) => "<version>",
            None if is_uid(word) && word != NO_UID => "<unknown uid>",
            None => word,
        });
        normal.collect()
    }
}

/// Drops repeated causes: kube-apiserver validates metadata two to four times, depending on the
/// kind, and reports each error as often.
fn drop_repeated(causes: &mut Vec<Value>) {
    let mut seen: Vec<Value> = Vec::new();
    causes.retain(|cause| {
        let is_new = !seen.contains(cause);
        if is_new {
            seen.push(cause.clone());
        }
        is_new
    });
}

/// The last two segments of a path: plural and name.
fn last_two(path: &str) -> &str {
    let mut slashes = path.rmatch_indices('/');
    let start = slashes.nth(1).map_or(0, |(at, _)| at + 1);
    &path[start..]
}

/// Splits a text into words of letters, digits and dashes, and single other characters, in order.
fn split_words(text: &str) -> impl Iterator<Item = &str> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '-';
    text.split_inclusive(move |c| !is_inner(c))
        .flat_map(move |piece| {
            let end = piece.trim_end_matches(|c| !is_inner(c)).len();
            [&piece[..end], &piece[end..]]
        })
        .filter(|word| !word.is_empty())
}

/// True if a table's cell is an age of less than ten minutes, such as `71s` or `2m5s`, which may
/// differ by a second between the two servers.
fn is_age(text: &str) -> bool {
    let (minutes, seconds) = text.split_once('m').unwrap_or(("0", text));
    let is_number = |text: &str| text.parse::<u8>().is_ok();
    let is_seconds = seconds.strip_suffix('s').is_some_and(is_number);
    matches!(minutes.parse(), Ok(0..10)) && (is_seconds || (seconds.is_empty() && minutes != "0"))
}

fn is_uid(word: &str) -> bool {
    let dashes = [8, 13, 18, 23];
    let fits = |(at, c): (usize, u8)| {
        if dashes.contains(&at) {
            c == b'-'
        } else {
            c.is_ascii_hexdigit()
        }
    };
    word.len() == 36 && word.bytes().enumerate().all(fits)
}

/// The prefix of the generated name of the object that a request creates.
fn generated_prefix(step: &Step) -> Option<String> {
    let Body::Json(object) = &step.body else {
        return None;
    };
    let prefix = object["metadata"]["generateName"].as_str()?;
    // The server truncates the prefix, so that a random suffix of five characters fits.
    Some(prefix.chars().take(58).collect())
}

fn parse(body: &[u8]) -> Value {
    serde_json::from_slice(body)
        .unwrap_or_else(|_| json!(String::from_utf8_lossy(body).into_owned()))
}

/// JSON merge patch (RFC 7396). A second implementation, so that the test does not rely on the dev
/// server's.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in patch {
        if value.is_null() {
            target.as_object_mut().map(|map| map.remove(name));
        } else {
            merge(&mut target[name], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Memory, Step, merge, split_words};

    #[test]
    fn normalising_replaces_only_values_of_one_server() {
        let uid = "0b1e4b5c-1111-4222-8333-444455556666";
        let new = json!({"metadata": {"generateName": "a-"}});
        let step = Step::post("/api/v1/namespaces/n/pods", new);
        let response = json!({
            "kind": "Pod",
            "metadata": {
                "name": "a-x7k2p", "generateName": "a-", "uid": uid, "resourceVersion": "1234",
                "creationTimestamp": jiff::Timestamp::now().to_string(), "managedFields": [],
                "annotations": {"time": "2020-01-01T00:00:00Z"},
            },
            "message": format!("UID in precondition: {uid}, version (1234), 12345"),
        });
        let mut memory = Memory::default();
        memory.record(&step, &response);
        let (mut first, mut second) = (response.clone(), response);
        memory.normalise(&mut first, true);
        memory.normalise(&mut second, true);
        let expected = json!({
            "kind": "Pod",
            "metadata": {
                "name": "a-<0>", "generateName": "a-", "uid": "<uid 1 of pods/a-<0>>",
                "resourceVersion": "<version>", "creationTimestamp": "<now>",
                "annotations": {"time": "2020-01-01T00:00:00Z"},
            },
            "message": "UID in precondition: <uid 1 of pods/a-<0>>, version (<version>), 12345",
        });
        assert_eq!(first, expected);
        assert_eq!(second["metadata"]["resourceVersion"], "<same version>");
    }

    #[test]
    fn references_are_resolved() {
        let step = Step::get("/pods/a");
        let pod = json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}});
        let mut memory = Memory::default();
        memory.record(&step, &pod);
        let text = "x {uid /pods/a}, {version /pods/a} y {version /pods/b}";
        assert_eq!(memory.fill(text), "x u, 7 y 1");
    }

    #[test]
    fn split_words_lose_no_text() {
        let text = "a-b (12), \"c\"!";
        assert_eq!(split_words(text).collect::<String>(), text);
        assert!(split_words(text).any(|word| word == "12"));
        let mut object = json!({"a": {"b": 1, "c": 2}});
        merge(&mut object, &json!({"a": {"b": null, "d": []}}));
        assert_eq!(object, json!({"a": {"c": 2, "d": []}}));
    }
}
