//! `cargo xtask instances`: the list of kiln-nn's functions that one crate compiles for all others, made from the functions
//! that are marked `#[compiled_once]`, the layers and the optimizers.

use crate::workspace::{File, Outcome, root};
use std::collections::BTreeSet;
use std::path::Path;

/// The file of the list.
pub(crate) const PATH: &str = "crates/nn/src/instances.rs";

const HEAD: &str = "\
//! The functions of this crate that are compiled once for a backend. Made by `cargo xtask instances` from the blocks marked
//! `#[compiled_once]`, the layers and the optimizers.

#[allow(clippy::wildcard_imports)]
use crate::{autograd::*, init::*, layers::*, module::*, optim::*, weights::*, *};
use std::fmt;

/// Makes the compiler generate the code of every layer, optimizer and op for backend `B`, of which it returns the addresses. Crates
/// above the one that calls this use that code instead of compiling their own.
///
/// ```
/// assert!(!kiln_nn::instances::<kiln_cpu::Cpu>().is_empty());
/// ```
#[rustfmt::skip]
pub fn instances<B: Backend>() -> Vec<*const ()> {
    vec![
";

/// The extents of the windows that layers are compiled for.
const RANKS: [&str; 3] = ["1", "2", "3"];

/// A block `impl<B: Backend, …> Trait for Type {`.
struct Block<'a> {
    /// The trait, if it is an implementation of one.
    of: Option<&'a str>,
    ty: &'a str,
    /// Generic over the number of spatial dimensions, `R`.
    ranks: bool,
}

impl<'a> Block<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let rest = line.strip_prefix("impl<B: Backend")?.strip_suffix(" {")?;
        let (ranks, rest) = match rest.strip_prefix(", const R: usize> ") {
            Some(rest) => (true, rest),
            None => (false, rest.strip_prefix("> ")?),
        };
        let (of, ty) = match rest.split_once(" for ") {
            Some((of, ty)) => (Some(of), ty),
            None => (None, rest),
        };
        Some(Block { of, ty, ranks })
    }

    /// The type, for each number of dimensions.
    fn types(&self) -> Vec<String> {
        match self.ranks {
            true => RANKS
                .iter()
                .map(|rank| self.ty.replace("R>", &format!("{rank}>")))
                .collect(),
            false => vec![self.ty.to_string()],
        }
    }
}

/// The function that a signature declares, unless it has type parameters of its own or is not visible in the whole crate.
fn declared<'a>(signature: &'a str, of: Option<&str>) -> Option<&'a str> {
    let rest = match of {
        Some(_) => signature,
        None => signature
            .strip_prefix("pub ")
            .or_else(|| signature.strip_prefix("pub(crate) "))?,
    };
    let rest = rest.strip_prefix("fn ")?;
    let end = rest.find(['(', '<'])?;
    let (name, rest) = rest.split_at(end);
    let (parameters, arguments) = rest.split_once('(')?;
    let lifetimes = parameters
        .trim_matches(['<', '>'])
        .split(',')
        .all(|p| p.is_empty() || p.trim().starts_with('\''));
    let arguments = arguments.split(" -> ").next().unwrap_or(arguments);
    let generic = arguments.split([' ', '(', '&']).any(|word| word == "impl");
    (lifetimes && !generic).then_some(name)
}

