//! Variables of a profile, given their values at an open.
use super::{Part, Profile, Scope, Template, Variable};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CString, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The most that is read of a file, in bytes: it becomes an argument or a variable of a server.
const LARGEST_FILE: u64 = 64 << 10;

/// Where values come from. Reading a file can block: expand off the runtime.
#[derive(Debug)]
pub(crate) struct Expansion<'a> {
    /// What the open names.
    pub(crate) args: &'a BTreeMap<String, String>,
    /// The daemon's environment, or a test's.
    pub(crate) env: fn(&str) -> Option<OsString>,
    /// systemd's directory of credentials.
    pub(crate) credentials: Option<PathBuf>,
}

/// Why a value can't be had. Its text names the variable and never a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ExpandError(String);

impl Expansion<'_> {
    /// The value of a template, as bytes without a NUL.
    pub(crate) fn expand(&self, template: &Template) -> Result<CString, ExpandError> {
        let mut bytes = Vec::new();
        for part in &template.parts {
            match part {
                Part::Literal(text) => bytes.extend_from_slice(text.as_bytes()),
                Part::Variable(variable) => {
                    let value = self.value(variable)?;
                    if value.contains(&0) {
                        return Err(ExpandError(format!("{} has a NUL in its value", name(variable))));
                    }
                    bytes.extend_from_slice(&value);
                }
            }
        }
        Ok(CString::new(bytes).expect("literals have no NUL by their parsing, values by the check above"))
    }

    fn value(&self, variable: &Variable) -> Result<Vec<u8>, ExpandError> {
        match variable {
            Variable::Env { name, default } => (self.env)(name)
                .map(OsStringExt::into_vec)
                .or_else(|| default.clone().map(String::into_bytes))
                .ok_or_else(|| {
                    ExpandError(format!(
                        "${{env:{name}}}: the daemon's environment has no {name}, and the profile gives no default"
                    ))
                }),
            Variable::Arg { name, default } => {
                self.args.get(name).or(default.as_ref()).map(|value| value.clone().into_bytes()).ok_or_else(
                    || ExpandError(format!("the profile needs an argument `{name}`: --arg {name}=VALUE")),
                )
            }
            Variable::File { path } => read(path).map_err(|cause| {
                ExpandError(format!("${{file:{}}}: {cause}", path.display()))
            }),
            Variable::Credential { name } => {
                let Some(folder) = &self.credentials else {
                    return Err(ExpandError(format!(
                        "${{credential:{name}}}: the daemon has no credentials: its unit needs LoadCredential={name}:PATH"
                    )));
                };
                read(&folder.join(name)).map_err(|cause| {
                    ExpandError(format!("${{credential:{name}}}: {cause}"))
                })
            }
        }
    }
}

fn name(variable: &Variable) -> String {
    match variable {
        Variable::Env { name, .. } => format!("${{env:{name}}}"),
        Variable::Arg { name, .. } => format!("the argument `{name}`"),
        Variable::File { path } => format!("${{file:{}}}", path.display()),
        Variable::Credential { name } => format!("${{credential:{name}}}"),
    }
}

/// A file's content, without one newline at its end. Only a regular file: others may never end.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(|error| error.to_string())?);
    let kind = file.metadata().map_err(|error| error.to_string())?;
    if !kind.is_file() {
        return Err("it is not a regular file".into());
    }
    let mut bytes = Vec::new();
    file.take(LARGEST_FILE + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(format!("it is larger than {LARGEST_FILE} bytes"));
    }
    if bytes.ends_with(b"\n") {
        bytes.pop();
        if bytes.ends_with(b"\r") {
            bytes.pop();
        }
    }
    Ok(bytes)
}

impl Profile {
    fn templates(&self) -> impl Iterator<Item = &Template> {
        self.servers.iter().flat_map(|server| {
            let socket = match &server.scope {
                Scope::External { socket } => Some(socket),
                Scope::Session | Scope::Daemon { .. } => None,
            };
            let one = server.command.iter().chain(&server.cwd).chain(socket);
            one.chain(&server.args).chain(server.env.values()).chain(&server.stop_command)
        })
    }

    /// The arguments that an open may name.
    pub(crate) fn arguments(&self) -> BTreeSet<&str> {
        self.templates()
            .flat_map(Template::variables)
            .filter_map(|variable| match variable {
                Variable::Arg { name, .. } => Some(name.as_str()),
                _ => None,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(args: &[(&str, &str)], credentials: Option<&Path>, text: &str) -> Result<String, String> {
        let args = args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let env = |name: &str| (name == "HERE").then(|| OsString::from("value"));
        let expansion = Expansion { args: &args, env, credentials: credentials.map(Path::to_owned) };
        let value = expansion.expand(&Template::parse(text).unwrap());
        value.map(|value| value.into_string().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn values_come_from_where_they_are_said_to() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "secret\n\n").unwrap();
        let file = folder.path().join("token").display().to_string();
        assert_eq!(expand(&[], None, "a-${env:HERE}-${env:GONE:-d}").unwrap(), "a-value-d");
        assert_eq!(expand(&[("root", "/r")], None, "${arg:root}${arg:x:-}").unwrap(), "/r");
        assert_eq!(expand(&[], None, &format!("<${{file:{file}}}>")).unwrap(), "<secret\n>");
        assert_eq!(expand(&[], Some(folder.path()), "${credential:token}").unwrap(), "secret\n");
        // A value is not expanded again.
        assert_eq!(expand(&[("a", "${env:HERE}")], None, "${arg:a}").unwrap(), "${env:HERE}");
    }

    #[test]
    fn what_is_missing_is_named_with_the_mend() {
        let error = |text: &str| expand(&[("nul", "a\0b")], None, text).unwrap_err();
        assert_eq!(error("${arg:root}"), "the profile needs an argument `root`: --arg root=VALUE");
        assert!(error("${env:GONE}").contains("environment has no GONE"));
        assert!(error("${credential:x}").contains("LoadCredential=x:PATH"));
        assert!(error("${file:/nonexistent/x}").contains("No such file"));
        assert!(error("${file:/}").contains("not a regular file"));
        assert!(error("${file:/dev/zero}").contains("not a regular file"));
        assert!(error("${arg:nul}").contains("has a NUL"));
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1 << 40).unwrap();
        let text = format!("${{file:{}}}", file.path().display());
        assert!(expand(&[], None, &text).unwrap_err().contains("larger than"));
    }
}
