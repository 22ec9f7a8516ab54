//! What an event says besides whom it speaks of: named values, in the types that the rest of the daemon has.
use crate::api::{Drained, Outcome, Proof};
use mcpvisor_lifecycle::registry::Urgency;
use mcpvisor_lifecycle::server::Stage;
use mcpvisor_lifecycle::session::CloseReason;
use mcpvisor_lifecycle::{ServerName, Tenant};
use mcpvisor_process::Exit;
use std::time::Duration;

/// Longer texts are cut, in bytes.
const LONGEST: usize = 1024;
/// Longer lists are cut.
const MOST: usize = 64;

/// Named values, in order.
pub type Fields = Vec<(&'static str, Field)>;

/// A value. Texts are not escaped.
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// Can't be known, or is not there.
    Nothing,
    /// At most 1024 bytes.
    Text(Box<str>),
    /// A number.
    Number(u64),
    /// A truth.
    Flag(bool),
    /// Told in milliseconds.
    Span(Duration),
    /// Why a session was torn down.
    Reason(CloseReason),
    /// How a close ended.
    Outcome(Outcome),
    /// By whose word nothing is left.
    Proof(Proof),
    /// What became of the calls in flight.
    Drained(Drained),
    /// A rung of the ladder.
    Stage(Stage),
    /// How a process ended.
    Exit(Exit),
    /// How far a shutdown goes at once.
    Urgency(Urgency),
    /// At most 64.
    List(Vec<Field>),
    /// Named values.
    Object(Fields),
}

impl Field {
    /// About how many bytes it holds.
    pub(super) fn cost(&self) -> usize {
        let more = match self {
            Self::Text(text) => text.len(),
            Self::List(list) => list.iter().map(Self::cost).sum(),
            Self::Object(fields) => fields_cost(fields),
            _ => 0,
        };
        size_of::<Self>() + more
    }

    /// A list, cut where it is too long.
    pub(crate) fn list<T>(items: impl IntoIterator<Item = T>, field: impl Fn(T) -> Self) -> Self {
        Self::List(items.into_iter().take(MOST).map(field).collect())
    }
}

pub(super) fn fields_cost(fields: &Fields) -> usize {
    fields.iter().map(|(_, field)| size_of::<&str>() + field.cost()).sum()
}

impl From<&str> for Field {
    fn from(text: &str) -> Self {
        let end = (0..=text.len().min(LONGEST)).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        Self::Text(text[..end].into())
    }
}

impl From<&ServerName> for Field {
    fn from(name: &ServerName) -> Self {
        name.as_str().into()
    }
}

impl From<&Tenant> for Field {
    fn from(tenant: &Tenant) -> Self {
        tenant.as_str().into()
    }
}

impl<T: Into<Field>> From<Option<T>> for Field {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Nothing, Into::into)
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident;)*) => {
        $(impl From<$from> for Field {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        })*
    };
}

from! {
    u64 => Number;
    u32 => Number;
    bool => Flag;
    Duration => Span;
    CloseReason => Reason;
    Outcome => Outcome;
    Proof => Proof;
    Drained => Drained;
    Stage => Stage;
    Exit => Exit;
    Urgency => Urgency;
    Fields => Object;
}

impl From<usize> for Field {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_bounded() {
        let Field::Text(text) = Field::from("ü".repeat(1000).as_str()) else { panic!() };
        assert_eq!(text.len(), 1024);
        let Field::Text(text) = Field::from(format!("x{}", "ü".repeat(1000)).as_str()) else { panic!() };
        assert_eq!(text.len(), 1023, "cut between characters");
        let Field::List(list) = Field::list(0..1000_u64, Field::from) else { panic!() };
        assert_eq!(list.len(), 64);
        assert!(Field::List(list).cost() < 64 * 64);
    }
}
