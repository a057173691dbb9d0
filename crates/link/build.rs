//! Makes the library that `-lcuda` finds, and one trampoline for every symbol of `symbols.txt`.
//!
//! `libcuda.a` is an archive without members: it satisfies the linker's search for the library, ahead of any real one,
//! and the functions themselves come with this crate. No C compiler is needed.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=symbols.txt");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("libcuda.a"), b"!<arch>\n")?;
    println!("cargo:rustc-link-search=native={}", out.display());
    // A crate that depends on cust passes this on from its own build script, whose folders come before cust's.
    println!("cargo:lib={}", out.display());

    let list = fs::read_to_string(Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("symbols.txt"))?;
    let symbols: Vec<&str> = list
        .lines()
        .map(str::trim)
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
        .collect();
    let linux = env::var("CARGO_CFG_TARGET_OS")? == "linux";
    let code = match (linux, env::var("CARGO_CFG_TARGET_ARCH")?.as_str()) {
        (true, "x86_64") => trampolines(&symbols, |slot| {
            format!("endbr64\\n jmp qword ptr [rip + {{table}} + {slot}]")
        }),
        (true, "aarch64") => trampolines(&symbols, |slot| {
            format!("hint #34\\n adrp x16, {{table}} + {slot}\\n ldr x16, [x16, :lo12:{{table}} + {slot}]\\n br x16")
        }),
        _ => refusals(&symbols),
    };
    fs::write(out.join("symbols.rs"), code)?;
    Ok(())
}

/// The list of names, the table, and assembly that jumps through it. The symbols are hidden: a driver that is loaded
/// later must bind to its own.
fn trampolines(symbols: &[&str], jump: impl Fn(usize) -> String) -> String {
    let mut code = table(symbols);
    code.push_str("std::arch::global_asm!(\n    \".pushsection .text.kiln_link,\\\"ax\\\",@progbits\",\n");
    for (i, name) in symbols.iter().enumerate() {
        let jump = jump(8 * i);
        let _ = writeln!(
            code,
            "    \".p2align 4\\n.globl {name}\\n.hidden {name}\\n.type {name},@function\\n{name}:\\n {jump}\\n\
             .size {name}, . - {name}\","
        );
    }
    code.push_str("    \".popsection\",\n    table = sym TABLE,\n);\n");
    code
}

/// On systems that the loader does not know: every function says that there is no device.
fn refusals(symbols: &[&str]) -> String {
    let mut code = table(symbols);
    for name in symbols {
        let _ = writeln!(
            code,
            "#[unsafe(no_mangle)]\nextern \"C\" fn {name}() -> i32 {{\n    crate::NO_DEVICE\n}}"
        );
    }
    code
}

fn table(symbols: &[&str]) -> String {
    let mut code = format!("pub(crate) const NAMES: [&str; {}] = [\n", symbols.len());
    for name in symbols {
        let _ = writeln!(code, "    \"{name}\",");
    }
    let _ = writeln!(code, "];\npub(crate) static TABLE: [Slot; {}] = [", symbols.len());
    for name in symbols {
        let entry = match *name {
            "cuInit" => "init as Init as *mut c_void",
            "cuDriverGetVersion" => "driver_version as Version as *mut c_void",
            "cuGetErrorName" | "cuGetErrorString" => "error_text as Text as *mut c_void",
            _ => "not_initialized as Refuse as *mut c_void",
        };
        let _ = writeln!(code, "    Slot::new({entry}),");
    }
    code.push_str("];\n");
    code
}
