//! Checked values of the configuration. Each value is checked while it is deserialized, so that an
//! error names its line.

use crate::name;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display};
use std::path::{Component, Path, PathBuf};

/// Machine on which a command runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum RunLocation {
    /// `here`: on the machine of the orchestrator.
    #[default]
    Here,
    /// `first`: on the job's first node.
    First,
    /// `sink`: on the sink in question.
    Sink,
    /// On the node of this name.
    Node(String),
}

impl From<String> for RunLocation {
    fn from(text: String) -> Self {
        match text.as_str() {
            "here" => Self::Here,
            "first" => Self::First,
            "sink" => Self::Sink,
            _ => Self::Node(text),
        }
    }
}

/// Owner of a file: `user` or `user:group`, by name or number, or `job` for the user of the job.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Owner {
    /// User name or number.
    pub user: String,
    /// Group name or number. `None` leaves the group of the file as it is.
    pub group: Option<String>,
}

impl Owner {
    /// `job`: the user of the job.
    const JOB: &str = "job";

    /// True for `job`.
    pub(crate) fn is_job(&self) -> bool {
        self.user == Self::JOB && self.group.is_none()
    }

    /// The user with this number.
    pub(crate) fn of_user(user_id: u32) -> Self {
        Self { user: user_id.to_string(), group: None }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.group {
            Some(group) => write!(f, "{}:{group}", self.user),
            None => f.write_str(&self.user),
        }
    }
}

impl TryFrom<String> for Owner {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (user, group) = text.split_once(':').map_or((text.as_str(), None), |(user, group)| (user, Some(group)));
        for name in [Some(user), group].into_iter().flatten() {
            account(name)?;
        }
        Ok(Self { user: user.to_owned(), group: group.map(str::to_owned) })
    }
}

/// User and group names follow the rules of node names. A trailing `$` is refused: only
/// accounts of Samba machines have it.
fn account(text: &str) -> Result<(), String> {
    name::node(text).map_err(|error| format!("{text:?} is not a user or group: {}; give a name or number", error.why))
}

fn checked<'de, D, T, E>(deserializer: D, check: impl Fn(&T) -> Result<(), E>) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
    E: Display,
{
    let value = T::deserialize(deserializer)?;
    check(&value).map_err(D::Error::custom)?;
    Ok(value)
}

fn absolute(path: &Path) -> Result<(), String> {
    let Some(text) = path.to_str() else { return Err("the path is not UTF-8; choose another one".to_owned()) };
    if !path.is_absolute() {
        return Err(format!(
            "{text:?} is not an absolute path; write it from the root /, because hooks run in another folder"
        ));
    }
    if text.chars().any(char::is_control) || path.components().any(|part| part == Component::ParentDir) {
        return Err(format!("{text:?} contains a control character or `..`; write the path without them"));
    }
    Ok(())
}

pub(super) fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    checked(deserializer, |path: &PathBuf| absolute(path))
}

pub(super) fn some_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PathBuf>, D::Error> {
    path(deserializer).map(Some)
}

pub(super) fn user<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    checked(deserializer, |user: &String| account(user))
}

pub(super) fn some_user<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    user(deserializer).map(Some)
}

pub(super) fn host<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    checked(
        deserializer,
        |address: &String| {
            if address.parse::<std::net::IpAddr>().is_ok() { Ok(()) } else { name::node(address) }
        },
    )
}

pub(super) fn some_host<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    host(deserializer).map(Some)
}

pub(super) fn port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    checked(
        deserializer,
        |port: &u16| if *port == 0 { Err("port 0 is not valid; the usual port is 22") } else { Ok(()) },
    )
}

pub(super) fn some_port<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u16>, D::Error> {
    port(deserializer).map(Some)
}

pub(super) fn users<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    checked(deserializer, |users: &Vec<String>| users.iter().try_for_each(|user| account(user)))
}

pub(super) fn some_limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let limit = checked(deserializer, |limit: &u64| match limit {
        0 => Err("0 would keep nothing; remove the key for no limit"),
        _ => Ok(()),
    });
    limit.map(Some)
}

pub(super) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    checked(deserializer, |seconds: &u32| match seconds {
        1..=86_400 => Ok(()),
        _ => Err(format!("{seconds} seconds; expected 1 to 86400")),
    })
}

pub(super) fn at_least_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    checked(deserializer, |number: &u32| if *number == 0 { Err("0 is too few; expected 1 or more") } else { Ok(()) })
}

pub(super) fn node_list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    checked(deserializer, |nodes: &Vec<String>| {
        let mut seen = BTreeSet::new();
        for node in nodes {
            name::node(node).map_err(|error| error.to_string())?;
            if !seen.insert(node) {
                return Err(format!("{node} is listed twice; list every node once"));
            }
        }
        Ok(())
    })
}

pub(super) fn nodes<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    checked(deserializer, |nodes: &BTreeMap<String, T>| nodes.keys().try_for_each(|node| name::node(node)))
}

pub(super) fn some_device<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    checked(deserializer, |device: &String| name::device(device)).map(Some)
}

pub(super) fn some_vl<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    checked(deserializer, |vl: &u8| {
        if *vl > 14 {
            Err(format!("virtual lane {vl}; expected 0 to 14, because 15 is for management"))
        } else {
            Ok(())
        }
    })
    .map(Some)
}

/// The register's field for an analyzer has four bits.
pub(super) fn analyzers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    checked(deserializer, |number: &u8| match number {
        1..=16 => Ok(()),
        _ => Err(format!("{number} port analyzers; expected 1 to 16")),
    })
}

pub(super) fn some_burst<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u8>, D::Error> {
    checked(deserializer, |log2: &u8| match log2 {
        1..=30 => Ok(()),
        _ => Err(format!("2^{log2} packets in one burst; expected an exponent from 1 to 30")),
    })
    .map(Some)
}

pub(super) fn some_ring<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    checked(deserializer, |files: &u32| match files {
        2..=100 => Ok(()),
        _ => Err(format!("a ring of {files} files; expected 2 to 100")),
    })
    .map(Some)
}

pub(super) fn some_filter<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    checked(deserializer, |filter: &String| {
        let blank = filter.trim().is_empty();
        if blank || filter.starts_with('-') || filter.chars().any(char::is_control) {
            return Err(format!(
                "{filter:?} is not a filter; expected a filter expression of tcpdump, for example \"udp port 4791\""
            ));
        }
        Ok(())
    })
    .map(Some)
}

pub(super) fn word<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    checked(deserializer, |word: &String| {
        let divides = |c: char| c.is_whitespace() || c.is_control() || super::DIVIDERS.contains(&c);
        if word.is_empty() || word.contains(divides) {
            return Err(format!(
                "{word:?} is not a single word; expected text without spaces, commas or other separators, for example \"ibscope=on\""
            ));
        }
        Ok(())
    })
}

pub(super) fn arguments<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    checked(deserializer, |arguments: &Vec<String>| {
        match arguments.iter().find(|text| text.chars().any(char::is_control)) {
            Some(text) => Err(format!("{text:?} contains a control character, for example a line break; remove it")),
            None => Ok(()),
        }
    })
}