/// Adds the functions of the marked blocks of a file, and its layers and optimizers.
fn scan(text: &str, rows: &mut BTreeSet<String>) {
    let mut lines = text.lines().peekable();
    let (mut marked, mut block) = (false, None);
    while let Some(line) = lines.next() {
        if let Some(alias) = line
            .strip_prefix("pub type ")
            .and_then(|rest| rest.split_once(" = Optim<B, "))
        {
            rows.insert(format!("optim::instance::<B, {}>()", alias.0));
        }
        if let Some((name, rule)) = line.trim().strip_suffix(" {").and_then(|row| row.split_once(", "))
            && rule == format!("{name}Rule")
        {
            rows.insert(format!("optim::instance::<B, {name}<B>>()"));
        }
        if let Some(found) = Block::parse(line) {
            if found.of == Some("Layer<B>") && marked {
                for ty in found.types() {
                    rows.insert(format!("layers::instance::<B, {ty}>()"));
                }
            }
            block = Some(found).filter(|_| marked);
        }
        if marked
            && let Some((name, _)) = line
                .strip_prefix("pub fn ")
                .and_then(|rest| rest.split_once("<B: Backend>("))
        {
            rows.insert(format!("{name}::<B> as *const ()"));
        }
        if !line.starts_with(' ') {
            marked = line == "#[compiled_once]";
        }
        let Some(inside) = &block else { continue };
        if line == "}" {
            block = None;
            continue;
        }
        let Some(start) = line
            .strip_prefix("    ")
            .filter(|l| l.starts_with("pub") || l.starts_with("fn "))
        else {
            continue;
        };
        let mut signature = start.to_string();
        while !signature.contains(['{', ';'])
            && let Some(more) = lines.next()
        {
            signature += more.trim_start();
        }
        if let Some(name) = declared(&signature, inside.of) {
            for ty in inside.types() {
                rows.insert(match inside.of {
                    Some(of) => format!("<{ty} as {of}>::{name} as *const ()"),
                    None => format!("<{ty}>::{name} as *const ()"),
                });
            }
        }
    }
}

/// The text of the list.
pub(crate) fn list(files: &[File]) -> String {
    let mut rows = BTreeSet::new();
    for file in files {
        if file.path.starts_with("crates/nn/src/") && file.path.ends_with(".rs") && file.path != PATH {
            scan(&file.text, &mut rows);
        }
    }
    let rows: String = rows.iter().map(|row| format!("        {row},\n")).collect();
    format!("{HEAD}{rows}    ]\n}}\n")
}

/// The lines of a file, from 1, that begin a block of ops which is not marked.
pub(crate) fn unmarked(file: &File) -> Vec<usize> {
    let ops = file.path.starts_with("crates/nn/src/ops/");
    let mut before = "";
    let lines = file.text.lines().enumerate().filter(|(_, line)| {
        let marked = std::mem::replace(&mut before, *line) == "#[compiled_once]";
        let block = *line == "impl<B: Backend> Tensor<B> {" || *line == "impl<B: Backend> Indices<B> {";
        ops && block && !marked
    });
    lines.map(|(i, _)| i + 1).collect()
}

/// Writes the list of the workspace at `root`.
pub(crate) fn write(root: &Path) -> Result<(), String> {
    let files = crate::workspace::files(root)?;
    std::fs::write(root.join(PATH), list(&files)).map_err(|e| format!("cannot write {PATH}: {e}"))
}

/// Writes the list.
pub(crate) fn run() -> Outcome {
    write(&root())?;
    println!("{PATH} is written");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Vec<String> {
        let mut rows = BTreeSet::new();
        scan(text, &mut rows);
        rows.into_iter().collect()
    }

    #[test]
    fn marked_functions_are_listed() {
        let text = "\
#[compiled_once]
impl<B: Backend> Tensor<B> {
    /// Documented.
    pub fn abs(&self) -> Result<Tensor<B>> {
        fn inner() {}
    }
    pub(crate) fn long<'a>(
        &'a self,
        f: &dyn Fn(usize),
    ) -> impl Iterator<Item = usize> {
    }
    fn hidden(&self) {}
    pub fn one_of<T>(&self, t: T) {}
    pub fn any(&self, f: impl Fn(usize)) {}
}

impl<B: Backend> Indices<B> {
    pub fn unmarked(&self) {}
}
";
        assert_eq!(
            rows(text),
            ["<Tensor<B>>::abs as *const ()", "<Tensor<B>>::long as *const ()"]
        );
    }

    #[test]
    fn layers_and_optimizers_are_listed() {
        let text = "\
#[compiled_once]
impl<B: Backend, const R: usize> Layer<B> for Conv<B, R> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {}
}
pub type Adam<B> = Optim<B, AdamRule<false>>;
    NAdam, NAdamRule {
";
        let of = |rank| format!("<Conv<B, {rank}> as Layer<B>>::call as *const ()");
        let layer = |rank| format!("layers::instance::<B, Conv<B, {rank}>>()");
        let mut expected: Vec<String> = (1..4).map(of).chain((1..4).map(layer)).collect();
        expected.extend(["Adam", "NAdam"].map(|name| format!("optim::instance::<B, {name}<B>>()")));
        assert_eq!(rows(text), expected);
    }
}
