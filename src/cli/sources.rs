//! Where flags are from: the command line, the environment, the configuration file. Each is brought into
//! one form, [`Argument`], so that all are read by the one table of flags and no source knows less, or
//! is less strict, than another.

pub(super) mod argument;
pub(super) mod environment;
pub(super) mod fields;
pub(super) mod file;
mod tree;

pub(super) use self::argument::{Argument, Flags, Origin};

/// What one source has given.
#[derive(Debug, Default)]
pub(super) struct Layer {
    /// What it sets.
    pub(super) arguments: Vec<Argument>,
    /// What is wrong with it, beside the values.
    pub(super) mistakes: Vec<String>,
    /// What stands in it that does not concern this daemon.
    pub(super) foreign: Vec<String>,
}

/// ` (did you mean X?)` if one of the candidates is near.
pub(super) fn did_you_mean<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> String {
    /// Below this two words have little in common.
    const NEAR: f64 = 0.8;
    let near = candidates
        .into_iter()
        .map(|candidate| {
            let alike = strsim::jaro_winkler(&word.to_lowercase(), &candidate.to_lowercase());
            (alike, candidate)
        })
        .filter(|(alike, _)| *alike >= NEAR)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    near.map_or_else(String::new, |(_, candidate)| {
        format!("; did you mean {candidate}?")
    })
}
