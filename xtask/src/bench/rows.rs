//! The rows that are measured in turns: networks, products, process starts, and the gain from threads.

/// The work of a row of networks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pass {
    /// A training step.
    Train,
    /// A forward pass.
    Infer,
    /// The tokens that go on with a prompt, one after the other.
    Generate,
}

/// The tokens of a repetition of [`Pass::Generate`], for each sequence; as in `worker.py`.
const GENERATED: usize = 128;

/// Rounding differences grow from step to step, but different work gives larger ones from the first step on.
const TOLERANCE: f64 = 2e-3;

/// In mixed precision with bf16, whose roundings are 2⁻⁹ of a value.
const BF16_TOLERANCE: f64 = 3e-2;

/// Of networks that learn from candidates that each framework draws for itself.
const DRAWN_TOLERANCE: f64 = 3e-2;

/// A network with a batch size, and what it does.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NetRow {
    pub(super) name: &'static str,
    pub(super) batch: usize,
    pub(super) pass: Pass,
    /// True in mixed precision with bf16; for texts that are written, with all weights in bf16.
    pub(super) half: bool,
}

impl NetRow {
    /// The row's id: `net/resnet18-b32/train`, or `net-bf16/resnet18-b32/train`.
    pub(super) fn id(&self) -> String {
        let kind = if self.half { "net-bf16" } else { "net" };
        let what = match self.pass {
            Pass::Train => "train",
            Pass::Infer => "infer",
            Pass::Generate => "generate",
        };
        format!("{kind}/{}-b{}/{what}", self.name, self.batch)
    }

    /// The id of the memory that the row's training takes: `memory/resnet18-b32/train`.
    pub(super) fn memory_id(&self) -> String {
        self.id().replacen("net", "memory", 1)
    }

    /// The relative difference that the losses of twenty steps may have.
    pub(super) fn tolerance(&self) -> f64 {
        match (self.half, self.name) {
            (true, _) => BF16_TOLERANCE,
            (_, "faster-rcnn-small") => DRAWN_TOLERANCE,
            _ => TOLERANCE,
        }
    }

    /// The number of things that a repetition makes, and the word for them: 128 tokens, 32 images.
    pub(super) fn made(&self) -> (f64, &'static str) {
        match (self.pass, self.name) {
            (Pass::Generate, _) => ((self.batch * GENERATED) as f64, "tokens"),
            (_, "gpt-mini" | "bert-classifier" | "deepspeech2" | "transformer") => (self.batch as f64, "sequences"),
            (_, "r3d-18@8x56") => (self.batch as f64, "clips"),
            _ => (self.batch as f64, "images"),
        }
    }
}

/// The networks, each with its batch sizes of training and of inference; behind an `@` the side of images that are not of the network's
/// size, or the frames of clips and their side.
const NETS: [(&str, &[usize], &[usize]); 18] = [
    ("lenet", &[4, 128], &[128]),
    ("mnist-cnn", &[32, 128], &[128]),
    ("resnet18", &[32], &[32]),
    ("vgg11", &[32], &[32]),
    ("resnet50@64", &[16], &[16]),
    ("mobilenet-v2-32", &[32], &[32]),
    ("r3d-18@8x56", &[4], &[4]),
    ("gpt-mini", &[8], &[8]),
    ("bert-classifier", &[16], &[]),
    ("deepspeech2", &[8], &[]),
    ("transformer", &[32], &[]),
    ("vae", &[128], &[]),
    ("wgan-gp", &[64], &[]),
    ("wgan-gp-conv", &[64], &[]),
    ("dcgan", &[64], &[]),
    ("stylegan2", &[16], &[]),
    ("yolo-n", &[8], &[]),
    ("faster-rcnn-small", &[8], &[]),
];

/// The networks that write, each with the numbers of texts that they write at once.
const WRITERS: [(&str, &[usize]); 1] = [("gpt-mini", &[1])];

