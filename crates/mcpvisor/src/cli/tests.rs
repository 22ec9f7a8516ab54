use super::*;
use clap::CommandFactory;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(["mcpvisor"].into_iter().chain(line.split(' ').filter(|word| !word.is_empty())))
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn a_servers_own_options_are_not_ours() {
    let Command::Run(run) = parse("run --key a --env A=1 -- npx -y --json pkg").unwrap().command else {
        panic!()
    };
    assert_eq!(run.command, ["npx", "-y", "--json", "pkg"]);
    assert_eq!((run.key.unwrap().as_str(), run.env.len()), ("a", 1));
    let Command::Run(run) = parse("run npx -y --key b").unwrap().command else { panic!() };
    assert_eq!((run.command.len(), run.key), (4, None));
    let Command::Open(open) = parse("open a --json -- npx --json").unwrap().command else { panic!() };
    assert_eq!(open.command, ["npx", "--json"]);
    assert!(parse("open a --json -- npx").unwrap().globals.json);
    assert!(!parse("run -- npx --json").unwrap().globals.json);
}

#[test]
fn options_go_before_and_after_the_command() {
    for line in ["--timeout 5s wait a@3", "wait a@3 --timeout 5s"] {
        let cli = parse(line).unwrap();
        assert_eq!(cli.globals.timeout, Some(Duration::from_secs(5)));
        let Command::Wait(wait) = cli.command else { panic!() };
        assert_eq!((wait.session.generation, wait.goal), (Some(3), Goal::Closed));
    }
    assert!(matches!(parse("ls").unwrap().command, Command::List(_)));
}

#[test]
fn what_can_not_be_meant_is_a_usage_error() {
    for line in [
        "",
        "nonsense",
        "run",
        "run --",
        "run --typo x",
        "close",
        "close a --all",
        "close a --label x=y",
        "close a/b",
        "show",
        "open a/b",
        "open a --server x",
        "open a --server a/b=c",
        "open a --label x",
        "open --lease pid:x",
        "open --if-open maybe",
        "wait a --timeout 5",
        "wait a --for gone",
        "call a",
        "logs a/b/c",
        "list --private --socket /x",
        "close a --now --drain 1s",
        "list --color blue",
        "list --user -1",
        "list extra",
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
    }
}

#[test]
fn a_bad_key_is_told_with_its_form() {
    let error = parse("show a/b").unwrap_err().to_string();
    assert!(error.contains("a/b") && error.contains("[A-Za-z0-9][A-Za-z0-9._:-]{0,127}"), "{error}");
}

#[test]
fn help_names_each_command_that_works() {
    let help = Cli::command().render_long_help().to_string();
    for command in [
        "run",
        "open",
        "close",
        "wait",
        "list",
        "show",
        "ps",
        "status",
        "tools",
        "call",
        "logs",
        "kill",
        "doctor",
        "drain",
        "shutdown",
        "demo",
        "daemon",
        "completions",
        "man",
    ] {
        assert!(help.contains(&format!("\n  {command} ")), "{command}: {help}");
    }
    assert!(!help.contains("demo-server"));
}
