//! The list of kernels that documentation is built from, where there is no nvcc.

use std::fmt::Write;

/// `entries.txt` has the kernels of the images. `KILN_WRITE_ENTRIES=1` writes it anew.
#[test]
fn the_list_of_kernels_is_that_of_the_images() {
    let mut list = String::new();
    for kernel in kiln_kernels::ALL {
        write!(list, "{} {} {}", kernel.image.name, kernel.name, kernel.max_threads).unwrap();
        for bytes in kernel.params {
            write!(list, " {bytes}").unwrap();
        }
        list.push('\n');
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/entries.txt");
    if std::env::var_os("KILN_WRITE_ENTRIES").is_some() {
        std::fs::write(path, &list).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap();
    let old = list.lines().zip(written.lines()).find(|(new, old)| new != old);
    assert!(
        written == list,
        "entries.txt is old, `KILN_WRITE_ENTRIES=1 cargo test -p kiln-kernels` writes it: {old:?}"
    );
}
