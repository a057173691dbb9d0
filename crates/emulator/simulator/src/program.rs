//! A loaded program and its kernels.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use kiln_ptx::{cubin, fatbin, parse_module};

use crate::count::Plan;
use crate::decode::{self, Source, Variable, layout, variables};
use crate::limits::{MOST_CONSTANTS, most_params};
use crate::machine::Code;
use crate::{LoadError, Param};

/// A program, which `cuModuleLoadData` makes of PTX.
#[derive(Debug)]
pub struct Program {
    source: Arc<Source>,
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
    /// The code of which nobody is told its accesses, and the code of which somebody is.
    code: [OnceLock<Result<Code, LoadError>>; 2],
    /// The loops of the second.
    plan: OnceLock<Arc<Plan>>,
}

impl Program {
    /// Reads the PTX that suits a device of compute capability `sm` (80 for 8.0) best out of a fat binary or a text, and the
    /// kernels' resources from machine code beside it.
    ///
    /// # Errors
    /// The reason in words.
    pub fn of_image(image: &[u8], sm: u32) -> Result<Program, String> {
        if image.starts_with(b"\x7fELF") {
            cubin::resources(image);
        }
        if let Some(code) = fatbin::cubin(image, sm) {
            cubin::resources(&code);
        }
        let text = fatbin::ptx(image, sm).map_err(|e| e.to_string())?;
        Program::load(&text).map_err(|e| e.to_string())
    }

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
                plan: OnceLock::new(),
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
            source,
            kernels,
            names,
            variables,
        })
    }

    /// The PTX that the program was read from.
    pub fn ptx(&self) -> &str {
        &self.source.text
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

    pub(crate) fn code(&self, observed: bool) -> Result<&Code, LoadError> {
        let code = self.code[usize::from(observed)].get_or_init(|| decode::decode(&self.source, self.index, observed));
        code.as_ref().map_err(LoadError::clone)
    }

    /// The loops of its code, which is that of an observed launch.
    pub(crate) fn plan(&self, code: &Code) -> &Arc<Plan> {
        self.plan.get_or_init(|| Arc::new(Plan::new(code, &self.source.text)))
    }
}
