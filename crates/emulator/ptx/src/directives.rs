//! The parser of module-level directives: `.version`, `.target`, `.global`, `.entry`, `.func` and their like.

use crate::lexer::{Lexer, Token, WARP_SIZE, parse_float_bits, parse_integer};
use crate::module::{Function, Init, Linkage, Module, ParamDecl, Space, Variable, space_of, type_size};
use crate::syntax::{Result, error};

/// Reads a whole module.
///
/// # Errors
/// [`crate::SyntaxError`] if the text is no PTX.
pub fn parse_module(text: &str) -> Result<Module> {
    let mut lexer = Lexer::new(text, 0, text.len(), 1);
    let mut module = Module::default();
    let (mut external, mut linkage) = (false, Linkage::Own);
    loop {
        let word = match lexer.next()? {
            Token::End => {
                module.resolve();
                return Ok(module);
            }
            Token::Word(word) => word,
            Token::Mark(b';') => continue,
            found => return error(lexer.line(), format!("expected a directive, found {found:?}")),
        };
        match word {
            ".version" => module.version = parse_version(&mut lexer)?,
            ".address_size" => skip_line(&mut lexer)?,
            ".alias" => {
                let alias = lexer.word()?.to_string();
                lexer.expect(b',')?;
                module.aliases.push((alias, lexer.word()?.to_string()));
                lexer.expect(b';')?;
            }
            ".target" => loop {
                let name = lexer.word()?;
                if let Some(name) = name.strip_prefix("sm_") {
                    module.target = name
                        .trim_end_matches(|c: char| c.is_ascii_lowercase())
                        .parse()
                        .unwrap_or(0);
                }
                if !lexer.take(b',')? {
                    break;
                }
            },
            ".extern" => external = true,
            ".visible" => linkage = Linkage::Visible,
            ".weak" | ".common" => linkage = Linkage::Weak,
            ".file" => {
                let number = lexer.integer()? as u32;
                if let Token::Text(name) = lexer.next()? {
                    module.files.push((number, name.to_string()));
                }
                while lexer.take(b',')? {
                    lexer.integer()?;
                }
            }
            ".section" => {
                lexer.word()?;
                lexer.expect(b'{')?;
                lexer.skip_block()?;
            }
            ".pragma" => skip_to_semicolon(&mut lexer)?,
            ".entry" | ".func" => {
                let mut function = parse_function(&mut lexer, word == ".entry")?;
                // Kernels are visible to the program that loads the module.
                function.linkage = if function.entry { Linkage::Visible } else { linkage };
                module.functions.push(function);
                (external, linkage) = (false, Linkage::Own);
            }
            ".global" | ".const" | ".shared" => {
                let space = space_of(word).unwrap_or(Space::Global);
                let first = module.variables.len();
                parse_variables(&mut lexer, space, external, &mut module.variables)?;
                module.variables[first..].iter_mut().for_each(|v| v.linkage = linkage);
                (external, linkage) = (false, Linkage::Own);
            }
            _ => return error(lexer.line(), format!("unknown directive `{word}`")),
        }
    }
}

/// `8.1` as 8 and 1.
fn parse_version(lexer: &mut Lexer<'_>) -> Result<(u32, u32)> {
    let found = lexer.next()?;
    if let Token::Number(text) = &found
        && let Some((major, minor)) = text.split_once('.')
        && let (Ok(major), Ok(minor)) = (major.parse(), minor.parse())
    {
        return Ok((major, minor));
    }
    error(lexer.line(), format!("expected a version, found {found:?}"))
}

/// An alignment: a power of two.
fn parse_align(lexer: &mut Lexer<'_>) -> Result<u32> {
    let align = lexer.integer()?;
    match u32::try_from(align) {
        Ok(align) if align.is_power_of_two() => Ok(align),
        _ => error(
            lexer.line(),
            format!("an alignment of {align}, which is no power of two"),
        ),
    }
}

fn skip_line(lexer: &mut Lexer<'_>) -> Result<()> {
    let line = lexer.line();
    loop {
        let mut ahead = lexer.clone();
        if ahead.next()? == Token::End || ahead.line() != line {
            return Ok(());
        }
        lexer.next()?;
    }
}

