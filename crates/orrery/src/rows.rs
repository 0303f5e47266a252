//! Writes the rows of an answer, page by page.
//!
//! Rows go out as they come in, so an answer of any size needs the memory of one page. A table is laid
//! out for each page alone for the same reason.

use std::io::{self, Write};

use clap::ValueEnum;
use value::Value;

/// How rows look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// One JSON array.
    Json,
    /// One row of JSON on each line.
    Ndjson,
    /// Columns for people; long values are cut.
    Table,
}

/// Writes rows to an output.
pub(crate) struct Rows<W> {
    out: W,
    format: Format,
    written: u64,
    /// What the last page of a table had above its rows.
    head: Option<String>,
}

impl<W: Write> Rows<W> {
    pub(crate) fn new(out: W, format: Format) -> Self {
        Self { out, format, written: 0, head: None }
    }

    /// How many rows were written.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn page(&mut self, rows: &[Value]) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        match self.format {
            Format::Ndjson => {
                for row in rows {
                    writeln!(self.out, "{}", row.to_text())?;
                }
            }
            Format::Json => {
                for (at, row) in rows.iter().enumerate() {
                    let before = if self.written == 0 && at == 0 { "[\n" } else { ",\n" };
                    write!(self.out, "{before}{}", row.to_text())?;
                }
            }
            Format::Table => {
                let table = Table::new(rows);
                let head = table.head();
                if self.head.as_ref() != Some(&head) {
                    let gap = if self.head.is_some() { "\n" } else { "" };
                    write!(self.out, "{gap}{head}")?;
                    self.head = Some(head);
                }
                table.write(&mut self.out)?;
            }
        }
        self.written += rows.len() as u64;
        // Whoever reads along sees a page when it is there.
        self.out.flush()
    }

    /// Writes what comes after the last row.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        if self.format == Format::Json {
            self.out.write_all(if self.written == 0 { b"[]\n" } else { b"\n]\n" })?;
        }
        self.out.flush()
    }
}

/// Longer cells are cut.
const CELL_MAX: usize = 48;
/// The column of rows that have no names for their parts.
const UNNAMED: &str = "value";

/// The rows of a page in columns.
struct Table {
    columns: Vec<Column>,
    cells: Vec<Vec<String>>,
}

struct Column {
    name: String,
    width: usize,
    /// Numbers are compared by eye more easily when they end together.
    is_numeric: bool,
}

impl Table {
    fn new(rows: &[Value]) -> Self {
        let mut names: Vec<&str> = Vec::new();
        for object in rows.iter().filter_map(Value::as_object) {
            names.extend(object.keys().filter(|name| !names.contains(name)).collect::<Vec<_>>());
        }
        // Rows that are no objects, or empty ones, have a column of their own.
        let is_unnamed = |row: &Value| row.as_object().is_none_or(|object| object.is_empty());
        let has_unnamed = rows.iter().any(is_unnamed);
        let mut columns: Vec<Column> = names.iter().map(|name| Column::new(name)).collect();
        if has_unnamed {
            columns.push(Column::new(UNNAMED));
        }
        let mut cells = Vec::with_capacity(rows.len());
        for row in rows {
            let mut values: Vec<Option<&Value>> = names.iter().map(|name| row.get(name)).collect();
            if has_unnamed {
                values.push(Some(row).filter(|row| is_unnamed(row)));
            }
            let mut line = Vec::with_capacity(values.len());
            for (column, value) in columns.iter_mut().zip(values) {
                let text = value.map(cell).unwrap_or_default();
                column.width = column.width.max(text.chars().count());
                column.is_numeric &= value.is_none_or(|value| matches!(value, Value::Number(_)));
                line.push(text);
            }
            cells.push(line);
        }
        Self { columns, cells }
    }

    /// The names of the columns and a line below them.
    fn head(&self) -> String {
        let names: Vec<String> = self.columns.iter().map(|column| column.name.clone()).collect();
        let rules: Vec<String> =
            self.columns.iter().map(|column| "-".repeat(column.width)).collect();
        format!("{}\n{}\n", self.line(&names), self.line(&rules))
    }

    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.cells.iter().try_for_each(|cells| writeln!(out, "{}", self.line(cells)))
    }

    fn line(&self, cells: &[String]) -> String {
        let mut line = String::new();
        for (column, cell) in self.columns.iter().zip(cells) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let padding = " ".repeat(column.width.saturating_sub(cell.chars().count()));
            if column.is_numeric {
                line.push_str(&padding);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&padding);
            }
        }
        line.truncate(line.trim_end().len());
        line
    }
}

impl Column {
    fn new(name: &str) -> Self {
        let name = cut(name);
        Self { width: name.chars().count(), name, is_numeric: true }
    }
}

/// A value as it stands in a cell: strings without quotes.
fn cell(value: &Value) -> String {
    match value {
        Value::String(text) => cut(text),
        value => cut(&value.to_text()),
    }
}

/// A text of one line that a terminal takes as it is.
fn cut(text: &str) -> String {
    let mut cut = String::new();
    for (at, character) in text.chars().enumerate() {
        if at >= CELL_MAX {
            cut.push('…');
            break;
        }
        if character.is_control() {
            cut.extend(character.escape_default());
        } else {
            cut.push(character);
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(format: Format, pages: &[&str], expected: &str) {
        let mut out = Vec::new();
        let mut rows = Rows::new(&mut out, format);
        for page in pages {
            rows.page(Value::parse(page.as_bytes()).unwrap().as_array().unwrap()).unwrap();
        }
        rows.finish().unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), expected, "{pages:?}");
    }

    #[test]
    fn lines_of_json() {
        check(Format::Ndjson, &[], "");
        check(
            Format::Ndjson,
            &[r#"[{"a":1.50},"x"]"#, "[]", "[null]"],
            "{\"a\":1.50}\n\"x\"\nnull\n",
        );
    }

    #[test]
    fn an_array_of_json_over_all_pages() {
        check(Format::Json, &[], "[]\n");
        check(Format::Json, &["[]"], "[]\n");
        check(Format::Json, &["[1]"], "[\n1\n]\n");
        check(Format::Json, &["[1,2]", "[]", "[3]"], "[\n1,\n2,\n3\n]\n");
    }

    #[test]
    fn tables() {
        check(Format::Table, &[], "");
        check(
            Format::Table,
            &[r#"[{"id":"a","n":5},{"id":"bcd","n":10,"more":[1,{"x":null}]}]"#],
            "id    n  more\n---  --  --------------\na     5\nbcd  10  [1,{\"x\":null}]\n",
        );
        check(Format::Table, &["[1,20]"], "value\n-----\n    1\n   20\n");
        check(
            Format::Table,
            &[r#"[{"a":"x\u001b[2J\n"},{},true]"#],
            "a             value\n------------  -----\n\
             x\\u{1b}[2J\\n\n              {}\n              true\n",
        );
    }

    #[test]
    fn a_table_repeats_its_head_only_where_it_changes() {
        let (one, same, other) = (r#"[{"a":1}]"#, r#"[{"a":2}]"#, r#"[{"b":"x"}]"#);
        check(Format::Table, &[one, same, other], "a\n-\n1\n2\n\nb\n-\nx\n");
    }

    #[test]
    fn long_values_are_cut() {
        let long = format!(r#"["{}"]"#, "é".repeat(60));
        let cut = format!("{}…", "é".repeat(48));
        let rule = "-".repeat(49);
        let head = format!("value{}", " ".repeat(44));
        check(Format::Table, &[&long], &format!("{}\n{rule}\n{cut}\n", head.trim_end()));
    }
}
