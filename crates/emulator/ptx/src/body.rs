//! The statements of a function's body.

use crate::directives::{parse_params, parse_variables};
use crate::lexer::{Lexer, Token, WARP_SIZE, parse_float_bits, parse_integer};
use crate::module::{ParamDecl, Variable, space_of};
use crate::syntax::{Result, error};

/// An operand as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand<'a> {
    /// A register, a special register, a label or a variable.
    Name(&'a str),
    /// `!name`.
    Not(&'a str),
    /// An integer.
    Integer(i64),
    /// A floating-point number; f32 literals are widened, which keeps their value.
    Float(f64),
    /// `[base + offset]`; a missing base is an absolute address.
    Address(Option<&'a str>, i64),
    /// `name + offset` outside brackets.
    Sum(&'a str, i64),
    /// `{a, b, …}`.
    Vector(Vec<Operand<'a>>),
    /// `a|b`.
    Pair(Box<Operand<'a>>, Box<Operand<'a>>),
    /// `(a, b, …)` of a call.
    List(Vec<Operand<'a>>),
    /// `[base + offset, {a, b, …}]`: a place in a tensor or a texture.
    Coordinates(Option<&'a str>, i64, Vec<Operand<'a>>),
    /// `_`.
    Sink,
}

/// One instruction as written.
#[derive(Clone, Debug)]
pub struct Instruction<'a> {
    /// The predicate, and true if it is negated.
    pub guard: Option<(&'a str, bool)>,
    /// The whole opcode with its modifiers.
    pub opcode: &'a str,
    /// The operands, in their order.
    pub operands: Vec<Operand<'a>>,
    /// The line of the PTX text.
    pub line: u32,
}

/// A place in the source code, as `.loc` gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Place {
    /// The number of the file in [`crate::Module::files`].
    pub file: u32,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// The functions that an indirect call may reach.
#[derive(Clone, Debug)]
pub enum Callees<'a> {
    /// These functions.
    Named(Vec<&'a str>),
    /// Any function with such returns and parameters.
    Like {
        /// The return values.
        returns: Vec<ParamDecl>,
        /// The parameters.
        params: Vec<ParamDecl>,
    },
}

/// One statement.
#[derive(Clone, Debug)]
pub enum Statement<'a> {
    /// `.reg .type name` or `.reg .type name<count>`.
    Register {
        /// The type, with its dot.
        ty: &'a str,
        /// The name, or the prefix that all names have.
        name: &'a str,
        /// The number of registers: their names are the prefix with the numbers from 0 on.
        count: Option<u32>,
    },
    /// A variable of the function.
    Variable(Variable),
    /// `name:`, a target of branches.
    Label(&'a str),
    /// An instruction.
    Instruction(Instruction<'a>),
    /// `.loc`: the place of the statements that follow, and the place of the call that was inlined.
    Place(Place, Option<Place>),
    /// `{`: a scope of names begins.
    Open,
    /// `}`: the scope ends.
    Close,
    /// `name: .branchtargets a, b, …;`
    Targets {
        /// The name of the list.
        name: &'a str,
        /// The labels in it.
        labels: Vec<&'a str>,
    },
    /// `name: .calltargets f, g, …;` or `name: .callprototype (…) _ (…);`.
    Callees {
        /// The name of the list or the prototype.
        name: &'a str,
        /// The functions that it stands for.
        callees: Callees<'a>,
    },
}

/// Reads the statements in `text[start..end]`, whose first line has the number `line`: [`crate::Function::body`].
///
/// # Errors
/// [`crate::SyntaxError`] if the text is no PTX.
pub fn parse_body(text: &str, (start, end, line): (usize, usize, u32)) -> Result<Vec<Statement<'_>>> {
    let mut lexer = Lexer::new(text, start, end, line);
    let mut statements = Vec::new();
    loop {
        let guard = match lexer.next()? {
            Token::End => return Ok(statements),
            Token::Mark(b';') => continue,
            Token::Mark(b'{') => {
                statements.push(Statement::Open);
                continue;
            }
            Token::Mark(b'}') => {
                statements.push(Statement::Close);
                continue;
            }
            Token::Mark(b'@') => {
                let negated = lexer.take(b'!')?;
                Some((lexer.word()?, negated))
            }
            Token::Word(word) if word.starts_with('.') => {
                parse_directive(&mut lexer, word, &mut statements)?;
                continue;
            }
            Token::Word(word) => {
                if lexer.take(b':')? {
                    parse_label(&mut lexer, word, &mut statements)?;
                } else {
                    let instruction = parse_instruction(&mut lexer, None, word)?;
                    statements.push(Statement::Instruction(instruction));
                }
                continue;
            }
            found => return error(lexer.line(), format!("expected a statement, found {found:?}")),
        };
        let opcode = lexer.word()?;
        let instruction = parse_instruction(&mut lexer, guard, opcode)?;
        statements.push(Statement::Instruction(instruction));
    }
}

fn parse_label<'a>(lexer: &mut Lexer<'a>, name: &'a str, statements: &mut Vec<Statement<'a>>) -> Result<()> {
    match lexer.peek()? {
        Token::Word(".branchtargets") => {
            let labels = parse_names(lexer)?;
            statements.push(Statement::Targets { name, labels });
        }
        Token::Word(".calltargets") => {
            let callees = Callees::Named(parse_names(lexer)?);
            statements.push(Statement::Callees { name, callees });
        }
        Token::Word(".callprototype") => {
            lexer.next()?;
            let mut lists = [Vec::new(), Vec::new()];
            if lexer.take(b'(')? {
                lists[0] = parse_params(lexer)?;
            }
            lexer.word()?;
            if lexer.take(b'(')? {
                lists[1] = parse_params(lexer)?;
            }
            // Directives that may follow concern the compilation of the call.
            while !matches!(lexer.next()?, Token::Mark(b';') | Token::End) {}
            let [returns, params] = lists;
            let callees = Callees::Like { returns, params };
            statements.push(Statement::Callees { name, callees });
        }
        _ => statements.push(Statement::Label(name)),
    }
    Ok(())
}

/// Takes a directive's name, and the list of names after it.
fn parse_names<'a>(lexer: &mut Lexer<'a>) -> Result<Vec<&'a str>> {
    lexer.next()?;
    let mut names = vec![lexer.word()?];
    while lexer.take(b',')? {
        names.push(lexer.word()?);
    }
    lexer.expect(b';')?;
    Ok(names)
}

fn parse_directive<'a>(lexer: &mut Lexer<'a>, word: &'a str, statements: &mut Vec<Statement<'a>>) -> Result<()> {
    match word {
        ".reg" => {
            let mut ty = lexer.word()?;
            if matches!(ty, ".v2" | ".v4") {
                return error(lexer.line(), "a vector register");
            }
            if ty == ".align" {
                lexer.integer()?;
                ty = lexer.word()?;
            }
            loop {
                let name = lexer.word()?;
                let count = if lexer.take(b'<')? {
                    let count = lexer.integer()?;
                    lexer.expect(b'>')?;
                    match u32::try_from(count) {
                        Ok(count) => Some(count),
                        Err(_) => return error(lexer.line(), format!("{count} registers `{name}`")),
                    }
                } else {
                    None
                };
                statements.push(Statement::Register { ty, name, count });
                if !lexer.take(b',')? {
                    break;
                }
            }
            lexer.expect(b';')
        }
        ".loc" => {
            let at = parse_place(lexer)?;
            let mut inlined_at = None;
            while lexer.take(b',')? {
                let what = lexer.word()?;
                if what == "inlined_at" {
                    inlined_at = Some(parse_place(lexer)?);
                } else {
                    lexer.word()?;
                    if lexer.take(b'+')? {
                        lexer.integer()?;
                    }
                }
            }
            statements.push(Statement::Place(at, inlined_at));
            Ok(())
        }
        ".pragma" => {
            while !matches!(lexer.next()?, Token::Mark(b';') | Token::End) {}
            Ok(())
        }
        _ => {
            let Some(space) = space_of(word) else {
                return error(lexer.line(), format!("unknown directive `{word}`"));
            };
            let mut variables = Vec::new();
            parse_variables(lexer, space, false, &mut variables)?;
            statements.extend(variables.into_iter().map(Statement::Variable));
            Ok(())
        }
    }
}

/// File, line and column of a `.loc`.
fn parse_place(lexer: &mut Lexer<'_>) -> Result<Place> {
    let mut number = || lexer.integer().map(|n| n as u32);
    let (file, line, column) = (number()?, number()?, number()?);
    Ok(Place { file, line, column })
}

fn parse_instruction<'a>(
    lexer: &mut Lexer<'a>,
    guard: Option<(&'a str, bool)>,
    opcode: &'a str,
) -> Result<Instruction<'a>> {
    let line = lexer.line();
    let mut operands = Vec::new();
    if !lexer.take(b';')? {
        loop {
            operands.push(parse_operand(lexer)?);
            if lexer.take(b';')? {
                break;
            }
            if !lexer.take(b',')? {
                let found = lexer.peek()?;
                return error(
                    lexer.line(),
                    format!("expected `,` or `;` after an operand of `{opcode}`, found {found:?}"),
                );
            }
        }
    }
    Ok(Instruction {
        guard,
        opcode,
        operands,
        line,
    })
}

