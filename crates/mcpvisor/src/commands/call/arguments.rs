//! The arguments of a call, from what was typed.
//!
//! A value by name is read as the tool's schema says: as JSON where that fits, else as text where text fits. What does not fit is
//! told before the call. Of a schema only what decides that is looked at: types, choices and what they are made of; the rest is the
//! server's to judge.
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// Schemas that refer to each other are followed so far; what is deeper fits.
const DEEPEST: usize = 16;
/// So many choices are named.
const NAMED: usize = 12;

/// The arguments, as they were given.
#[derive(Debug)]
pub(super) enum Given {
    Nothing,
    /// One JSON object: passed on as it is.
    Object(Box<RawValue>),
    /// Values by name.
    Named(Vec<(String, String)>),
}

impl Given {
    pub(super) fn read(arguments: &[String]) -> Result<Self, String> {
        match arguments {
            [] => Ok(Self::Nothing),
            [one] if one.trim_start().starts_with('{') => {
                let object = |error| format!("the arguments are not a JSON object: {error}");
                serde_json::from_str::<Map<String, Value>>(one).map_err(object)?;
                RawValue::from_string(one.trim().to_owned()).map(Self::Object).map_err(object)
            }
            named => {
                if named.iter().any(|argument| argument.trim_start().starts_with('{')) {
                    return Err(
                        "the arguments are one JSON object, or values by name (NAME=VALUE), and not both"
                            .to_owned(),
                    );
                }
                let mut pairs: Vec<(String, String)> = Vec::new();
                for argument in named {
                    let Some((name, value)) = argument.split_once('=').filter(|(name, _)| !name.is_empty())
                    else {
                        return Err(format!("{argument:?} is neither a JSON object nor NAME=VALUE"));
                    };
                    if pairs.iter().any(|(other, _)| other == name) {
                        return Err(format!("{name:?} is given twice"));
                    }
                    pairs.push((name.to_owned(), value.to_owned()));
                }
                Ok(Self::Named(pairs))
            }
        }
    }
}

/// The object that the pairs make. Numbers that no float can hold pass as they are written.
///
/// # Errors
/// Where a value does not fit the tool's schema: what is expected.
pub(super) fn object(pairs: &[(String, String)], schema: Option<&Value>) -> Result<Box<RawValue>, String> {
    let root = schema.unwrap_or(&Value::Null);
    let root = Schema { root, here: root, depth: 0 }.resolved();
    let properties = root.here.get("properties").and_then(Value::as_object);
    let closed = root.here.get("additionalProperties") == Some(&Value::Bool(false));
    let mut members = Vec::new();
    for (name, text) in pairs {
        let value = match properties.and_then(|all| all.get(name)) {
            Some(property) => value(text, root.at(property))
                .map_err(|expected| format!("{name}={text:?} does not fit: the tool expects {expected}"))?,
            None if closed => {
                let known = properties.map(|all| all.keys().map(String::as_str).collect::<Vec<_>>());
                let known = known.filter(|known| !known.is_empty());
                let known = known.map_or_else(|| "none".to_owned(), |known| known.join(", "));
                return Err(format!("the tool has no argument {name:?}; it has {known}"));
            }
            None => {
                value(text, root.at(&Value::Null)).unwrap_or_else(|_| Value::from(text.as_str()).to_string())
            }
        };
        members.push(format!("{}:{value}", Value::from(name.as_str())));
    }
    RawValue::from_string(format!("{{{}}}", members.join(","))).map_err(|error| error.to_string())
}

/// The JSON text of a value. The error says what is expected.
fn value(text: &str, schema: Schema<'_>) -> Result<String, String> {
    let as_json = serde_json::from_str::<Value>(text).ok();
    let as_text = Value::from(text);
    // What is quoted is text with its quotes, where text is wanted; where anything is, it is JSON.
    let json_is_text = matches!(as_json, Some(Value::String(_)));
    let fits_as_json = as_json.as_ref().is_some_and(|value| schema.takes(value));
    if fits_as_json && !(json_is_text && schema.names_text()) {
        Ok(text.trim().to_owned())
    } else if schema.takes(&as_text) {
        Ok(as_text.to_string())
    } else if fits_as_json {
        Ok(text.trim().to_owned())
    } else {
        Err(schema.expected())
    }
}

/// A place in a JSON Schema.
#[derive(Clone, Copy)]
struct Schema<'a> {
    root: &'a Value,
    here: &'a Value,
    depth: usize,
}

impl<'a> Schema<'a> {
    fn at(self, here: &'a Value) -> Self {
        Self { here, depth: self.depth + 1, ..self }.resolved()
    }

    /// Follows references within the document; one that leads nowhere is a schema that says nothing.
    fn resolved(mut self) -> Self {
        while let Some(reference) = self.here.get("$ref").and_then(Value::as_str) {
            let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
            self.depth += 1;
            match target {
                Some(target) if self.depth < DEEPEST => self.here = target,
                _ => self.here = &Value::Null,
            }
        }
        self
    }

