//! What people read.
//!
//! All text that comes from servers, clients or the daemon goes through [`escape`] before it reaches a terminal (G43).
pub(crate) mod approvals;
pub(crate) mod certificate;
pub(crate) mod escape;
pub(crate) mod frames;
pub(crate) mod output;
pub(crate) mod session;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod tools;
pub(crate) mod units;
