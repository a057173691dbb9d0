//! The modules of a crate and the names in them: enough of Rust's name resolution to find the file that defines the target of a
//! path.

use super::source::Source;
use std::collections::{BTreeMap, BTreeSet};

/// A module: a file, or a `mod name { … }` inside of one.
pub(super) struct Module {
    /// The names from the root of the crate to this module.
    pub(super) path: Vec<String>,
    /// The file, by its number in [`Crate::files`].
    pub(super) file: usize,
    /// The items and macros that the module declares; true for public ones.
    items: BTreeMap<String, bool>,
    pub(super) imports: Vec<Import>,
    /// Paths of two or more names outside of imports, with their offsets.
    pub(super) paths: Vec<(Vec<String>, usize)>,
    /// Every word outside of imports.
    pub(super) words: BTreeSet<String>,
}

/// One name that a `use` imports.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// The name in this module; `*` for all names of the path.
    pub(super) name: String,
    pub(super) public: bool,
    pub(super) at: usize,
}

/// The modules of one crate.
pub(super) struct Crate<'s> {
    pub(super) files: Vec<&'s Source>,
    pub(super) modules: Vec<Module>,
    by_path: BTreeMap<Vec<String>, usize>,
}

/// The target of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A module, by its number.
    Module(usize),
    /// Something that the file with this number defines.
    Item(usize),
}

/// The names, each in a module, that were looked up for one path: one that is looked up again is not found, which ends
/// cycles of imports.
type Asked = BTreeSet<(usize, String)>;

impl<'s> Crate<'s> {
    /// Reads the sources below `folder/src`; test modules are left out.
    pub(super) fn read(folder: &str, sources: &'s [Source]) -> Self {
        let src = format!("{folder}/src/");
        let mut krate = Crate {
            files: Vec::new(),
            modules: Vec::new(),
            by_path: BTreeMap::new(),
        };
        let own = sources.iter().filter_map(|s| Some((s, s.path.strip_prefix(&src)?)));
        let mut own: Vec<_> = own.map(|(source, rest)| (source, module_path(rest))).collect();
        // A binary beside a library is a crate of its own; sorting main.rs last keeps the library's root as the root.
        own.sort_by_key(|(source, path)| (path.len(), source.path.ends_with("/main.rs")));
        let mut tests: Vec<Vec<String>> = Vec::new();
        for (source, path) in own {
            if tests.iter().any(|test| path.starts_with(test)) {
                continue;
            }
            let file = krate.files.len();
            krate.files.push(source);
            let mut reader = Reader {
                tokens: tokens(&source.code),
                at: 0,
                krate: &mut krate,
                open: Vec::new(),
                depth: 0,
                tests: &mut tests,
            };
            reader.begin(path, file);
            reader.read(file);
        }
        krate
    }

    fn child(&self, module: usize, name: &str) -> Option<usize> {
        let path = [&self.modules[module].path[..], &[name.to_string()]].concat();
        self.by_path.get(&path).copied()
    }

    /// The target of a path in a module; `None` for names of other crates.
    pub(super) fn resolve(&self, module: usize, path: &[String]) -> Option<Target> {
        self.follow(module, path, &mut Asked::new())
    }

