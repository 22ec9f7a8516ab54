//! The server that behaves: it answers, and leaves at end of file.
use crate::demo_server::stdio::{Tool, serve};
use serde_json::{Value, json};
use std::io;

/// Serves standard input until it ends.
pub(crate) fn main() -> io::Result<()> {
    serve("polite", &tools(), io::stdin().lock(), io::stdout().lock())
}

fn tools() -> Vec<Tool<'static>> {
    vec![
        Tool {
            name: "echo",
            description: "Gives the message back.",
            input: json!({
                "type": "object",
                "properties": {"message": {"type": "string"}},
                "required": ["message"],
            }),
            call: Box::new(|arguments| {
                arguments["message"]
                    .as_str()
                    .map(str::to_owned)
                    .ok_or_else(|| "echo needs a message".to_owned())
            }),
        },
        Tool {
            name: "add",
            description: "The sum of two numbers.",
            input: json!({
                "type": "object",
                "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
                "required": ["a", "b"],
            }),
            call: Box::new(add),
        },
        Tool {
            name: "whoami",
            description: "The process id of this server.",
            input: json!({"type": "object", "properties": {}}),
            call: Box::new(|_| Ok(std::process::id().to_string())),
        },
    ]
}

fn add(arguments: &Value) -> Result<String, String> {
    let (a, b) = (&arguments["a"], &arguments["b"]);
    // Whole numbers are added as such, so that large ones stay exact.
    if let (Some(a), Some(b)) = (a.as_i64(), b.as_i64()) {
        return Ok((i128::from(a) + i128::from(b)).to_string());
    }
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => Ok((a + b).to_string()),
        _ => Err("add needs two numbers, a and b".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds() {
        assert_eq!(add(&json!({"a": 2, "b": 40})).as_deref(), Ok("42"));
        assert_eq!(add(&json!({"a": 0.5, "b": 1})).as_deref(), Ok("1.5"));
        assert_eq!(add(&json!({"a": i64::MAX, "b": 1})).as_deref(), Ok("9223372036854775808"));
        assert!(add(&json!({"a": "1"})).is_err());
    }
}
