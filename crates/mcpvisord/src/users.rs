//! What the machine's files say of a user. Users of other sources (a directory service) are told by their own process, where one
//! has connected.
use std::path::Path;

/// A line of passwd(5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) gid: u32,
    pub(crate) home: String,
    pub(crate) shell: String,
}

/// The user of a uid; None where the file has none, or can't be read.
pub(crate) fn user(uid: u32) -> Option<User> {
    find_user(&read("/etc/passwd")?, uid)
}

/// The groups that a user is a member of, the primary one included.
pub(crate) fn groups(user: &User) -> Vec<u32> {
    let mut groups = vec![user.gid];
    groups.extend(find_groups(&read("/etc/group").unwrap_or_default(), &user.name));
    groups.sort_unstable();
    groups.dedup();
    groups
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    std::fs::read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

fn find_user(passwd: &str, uid: u32) -> Option<User> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, id, gid, _, home, shell] = fields[..] else { return None };
        (id.parse() == Ok(uid)).then_some(())?;
        Some(User { name: name.into(), gid: gid.parse().ok()?, home: home.into(), shell: shell.into() })
    })
}

fn find_groups(group: &str, name: &str) -> Vec<u32> {
    let mut groups = Vec::new();
    for line in group.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        if let [_, _, gid, members] = fields[..]
            && members.split(',').any(|member| member == name)
            && let Ok(gid) = gid.parse()
        {
            groups.push(gid);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_read_as_they_are_written() {
        let passwd =
            "# comment\nroot:x:0:0:root:/root:/bin/sh\nbroken:x\nann:x:1000:100:Ann,,,:/home/ann:/bin/zsh\n";
        let ann = find_user(passwd, 1000).unwrap();
        let expected =
            User { name: "ann".into(), gid: 100, home: "/home/ann".into(), shell: "/bin/zsh".into() };
        assert_eq!(ann, expected);
        assert_eq!(find_user(passwd, 5), None);
        assert_eq!(
            find_groups("wheel:x:10:bob,ann\nusers:x:100:\nanna:x:7:anna\nx:x:bad:ann\n", "ann"),
            [10]
        );
    }
}
