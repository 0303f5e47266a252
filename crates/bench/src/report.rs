//! The table of results.

use std::fmt;
use std::time::Duration;

use crate::Failure;

/// Rows in the order they were measured.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<[String; 4]>,
    notes: Vec<String>,
    failures: usize,
}

impl Report {
    pub(crate) fn row(&mut self, name: &str, what: &str, figure: String, remark: &str) {
        self.rows.push([name.to_owned(), what.to_owned(), figure, remark.to_owned()]);
    }

    /// A rate; for an anchor, with how many times its rate Orrery's is.
    pub(crate) fn rate(
        &mut self,
        name: &str,
        what: &str,
        rate: f64,
        ours: Option<f64>,
        remark: &str,
    ) {
        let figure = match ours {
            None => format!("{rate:.0}/s"),
            Some(ours) => format!("{rate:.0}/s, ratio {:.2}", ours / rate),
        };
        self.row(name, what, figure, remark);
    }

    /// Something that could not be measured; the run goes on, and fails in the end.
    pub(crate) fn failure(&mut self, name: &str, what: &str, reason: &Failure) {
        let reason: String = reason.to_string().chars().take(300).collect();
        eprintln!("{name} {what}: {reason}");
        self.row(name, what, "**failed**".to_owned(), &reason.replace(['|', '\n'], " "));
        self.failures += 1;
    }

    /// How many measurements failed.
    pub(crate) fn failures(&self) -> usize {
        self.failures
    }

    pub(crate) fn note(&mut self, text: &str) {
        self.notes.push(text.to_owned());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| | work | measured | |")?;
        writeln!(f, "| --- | --- | --- | --- |")?;
        for [name, what, figure, remark] in &self.rows {
            writeln!(f, "| {name} | {what} | {figure} | {remark} |")?;
        }
        for note in &self.notes {
            writeln!(f, "\n{note}")?;
        }
        Ok(())
    }
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

pub(crate) fn millis(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1_000.0)
}

pub(crate) fn micros(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1_000.0)
}

pub(crate) fn megabytes(bytes: u64) -> String {
    format!("{:.0} MB", bytes as f64 / 1_000_000.0)
}
