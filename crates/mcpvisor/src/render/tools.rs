//! Tools and their results, for people.
use super::escape;
use super::style::Style;
use mcpvisor_control::results::{ServerDown, ServerState, Tool};
use serde_json::Value;

/// `tools`: each with its arguments.
pub(crate) fn tools(tools: &[Tool], style: Style) -> String {
    tools.iter().map(|tool| one(tool, style)).collect()
}

/// A server whose tools are left out.
pub(crate) fn down(down: &ServerDown) -> String {
    let name = &down.name;
    match (down.state, down.retry_after_ms) {
        (ServerState::Backoff, Some(after)) => {
            format!("server {name} has ended and is started again in {after} ms")
        }
        (ServerState::Starting | ServerState::Backoff, _) => format!("server {name} is being started"),
        (ServerState::Failed, _) => format!("server {name} has failed and is not started again"),
        _ => format!("server {name} does not run"),
    }
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

/// What of a result is no text: an image, a sound, or a resource in bytes.
#[derive(Debug)]
pub(crate) struct File<'a> {
    /// `image`, `audio` or `resource`.
    pub(crate) kind: &'a str,
    /// A resource's name.
    pub(crate) uri: Option<&'a str>,
    pub(crate) mime: Option<&'a str>,
    /// In base64.
    pub(crate) data: &'a str,
}

impl File<'_> {
    /// What it is, in a word or two.
    pub(crate) fn what(&self) -> String {
        let named: Vec<_> = self.uri.into_iter().chain(self.mime).map(escape::line).collect();
        if named.is_empty() { self.kind.to_owned() } else { format!("{}: {}", self.kind, named.join(", ")) }
    }
}

