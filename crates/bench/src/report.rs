//! The table of results.

use std::fmt;

/// Rows in the order they were measured.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<[String; 4]>,
    notes: Vec<String>,
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
