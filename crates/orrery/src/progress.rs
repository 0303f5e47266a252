//! Tells a person how far a long command is.
//!
//! On a terminal a line with a bar is drawn over and over; elsewhere a plain line comes now and then,
//! so that a log shows that something happens and does not drown in it. Both go to standard error.

use std::io::{self, IsTerminal, Write};

use db::{Clock, SystemClock};

/// How often the bar is drawn.
const DRAW_EVERY_MS: u64 = 100;
/// How often a line is written where there is no terminal.
const LINE_EVERY_MS: u64 = 5_000;
const BAR_WIDTH: u64 = 24;

/// How far one piece of work is.
pub(crate) struct Progress {
    form: Form,
    /// What the work is about.
    name: String,
    total: Option<u64>,
    started_ms: u64,
    told_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Bar,
    Lines,
    Silent,
}

impl Progress {
    /// Work that is told to the person at the terminal, or to a log.
    pub(crate) fn new() -> Self {
        Self::with(if io::stderr().is_terminal() { Form::Bar } else { Form::Lines })
    }

    /// Work that nobody is told about.
    pub(crate) fn silent() -> Self {
        Self::with(Form::Silent)
    }

    fn with(form: Form) -> Self {
        let now = SystemClock.now_ms();
        Self { form, name: String::new(), total: None, started_ms: now, told_ms: now }
    }

    /// Starts with the next piece of work. The total is in the unit of what is done.
    pub(crate) fn start(&mut self, name: &str, total: Option<u64>) {
        let now = SystemClock.now_ms();
        (self.started_ms, self.told_ms) = (now, now);
        (self.name, self.total) = (name.to_owned(), total);
    }

    /// Tells how far the work is, if it is time to.
    pub(crate) fn tell(&mut self, done: u64, documents: u64) {
        let every_ms = match self.form {
            Form::Bar => DRAW_EVERY_MS,
            Form::Lines => LINE_EVERY_MS,
            Form::Silent => return,
        };
        let now = SystemClock.now_ms();
        if now.saturating_sub(self.told_ms) < every_ms {
            return;
        }
        self.told_ms = now;
        let line = self.line(done, documents, now);
        self.write(&match self.form {
            Form::Bar => format!("\r\x1b[K{}", bar(done, self.total) + &line),
            _ => line + "\n",
        });
    }

    /// Tells how a piece of work ended.
    pub(crate) fn finish(&mut self, line: &str) {
        match self.form {
            Form::Bar => self.write(&format!("\r\x1b[K{line}\n")),
            Form::Lines => self.write(&format!("{line}\n")),
            Form::Silent => {}
        }
    }

    fn line(&self, done: u64, documents: u64, now_ms: u64) -> String {
        let share = match self.total {
            Some(total) if total > 0 => format!(" ({}%)", done.min(total) * 100 / total),
            _ => String::new(),
        };
        let elapsed_ms = now_ms.saturating_sub(self.started_ms).max(1);
        let rate = documents.saturating_mul(1_000) / elapsed_ms;
        format!("{}: {documents} documents{share}, {rate}/s", self.name)
    }

    fn write(&self, text: &str) {
        let mut err = io::stderr().lock();
        // Whoever has closed standard error does not want to be told.
        let _ = err.write_all(text.as_bytes());
        let _ = err.flush();
    }
}

/// A bar as long as the work is done, and a gap; nothing where the end is not known.
fn bar(done: u64, total: Option<u64>) -> String {
    let Some(total) = total.filter(|total| *total > 0) else { return String::new() };
    let filled = done.min(total) * BAR_WIDTH / total;
    let (filled, empty) = (filled as usize, (BAR_WIDTH - filled) as usize);
    format!("[{}{}] ", "#".repeat(filled), "-".repeat(empty))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow() {
        assert_eq!(bar(0, Some(10)), format!("[{}] ", "-".repeat(24)));
        assert_eq!(bar(5, Some(10)), format!("[{}{}] ", "#".repeat(12), "-".repeat(12)));
        assert_eq!(bar(20, Some(10)), format!("[{}] ", "#".repeat(24)));
        assert_eq!(bar(5, None), "");
        assert_eq!(bar(0, Some(0)), "");
    }

    #[test]
    fn lines_tell_how_far_and_how_fast() {
        let mut progress = Progress::silent();
        progress.start("orders", Some(200));
        progress.started_ms = 0;
        assert_eq!(progress.line(50, 40, 2_000), "orders: 40 documents (25%), 20/s");
        progress.total = None;
        assert_eq!(progress.line(50, 40, 0), "orders: 40 documents, 40000/s");
    }
}