    fn all(self, name: &str) -> Option<impl Iterator<Item = Self> + use<'a>> {
        let schemas = self.here.get(name)?.as_array()?;
        Some(schemas.iter().map(move |schema| self.at(schema)))
    }

    fn types(self) -> Option<Vec<&'a str>> {
        match self.here.get("type")? {
            Value::String(name) => Some(vec![name]),
            Value::Array(names) => Some(names.iter().filter_map(Value::as_str).collect()),
            _ => None,
        }
    }

    /// It names text as one that it takes.
    fn names_text(self) -> bool {
        let here = self.types().is_some_and(|types| types.contains(&"string"));
        let any = |name| self.all(name).is_some_and(|mut schemas| schemas.any(Self::names_text));
        self.depth < DEEPEST && (here || any("anyOf") || any("oneOf") || any("allOf"))
    }

    fn takes(self, value: &Value) -> bool {
        if self.depth >= DEEPEST {
            return true;
        }
        let kind = self.types().is_none_or(|types| types.iter().any(|name| is_of_type(value, name)));
        let choice = self.here.get("enum").and_then(Value::as_array);
        let choice = choice.is_none_or(|choices| choices.iter().any(|choice| same(choice, value)));
        let constant = self.here.get("const").is_none_or(|constant| same(constant, value));
        let any = |name| self.all(name).is_none_or(|mut schemas| schemas.any(|schema| schema.takes(value)));
        let all = self.all("allOf").is_none_or(|mut schemas| schemas.all(|schema| schema.takes(value)));
        let nothing = *self.here == Value::Bool(false);
        !nothing
            && kind
            && choice
            && constant
            && any("anyOf")
            && any("oneOf")
            && all
            && self.takes_parts(value)
    }

    fn takes_parts(self, value: &Value) -> bool {
        match value {
            Value::Array(items) => {
                let schema = self.here.get("items").filter(|items| !items.is_array());
                schema.is_none_or(|schema| items.iter().all(|item| self.at(schema).takes(item)))
            }
            Value::Object(members) => {
                let properties = self.here.get("properties").and_then(Value::as_object);
                let fits = |(name, value): (&String, &Value)| {
                    let schema = properties.and_then(|properties| properties.get(name));
                    schema.is_none_or(|schema| self.at(schema).takes(value))
                };
                members.iter().all(fits)
            }
            _ => true,
        }
    }

    /// What it takes, in words.
    fn expected(self) -> String {
        let listed = |choices: &[Value]| {
            let named: Vec<String> = choices.iter().take(NAMED).map(Value::to_string).collect();
            let more = if choices.len() > NAMED { ", …" } else { "" };
            format!("one of {}{more}", named.join(", "))
        };
        if self.depth >= DEEPEST {
            return "another value".to_owned();
        }
        if let Some(constant) = self.here.get("const") {
            return constant.to_string();
        }
        if let Some(choices) = self.here.get("enum").and_then(Value::as_array) {
            return listed(choices);
        }
        if let Some(types) = self.types() {
            let named: Vec<String> = types.iter().map(|name| self.type_in_words(name)).collect();
            return named.join(" or ");
        }
        for name in ["anyOf", "oneOf", "allOf"] {
            if let Some(schemas) = self.all(name) {
                let named: Vec<String> = schemas.map(Self::expected).collect();
                return named.join(if name == "allOf" { " and " } else { " or " });
            }
        }
        "another value".to_owned()
    }

    fn type_in_words(self, name: &str) -> String {
        match name {
            "string" => "text".to_owned(),
            "integer" => "a whole number".to_owned(),
            "number" => "a number".to_owned(),
            "boolean" => "true or false".to_owned(),
            "object" => "a JSON object".to_owned(),
            "array" => match self.here.get("items").map(|items| self.at(items)) {
                Some(items) if items.types().is_some() || items.here.get("enum").is_some() => {
                    format!("a JSON array of which each is {}", items.expected())
                }
                _ => "a JSON array".to_owned(),
            },
            other => other.to_owned(),
        }
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => {
            value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
        }
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        // A type that is not known is the server's to judge.
        _ => true,
    }
}

