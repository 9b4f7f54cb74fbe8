//! Commands of the site's with placeholders. A value is put inside one argument: it never becomes two, and no shell sees it.

use crate::guid;
use crate::name::{self, NameError};
use serde::Deserialize;
use std::fmt::Write as _;

/// What a placeholder is replaced by.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    /// `{leaf_guid}`: GUID of the leaf switch, `0x` and 16 digits.
    pub leaf_guid: u64,
    /// `{leaf_lid}`: its LID.
    pub leaf_lid: u16,
    /// `{port}`: the port of the leaf that is mirrored.
    pub port: u8,
    /// `{sink_port}`: the port of the leaf that the copies leave by.
    pub sink_port: u8,
    /// `{node}`: the node on the port that is mirrored.
    pub node: &'a str,
    /// `{sink}`: the node that the copies go to.
    pub sink: &'a str,
    /// `{job}`: the job's id.
    pub job: u32,
}

/// A template that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// There is no program.
    #[error("the command is empty; expected an array: the program's absolute path and its arguments")]
    Empty,
    /// The program is not named by an absolute path.
    #[error("{0:?} is no program; expected its absolute path without placeholders, because hooks run without PATH")]
    Program(String),
    /// An argument holds a character that none may hold.
    #[error("{0:?} holds a control character; write arguments without line breaks and the like")]
    Control(String),
    /// No such placeholder.
    #[error(
        "{{{0}}} is no placeholder; expected one of {{leaf_guid}}, {{leaf_lid}}, {{port}}, {{sink_port}}, {{node}}, {{sink}}, {{job}}"
    )]
    Unknown(String),
    /// A brace that belongs to nothing.
    #[error("{0:?} has a brace without its partner; write {{{{ and }}}} for braces that stay")]
    Brace(String),
    /// The command would be the same for all ports.
    #[error("the command names no {{port}}: it is run once for every port and must be told which one")]
    NoPort,
    /// A value that the placeholder does not take.
    #[error(transparent)]
    Name(#[from] NameError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    LeafGuid,
    LeafLid,
    Port,
    SinkPort,
    Node,
    Sink,
    Job,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Value(Placeholder),
}

/// One text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Text(Vec<Part>);

/// A command with placeholders: the program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Template(Vec<Text>);

impl TryFrom<String> for Text {
    type Error = TemplateError;

    fn try_from(text: String) -> Result<Self, TemplateError> {
        if text.chars().any(char::is_control) {
            return Err(TemplateError::Control(text));
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text.as_str();
        while let Some(place) = rest.find(['{', '}']) {
            literal.push_str(&rest[..place]);
            let brace = &rest[place..=place];
            let after = &rest[place + 1..];
            if let Some(after) = after.strip_prefix(brace) {
                literal.push_str(brace);
                rest = after;
                continue;
            }
            let Some((name, after)) = after.split_once('}').filter(|_| brace == "{") else {
                return Err(TemplateError::Brace(text));
            };
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(Part::Value(placeholder(name)?));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() || parts.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Self(parts))
    }
}

fn placeholder(name: &str) -> Result<Placeholder, TemplateError> {
    Ok(match name {
        "leaf_guid" => Placeholder::LeafGuid,
        "leaf_lid" => Placeholder::LeafLid,
        "port" => Placeholder::Port,
        "sink_port" => Placeholder::SinkPort,
        "node" => Placeholder::Node,
        "sink" => Placeholder::Sink,
        "job" => Placeholder::Job,
        _ => return Err(TemplateError::Unknown(name.to_owned())),
    })
}

impl Text {
    /// The text with the values in it.
    pub fn fill(&self, values: &Values) -> Result<String, TemplateError> {
        let mut text = String::new();
        for part in &self.0 {
            // Writing to a text never fails.
            let _ = match part {
                Part::Literal(literal) => write!(text, "{literal}"),
                Part::Value(Placeholder::LeafGuid) => write!(text, "{}", guid::text(values.leaf_guid)),
                Part::Value(Placeholder::LeafLid) => write!(text, "{}", values.leaf_lid),
                Part::Value(Placeholder::Port) => write!(text, "{}", values.port),
                Part::Value(Placeholder::SinkPort) => write!(text, "{}", values.sink_port),
                Part::Value(Placeholder::Job) => write!(text, "{}", values.job),
                Part::Value(Placeholder::Node) => write!(text, "{}", named(values.node)?),
                Part::Value(Placeholder::Sink) => write!(text, "{}", named(values.sink)?),
            };
        }
        Ok(text)
    }
}

fn named(node: &str) -> Result<&str, NameError> {
    name::node(node)?;
    Ok(node)
}

impl TryFrom<Vec<String>> for Template {
    type Error = TemplateError;

    fn try_from(argv: Vec<String>) -> Result<Self, TemplateError> {
        let program = argv.first().ok_or(TemplateError::Empty)?.clone();
        let argv = argv.into_iter().map(Text::try_from).collect::<Result<Vec<_>, _>>()?;
        if !program.starts_with('/') || !matches!(argv[0].0[..], [Part::Literal(_)]) {
            return Err(TemplateError::Program(program));
        }
        if !argv.iter().any(|text| text.0.contains(&Part::Value(Placeholder::Port))) {
            return Err(TemplateError::NoPort);
        }
        Ok(Self(argv))
    }
}

impl Template {
    /// The command with the values in it: as many arguments as the template has.
    pub fn fill(&self, values: &Values) -> Result<Vec<String>, TemplateError> {
        self.0.iter().map(|text| text.fill(values)).collect()
    }
}
