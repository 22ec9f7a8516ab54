//! The Rust SDK's stdio client against one server.
//!
//! `rmcp-client close|stay TOOL ARGUMENTS COMMAND [ARG...]`
//!
//! Does the handshake (with roots declared), lists the tools, calls one, and says `ready` with what it got, as a line of JSON.
//! Then it closes in the SDK's own way, or stays until it is ended from outside. With REAL_AWAIT_ROOTS set it is not ready
//! before the server has asked for the roots, and never answers that.
#![expect(deprecated, reason = "servers of today ask for roots, whatever a later revision will do")]
use rmcp::model::{CallToolRequestParams, ClientConfig, ListRootsResult, Root};
use rmcp::service::{RequestContext, RoleClient};
use rmcp::transport::TokioChildProcess;
use rmcp::{ClientHandler, ErrorData, ServiceExt};

#[derive(Clone, Default)]
struct Handler {
    asked: std::sync::Arc<tokio::sync::Notify>,
}

fn awaited() -> bool {
    std::env::var_os("REAL_AWAIT_ROOTS").is_some()
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
    let client = handler.serve(TokioChildProcess::new(server)?).await?;
    let tools = client.list_tools(Default::default()).await?;
    let mut call = CallToolRequestParams::new(tool.clone());
    call.arguments = serde_json::from_str(arguments)?;
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
