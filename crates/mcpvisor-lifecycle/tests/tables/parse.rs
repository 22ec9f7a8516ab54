//! Reads the tables.
use std::cell::Cell;
use std::collections::BTreeSet;
use std::path::Path;

/// Words that hold of a variant, or that a row asks for.
pub(crate) type Words = BTreeSet<String>;

/// One case of a transition table.
pub(crate) struct Row {
    pub(crate) line: usize,
    pub(crate) state: String,
    pub(crate) event: String,
    pub(crate) conditions: Words,
    pub(crate) next: String,
    pub(crate) effects: Vec<String>,
    used: Cell<bool>,
}

/// A transition table, with each row that stands for several cases taken apart.
pub(crate) struct Table {
    rows: Vec<Row>,
}

/// The rows of the table behind the marker `<!-- table: NAME -->`, with their lines; the header is left out.
pub(crate) fn cells(name: &str) -> Vec<(usize, Vec<String>)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lifecycle.md");
    let text = std::fs::read_to_string(&path).expect("docs/lifecycle.md is part of the repository");
    let marker = format!("<!-- table: {name} -->");
    let rows: Vec<_> = text
        .lines()
        .enumerate()
        .skip_while(|(_, line)| line.trim() != marker)
        .skip(3)
        .take_while(|(_, line)| line.starts_with('|'))
        .map(|(number, line)| {
            let inner = line.trim().trim_matches('|');
            (number + 1, inner.split('|').map(|cell| cell.trim().replace('`', "")).collect())
        })
        .collect();
    assert!(!rows.is_empty(), "docs/lifecycle.md has no table named {name}");
    rows
}

/// Splits at commas that are not inside parentheses; `—` and nothing are no item.
pub(crate) fn items(cell: &str) -> Vec<String> {
    let (mut depth, mut parts) = (0_usize, vec![String::new()]);
    for letter in cell.chars() {
        match letter {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if letter != ',' || depth > 0 => part.push(letter),
            _ => parts.push(String::new()),
        }
    }
    let trimmed = parts.iter().map(|part| part.trim().to_owned());
    trimmed.filter(|part| !part.is_empty() && part != "—").collect()
}

pub(crate) fn words(list: &[&str]) -> Words {
    list.iter().map(|word| (*word).to_owned()).collect()
}

impl Table {
    /// Reads a table with the columns state, event, if, next, effects.
    pub(crate) fn read(name: &str) -> Self {
        let mut rows = Vec::new();
        for (line, cells) in cells(name) {
            let [states, events, conditions, next, effects] = cells.as_slice() else {
                panic!("line {line}: a transition has five cells, and not {}", cells.len());
            };
            for state in items(states) {
                for event in items(events) {
                    rows.push(Row {
                        line,
                        state: state.clone(),
                        event,
                        conditions: items(conditions).into_iter().collect(),
                        next: if next == "same" { state.clone() } else { next.clone() },
                        effects: items(effects),
                        used: Cell::new(false),
                    });
                }
            }
        }
        Self { rows }
    }

    /// Replaces each row by others, for tables that name things by variables.
    pub(crate) fn expand(self, with: impl Fn(Row) -> Vec<Row>) -> Self {
        Self { rows: self.rows.into_iter().flat_map(with).collect() }
    }

    /// The one row that applies.
    pub(crate) fn row(&self, state: &str, event: &str, holds: &Words) -> Option<&Row> {
        let mut applying = self
            .rows
            .iter()
            .filter(|row| row.state == state && row.event == event && row.conditions.is_subset(holds));
        let first = applying.next();
        if let (Some(one), Some(two)) = (first, applying.next()) {
            panic!("lines {} and {} both apply to {state}, {event}, {holds:?}", one.line, two.line);
        }
        if let Some(row) = first {
            row.used.set(true);
        }
        first
    }

    /// No row is there for nothing.
    pub(crate) fn assert_all_used(&self) {
        let idle: Vec<_> = self
            .rows
            .iter()
            .filter(|row| !row.used.get())
            .map(|row| format!("line {}: {}, {}, {:?}", row.line, row.state, row.event, row.conditions))
            .collect();
        assert!(idle.is_empty(), "rows that no variant reaches:\n{}", idle.join("\n"));
    }
}

impl Row {
    /// The same row with a text replaced everywhere.
    pub(crate) fn replaced(&self, swaps: &[(&str, &str)]) -> Self {
        let swap = |text: &String| swaps.iter().fold(text.clone(), |text, (from, to)| text.replace(from, to));
        Self {
            line: self.line,
            state: self.state.clone(),
            event: swap(&self.event),
            conditions: self.conditions.iter().map(swap).collect(),
            next: self.next.clone(),
            effects: self.effects.iter().map(swap).collect(),
            used: Cell::new(false),
        }
    }
}
