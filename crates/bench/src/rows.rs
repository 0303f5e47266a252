//! The rows of the table: each module measures some and adds them to the report.

pub(crate) mod growth;
pub(crate) mod loading;
pub(crate) mod queries;
pub(crate) mod scans;
pub(crate) mod scripts;
pub(crate) mod single;
pub(crate) mod start;
