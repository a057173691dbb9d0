//! Launches of kernels that are not Kiln's own.

use crate::buffer::CudaBuffer;
use crate::runtime::Cuda;
use bytemuck::{NoUninit, Pod, Zeroable};
use kiln_core::{Error, Result, Runtime};
use kiln_device::{Arg, Geometry};
use kiln_kernels::Kernel;

const OP: &str = "launch_kernel";

/// A parameter of a kernel of the caller's own.
#[derive(Debug)]
pub enum KernelArg<'a> {
    /// The elements of a tensor to read: `kiln::Slice<const T>` in CUDA C.
    Input(&'a CudaBuffer),
    /// The elements of a tensor to write: `kiln::Slice<T>` in CUDA C.
    Output(&'a mut CudaBuffer),
    /// The bytes of a number, or of a struct of numbers.
    Value(&'a [u8]),
}

impl<'a> KernelArg<'a> {
    /// A number, or a struct of numbers, of the layout that it has in CUDA C.
    pub fn value<T: NoUninit>(value: &'a T) -> Self {
        KernelArg::Value(bytemuck::bytes_of(value))
    }
}

/// `kiln::Slice` of `kiln/slice.cuh`.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Slice {
    data: u64,
    bytes: u64,
}

impl Cuda {
    /// Queues a kernel that `kiln-nvcc` has compiled on the backend's stream, after the ops so far; captured steps repeat it. Its
    /// parameters are those of `args`, in order. A grid without blocks is no launch.
    ///
    /// Tensors are passed as `kiln::Slice`, which knows its length: an index outside of it stops the kernel, and the next wait for
    /// the device returns the error, after which the process has to be started anew, as after any fault on a GPU.
    ///
    /// Arguments are compared with the kernel by number and size, not by type. It is the caller's part that a kernel writes no
    /// [`KernelArg::Input`], that no [`KernelArg::Value`] stands where the kernel expects a slice, and that the kernel uses no other
    /// pointers: a mistake there changes other tensors on the device.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a buffer of another device, and for blocks of no or too many threads;
    /// [`Error::Device`] for parameters of other sizes than the kernel's, and for what the driver refuses.
    pub fn launch_kernel(&self, kernel: &'static Kernel, geometry: Geometry, args: &[KernelArg<'_>]) -> Result<()> {
        let threads: u64 = geometry.block.iter().map(|&n| u64::from(n)).product();
        if threads == 0 || threads > u64::from(kernel.max_threads) {
            let expected = format!("1 to {} threads", kernel.max_threads);
            return Err(Error::invalid(OP, "block", format!("{:?}", geometry.block), expected));
        }
        let mut slices = Vec::with_capacity(args.len());
        for arg in args {
            let buffer = match arg {
                KernelArg::Input(buffer) => *buffer,
                KernelArg::Output(buffer) => &**buffer,
                KernelArg::Value(_) => continue,
            };
            if !self.owns(buffer) {
                let expected = format!("memory of {} from the same handle or a clone of it", self.device_name());
                return Err(Error::invalid(OP, "args", "another device's memory", expected));
            }
            self.keep(buffer)?;
            slices.push(Slice {
                data: buffer.block.ptr(),
                bytes: buffer.bytes() as u64,
            });
        }
        let mut slices = slices.iter();
        let args: Vec<Arg<'_>> = args
            .iter()
            .filter_map(|arg| match arg {
                KernelArg::Input(_) | KernelArg::Output(_) => slices.next().map(Arg::value),
                KernelArg::Value(bytes) => Some(Arg::bytes(bytes)),
            })
            .collect();
        self.launch(kernel, geometry, &args)
    }
}
