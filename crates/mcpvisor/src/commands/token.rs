//! The token of a session: read from a file or the environment, never from the command line, which every process can see.
use super::failure::Failure;
use crate::cli::TokenArgs;
use mcpvisor_control::Token;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const VARIABLE: &str = "MCPVISOR_TOKEN";
/// No token is as long.
const LONGEST: u64 = 1024;

/// The token that is to be shown, if any: that of the file, else that of the environment.
pub(crate) fn shown(doing: &str, args: &TokenArgs) -> Result<Option<Token>, Failure> {
    let (text, from) = match &args.token_file {
        Some(path) => {
            let mut text = String::new();
            let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_string(&mut text));
            read.map_err(|error| Failure::other(doing, format!("{}: {error}", path.display())))?;
            (text, path.display().to_string())
        }
        None => match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => (text, VARIABLE.to_owned()),
            _ => return Ok(None),
        },
    };
    let token = text.trim().parse::<Token>();
    token.map(Some).map_err(|error| Failure::usage(doing, format!("{from}: {error}")))
}

/// A file for a token: made before there is one, so that a token is never lost for want of it, and taken away where none comes.
pub(crate) struct TokenFile {
    path: PathBuf,
    file: File,
    written: bool,
}

impl TokenFile {
    /// Readable by nobody else.
    pub(crate) fn create(doing: &str, path: &Path) -> Result<Self, Failure> {
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = made.map_err(|error| Failure::other(doing, format!("{}: {error}", path.display())))?;
        Ok(Self { path: path.to_owned(), file, written: false })
    }

    pub(crate) fn write(mut self, doing: &str, token: &Token) -> Result<(), Failure> {
        let written = self.file.write_all(format!("{}\n", token.as_str()).as_bytes());
        written.map_err(|error| Failure::other(doing, format!("{}: {error}", self.path.display())))?;
        self.written = true;
        Ok(())
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if !self.written {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
