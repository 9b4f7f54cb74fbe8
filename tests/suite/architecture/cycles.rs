//! Import cycles between the modules of a crate, read from the text of its files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A module by its path of names; empty for the root of a crate.
type Module = Vec<String>;

/// The modules of a crate, with the names in their files.
pub(super) struct Crate {
    modules: BTreeMap<Module, Code>,
}

/// The names in a file.
struct Code {
    /// Modules that the file declares, without test modules.
    declared: BTreeSet<String>,
    /// Imported paths, by local name.
    imported: BTreeMap<String, Vec<String>>,
    /// Re-exported paths, by local name.
    reexported: BTreeMap<String, Vec<String>>,
    /// All other paths.
    named: BTreeSet<Vec<String>>,
}

impl Crate {
    /// Reads a folder of sources.
    pub(super) fn read(root: &Path) -> Self {
        let texts = super::sources(root).into_iter().map(|path| {
            let inside = path.strip_prefix(root).expect("below the root").with_extension("");
            let mut module: Module = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
                module.pop();
            }
            (module, std::fs::read_to_string(&path).expect("source"))
        });
        Self::of(texts.filter(|(module, _)| *module != ["main"]).collect())
    }

    /// Builds a crate from source texts by module.
    pub(super) fn of(texts: BTreeMap<Module, String>) -> Self {
        let tokens: BTreeMap<Module, Vec<String>> =
            texts.into_iter().map(|(module, text)| (module, without_tests(&tokens(&text)))).collect();
        let mut modules: BTreeMap<Module, Code> =
            tokens.into_iter().map(|(module, tokens)| (module, Code::of(&tokens))).collect();
        // A module that is declared for tests only is not part of the crate.
        let declared: BTreeSet<Module> = modules
            .iter()
            .flat_map(|(module, code)| {
                code.declared.iter().map(|name| [module.as_slice(), std::slice::from_ref(name)].concat())
            })
            .collect();
        modules.retain(|module, _| (1..=module.len()).all(|end| declared.contains(&module[..end])));
        Self { modules }
    }

    /// Cycles between the modules of one folder: each entry names the imports from one module to
    /// the next.
    pub(super) fn cycles(&self) -> Vec<String> {
        let mut imports: BTreeMap<&[String], BTreeMap<&[String], String>> = BTreeMap::new();
        for (from, code) in &self.modules {
            for path in code.imported.values().chain(&code.named) {
                let Some(to) = self.home(from, path, 0) else { continue };
                let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
                if common < from.len() && common < to.len() {
                    let line = format!("{} imports {}", from.join("/"), path.join("::"));
                    imports.entry(&from[..=common]).or_default().entry(&to[..=common]).or_insert(line);
                }
            }
        }
        let leads_to = |from: &[String], to: &[String]| {
            let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
            while let Some(next) = open.pop() {
                let found = imports.get(next).into_iter().flat_map(BTreeMap::keys).copied();
                open.extend(found.filter(|found| seen.insert(*found)));
            }
            seen.contains(to)
        };
        let edges = imports.iter().flat_map(|(from, all)| all.iter().map(move |(to, line)| (*from, *to, line)));
        edges.filter(|(from, to, _)| leads_to(to, from)).map(|(.., line)| line.clone()).collect()
    }

    /// The module whose file defines the item that `path` names in the module `from`.
    fn home<'a>(&'a self, from: &[String], path: &[String], depth: usize) -> Option<&'a Module> {
        let code = self.modules.get(from)?;
        let first = path.first()?;
        let whole: Module = match first.as_str() {
            "crate" => path[1..].to_vec(),
            "self" => [from, &path[1..]].concat(),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                [from.get(..from.len().checked_sub(up)?)?, &path[up..]].concat()
            }
            name if code.declared.contains(name) => [from, path].concat(),
            _ => return None,
        };
        let end = (0..=whole.len()).rev().find(|end| self.modules.contains_key(&whole[..*end]))?;
        let (module, code) = self.modules.get_key_value(&whole[..end])?;
        // A re-exported name is defined elsewhere.
        match whole.get(end).and_then(|name| code.reexported.get(name)) {
            Some(reexported) if depth < 16 => {
                let path = [reexported.as_slice(), &whole[end + 1..]].concat();
                self.home(module, &path, depth + 1)
            }
            _ => Some(module),
        }
    }
}

