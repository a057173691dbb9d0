//! The table of datasets: where each comes from, how it is read, and what its samples are.

mod canvas;
mod card;
mod cifar10;
mod cifar100;
mod clip_folder;
mod clips;
mod cloze;
mod coco;
mod conll;
mod encoded;
mod facts;
mod flat_folder;
mod folder;
mod images;
mod kinds;
mod mnist;
mod motions;
mod objects;
mod opened;
mod pairs;
mod questions;
mod scenes;
mod speech;
mod spelling;
mod sprites;
mod squad;
mod table;
mod text;
mod texts;
mod tokens;
mod tsv;
mod voc;
mod yolo;

pub use card::{DatasetCard, FileOptions, ReadFile, Request};
pub use clips::CLIPS;
pub use conll::{TAGGED, samples_of_sentences, sentences_of};
pub use facts::{Fact, Facts, Sizes};
pub use images::IMAGES;
pub use kinds::{MadeUp, SampleKind};
pub use objects::OBJECTS;
pub use opened::{Opened, Shared};
pub use pairs::PAIRS;
pub use questions::QUESTIONS;
pub use speech::{Alphabet, SAMPLE_RATE, UTTERANCES};
pub use table::ROWS;
pub use text::WINDOWS;
pub use texts::TEXTS;

/// Makes the enum and its names from rows `Name: "name" in file`; the file has a `CARD`.
macro_rules! datasets {
    ($($(#[$doc:meta])* $kind:ident: $name:literal in $file:ident;)*) => {
        /// The datasets by name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DataKind {
            $($(#[$doc])* $kind,)*
        }

        impl DataKind {
            /// All datasets. Where a file could be of several, the first that [recognises](DatasetCard::recognises) it counts.
            pub const ALL: [DataKind; [$($name),*].len()] = [$(DataKind::$kind),*];

            /// The dataset's name on command lines: `cifar10`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(DataKind::$kind => $name,)*
                }
            }

            /// Facts about the dataset, and how it is read.
            pub const fn card(self) -> &'static DatasetCard {
                match self {
                    $(DataKind::$kind => &$file::CARD,)*
                }
            }
        }
    };
}

datasets! {
    /// Grey images in IDX files: MNIST and datasets of its format; the digits that ship with this crate without a path.
    Mnist: "mnist" in mnist;
    /// Colour images of 32×32 in ten classes: CIFAR-10's binary version.
    Cifar10: "cifar10" in cifar10;
    /// Colour images of 32×32 in a hundred classes: CIFAR-100's binary version.
    Cifar100: "cifar100" in cifar100;
    /// Pictures in the cells of one PNG file, with a table of their classes.
    SpriteSheet: "sprite-sheet" in sprites;
    /// Image files in a folder for each class.
    ImageFolder: "image-folder" in folder;
    /// Image files without classes in one folder.
    FlatFolder: "flat-folder" in flat_folder;
    /// Rows of a table in a CSV file, to predict a number from.
    Csv: "csv" in table;
    /// Texts with classes, in a table.
    Texts: "texts" in texts;
    /// Words with tags, in files as of the CoNLL tasks.
    Conll: "conll" in conll;
    /// Questions about texts, in SQuAD's JSON.
    Squad: "squad" in squad;
    /// Any text, with questions for words of its sentences.
    Cloze: "cloze" in cloze;
    /// Texts of any size as files of tokens.
    Tokens: "tokens" in tokens;
    /// Any text, by characters or by the tokens of a tokenizer.
    Text: "text" in text;
    /// Recordings of speech with their texts.
    Speech: "speech" in speech;
    /// Pairs of texts, in a table.
    Pairs: "pairs" in pairs;
    /// Any text with mistakes put into it, to be written without them.
    Spelling: "spelling" in spelling;
    /// Scenes of the digits that ship with this crate, with their boxes.
    Scenes: "scenes" in scenes;
    /// Images with boxes in COCO's JSON.
    Coco: "coco" in coco;
    /// Images with boxes in the XML of Pascal VOC.
    Voc: "voc" in voc;
    /// Images with boxes in text files as of YOLO.
    Yolo: "yolo" in yolo;
    /// Clips of moving digits that ship with this crate, whose class is how they move.
    Motions: "motions" in motions;
    /// Clips in a folder for each class: folders of frames, GIF and Y4M files.
    ClipFolder: "clip-folder" in clip_folder;
}

impl DataKind {
    /// The dataset with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        DataKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The datasets with samples of this kind.
    pub fn of(samples: &SampleKind) -> impl Iterator<Item = DataKind> + use<'_> {
        DataKind::ALL
            .into_iter()
            .filter(move |kind| kind.card().samples == samples)
    }
}

impl std::str::FromStr for DataKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        DataKind::from_name(name).ok_or_else(|| {
            let names = DataKind::ALL.map(DataKind::name).join(", ");
            format!("`{}` is none of {names}", name.escape_debug())
        })
    }
}

impl std::fmt::Display for DataKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl serde::Serialize for DataKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> serde::Deserialize<'de> for DataKind {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <String as serde::Deserialize>::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}
