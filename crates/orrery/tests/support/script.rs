//! The form of a golden script: blocks of commands with what they print.
//!
//! ```text
//! # What the block shows.
//! command
//! command
//!   a line that belongs to the command above
//! ---
//! output
//! ```
//!
//! A block ends with an empty line. Lines that start with `#` are comments; a paragraph of comments
//! only belongs to the block after it.

/// A script: its blocks, in order. State lives on from one block to the next.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) blocks: Vec<Block>,
}

/// Commands, and what they print.
#[derive(Debug)]
pub(crate) struct Block {
    /// Everything above the `---`, comments included, as written.
    head: Vec<String>,
    pub(crate) steps: Vec<Step>,
    pub(crate) expected: Vec<String>,
}

/// A command with the lines that belong to it.
#[derive(Debug)]
pub(crate) struct Step {
    /// Counted from one.
    pub(crate) line: usize,
    pub(crate) command: String,
    pub(crate) details: Vec<String>,
}

const RULE: &str = "---";

impl Block {
    /// Whether the block says what it shows.
    pub(crate) fn has_comment(&self) -> bool {
        self.head.first().is_some_and(|line| line.starts_with("# "))
    }
}

impl Script {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut blocks = Vec::new();
        let mut lines = text.lines().enumerate().peekable();
        let mut head: Vec<String> = Vec::new();
        let mut steps: Vec<Step> = Vec::new();
        while let Some((at, line)) = lines.next() {
            if line == RULE {
                let expected = std::iter::from_fn(|| {
                    lines.next_if(|(_, line)| !line.is_empty()).map(|(_, line)| line.to_owned())
                });
                let expected = expected.collect();
                blocks.push(Block {
                    head: std::mem::take(&mut head),
                    steps: std::mem::take(&mut steps),
                    expected,
                });
                lines.next_if(|(_, line)| line.is_empty());
                continue;
            }
            head.push(line.to_owned());
            match line.strip_prefix("  ") {
                Some(detail) => {
                    let step = steps.last_mut();
                    let step = step.ok_or_else(|| format!("{}: belongs to nothing", at + 1))?;
                    step.details.push(detail.to_owned());
                }
                None if line.is_empty() || line.starts_with('#') => {}
                None => {
                    let (line, command) = (at + 1, line.to_owned());
                    steps.push(Step { line, command, details: Vec::new() });
                }
            }
        }
        if !steps.is_empty() {
            return Err(format!("commands at the end without a '{RULE}' below them"));
        }
        Ok(Self { blocks })
    }

    /// The script with what it really printed, one list of lines for each block.
    pub(crate) fn with_output(&self, output: &[Vec<String>]) -> String {
        let mut text = String::new();
        for (block, output) in self.blocks.iter().zip(output) {
            if !text.is_empty() {
                text.push('\n');
            }
            let rule = [RULE.to_owned()];
            for line in block.head.iter().chain(&rule).chain(output) {
                text.push_str(line);
                text.push('\n');
            }
        }
        text
    }
}
