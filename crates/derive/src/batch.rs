//! The expansion of `#[derive(Batch)]`.

use proc_macro2::TokenStream as Tokens;
use quote::{format_ident, quote};
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, GenericParam, Result, spanned::Spanned};

pub(crate) fn expand(input: &DeriveInput) -> Result<Tokens> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "Batch can be derived for structs only"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new(
            input.span(),
            "Batch can be derived for structs with named fields only; a tuple of arrays is a batch without it",
        ));
    };
    if let Some(parameter) = input.generics.params.first() {
        let what = match parameter {
            GenericParam::Lifetime(_) => "borrows nothing",
            _ => "has no type parameters",
        };
        return Err(Error::new(
            parameter.span(),
            format!("a batch is made on other threads and {what}"),
        ));
    }
    let mut carried: Vec<&Field> = Vec::new();
    for field in &fields.named {
        if !is_skipped(field)? {
            carried.push(field);
        }
    }
    let Some(first) = carried.first() else {
        return Err(Error::new(
            input.span(),
            "a batch has at least one field that goes to the device",
        ));
    };
    let (name, visibility, on) = (&input.ident, &input.vis, format_ident!("{}On", input.ident));
    let first = &first.ident;
    let idents: Vec<_> = carried.iter().map(|f| &f.ident).collect();
    let names: Vec<String> = carried
        .iter()
        .filter_map(|f| Some(f.ident.as_ref()?.to_string()))
        .collect();
    let names: Vec<&str> = names.iter().map(|n| n.trim_start_matches("r#")).collect();
    let types: Vec<_> = carried.iter().map(|f| &f.ty).collect();
    let visibilities: Vec<_> = carried.iter().map(|f| &f.vis).collect();
    let docs: Vec<Vec<&Attribute>> = carried.iter().map(|f| docs(&f.attrs)).collect();
    let doc = format!("[`{name}`] on a device.");
    Ok(quote! {
        #[doc = #doc]
        #[derive(Clone, Debug)]
        #visibility struct #on<B: ::kiln_data::derive::Backend> {
            #( #(#docs)* #visibilities #idents: <#types as ::kiln_data::Batch>::On<B>, )*
        }

        #[automatically_derived]
        impl ::kiln_data::Batch for #name {
            type On<B: ::kiln_data::derive::Backend> = #on<B>;

            fn len(&self) -> usize {
                ::kiln_data::Batch::len(&self.#first)
            }
            fn arrays<'batch>(&'batch self, fields: &mut ::kiln_data::Fields<'_, ::kiln_data::HostArray<'batch>>) {
                #( fields.field(#names, |fields| ::kiln_data::Batch::arrays(&self.#idents, fields)); )*
            }
            fn to_device<B: ::kiln_data::derive::Backend>(&self, backend: &B) -> ::kiln_data::Result<#on<B>> {
                ::std::result::Result::Ok(#on {
                    #( #idents: ::kiln_data::Batch::to_device(&self.#idents, backend)?, )*
                })
            }
            fn from_arrays<B: ::kiln_data::derive::Backend>(
                arrays: &mut ::kiln_data::ArraysOf<'_, B>,
            ) -> ::kiln_data::Result<#on<B>> {
                ::std::result::Result::Ok(#on {
                    #( #idents: arrays.field(#names, <#types as ::kiln_data::Batch>::from_arrays)?, )*
                })
            }
            fn on_device<'batch, B: ::kiln_data::derive::Backend>(
                on: &'batch #on<B>,
                fields: &mut ::kiln_data::Fields<'_, ::kiln_data::OnDevice<'batch, B>>,
            ) {
                #( fields.field(#names, |fields| <#types as ::kiln_data::Batch>::on_device(&on.#idents, fields)); )*
            }
            fn on_device_mut<'batch, B: ::kiln_data::derive::Backend>(
                on: &'batch mut #on<B>,
                fields: &mut ::kiln_data::Fields<'_, ::kiln_data::OnDeviceMut<'batch, B>>,
            ) {
                #( fields.field(#names, |fields| <#types as ::kiln_data::Batch>::on_device_mut(&mut on.#idents, fields)); )*
            }
        }
    })
}

/// True for a field marked `#[batch(skip)]`.
fn is_skipped(field: &Field) -> Result<bool> {
    let mut skip = false;
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("batch")) {
        attribute.parse_nested_meta(|meta| match meta.path.is_ident("skip") {
            true => {
                skip = true;
                Ok(())
            }
            false => Err(meta.error("expected `skip`")),
        })?;
    }
    Ok(skip)
}

/// The doc comments among the attributes of a field, and those that switch it on or off.
fn docs(attributes: &[Attribute]) -> Vec<&Attribute> {
    let kept = |a: &&Attribute| a.path().is_ident("doc") || a.path().is_ident("cfg");
    attributes.iter().filter(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(source: &str) -> std::result::Result<String, String> {
        let input: DeriveInput = syn::parse_str(source).map_err(|e| e.to_string())?;
        expand(&input).map(|t| t.to_string()).map_err(|e| e.to_string())
    }

    #[test]
    fn fields_are_carried_in_order_with_their_documentation() {
        let source = "pub struct Pairs { /// Left.\n pub a: X, #[batch(skip)] b: Vec<String>, r#type: Y }";
        let code = expanded(source).unwrap();
        assert!(
            code.contains("pub struct PairsOn < B : :: kiln_data :: derive :: Backend >"),
            "{code}"
        );
        assert!(
            code.contains("# [doc = r\" Left.\"] pub a :") || code.contains("# [doc = \" Left.\"] pub a :"),
            "{code}"
        );
        assert!(code.contains("Batch :: len (& self . a)"), "{code}");
        assert!(code.contains("field (\"type\""), "{code}");
        assert!(!code.contains("String"), "{code}");
        assert!(code.find("field (\"a\"") < code.find("field (\"type\""), "{code}");
    }

    #[test]
    fn what_cannot_be_derived_says_why() {
        for (source, why) in [
            ("enum E { A(X) }", "structs only"),
            ("struct S(X);", "named fields only"),
            ("struct S<T> { a: T }", "no type parameters"),
            ("struct S<'a> { a: &'a X }", "borrows nothing"),
            ("struct S {}", "at least one field"),
            ("struct S { #[batch(skip)] a: X }", "at least one field"),
            ("struct S { #[batch(host)] a: X }", "expected `skip`"),
        ] {
            let refused = expanded(source).unwrap_err();
            assert!(refused.contains(why), "{source}: {refused}");
        }
    }
}
