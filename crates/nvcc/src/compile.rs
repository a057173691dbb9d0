//! Runs nvcc on every source, in parallel, and only where something changed since the last build.

use crate::toolkit::Nvcc;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A compiled source.
pub(crate) struct Image {
    /// The source's stem.
    pub(crate) name: String,
    /// The path of the fatbin.
    pub(crate) path: PathBuf,
    /// The file with its PTX: the fatbin, or a file beside one that is compressed.
    pub(crate) ptx: PathBuf,
}

/// Compiles `sources` with headers from the folders `include`; the first failure is the error, with nvcc's output. If `strict`,
/// warnings and spilled registers are failures too.
pub(crate) fn all(
    nvcc: &Nvcc,
    include: &[PathBuf],
    sources: &[PathBuf],
    out: &Path,
    strict: bool,
) -> Result<Vec<Image>, String> {
    println!("cargo::rerun-if-env-changed=KILN_CUDA_ARCHS");
    let archs = std::env::var("KILN_CUDA_ARCHS").unwrap_or_else(|_| "80,90".to_string());
    let archs = Architectures::read(&archs)?;
    // Release images are compressed, to a tenth by zstd; others are not, since they are quicker to build and to load.
    let packed = std::env::var("PROFILE").is_ok_and(|p| p == "release") && release(&nvcc.version) >= (12, 8);
    let build = Build {
        nvcc,
        archs: &archs,
        packed,
        strict,
        folders: include,
        out,
        shared: out
            .ancestors()
            .nth(3)
            .unwrap_or(out)
            .join("kernel-images")
            .join(std::env::var("CARGO_PKG_NAME").unwrap_or_default()),
    };
    let jobs = std::env::var("NUM_JOBS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(message) = build.image(source) {
                        let mut failure = failure.lock().unwrap_or_else(|e| e.into_inner());
                        failure.get_or_insert(message);
                        next.store(sources.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    if let Some(message) = failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(message);
    }
    Ok(sources
        .iter()
        .map(|source| Image {
            name: stem(source),
            path: fatbin(source, out),
            ptx: if packed { kept(source, out) } else { fatbin(source, out) },
        })
        .collect())
}

/// The contents of images: PTX of one architecture, which later cards compile for themselves, and the machine code that ptxas makes of
/// the same PTX for these architectures (`80`, `90`, …), if any. So every card runs one program, the one that the emulated driver runs,
/// and nvcc compiles a source once.
#[derive(Debug, PartialEq)]
struct Architectures {
    code: Vec<String>,
    ptx: String,
}

impl Architectures {
    /// Those of a list, with PTX of the lowest; or of `ptx`: that alone.
    fn read(archs: &str) -> Result<Self, String> {
        let named: Vec<&str> = archs.split(',').map(str::trim).filter(|a| !a.is_empty()).collect();
        let valid = |a: &&str| a.len() >= 2 && a.starts_with(|c: char| c.is_ascii_digit());
        if named == ["ptx"] {
            let (code, ptx) = (Vec::new(), "80".to_string());
            return Ok(Self { code, ptx });
        }
        if named.is_empty() || !named.iter().all(valid) {
            return Err(format!(
                "KILN_CUDA_ARCHS={archs}: expected numbers such as 80,90, or ptx"
            ));
        }
        let code: Vec<String> = named.iter().map(|a| a.to_string()).collect();
        let number = |a: &&str| a.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok();
        let lowest = named.iter().min_by_key(|a| number(a)).unwrap_or(&named[0]);
        let ptx = lowest.to_string();
        Ok(Self { code, ptx })
    }

    /// The flag for a source. One whose name ends in `_sm90a`, or in another architecture with a letter, uses instructions which that one
    /// alone has: its image is for it alone.
    fn flag(&self, source: &str) -> String {
        let own = source.rsplit_once("_sm").map(|(_, arch)| arch);
        let is_arch = |a: &&str| {
            a.strip_suffix('a')
                .is_some_and(|n| n.len() >= 2 && n.bytes().all(|b| b.is_ascii_digit()))
        };
        let own = own.filter(is_arch).map(str::to_string);
        let (code, ptx) = match &own {
            Some(arch) if self.code.is_empty() => (&[][..], arch),
            Some(arch) => (std::slice::from_ref(arch), arch),
            None => (&self.code[..], &self.ptx),
        };
        let code: String = code.iter().map(|a| format!("sm_{a},")).collect();
        format!("-gencode=arch=compute_{ptx},code=[{code}compute_{ptx}]")
    }
}

/// The settings for compiling sources, and the folders of images.
struct Build<'b> {
    nvcc: &'b Nvcc,
    archs: &'b Architectures,
    /// True if images are compressed; their PTX is then kept beside them.
    packed: bool,
    strict: bool,
    /// The folders where headers are looked for.
    folders: &'b [PathBuf],
    out: &'b Path,
    /// A folder of images that all builds of this crate share: cargo runs this program anew, into another folder, for each set
    /// of features and for clippy, and compiling all sources takes minutes.
    shared: PathBuf,
}

