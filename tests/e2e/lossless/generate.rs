//! Messages with whatever JSON allows: unknown fields in any order, numbers that no float holds, escapes, deep nesting.
use super::play::Round;
use crate::histories::play::Random;

/// The deepest value of a message that is nested 100 deep: it lies in a member of its parameters.
const DEEP: usize = 98;

const NUMBERS: [&str; 14] = [
    "0",
    "-0",
    "-0.0",
    "1.0",
    "1.00",
    "1e400",
    "-1E-400",
    "0.1e+1",
    "9007199254740993",
    "123456789012345678901234567890",
    "-170141183460469231731687303715884105729",
    "0.1000000000000000055511151231257827",
    "2.2250738585072011e-308",
    "1E0",
];

const PIECES: [&str; 22] = [
    "plain",
    " ",
    "\\\"",
    "\\\\",
    "\\/",
    "\\b\\f\\n\\r\\t",
    "\\u0000",
    "\\u00e9",
    "\u{e9}",
    "e\u{301}",
    "\u{1f600}",
    "\\ud83d\\uDE00",
    // Half of a pair, which JSON's grammar allows.
    "\\ud800",
    "\\u2028",
    "\u{2028}",
    "\u{7f}",
    "\u{feff}",
    "\\\"id\\\":7,",
    "}{][,:",
    "mcpvisor-1",
    "\\u006dcpvisor-2",
    "<!--",
];

/// Names that mean something elsewhere in a message.
const TRAPS: [&str; 8] =
    ["id", "method", "params", "result", "jsonrpc", "progressToken", "requestId", "\\u0069d"];

#[derive(Debug)]
pub(crate) struct Generator {
    random: Random,
    number: usize,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), number: 0 }
    }

    /// Six messages: a notification and a request of the client's, the server's notification and request, and both answers.
    pub(crate) fn round(&mut self) -> Round {
        let n = self.number;
        self.number += 1;
        let method =
            self.pick(&["tools/call", "x\\/y", "resources/read", "prompts/get", "\\u0074ools/list", "x"]);
        let mut request = vec![("id".to_owned(), "@ID@".to_owned()), ("method".to_owned(), quoted(&method))];
        request.push(("params".to_owned(), self.params(n.is_multiple_of(2).then_some("@TOKEN@"))));
        let mut asked = vec![("id".to_owned(), "@SID@".to_owned()), ("method".to_owned(), quoted("x/asked"))];
        asked.push(("params".to_owned(), self.params(n.is_multiple_of(3).then_some("@STOKEN@"))));
        let told = |method: &str, params: String| {
            vec![("method".to_owned(), quoted(method)), ("params".to_owned(), params)]
        };
        let before = told("notifications/x\\u002fodd", self.params(None));
        let after = told("notifications/odd", self.params(None));
        let (answer, reply) = (self.outcome("@ID@"), self.outcome("@SID@"));
        Round {
            before: vec![self.message(before)],
            request: self.message(request),
            said: vec![self.message(after), self.message(asked), self.message(answer)],
            replies: vec![self.message(reply)],
        }
    }

    /// A result or an error.
    fn outcome(&mut self, id: &str) -> Vec<(String, String)> {
        let id = ("id".to_owned(), id.to_owned());
        if self.random.one_in(3) {
            let code = self.pick(&["-32602", "-32000.0", "1e2", "7"]);
            let (message, data, more) = (self.string(), self.value(6), self.value(2));
            let members = [("code", code), ("message", message), ("data", data), ("more", more)];
            return vec![
                id,
                ("error".to_owned(), self.object(members.map(|(k, v)| (k.to_owned(), v)).into())),
            ];
        }
        vec![id, ("result".to_owned(), self.params(None))]
    }

    /// An object whose own members mean nothing to anybody, but for a progress token.
    fn params(&mut self, token: Option<&str>) -> String {
        let mut members: Vec<(String, String)> = vec![];
        for n in 0..self.random.below(4) {
            let deep = if self.random.one_in(16) { DEEP } else { 5 };
            let name = format!("{}{n}", self.pick(&["a", "\\u00e9", "\u{1f600}", "\\\"", "x "]));
            members.push((name, if deep == DEEP { self.deep() } else { self.value(deep) }));
        }
        if let Some(token) = token {
            let meta = vec![
                ("example.org/a\\/b".to_owned(), self.value(3)),
                ("progressToken".to_owned(), token.to_owned()),
            ];
            members.push(("_meta".to_owned(), self.object(meta)));
        }
        self.object(members)
    }

    /// A message of these members and of some that nobody knows.
    fn message(&mut self, mut members: Vec<(String, String)>) -> String {
        members.push(("jsonrpc".to_owned(), quoted("2.0")));
        for n in 0..self.random.below(3) {
            let value = self.value(4);
            members.push((format!("unknown \\u00e4{n}"), value));
        }
        self.object(members)
    }

    fn value(&mut self, depth: usize) -> String {
        match self.random.below(if depth == 0 { 7 } else { 11 }) {
            0 | 1 => self.pick(&NUMBERS),
            2..=4 => self.string(),
            5 => self.pick(&["true", "false", "null"]),
            6 => self.pick(&["[]", "{}", "[ ]", "{ }"]),
            7 | 8 => {
                let values: Vec<String> = (0..=self.random.below(3)).map(|_| self.value(depth - 1)).collect();
                let space = self.space();
                format!("[{space}{}{space}]", values.join(&format!("{space},")))
            }
            _ => {
                let mut members = vec![];
                for _ in 0..=self.random.below(3) {
                    let name = if self.random.one_in(3) { self.pick(&TRAPS) } else { self.piece() };
                    members.push((name, self.value(depth - 1)));
                }
                self.object(members)
            }
        }
    }

    fn deep(&mut self) -> String {
        let inner = self.value(0);
        let (mut before, mut after) = (String::new(), String::new());
        for n in 0..DEEP {
            let (open, close) = if n % 2 == 0 { ("[", "]") } else { ("{\"\":", "}") };
            before.push_str(open);
            after.insert_str(0, close);
        }
        before + &inner + &after
    }

    /// In any order.
    fn object(&mut self, mut members: Vec<(String, String)>) -> String {
        for last in (1..members.len()).rev() {
            let other = self.random.below(u64::try_from(last).expect("few members") + 1);
            members.swap(last, usize::try_from(other).expect("few members"));
        }
        let space = self.space();
        let members: Vec<String> =
            members.iter().map(|(name, value)| format!("{space}\"{name}\"{space}:{space}{value}")).collect();
        format!("{{{}{space}}}", members.join(","))
    }

    fn string(&mut self) -> String {
        let pieces: Vec<String> = (0..self.random.below(4)).map(|_| self.piece()).collect();
        quoted(&pieces.concat())
    }

    fn piece(&mut self) -> String {
        self.pick(&PIECES)
    }

    fn space(&mut self) -> String {
        self.pick(&["", "", "", " ", "\t", "  "])
    }

    fn pick(&mut self, all: &[&str]) -> String {
        let index = self.random.below(u64::try_from(all.len()).expect("lists are short"));
        all[usize::try_from(index).expect("an index of a short list")].to_owned()
    }
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}
