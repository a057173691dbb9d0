//! The command lines of what saved weights are asked: `kiln eval`, `predict`, `generate` and `transcribe`.

use crate::config::{DataArgs, DeviceArgs, Positive, Rate, Share, model};
use clap::{Args, ValueEnum};
use kiln_core::DType;
use kiln_models::Model;
use std::path::PathBuf;

/// Saved weights and the model that they belong to.
#[derive(Debug, Clone, Args)]
pub(crate) struct WeightsArgs {
    /// Weights file (safetensors; of another program in PyTorch's layout), or the folder of a run for its best weights
    #[arg(short, long, value_name = "FILE|RUN")]
    pub(crate) weights: PathBuf,

    /// Model the weights belong to [default: read from config.json beside them, else from the file itself]
    #[arg(long, value_parser = model(), value_name = "MODEL")]
    pub(crate) model: Option<Model>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln eval -w runs/mnist-cnn-0             the weights with the highest validation accuracy
  kiln eval -w runs/mnist-cnn-0/last.safetensors
  kiln eval -w best.safetensors --model lenet --data cifar-10-batches-bin --json
  kiln eval -w runs/dcgan-0 --features runs/mnist-cnn-0   FID by the features of a classifier")]
pub(crate) struct EvalArgs {
    #[command(flatten)]
    pub(crate) weights: WeightsArgs,

    #[command(flatten)]
    pub(crate) data: DataArgs,

    /// Samples of a batch
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,

    /// Classifier of such images, by whose logits the Fréchet distance of made images is measured too, as fid
    #[arg(long, value_name = "FILE|RUN")]
    pub(crate) features: Option<PathBuf>,

    /// Seed of synthetic data; must be that of the training run
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// One JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Invert {
    /// When the border is lighter than mid-grey: dark ink on light paper
    Auto,
    /// Always
    Yes,
    /// Never: the digits are light on dark already
    No,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln predict -w runs/mnist-cnn-0/best.safetensors digit.png
  kiln predict -w runs/lenet-0/best.safetensors --top 3 --json *.jpg
  kiln predict -w runs/vgg11-0 --top 3 --out sheet.png *.png    a picture of all, each above its classes
  kiln predict -w runs/bert-classifier-0 review.txt    the class of the text in a file
  kiln predict -w runs/bert-tagger-0 text.txt      a tag for each word; a sentence in each line
  echo 'Call me [MASK].' | kiln predict -w runs/bert-mini-0 --top 5 -    what may stand there
  kiln predict -w runs/bert-reader-0 --question 'Who sank the ship?' chapter.txt
  kiln predict -w runs/mlp-0 houses.csv     the column that the network was trained to predict, row by row
  kiln predict -w runs/transformer-0 a.txt  what the network writes for each line; with --beam 4 by a search
  echo 'teh whale' | kiln predict -w runs/transformer-0 -
  kiln predict -w runs/deepspeech2-0 a.wav  what is said, as `kiln transcribe` has it without a search

Images for mnist-cnn are made grey and, when their border is light, inverted (MNIST is white on black). One that is not
28x28 is then treated as MNIST's own images were: the ink is cut out, scaled to fit 20x20 and centred by its mass.
Images for lenet are scaled to 32x32.

A vae reconstructs the images: the picture reconstructions.png beside the weights has each image and what the network makes of
it. Without images a network that draws them writes new ones, as `kiln generate` does.")]
pub(crate) struct PredictArgs {
    #[command(flatten)]
    pub(crate) weights: WeightsArgs,

    /// PNG or JPEG files, or folders of them; files with a text each, or with one in each line for networks that write texts, tag words or
    /// fill in [MASK] (- for standard input); CSV files with the columns of the table that the network was trained on; WAV, FLAC or Ogg
    /// Vorbis files
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,

    /// Picture to write: of a network that makes images [default: reconstructions.png beside the weights]; of one that finds objects, or a
    /// folder for several [default: boxes- and the image's name, beside the weights]; of one that tells classes of images or clips a sheet
    /// of all of them with their classes [default: none]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Classes to show for each image
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) top: u16,

    /// Objects to show: those that are at least so likely, from 0 to 1
    #[arg(long, value_name = "P", default_value = "0.25")]
    pub(crate) min_score: Share,

    /// Search for the most probable text, with N followed side by side, of a network that writes texts [default: 1, the likeliest
    /// token each time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) beam: Option<u32>,

    /// Question about the texts in the files, of a network that answers questions by a part of a text
    #[arg(long, value_name = "TEXT")]
    pub(crate) question: Option<String>,

    /// When to invert images of digits
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) invert: Invert,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// One JSON object per image, row or line on standard output, each on a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln generate runs/gpt-mini-0 --prompt 'To be' --tokens 500
  kiln generate runs/gpt-mini-0 --temperature 0.8 --top-k 20 --seed 1
  kiln generate runs/gpt-mini-0 --top-p 0.9 --repetition-penalty 1.2
  kiln generate runs/gpt-mini-0 --temperature 0      always the likeliest token
  kiln generate runs/gpt-mini-0 --dtype bf16         with weights of half the size
  kiln generate runs/vae-0 --count 100               runs/vae-0/samples.png, a picture of new digits
  kiln generate runs/vae-0 --walks --count 32        runs/vae-0/walks.png, four rows from one digit to another
  kiln generate torch.safetensors --model dcgan      samples.png, new images by weights of PyTorch's

The tokens that a model knows are those of the text it was trained on: its characters, which config.json in the run's folder lists, or
the tokens of tokenizer.json there.")]
pub(crate) struct GenerateArgs {
    /// Folder of a run for its best weights, or a weights file (safetensors; of another program in PyTorch's layout)
    #[arg(value_name = "RUN_FOLDER")]
    pub(crate) run: PathBuf,