impl Build<'_> {
    /// Makes the image of one source, if anything that it depends on has changed.
    fn image(&self, source: &Path) -> Result<(), String> {
        let key = self.key(source)?;
        if made(self.out, source, &key) {
            return Ok(());
        }
        let files = |folder: &Path| {
            let ptx = self.packed.then(|| kept(source, folder));
            [Some(fatbin(source, folder)), Some(figures(source, folder)), ptx]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
        };
        // A failure to read or write the shared folder is no error: the image is then compiled here.
        let copied = |from: &Path, to: &Path| -> std::io::Result<()> {
            std::fs::create_dir_all(to)?;
            let _ = std::fs::remove_file(stamp(source, to));
            for (from, to) in files(from).iter().zip(files(to)) {
                std::fs::copy(from, to)?;
            }
            std::fs::write(stamp(source, to), &key)
        };
        if made(&self.shared, source, &key) && copied(&self.shared, self.out).is_ok() {
            return Ok(());
        }
        self.compile(source)?;
        let stamp = stamp(source, self.out);
        std::fs::write(&stamp, &key).map_err(|e| format!("cannot write {}: {e}", stamp.display()))?;
        let _ = copied(self.out, &self.shared);
        Ok(())
    }

    fn flags(&self, source: &Path) -> Vec<String> {
        let mut flags: Vec<String> = ["--fatbin", "-std=c++17", "-O3", "-lineinfo", "-Xptxas", "-v"]
            .map(String::from)
            .to_vec();
        if self.strict {
            flags.extend(["-Werror", "all-warnings", "-Xptxas", "-warn-spills"].map(String::from));
        }
        flags.push(self.archs.flag(&stem(source)));
        flags.push(
            if self.packed {
                "--compress-mode=size"
            } else {
                "-no-compress"
            }
            .to_string(),
        );
        flags
    }

    /// A hash of all that an image depends on, wherever it is built.
    fn key(&self, source: &Path) -> Result<String, String> {
        let mut hasher = DefaultHasher::new();
        (&self.nvcc.version, self.flags(source)).hash(&mut hasher);
        let mut files = vec![source.to_path_buf()];
        let mut next = 0;
        while let Some(path) = files.get(next).cloned() {
            next += 1;
            let text = std::fs::read_to_string(&path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
            (path.file_name(), &text).hash(&mut hasher);
            // Headers of the toolkit are found in none of the folders: its version stands for them.
            for name in includes(&text) {
                let beside = path
                    .parent()
                    .into_iter()
                    .chain(self.folders.iter().map(PathBuf::as_path));
                let found = beside.map(|folder| folder.join(name)).find(|path| path.is_file());
                files.extend(found.filter(|path| !files.contains(path)));
            }
        }
        Ok(hasher.finish().to_string())
    }

    fn compile(&self, source: &Path) -> Result<(), String> {
        let (nvcc, out) = (&self.nvcc.path, self.out);
        // The file is given by its name in its folder: line information then names `softmax.cu` on every machine.
        let (folder, name) = (source.parent(), source.file_name());
        let (Some(folder), Some(name)) = (folder, name) else {
            return Err(format!("{} is not a file in a folder", source.display()));
        };
        let steps = out.join(stem(source) + ".steps");
        let mut command = Command::new(nvcc);
        command.current_dir(folder).args(self.flags(source));
        for include in self.folders {
            command.arg(format!("-I{}", include.display()));
        }
        command.arg("-o").arg(fatbin(source, out)).arg(name);
        if self.packed {
            let made = std::fs::create_dir_all(&steps);
            made.map_err(|e| format!("cannot make {}: {e}", steps.display()))?;
            command.arg("--keep").arg("--keep-dir").arg(&steps);
        }
        let output = command
            .output()
            .map_err(|e| format!("cannot run {}: {e}", nvcc.display()))?;
        let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
        let warned = self.strict && said.lines().any(is_slow);
        if !output.status.success() || warned {
            let _ = std::fs::remove_file(stamp(source, out));
            return Err(format!("nvcc on {}: {}\n{said}", source.display(), output.status));
        }
        for warning in said.lines().filter(|line| line.contains("warning")) {
            println!("cargo::warning={warning}");
        }
        let figures = figures(source, out);
        std::fs::write(&figures, said.as_bytes()).map_err(|e| format!("cannot write {}: {e}", figures.display()))?;
        if self.packed {
            keep_ptx(&steps, &kept(source, out))?;
        }
        Ok(())
    }
}

