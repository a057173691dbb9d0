//! The emulated driver and a few kernels. Options of the emulator belong to a process, so each choice has a test file.

// Every test file uses a part of this module.
#![allow(dead_code, unreachable_pub)]

use kiln_device::{Arg, Block, Context, Geometry, Module, Pool, Priority, Result, Stream};
use std::sync::OnceLock;

/// Kernels on 32-bit integers.
pub const KERNELS: &str = r#"
.version 8.0
.target sm_80
.address_size 64

.global .align 4 .u32 factor = 7;
.extern .shared .align 16 .b8 pool[];

// p[i] += by, for i < n
.visible .entry add(.param .u32 add_n, .param .u32 add_by, .param .u64 add_p)
{
    .reg .pred %p<2>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<5>;
    ld.param.u32 %r1, [add_n];
    ld.param.u32 %r2, [add_by];
    ld.param.u64 %rd1, [add_p];
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %tid.x;
    mad.lo.s32 %r6, %r3, %r4, %r5;
    setp.ge.u32 %p1, %r6, %r1;
    @%p1 bra $L_end;
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r6, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r7, [%rd4];
    add.s32 %r8, %r7, %r2;
    st.global.u32 [%rd4], %r8;
$L_end:
    ret;
}

// Thread i of one block puts i into the word `last - i` of dynamic shared memory, and p[i] is what lies in word i.
.visible .entry turn(.param .u32 turn_last, .param .u64 turn_p)
{
    .reg .b32 %r<9>;
    .reg .b64 %rd<5>;
    ld.param.u32 %r1, [turn_last];
    ld.param.u64 %rd1, [turn_p];
    mov.u32 %r2, %tid.x;
    sub.s32 %r3, %r1, %r2;
    shl.b32 %r4, %r3, 2;
    mov.u32 %r5, pool;
    add.s32 %r6, %r5, %r4;
    st.shared.u32 [%r6], %r2;
    bar.sync 0;
    ld.shared.u32 %r7, [%r6];
    cvta.to.global.u64 %rd2, %rd1;
    mul.wide.u32 %rd3, %r2, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r7;
    ret;
}
"#;

/// Sets the emulator's options, unless they are set already, and makes it the driver. Every test of a process begins
/// with the same options.
pub fn start(options: &[(&str, &str)]) {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        for (name, value) in options.iter().filter(|(name, _)| std::env::var_os(name).is_none()) {
            // SAFETY: the first use of the environment by a test of this process, and the others wait for it here.
            unsafe { std::env::set_var(name, value) };
        }
        kiln_device::emulator::use_beside().unwrap();
    });
}

/// A context, a stream, a pool and the kernels, which most tests need.
pub struct Bench {
    pub context: Context,
    pub stream: Stream,
    pub pool: Pool,
    pub module: Module,
}

impl Bench {
    pub fn new() -> Self {
        let context = Context::new(0).unwrap();
        Self {
            stream: Stream::new(&context, Priority::Normal).unwrap(),
            pool: Pool::new(&context),
            module: Module::load(&context, KERNELS.as_bytes()).unwrap(),
            context,
        }
    }

    /// A block of these numbers.
    pub fn block(&self, numbers: &[u32]) -> Block {
        let mut block = self.pool.alloc(size_of_val(numbers)).unwrap();
        self.stream
            .upload(bytemuck::cast_slice(numbers), &mut block, 0)
            .unwrap();
        block
    }

    pub fn numbers(&self, block: &Block) -> Vec<u32> {
        let mut numbers = vec![0; block.len() / 4];
        self.stream
            .download(block, 0, bytemuck::cast_slice_mut(&mut numbers))
            .unwrap();
        numbers
    }

    /// Adds `by` to every number, on `stream`.
    pub fn add_on(&self, stream: &Stream, block: &mut Block, by: u32) -> Result<()> {
        let n = (block.len() / 4) as u32;
        let add = self.module.function("add")?;
        let args = [Arg::value(&n), Arg::value(&by), Arg::block(block)];
        // SAFETY: the kernel takes a count, a number, and a block of as many words as the count says.
        unsafe { stream.launch(&add, Geometry::linear(n, 128), &args) }
    }

    pub fn add(&self, block: &mut Block, by: u32) -> Result<()> {
        self.add_on(&self.stream, block, by)
    }
}
