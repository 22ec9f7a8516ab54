//! Tools and their results, for people.
use super::escape;
use super::style::Style;
use mcpvisor_control::results::Tool;
use serde_json::Value;

/// `tools`: each with its arguments.
pub(crate) fn tools(tools: &[Tool], style: Style) -> String {
    tools.iter().map(|tool| one(tool, style)).collect()
}

fn one(tool: &Tool, style: Style) -> String {
    let mut text = format!("{} ({})", style.strong(&escape::line(&tool.name)), tool.server);
    if let Some(title) = tool.title.as_ref().filter(|title| !title.is_empty()) {
        text += &format!(": {}", escape::line(title));
    }
    text.push('\n');
    if let Some(description) = &tool.description {
        text += &description
            .trim()
            .lines()
            .map(|line| format!("    {}\n", escape::line(line)))
            .collect::<String>();
    }
    let Some(properties) = tool.input_schema.get("properties").and_then(Value::as_object) else {
        return text;
    };
    let required = tool.input_schema.get("required").and_then(Value::as_array);
    for (name, schema) in properties {
        let needed = required.is_some_and(|names| names.iter().any(|other| other == name));
        let kind = schema.get("type").map(type_text).unwrap_or_default();
        let optional = if needed { "" } else { ", optional" };
        text += &format!("  {}: {kind}{optional}\n", escape::line(name));
    }
    text
}

fn type_text(kind: &Value) -> String {
    match kind {
        Value::String(name) => escape::line(name).into_owned(),
        Value::Array(names) => names.iter().map(type_text).collect::<Vec<_>>().join("|"),
        _ => "any".to_owned(),
    }
}

/// The content of a tool's result. Text as it is, the rest by name.
pub(crate) fn result(result: &Value) -> String {
    let mut text = String::new();
    for item in result.get("content").and_then(Value::as_array).into_iter().flatten() {
        let mut part = content(item);
        if !part.ends_with('\n') {
            part.push('\n');
        }
        text += &part;
    }
    if let (true, Some(structured)) = (text.is_empty(), result.get("structuredContent")) {
        text = escape::block(&format!("{structured:#}\n")).into_owned();
    }
    text
}

fn content(item: &Value) -> String {
    let field = |name: &str| item.get(name).and_then(Value::as_str);
    let shown = |text: Option<&str>| escape::line(text.unwrap_or("?")).into_owned();
    match field("type") {
        Some("text") => escape::block(field("text").unwrap_or_default()).into_owned(),
        Some(kind @ ("image" | "audio")) => {
            let size = field("data").map_or(0, |data| data.len() / 4 * 3);
            format!("[{kind}: {}, about {size} bytes; --json has it]", shown(field("mimeType")))
        }
        Some("resource_link") => format!("[resource: {}]", shown(field("uri"))),
        Some("resource") => {
            let resource = item.get("resource").unwrap_or(&Value::Null);
            let uri = shown(resource.get("uri").and_then(Value::as_str));
            match resource.get("text").and_then(Value::as_str) {
                Some(text) => format!("[resource: {uri}]\n{}", escape::block(text)),
                None => format!("[resource: {uri}; --json has it]"),
            }
        }
        _ => escape::line(&item.to_string()).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_shown_and_escaped_and_the_rest_is_named() {
        let text = result(&json!({"content": [
            {"type": "text", "text": "a\tb\nc\u{1b}]0;x\u{7}"},
            {"type": "image", "mimeType": "image/png", "data": "AAAAAAAA"},
            {"type": "resource_link", "uri": "file:///x\n"},
            {"type": "resource", "resource": {"uri": "u", "text": "inside"}},
            {"type": "future", "x": 1},
            7
        ]}));
        assert_eq!(
            text,
            "a\tb\nc\\x1b]0;x\\x07\n[image: image/png, about 6 bytes; --json has it]\n[resource: file:///x\\x0a]\n\
             [resource: u]\ninside\n{\"type\":\"future\",\"x\":1}\n7\n"
        );
    }

    #[test]
    fn structured_content_stands_in_where_there_is_no_other() {
        assert_eq!(result(&json!({"structuredContent": {"a": 1}, "content": []})), "{\n  \"a\": 1\n}\n");
        assert_eq!(result(&json!({})), "");
    }

    #[test]
    fn a_tool_is_listed_with_its_arguments() {
        let tool: Tool = serde_json::from_value(json!({"name": "add", "server": "s", "description": "Adds.\nTwo.",
            "inputSchema": {"properties": {"a": {"type": "number"}, "b": {"type": ["number", "null"]}}, "required": ["a"]}}))
        .unwrap();
        assert_eq!(
            tools(&[tool], Style::PLAIN),
            "add (s)\n    Adds.\n    Two.\n  a: number\n  b: number|null, optional\n"
        );
    }
}
