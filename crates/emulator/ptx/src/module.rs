//! A parsed PTX module: its variables, functions and kernels. Bodies of functions are left as spans of the text.

use std::collections::HashSet;

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// No space in the opcode: the address says which one it lies in.
    Generic,
    /// `.global`: memory of the device.
    Global,
    /// `.const`: constant memory.
    Const,
    /// `.shared`: memory of a block.
    Shared,
    /// `.local`: memory of a thread.
    Local,
    /// `.param`: parameters of a kernel or a function.
    Param,
}

/// The visibility of a symbol to other modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Linkage {
    /// No directive: the symbol belongs to its own module.
    #[default]
    Own,
    /// `.visible`: other modules can refer to it.
    Visible,
    /// `.weak` or `.common`: other modules can refer to it and define it again.
    Weak,
}

/// One element of an initialiser.
#[derive(Clone, Debug)]
pub enum Init {
    /// Bits of the element's type.
    Bits(u64),
    /// The address of a variable or a function, plus an offset.
    Address {
        /// The variable or the function.
        name: String,
        /// Bytes added to its address.
        offset: i64,
    },
    /// One of the bytes 1 to 7 of an address that an array of bytes holds; the element for byte 0 is the `Address`.
    Rest,
}

/// A variable with a state space, in a module or in a function.
#[derive(Clone, Debug)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// The state space that it lies in.
    pub space: Space,
    /// The alignment in bytes.
    pub align: u32,
    /// The size of one element in bytes.
    pub element: u32,
    /// The size in bytes; 0 for an array without bounds.
    pub size: u64,
    /// The initial elements; those beyond are zero.
    pub init: Vec<Init>,
    /// True for `.extern`: a declaration without a definition.
    pub external: bool,
    /// The visibility to other modules.
    pub linkage: Linkage,
    /// True for `.attribute(.managed)`: host and device share it.
    pub managed: bool,
}

/// A parameter or a return value of a function.
#[derive(Clone, Debug)]
pub struct ParamDecl {
    /// The name.
    pub name: String,
    /// The size in bytes.
    pub size: u32,
    /// The alignment in bytes.
    pub align: u32,
}

/// A kernel or a device function.
#[derive(Clone, Debug)]
pub struct Function {
    /// The name.
    pub name: String,
    /// True for a kernel (`.entry`), false for a device function (`.func`).
    pub entry: bool,
    /// The return values.
    pub returns: Vec<ParamDecl>,
    /// The parameters.
    pub params: Vec<ParamDecl>,
    /// The body's first byte, the byte behind its last one, and the line that it begins on; `None` for a declaration.
    pub body: Option<(usize, usize, u32)>,
    /// `.maxntid` or `.reqntid`, as a number of threads.
    pub max_threads: Option<u32>,
    /// The visibility to other modules.
    pub linkage: Linkage,
}

/// A PTX module.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// The version of the PTX ISA, major and minor (`.version`).
    pub version: (u32, u32),
    /// Ten times the compute capability (`.target`): 80 for `sm_80`.
    pub target: u32,
    /// The source files by their numbers in `.loc` (`.file`).
    pub files: Vec<(u32, String)>,
    /// Variables at the top level, in their order.
    pub variables: Vec<Variable>,
    /// Kernels and device functions, in their order.
    pub functions: Vec<Function>,
    /// Second names of functions (`.alias`): the new name and the name that it stands for.
    pub aliases: Vec<(String, String)>,
}

impl Module {
    /// Drops `.extern` declarations of variables that the module also defines, and every definition of a `.weak` variable but
    /// the first.
    pub(crate) fn resolve(&mut self) {
        let defined: HashSet<String> = self
            .variables
            .iter()
            .filter(|v| !v.external)
            .map(|v| v.name.clone())
            .collect();
        let mut seen = HashSet::new();
        self.variables.retain(|v| {
            let wanted = !v.external || !defined.contains(&v.name);
            wanted && (v.linkage != Linkage::Weak || seen.insert(v.name.clone()))
        });
    }

    /// The index in `functions` of the function with this name or alias, if it has a body.
    pub fn function(&self, name: &str) -> Option<usize> {
        let alias = self.aliases.iter().find(|(alias, _)| alias == name);
        let name = alias.map_or(name, |(_, of)| of);
        self.functions.iter().position(|f| f.name == name && f.body.is_some())
    }
}

/// The size in bytes of a fundamental type such as `.b32`; `.pred` has none.
pub fn type_size(ty: &str) -> Option<u32> {
    Some(match ty.trim_start_matches('.') {
        "b8" | "u8" | "s8" | "e4m3" | "e5m2" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "tf32" => 4,
        "b64" | "u64" | "s64" | "f64" | "f32x2" => 8,
        "b128" => 16,
        _ => return None,
    })
}

/// The state space that a directive names.
pub(crate) fn space_of(word: &str) -> Option<Space> {
    Some(match word {
        ".global" => Space::Global,
        ".const" => Space::Const,
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        ".param" => Space::Param,
        _ => return None,
    })
}