    /// Model the weights belong to [default: read from config.json beside them, else from the file itself]
    #[arg(long, value_parser = model(), value_name = "MODEL")]
    pub(crate) model: Option<Model>,

    /// Text to continue [default: a line break]
    #[arg(long, value_name = "TEXT")]
    pub(crate) prompt: Option<String>,

    /// Tokens to write: characters, or those of the run's tokenizer
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) tokens: u32,

    /// Divisor of the logits: below 1 probable tokens become more probable; 0 always takes the most probable one
    #[arg(long, value_name = "T", default_value = "1.0", allow_negative_numbers = true)]
    pub(crate) temperature: Rate,

    /// Draw only among the K most probable tokens
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) top_k: Option<u32>,

    /// Draw only among the most probable tokens that together have probability P
    #[arg(long, value_name = "P")]
    pub(crate) top_p: Option<Share>,

    /// Divide the logits of tokens that the text has already by R: above 1 they become less probable
    #[arg(long, value_name = "R")]
    pub(crate) repetition_penalty: Option<Positive>,

    /// Dtype of the weights and of all that is computed, of a network that writes: 16 bits take half the memory
    #[arg(long, value_name = "DTYPE", value_enum, default_value_t)]
    pub(crate) dtype: WeightDtype,

    /// Images to draw
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=10000))]
    pub(crate) count: u32,

    /// Draw in each row the way from one image to another, 8 images long: --count 64 are 8 such walks
    #[arg(long)]
    pub(crate) walks: bool,

    /// Picture to write [default: samples.png or walks.png beside the weights]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,

    /// Seed of the draws
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub(crate) seed: u64,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// The dtype that weights are converted to once they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum WeightDtype {
    /// As they are trained and saved
    #[default]
    F32,
    /// bfloat16
    Bf16,
    /// IEEE half precision
    F16,
}

impl WeightDtype {
    pub(crate) fn dtype(self) -> DType {
        match self {
            WeightDtype::F32 => DType::F32,
            WeightDtype::Bf16 => DType::BF16,
            WeightDtype::F16 => DType::F16,
        }
    }
}

impl GenerateArgs {
    /// The weights of the run.
    pub(crate) fn weights(&self) -> WeightsArgs {
        WeightsArgs {
            weights: self.run.clone(),
            model: self.model,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  kiln transcribe runs/deepspeech2-0 a.wav b.flac     a line for each file
  kiln transcribe runs/deepspeech2-0 --json talk.ogg
  kiln transcribe runs/deepspeech2-0 --beam 32 a.wav  the most probable text in place of the likeliest letter of each step
  kiln transcribe runs/deepspeech2-0 --lm es.arpa --lm-weight 0.8 --letter-bonus 0.5 a.wav

Files are WAV, FLAC or Ogg Vorbis of any sample rate; channels are averaged, and what is not 16 kHz is resampled. A long recording is
read in windows of 30 s that overlap.

A language model is an n-gram model of letters in the ARPA format, as KenLM writes it for a text whose letters stand apart and whose
spaces are `|`: `lmplz -o 6 < letters.txt > es.arpa` for lines such as `u n a | r a n a`. Texts are lower case and without punctuation,
as the network writes them; config.json in the run's folder lists its letters.")]
pub(crate) struct TranscribeArgs {
    /// Folder of a run for its best weights, or a weights file beside its config.json
    #[arg(value_name = "RUN_FOLDER")]
    pub(crate) run: PathBuf,

    /// WAV, FLAC or Ogg Vorbis files
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,

    /// Search for the most probable text, with N beginnings kept after each step [default: 16 with --lm, else no search]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10000))]
    pub(crate) beam: Option<u32>,

    /// Language model of letters (ARPA) that the search asks
    #[arg(long, value_name = "FILE.arpa")]
    pub(crate) lm: Option<PathBuf>,

    /// Weight of the language model [default: 0.5]
    #[arg(long, value_name = "W", allow_negative_numbers = true, requires = "lm")]
    pub(crate) lm_weight: Option<Rate>,

    /// Bonus for each letter, against a language model's preference for short texts [default: 0]
    #[arg(long, value_name = "B", allow_negative_numbers = true, value_parser = finite)]
    pub(crate) letter_bonus: Option<f64>,

    #[command(flatten)]
    pub(crate) device: DeviceArgs,

    /// One JSON object per file on standard output, each on a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// A finite number.
fn finite(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| "expected a finite number".to_string())
}

impl TranscribeArgs {
    /// The weights of the run.
    pub(crate) fn weights(&self) -> WeightsArgs {
        WeightsArgs {
            weights: self.run.clone(),
            model: None,
        }
    }
}
