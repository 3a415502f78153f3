//! The manual: the pages of `src/manual/`, rendered by `make doc` and installed by `make install`.
//!
//! The Markdown files are the source. They link to each other by relative paths, as on a code
//! host; `make doc` rewrites those links in the rendered pages.

#[doc = include_str!("manual/install.md")]
pub mod install {}

#[doc = include_str!("manual/operate.md")]
pub mod operate {}

#[doc = include_str!("manual/flags.md")]
pub mod flags {}

#[doc = include_str!("manual/election.md")]
pub mod election {}

#[doc = include_str!("manual/troubleshooting.md")]
pub mod troubleshooting {}

#[doc = include_str!("manual/metrics.md")]
pub mod metrics {}

#[doc = include_str!("manual/explain.md")]
pub mod explain {}

#[doc = include_str!("manual/beyond.md")]
pub mod beyond {}

#[doc = include_str!("manual/dev.md")]
pub mod dev {}

#[doc = include_str!("manual/differences.md")]
pub mod differences {}

#[doc = include_str!("manual/speed.md")]
pub mod speed {}

#[doc = include_str!("manual/testing.md")]
pub mod testing {}