/// The rows of networks: those of f32, training first, then the same in mixed precision, but for networks without rows of inference, which make
/// images or find objects; then those that write, in f32 and in bf16.
pub(super) fn nets() -> Vec<NetRow> {
    let of = |half: bool, pass: Pass| {
        let of_kind = NETS
            .iter()
            .filter(move |(.., inference)| !(half && inference.is_empty()));
        of_kind.flat_map(move |&(name, training, inference)| {
            let batches = if pass == Pass::Train { training } else { inference };
            let row = move |&batch| NetRow {
                name,
                batch,
                pass,
                half,
            };
            batches.iter().map(row)
        })
    };
    let writing = WRITERS.iter().flat_map(|&(name, batches)| {
        let halves = batches.iter().flat_map(|&batch| [(batch, false), (batch, true)]);
        halves.map(move |(batch, half)| NetRow {
            name,
            batch,
            pass: Pass::Generate,
            half,
        })
    });
    let kinds = [false, true]
        .into_iter()
        .flat_map(|half| [(half, Pass::Train), (half, Pass::Infer)]);
    kinds.flat_map(|(half, pass)| of(half, pass)).chain(writing).collect()
}

/// `m`, `k`, `n` of `C[m, n] = A[m, k]·B[k, n]`: square matrices; convolutions of the networks as products (im2col), at the
/// batch size of their row; and the dense layers of a GPT block.
pub(super) const PRODUCTS: [(usize, usize, usize); 17] = [
    (256, 256, 256),
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (86_528, 9, 32),
    (15_488, 288, 64),
    (1152, 576, 64),
    (100_352, 75, 6),
    (12_800, 150, 16),
    (32_768, 27, 64),
    (32_768, 576, 64),
    (8192, 1152, 128),
    (2048, 2304, 256),
    (512, 4608, 512),
    (2048, 384, 1152),
    (2048, 384, 1536),
    (2048, 1536, 384),
];

/// The id of a product, from M×K×N and the number of threads: `gemm/256x256x256/t2`.
pub(super) fn product_id((m, k, n): (usize, usize, usize), threads: usize) -> String {
    format!("gemm/{m}x{k}x{n}/t{threads}")
}

/// The rows whose memory is measured: training in f32.
pub(super) fn memory() -> Vec<NetRow> {
    let mut rows = nets();
    rows.retain(|row| row.pass == Pass::Train && !row.half);
    rows
}

/// The id of the time from process start to the end of the first step.
pub(super) const START: &str = "start/mnist-cnn-b128/first-step";

/// The id of the comparison of one thread with all.
pub(super) const SCALING: &str = "scaling/resnet18-b32/train";

/// The ids of all rows of this file for this number of threads.
pub(super) fn ids(threads: usize) -> Vec<String> {
    let mut ids: Vec<String> = nets().iter().map(NetRow::id).collect();
    ids.push(SCALING.to_string());
    for threads in thread_counts(threads) {
        ids.extend(PRODUCTS.iter().map(|&p| product_id(p, threads)));
    }
    ids.push(START.to_string());
    ids.extend(memory().iter().map(NetRow::memory_id));
    ids
}

/// The numbers of threads that products are measured on: one and all.
pub(super) fn thread_counts(threads: usize) -> Vec<usize> {
    if threads == 1 { vec![1] } else { vec![1, threads] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_has_an_id_of_its_own() {
        let ids = ids(2);
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        assert_eq!(ids.len(), 48 + 1 + 2 * PRODUCTS.len() + 1 + 20);
        for id in [
            "net/lenet-b4/train",
            "net-bf16/lenet-b4/train",
            "net/resnet50@64-b16/train",
            "net-bf16/mobilenet-v2-32-b32/infer",
            "net/gpt-mini-b8/infer",
            "net/gpt-mini-b1/generate",
            "net-bf16/gpt-mini-b1/generate",
            "gemm/512x4608x512/t1",
            "memory/mnist-cnn-b32/train",
        ] {
            assert!(ids.iter().any(|i| i == id), "{id}");
        }
    }
}
