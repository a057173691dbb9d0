//! Puts the stand-in for libcuda ahead of a toolkit's stub in the linker's search: cargo names the folders of a crate's
//! own build script before those of its dependencies, cust among them.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if let Ok(folder) = std::env::var("DEP_KILN_CUDA_LIB") {
        println!("cargo:rustc-link-search=native={folder}");
    }
}
