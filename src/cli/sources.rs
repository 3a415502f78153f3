//! The sources of flags: command line, environment and configuration file. Each source becomes a
//! list of [`Argument`]s, so that clap checks all of them by the same definition.

pub(super) mod argument;
pub(super) mod environment;
pub(super) mod fields;
pub(super) mod file;
mod tree;

pub(super) use self::argument::{Argument, Flags, Origin};

/// The content of one source.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// The flags that it sets.
    pub(super) arguments: Vec<Argument>,
    /// Mistakes other than invalid values.
    pub(super) mistakes: Vec<String>,
    /// Fields of other controllers.
    pub(super) foreign: Vec<String>,
}

/// Returns the candidate that resembles `word` most, if it is near enough.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    /// Minimum Jaro-Winkler similarity of a tip.
    const NEAR: f64 = 0.8;
    let near = candidates
        .into_iter()
        .map(|candidate| {
            let alike = strsim::jaro_winkler(&word.to_lowercase(), &candidate.to_lowercase());
            (alike, candidate)
        })
        .filter(|(alike, _)| *alike >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    near.map(|(_, candidate)| candidate)
}
