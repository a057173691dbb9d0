//! The expansion of `#[derive(Module)]`.

use proc_macro2::{Span, TokenStream as Tokens};
use quote::{ToTokens, quote, quote_spanned};
use syn::{
    Data, DeriveInput, Error, Fields, GenericParam, Ident, Index, Member, Result, TypeParam, TypeParamBound,
    WherePredicate, spanned::Spanned,
};

pub(crate) fn expand(input: &DeriveInput) -> Result<Tokens> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "Module can be derived for structs only"));
    };
    let options = options(input)?;
    let backend = match options.backend {
        Some(named) => named,
        None => backend_parameter(input)?.into_token_stream(),
    };
    let (mut shared, mut unique) = (Tokens::new(), Tokens::new());
    for (name, member, at) in walked_fields(&data.fields)? {
        // With the place of the field's type, where the compiler points if that is no module.
        shared.extend(quote_spanned! { at => walk.field(#name, &self.#member); });
        unique.extend(quote_spanned! { at => walk.field(#name, &mut self.#member); });
    }
    // A copy lives as long as it likes, so what it is made of has to be `'static`; backends are.
    let borrows = input.generics.params.iter().any(|p| match p {
        GenericParam::Type(t) => t.ident.to_token_stream().to_string() != backend.to_string() && !is_static(input, t),
        GenericParam::Lifetime(_) => true,
        GenericParam::Const(_) => false,
    });
    let copied = (!borrows).then(|| {
        quote! {
            #[allow(unused_imports, clippy::all)]
            fn copied(&self) -> ::core::option::Option<::std::boxed::Box<dyn ::kiln_nn::module::Runnable<#backend>>> {
                use ::kiln_nn::layers::copies::{Cloneable as _, Other as _, Probe};
                (&Probe(self)).copied()
            }
        }
    });
    let (name, kind) = (&input.ident, options.kind);
    let (generics, arguments, predicates) = input.generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::kiln_nn::Walkable<#backend> for #name #arguments #predicates {
            fn kind(&self) -> &'static str {
                #kind
            }
            #copied
            #[allow(unused_variables)]
            fn walk<'module>(&'module self, walk: &mut ::kiln_nn::Walk<'_, 'module, #backend>) {
                #shared
            }
            #[allow(unused_variables)]
            fn walk_mut<'module>(&'module mut self, walk: &mut ::kiln_nn::WalkMut<'_, 'module, #backend>) {
                #unique
            }
        }
    })
}

/// True if a type parameter has the bound `'static`, in the list of parameters or in the where clause.
fn is_static(input: &DeriveInput, parameter: &TypeParam) -> bool {
    let is_static = |bound: &TypeParamBound| matches!(bound, TypeParamBound::Lifetime(l) if l.ident == "static");
    let clauses = input.generics.where_clause.iter().flat_map(|w| &w.predicates);
    let of_parameter = clauses.filter_map(|predicate| match predicate {
        WherePredicate::Type(t) => match &t.bounded_ty {
            syn::Type::Path(p) if p.path.is_ident(&parameter.ident) => Some(&t.bounds),
            _ => None,
        },
        _ => None,
    });
    std::iter::once(&parameter.bounds)
        .chain(of_parameter)
        .any(|bounds| bounds.iter().any(is_static))
}

/// The options in `#[module(…)]` on the struct.
struct Options {
    /// The name that errors and summaries give the type.
    kind: Tokens,
    /// The backend, of a struct that is not generic over one.
    backend: Option<Tokens>,
}

fn options(input: &DeriveInput) -> Result<Options> {
    let name = input.ident.to_string();
    let (mut kind, mut backend) = (quote! { #name }, None);
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("kind") {
                kind = meta.value()?.parse::<syn::Expr>()?.into_token_stream();
            } else if meta.path.is_ident("backend") {
                backend = Some(meta.value()?.parse::<syn::Type>()?.into_token_stream());
            } else {
                return Err(meta.error("expected `kind = …` or `backend = …`"));
            }
            Ok(())
        })?;
    }
    Ok(Options { kind, backend })
}

/// The type parameter with a bound whose last segment is `Backend`, in the list of parameters or in the where clause.
fn backend_parameter(input: &DeriveInput) -> Result<Ident> {
    let is_backend = |bound: &TypeParamBound| match bound {
        TypeParamBound::Trait(t) => t.path.segments.last().is_some_and(|s| s.ident == "Backend"),
        _ => false,
    };
    for parameter in &input.generics.params {
        if let GenericParam::Type(t) = parameter
            && t.bounds.iter().any(is_backend)
        {
            return Ok(t.ident.clone());
        }
    }
    for predicate in input.generics.where_clause.iter().flat_map(|w| &w.predicates) {
        if let WherePredicate::Type(t) = predicate
            && t.bounds.iter().any(is_backend)
            && let syn::Type::Path(p) = &t.bounded_ty
            && let Some(ident) = p.path.get_ident()
        {
            return Ok(ident.clone());
        }
    }
    Err(Error::new(
        input.ident.span(),
        "Module is derived for structs with a type parameter bounded by `Backend`, such as `struct Net<B: Backend>`, and for those \
         that name theirs by `#[module(backend = …)]`",
    ))
}

