//! Commands of the site with placeholders. A value is inserted inside one argument and never splits
//! it, because no shell is involved.

use crate::guid;
use crate::name::{self, NameError};
use serde::Deserialize;
use std::fmt::Write as _;

/// Values for the placeholders.
#[derive(Clone, Copy, Debug)]
pub struct TemplateValues<'a> {
    /// `{leaf_guid}`: GUID of the leaf switch, `0x` and 16 digits.
    pub leaf_guid: u64,
    /// `{leaf_lid}`: LID of the leaf switch.
    pub leaf_lid: u16,
    /// `{port}`: port of the leaf that is mirrored.
    pub port: u8,
    /// `{ports}`: all ports of the leaf that are mirrored to the sink, separated by commas.
    pub ports: &'a [u8],
    /// `{sink_port}`: port of the leaf that leads to the sink.
    pub sink_port: u8,
    /// `{node}`: node at the mirrored port.
    pub node: &'a str,
    /// `{sink}`: node that receives the mirrored packets.
    pub sink: &'a str,
    /// `{job}`: Slurm job id.
    pub job: u32,
}

/// Reason why a template cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The command is empty.
    #[error("the command is empty; expected an array: the program's absolute path and its arguments")]
    Empty,
    /// The program is not given by an absolute path.
    #[error("{0:?} is not a program; expected its absolute path without placeholders, because hooks run without PATH")]
    Program(String),
    /// An argument contains a control character.
    #[error("{0:?} contains a control character, for example a line break; remove it")]
    Control(String),
    /// The placeholder does not exist.
    #[error(
        "{{{0}}} is not a placeholder; expected one of {{leaf_guid}}, {{leaf_lid}}, {{port}}, {{ports}}, {{sink_port}}, {{node}}, {{sink}}, {{job}}"
    )]
    Unknown(String),
    /// A brace has no partner.
    #[error("{0:?} has an unmatched brace; write {{{{ and }}}} for literal braces")]
    Brace(String),
    /// The command names no port.
    #[error(
        "the command has neither {{port}} nor {{ports}}; it needs {{port}} to run once per port, or {{ports}} to run once per leaf"
    )]
    NoPort,
    /// A command that runs once per leaf has a value of a single port.
    #[error(
        "the command has {{ports}} and so runs once per leaf; remove {{port}} and {{node}}, which differ from port to port"
    )]
    OnePortOfLeaf,
    /// A node name that cannot be inserted.
    #[error(transparent)]
    Name(#[from] NameError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placeholder {
    LeafGuid,
    LeafLid,
    Port,
    Ports,
    SinkPort,
    Node,
    Sink,
    Job,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Literal(String),
    Value(Placeholder),
}

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct TextTemplate(Vec<TemplatePart>);

/// A command with placeholders: the program and its arguments.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct CommandTemplate(Vec<TextTemplate>);

impl TryFrom<String> for TextTemplate {
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
                parts.push(TemplatePart::Literal(std::mem::take(&mut literal)));
            }
            parts.push(TemplatePart::Value(placeholder(name)?));
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() || parts.is_empty() {
            parts.push(TemplatePart::Literal(literal));
        }
        Ok(Self(parts))
    }
}

fn placeholder(name: &str) -> Result<Placeholder, TemplateError> {
    Ok(match name {
        "leaf_guid" => Placeholder::LeafGuid,
        "leaf_lid" => Placeholder::LeafLid,
        "port" => Placeholder::Port,
        "ports" => Placeholder::Ports,
        "sink_port" => Placeholder::SinkPort,
        "node" => Placeholder::Node,
        "sink" => Placeholder::Sink,
        "job" => Placeholder::Job,
        _ => return Err(TemplateError::Unknown(name.to_owned())),
    })
}

impl TextTemplate {
    /// Replaces the placeholders by the values.
    pub fn fill(&self, values: &TemplateValues) -> Result<String, TemplateError> {
        let mut text = String::new();
        for part in &self.0 {
            // Writing to a String never fails.
            let _ = match part {
                TemplatePart::Literal(literal) => write!(text, "{literal}"),
                TemplatePart::Value(Placeholder::LeafGuid) => write!(text, "{}", guid::text(values.leaf_guid)),
                TemplatePart::Value(Placeholder::LeafLid) => write!(text, "{}", values.leaf_lid),
                TemplatePart::Value(Placeholder::Port) => write!(text, "{}", values.port),
                TemplatePart::Value(Placeholder::Ports) => write!(text, "{}", port_list(values.ports)),
                TemplatePart::Value(Placeholder::SinkPort) => write!(text, "{}", values.sink_port),
                TemplatePart::Value(Placeholder::Job) => write!(text, "{}", values.job),
                TemplatePart::Value(Placeholder::Node) => write!(text, "{}", checked_node(values.node)?),
                TemplatePart::Value(Placeholder::Sink) => write!(text, "{}", checked_node(values.sink)?),
            };
        }
        Ok(text)
    }
}

fn port_list(ports: &[u8]) -> String {
    ports.iter().map(u8::to_string).collect::<Vec<_>>().join(",")
}

fn checked_node(node: &str) -> Result<&str, NameError> {
    name::node(node)?;
    Ok(node)
}

impl TryFrom<Vec<String>> for CommandTemplate {
    type Error = TemplateError;

    fn try_from(argv: Vec<String>) -> Result<Self, TemplateError> {
        let program = argv.first().ok_or(TemplateError::Empty)?.clone();
        let argv = argv.into_iter().map(TextTemplate::try_from).collect::<Result<Vec<_>, _>>()?;
        if !program.starts_with('/') || !matches!(argv[0].0[..], [TemplatePart::Literal(_)]) {
            return Err(TemplateError::Program(program));
        }
        let command = Self(argv);
        let is_of_one_port = command.has(Placeholder::Port) || command.has(Placeholder::Node);
        match (command.runs_once_per_leaf(), command.has(Placeholder::Port)) {
            (true, _) if is_of_one_port => Err(TemplateError::OnePortOfLeaf),
            (false, false) => Err(TemplateError::NoPort),
            _ => Ok(command),
        }
    }
}

impl CommandTemplate {
    fn has(&self, placeholder: Placeholder) -> bool {
        self.0.iter().any(|text| text.0.contains(&TemplatePart::Value(placeholder)))
    }

    /// True if the command takes all ports of a leaf at once (`{ports}`), false if it runs once per
    /// port (`{port}`).
    pub fn runs_once_per_leaf(&self) -> bool {
        self.has(Placeholder::Ports)
    }

    /// Replaces the placeholders by the values. The result has as many arguments as the template.
    pub fn fill(&self, values: &TemplateValues) -> Result<Vec<String>, TemplateError> {
        self.0.iter().map(|text| text.fill(values)).collect()
    }
}
