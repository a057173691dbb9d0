//! Every op of a backend compares its buffers with its parameters before anything else, and every backend runs every suite.

use super::workspace::{Finding, Workspace};

/// The methods of `kiln_core::Runtime` that copy memory of a length that the caller gives.
const COPIES: [&str; 4] = ["upload_bytes", "upload_part", "download_bytes", "copy"];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut found = Vec::new();
    for source in &workspace.sources {
        let reference = source.path.starts_with("crates/testkit/src/reference");
        let backend =
            matches!(source.krate(), "cpu" | "cuda" | "profile") && source.path.contains("/src/") || reference;
        let traits = source.path.starts_with("crates/core/src/ops/");
        if !backend && !traits {
            continue;
        }
        for (at, block) in blocks(&source.code) {
            let head = block.split('{').next().unwrap_or(block);
            let runtime = head.contains(" Runtime for ");
            for (method_at, method) in pieces(block, "\n    fn ") {
                let name = method.split(['(', '<']).next().unwrap_or(method);
                // A trait method without a body is implemented by backends.
                let end = method.find(['{', ';']).unwrap_or(method.len());
                let Some(body) = method[end..].strip_prefix('{') else {
                    continue;
                };
                // Methods that answer a question, such as that for the algorithm of an op, need no check.
                let answers = ["-> Option<", "-> bool"].iter().any(|of| method[..end].contains(of));
                let moves = if runtime { COPIES.contains(&name) } else { !answers };
                // Default bodies of core's traits return the error of an op that a backend does not have.
                if traits && body.contains("self.unsupported(") {
                    continue;
                }
                let body = after_forwarding(body.trim_start(), name);
                if moves && !body.starts_with(&format!("checks::{name}(")) {
                    let message = format!("`{name}` has to begin with `checks::{name}(…)?`, of crates/core/src/checks");
                    found.push(Finding::new(source.place(at + method_at), message));
                }
            }
        }
    }
    found.extend(untested(workspace));
    found
}

/// What follows where the body of an op first hands it to the backend inside, which begins with the same check.
fn after_forwarding<'a>(body: &'a str, name: &str) -> &'a str {
    let call = body.strip_prefix("unless_recording!(").map(str::trim_start);
    let op = call.and_then(|call| call.strip_prefix("self,")).map(str::trim_start);
    let forwards = op
        .and_then(|op| op.strip_prefix(name))
        .is_some_and(|rest| rest.starts_with('('));
    match body.split_once(";\n").filter(|_| forwards) {
        Some((_, rest)) => rest.trim_start(),
        None => body,
    }
}

/// Backends without a call of testkit's `suites!` in their own tests or in those of kiln-nn. Generic ones, which wrap another
/// backend, need none.
fn untested(workspace: &Workspace) -> Vec<Finding> {
    let backends = workspace.sources.iter().filter(|s| s.path.contains("/src/"));
    let backends = backends.filter_map(|s| Some((s, s.code.find("\nimpl Runtime for ")?)));
    let runs = |name: &str| {
        workspace.sources.iter().any(|s| {
            let own = s.path.starts_with(&format!("crates/{name}/tests/"));
            let named = s.path.starts_with("crates/nn/tests/") && s.code.contains(&format!("suites!(kiln_{name}::"));
            own && s.code.contains("kiln_testkit::suites!(") || named
        })
    };
    backends
        .filter(|(s, _)| !runs(s.krate()))
        .map(|(s, at)| {
            let message = "a backend whose tests do not call `kiln_testkit::suites!`".to_string();
            Finding::new(s.place(at + 1), message)
        })
        .collect()
}

/// The traits of op families, their implementations, and the implementations of `Runtime`.
fn blocks(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let starts = ["\nimpl", "\npub trait "];
    let all = starts.into_iter().flat_map(|start| pieces(code, start));
    all.filter_map(|(at, piece)| {
        let block = &piece[..piece.find("\n}").unwrap_or(piece.len())];
        let head = block.split('{').next()?;
        let family = head.contains("Ops for ") || head.contains(" Runtime for ");
        let of_trait = head.split([':', ' ']).next().is_some_and(|name| name.ends_with("Ops"));
        (family || of_trait).then_some((at, block))
    })
}