/// JSON Schema's equality: 1 is 1.0.
fn same(a: &Value, b: &Value) -> bool {
    a == b || (a.is_number() && b.is_number() && a.as_f64() == b.as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(arguments: &[&str]) -> Result<Given, String> {
        Given::read(&arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    fn named(pairs: &[&str], schema: &Value) -> Result<String, String> {
        let Ok(Given::Named(pairs)) = read(pairs) else { panic!("{pairs:?}") };
        object(&pairs, Some(schema)).map(|raw| raw.get().to_owned())
    }

    fn one(text: &str, schema: &Value) -> Result<String, String> {
        named(&[&format!("a={text}")], &json!({"properties": {"a": schema}}))
    }

    #[test]
    fn arguments_are_one_object_or_values_by_name() {
        assert!(matches!(read(&[]), Ok(Given::Nothing)));
        // Numbers that no float can hold pass as they are.
        let Ok(Given::Object(raw)) = read(&[" {\"a\": 12345678901234567890123} "]) else { panic!() };
        assert_eq!(raw.get(), "{\"a\": 12345678901234567890123}");
        assert!(matches!(read(&["a=1", "b={}"]), Ok(Given::Named(pairs)) if pairs.len() == 2));
        for bad in [vec!["{"], vec!["[1]"], vec!["=1"], vec!["a=1", "a=2"], vec!["{}", "a=1"]] {
            assert!(read(&bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_schema_tells_text_from_json() {
        let schema = json!({"properties": {"s": {"type": "string"}, "n": {"type": "number"},
            "o": {"type": ["string", "null"]}, "e": {"type": ["string", "number"]}}});
        let pairs = ["s=1", "n=1", "o=2", "e=3", "u=true", "v=x y", "w={\"a\":[1]}", "q=\"x\""];
        assert_eq!(
            named(&pairs, &schema).unwrap(),
            r#"{"s":"1","n":1,"o":"2","e":3,"u":true,"v":"x y","w":{"a":[1]},"q":"x"}"#
        );
        assert_eq!(one("\"x\"", &json!({"type": "string"})).unwrap(), r#"{"a":"\"x\""}"#);
        assert_eq!(one("null", &json!({"type": ["string", "null"]})).unwrap(), r#"{"a":null}"#);
        // As it is written, where no float could hold it.
        assert_eq!(
            one("12345678901234567890123", &json!({"type": "integer"})).unwrap(),
            r#"{"a":12345678901234567890123}"#
        );
        assert_eq!(one("0.70", &json!({})).unwrap(), r#"{"a":0.70}"#);
        assert_eq!(named(&["a\"b=c"], &json!(null)).unwrap(), r#"{"a\"b":"c"}"#);
    }

    #[test]
    fn what_fits_passes_and_what_does_not_is_told_with_what_is_expected() {
        let colour = json!({"enum": ["red", "green", 3]});
        let list = json!({"type": "array", "items": {"type": "integer"}});
        let object = json!({"type": "object", "properties": {"n": {"type": "number"}}});
        let either = json!({"anyOf": [{"type": "integer"}, {"type": "null"}]});
        for (text, schema, told) in [
            ("7", json!({"type": "integer"}), "7"),
            ("7.0", json!({"type": "integer"}), "7.0"),
            ("-1e3", json!({"type": "number"}), "-1e3"),
            ("true", json!({"type": "boolean"}), "true"),
            ("red", colour.clone(), "\"red\""),
            ("3", colour.clone(), "3"),
            ("[1,2]", list.clone(), "[1,2]"),
            ("{\"n\":1,\"m\":\"x\"}", object.clone(), "{\"n\":1,\"m\":\"x\"}"),
            ("null", either.clone(), "null"),
            ("x", json!({"const": "x"}), "\"x\""),
            ("x", json!({"allOf": [{"type": "string"}, {"enum": ["x"]}]}), "\"x\""),
            ("x", json!({"type": "future"}), "\"x\""),
        ] {
            assert_eq!(one(text, &schema), Ok(format!("{{\"a\":{told}}}")), "{schema}");
        }
        for (text, schema, expected) in [
            ("x", json!({"type": "integer"}), "a whole number"),
            ("7.5", json!({"type": "integer"}), "a whole number"),
            ("yes", json!({"type": "boolean"}), "true or false"),
            ("blue", colour, "one of \"red\", \"green\", 3"),
            ("1,2", list.clone(), "a JSON array of which each is a whole number"),
            ("[1,\"x\"]", list, "a JSON array of which each is a whole number"),
            ("{\"n\":\"x\"}", object, "a JSON object"),
            ("x", either, "a whole number or null"),
            ("x", json!({"oneOf": [{"type": "number"}, {"type": "boolean"}]}), "a number or true or false"),
            ("y", json!({"const": "x"}), "\"x\""),
            ("1", json!(false), "another value"),
        ] {
            let error = one(text, &schema).unwrap_err();
            assert_eq!(error, format!("a={text:?} does not fit: the tool expects {expected}"), "{schema}");
        }
    }

    #[test]
    fn references_are_followed_and_circles_end() {
        let schema = json!({
            "properties": {"a": {"$ref": "#/$defs/level"}, "b": {"$ref": "#/$defs/circle"}, "c": {"$ref": "elsewhere"},
                "d": {"$ref": "#/$defs/nest"}},
            "$defs": {"level": {"enum": ["low", "high"]}, "circle": {"$ref": "#/$defs/circle"},
                "nest": {"anyOf": [{"$ref": "#/$defs/nest"}, {"type": "integer"}]}},
        });
        assert_eq!(
            named(&["a=low", "b=x", "c=1", "d=2"], &schema).unwrap(),
            r#"{"a":"low","b":"x","c":1,"d":2}"#
        );
        assert!(named(&["a=1"], &schema).unwrap_err().ends_with("one of \"low\", \"high\""));
    }

    #[test]
    fn a_misspelt_name_is_told_where_the_tool_takes_no_others() {
        let mut schema = json!({"properties": {"path": {"type": "string"}}});
        assert!(named(&["paht=x"], &schema).is_ok());
        schema["additionalProperties"] = json!(false);
        assert_eq!(
            named(&["paht=x"], &schema).unwrap_err(),
            "the tool has no argument \"paht\"; it has path"
        );
    }
}
