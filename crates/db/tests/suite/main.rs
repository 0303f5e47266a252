//! The database as its callers see it: over engines that keep, forget, fail and crash.
//!
//! One binary for all of it, because linking a storage engine takes longer than most of the tests.

#[cfg(test)]
mod change_feed;
#[cfg(test)]
mod composites;
#[cfg(test)]
mod concurrency;
#[cfg(test)]
mod consumers;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod dtc;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod history;
#[cfg(test)]
mod index;
#[cfg(test)]
mod model;
#[cfg(test)]
mod plans;
#[cfg(test)]
mod queries;
#[cfg(test)]
mod ranges;
#[cfg(test)]
mod resources;
#[cfg(test)]
mod scripts;
#[cfg(test)]
mod serializability;
#[cfg(test)]
mod spatial;
#[cfg(test)]
mod support;
#[cfg(test)]
mod work;