impl Code {
    fn of(tokens: &[String]) -> Self {
        let mut code = Self {
            declared: BTreeSet::new(),
            imported: BTreeMap::new(),
            reexported: BTreeMap::new(),
            named: BTreeSet::new(),
        };
        let mut at = 0;
        let mut is_public = false;
        while at < tokens.len() {
            match tokens[at].as_str() {
                "pub" => {
                    is_public = true;
                    at += 1;
                    if tokens.get(at).is_some_and(|token| token == "(") {
                        at += tokens[at..].iter().position(|token| token == ")").expect("a closed parenthesis") + 1;
                    }
                    continue;
                }
                "mod" if tokens.get(at + 2).is_some_and(|token| token == ";") => {
                    code.declared.insert(tokens[at + 1].clone());
                }
                "use" => {
                    let end = at + tokens[at..].iter().position(|token| token == ";").expect("the end of an import");
                    let into = if is_public { &mut code.reexported } else { &mut code.imported };
                    tree(&tokens[at + 1..end], &[], into);
                    at = end;
                }
                name if is_name(name) && (at == 0 || tokens[at - 1] != "::") => {
                    let mut path = vec![name.to_owned()];
                    while tokens.get(at + 1).is_some_and(|token| token == "::")
                        && tokens.get(at + 2).is_some_and(|token| is_name(token))
                    {
                        path.push(tokens[at + 2].clone());
                        at += 2;
                    }
                    if path.len() > 1 {
                        code.named.insert(path);
                    }
                }
                _ => {}
            }
            is_public = false;
            at += 1;
        }
        code
    }
}

/// The paths of an import, by local name.
fn tree(tokens: &[String], before: &[String], into: &mut BTreeMap<String, Vec<String>>) {
    if let Some(open) = tokens.iter().position(|token| token == "{") {
        let before: Vec<String> = [before, &path(&tokens[..open])].concat();
        let inner = &tokens[open + 1..tokens.len() - 1];
        let (mut depth, mut start) = (0, 0);
        for (at, token) in inner.iter().enumerate() {
            match token.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                "," if depth == 0 => {
                    tree(&inner[start..at], &before, into);
                    start = at + 1;
                }
                _ => {}
            }
        }
        tree(&inner[start..], &before, into);
        return;
    }
    let (own, alias) = match tokens {
        [own @ .., keyword, alias] if keyword == "as" => (own, Some(alias.clone())),
        own => (own, None),
    };
    let mut whole: Vec<String> = [before, &path(own)].concat();
    if whole.len() > 1 && whole.last().is_some_and(|last| last == "self") {
        whole.pop();
    }
    if let Some(name) = alias.or_else(|| whole.last().cloned()) {
        // Several imports may have the name `_` or `*`.
        let name = if into.contains_key(&name) { whole.join("::") } else { name };
        into.insert(name, whole);
    }
}

fn path(tokens: &[String]) -> Vec<String> {
    tokens.iter().filter(|token| is_name(token) || *token == "*").cloned().collect()
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// Names, `::` and punctuation, without comments and string contents.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(length) = quoted_bytes(rest) {
            length
        } else if first.is_alphanumeric() || first == '_' {
            let length = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(rest[..length].to_owned());
            length
        } else {
            let length = if rest.starts_with("::") { 2 } else { first.len_utf8() };
            if !first.is_whitespace() {
                tokens.push(rest[..length].to_owned());
            }
            length
        };
        rest = &rest[length..];
    }
    tokens
}

/// Length of the string or character literal at the start of `text`.
fn quoted_bytes(text: &str) -> Option<usize> {
    let prefix = ["br", "b", "r"].into_iter().find(|prefix| text.starts_with(prefix)).unwrap_or_default();
    let body = &text[prefix.len()..];
    if prefix.ends_with('r') && body.starts_with(['"', '#']) {
        let marks = body.len() - body.trim_start_matches('#').len();
        let end = format!("\"{}", "#".repeat(marks));
        let inner = body[marks..].strip_prefix('"')?;
        return Some(prefix.len() + marks + 1 + inner.find(&end)? + end.len());
    }
    let mut chars = body.char_indices();
    match (prefix, chars.next()?.1) {
        ("" | "b", '"') => {}
        // A lifetime has no closing quote.
        ("" | "b", '\'') if body[1..].starts_with('\\') || body[1..].chars().nth(1) == Some('\'') => {
            let escaped = usize::from(body[1..].starts_with('\\'));
            let from = 1 + body[1..].char_indices().nth(escaped + 1)?.0;
            return Some(prefix.len() + from + body[from..].find('\'')? + 1);
        }
        _ => return None,
    }
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => _ = chars.next(),
            '"' => return Some(prefix.len() + at + 1),
            _ => {}
        }
    }
    None
}

/// Removes code that is compiled for tests only.
fn without_tests(tokens: &[String]) -> Vec<String> {
    let mark = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut left = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].iter().take(mark.len()).eq(mark) {
            left.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let mut depth = 0;
        at += mark.len();
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 && matches!(token.as_str(), ";" | "}") {
                break;
            }
        }
    }
    left
}