/// The name of every field that is walked, the field, and where its type is written.
fn walked_fields(fields: &Fields) -> Result<Vec<(String, Member, Span)>> {
    let mut walked: Vec<(String, Member, Span)> = Vec::new();
    for (i, field) in fields.iter().enumerate() {
        let member = match &field.ident {
            Some(ident) => Member::Named(ident.clone()),
            None => Member::Unnamed(Index {
                index: i as u32,
                span: Span::call_site(),
            }),
        };
        let mut name = match &field.ident {
            Some(ident) => ident.to_string().trim_start_matches("r#").to_string(),
            None => i.to_string(),
        };
        let mut skip = false;
        for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("skip") {
                    skip = true;
                    return Ok(());
                }
                if meta.path.is_ident("rename") {
                    name = meta.value()?.parse::<syn::LitStr>()?.value();
                    return Ok(());
                }
                Err(meta.error("expected `skip` or `rename = \"…\"`"))
            })?;
        }
        if skip {
            continue;
        }
        if name.contains('.') || walked.iter().any(|(n, ..)| *n == name) {
            return Err(Error::new(
                field.span(),
                "a field is walked under a name of its own, without dots",
            ));
        }
        walked.push((name, member, field.ty.span()));
    }
    Ok(walked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(source: &str) -> std::result::Result<String, String> {
        let input: DeriveInput = syn::parse_str(source).map_err(|e| e.to_string())?;
        expand(&input).map(|t| t.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn fields_are_walked_in_order() {
        let code = expanded("struct Net<B: Backend> { a: X<B>, #[module(skip)] b: Y, #[module(rename = \"c\")] d: Z }");
        let code = code.unwrap();
        let (a, c) = (
            code.find("field (\"a\" , & self . a)"),
            code.find("field (\"c\" , & self . d)"),
        );
        assert!(a.is_some() && a < c, "{code}");
        assert!(!code.contains("self . b"), "{code}");
        assert!(code.contains("Walkable < B > for Net < B >"), "{code}");
    }

    #[test]
    fn the_backend_is_found_wherever_it_is_bounded() {
        let code = expanded("struct Net<L, T>(L, Y<T>) where L: Layer<T>, T: kiln_nn::Backend;").unwrap();
        assert!(code.contains("Walkable < T > for Net < L , T >"), "{code}");
        assert!(code.contains("field (\"1\" , & mut self . 1)"), "{code}");
    }

    #[test]
    fn a_struct_may_name_its_backend() {
        let code = expanded("#[module(backend = kiln_cpu::Cpu, kind = \"N\")] struct Net { a: X }").unwrap();
        assert!(code.contains("Walkable < kiln_cpu :: Cpu > for Net {"), "{code}");
    }

    #[test]
    fn structs_that_borrow_nothing_have_copies() {
        let copies = |source| expanded(source).unwrap().contains("fn copied");
        assert!(copies("struct Net<B: Backend, const N: usize> { a: X<B> }"));
        assert!(copies("#[module(backend = kiln_cpu::Cpu)] struct Net { a: X }"));
        assert!(copies("struct Net<L: Layer<T> + 'static, T: Backend>(L, Y<T>);"));
        assert!(copies(
            "struct Net<L, T: Backend>(L, Y<T>) where L: 'static + Layer<T>;"
        ));
        assert!(!copies("struct Net<L, T: Backend>(L, Y<T>);"));
        assert!(!copies("struct Net<L: 'static, K, T: Backend>(L, K, Y<T>);"));
        assert!(!copies("struct Net<'a, B: Backend>(&'a str, X<B>);"));
    }

    #[test]
    fn what_cannot_be_derived_says_why() {
        for (source, why) in [
            ("enum Net<B: Backend> { A(X<B>) }", "structs only"),
            ("struct Net { a: f32 }", "bounded by `Backend`"),
            ("struct Net<B: Clone> { a: X<B> }", "bounded by `Backend`"),
            (
                "struct Net<B: Backend> { #[module(frozen)] a: X<B> }",
                "expected `skip`",
            ),
            (
                "#[module(name = \"x\")] struct Net<B: Backend> { a: X<B> }",
                "expected `kind",
            ),
            (
                "struct Net<B: Backend> { a: X<B>, #[module(rename = \"a\")] b: X<B> }",
                "name of its own",
            ),
            (
                "struct Net<B: Backend> { #[module(rename = \"a.b\")] b: X<B> }",
                "without dots",
            ),
        ] {
            let refused = expanded(source).unwrap_err();
            assert!(refused.contains(why), "{source}: {refused}");
        }
    }
}
