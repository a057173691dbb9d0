//! Running one kernel of a PTX text.

use kiln_simulator::memory::{Kind, Memory, Range};
use kiln_simulator::{Fault, Kernel, Launch, LoadError, Options, Program, System, run};

/// A small device, without the checker.
pub(crate) const OPTIONS: Options = Options {
    check: false,
    sm: 80,
    multiprocessors: 4,
    resident: 64,
    watchdog: None,
};

/// Device memory with a program's variables in it.
pub(crate) struct Device {
    pub(crate) memory: Memory,
}

impl Device {
    pub(crate) fn new() -> Device {
        Device {
            memory: Memory::new(1 << 24, false),
        }
    }

    /// Allocates memory with these values.
    pub(crate) fn upload<T: Copy>(&self, values: &[T]) -> Range {
        let range = self
            .memory
            .allocate(0, size_of_val(values).max(1) as u64, Kind::Device)
            .expect("memory");
        // SAFETY: the allocation has this many bytes, and nothing else uses it.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), range.base as *mut T, values.len()) };
        range
    }

    /// The values in a range.
    pub(crate) fn read<T: Copy>(&self, range: &Range) -> Vec<T> {
        let count = range.len as usize / size_of::<T>();
        // SAFETY: the range is live, 512-byte aligned, and no kernel runs.
        (0..count)
            .map(|k| unsafe { (range.base as *const T).add(k).read() })
            .collect()
    }

    /// Launches the kernel `k` of a text.
    pub(crate) fn launch(&self, ptx: &str, shape: Shape, params: &[u64], check: bool) -> Result<(), Fault> {
        let program = Program::load(ptx).unwrap_or_else(|e| panic!("{e}\n{ptx}"));
        let kernel = program.kernel("k").expect("a kernel named k");
        let variables = self.variables(&program);
        let bytes: Vec<u8> = params.iter().flat_map(|p| p.to_le_bytes()).collect();
        let launch = Launch {
            grid: [shape.blocks, 1, 1],
            block: [shape.threads, 1, 1],
            dynamic_shared: shape.dynamic,
            params: &bytes,
            variables: &variables,
            workspace: 0,
            system: &System::new(1 << 20),
        };
        let options = Options { check, ..OPTIONS };
        run(&kernel, &launch, &self.memory.snapshot(), &options).map_err(first)
    }

    /// Launches a kernel with parameters of its own layout.
    pub(crate) fn launch_bytes(&self, kernel: &Kernel, shape: Shape, params: &[u8]) -> Result<(), Fault> {
        let (grid, block) = ([shape.blocks, 1, 1], [shape.threads, 1, 1]);
        let launch = Launch {
            grid,
            block,
            dynamic_shared: shape.dynamic,
            params,
            variables: &[],
            workspace: 0,
            system: &System::new(1 << 20),
        };
        run(kernel, &launch, &self.memory.snapshot(), &OPTIONS).map_err(first)
    }

    fn variables(&self, program: &Program) -> Vec<u64> {
        let bytes = |v: &kiln_simulator::Variable| {
            let mut bytes = v.init.clone();
            bytes.resize(v.size as usize, 0);
            self.upload(&bytes).base
        };
        let bases: Vec<u64> = program.variables().iter().map(bytes).collect();
        for (v, base) in program.variables().iter().zip(&bases) {
            for r in &v.relocations {
                let value = bases[r.variable].wrapping_add_signed(r.addend);
                // SAFETY: relocations are 8 bytes inside their variable, which was uploaded above.
                unsafe { ((base + r.offset) as *mut u64).write(value) };
            }
        }
        bases
    }
}

/// The fault of a launch, or the first finding.
pub(crate) fn first(faults: Vec<Fault>) -> Fault {
    faults.into_iter().next().expect("a launch that fails has a fault")
}

/// Blocks, threads of a block and bytes of dynamic shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    pub(crate) dynamic: u32,
}

pub(crate) fn shape(blocks: u32, threads: u32) -> Shape {
    Shape {
        blocks,
        threads,
        dynamic: 0,
    }
}

/// A module with the kernel `k`, whose parameters are `count` 64-bit values `p0`, `p1` …; `%r0` is the thread's place
/// in the grid, and `%rd0` … hold the parameters.
pub(crate) fn module(count: usize, declarations: &str, body: &str) -> String {
    let params: Vec<String> = (0..count).map(|n| format!(".param .u64 p{n}")).collect();
    let loads: String = (0..count).map(|n| format!("ld.param.u64 %rd{n}, [p{n}];\n")).collect();
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n{declarations}\n.visible .entry k({})\n{{\n\
         .reg .pred %p<8>;\n.reg .b16 %h<16>;\n.reg .b32 %r<64>;\n.reg .f32 %f<32>;\n.reg .b64 %rd<64>;\n\
         .reg .f64 %fd<16>;\n{loads}\
         mov.u32 %r0, %ctaid.x;\nmov.u32 %r1, %ntid.x;\nmov.u32 %r2, %tid.x;\nmad.lo.s32 %r0, %r0, %r1, %r2;\n\
         {body}\nret;\n}}\n",
        params.join(", ")
    )
}

/// Runs a kernel whose only parameter is an array of `out` zeros, and returns the array.
pub(crate) fn outcome<T: Copy + Default>(shape: Shape, out: usize, declarations: &str, body: &str) -> Vec<T> {
    let device = Device::new();
    let range = device.upload(&vec![T::default(); out]);
    let ptx = module(1, declarations, body);
    if let Err(fault) = device.launch(&ptx, shape, &[range.base], false) {
        panic!("{fault}\n{ptx}");
    }
    // A kernel that is right without the checker is right with it.
    let again = device.upload(&vec![T::default(); out]);
    if let Err(fault) = device.launch(&ptx, shape, &[again.base], true) {
        panic!("{fault}\n{ptx}");
    }
    device.read(&range)
}

/// The fault of a kernel whose only parameter is an array of `out` zero bytes.
pub(crate) fn fault(shape: Shape, out: usize, declarations: &str, body: &str, check: bool) -> Result<(), Fault> {
    let device = Device::new();
    let range = device.upload(&vec![0u8; out]);
    device.launch(&module(1, declarations, body), shape, &[range.base], check)
}

/// The reason why a kernel with this body cannot be decoded.
pub(crate) fn refusal(body: &str) -> LoadError {
    let ptx = module(1, "", body);
    let program = match Program::load(&ptx) {
        Ok(program) => program,
        Err(e) => return e,
    };
    program
        .kernel("k")
        .expect("a kernel named k")
        .prepare()
        .expect_err("an instruction that is not there")
}