/// True for a line of ptxas about registers that it spilled, or about products of a warp group that it made wait for each other.
fn is_slow(line: &str) -> bool {
    let none = line.contains(" 0 bytes spill stores, 0 bytes spill loads");
    line.contains("C7510") || (line.contains("spill") && !none)
}

/// True if the image of a source in `folder` is that of `key`.
fn made(folder: &Path, source: &Path, key: &str) -> bool {
    fatbin(source, folder).is_file() && std::fs::read_to_string(stamp(source, folder)).is_ok_and(|old| old == key)
}

/// The names of the files that a text includes.
fn includes(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let name = line.trim_start().strip_prefix("#include")?.trim_start();
        name.get(1..)?.split(['"', '>']).next()
    })
}

/// Copies a PTX out of nvcc's intermediate files and removes their folder. All PTX files of a source have the same kernels.
fn keep_ptx(steps: &Path, to: &Path) -> Result<(), String> {
    let entries = std::fs::read_dir(steps).map_err(|e| format!("cannot read {}: {e}", steps.display()))?;
    let mut files = entries.flatten().map(|e| e.path());
    let ptx = files
        .find(|p| p.extension().is_some_and(|e| e == "ptx"))
        .ok_or_else(|| format!("nvcc kept no PTX in {}", steps.display()))?;
    std::fs::rename(&ptx, to).map_err(|e| format!("cannot move {}: {e}", ptx.display()))?;
    std::fs::remove_dir_all(steps).map_err(|e| format!("cannot remove {}: {e}", steps.display()))
}

fn stem(source: &Path) -> String {
    source.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The path where the PTX of a compressed fatbin is kept.
fn kept(source: &Path, out: &Path) -> PathBuf {
    out.join(stem(source) + ".ptx")
}

/// The numbers in `Cuda compilation tools, release 13.0, V13.0.88`; zeros where there are none.
fn release(version: &str) -> (u32, u32) {
    let text = version.split_once("release ").map_or("", |(_, rest)| rest);
    let mut numbers = text.split(['.', ',']).map_while(|n| n.trim().parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn stamp(source: &Path, out: &Path) -> PathBuf {
    out.join(stem(source) + ".stamp")
}

/// What `ptxas -v` said of a source: registers, stack frames and spills of its kernels. `cargo xtask machine-code` reads it.
fn figures(source: &Path, out: &Path) -> PathBuf {
    out.join(stem(source) + ".ptxas")
}

fn fatbin(source: &Path, out: &Path) -> PathBuf {
    out.join(stem(source) + ".fatbin")
}

#[cfg(test)]
mod tests {
    use super::{Architectures, is_slow};

    #[test]
    fn images_are_for_the_architectures_that_are_named_or_for_that_of_their_source() {
        let flag = |archs: &str, source: &str| Architectures::read(archs).map(|a| a.flag(source));
        let of = |code: &str| Ok(format!("-gencode=arch={code}"));
        let both = |code: &str| of(&format!("compute_80,code=[{code},compute_80]"));
        assert_eq!(flag("80, 90", "softmax"), both("sm_80,sm_90"));
        assert_eq!(flag("100,80", "softmax"), both("sm_100,sm_80"));
        assert_eq!(flag("ptx", "softmax"), of("compute_80,code=[compute_80]"));
        assert_eq!(flag("80", "matmul_sm90a"), of("compute_90a,code=[sm_90a,compute_90a]"));
        assert_eq!(flag("ptx", "matmul_sm90a"), of("compute_90a,code=[compute_90a]"));
        assert_eq!(flag("86", "matmul_small"), of("compute_86,code=[sm_86,compute_86]"));
        assert!(flag("", "softmax").is_err() && flag("80,x", "softmax").is_err());
    }

    #[test]
    fn a_spilled_register_is_seen_and_none_is_not() {
        let line =
            |stores, loads| format!("    32 bytes stack frame, {stores} bytes spill stores, {loads} bytes spill loads");
        assert!(!is_slow(&line(0, 0)));
        assert!(is_slow(&line(8, 0)) && is_slow(&line(0, 8)) && is_slow(&line(10, 10)));
        assert!(is_slow(
            "ptxas warning : Registers are spilled to local memory in function 'f', 8 bytes spill stores"
        ));
        assert!(is_slow(
            "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"
        ));
        assert!(!is_slow(
            "ptxas info    : Used 40 registers, used 1 barriers, 400 bytes cmem[0]"
        ));
    }
}
