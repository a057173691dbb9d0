//! The memory that this machine has to spare.

use std::fs::read_to_string;

/// The number of bytes that this process can still use: what the system calls available, or what its control group leaves of its limit if
/// that is less. `None` where neither is told.
pub(crate) fn available() -> Option<u64> {
    let system = read_to_string("/proc/meminfo").ok().and_then(|text| meminfo(&text));
    let number = |path: &str| read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let groups = [
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        ),
    ];
    let left = groups.map(|(limit, used)| Some(number(limit)?.saturating_sub(number(used)?)));
    left.into_iter().chain([system]).flatten().min()
}

/// The bytes in the line `MemAvailable` of `/proc/meminfo`.
fn meminfo(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_available_memory_is_read() {
        let text = "MemTotal:       32768 kB\nMemAvailable:   24576 kB\n";
        assert_eq!(meminfo(text), Some(24 << 20));
        assert_eq!(meminfo("MemAvailable: some"), None);
        if cfg!(target_os = "linux") {
            assert!(available().is_some_and(|bytes| bytes > 1 << 20));
        }
    }
}
