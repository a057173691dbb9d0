//! A stand-in for `libcuda`: a program that calls the CUDA driver links without a toolkit and starts on any machine.
//!
//! The crate defines every driver function as a trampoline through a table, and its build script makes the (empty)
//! `libcuda.a` that the linker finds for `-lcuda`. The first `cuInit` opens a driver and fills the table:
//!
//! 1. the file that the environment variable `KILN_CUDA_DRIVER` names, else
//! 2. the file given to [`set_driver`], else
//! 3. `libcuda.so.1`, as the system finds it, or where containers, WSL and NixOS have it.
//!
//! Without a driver `cuInit` answers `CUDA_ERROR_NO_DEVICE` (100), every other function `CUDA_ERROR_NOT_INITIALIZED`
//! (3), and [`load`] says why. A function that the driver lacks answers `CUDA_ERROR_NOT_SUPPORTED` (801). A driver is
//! never unloaded.
//!
//! # In a workspace of your own
//!
//! Depend on `kiln-device` (or on this crate and on `cust`). One setting is needed, because `cust`'s build script stops
//! unless it finds a toolkit, or any folder with a `lib64` in it: make an empty folder `cuda/lib64` (with a file in it
//! that git keeps) and write into `.cargo/config.toml`
//!
//! ```toml
//! [env]
//! CUDA_LIBRARY_PATH = { value = "cuda", relative = true }
//! ```
//!
//! With a toolkit under `/usr/local/cuda` or `/opt/cuda` even that is not needed. `cust` then adds the toolkit's folders to
//! the linker's search, its stub of `libcuda.so` among them, and our folder must come first, or the program asks for
//! `libcuda.so.1` when it starts. Cargo puts the folders of a crate's own build script before those of its
//! dependencies, so a crate that depends on `cust` directly has these lines in its `build.rs`, as `kiln-device` has:
//!
//! ```no_run
//! if let Ok(folder) = std::env::var("DEP_KILN_CUDA_LIB") {
//!     println!("cargo:rustc-link-search=native={folder}");
//! }
//! ```
//!
//! On systems other than Linux on x86-64 and aarch64, programs build and find no device.

mod loader;
mod trampolines;

pub use loader::{DRIVER_VARIABLE, Driver, LoadError, Origin, loaded, set_driver};
pub use trampolines::{NO_DEVICE, load};

/// The names of the driver's functions that this crate defines, in alphabetical order.
pub fn symbols() -> &'static [&'static str] {
    &trampolines::NAMES
}
