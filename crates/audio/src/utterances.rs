//! Lists of utterances: sound files with what is said in them.

mod librispeech;
mod manifest;
mod table;
mod utterance;

pub use librispeech::read_librispeech;
pub use manifest::{read_common_voice, read_manifest};
pub use utterance::Utterance;