fn skip_to_semicolon(lexer: &mut Lexer<'_>) -> Result<()> {
    while !matches!(lexer.next()?, Token::Mark(b';') | Token::End) {}
    Ok(())
}

/// Reads the rest of a variable directive, from after its space to its semicolon.
pub(crate) fn parse_variables(
    lexer: &mut Lexer<'_>,
    space: Space,
    external: bool,
    into: &mut Vec<Variable>,
) -> Result<()> {
    let (mut align, mut element, mut vector, mut managed) = (0, 0, 1, false);
    while let Token::Word(word) = lexer.peek()? {
        if !word.starts_with('.') {
            break;
        }
        lexer.next()?;
        match word {
            ".align" => align = parse_align(lexer)?,
            ".v2" => vector = 2,
            ".v4" => vector = 4,
            ".attribute" => {
                lexer.expect(b'(')?;
                while !lexer.take(b')')? {
                    managed |= lexer.next()? == Token::Word(".managed");
                }
            }
            ".ptr" => {}
            _ => match type_size(word) {
                Some(size) => element = size,
                None => return error(lexer.line(), format!("unknown type `{word}`")),
            },
        }
    }
    loop {
        let (name, count, bounded) = parse_name_and_bounds(lexer)?;
        let mut init = Vec::new();
        if lexer.take(b'=')? {
            parse_init(lexer, element, &mut init)?;
        }
        let count = if bounded { count } else { init.len() as u64 };
        let size = count * u64::from(element * vector);
        let align = if align == 0 { element * vector } else { align };
        into.push(Variable {
            name,
            space,
            align: align.max(1),
            element,
            size,
            init,
            external,
            linkage: Linkage::Own,
            managed,
        });
        if !lexer.take(b',')? {
            return lexer.expect(b';');
        }
    }
}

fn parse_name_and_bounds(lexer: &mut Lexer<'_>) -> Result<(String, u64, bool)> {
    let name = lexer.word()?.to_string();
    let (mut count, mut bounded) = (1u64, true);
    while lexer.take(b'[')? {
        if lexer.take(b']')? {
            bounded = false;
            continue;
        }
        let bound = lexer.integer()?;
        count = match u64::try_from(bound).ok().and_then(|bound| count.checked_mul(bound)) {
            Some(count) if count < 1 << 40 => count,
            _ => return error(lexer.line(), format!("`{name}` has {bound} elements")),
        };
        lexer.expect(b']')?;
    }
    Ok((name, count, bounded))
}

fn parse_init(lexer: &mut Lexer<'_>, element: u32, into: &mut Vec<Init>) -> Result<()> {
    if lexer.take(b'{')? {
        loop {
            if lexer.take(b'}')? {
                return Ok(());
            }
            parse_init(lexer, element, into)?;
            lexer.take(b',')?;
        }
    }
    let negative = lexer.take(b'-')?;
    let value = match lexer.next()? {
        Token::Number(mask) if lexer.peek()? == Token::Mark(b'(') => {
            lexer.next()?;
            let byte = parse_integer(mask).filter(|_| element == 1);
            let byte = byte.and_then(|mask| (0..8).find(|byte| mask == 0xff << (8 * byte)));
            let address = match lexer.next()? {
                Token::Word(word) => parse_address(lexer, word)?,
                found => return error(lexer.line(), format!("expected a name, found {found:?}")),
            };
            lexer.expect(b')')?;
            match byte {
                // Addresses among bytes are written byte by byte, the lowest first.
                Some(0) => address,
                Some(_) => Init::Rest,
                None => return error(lexer.line(), format!("the part `{mask}` of an address")),
            }
        }
        Token::Number(text) => match (parse_integer(text), parse_float_bits(text)) {
            (Some(value), _) => Init::Bits(if negative { -value } else { value } as u64),
            (None, Some(value)) => {
                let value = if negative { -value } else { value };
                Init::Bits(if element == 4 {
                    u64::from((value as f32).to_bits())
                } else {
                    value.to_bits()
                })
            }
            (None, None) => return error(lexer.line(), format!("`{text}` is not a number")),
        },
        Token::Word(WARP_SIZE) => Init::Bits(32),
        Token::Word(word) => parse_address(lexer, word)?,
        found => return error(lexer.line(), format!("expected a value, found {found:?}")),
    };
    into.push(value);
    Ok(())
}