fn parse_operand<'a>(lexer: &mut Lexer<'a>) -> Result<Operand<'a>> {
    let operand = parse_single(lexer)?;
    if lexer.take(b'|')? {
        let second = parse_single(lexer)?;
        return Ok(Operand::Pair(Box::new(operand), Box::new(second)));
    }
    Ok(operand)
}

fn parse_offset(lexer: &mut Lexer<'_>) -> Result<i64> {
    let mut offset = 0i64;
    loop {
        // A minus sign is the number's own.
        if !lexer.take(b'+')? && lexer.peek()? != Token::Mark(b'-') {
            return Ok(offset);
        }
        offset = offset.wrapping_add(lexer.integer()? as i64);
    }
}

fn parse_list<'a>(lexer: &mut Lexer<'a>, close: u8) -> Result<Vec<Operand<'a>>> {
    let mut list = Vec::new();
    while !lexer.take(close)? {
        list.push(parse_operand(lexer)?);
        lexer.take(b',')?;
    }
    Ok(list)
}

fn parse_single<'a>(lexer: &mut Lexer<'a>) -> Result<Operand<'a>> {
    match lexer.next()? {
        Token::Word("_") => Ok(Operand::Sink),
        Token::Word(WARP_SIZE) => Ok(Operand::Integer(32)),
        Token::Word(name) => match lexer.peek()? {
            Token::Mark(b'+' | b'-') => Ok(Operand::Sum(name, parse_offset(lexer)?)),
            _ => Ok(Operand::Name(name)),
        },
        Token::Number(text) => number(lexer, text, false),
        Token::Mark(b'-') => match lexer.next()? {
            Token::Number(text) => number(lexer, text, true),
            found => error(lexer.line(), format!("expected a number after `-`, found {found:?}")),
        },
        Token::Mark(b'!') => Ok(Operand::Not(lexer.word()?)),
        Token::Mark(b'{') => Ok(Operand::Vector(parse_list(lexer, b'}')?)),
        Token::Mark(b'(') => Ok(Operand::List(parse_list(lexer, b')')?)),
        Token::Mark(b'[') => {
            let operand = match lexer.next()? {
                Token::Word(name) => Operand::Address(Some(name), parse_offset(lexer)?),
                Token::Number(text) => match parse_integer(text) {
                    Some(value) => Operand::Address(None, (value as i64).wrapping_add(parse_offset(lexer)?)),
                    None => return error(lexer.line(), format!("`{text}` is not an address")),
                },
                found => return error(lexer.line(), format!("expected an address, found {found:?}")),
            };
            if lexer.take(b',')? {
                let list = parse_list(lexer, b']')?;
                let Operand::Address(base, offset) = operand else {
                    return error(lexer.line(), "expected an address before the coordinates");
                };
                let list = match list.as_slice() {
                    [Operand::Vector(inner)] => inner.clone(),
                    _ => list,
                };
                return Ok(Operand::Coordinates(base, offset, list));
            }
            lexer.expect(b']')?;
            Ok(operand)
        }
        found => error(lexer.line(), format!("expected an operand, found {found:?}")),
    }
}

fn number<'a>(lexer: &Lexer<'a>, text: &str, negative: bool) -> Result<Operand<'a>> {
    if let Some(value) = parse_integer(text) {
        return Ok(Operand::Integer(if negative { -value } else { value } as i64));
    }
    match parse_float_bits(text) {
        Some(value) => Ok(Operand::Float(if negative { -value } else { value })),
        None => error(lexer.line(), format!("`{text}` is not a number")),
    }
}