/// A tool's result. Text is shown as it is, JSON in lines; `save` keeps a file and tells where.
pub(crate) fn result(result: &Value, save: &mut dyn FnMut(&File<'_>) -> String) -> String {
    let items = || result.get("content").and_then(Value::as_array).into_iter().flatten();
    let structured = result
        .get("structuredContent")
        .filter(|structured| !items().any(|item| is_wrapped_by(item, structured)));
    let mut text = String::new();
    for item in items() {
        if structured.is_some_and(|structured| says_the_same(item, structured)) {
            continue;
        }
        let mut part = content(item, save);
        if !part.ends_with('\n') {
            part.push('\n');
        }
        text += &part;
    }
    if let Some(structured) = structured {
        text += &escape::block(&format!("{structured:#}\n"));
    }
    text
}

/// Servers send structured content as text too, for clients that don't know it.
fn says_the_same(item: &Value, structured: &Value) -> bool {
    let text = item.get("text").and_then(Value::as_str).filter(|_| item["type"] == "text");
    text.is_some_and(|text| serde_json::from_str::<Value>(text).is_ok_and(|value| value == *structured))
}

/// A text that a server wrapped in an object of one field, to have structured content.
fn is_wrapped_by(item: &Value, structured: &Value) -> bool {
    let text = item.get("text").and_then(Value::as_str).filter(|_| item["type"] == "text");
    let only =
        structured.as_object().filter(|object| object.len() == 1).and_then(|object| object.values().next());
    only.and_then(Value::as_str).zip(text).is_some_and(|(only, text)| only == text)
}

fn content(item: &Value, save: &mut dyn FnMut(&File<'_>) -> String) -> String {
    let field = |name: &str| item.get(name).and_then(Value::as_str);
    match (field("type"), field("data")) {
        (Some("text"), _) => escape::block(field("text").unwrap_or_default()).into_owned(),
        (Some(kind @ ("image" | "audio")), Some(data)) => {
            save(&File { kind, uri: None, mime: field("mimeType"), data })
        }
        (Some("resource_link"), _) => resource_link(item),
        (Some("resource"), _) => resource(item.get("resource").unwrap_or(&Value::Null), save),
        _ => escape::line(&item.to_string()).into_owned(),
    }
}

/// A resource that the server has, with what it says of it.
fn resource_link(item: &Value) -> String {
    let field = |name: &str| item.get(name).and_then(Value::as_str).map(escape::line);
    let mut text = format!("[resource: {}", field("uri").unwrap_or("?".into()));
    for more in
        [field("title").or(field("name")), field("mimeType"), field("description")].into_iter().flatten()
    {
        text += &format!(", {more}");
    }
    if let Some(size) = item.get("size").and_then(Value::as_u64) {
        text += &format!(", {size} bytes");
    }
    text + "]"
}

fn resource(resource: &Value, save: &mut dyn FnMut(&File<'_>) -> String) -> String {
    let field = |name: &str| resource.get(name).and_then(Value::as_str);
    let uri = escape::line(field("uri").unwrap_or("?"));
    match (field("text"), field("blob")) {
        (Some(text), _) => format!("[resource: {uri}]\n{}", escape::block(text)),
        (None, Some(data)) => {
            save(&File { kind: "resource", uri: field("uri"), mime: field("mimeType"), data })
        }
        (None, None) => format!("[resource: {uri}]"),
    }
}

/// What a modern server wants to know before it carries a call out.
pub(crate) fn input_required(result: &Value) -> String {
    let mut text = "input is required:\n".to_owned();
    for (name, request) in result.get("inputRequests").and_then(Value::as_object).into_iter().flatten() {
        let method = request.get("method").and_then(Value::as_str).unwrap_or("?");
        text += &format!("  {}: {}", escape::line(name), escape::line(method));
        let params = request.get("params").unwrap_or(&Value::Null);
        if let Some(message) = params.get("message").and_then(Value::as_str) {
            text += &format!(": {}", escape::line(message));
        }
        text.push('\n');
        let wanted = params.get("requestedSchema").and_then(|schema| schema.get("properties"));
        for (name, schema) in wanted.and_then(Value::as_object).into_iter().flatten() {
            let kind = schema.get("type").map_or_else(|| "any".to_owned(), type_text);
            text += &format!("    {}: {kind}\n", escape::line(name));
        }
        if let Some(url) = params.get("url").and_then(Value::as_str) {
            text += &format!("    {}\n", escape::line(url));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(value: &Value) -> String {
        result(value, &mut |file| format!("[{} in {}]", file.what(), file.data))
    }

    #[test]
    fn text_is_shown_and_escaped_files_are_saved_and_the_rest_is_named() {
        let text = shown(&json!({"content": [
            {"type": "text", "text": "a\tb\nc\u{1b}]0;x\u{7}"},
            {"type": "image", "mimeType": "image/\npng", "data": "AAAA"},
            {"type": "audio", "data": "BBBB"},
            {"type": "resource_link", "uri": "file:///x\n", "name": "x", "title": "X", "mimeType": "text/plain", "size": 7},
            {"type": "resource", "resource": {"uri": "u", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "b\u{1b}", "mimeType": "a/b", "blob": "CCCC"}},
            {"type": "resource", "resource": {}},
            {"type": "image"},
            {"type": "future", "x": 1},
            7
        ]}));
        assert_eq!(
            text,
            "a\tb\nc\\x1b]0;x\\x07\n[image: image/\\x0apng in AAAA]\n[audio in BBBB]\n\
             [resource: file:///x\\x0a, X, text/plain, 7 bytes]\n[resource: u]\ninside\n\
             [resource: b\\x1b, a/b in CCCC]\n[resource: ?]\n{\"type\":\"image\"}\n{\"type\":\"future\",\"x\":1}\n7\n"
        );
    }

    #[test]
    fn structured_content_is_shown_in_lines_and_once() {
        assert_eq!(shown(&json!({"structuredContent": {"a": 1}, "content": []})), "{\n  \"a\": 1\n}\n");
        let content = json!([{"type": "text", "text": "{\"a\":1}"}, {"type": "text", "text": "done"}]);
        let both = json!({"structuredContent": {"a": 1}, "content": content});
        assert_eq!(shown(&both), "done\n{\n  \"a\": 1\n}\n");
        let wrapped = json!([{"type": "text", "text": "[FILE] a"}]);
        let wrapped = json!({"structuredContent": {"content": "[FILE] a"}, "content": wrapped});
        assert_eq!(shown(&wrapped), "[FILE] a\n");
        assert_eq!(shown(&json!({})), "");
        assert_eq!(shown(&json!({"structuredContent": {"a": "\u{9b}"}})), "{\n  \"a\": \"\\x9b\"\n}\n");
    }

    #[test]
    fn wanted_input_is_named() {
        let text =
            input_required(&json!({"resultType": "input_required", "requestState": "s", "inputRequests": {
                "who": {"method": "elicitation/create", "params": {"message": "Who\u{1b}?",
                    "requestedSchema": {"properties": {"name": {"type": "string"}}}}},
                "x": 1
            }}));
        assert_eq!(
            text,
            "input is required:\n  who: elicitation/create: Who\\x1b?\n    name: string\n  x: ?\n"
        );
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
