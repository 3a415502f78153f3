//! Alternative response forms: tables, which `kubectl get` prints, and metadata only. The server
//! converts lists, objects and watch frames last, after the request itself.

use serde_json::{Map, Value, json};

use crate::columns;
use crate::exchange::{ApiRequest, Response, ResponseBody};
use crate::objects::text;
use crate::resource::Resource;
use crate::status_error::StatusError;

/// The form of the objects in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects themselves.
    Whole,
    /// Table rows, each with this part of its object.
    Table(Include),
    /// The objects' metadata only.
    Metadata,
}

/// The part of the object that a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Whole,
}

impl Form {
    /// The first form in the `Accept` header that the server supports.
    pub(crate) fn requested_by(request: &ApiRequest) -> Result<Self, StatusError> {
        for kind in request.header("accept").split(',') {
            let mut parameters = kind.split(';').map(str::trim);
            if parameters.next() != Some("application/json") {
                continue;
            }
            let parameters: Vec<&str> = parameters.collect();
            let form = parameters.iter().find_map(|text| text.strip_prefix("as="));
            match form {
                Some("Table") => return Ok(Self::Table(include(request)?)),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
                    return Ok(Self::Metadata);
                }
                None => return Ok(Self::Whole),
                Some(_) => {}
            }
        }
        Ok(Self::Whole)
    }

    /// Converts a response (an object or a list) into this form.
    pub(crate) fn convert(self, resource: Resource, mut response: Response) -> Response {
        // An error is a `Status` in every form.
        if self == Self::Whole || response.code >= 300 {
            return response;
        }
        let Some(body) = std::mem::replace(&mut response.body, ResponseBody::Cut).read() else {
            return response;
        };
        let Ok(mut value) = serde_json::from_slice::<Value>(&body) else {
            response.body = ResponseBody::Whole(body);
            return response;
        };
        let items = value.get_mut("items").map(Value::take);
        let converted = match (self, items) {
            (Self::Table(include), Some(items)) => table(
                resource,
                include,
                &value["metadata"],
                items.as_array(),
                true,
            ),
            (Self::Table(include), None) => {
                let metadata = version_of(&value);
                table(resource, include, &metadata, Some(&vec![value]), true)
            }
            (_, Some(items)) => {
                let items = items.as_array().into_iter().flatten();
                let items: Vec<Value> = items.map(metadata_of).collect();
                json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
                    "metadata": value["metadata"], "items": items,
                })
            }
            (_, None) => metadata_of(&value),
        };
        Response::object(response.code, &converted)
    }

    /// Converts `object` (with `kind`) for a watch frame. Only the first table has column
    /// definitions.
    pub(crate) fn frame_object(self, resource: Resource, object: &Value, is_first: bool) -> Value {
        match self {
            Self::Whole => object.clone(),
            Self::Metadata => metadata_of(object),
            Self::Table(include) => {
                let metadata = version_of(object);
                let rows = vec![object.clone()];
                table(resource, include, &metadata, Some(&rows), is_first)
            }
        }
    }

    /// Converts a bookmark's object.
    pub(crate) fn frame_bookmark(self, resource: Resource, object: Value) -> Value {
        match self {
            Self::Whole => object,
            Self::Metadata => metadata_of(&object),
            Self::Table(include) => table(resource, include, &version_of(&object), None, false),
        }
    }
}

fn include(request: &ApiRequest) -> Result<Include, StatusError> {
    match request.query_value("includeObject") {
        "" | "Metadata" => Ok(Include::Metadata),
        "None" => Ok(Include::Nothing),
        "Object" => Ok(Include::Whole),
        other => Err(StatusError::bad_request(format!(
            "unrecognized includeObject value: \"{other}\""
        ))),
    }
}

fn version_of(object: &Value) -> Value {
    json!({"resourceVersion": object["metadata"]["resourceVersion"]})
}

fn metadata_of(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object["metadata"],
    })
}

/// The row condition of a completed pod (kubernetes
/// `pkg/printers/internalversion/printers.go:podSuccessConditions`).
fn end_of(object: &Value) -> Option<Value> {
    let (reason, message) = match text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([
        {"type": "Completed", "status": "True", "reason": reason, "message": message},
    ]))
}

fn table(
    resource: Resource,
    include: Include,
    metadata: &Value,
    objects: Option<&Vec<Value>>,
    has_columns: bool,
) -> Value {
    let objects = objects.into_iter().flatten();
    let rows: Vec<Value> = objects
        .map(|object| {
            let mut row = Map::new();
            row.insert("cells".to_owned(), columns::cells(resource, object));
            row.extend(end_of(object).map(|end| ("conditions".to_owned(), end)));
            let object = match include {
                Include::Nothing => None,
                Include::Metadata => Some(metadata_of(object)),
                Include::Whole => Some(with_kind(resource, object)),
            };
            row.extend(object.map(|object| ("object".to_owned(), object)));
            Value::Object(row)
        })
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": has_columns.then(|| columns::definitions(resource)),
        "rows": rows,
    })
}

/// List items have no `kind`, but a single object needs it.
fn with_kind(resource: Resource, object: &Value) -> Value {
    let mut object = object.clone();
    object["kind"] = json!(resource.kind());
    object["apiVersion"] = json!(resource.api_version());
    object
}
