//! The lines that a client writes to a server. Each ends with LF and has no other.
use crate::splice::end_line;
use crate::version::OFFERED;
use serde::Serialize;
use serde_json::value::RawValue;

/// JSON-RPC: there is no such method.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// JSON-RPC: not a valid request.
pub const INVALID_REQUEST: i32 = -32600;

const CLIENT: Implementation<'static> =
    Implementation { name: "mcpvisor", version: env!("CARGO_PKG_VERSION") };

#[derive(Serialize)]
struct Implementation<'a> {
    name: &'a str,
    version: &'a str,
}

#[derive(Serialize)]
struct Request<'a, P> {
    jsonrpc: &'static str,
    id: &'a str,
    method: &'static str,
    params: P,
}

#[derive(Serialize)]
struct Notification<P> {
    jsonrpc: &'static str,
    method: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<P>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct InitializeParams {
    #[serde(rename = "protocolVersion")]
    protocol_version: &'static str,
    capabilities: serde_json::Value,
    #[serde(rename = "clientInfo")]
    client_info: Implementation<'static>,
}

/// What a request carries beside its own parameters.
#[derive(Serialize)]
struct Meta<'a> {
    #[serde(rename = "progressToken", skip_serializing_if = "Option::is_none")]
    progress_token: Option<&'a str>,
    #[serde(flatten)]
    modern: Option<ModernMeta<'a>>,
}

/// What each request of the modern era carries.
#[derive(Serialize)]
struct ModernMeta<'a> {
    #[serde(rename = "io.modelcontextprotocol/protocolVersion")]
    protocol_version: &'a str,
    #[serde(rename = "io.modelcontextprotocol/clientInfo")]
    client_info: Implementation<'static>,
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    client_capabilities: Empty,
}

#[derive(Serialize)]
struct DiscoverParams<'a> {
    _meta: Meta<'a>,
}

#[derive(Serialize)]
struct ListParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    _meta: Option<Meta<'a>>,
}

#[derive(Serialize)]
struct WithMeta<'a> {
    #[serde(flatten)]
    params: &'a serde_json::Map<String, serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    _meta: Option<Meta<'a>>,
}

#[derive(Serialize)]
struct CallParams<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<&'a RawValue>,
    _meta: Meta<'a>,
}

#[derive(Serialize)]
struct CancelledParams<'a> {
    #[serde(rename = "requestId")]
    request_id: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
struct ResultResponse<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    result: Empty,
}

#[derive(Serialize)]
struct ErrorResponse<'a> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    error: ErrorObject<'a>,
}

#[derive(Serialize)]
struct ErrorObject<'a> {
    code: i32,
    message: &'a str,
}

/// `initialize`, offering the newest legacy revision, and what a client may have that is attached later: what that one lacks is
/// answered with an error at once.
pub fn initialize(id: &str) -> Vec<u8> {
    let capabilities = serde_json::json!({
        "roots": { "listChanged": true },
        "sampling": { "tools": {} },
        "elicitation": { "form": {}, "url": {} },
    });
    request(
        id,
        "initialize",
        InitializeParams { protocol_version: OFFERED, capabilities, client_info: CLIENT },
    )
}

/// `notifications/initialized`.
pub fn initialized() -> Vec<u8> {
    line(&Notification::<Empty> { jsonrpc: "2.0", method: "notifications/initialized", params: None })
}

/// `server/discover` of the modern era.
pub fn discover(id: &str, protocol: &str) -> Vec<u8> {
    request(id, "server/discover", DiscoverParams { _meta: Meta::of(None, Some(protocol)) })
}

/// A page of a list. `modern` is the revision of a modern server, which every request names.
pub fn list(id: &str, method: &'static str, cursor: Option<&str>, modern: Option<&str>) -> Vec<u8> {
    let meta = modern.map(|_| Meta::of(None, modern));
    request(id, method, ListParams { cursor, _meta: meta })
}

/// Any request with parameters that are an object.
pub fn request_with(
    id: &str,
    method: &'static str,
    params: &serde_json::Map<String, serde_json::Value>,
    modern: Option<&str>,
) -> Vec<u8> {
    request(id, method, WithMeta { params, _meta: modern.map(|_| Meta::of(None, modern)) })
}

/// A string as JSON.
pub fn quoted(text: &str) -> Vec<u8> {
    serde_json::Value::from(text).to_string().into_bytes()
}

