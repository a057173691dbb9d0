//! What Linux tells of a machine in `/proc` and `/sys`, below any root folder.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The reason why a value cannot be read.
pub(crate) type Why = String;

/// The text of a file.
pub(crate) fn read(path: &Path) -> Result<String, Why> {
    fs::read_to_string(path).map_err(|e| {
        let path = path.display();
        match e.kind() {
            ErrorKind::NotFound => format!("there is no {path}"),
            ErrorKind::PermissionDenied => format!("{path} may not be read by this user"),
            _ => format!("{path}: {e}"),
        }
    })
}

/// The entries of a folder whose names begin so, sorted.
pub(crate) fn entries(folder: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|n| n.to_string_lossy().starts_with(prefix))
        })
        .collect();
    found.sort();
    found
}

/// A whole number alone in a file.
pub(crate) fn number(path: &Path) -> Result<u64, Why> {
    let text = read(path)?;
    text.trim()
        .parse()
        .map_err(|_| format!("{} holds no number", path.display()))
}

/// Ticks of all processors since the start of the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ticks {
    /// Those in which they worked.
    pub(crate) busy: f64,
    pub(crate) all: f64,
}

/// The ticks of the machine: `/proc/stat`.
pub(crate) fn ticks(root: &Path) -> Result<Ticks, Why> {
    let path = root.join("proc/stat");
    let text = read(&path)?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    // user, nice, system, idle, iowait, irq, softirq, steal; guests' ticks are among those of user and nice.
    let values: Vec<f64> = line
        .unwrap_or_default()
        .split_whitespace()
        .take(8)
        .map_while(|word| word.parse().ok())
        .collect();
    if values.len() < 4 {
        return Err(format!("{} has no line of all processors", path.display()));
    }
    let all: f64 = values.iter().sum();
    let idle = values[3] + values.get(4).unwrap_or(&0.0);
    Ok(Ticks { busy: all - idle, all })
}

/// Seconds of processor time that this process has used, of all its threads: `/proc/self/stat`.
pub(crate) fn process_seconds(root: &Path, ticks_per_second: f64) -> Result<f64, Why> {
    let path = root.join("proc/self/stat");
    let text = read(&path)?;
    // The name of the program is in brackets, and may hold spaces and brackets.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    let times: Vec<f64> = fields.skip(11).take(2).map_while(|f| f.parse().ok()).collect();
    match times[..] {
        [user, system] => Ok((user + system) / ticks_per_second),
        _ => Err(format!("{} has no times", path.display())),
    }
}

/// The value of a line `Name:   123 kB`, in bytes.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let value: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    value.checked_mul(1024)
}

/// The memory of this process in bytes: what it holds, and the most that it has held.
pub(crate) fn process_memory(root: &Path) -> Result<(u64, u64), Why> {
    let path = root.join("proc/self/status");
    let text = read(&path)?;
    let both = kilobytes(&text, "VmRSS").zip(kilobytes(&text, "VmHWM"));
    both.ok_or_else(|| format!("{} has no VmRSS and VmHWM", path.display()))
}

/// The memory of the machine, or of the container if that may have less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// All of it, in bytes.
    pub total: u64,
    /// What a program can still have, in bytes.
    pub available: u64,
}

impl Memory {
    /// The share that is in use, 0 to 1.
    pub fn used_share(&self) -> f64 {
        match self.total {
            0 => 0.0,
            total => 1.0 - self.available.min(total) as f64 / total as f64,
        }
    }
}

/// The memory that programs can have.
pub(crate) fn memory(root: &Path) -> Result<Memory, Why> {
    let path = root.join("proc/meminfo");
    let text = read(&path)?;
    let both = kilobytes(&text, "MemTotal").zip(kilobytes(&text, "MemAvailable"));
    let (total, available) = both.ok_or_else(|| format!("{} has no MemTotal and MemAvailable", path.display()))?;
    let machine = Memory { total, available };
    Ok(match limit(root) {
        Some(limit) if limit.total < machine.total => Memory {
            total: limit.total,
            available: limit.available.min(machine.available),
        },
        _ => machine,
    })
}

/// The limit of this process' control group (cgroup v2), if it has one. What its files in memory take can be had again.
fn limit(root: &Path) -> Option<Memory> {
    let groups = read(&root.join("proc/self/cgroup")).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let folder = root.join("sys/fs/cgroup").join(group.trim_start_matches('/'));
    let total = number(&folder.join("memory.max")).ok()?;
    let current = number(&folder.join("memory.current")).ok()?;
    let stat = read(&folder.join("memory.stat")).unwrap_or_default();
    let files = stat
        .lines()
        .find_map(|line| line.strip_prefix("inactive_file ")?.trim().parse::<u64>().ok());
    let used = current.saturating_sub(files.unwrap_or(0));
    Some(Memory {
        total,
        available: total.saturating_sub(used),
    })
}

