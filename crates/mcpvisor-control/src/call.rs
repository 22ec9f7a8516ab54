//! Ties each method to what it takes and what it answers.
use crate::error::{ErrorKind, ErrorObject};
use crate::method::Method;
use crate::{params, results};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The parameters of a method.
pub trait Call: Serialize + DeserializeOwned {
    /// The method.
    const METHOD: Method;
    /// Its answer.
    type Answer: Serialize + DeserializeOwned;
}

macro_rules! calls {
    ($($params:ident => $method:ident, $answer:ty;)*) => {
        $(impl Call for params::$params {
            const METHOD: Method = Method::$method;
            type Answer = $answer;
        })*

        /// Names and schemas of all methods that have parameters and answers of their own.
        pub(crate) fn schemas(generator: &mut schemars::SchemaGenerator) -> Vec<(Method, schemars::Schema, schemars::Schema)> {
            vec![$((
                Method::$method,
                generator.subschema_for::<params::$params>(),
                generator.subschema_for::<$answer>(),
            ),)*]
        }
    };
}

calls! {
    Hello => DaemonHello, results::Hello;
    Status => DaemonStatus, results::Status;
    Drain => DaemonDrain, results::Drained;
    Reload => DaemonReload, results::Reloaded;
    Shutdown => DaemonShutdown, results::Shutdown;
    SessionOpen => SessionOpen, results::Opened;
    SessionClose => SessionClose, results::CloseResults;
    SessionWait => SessionWait, results::Waited;
    SessionList => SessionList, results::Sessions;
    SessionShow => SessionShow, results::Session;
    SessionAttach => SessionAttach, results::Attached;
    SessionKill => SessionKill, results::CloseResults;
    ServerAdd => ServerAdd, results::ServerChanged;
    ServerRemove => ServerRemove, results::ServerRemoved;
    ServerRestart => ServerRestart, results::ServerChanged;
    ToolList => ToolList, results::Tools;
    ToolCall => ToolCall, Box<RawValue>;
    ProcessList => ProcessList, results::Processes;
    LogRead => LogRead, results::LogLines;
    EventSubscribe => EventSubscribe, results::Subscribed;
    ApprovalList => ApprovalList, results::Approvals;
    ApprovalDecide => ApprovalDecide, results::ApprovalDecided;
}

/// Understands a request's parameters; left out, they are an empty object. The error names the field that is wrong.
pub fn parse_params<P: Call>(params: Option<&RawValue>) -> Result<P, ErrorObject> {
    let text = params.map_or("{}", RawValue::get);
    // Serde would take an array for a struct, field by field, and null for one without fields.
    if !text.starts_with('{') {
        return Err(ErrorObject::new(
            ErrorKind::InvalidRequest,
            format!("the parameters of {} are not an object", P::METHOD),
        ));
    }
    serde_json::from_str(text).map_err(|error| {
        // The position counts in the parameters and not in the line, so it would mislead.
        let text = error.to_string();
        let text = text.split(" at line ").next().unwrap_or(&text);
        ErrorObject::new(
            ErrorKind::InvalidRequest,
            format!("the parameters of {} are wrong: {text}", P::METHOD),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse<P: Call>(text: &str) -> Result<P, ErrorObject> {
        parse_params(Some(&RawValue::from_string(text.to_owned()).unwrap()))
    }

    #[test]
    fn an_unknown_field_is_named() {
        let error = parse::<params::SessionOpen>(r#"{"kye":"a"}"#).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidRequest);
        assert!(error.message.contains("session/open") && error.message.contains("`kye`"), "{error}");
        let error = parse::<params::SessionOpen>(r#"{"servers":[{"name":"a","command":["x"],"cmd":1}]}"#)
            .unwrap_err();
        assert!(error.message.contains("`cmd`"), "{error}");
    }

    #[test]
    fn parameters_that_are_left_out_are_an_empty_object() {
        assert!(parse_params::<params::SessionOpen>(None).unwrap().wait);
        assert!(parse_params::<params::SessionClose>(None).unwrap_err().message.contains("`key`"));
        assert!(parse::<params::Status>("[]").is_err());
        assert!(parse::<params::Status>("null").is_err());
    }
}
