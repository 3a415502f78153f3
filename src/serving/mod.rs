//! The daemon's own pages: health, metrics, configuration, what its threads do; and who may see them.
//!
//! Rooms that have something to show offer a function that adds it to [`Pages`]; `manager` calls
//! these, so that this room knows nothing of the controller.

mod pages;

pub use pages::Pages;