/// The names of chips that measure processors.
const CHIPS: [&str; 5] = ["coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal"];

/// The labels of a package's sensor.
const PACKAGES: [&str; 3] = ["Package", "Tctl", "Tdie"];

/// The files with the temperatures of processors, in thousandths of a degree Celsius.
pub(crate) fn thermometers(root: &Path) -> Result<Vec<PathBuf>, Why> {
    let mut found = Vec::new();
    for chip in entries(&root.join("sys/class/hwmon"), "hwmon") {
        let name = read(&chip.join("name")).unwrap_or_default();
        if !CHIPS.contains(&name.trim()) {
            continue;
        }
        let labelled = entries(&chip, "temp").into_iter().filter(|path| {
            let label = path.to_string_lossy().ends_with("_label");
            label && read(path).is_ok_and(|text| PACKAGES.iter().any(|p| text.starts_with(p)))
        });
        let inputs: Vec<PathBuf> = labelled
            .map(|label| PathBuf::from(label.to_string_lossy().replace("_label", "_input")))
            .collect();
        match inputs.is_empty() {
            true => found.push(chip.join("temp1_input")),
            false => found.extend(inputs),
        }
    }
    if found.is_empty() {
        let zones = entries(&root.join("sys/class/thermal"), "thermal_zone").into_iter();
        let of_processor = |zone: &PathBuf| {
            let kind = read(&zone.join("type")).unwrap_or_default();
            kind.contains("pkg") || kind.to_lowercase().contains("cpu")
        };
        found.extend(zones.filter(of_processor).map(|zone| zone.join("temp")));
    }
    found.retain(|path| celsius(path).is_ok());
    match found.is_empty() {
        true => Err("no sensor of the processor below /sys/class/hwmon and /sys/class/thermal".to_string()),
        false => Ok(found),
    }
}

/// The temperature in such a file.
pub(crate) fn celsius(path: &Path) -> Result<f64, Why> {
    let text = read(path)?;
    let value: f64 = text
        .trim()
        .parse()
        .map_err(|_| format!("{} holds no number", path.display()))?;
    Ok(value / 1000.0)
}

/// The energy counter of a processor's package (Running Average Power Limit), which starts anew at its largest value.
#[derive(Debug)]
struct Package {
    counter: PathBuf,
    /// The largest value, in microjoules.
    range: u64,
    last: u64,
}

/// The energy counters of all packages.
#[derive(Debug)]
pub(crate) struct Rapl {
    packages: Vec<Package>,
    joules: f64,
}

impl Rapl {
    /// Finds the counters of the machine.
    pub(crate) fn find(root: &Path) -> Result<Self, Why> {
        let mut packages = Vec::new();
        let mut failed = None;
        // `intel-rapl:0` is a package, also of AMD's processors; `intel-rapl:0:0` is a part of it.
        for zone in entries(&root.join("sys/class/powercap"), "intel-rapl:") {
            let name = zone.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let of_package = read(&zone.join("name")).is_ok_and(|n| n.starts_with("package"));
            if name.matches(':').count() != 1 || !of_package {
                continue;
            }
            let counter = zone.join("energy_uj");
            match (number(&counter), number(&zone.join("max_energy_range_uj"))) {
                (Ok(last), Ok(range)) => packages.push(Package { counter, range, last }),
                (Err(why), _) | (_, Err(why)) => failed = Some(why),
            }
        }
        match (packages.is_empty(), failed) {
            (_, Some(why)) => Err(why),
            (true, None) => Err("no energy counter (RAPL) below /sys/class/powercap".to_string()),
            (false, None) => Ok(Rapl { packages, joules: 0.0 }),
        }
    }

    /// True if the machine has counters, whether or not they can be read.
    pub(crate) fn is_there(root: &Path) -> bool {
        !entries(&root.join("sys/class/powercap"), "intel-rapl:").is_empty()
    }

