//! Lists the CUDA devices, or says why there are none: `cargo run -p kiln-device --example devices`.

use kiln_device::{Context, Result, devices, driver};

fn main() -> Result<()> {
    match driver() {
        Ok(driver) => {
            let (major, minor) = driver.version;
            println!("driver {} for CUDA {major}.{minor}", driver.path.display());
        }
        Err(why) => println!("{why}"),
    }
    for info in devices()? {
        let (major, minor) = info.compute_capability;
        let free = Context::new(info.ordinal)?.free_memory()?;
        println!(
            "{}: {}, compute capability {major}.{minor}, {} multiprocessors, {} of {} MiB free, {} GB/s",
            info.ordinal,
            info.name,
            info.multiprocessors,
            free >> 20,
            info.memory >> 20,
            info.memory_bandwidth() / 1_000_000_000
        );
    }
    Ok(())
}