    fn follow(&self, module: usize, path: &[String], asked: &mut Asked) -> Option<Target> {
        let mut at = module;
        let mut rest = path;
        match path.first()?.as_str() {
            "crate" => {
                let root = self.by_path.get(&Vec::new()).copied()?;
                // `crate` in a binary beside a library is the binary.
                at = if self.modules[module].path.is_empty() {
                    module
                } else {
                    root
                };
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {}
            first => {
                let found = self.name(module, module, first, asked)?;
                return self.inside(module, found, &path[1..], asked);
            }
        }
        while rest.first().is_some_and(|name| name == "super") {
            let (_, parent) = self.modules[at].path.split_last()?;
            at = self.by_path.get(parent).copied()?;
            rest = &rest[1..];
        }
        self.inside(module, Target::Module(at), rest, asked)
    }

    /// The target of the names `rest` after `target`, for a path in the module `user`.
    fn inside(&self, user: usize, target: Target, rest: &[String], asked: &mut Asked) -> Option<Target> {
        let (Target::Module(module), Some(name)) = (target, rest.first()) else {
            return Some(target);
        };
        match self.name(user, module, name, asked) {
            Some(found) => self.inside(user, found, &rest[1..], asked),
            // A macro or a block that is not parsed defines the name, in this file.
            None => Some(Target::Item(self.modules[module].file)),
        }
    }

    /// The target of a name in a module, for a path in the module `user`: a child, an item, or an imported name.
    fn name(&self, user: usize, module: usize, name: &str, asked: &mut Asked) -> Option<Target> {
        if let Some(child) = self.child(module, name) {
            return Some(Target::Module(child));
        }
        let this = &self.modules[module];
        let private = self.modules[user].path.starts_with(&this.path);
        if this.items.get(name).is_some_and(|public| *public || private) {
            return Some(Target::Item(this.file));
        }
        if !asked.insert((module, name.to_string())) {
            return None;
        }
        let mut imports = this.imports.iter().filter(|i| i.public || private);
        if let Some(import) = imports.clone().find(|i| i.name == name) {
            // An import whose path is its own name, such as `use serde;`, is from another crate.
            let own = import.path.len() == 1 && import.path[0] == name;
            return if own {
                None
            } else {
                self.follow(module, &import.path, asked)
            };
        }
        imports.find_map(|i| match self.follow(module, &i.path, asked) {
            Some(Target::Module(from)) if i.name == "*" && from != module => self.name(user, from, name, asked),
            _ => None,
        })
    }

    /// The names that `use from::*` could import into a module, without those that the module declares.
    pub(super) fn names(&self, module: usize, from: usize) -> BTreeSet<&str> {
        let mut names = BTreeSet::new();
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(from) = next.pop() {
            if !seen.insert(from) {
                continue;
            }
            let this = &self.modules[from];
            let private = self.modules[module].path.starts_with(&this.path);
            let seen = this.items.iter().filter(|(_, public)| **public || private);
            names.extend(seen.map(|(name, _)| name.as_str()));
            for import in this.imports.iter().filter(|i| i.public || private) {
                if import.name != "*" {
                    names.insert(&import.name);
                } else if let Some(Target::Module(more)) = self.resolve(from, &import.path) {
                    next.push(more);
                }
            }
        }
        names.retain(|name| !self.modules[module].items.contains_key(*name));
        names
    }
}

/// The module path of a file of `src`: `a::b` for `a/b.rs` and for `a/b/mod.rs`.
fn module_path(file: &str) -> Vec<String> {
    let mut path: Vec<String> = file.trim_end_matches(".rs").split('/').map(String::from).collect();
    let root = path.len() == 1 && ["lib", "main"].contains(&path[0].as_str());
    if root || path.last().is_some_and(|name| name == "mod") {
        path.pop();
    }
    path
}

/// A word, `::`, or one other character, with its offset.
type Token<'t> = (&'t str, usize);

fn tokens(code: &str) -> Vec<Token<'_>> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(first) = code[at..].chars().next() {
        let rest = &code[at..];
        let len = if word(first) {
            rest.find(|c| !word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        if !first.is_whitespace() {
            found.push((&rest[..len], at));
        }
        at += len;
    }
    found
}

fn is_word(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// The parser of one file.
struct Reader<'t, 'c, 's> {
    tokens: Vec<Token<'t>>,
    at: usize,
    krate: &'c mut Crate<'s>,
    /// The open modules, each with its depth of braces.
    open: Vec<(usize, usize)>,
    depth: usize,
    tests: &'c mut Vec<Vec<String>>,
}