/// Reads `name`, `generic(name)` and an offset after either, from after its first word.
fn parse_address(lexer: &mut Lexer<'_>, word: &str) -> Result<Init> {
    let name = if word == "generic" {
        lexer.expect(b'(')?;
        let name = lexer.word()?;
        lexer.expect(b')')?;
        name
    } else {
        word
    };
    let offset = match lexer.peek()? {
        Token::Mark(b'+') => {
            lexer.next()?;
            lexer.integer()? as i64
        }
        Token::Mark(b'-') => lexer.integer()? as i64,
        _ => 0,
    };
    Ok(Init::Address {
        name: name.to_string(),
        offset,
    })
}

pub(crate) fn parse_params(lexer: &mut Lexer<'_>) -> Result<Vec<ParamDecl>> {
    let mut params = Vec::new();
    loop {
        if lexer.take(b')')? {
            return Ok(params);
        }
        let (mut size, mut align, mut explicit) = (0, 0, false);
        while let Token::Word(word) = lexer.peek()? {
            if !word.starts_with('.') {
                break;
            }
            lexer.next()?;
            match word {
                ".align" => {
                    // A pointer's `.align` follows `.ptr` and gives the alignment of the memory that it points to.
                    let value = parse_align(lexer)?;
                    if !explicit {
                        align = value;
                    }
                }
                ".ptr" => explicit = true,
                ".param" | ".reg" | ".global" | ".shared" | ".const" | ".local" => {}
                _ => match type_size(word) {
                    Some(bytes) => size = bytes,
                    None => return error(lexer.line(), format!("unknown parameter type `{word}`")),
                },
            }
        }
        let (name, count, _) = parse_name_and_bounds(lexer)?;
        let align = if align == 0 { size } else { align };
        let Some(bytes) = u32::try_from(count).ok().and_then(|count| size.checked_mul(count)) else {
            return error(lexer.line(), format!("`{name}` has {count} elements of {size} bytes"));
        };
        params.push(ParamDecl {
            name,
            size: bytes,
            align: align.max(1),
        });
        lexer.take(b',')?;
    }
}

fn parse_function(lexer: &mut Lexer<'_>, entry: bool) -> Result<Function> {
    let returns = if lexer.take(b'(')? {
        parse_params(lexer)?
    } else {
        Vec::new()
    };
    let name = lexer.word()?.to_string();
    let params = if lexer.take(b'(')? {
        parse_params(lexer)?
    } else {
        Vec::new()
    };
    let mut function = Function {
        name,
        entry,
        returns,
        params,
        body: None,
        max_threads: None,
        linkage: Linkage::Own,
    };
    loop {
        match lexer.next()? {
            Token::Mark(b';') => return Ok(function),
            Token::Mark(b'{') => {
                function.body = Some(lexer.skip_block()?);
                return Ok(function);
            }
            Token::Word(".maxntid" | ".reqntid") => {
                let mut threads = lexer.integer()? as u32;
                while lexer.take(b',')? {
                    threads = threads.saturating_mul(lexer.integer()? as u32);
                }
                function.max_threads = Some(threads);
            }
            Token::Word(".pragma") => skip_to_semicolon(lexer)?,
            Token::Word(".noreturn" | ".explicitcluster") => {}
            Token::Word(
                ".minnctapersm"
                | ".maxnreg"
                | ".maxnctapersm"
                | ".maxclusterrank"
                | ".reqnctapercluster"
                | ".abi_preserve"
                | ".abi_preserve_control",
            ) => {
                lexer.integer()?;
                while lexer.take(b',')? {
                    lexer.integer()?;
                }
            }
            found => {
                return error(
                    lexer.line(),
                    format!("expected the body of `{}`, found {found:?}", function.name),
                );
            }
        }
    }
}
