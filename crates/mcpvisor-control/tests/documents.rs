//! What docs/ says of the protocol is what the types say. `UPDATE=1 cargo test -p mcpvisor-control` writes it anew.
use mcpvisor_control::{ErrorKind, Method};
use std::fmt::Write;
use std::path::PathBuf;

fn docs(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

fn hold(name: &str, wanted: &str, found: &str) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(docs(name), wanted).expect("docs/ can be written");
    } else {
        assert!(wanted == found, "docs/{name} is not current: run UPDATE=1 cargo test -p mcpvisor-control");
    }
}

fn read(name: &str) -> String {
    std::fs::read_to_string(docs(name)).unwrap_or_default()
}

#[test]
fn the_schema_is_current() {
    let name = "control-protocol.schema.json";
    let wanted = serde_json::to_string_pretty(&mcpvisor_control::schema::document()).unwrap() + "\n";
    hold(name, &wanted, &read(name));
}

/// The text with what stands between the marks of `name` replaced.
fn replaced(text: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->"));
    let (head, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("the document has no mark {begin}"));
    let (_, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("the document has no mark {end}"));
    format!("{head}{begin}\n{table}\n{end}{tail}")
}

#[test]
fn the_tables_are_current() {
    let name = "control-protocol.md";
    let mut errors = String::from("| kind | code | exit status | meaning |\n| --- | --- | --- | --- |\n");
    for kind in ErrorKind::ALL {
        let (code, exit, meaning) = (kind.code(), kind.exit_status(), kind.meaning());
        writeln!(errors, "| `{kind}` | {code} | {exit} | {meaning} |").unwrap();
    }
    let schema = mcpvisor_control::schema::document();
    let described = |method: &Method| {
        let reference = schema["methods"][method.as_str()]["params"]["$ref"].as_str()?;
        let of = |side: &str| {
            let path =
                schema["methods"][method.as_str()][side]["$ref"].as_str().unwrap_or("CallToolResult of MCP");
            format!("`{}`", path.rsplit('/').next().unwrap_or(path))
        };
        let parameters = format!("`{}`", reference.rsplit('/').next()?);
        Some((parameters, of("result")))
    };
    let mut methods = String::from("| method | parameters | answer |\n| --- | --- | --- |\n");
    for method in Method::ALL {
        let (parameters, answer) =
            described(method).unwrap_or_else(|| ("reserved".into(), "unsupported".into()));
        writeln!(methods, "| `{method}` | {parameters} | {answer} |").unwrap();
    }
    let found = read(name);
    let wanted = replaced(&replaced(&found, "errors", &errors), "methods", &methods);
    hold(name, &wanted, &found);
}
