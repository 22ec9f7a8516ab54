//! A small blocking MCP server over two streams: one request, one answer, until end of file.
use serde_json::{Value, json};
use std::io::{self, BufRead, Write};

/// The revisions with an `initialize` handshake, newest first; this server knows no difference between them.
const REVISIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// A tool: its definition as `tools/list` tells it, and what a call does.
pub(crate) struct Tool<'a> {
    pub(crate) name: &'static str,
    pub(crate) description: &'static str,
    pub(crate) input: Value,
    pub(crate) call: Box<ToolFn<'a>>,
}

/// Gives the text of the result, or of the error that the tool reports.
pub(crate) type ToolFn<'a> = dyn Fn(&Value) -> Result<String, String> + 'a;

/// Serves until `input` ends.
///
/// # Errors
/// When `input` can't be read or `output` can't be written.
pub(crate) fn serve(
    name: &str,
    tools: &[Tool<'_>],
    mut input: impl BufRead,
    mut output: impl Write,
) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if let Some(answer) = answer(name, tools, &line) {
            let mut bytes = answer.to_string().into_bytes();
            bytes.push(b'\n');
            output.write_all(&bytes)?;
            output.flush()?;
        }
    }
}

fn answer(name: &str, tools: &[Tool<'_>], line: &[u8]) -> Option<Value> {
    let Ok(message) = serde_json::from_slice::<Value>(line) else {
        return Some(failure(&Value::Null, -32700, "this line is not JSON"));
    };
    // A message without an id is a notification, one without a method an answer: neither is answered.
    let id = message.get("id").filter(|id| !id.is_null())?;
    let method = message.get("method")?.as_str()?;
    let params = &message["params"];
    Some(match method {
        "initialize" => success(id, initialize(name, params)),
        "ping" => success(id, json!({})),
        "tools/list" => {
            let list: Vec<Value> = tools
                .iter()
                .map(|t| json!({"name": t.name, "description": t.description, "inputSchema": t.input}))
                .collect();
            success(id, json!({"tools": list}))
        }
        "tools/call" => match tools.iter().find(|tool| params["name"] == tool.name) {
            Some(tool) => {
                let (text, is_error) = match (tool.call)(&params["arguments"]) {
                    Ok(text) => (text, false),
                    Err(text) => (text, true),
                };
                success(id, json!({"content": [{"type": "text", "text": text}], "isError": is_error}))
            }
            None => failure(id, -32602, "there is no tool of this name"),
        },
        _ => failure(id, -32601, "there is no method of this name"),
    })
}

fn initialize(name: &str, params: &Value) -> Value {
    let asked = params["protocolVersion"].as_str().unwrap_or_default();
    let revision = REVISIONS.into_iter().find(|known| *known == asked).unwrap_or(REVISIONS[0]);
    json!({
        "protocolVersion": revision,
        "capabilities": {"tools": {}},
        "serverInfo": {"name": name, "version": env!("CARGO_PKG_VERSION")},
    })
}

#[expect(clippy::needless_pass_by_value, reason = "the value moves into the answer")]
fn success(id: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

fn failure(id: &Value, code: i32, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(lines: &str) -> Vec<Value> {
        let tools = [Tool {
            name: "shout",
            description: "In capitals",
            input: json!({"type": "object"}),
            call: Box::new(|arguments| {
                arguments["text"].as_str().map(str::to_uppercase).ok_or_else(|| "text is missing".to_owned())
            }),
        }];
        let mut out = Vec::new();
        serve("test", &tools, lines.as_bytes(), &mut out).unwrap();
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn answers_requests_in_order_and_keeps_their_ids() {
        let answers = talk(concat!(
            r#"{"jsonrpc":"2.0","id":"1","method":"initialize","params":{"protocolVersion":"2024-11-05"}}"#,
            "\n",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            "\n\r\n",
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"shout","arguments":{"text":"a"}}}"#,
        ));
        assert_eq!(answers.len(), 3);
        assert_eq!(answers[0]["id"], "1");
        assert_eq!(answers[0]["result"]["protocolVersion"], "2024-11-05");
        assert_eq!(answers[1]["result"]["tools"][0]["name"], "shout");
        assert_eq!(answers[2]["result"]["content"][0]["text"], "A");
    }

    #[test]
    fn tells_failures_apart() {
        let answers = talk(concat!(
            "no json\n",
            r#"{"jsonrpc":"2.0","id":1,"method":"nonsense"}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"none"}}"#,
            "\n",
            r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"shout"}}"#,
            "\n",
        ));
        assert_eq!(answers[0]["error"]["code"], -32700);
        assert_eq!(answers[1]["error"]["code"], -32601);
        assert_eq!(answers[2]["error"]["code"], -32602);
        assert_eq!(answers[3]["result"]["isError"], true);
    }

    #[test]
    fn an_unknown_revision_gets_the_newest() {
        let answers = talk(r#"{"id":1,"method":"initialize","params":{"protocolVersion":"1999-01-01"}}"#);
        assert_eq!(answers[0]["result"]["protocolVersion"], REVISIONS[0]);
    }
}