impl<'t> Reader<'t, '_, '_> {
    fn peek(&self, ahead: usize) -> &'t str {
        self.tokens.get(self.at + ahead).map_or("", |(token, _)| token)
    }

    fn before(&self, back: usize) -> &'t str {
        let at = self.at.checked_sub(back);
        at.and_then(|at| self.tokens.get(at)).map_or("", |(token, _)| token)
    }

    /// Opens a module.
    fn begin(&mut self, path: Vec<String>, file: usize) {
        let number = self.krate.modules.len();
        self.krate.by_path.entry(path.clone()).or_insert(number);
        self.krate.modules.push(Module {
            path,
            file,
            items: BTreeMap::new(),
            imports: Vec::new(),
            paths: Vec::new(),
            words: BTreeSet::new(),
        });
        self.open.push((number, self.depth));
    }

    fn module(&mut self) -> &mut Module {
        let number = self.open.last().map_or(0, |(number, _)| *number);
        &mut self.krate.modules[number]
    }

    fn child_path(&mut self, name: &str) -> Vec<String> {
        [&self.module().path[..], &[name.to_string()]].concat()
    }

    fn read(&mut self, file: usize) {
        while self.at < self.tokens.len() {
            let top = self.open.last().is_some_and(|(_, depth)| *depth == self.depth);
            let (token, next) = (self.peek(0), self.peek(1));
            match token {
                "#" if next == "[" || next == "!" => {
                    if self.attribute() {
                        self.skip_item();
                    }
                    continue;
                }
                "use" if next != "<" => {
                    let public = matches!(self.before(1), "pub" | ")");
                    self.at += 1;
                    self.import(&mut Vec::new(), public);
                    continue;
                }
                "mod" if top && self.peek(2) == "{" => {
                    let path = self.child_path(next);
                    self.at += 3;
                    self.depth += 1;
                    self.begin(path, file);
                    continue;
                }
                "{" => self.depth += 1,
                "}" => {
                    if top && self.open.len() > 1 {
                        self.open.pop();
                    }
                    self.depth = self.depth.saturating_sub(1);
                }
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" if top => {
                    let name = if next == "mut" { self.peek(2) } else { next };
                    if is_word(name) && !["fn", "unsafe", "extern"].contains(&name) {
                        let public = self.public();
                        self.module().items.insert(name.to_string(), public);
                    }
                }
                // The name after `mod` is a declaration, not a use.
                "mod" if is_word(next) => self.at += 1,
                "macro_rules" => {
                    let name = self.peek(2).to_string();
                    self.module().items.insert(name, true);
                }
                word if is_word(word) => {
                    self.module().words.insert(word.to_string());
                    let begins = !["::", "."].contains(&self.before(1));
                    if begins && next == "::" && is_word(self.peek(2)) {
                        self.path();
                        continue;
                    }
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    /// True if the item whose keyword comes next begins with `pub`.
    fn public(&self) -> bool {
        let qualifiers = ["unsafe", "const", "async", "extern"];
        let back = (1..).find(|back| !qualifiers.contains(&self.before(*back)));
        back.is_some_and(|back| matches!(self.before(back), "pub" | ")"))
    }

    /// Reads a path outside of imports.
    fn path(&mut self) {
        let at = self.tokens[self.at].1;
        let mut names = vec![self.peek(0).to_string()];
        while self.peek(1) == "::" && is_word(self.peek(2)) {
            self.at += 2;
            names.push(self.peek(0).to_string());
        }
        self.at += 1;
        let module = self.module();
        module.words.extend(names.iter().cloned());
        module.paths.push((names, at));
    }

    /// Reads an attribute; true if the item after it is for tests only.
    fn attribute(&mut self) -> bool {
        self.at += if self.peek(1) == "!" { 2 } else { 1 };
        let from = self.at;
        self.skip_brackets();
        let words = self.tokens[from..self.at].iter().map(|(token, _)| *token);
        let words: Vec<_> = words.filter(|token| is_word(token)).collect();
        words.starts_with(&["cfg", "test"]) || words.starts_with(&["cfg", "all", "test"])
    }

    /// Skips a bracket and its contents.
    fn skip_brackets(&mut self) {
        let mut depth = 0usize;
        while self.at < self.tokens.len() {
            match self.peek(0) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Skips the item, the statement or the field after an attribute.
    fn skip_item(&mut self) {
        while self.peek(0) == "#" {
            self.attribute();
        }
        let visible = self.peek(0) == "pub";
        let field = is_word(self.peek(0)) && !visible && self.peek(1) == ":" || visible && self.peek(2) == ":";
        while self.at < self.tokens.len() {
            match self.peek(0) {
                "mod" if self.peek(2) == ";" => {
                    let path = self.child_path(self.peek(1));
                    self.tests.push(path);
                }
                "{" => return self.skip_brackets(),
                "(" | "[" => {
                    self.skip_brackets();
                    continue;
                }
                "}" => return,
                ";" => break,
                "," if field => break,
                _ => {}
            }
            self.at += 1;
        }
        self.at += 1;
    }

    /// Reads the tree of a `use`, or a part of it, to its end.
    fn import(&mut self, prefix: &mut Vec<String>, public: bool) {
        let (len, at) = (prefix.len(), self.tokens.get(self.at).map_or(0, |(_, at)| *at));
        let mut name = None;
        loop {
            let token = self.peek(0);
            self.at += 1;
            match token {
                "::" => {}
                "{" => {
                    while !["}", ""].contains(&self.peek(0)) {
                        self.import(prefix, public);
                    }
                    self.at += 1;
                    name = Some(None);
                }
                "as" => {
                    name = Some(Some(self.peek(0).to_string()));
                    self.at += 1;
                }
                "*" => name = Some(Some("*".to_string())),
                word if is_word(word) => prefix.push(word.to_string()),
                _ => {
                    // The end of this part: a comma, a semicolon, or a closing brace, which belongs to the outer part.
                    if token == "}" {
                        self.at -= 1;
                    }
                    break;
                }
            }
        }
        let mut path = prefix.clone();
        prefix.truncate(len);
        if path.len() > 1 && path.last().is_some_and(|name| name == "self") {
            path.pop();
        }
        let Some(name) = name.unwrap_or_else(|| path.last().cloned()) else {
            return;
        };
        self.module().imports.push(Import { path, name, public, at });
    }
}
