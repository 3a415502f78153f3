//! The two questions that the API server answers for us: who is this, and may they? On the thread of
//! the connection, with a bound on the time of each and on how many are asked at once, so that an API
//! server that hangs never takes all connections away from the pages that need no answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::user::User;
use crate::client::{Client, ClientError, Request};

/// For the answer to one review. DIFFERS: upstream allows 10 s, which is as long as a monitor waits for
/// the whole page.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(5);

/// Reviews that are asked at the same time; one more is refused. Well below the bound on connections.
const REVIEWS_MAX: usize = 16;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReviewError {
    /// The API server did not say.
    #[error("{0}")]
    Client(#[from] ClientError),
    /// What it said is no review.
    #[error("the answer is not understood: {0}")]
    Answer(#[from] serde_json::Error),
    /// Too many are waiting for the API server already.
    #[error("too many reviews are waiting for the API server")]
    TooMany,
}

/// What the API server says of a token.
pub(super) type TokenFinding = Result<User, String>;

/// Asks the API server. Clones share the bound.
#[derive(Clone, Debug)]
pub(super) struct Reviews {
    client: Client,
    n_asked: Arc<AtomicUsize>,
}

impl Reviews {
    /// `client` has a throttle of its own, apart from the pods'.
    pub(super) fn new(client: Client) -> Self {
        Self {
            client,
            n_asked: Arc::default(),
        }
    }

    /// Whose token this is, or why it is nobody's. Blocks for the answer, at most twice
    /// [`REVIEW_TIMEOUT`].
    pub(super) fn token(&self, token: &str) -> Result<TokenFinding, ReviewError> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                audiences: None,
            },
            ..TokenReview::default()
        };
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let answer: TokenReview = self.ask(path, &review)?;
        let status = answer.status.unwrap_or_default();
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

    /// Whether a user may do this. Blocks for the answer, at most twice [`REVIEW_TIMEOUT`].
    pub(super) fn access(
        &self,
        user: &User,
        verb: &str,
        path: &str,
    ) -> Result<SubjectAccessReviewStatus, ReviewError> {
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: given(&user.name),
                uid: given(&user.uid),
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
        let answer: SubjectAccessReview = self.ask(path, &review)?;
        Ok(answer.status.unwrap_or_default())
    }

    fn ask<T: DeserializeOwned>(
        &self,
        path: &str,
        review: &impl Serialize,
    ) -> Result<T, ReviewError> {
        let n_asked = self.n_asked.fetch_add(1, Ordering::Relaxed);
        let answer = if n_asked < REVIEWS_MAX {
            self.send(path, review)
        } else {
            Err(ReviewError::TooMany)
        };
        self.n_asked.fetch_sub(1, Ordering::Relaxed);
        answer
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
        let answer = match self.client.send(&request) {
            // The server may have closed an idle connection in the moment it was taken; a review
            // changes nothing, so asking again is harmless.
            Err(error) if error.is_closed() => self.client.send(&request),
            answer => answer,
        };
        Ok(serde_json::from_slice(&answer?.body)?)
    }
}
