//! A loaded program: its kernels and its variables.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use super::{decode, layout};
use crate::LoadError;
use crate::exec::Code;
use crate::kernel::{MOST_CONSTANTS, Param, most_params};
use crate::ptx::{Init, Module, Space, parse_module};

/// The text of a program and what it declares.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) text: String,
    pub(crate) module: Module,
}

/// Where an address inside an initialiser goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Bytes from the start of the variable: 8 bytes there are an address.
    pub offset: u64,
    /// The place, among the program's variables, of the one whose address it is.
    pub variable: usize,
    /// What is added to the address.
    pub addend: i64,
}

/// A `.global` or `.const` variable of a program. The driver gives it memory and passes all addresses with each launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// The name, as in the PTX.
    pub name: String,
    /// The size in bytes.
    pub size: u64,
    /// The alignment in bytes.
    pub align: u32,
    /// Whether it is `.const`.
    pub constant: bool,
    /// True for `.managed`: host and device share it.
    pub managed: bool,
    /// The first bytes; the others are zero.
    pub init: Vec<u8>,
    /// Addresses inside `init`.
    pub relocations: Vec<Relocation>,
}

/// A program: what `cuModuleLoadData` makes of PTX.
#[derive(Debug)]
pub struct Program {
    kernels: HashMap<String, Arc<Kernel>>,
    names: Vec<String>,
    variables: Vec<Variable>,
}

/// A kernel. It is decoded when something needs its code.
#[derive(Debug)]
pub struct Kernel {
    name: String,
    params: Vec<Param>,
    param_bytes: u32,
    max_threads: Option<u32>,
    source: Arc<Source>,
    index: usize,
    /// Without and with the checker.
    code: [OnceLock<Result<Code, LoadError>>; 2],
}

impl Program {
    /// Reads PTX. Bodies of kernels are read at their first use.
    pub fn load(ptx: &str) -> Result<Program, LoadError> {
        let module = parse_module(ptx).map_err(|e| LoadError::Syntax {
            line: e.line,
            message: e.message,
        })?;
        let source = Arc::new(Source {
            text: ptx.to_string(),
            module,
        });
        let variables = variables(&source.module)?;
        let constants = variables.iter().filter(|v| v.constant).fold(0u64, |end, v| {
            end.next_multiple_of(u64::from(v.align.max(1))).saturating_add(v.size)
        });
        if constants > MOST_CONSTANTS {
            return Err(LoadError::Limit {
                name: "the module".into(),
                what: "bytes of constants",
                found: constants,
                most: MOST_CONSTANTS,
            });
        }
        let (mut kernels, mut names) = (HashMap::new(), Vec::new());
        for (index, function) in source.module.functions.iter().enumerate() {
            if !function.entry || function.body.is_none() {
                continue;
            }
            let (offsets, param_bytes) = layout(function.params.iter(), 0);
            let most = most_params(source.module.version, source.module.target);
            if u64::from(param_bytes) > most {
                return Err(LoadError::Limit {
                    name: function.name.clone(),
                    what: "bytes of parameters",
                    found: function.params.iter().map(|p| u64::from(p.size)).sum(),
                    most,
                });
            }
            let params = function.params.iter().zip(offsets);
            let params = params
                .map(|(p, offset)| Param {
                    offset,
                    size: p.size,
                    align: p.align,
                })
                .collect();
            let kernel = Kernel {
                name: function.name.clone(),
                params,
                param_bytes,
                max_threads: function.max_threads,
                source: Arc::clone(&source),
                index,
                code: Default::default(),
            };
            names.push(function.name.clone());
            if kernels.insert(function.name.clone(), Arc::new(kernel)).is_some() {
                return Err(LoadError::Syntax {
                    line: function.body.map_or(0, |(.., line)| line),
                    message: format!("kernel {} is there twice", function.name),
                });
            }
        }
        Ok(Program {
            kernels,
            names,
            variables,
        })
    }