    /// The joules since the counters were found.
    pub(crate) fn joules(&mut self) -> Result<f64, Why> {
        for package in &mut self.packages {
            let now = number(&package.counter)?;
            let used = match now.checked_sub(package.last) {
                Some(used) => used,
                None => (package.range - package.last.min(package.range)).saturating_add(now),
            };
            package.last = now;
            self.joules += used as f64 * 1e-6;
        }
        Ok(self.joules)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root folder with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn times_of_machine_and_process() {
        let made = root(&[
            ("proc/stat", "cpu  100 10 40 800 50 0 5 3 7 0\ncpu0 1 1 1 1\n"),
            (
                "proc/self/stat",
                "42 (a (b) c) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0 20 0 8 0",
            ),
        ]);
        let expected = Ticks {
            busy: 158.0,
            all: 1008.0,
        };
        assert_eq!(ticks(made.path()), Ok(expected));
        assert_eq!(process_seconds(made.path(), 100.0), Ok(3.0));
        for bad in ["", "cpu  1 2", "cpu x y z w", "intr 5"] {
            let made = root(&[("proc/stat", bad), ("proc/self/stat", bad)]);
            assert!(ticks(made.path()).unwrap_err().contains("proc/stat"));
            assert!(process_seconds(made.path(), 100.0).is_err());
        }
        assert!(
            ticks(Path::new("/no/such/root"))
                .unwrap_err()
                .starts_with("there is no")
        );
    }

    #[test]
    fn memory_is_that_of_the_container_where_it_has_a_limit() {
        let meminfo = (
            "proc/meminfo",
            "MemTotal:       16000 kB\nMemFree: 1 kB\nMemAvailable:    4000 kB\n",
        );
        let status = ("proc/self/status", "Name:\tkiln\nVmHWM:\t  900 kB\nVmRSS:\t  700 kB\n");
        let made = root(&[meminfo, status]);
        assert_eq!(process_memory(made.path()), Ok((700 << 10, 900 << 10)));
        let all = memory(made.path()).unwrap();
        assert_eq!(
            (all.total, all.available, all.used_share()),
            (16000 << 10, 4000 << 10, 0.75)
        );
        let group = |max| {
            root(&[
                meminfo,
                ("proc/self/cgroup", "4:memory:/x\n0::/job/a\n"),
                ("sys/fs/cgroup/job/a/memory.max", max),
                ("sys/fs/cgroup/job/a/memory.current", "3000"),
                ("sys/fs/cgroup/job/a/memory.stat", "anon 5\ninactive_file 1000\n"),
            ])
        };
        let limited = memory(group("4000\n").path()).unwrap();
        assert_eq!((limited.total, limited.available), (4000, 2000));
        assert_eq!(memory(group("max\n").path()).unwrap(), all);
        assert_eq!(memory(group("99999999999").path()).unwrap(), all);
        assert!(memory(root(&[("proc/meminfo", "MemTotal: 5 pages")]).path()).is_err());
    }

    #[test]
    fn the_thermometer_is_that_of_the_package() {
        let labelled = root(&[
            ("sys/class/hwmon/hwmon0/name", "nvme\n"),
            ("sys/class/hwmon/hwmon0/temp1_input", "31000"),
            ("sys/class/hwmon/hwmon1/name", "coretemp\n"),
            ("sys/class/hwmon/hwmon1/temp1_label", "Core 0"),
            ("sys/class/hwmon/hwmon1/temp1_input", "50000"),
            ("sys/class/hwmon/hwmon1/temp2_label", "Package id 0"),
            ("sys/class/hwmon/hwmon1/temp2_input", "61500\n"),
        ]);
        let found = thermometers(labelled.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(celsius(&found[0]), Ok(61.5));
        let zone = root(&[
            ("sys/class/thermal/thermal_zone0/type", "acpitz"),
            ("sys/class/thermal/thermal_zone0/temp", "20000"),
            ("sys/class/thermal/thermal_zone1/type", "x86_pkg_temp"),
            ("sys/class/thermal/thermal_zone1/temp", "-5000"),
        ]);
        let found = thermometers(zone.path()).unwrap();
        assert_eq!(found.iter().map(|p| celsius(p).unwrap()).collect::<Vec<_>>(), [-5.0]);
        assert!(thermometers(root(&[]).path()).is_err());
    }

    #[test]
    fn energy_counters_start_anew_at_their_largest_value() {
        let zone = "sys/class/powercap/intel-rapl:0";
        let file = |name: &str| format!("{zone}/{name}");
        let made = root(&[
            (&file("name"), "package-0\n"),
            (&file("energy_uj"), "9000000"),
            (&file("max_energy_range_uj"), "10000000"),
            // A part of the package, and a zone that is no package.
            ("sys/class/powercap/intel-rapl:0:0/name", "core"),
            ("sys/class/powercap/intel-rapl:0:0/energy_uj", "1"),
            ("sys/class/powercap/intel-rapl:1/name", "psys"),
            ("sys/class/powercap/intel-rapl:1/energy_uj", "1"),
        ]);
        let mut rapl = Rapl::find(made.path()).unwrap();
        let mut reads = |value: &str| {
            fs::write(made.path().join(file("energy_uj")), value).unwrap();
            (rapl.joules().unwrap() * 1e6).round() as u64
        };
        assert_eq!(reads("9500000"), 500_000);
        assert_eq!(reads("250000"), 1_250_000);
        assert_eq!(reads("250000"), 1_250_000);
        fs::remove_file(made.path().join(file("energy_uj"))).unwrap();
        assert!(rapl.joules().is_err());
        assert!(Rapl::find(made.path()).unwrap_err().contains("energy_uj"));
        assert!(Rapl::find(root(&[]).path()).unwrap_err().contains("RAPL"));
    }
}
