//! Launches of kernels.

use crate::capture;
use crate::codes;
use crate::error::{Error, Result};
use crate::ffi;
use crate::geometry::Geometry;
use crate::launch_log::{self, Logged};
use crate::module::Function;
use crate::pool::Block;
use crate::stream::Stream;
use bytemuck::NoUninit;
use std::ffi::c_void;
use std::ptr;

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Arg<'a>(Kind<'a>);

#[derive(Clone, Copy, Debug)]
enum Kind<'a> {
    Value(&'a [u8]),
    Pointer(u64),
    Block(u64, &'a Block),
}

impl<'a> Arg<'a> {
    /// A value: its bytes are copied when the kernel is launched.
    pub fn value<T: NoUninit>(value: &'a T) -> Self {
        Self::bytes(bytemuck::bytes_of(value))
    }

    /// A value by its bytes, which are copied when the kernel is launched.
    pub fn bytes(value: &'a [u8]) -> Self {
        Self(Kind::Value(value))
    }

    /// The address of a block, which a graph keeps if the launch is captured.
    pub fn block(block: &'a Block) -> Self {
        Self(Kind::Block(block.ptr(), block))
    }

    /// An address on the device; zero is the null pointer. For a block, [`block`](Self::block) is better: memory at a bare
    /// address has to be kept alive by the caller.
    pub fn ptr(address: u64) -> Self {
        Self(Kind::Pointer(address))
    }

    /// The bytes that the argument has.
    pub fn size(&self) -> usize {
        match self.0 {
            Kind::Value(bytes) => bytes.len(),
            Kind::Pointer(_) | Kind::Block(..) => size_of::<u64>(),
        }
    }

    fn of_block(&self) -> Option<&'a Block> {
        match self.0 {
            Kind::Block(_, block) => Some(block),
            Kind::Value(_) | Kind::Pointer(_) => None,
        }
    }

    fn logged(&self) -> Logged<'a> {
        match self.0 {
            Kind::Value(bytes) => Logged::Value(bytes),
            Kind::Block(_, block) => Logged::Block(block.len()),
            Kind::Pointer(_) => Logged::Pointer,
        }
    }

    /// The address of the bytes, which the driver reads before the launch returns.
    fn address(&self) -> *mut c_void {
        match &self.0 {
            Kind::Value(bytes) => bytes.as_ptr().cast_mut().cast(),
            Kind::Pointer(address) | Kind::Block(address, _) => ptr::from_ref(address).cast_mut().cast(),
        }
    }
}

impl Stream {
    /// Launches a kernel after the work that the stream has now. While the stream is captured, the launch becomes part
    /// of the graph.
    ///
    /// # Safety
    /// The arguments are those that the kernel expects, in type and order; every address among them is of memory that
    /// the kernel may read and write as it does, at the time when it runs; and the kernel does nothing else that is
    /// undefined. For a launch in a capture this holds for every launch of a graph that is made from the capture, which keeps
    /// the kernel and every [`Arg::block`], but nothing that a bare address names. Where
    /// the driver can tell, number and sizes are checked here; the rest is the caller's word.
    ///
    /// # Errors
    /// [`Error::Arguments`]; [`Error::Launch`] with the driver's code; [`Error::DeviceMismatch`].
    pub unsafe fn launch(&self, function: &Function, geometry: Geometry, args: &[Arg<'_>]) -> Result<()> {
        self.context().expect("launch", function.module().context())?;
        if let Some(expected) = function.parameters() {
            let fits = expected.len() == args.len() && expected.iter().zip(args).all(|(e, a)| *e == a.size());
            if !fits {
                return Err(Error::Arguments {
                    kernel: function.name().to_string(),
                    expected: expected.to_vec(),
                    found: args.iter().map(Arg::size).collect(),
                });
            }
        }
        const FEW: usize = 32;
        let mut few = [ptr::null_mut(); FEW];
        let mut many;
        let addresses: &mut [*mut c_void] = if args.len() <= FEW {
            &mut few[..args.len()]
        } else {
            many = vec![ptr::null_mut(); args.len()];
            &mut many
        };
        for (slot, arg) in addresses.iter_mut().zip(args) {
            *slot = arg.address();
        }
        let _turn = self.keeping(args.iter().filter_map(Arg::of_block))?;
        if capture::under_way() {
            capture::keep_function(function);
            launch_log::launch(function.name(), geometry, args.iter().map(Arg::logged));
        }
        self.context().bind()?;
        let ([gx, gy, gz], [bx, by, bz]) = (geometry.grid, geometry.block);
        // SAFETY: function and stream are borrowed, so alive. The driver reads every argument before it returns, and
        // they are borrowed until then. That they are what the kernel expects is the caller's promise.
        let code = unsafe {
            ffi::cuLaunchKernel(
                function.handle(),
                gx,
                gy,
                gz,
                bx,
                by,
                bz,
                geometry.shared,
                self.handle(),
                addresses.as_mut_ptr(),
                ptr::null_mut(),
            )
        };
        match code {
            0 => Ok(()),
            900..=908 => Err(Error::driver("cuLaunchKernel", code)),
            code => {
                let (name, meaning) = codes::describe(code);
                Err(Error::Launch {
                    kernel: function.name().to_string(),
                    geometry,
                    code,
                    name,
                    meaning,
                })
            }
        }
    }
}