    /// A kernel by name.
    pub fn kernel(&self, name: &str) -> Option<Arc<Kernel>> {
        self.kernels.get(name).cloned()
    }

    /// The kernels' names, in the order of the PTX.
    pub fn kernels(&self) -> &[String] {
        &self.names
    }

    /// The variables, in the order that [`crate::Launch::variables`] has.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }
}

impl Kernel {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Bytes of all parameters.
    pub fn param_bytes(&self) -> u32 {
        self.param_bytes
    }

    /// The threads of a block that `__launch_bounds__` allows, when it says.
    pub fn max_threads(&self) -> Option<u32> {
        self.max_threads
    }

    /// Bytes of static shared memory. Errors as [`Kernel::prepare`].
    pub fn static_shared(&self) -> Result<u32, LoadError> {
        Ok(self.code(false)?.static_shared)
    }

    /// Bytes of registers that one thread has in the emulator, in units of 4. Errors as [`Kernel::prepare`].
    pub fn registers(&self) -> Result<u32, LoadError> {
        Ok(self.code(false)?.functions[0].registers / 128)
    }

    /// Bytes of local memory of one thread, without those of the functions it calls. Errors as [`Kernel::prepare`].
    pub fn local(&self) -> Result<u32, LoadError> {
        Ok(self.code(false)?.functions[0].local)
    }

    /// True if the kernel calls `malloc` or `free`.
    pub fn allocates(&self) -> bool {
        self.code(false).is_ok_and(|code| code.heap)
    }

    /// Decodes the kernel, so that an instruction that the emulator lacks shows before a launch.
    pub fn prepare(&self) -> Result<(), LoadError> {
        self.code(false).map(|_| ())
    }

    pub(crate) fn code(&self, check: bool) -> Result<&Code, LoadError> {
        let code = self.code[usize::from(check)].get_or_init(|| decode(&self.source, self.index, check));
        code.as_ref().map_err(LoadError::clone)
    }
}

fn variables(module: &Module) -> Result<Vec<Variable>, LoadError> {
    let of = |v: &crate::ptx::Variable| {
        let (mut init, mut relocations) = (Vec::new(), Vec::new());
        for element in &v.init {
            let offset = init.len() as u64;
            let mut width = (v.element as usize).min(8);
            let bits = match element {
                Init::Bits(bits) => *bits,
                Init::Rest => continue,
                Init::Address { name, offset: addend } => {
                    width = 8;
                    if let Some(variable) = place_of(module, name) {
                        relocations.push(Relocation {
                            offset,
                            variable,
                            addend: *addend,
                        });
                        0
                    } else if let Some(function) = module.function(name) {
                        function_address(function)
                    } else {
                        return Err(LoadError::Undeclared {
                            kernel: v.name.clone(),
                            name: name.clone(),
                            line: 0,
                        });
                    }
                }
            };
            init.extend_from_slice(&bits.to_le_bytes()[..width]);
        }
        init.truncate(v.size as usize);
        let constant = v.space == Space::Const;
        Ok(Variable {
            name: v.name.clone(),
            size: v.size,
            align: v.align,
            constant,
            managed: v.managed,
            init,
            relocations,
        })
    };
    in_memory(module).map(of).collect()
}

/// The variables that need memory of the device.
fn in_memory(module: &Module) -> impl Iterator<Item = &crate::ptx::Variable> {
    module
        .variables
        .iter()
        .filter(|v| matches!(v.space, Space::Const | Space::Global))
}

/// The address of the function with this place in the module. Nothing else has such an address.
pub(crate) fn function_address(place: usize) -> u64 {
    0x0f << 56 | (place as u64 + 1) << 4
}

/// The place of a variable among those of [`Program::variables`].
pub(crate) fn place_of(module: &Module, name: &str) -> Option<usize> {
    in_memory(module).position(|v| v.name == name)
}
