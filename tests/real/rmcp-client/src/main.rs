//! The Rust SDK's stdio client against one server.
//!
//! `rmcp-client close|stay TOOL ARGUMENTS COMMAND [ARG...]`
//!
//! Does the handshake (with roots declared), lists the tools, says that it calls one, calls it, and says `ready` with what it got,
//! as lines of JSON. Then it closes in the SDK's own way, or stays until it is ended from outside. With REAL_AWAIT_ROOTS set it is
//! not ready before the server has asked for the roots, and never answers that. REAL_MODE is how it negotiates: `initialize`
//! (without it, too), `discover`, `auto`.
#![expect(deprecated, reason = "servers of today ask for roots, whatever a later revision will do")]
use rmcp::model::{CallToolRequestParams, ClientConfig, ListRootsResult, ProtocolVersion, Root};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt, RequestContext, RoleClient};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientHandler, ErrorData};

#[derive(Clone, Default)]
struct Handler {
    asked: std::sync::Arc<tokio::sync::Notify>,
}

fn awaited() -> bool {
    std::env::var_os("REAL_AWAIT_ROOTS").is_some()
}

fn lifecycle() -> Result<ClientLifecycleMode, String> {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    match std::env::var("REAL_MODE").as_deref() {
        Err(_) | Ok("initialize") => Ok(ClientLifecycleMode::Initialize),
        Ok("discover") => Ok(ClientLifecycleMode::Discover { preferred_versions }),
        Ok("auto") => Ok(ClientLifecycleMode::Auto { preferred_versions, legacy_version: None }),
        Ok(other) => Err(format!("there is no mode {other}")),
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities.roots = Some(Default::default());
        info
    }

    async fn list_roots(&self, _: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        self.asked.notify_one();
        if awaited() {
            std::future::pending::<()>().await;
        }
        Ok(ListRootsResult::new(vec![Root::new("file:///tmp")]))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [end, tool, arguments, command, rest @ ..] = words.as_slice() else {
        return Err("too few arguments".into());
    };
    let mut server = tokio::process::Command::new(command);
    server.args(rest);
    let handler = Handler::default();
    let asked = handler.asked.clone();
    let client = handler.serve_with_lifecycle(TokioChildProcess::new(server)?, lifecycle()?).await?;
    let tools = client.list_tools(Default::default()).await?;
    let mut call = CallToolRequestParams::new(tool.clone());
    call.arguments = serde_json::from_str(arguments)?;
    println!("{}", serde_json::json!({"calling": true}));
    let result = serde_json::to_value(client.call_tool(call).await?)?;
    if awaited() {
        asked.notified().await;
    }
    println!(
        "{}",
        serde_json::json!({"ready": true, "tools": tools.tools.len(), "text": result["content"][0]["text"]})
    );
    if end == "stay" {
        std::future::pending::<()>().await;
    }
    client.cancel().await?;
    println!("{}", serde_json::json!({"closed": true}));
    Ok(())
}
