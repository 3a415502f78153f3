//! Token reviews and access reviews by the API server. They run on the connection's thread, with a
//! bound on the time of each and on their number. An API server that hangs therefore never occupies
//! all connections of the pages that need no review.

use std::net::IpAddr;
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::slots::{self, Slots};
use super::user::User;
use crate::client::{Client, ClientError, Request};

/// Timeout of one review. DIFFERS: upstream allows 10 s, which is as long as a monitor waits for
/// the whole page.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a review failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    /// The request to the API server failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server's response is not a review.
    #[error("cannot parse the response: {0}")]
    Parse(#[from] serde_json::Error),
    /// The API server, such as the dev server, has no such reviews.
    #[error(
        "this API server has no {0}, which the secure port needs: use the plain port \
         (--insecure-port)"
    )]
    NotServed(&'static str),
    /// The maximum number of reviews is in progress.
    #[error("too many reviews are waiting for the API server")]
    TooMany,
}

/// The user of a token, or why the token is invalid.
pub(super) type TokenFinding = Result<User, String>;

/// Sends reviews to the API server.
#[derive(Debug)]
pub(super) struct Reviews {
    client: Client,
    slots: Slots,
}

impl Reviews {
    /// `client` must have a throttle of its own, separate from the pod writes'.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            slots: Slots::default(),
        }
    }

    /// Returns the token's user, or why the token is invalid. `address` is the client's. Blocks for
    /// a slot and the API server, at most twice [`REVIEW_TIMEOUT`].
    pub(super) fn token(
        &self,
        token: &str,
        address: Option<IpAddr>,
    ) -> Result<TokenFinding, ReviewError> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let client = slots::Client {
            has_credentials: true,
            address,
        };
        let response: TokenReview = self.review(client, "TokenReview", path, &review)?;
        let status = response.status.unwrap_or_default();
        if status.authenticated != Some(true) {
            let why = status.error.filter(|why| !why.is_empty());
            return Ok(Err(
                why.unwrap_or_else(|| "the token is not valid".to_owned())
            ));
        }
        let info = status.user.unwrap_or_default();
        let user = User {
            name: info.username.unwrap_or_default(),
            uid: info.uid.unwrap_or_default(),
            groups: info.groups.unwrap_or_default(),
            extra: info.extra.unwrap_or_default(),
        };
        Ok(Ok(user.authenticated()))
    }

    /// Returns whether the user, at `address`, has access. Blocks for a slot and the API server, at
    /// most twice [`REVIEW_TIMEOUT`].
    pub(super) fn access(
        &self,
        user: &User,
        address: Option<IpAddr>,
        verb: &str,
        path: &str,
    ) -> Result<SubjectAccessReviewStatus, ReviewError> {
        let non_empty = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: non_empty(&user.name),
                uid: non_empty(&user.uid),
                groups: Some(user.groups.clone()),
                extra: Some(user.extra.clone()).filter(|extra| !extra.is_empty()),
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(path.to_owned()),
                    verb: Some(verb.to_owned()),
                }),
                resource_attributes: None,
            },
            ..SubjectAccessReview::default()
        };
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let client = slots::Client {
            has_credentials: *user != User::anonymous(),
            address,
        };
        let response: SubjectAccessReview =
            self.review(client, "SubjectAccessReview", path, &review)?;
        Ok(response.status.unwrap_or_default())
    }

    fn review<T: DeserializeOwned>(
        &self,
        client: slots::Client,
        kind: &'static str,
        path: &str,
        review: &impl Serialize,
    ) -> Result<T, ReviewError> {
        let _slot = self.slots.take(client).ok_or(ReviewError::TooMany)?;
        self.send(path, review).map_err(|error| match error {
            ReviewError::Client(ClientError::Status(status)) if status.code() == 404 => {
                ReviewError::NotServed(kind)
            }
            error => error,
        })
    }

    fn send<T: DeserializeOwned>(
        &self,
        path: &str,
        review: &impl Serialize,
    ) -> Result<T, ReviewError> {
        let request = Request::post(path)
            .body("application/json", serde_json::to_vec(review)?)
            .timeout(REVIEW_TIMEOUT)
            .once();
        let response = match self.client.send(&request) {
            // The server may have closed the idle connection just before this request. A review
            // changes nothing, so a second attempt is safe.
            Err(error) if error.is_closed() => self.client.send(&request),
            response => response,
        };
        Ok(serde_json::from_slice(&response?.body)?)
    }
}
