//! The units of systemd/, under real systemds: each test boots one as the first process of namespaces of its own, and runs
//! tests/systemd/checks.sh in it, which names each check and what became of it.
//!
//! The controls, each shown to fail: without `EXTEND_TIMEOUT_USEC` the check `a_slow_drain_is_waited_for` does, with a watchdog
//! that is fed without the registry's answer `watchdog` does, without the 8 of `RestartPreventExitStatus` `leftovers_fail_the_unit`
//! does, and what is wrong with a unit is in the test below.
use mcpvisor_testkit::{Scene, binary, scene_within, target_dir, workspace_root};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// For a guest with all checks, on a machine that is busy with others.
const LIMIT: Duration = Duration::from_secs(330);

/// The tarball of a suite. Where it is missing, or this process may not boot it, the test is left out, and says so.
fn rootfs(suite: &str) -> Option<PathBuf> {
    let tarball = target_dir().join(format!("systemd/{suite}.tar.zst"));
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if root && tarball.is_file() {
        return Some(tarball);
    }
    let required = std::env::var_os("MCPVISOR_TEST_SYSTEMD").is_some_and(|value| value == "require");
    assert!(
        !required,
        "systemd is required by MCPVISOR_TEST_SYSTEMD: it takes root and {}",
        tarball.display()
    );
    eprintln!("left out: it takes root and {}, which `cargo xtask rootfs` makes", tarball.display());
    None
}

/// The checks that the script has.
fn checks() -> BTreeSet<String> {
    let script = fs::read_to_string(workspace_root().join("tests/systemd/checks.sh")).expect("a script");
    let name = |line: &str| Some(line.strip_prefix("check_")?.split_once("() {")?.0.to_owned());
    let found: BTreeSet<String> = script.lines().filter_map(name).collect();
    assert!(found.len() >= 20, "{found:?}");
    found
}

/// Boots a suite with these units and runs these checks, or all; what the guest says.
fn boot(scene: &Scene, rootfs: &Path, units: &Path, only: &[&str]) -> String {
    let root = workspace_root();
    let work = scene.path("boot");
    fs::create_dir(&work).expect("a folder in the scene's folder");
    let mut command =
        scene.command("bash").arg(root.join("tests/systemd/boot-systemd.sh")).args(["-t", "280"]);
    for (from, to) in [
        (binary("mcpvisor"), "/product/bin/mcpvisor"),
        (binary("mcpvisord-failpoints"), "/product/bin/mcpvisord-failpoints"),
        (units.to_owned(), "/product/systemd"),
        (root.join("tests/cases"), "/product/cases"),
        (root.join("tests/systemd/checks.sh"), "/product/checks.sh"),
    ] {
        command = command.arg("-b").arg(format!("{}:{to}", from.display()));
    }
    let command = command.arg(rootfs).args(["bash", "/product/checks.sh"]).args(only).env("TMPDIR", &work);
    let output = command.output_within(LIMIT - Duration::from_secs(20));
    let text = format!("{}\n{}", output.text(), output.stderr);
    eprintln!("{text}");
    // The guest is off, and what it was made of is gone.
    assert!(!text.contains("left behind"));
    let left: Vec<_> = fs::read_dir(&work).expect("our folder").flatten().map(|entry| entry.path()).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
    text
}

fn every_check_holds(suite: &'static str, version: &str) {
    let Some(rootfs) = rootfs(suite) else { return };
    let version = version.to_owned();
    scene_within(LIMIT, move |scene| {
        let text = boot(scene, &rootfs, &workspace_root().join("systemd"), &[]);
        assert!(text.contains(&format!("systemd {version}")), "another systemd was booted");
        for check in checks() {
            assert!(text.contains(&format!("\nok {check} ")), "{check} does not hold");
        }
        assert!(!text.contains("\nFAIL"));
    });
}

/// G35, G36: start, readiness, activation, reload, watchdog, stop, kill, delegation.
#[test]
fn g35_g36_debian_12_with_systemd_252() {
    every_check_holds("bookworm", "252");
}

/// G35, G36: the same.
#[test]
fn g35_g36_debian_13_with_systemd_257() {
    every_check_holds("trixie", "257");
}

/// What a line of the unit is for: the check that notices when it is gone, or when one is there that must not be.
#[test]
fn a_unit_that_is_wrong_is_noticed() {
    let Some(rootfs) = rootfs("trixie") else { return };
    scene_within(LIMIT, move |scene| {
        let units = scene.path("units");
        let copied = scene.command("cp").arg("-r").arg(workspace_root().join("systemd")).arg(&units).output();
        assert_eq!(copied.status, 0);
        let path = units.join("system/mcpvisord.service");
        let mut unit = fs::read_to_string(&path).expect("a unit");
        for (right, wrong) in [
            ("RuntimeDirectoryPreserve=yes", ""),
            ("Delegate=yes", ""),
            ("OOMPolicy=continue", "PrivateTmp=yes"),
            ("RestartPreventExitStatus=2 8", "NoSuchSetting=1"),
            ("ExecReload=/usr/bin/mcpvisor", "ExecReload=/bin/true"),
        ] {
            assert!(unit.contains(right), "{right}");
            unit = unit.replace(right, wrong);
        }
        fs::write(&path, unit).expect("our copy");
        let noticed =
            ["socket_survives_a_stop", "delegation_as_user", "nothing_is_sandboxed", "verify", "reload"];
        let text = boot(scene, &rootfs, &units, &noticed);
        for check in noticed {
            assert!(text.contains(&format!("\nFAIL {check}\n")), "{check} holds although it must not");
        }
    });
}

/// Settings that servers would inherit, as docs/systemd.md lists them: none of them stands in a unit.
#[test]
fn units_have_nothing_that_servers_must_not_inherit() {
    let root = workspace_root();
    let text = fs::read_to_string(root.join("docs/systemd.md")).expect("docs/systemd.md is there");
    let list = text
        .split("<!-- absent: begin -->")
        .nth(1)
        .and_then(|rest| rest.split("<!-- absent: end -->").next());
    let absent: Vec<&str> = list.expect("the list").split('`').skip(1).step_by(2).collect();
    for known in [
        "ProtectControlGroups",
        "MemoryDenyWriteExecute",
        "PrivateTmp",
        "ProtectHome",
        "RestrictNamespaces",
        "SystemCallFilter",
        "NoNewPrivileges",
    ] {
        assert!(absent.contains(&known), "{known} is not in the list");
    }
    for kind in ["system", "user"] {
        let unit =
            fs::read_to_string(root.join(format!("systemd/{kind}/mcpvisord.service"))).expect("a unit");
        for line in unit.lines().filter(|line| !line.starts_with('#')) {
            let key = line.split('=').next().unwrap_or_default();
            assert!(!absent.contains(&key), "{kind}: {line}");
        }
        for wanted in [
            "Type=notify",
            "Delegate=yes",
            "KillMode=mixed",
            "OOMPolicy=continue",
            "Restart=on-failure",
            "RuntimeDirectoryPreserve=yes",
            "WatchdogSec=",
        ] {
            assert!(unit.lines().any(|line| line.starts_with(wanted)), "{kind}: {wanted} is missing");
        }
    }
}
