//! `#[compiled_once]`: functions that are not compiled anew in every crate that calls them.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use quote::quote;

/// An `impl` block, a trait or a function, with `#[inline(never)]` on every function that has no type parameters of its own.
pub(crate) fn mark(item: TokenStream) -> TokenStream {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let has = |word| tokens.iter().any(|t| is_ident(t, word));
    let is_block = (has("impl") || has("trait")) && !has("fn");
    match tokens.last() {
        Some(TokenTree::Group(body)) if is_block && body.delimiter() == Delimiter::Brace => {
            let mut marked = Group::new(Delimiter::Brace, functions(body.stream()));
            marked.set_span(body.span());
            tokens.pop();
            tokens.push(TokenTree::Group(marked));
            tokens.into_iter().collect()
        }
        _ => function(tokens),
    }
}

/// The items of a block, each of which ends with braces or a semicolon.
fn functions(body: TokenStream) -> TokenStream {
    let (mut done, mut item) = (TokenStream::new(), Vec::new());
    for token in body {
        let ends = match &token {
            TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
            TokenTree::Punct(punct) => punct.as_char() == ';',
            _ => false,
        };
        item.push(token);
        if ends {
            done.extend(function(std::mem::take(&mut item)));
        }
    }
    done.extend(item);
    done
}

/// The item, marked if it is a function without type parameters and without an `inline` of its own.
fn function(item: Vec<TokenTree>) -> TokenStream {
    let body = matches!(item.last(), Some(TokenTree::Group(_)));
    let shared = item
        .iter()
        .position(|t| is_ident(t, "fn"))
        .is_some_and(|at| body && !is_generic(&item[at + 2..]));
    let inline = item.iter().any(|token| match token {
        TokenTree::Group(group) => {
            group.delimiter() == Delimiter::Bracket && group.stream().into_iter().any(|t| is_ident(&t, "inline"))
        }
        _ => false,
    });
    let item: TokenStream = item.into_iter().collect();
    match shared && !inline {
        true => quote! { #[inline(never)] #item },
        false => item,
    }
}

/// True if a function has type parameters: in angle brackets after its name, or as `impl` in its arguments. The backend alone,
/// `<B: Backend>`, does not count: a function outside of a block has it where one inside has it from its block.
fn is_generic(after_name: &[TokenTree]) -> bool {
    let arguments = after_name.iter().position(|token| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Parenthesis,
        _ => false,
    });
    let (parameters, rest) = after_name.split_at(arguments.unwrap_or(after_name.len()));
    let alone: String = parameters.iter().map(ToString::to_string).collect();
    let parameters = if alone == "<B:Backend>" { &[] } else { parameters };
    let mut lifetime = false;
    for token in parameters {
        if matches!(token, TokenTree::Ident(_)) && !lifetime {
            return true;
        }
        lifetime = matches!(token, TokenTree::Punct(p) if p.as_char() == '\'');
    }
    rest.first().is_some_and(mentions_impl)
}

fn mentions_impl(token: &TokenTree) -> bool {
    match token {
        TokenTree::Group(group) => group.stream().into_iter().any(|t| mentions_impl(&t)),
        token => is_ident(token, "impl"),
    }
}

fn is_ident(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(item: TokenStream) -> String {
        mark(item).to_string()
    }

    #[test]
    fn functions_without_type_parameters_are_marked() {
        let plain =
            quote! { fn a<'x, 'y: 'x>(&'x self, f: &'y dyn Fn(usize) -> usize) -> impl Iterator<Item = usize> {} };
        let inside = quote! { impl<B: Backend> Tensor<B> { const N: usize = 3; /** A. */ pub #plain } };
        let expected =
            quote! { impl<B: Backend> Tensor<B> { const N: usize = 3; #[inline(never)] /** A. */ pub #plain } };
        assert_eq!(marked(inside), expected.to_string());
        assert_eq!(marked(plain.clone()), quote! { #[inline(never)] #plain }.to_string());
        let free = quote! { pub fn a<B: Backend>(t: &Tensor<B>) {} };
        assert_eq!(marked(free.clone()), quote! { #[inline(never)] #free }.to_string());
    }

    #[test]
    fn others_are_left_alone() {
        for item in [
            quote! { fn a<T>(t: T) {} },
            quote! { fn a<'x, const N: usize>(t: &'x [u8; N]) {} },
            quote! { fn a(&self, f: &(impl Fn() + Sync)) {} },
            quote! { #[inline] fn a(&self) {} },
            quote! { trait Layer<B: Backend> { fn call(&self) -> usize; } },
            quote! { impl<B: Backend> Layer<B> for Net<B> { type Out = usize; fn a<T>(t: T) {} #[inline] fn b() {} } },
        ] {
            assert_eq!(marked(item.clone()), item.to_string());
        }
    }
}
