//! What is wrong with a configuration: every error at once, each with its place.
use std::fmt;
use std::ops::Range;

/// The most that a snippet shows of one line, in characters.
const WIDEST: usize = 100;

/// One error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    /// Where, in bytes of the source.
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    /// The mend, where there is one to tell.
    pub(crate) help: Option<String>,
    /// Something is missing: not told where the text is broken anyway, since it may be missing for that reason.
    pub(crate) missing: bool,
}

/// Everything that is wrong with one file. Its text is the whole report, for people.
#[derive(Debug)]
pub(crate) struct Problems {
    name: String,
    source: String,
    list: Vec<Problem>,
}

/// A place in the source, as editors count: from 1, columns in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Problems {
    /// Sorts the list by place. `name` is what the report calls the source.
    pub(crate) fn new(name: &str, source: &str, mut list: Vec<Problem>) -> Self {
        list.sort_by_key(|problem| (problem.span.start, problem.span.end));
        list.dedup();
        Self { name: name.to_owned(), source: source.to_owned(), list }
    }

    /// What the report calls the source.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How many there are.
    pub(crate) fn summary(&self) -> String {
        let count = self.list.len();
        format!("{count} error{} in {}", if count == 1 { "" } else { "s" }, self.name)
    }

    /// One line for each, for the log.
    pub(crate) fn lines(&self) -> impl Iterator<Item = String> {
        self.iter().map(|(place, problem)| {
            let help = problem.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
            format!("{}:{}:{}: {}{help}", self.name, place.line, place.column, problem.message)
        })
    }

    /// The errors with their places, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Place, &Problem)> {
        self.list.iter().map(|problem| (place(&self.source, problem.span.start), problem))
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, problem) in self.iter() {
            writeln!(
                f,
                "{}:{}:{}: {}",
                self.name,
                place.line,
                place.column,
                crate::escape::line(&problem.message)
            )?;
            snippet(f, &self.source, &problem.span, place)?;
            if let Some(help) = &problem.help {
                writeln!(f, "  = help: {}", crate::escape::line(help))?;
            }
        }
        f.write_str(&self.summary())
    }
}

impl std::error::Error for Problems {}

/// The place of a byte offset; one in the middle of a character is that character's.
pub(crate) fn place(source: &str, offset: usize) -> Place {
    let offset = floor(source, offset);
    let before = &source[..offset];
    let start = before.rfind('\n').map_or(0, |at| at + 1);
    Place { line: before.matches('\n').count() + 1, column: before[start..].chars().count() + 1 }
}

fn floor(source: &str, offset: usize) -> usize {
    let mut offset = offset.min(source.len());
    while !source.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// The line with carets below the span; what does not fit is cut off on both sides.
fn snippet(f: &mut fmt::Formatter<'_>, source: &str, span: &Range<usize>, place: Place) -> fmt::Result {
    let line = source.split('\n').nth(place.line - 1).unwrap_or_default().trim_end_matches('\r');
    let first = place.column - 1;
    let marked = source[floor(source, span.start)..floor(source, span.end.max(span.start))]
        .chars()
        .take_while(|c| *c != '\n' && *c != '\r')
        .count()
        .max(1);
    let from = first.saturating_sub(WIDEST / 2);
    let shown: String =
        line.chars().skip(from).take(WIDEST).map(|c| if c.is_control() { ' ' } else { c }).collect();
    let carets = "^".repeat(marked.min(WIDEST.saturating_sub(first - from)).max(1));
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    writeln!(f, "{margin} |")?;
    writeln!(f, "{number} | {shown}")?;
    writeln!(f, "{margin} | {}{carets}", " ".repeat(first - from))
}
