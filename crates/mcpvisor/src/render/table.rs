//! Lists in columns.
use super::escape;
use super::style::Style;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};

/// Rows below a header; every cell is escaped. Without rows nothing.
pub(crate) fn table(style: Style, header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().copied());
    for row in rows {
        table.add_row(row.iter().map(|cell| escape::line(cell).into_owned()));
    }
    if table.is_empty() {
        return String::new();
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for (index, line) in table.lines().enumerate() {
        let line = line.trim_end();
        text += &if index == 0 { style.strong(line) } else { line.to_owned() };
        text.push('\n');
    }
    text
}

/// What can't be known is a hyphen.
pub(crate) fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_no_control_characters_and_no_spaces_at_line_ends() {
        let rows =
            [vec!["a".to_owned(), "x\u{1b}[2J\ny".to_owned()], vec!["long".to_owned(), or_none(None::<u32>)]];
        assert_eq!(table(Style::PLAIN, &["KEY", "B"], rows), "KEY   B\na     x\\x1b[2J\\x0ay\nlong  -\n");
        assert_eq!(table(Style::PLAIN, &["KEY"], []), "");
    }
}
