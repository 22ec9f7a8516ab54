//! The tables of docs/failpoints.md that say what must come of each action at each gate.
use mcpvisor_testkit::workspace_root;

/// What stands in the way of a request at a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Action {
    /// The requester cancels.
    Cancel,
    /// Another client closes the session.
    Close,
    /// Another client has the daemon shut down.
    Shutdown,
    /// The process that holds the requester's connection is killed.
    Kill,
}

/// A gate with what must come of each action; None where there is no such action.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) gate: String,
    pub(crate) cells: [Option<String>; 4],
}

impl Row {
    pub(crate) fn expected(&self, action: Action) -> Option<&str> {
        self.cells[action as usize].as_deref()
    }

    /// Whether the first words of what came are what the table says: one of the alternatives for each word.
    pub(crate) fn allows_so_far(&self, action: Action, came: &[String]) -> bool {
        let expected = self.expected(action).unwrap_or_default().split(", ");
        expected.zip(came).all(|(allowed, word)| allowed.split(" or ").any(|one| one == word))
    }

    /// Whether what came is what the table says.
    pub(crate) fn allows(&self, action: Action, came: &str) -> bool {
        let words: Vec<String> = came.split(", ").map(str::to_owned).collect();
        let expected = self.expected(action).unwrap_or_default().split(", ").count();
        expected == words.len() && self.allows_so_far(action, &words)
    }
}

fn text() -> String {
    let path = workspace_root().join("docs/failpoints.md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of a table.
#[track_caller]
pub(crate) fn rows(name: &str) -> Vec<Row> {
    let text = text();
    let head = format!("<!-- table: {name} -->");
    let (_, table) = text.split_once(&head).unwrap_or_else(|| panic!("there is no table {name}"));
    let lines = table.lines().skip(1).take_while(|line| line.starts_with('|')).skip(2);
    let rows: Vec<Row> = lines.map(row).collect();
    assert!(rows.len() > 1, "table {name} has no rows");
    rows
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
    let [gate, _, cells @ ..] = &cells[..] else { panic!("a row has a gate, and says where it is: {line}") };
    let cell = |at: usize| {
        let cell: &str = cells.get(at).unwrap_or_else(|| panic!("a row has four outcomes: {line}"));
        (cell != "—").then(|| cell.to_owned())
    };
    Row { gate: gate.trim_matches('`').to_owned(), cells: [cell(0), cell(1), cell(2), cell(3)] }
}

/// The names of all gates in all tables.
pub(crate) fn gates() -> Vec<String> {
    let name = |line: &str| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_owned());
    text().lines().filter_map(name).filter(|name| name.contains('.') && !name.contains(' ')).collect()
}
