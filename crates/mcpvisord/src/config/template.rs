//! Text with variables: `${env:NAME:-default}`, `${file:PATH}`, `${arg:NAME:-default}`, `${credential:NAME}`.
use std::ops::Range;
use std::path::PathBuf;

/// A value of a profile, parsed once and expanded at each open.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Template {
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Literal(String),
    Variable(Variable),
}

/// Where a part of the text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Variable {
    /// The daemon's environment.
    Env { name: String, default: Option<String> },
    /// A file's content, without one newline at its end.
    File { path: PathBuf },
    /// What the open names with `--arg NAME=VALUE`.
    Arg { name: String, default: Option<String> },
    /// A file of systemd's `$CREDENTIALS_DIRECTORY`, read as `File`.
    Credential { name: String },
}

/// Why a text is not a template, and where in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadTemplate {
    pub(crate) at: Range<usize>,
    pub(crate) message: String,
    pub(crate) help: Option<&'static str>,
}

const FORMS: &str = "the variables are ${env:NAME}, ${env:NAME:-default}, ${file:/PATH}, ${arg:NAME}, \
                     ${arg:NAME:-default} and ${credential:NAME}; write $${ for the characters themselves";

impl Template {
    /// Text without variables.
    #[cfg(test)]
    pub(crate) fn literal(text: &str) -> Self {
        Self { parts: vec![Part::Literal(text.to_owned())] }
    }

    pub(crate) fn parse(text: &str) -> Result<Self, BadTemplate> {
        if let Some(at) = text.find('\0') {
            return Err(BadTemplate {
                at: at..at + 1,
                message: "a NUL can't be passed on".into(),
                help: None,
            });
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut at = 0;
        while let Some(dollar) = text[at..].find('$').map(|found| at + found) {
            literal.push_str(&text[at..dollar]);
            let rest = &text[dollar..];
            if rest.starts_with("$${") {
                literal.push_str("${");
                at = dollar + 3;
            } else if rest.starts_with("${") {
                let Some(end) = rest.find('}') else {
                    return Err(BadTemplate {
                        at: dollar..text.len(),
                        message: "a variable is not closed with `}`".into(),
                        help: Some(FORMS),
                    });
                };
                let variable = Variable::parse(&rest[2..end]).map_err(|message| BadTemplate {
                    at: dollar..dollar + end + 1,
                    message,
                    help: Some(FORMS),
                })?;
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(Part::Variable(variable));
                at = dollar + end + 1;
            } else {
                literal.push('$');
                at = dollar + 1;
            }
        }
        literal.push_str(&text[at..]);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self { parts })
    }

    /// Its text, where that is known without an open.
    pub(crate) fn as_literal(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [] => Some(""),
            [Part::Literal(text)] => Some(text),
            _ => None,
        }
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(variable) => Some(variable),
            Part::Literal(_) => None,
        })
    }
}

impl Variable {
    /// What stands between `${` and `}`.
    fn parse(text: &str) -> Result<Self, String> {
        let Some((kind, rest)) = text.split_once(':') else {
            return Err(format!("`${{{text}}}` does not say what kind of variable it is"));
        };
        let (name, default) = match rest.split_once(":-") {
            Some((name, default)) => (name, Some(default.to_owned())),
            None => (rest, None),
        };
        let name_form = |allowed: &str| -> Result<String, String> {
            let good = !name.is_empty()
                && name.len() <= 255
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || allowed.as_bytes().contains(&b));
            if good {
                Ok(name.to_owned())
            } else {
                Err(format!("`{name}` is not a name of the kind `{kind}`"))
            }
        };
        match kind {
            "env" => {
                let name = name_form("_")?;
                if name.starts_with(|c: char| c.is_ascii_digit()) {
                    return Err(format!("`{name}` is not a name of the kind `env`"));
                }
                Ok(Self::Env { name, default })
            }
            "arg" => Ok(Self::Arg { name: name_form("_-")?, default }),
            "file" if rest.starts_with('/') => Ok(Self::File { path: PathBuf::from(rest) }),
            "file" => Err(format!("`{rest}` is not an absolute path")),
            "credential" if default.is_some() => Err("a credential has no default".into()),
            "credential" if name == "." || name == ".." => {
                Err(format!("`{name}` is not a credential's name"))
            }
            "credential" => Ok(Self::Credential { name: name_form("._-")? }),
            _ => Err(format!("`{kind}` is not a kind of variable")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(text: &str) -> Vec<Variable> {
        Template::parse(text).unwrap().variables().cloned().collect()
    }

    #[test]
    fn the_kinds() {
        assert_eq!(
            variables("a ${env:TOKEN:-no:-ne} b${file:/etc/a:-b}${arg:root}${credential:git.hub}"),
            [
                Variable::Env { name: "TOKEN".into(), default: Some("no:-ne".into()) },
                Variable::File { path: "/etc/a:-b".into() },
                Variable::Arg { name: "root".into(), default: None },
                Variable::Credential { name: "git.hub".into() },
            ]
        );
    }

    #[test]
    fn dollars_that_are_only_dollars() {
        assert_eq!(Template::parse("$5 $$ $HOME $").unwrap().as_literal(), Some("$5 $$ $HOME $"));
        assert_eq!(Template::parse("$${env:A}").unwrap().as_literal(), Some("${env:A}"));
        assert_eq!(Template::parse("").unwrap().as_literal(), Some(""));
    }

    #[test]
    fn the_wrong_ones_are_told_with_their_place() {
        for (text, at) in [
            ("a${env:1A}", 1..10),
            ("${HOME}", 0..7),
            ("${env:}", 0..7),
            ("x ${env:A", 2..9),
            ("${file:relative}", 0..16),
            ("${credential:..}", 0..16),
            ("${credential:a/b}", 0..17),
            ("${credential:a:-b}", 0..18),
            ("${input:x}", 0..10),
            ("a\0b", 1..2),
        ] {
            assert_eq!(Template::parse(text).unwrap_err().at, at, "{text}");
        }
    }
}
