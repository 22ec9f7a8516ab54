//! Images, sounds and other files of a result, saved beside each other.
use crate::render::escape;
use crate::render::tools::File;
use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// So many names are tried before the directory is called full.
const NAMES: u32 = 10_000;
/// The longest part of a tool's name that a file has, in bytes.
const LONGEST: usize = 64;

/// Where the files of one result go: `TOOL-N.EXTENSION`, of the first number that is free. Nothing is ever written over.
#[derive(Debug)]
pub(super) struct Files<'a> {
    directory: &'a Path,
    stem: String,
    next: u32,
    failed: bool,
}

impl<'a> Files<'a> {
    pub(super) fn new(directory: &'a Path, tool: &str) -> Self {
        Self { directory, stem: stem(tool), next: 1, failed: false }
    }

    /// Saves one, and tells what became of it.
    pub(super) fn save(&mut self, file: &File<'_>) -> String {
        let what = file.what();
        let saved =
            decode(file.data).ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "it is not base64"));
        match saved.and_then(|bytes| Ok((self.write(&bytes, extension(file.mime))?, bytes.len()))) {
            Ok((path, size)) => {
                format!("[{what}, {size} bytes: saved as {}]", escape::line(&path.to_string_lossy()))
            }
            Err(error) => {
                self.failed = true;
                format!("[{what}: it could not be saved: {error}; --json has it]")
            }
        }
    }

    /// One of them could not be saved.
    pub(super) fn have_failed(&self) -> bool {
        self.failed
    }

    fn write(&mut self, bytes: &[u8], extension: &str) -> io::Result<PathBuf> {
        for number in self.next..self.next.saturating_add(NAMES) {
            let path = self.directory.join(format!("{}-{number}.{extension}", self.stem));
            // Only where nothing has the name, not even a link that leads nowhere.
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(mut file) => {
                    self.next = number + 1;
                    if let Err(error) = file.write_all(bytes) {
                        // Half a file is worse than none.
                        let _ = std::fs::remove_file(&path);
                        return Err(error);
                    }
                    return Ok(path);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(ErrorKind::AlreadyExists, "there are too many files of this name"))
    }
}

/// A file's name that is a tool's, which may have anything in it.
fn stem(tool: &str) -> String {
    let safe = |byte: u8| {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) { char::from(byte) } else { '_' }
    };
    let name: String = tool.bytes().take(LONGEST).map(safe).collect();
    // No hidden file, and none that looks like an option.
    match name.trim_start_matches(['.', '-']) {
        "" => "result".to_owned(),
        name => name.to_owned(),
    }
}

fn extension(mime: Option<&str>) -> &'static str {
    let mime = mime.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match mime.as_str() {
        "image/png" => "png",
        "image/jpeg" | "image/jpg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "image/svg+xml" => "svg",
        "image/bmp" => "bmp",
        "image/tiff" => "tiff",
        "image/avif" => "avif",
        "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => "wav",
        "audio/mpeg" | "audio/mp3" => "mp3",
        "audio/ogg" => "ogg",
        "audio/flac" | "audio/x-flac" => "flac",
        "audio/aac" => "aac",
        "audio/mp4" => "m4a",
        "audio/webm" | "video/webm" => "webm",
        "video/mp4" => "mp4",
        "application/pdf" => "pdf",
        "application/json" => "json",
        "application/zip" => "zip",
        "application/gzip" => "gz",
        "text/plain" => "txt",
        "text/csv" => "csv",
        "text/html" => "html",
        "text/markdown" => "md",
        _ => "bin",
    }
}

/// Base64 of either alphabet, padded or not, with white space in it; None where it is something else.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held, mut padding) = (0_u32, 0_u32, 0);
    for byte in text.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            b'=' => {
                padding += 1;
                continue;
            }
            _ => return None,
        };
        if padding > 0 {
            return None;
        }
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    // A single letter at the end holds no byte, and no more than two fill up a group.
    (held < 6 && padding <= 2).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn base64_is_read_in_its_spellings_and_nothing_else_is() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("AA==", b"\0"),
            ("AAE=", b"\0\x01"),
            ("AAEC", b"\0\x01\x02"),
            ("AAE", b"\0\x01"),
            ("+/+/", b"\xfb\xff\xbf"),
            ("-_-_", b"\xfb\xff\xbf"),
            ("aGVs\r\nbG8=", b"hello"),
        ] {
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text}");
        }
        for bad in ["A", "AAAAA", "AA=A", "A===", "ab!c", "AAAA====="] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_name_is_made_safe() {
        assert_eq!(stem("files__read.me-2"), "files__read.me-2");
        assert_eq!(stem("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!(stem("-.ü\n"), "___");
        assert_eq!(stem(".."), "result");
        assert_eq!(stem(&"x".repeat(300)).len(), LONGEST);
        assert_eq!(extension(Some("Image/PNG; x=y")), "png");
        assert_eq!(extension(Some("../../x")), "bin");
        assert_eq!(extension(None), "bin");
    }

    #[test]
    fn nothing_is_written_over_and_only_the_owner_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("shot-1.png"), "mine").unwrap();
        symlink("/nonexistent/x", dir.path().join("shot-2.png")).unwrap();
        let mut files = Files::new(dir.path(), "shot");
        let file = |data| File { kind: "image", uri: None, mime: Some("image/png"), data };
        let told = files.save(&file("AAEC"));
        assert_eq!(
            told,
            format!("[image: image/png, 3 bytes: saved as {}/shot-3.png]", dir.path().display())
        );
        assert!(files.save(&file("AA==")).contains("shot-4.png"));
        assert!(!files.have_failed());
        assert_eq!(std::fs::read(dir.path().join("shot-3.png")).unwrap(), b"\0\x01\x02");
        assert_eq!(std::fs::read(dir.path().join("shot-1.png")).unwrap(), b"mine");
        let mode = std::fs::metadata(dir.path().join("shot-3.png")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(files.save(&file("?")).contains("it is not base64; --json has it"));
        assert!(files.have_failed());
    }
}
