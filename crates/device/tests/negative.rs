//! Mistakes that the checks must catch: kernels that are wrong on purpose (`kernels/negative`), run on the emulated
//! driver in a process of their own, whose output has to name the kernel and the line.

use kiln_device::{Arg, Context, Geometry, Module, Pinned, Pool, Priority, Result, Stream, emulator};
use kiln_kernels::Kernel;
use kiln_kernels::negative::{early_read, late_event, missing_barrier, off_by_one, wrong_fragment};
use std::process::Command;

/// The variable that makes this program run one mistake instead of the tests.
const CASE: &str = "KILN_NEGATIVE";

/// Runs `case` with the emulator's options and returns its output, on both streams.
fn run(case: &str, options: &[(&str, &str)]) -> String {
    let program = std::env::current_exe().expect("this test is a file");
    let output = Command::new(program)
        .args(["the_case", "--exact", "--nocapture"])
        .env(CASE, case)
        .env_remove("KILN_CUDA_DRIVER")
        .env_remove("KILN_EMULATOR_CHECK")
        .env_remove("KILN_EMULATOR_STREAMS")
        .envs(options.iter().copied())
        .output()
        .expect("this program starts again");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// The line of a kernel's source that holds `text`, as findings name it.
fn place(file: &str, text: &str) -> String {
    let path = format!("{}/../../kernels/negative/{file}", env!("CARGO_MANIFEST_DIR"));
    let source = std::fs::read_to_string(&path).expect("the kernel's source");
    let line = source
        .lines()
        .position(|l| l.contains(text))
        .expect("the line is there");
    format!("{file}:{}", line + 1)
}

/// True if a line of `said` names `kernel`, its first wrong element and the line that holds `text`.
fn names_element(said: &str, kernel: &str, text: &str) -> bool {
    let (start, end) = (
        format!("{kernel}: element "),
        format!(" ({})", place(&format!("{kernel}.cu"), text)),
    );
    said.lines().any(|line| line.contains(&start) && line.ends_with(&end))
}

const CHECKED: &[(&str, &str)] = &[("KILN_EMULATOR_CHECK", "1")];

#[test]
fn a_missing_barrier_is_caught() {
    let said = run("missing_barrier", CHECKED);
    assert!(said.contains("in missing_barrier at "), "{said}");
    assert!(said.contains(&place("missing_barrier.cu", "tile[255")), "{said}");
    assert!(!said.contains("result: right"), "{said}");
}

#[test]
fn a_write_past_the_end_is_caught() {
    let said = run("off_by_one", CHECKED);
    assert!(said.contains("in off_by_one at "), "{said}");
    assert!(said.contains(&place("off_by_one.cu", "if (i <= n)")), "{said}");
}

#[test]
fn a_copy_read_too_early_is_caught() {
    let said = run("early_read", CHECKED);
    assert!(said.contains("in early_read at "), "{said}");
    assert!(said.contains(&place("early_read.cu", "y[at + i]")), "{said}");
    // Without the checker the copy has not happened yet, and the values show it.
    let values = run("early_read", &[]);
    assert!(values.contains("result: wrong"), "{values}");
    assert!(names_element(&values, "early_read", "y[at + i]"), "{values}");
    assert!(
        run("late_read", CHECKED).contains("result: right"),
        "the right wait has no finding"
    );
}

#[test]
fn a_missing_wait_for_an_event_is_caught() {
    for streams in ["lazy", "random:1"] {
        let options = [("KILN_EMULATOR_CHECK", "1"), ("KILN_EMULATOR_STREAMS", streams)];
        let right = run("event", &options);
        assert!(right.contains("result: right"), "{streams}: {right}");
    }
    let said = run(
        "no_event",
        &[("KILN_EMULATOR_CHECK", "1"), ("KILN_EMULATOR_STREAMS", "lazy")],
    );
    assert!(said.contains("in late_event at "), "{said}");
    assert!(
        said.contains(&place("late_event.cu", "if (i < n) y[i] = x[i]")),
        "{said}"
    );
    let values = run("no_event", &[("KILN_EMULATOR_STREAMS", "lazy")]);
    assert!(values.contains("result: wrong"), "{values}");
    assert!(
        names_element(&values, "late_event", "if (i < n) y[i] = x[i]"),
        "{values}"
    );
}

#[test]
fn a_wrong_fragment_is_caught() {
    let said = run("wrong_fragment", CHECKED);
    assert!(said.contains("result: wrong"), "{said}");
    // Row 8 came where row 0 belongs.
    let finding = format!(
        "wrong_fragment: element 0 is {}, expected {} ({})",
        product(8, 0),
        product(0, 0),
        place("wrong_fragment.cu", "mma<bf16>(fc")
    );
    assert!(said.lines().any(|line| line.ends_with(&finding)), "{finding}: {said}");
    let said = run("right_fragment", CHECKED);
    assert!(said.contains("result: right") && !said.contains("expected"), "{said}");
}

/// Not a test by itself: the process that the others start.
#[test]
fn the_case() {
    let Ok(case) = std::env::var(CASE) else { return };
    match mistake(&case) {
        Ok(None) => println!("result: right"),
        Ok(Some(finding)) => println!("{finding}\nresult: wrong"),
        Err(e) => println!("result: {e}"),
    }
}

struct Rig {
    pool: Pool,
    stream: Stream,
    context: Context,
}

impl Rig {
    fn launch(&self, kernel: &Kernel, grid: u32, block: u32, args: &[Arg<'_>]) -> Result<()> {
        let function = Module::load(&self.context, kernel.image.fatbin)?.function(kernel.name)?;
        let geometry = Geometry {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            shared: 0,
        };
        // SAFETY: each case passes what its kernel declares; where it is wrong on purpose, the emulated driver checks
        // every access.
        unsafe { self.stream.launch(&function, geometry, args) }
    }
}

/// Entry `i` of the operands of the fragment's product.
fn entry(i: u32) -> f32 {
    f32::from((i * 7 % 13) as u8) - 6.0
}

/// Element (m, n) of the fragment's product: A [16, 16] lies before B [8, 16].
fn product(m: u32, n: u32) -> f32 {
    (0..16).map(|k| entry(m * 16 + k) * entry(256 + n * 16 + k)).sum()
}

/// Runs a case: nothing when the values came out right, else the kernel, its first wrong element and the line that
/// computes it.
fn mistake(case: &str) -> Result<Option<String>> {
    emulator::use_beside()?;
    let context = Context::new(0)?;
    let rig = Rig {
        pool: Pool::direct(&context),
        stream: Stream::new(&context, Priority::Normal)?,
        context,
    };
    let values: Vec<f32> = (0..256).map(|i| i as f32).collect();
    let bytes = |v: &[f32]| -> Vec<u8> { bytemuck::cast_slice(v).to_vec() };
    let (mut x, y) = (rig.pool.alloc(1024)?, rig.pool.alloc(1024)?);
    if !case.ends_with("event") {
        rig.stream.upload(&bytes(&values), &mut x, 0)?;
    }
    let (px, py, n) = (Arg::ptr(x.ptr()), Arg::ptr(y.ptr()), 256u64);
    let mut want = values.clone();
    let (kernel, text) = match case {
        "missing_barrier" => {
            rig.launch(&missing_barrier::MISSING_BARRIER, 1, 256, &[px, py])?;
            want.reverse();
            (&missing_barrier::MISSING_BARRIER, "tile[255")
        }
        "off_by_one" => {
            rig.launch(&off_by_one::OFF_BY_ONE, 2, 256, &[Arg::value(&n), px, py])?;
            want.iter_mut().for_each(|v| *v *= 2.0);
            (&off_by_one::OFF_BY_ONE, "if (i <= n)")
        }
        "early_read" | "late_read" => {
            let wait = u32::from(case == "late_read");
            rig.launch(&early_read::EARLY_READ, 1, 64, &[Arg::value(&wait), px, py])?;
            (&early_read::EARLY_READ, "y[at + i]")
        }
        "event" | "no_event" => {
            let copies = Stream::new(&rig.context, Priority::Normal)?;
            let mut host = Pinned::new(&rig.context, 1024)?;
            host.copy_from_slice(&bytes(&values));
            copies.upload_pinned(&host, &mut x, 0)?;
            if case == "event" {
                let done = kiln_device::Event::new(&rig.context)?;
                copies.record(&done)?;
                rig.stream.wait(&done)?;
            }
            rig.launch(&late_event::LATE_EVENT, 1, 256, &[Arg::value(&n), px, py])?;
            want.iter_mut().for_each(|v| *v += 1.0);
            (&late_event::LATE_EVENT, "if (i < n) y[i] = x[i]")
        }
        _ => {
            let right = u32::from(case == "right_fragment");
            // A [16, 16] and B [8, 16] in bf16, the same small integers.
            let halves: Vec<u8> = (0..512u32)
                .flat_map(|i| entry(i).to_bits().to_le_bytes()[2..].to_vec())
                .collect();
            rig.stream.upload(&halves, &mut x, 0)?;
            let second = Arg::ptr(x.ptr() + 512);
            let args = [Arg::value(&right), px, second, py];
            rig.launch(&wrong_fragment::WRONG_FRAGMENT, 1, 32, &args)?;
            want = (0..16).flat_map(|m| (0..8).map(move |n| product(m, n))).collect();
            (&wrong_fragment::WRONG_FRAGMENT, "mma<bf16>(fc")
        }
    };
    let mut got = vec![0u8; 4 * want.len()];
    rig.stream.download(&y, 0, &mut got)?;
    rig.stream.synchronize()?;
    let got = got.chunks_exact(4).map(bytemuck::pod_read_unaligned::<f32>);
    let mut pairs = want.iter().zip(got).enumerate();
    let wrong = pairs.find(|(_, (want, got))| want.to_bits() != got.to_bits());
    Ok(wrong.map(|(i, (want, got))| {
        let (name, line) = (kernel.name, place(&format!("{}.cu", kernel.name), text));
        format!("{name}: element {i} is {got}, expected {want} ({line})")
    }))
}
