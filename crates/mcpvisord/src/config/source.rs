//! Where the configuration is.
use super::{Config, LoadError};
use std::ffi::OsString;
use std::path::PathBuf;

/// The file's name in its usual place.
const NAME: &str = "mcpvisord.toml";

/// The file that was named on the command line, or the one in the usual place, which may come and go.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    named: Option<PathBuf>,
}

impl Source {
    pub(crate) fn new(named: Option<PathBuf>) -> Self {
        Self { named }
    }

    /// None: there is no file, and the defaults hold.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        let is_root = rustix::process::geteuid().is_root();
        self.named.clone().or_else(|| usual(is_root, |name| std::env::var_os(name)))
    }

    /// Reads it. Blocks for as long as the file's mount does.
    ///
    /// # Errors
    /// That the file can't be read, or every error that is in it.
    pub(crate) fn load(&self) -> Result<Config, LoadError> {
        match self.path() {
            Some(path) => Config::load(&path),
            None => Ok(Config::default()),
        }
    }
}

/// The first of the usual places that has a file. `CONFIGURATION_DIRECTORY` is set by a unit with `ConfigurationDirectory=`.
fn usual(is_root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let of_unit = absolute("CONFIGURATION_DIRECTORY");
    let of_user = if is_root {
        Some(PathBuf::from("/etc/mcpvisor"))
    } else {
        let home = || absolute("HOME").map(|home| home.join(".config"));
        absolute("XDG_CONFIG_HOME").or_else(home).map(|folder| folder.join("mcpvisor"))
    };
    [of_unit, of_user].into_iter().flatten().map(|folder| folder.join(NAME)).find(|path| path.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_units_folder_comes_before_the_users() {
        let folder = tempfile::tempdir().unwrap();
        let (unit, user) = (folder.path().join("unit"), folder.path().join("user"));
        let variable = |name: &str| match name {
            "CONFIGURATION_DIRECTORY" => Some(unit.clone().into_os_string()),
            "XDG_CONFIG_HOME" => Some(user.clone().into_os_string()),
            _ => None,
        };
        assert_eq!(usual(false, variable), None);
        let mut expected = None;
        for folder in [user.join("mcpvisor"), unit.clone()] {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(NAME), "").unwrap();
            expected = Some(folder.join(NAME));
            assert_eq!(usual(false, variable), expected);
        }
        assert_eq!(usual(true, variable), expected);
    }
}
