//! Server state turned into a local, read-only view.
//!
//! [`CacheView`] is all that the controller sees.

pub mod event;
pub mod view;

pub use event::CacheEvent;
pub use view::CacheView;
