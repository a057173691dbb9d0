//! Generation of text by GPT-mini in candle, as a worker (see `worker.py`): `load`, `run`, `drop` and `rss` for the rows
//! `net/gpt-mini-bN/generate`, and those of bf16 where candle multiplies bf16 on processors.

mod gpt;

use candle_core::safetensors::BufferedSafetensors;
use candle_core::{DType, Device, Tensor};
use gpt::Gpt;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead, Write};
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The tokens of the prompt, those that go on with it, and those whose largest logits are compared, as in `worker.py`.
const PROMPT: usize = 64;
const GENERATED: usize = 128;
const STEPS: usize = 20;

/// A network and the prompt that it goes on with.
struct Writing {
    net: Gpt,
    prompt: Tensor,
}

fn main() -> Outcome<()> {
    let mut out = std::io::stdout().lock();
    let mut answer = |value: &Value| -> Outcome<()> {
        writeln!(out, "{value}")?;
        Ok(out.flush()?)
    };
    answer(&json!({ "peer": "candle 0.11.1", "settings": ["default"], "infer": ["default"] }))?;
    let mut works = BTreeMap::new();
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let result = command(&words, &mut works);
        answer(&result.unwrap_or_else(|e| json!({ "error": e.to_string() })))?;
    }
    Ok(())
}

/// Carries out a command and returns the answer.
fn command(words: &[&str], works: &mut BTreeMap<String, Writing>) -> Outcome<Value> {
    match *words {
        ["load", key, _, row, file] => {
            let work = load(row, file)?;
            let first = |logits: &Tensor| logits.get(0)?.max(0)?.to_dtype(DType::F32)?.to_scalar::<f32>();
            let logits = work.net.write(&work.prompt, STEPS)?;
            let largest: Vec<f32> = logits.iter().map(first).collect::<candle_core::Result<_>>()?;
            works.insert(key.to_string(), work);
            Ok(json!({ "losses": largest }))
        }
        ["run", key, seconds] => {
            let work = works.get(key).ok_or("nothing of this key is loaded")?;
            repeat(work, seconds.parse()?)
        }
        ["drop", key] => {
            works.remove(key);
            Ok(json!({}))
        }
        ["rss"] => Ok(json!({ "rss": peak_resident() })),
        _ => Err(format!("not measured: {}", words.join(" ")).into()),
    }
}

/// The network of a row with the weights of a file, and the first tokens of its first batch.
fn load(row: &str, file: &str) -> Outcome<Writing> {
    let dtype = match row.split_once('/') {
        Some(("net", rest)) if is_writing(rest) => DType::F32,
        Some(("net-bf16", rest)) if is_writing(rest) => DType::BF16,
        _ => return Err("not measured".into()),
    };
    let tensors = BufferedSafetensors::new(std::fs::read(file)?)?;
    let x = tensors.get("x")?;
    let &[_, texts, length] = x.shape() else {
        return Err("the batches are no texts".into());
    };
    let ids = x
        .data()
        .chunks_exact(4)
        .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let ids: Vec<u32> = ids.take(texts * length).collect();
    let prompt = Tensor::from_vec(ids, (texts, length), &Device::Cpu)?
        .narrow(1, 0, PROMPT)?
        .contiguous()?;
    let net = Gpt::new(&tensors, dtype)?;
    Ok(Writing { net, prompt })
}

fn is_writing(row: &str) -> bool {
    row.starts_with("gpt-mini-b") && row.ends_with("/generate")
}

/// Runs the work once untimed, then until the time is up.
fn repeat(work: &Writing, seconds: f64) -> Outcome<Value> {
    work.net.write(&work.prompt, GENERATED)?;
    let (mut count, start) = (0, Instant::now());
    loop {
        work.net.write(&work.prompt, GENERATED)?;
        count += 1;
        let took = start.elapsed().as_secs_f64();
        if took >= seconds {
            return Ok(json!({ "count": count, "seconds": took }));
        }
    }
}

/// The most bytes this process had resident, as Linux counts them.
fn peak_resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(1024 * line.split_whitespace().next()?.parse::<u64>().ok()?)
}
