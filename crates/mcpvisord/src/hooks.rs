//! Hooks: from the configuration to what runs, and how an event is told to one.
use crate::config::Config;
use crate::{convert, resolve};
use mcpvisor_lifecycle::Uid;
use mcpvisor_supervisor::{Event, Hook, HookSet, Told};
use serde_json::json;
use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

/// The hooks of a configuration, with the environment that servers of profiles have, and what each names.
pub(crate) fn set(config: &Config, instance: &str) -> HookSet {
    let ours = if config.hooks.is_empty() { BTreeMap::new() } else { resolve::own_environment() };
    let hooks = config.hooks.iter().map(|hook| {
        let mut env = ours.clone();
        env.extend(hook.env.iter().map(|(name, value)| (OsString::from(name), text(value))));
        Arc::new(Hook {
            name: hook.name.clone(),
            on: hook.on.clone(),
            program: hook.command.clone(),
            args: std::iter::once(&hook.command).chain(&hook.args).cloned().collect(),
            env: env.iter().filter_map(|(name, value)| resolve::entry(name, value)).collect(),
            cwd: PathBuf::from("/"),
            timeout: hook.timeout,
        })
    });
    let instance: Arc<str> = instance.into();
    HookSet { hooks: hooks.collect(), render: Arc::new(move |uid, event| render(uid, event, &instance)) }
}

fn text(value: &CString) -> OsString {
    use std::os::unix::ffi::OsStrExt as _;
    OsStr::from_bytes(value.as_bytes()).to_owned()
}

/// The event as `event/subscribe` tells it, with whose it is; one line.
fn render(uid: Uid, event: &Event, instance: &str) -> Vec<u8> {
    let told = Told { event: Arc::new(event.clone()), lost: 0 };
    let mut document = json!(convert::event(&told, instance));
    document["owner"] = json!({"uid": uid.0});
    (document.to_string() + "\n").into_bytes()
}