/// `tools/call`, with the request's id as its progress token. The arguments stay as they are, but for line ends between tokens,
/// which become spaces.
pub fn tools_call(id: &str, name: &str, arguments: Option<&RawValue>, modern: Option<&str>) -> Vec<u8> {
    request(id, "tools/call", CallParams { name, arguments, _meta: Meta::of(Some(id), modern) })
}

/// `notifications/cancelled`. Not for `initialize`, which must not be cancelled.
pub fn cancelled(id: &str, reason: &str) -> Vec<u8> {
    line(&Notification {
        jsonrpc: "2.0",
        method: "notifications/cancelled",
        params: Some(CancelledParams { request_id: id, reason }),
    })
}

/// An empty result: the answer to `ping`.
pub fn empty_result(id: &RawValue) -> Vec<u8> {
    line(&ResultResponse { jsonrpc: "2.0", id, result: Empty {} })
}

/// An error of ours as the answer to a server's request.
pub fn error(id: &RawValue, code: i32, message: &str) -> Vec<u8> {
    line(&ErrorResponse { jsonrpc: "2.0", id, error: ErrorObject { code, message } })
}

impl<'a> Meta<'a> {
    fn of(progress_token: Option<&'a str>, modern: Option<&'a str>) -> Self {
        let modern = modern.map(|protocol_version| ModernMeta {
            protocol_version,
            client_info: CLIENT,
            client_capabilities: Empty {},
        });
        Self { progress_token, modern }
    }
}

fn request<P: Serialize>(id: &str, method: &'static str, params: P) -> Vec<u8> {
    line(&Request { jsonrpc: "2.0", id, method, params })
}

fn line<M: Serialize>(message: &M) -> Vec<u8> {
    let mut line = serde_json::to_vec(message)
        .expect("structs of strings and raw values have no key that is not a string and no failing part");
    end_line(&mut line);
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: Vec<u8>) -> String {
        let text = String::from_utf8(line).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        assert!(text.ends_with('\n'));
        text.trim_end().replace(env!("CARGO_PKG_VERSION"), "VERSION")
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn the_handshakes_lines() {
        assert_eq!(
            text(initialize("mcpvisor-1")),
            r#"{"jsonrpc":"2.0","id":"mcpvisor-1","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{"form":{},"url":{}},"roots":{"listChanged":true},"sampling":{"tools":{}}},"clientInfo":{"name":"mcpvisor","version":"VERSION"}}}"#
        );
        assert_eq!(text(initialized()), r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
        assert_eq!(
            text(discover("mcpvisor-2", "2026-07-28")),
            r#"{"jsonrpc":"2.0","id":"mcpvisor-2","method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"mcpvisor","version":"VERSION"},"io.modelcontextprotocol/clientCapabilities":{}}}}"#
        );
    }

    #[test]
    fn requests_about_tools() {
        assert_eq!(
            text(list("a", "tools/list", None, None)),
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{}}"#
        );
        assert_eq!(
            text(list("a", "prompts/list", Some("p\"2"), None)),
            r#"{"jsonrpc":"2.0","id":"a","method":"prompts/list","params":{"cursor":"p\"2"}}"#
        );
        assert!(
            text(list("a", "tools/list", None, Some("2026-07-28")))
                .contains(r#""params":{"_meta":{"io.modelcontext"#)
        );
        assert_eq!(
            text(tools_call("a", "t", None, None)),
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","_meta":{"progressToken":"a"}}}"#
        );
        assert!(text(tools_call("a", "t", None, Some("2026-07-28"))).contains(
            r#""_meta":{"progressToken":"a","io.modelcontextprotocol/protocolVersion":"2026-07-28","#
        ));
    }

    #[test]
    fn arguments_stay_as_they_are_on_one_line() {
        let arguments = raw("{\r\n  \"n\": 0.70,\n\t\"big\": 123456789012345678901234567890,\"s\":\"\\n\"}");
        assert!(text(tools_call("a", "t", Some(&arguments), None)).contains(
            "\"arguments\":{    \"n\": 0.70, \t\"big\": 123456789012345678901234567890,\"s\":\"\\n\"}"
        ));
    }

    #[test]
    fn answers_keep_the_servers_id() {
        assert_eq!(text(empty_result(&raw("1.50"))), r#"{"jsonrpc":"2.0","id":1.50,"result":{}}"#);
        assert_eq!(
            text(error(&raw("\"x\""), METHOD_NOT_FOUND, "no")),
            r#"{"jsonrpc":"2.0","id":"x","error":{"code":-32601,"message":"no"}}"#
        );
        assert_eq!(
            text(cancelled("a", "gone")),
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a","reason":"gone"}}"#
        );
    }
}
