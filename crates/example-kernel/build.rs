//! Compiles the kernels.

fn main() {
    kiln_nvcc::Build::new("kernels").run();
}