/// The pieces of text after each `start`, with their offsets.
fn pieces<'t>(text: &'t str, start: &'t str) -> impl Iterator<Item = (usize, &'t str)> {
    let mut ends = text.match_indices(start).map(|(at, _)| at + start.len()).peekable();
    std::iter::from_fn(move || {
        let at = ends.next()?;
        let end = ends.peek().map_or(text.len(), |next| next - start.len());
        Some((at, &text[at..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{places, workspace};
    use super::*;

    #[test]
    fn an_op_that_does_not_check_is_found() {
        let op = |body: &str| {
            format!("use x;\n\nimpl SoftmaxOps for Cpu {{\n    fn softmax(&self) {{\n        {body}\n    }}\n}}\n")
        };
        let at = |path: &str, text: &str| {
            let found = check(&workspace(&[(path, text)]));
            places(&found).into_iter().map(String::from).collect::<Vec<_>>()
        };
        assert!(at("crates/cpu/src/ops/softmax.rs", &op("checks::softmax(self)?;")).is_empty());
        let place = ["crates/cpu/src/ops/softmax.rs:4"];
        assert_eq!(at("crates/cpu/src/ops/softmax.rs", &op("run()")), place);
        assert_eq!(
            at("crates/cpu/src/ops/softmax.rs", &op("checks::softmax_grad(self)?;")),
            place
        );
        assert_eq!(
            at("crates/cpu/src/ops/softmax.rs", &op("// checks::softmax(self)?;")),
            place
        );
        assert!(at("crates/nn/src/ops/softmax.rs", &op("run()")).is_empty());
        let forwarded = |then: &str| op(&format!("unless_recording!(self, softmax(p));\n        {then}"));
        assert!(
            at(
                "crates/profile/src/ops/softmax.rs",
                &forwarded("checks::softmax(self)?;")
            )
            .is_empty()
        );
        let place = ["crates/profile/src/ops/softmax.rs:4"];
        assert_eq!(at("crates/profile/src/ops/softmax.rs", &forwarded("run()")), place);
        let long = op(
            "unless_recording!(\n            self,\n            softmax(p)\n        );\n        checks::softmax(self)?;",
        );
        assert!(at("crates/profile/src/ops/softmax.rs", &long).is_empty());
        let other = op("unless_recording!(self, softmax_grad(p));\n        checks::softmax(self)?;");
        assert_eq!(at("crates/profile/src/ops/softmax.rs", &other), place);
        let question = op("run()").replace("(&self) {", "(&self) -> Option<u8> {");
        assert!(at("crates/cpu/src/ops/softmax.rs", &question).is_empty());
        let question = question.replace("Option<u8>", "bool");
        assert!(at("crates/cpu/src/ops/softmax.rs", &question).is_empty());
    }

    #[test]
    fn bodies_of_traits_and_copies_check_too() {
        let text = "\npub trait AOps: Runtime {\n    fn a(&self);\n\n    fn b(&self) {\n        run()\n    }\n\n    fn c(&self) {\n        self.unsupported(Op::C)\n    }\n}\n";
        let found = check(&workspace(&[("crates/core/src/ops/a.rs", text)]));
        assert_eq!(places(&found), ["crates/core/src/ops/a.rs:5"]);
        let text = "\nimpl Runtime for Cpu {\n    fn name(&self) {\n        n()\n    }\n\n    fn copy(&self) {\n        c()\n    }\n}\n";
        let tests = ("crates/cpu/tests/suites.rs", "kiln_testkit::suites!(cpu());\n");
        let found = check(&workspace(&[("crates/cpu/src/runtime.rs", text), tests]));
        assert_eq!(places(&found), ["crates/cpu/src/runtime.rs:7"]);
    }

    #[test]
    fn a_backend_without_suites_is_found() {
        let backend = ("crates/rocm/src/lib.rs", "//! x\nimpl Runtime for Rocm {}\n");
        let of = |tests: &[(&str, &str)]| places(&check(&workspace(&[&[backend], tests].concat()))).len();
        assert_eq!(of(&[]), 1);
        assert_eq!(of(&[("crates/rocm/tests/a.rs", "fn a() {}\n")]), 1);
        assert_eq!(of(&[("crates/rocm/tests/a.rs", "kiln_testkit::suites!(r());\n")]), 0);
        assert_eq!(
            of(&[("crates/nn/tests/r.rs", "kiln_testkit::suites!(kiln_cpu::c());\n")]),
            1
        );
        assert_eq!(
            of(&[("crates/nn/tests/r.rs", "kiln_testkit::suites!(kiln_rocm::r());\n")]),
            0
        );
    }
}
