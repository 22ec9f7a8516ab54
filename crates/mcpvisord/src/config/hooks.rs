//! Hooks in the configuration.
use super::Hook;
use super::keys::{self, HOOK};
use super::read::set;
use super::walk::{Item, Section};
use mcpvisor_supervisor::EventKind;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::time::Duration;

/// More hooks than anyone needs.
const MOST: usize = 64;
/// How long one may run, where it does not say.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn hooks(list: &Item<'_>) -> Vec<Hook> {
    let items = list.items().unwrap_or_default();
    if items.len() > MOST {
        list.wrong(&format!("there are {} hooks; the most are {MOST}", items.len()), None);
    }
    let sections = items.into_iter().enumerate().filter_map(|(at, item)| Some((at, item.section(&HOOK)?)));
    sections.filter_map(|(at, section)| hook(at, &section)).collect()
}

/// None where something of it is wrong, which has been told then.
fn hook(at: usize, section: &Section<'_>) -> Option<Hook> {
    let on = match section.get("on") {
        None => {
            section.missing("on", "say on which events it runs: on = [\"session.closed\"]");
            Vec::new()
        }
        Some(item) => patterns(&item),
    };
    let command = match section.get("command") {
        None => {
            section.missing("command", "name the program: command = \"/usr/local/bin/tell\"");
            None
        }
        Some(item) => words(&item).filter(|command| {
            if command.is_empty() {
                item.wrong("a program's name can't be empty", None);
            }
            !command.is_empty()
        }),
    };
    let args = section.get("args").and_then(|item| item.items()).unwrap_or_default();
    let mut env = BTreeMap::new();
    for (name, item) in section.get("env").map(Item::entries).unwrap_or_default() {
        if name.is_empty() || name.contains(['=', '\0']) {
            item.wrong_name(&format!("`{name}` is not an environment variable's name"));
        } else if name.starts_with("MCPVISOR_") {
            item.wrong_name(&format!("`{name}`: names that begin with MCPVISOR_ are the daemon's own"));
        }
        env.extend(words(&item).map(|value| (name, value)));
    }
    let mut timeout = TIMEOUT;
    if let Some(item) = section.get("timeout") {
        match item.duration() {
            Some(Duration::ZERO) => item.wrong("a hook can't run in no time", None),
            span => set(&mut timeout, span),
        }
    }
    let name = section.get("name").and_then(|item| item.text().map(str::to_owned));
    let name = name.unwrap_or_else(|| format!("hooks[{at}]"));
    let args = args.iter().filter_map(words).collect();
    command.filter(|_| !on.is_empty()).map(|command| Hook { name, on, command, args, env, timeout })
}

/// A string for a program: nothing in it is expanded.
fn words(item: &Item<'_>) -> Option<CString> {
    let text = item.text()?;
    CString::new(text).map_err(|_| item.wrong("a program can't be told a NUL", None)).ok()
}

fn patterns(list: &Item<'_>) -> Vec<String> {
    let items = list.items().unwrap_or_default();
    if items.is_empty() {
        list.wrong("a hook runs on at least one kind of event", None);
    }
    let known =
        |pattern: &str| EventKind::ALL.iter().any(|kind| mcpvisor_supervisor::Hook::means(pattern, *kind));
    let mut patterns = Vec::new();
    for item in items {
        let Some(pattern) = item.text() else { continue };
        if !known(pattern) {
            let kinds: Vec<&str> = EventKind::ALL.iter().map(|kind| kind.as_str()).collect();
            let near = keys::nearest(pattern, &kinds).map(|near| format!("did you mean \"{near}\"?"));
            let help = near.unwrap_or_else(|| {
                "docs/events.md tells the kinds; session.* means all of a session".to_owned()
            });
            item.wrong(&format!("`{pattern}` is no kind of event that a hook can run on"), Some(&help));
        }
        patterns.push(pattern.to_owned());
    }
    patterns
}
