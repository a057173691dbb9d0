//! Tables of utterances: manifests, and the lists of Common Voice.

use super::table::Table;
use super::utterance::Utterance;
use crate::Result;
use std::path::{Path, PathBuf};

/// Reads a manifest: a table whose first line names its columns, of which `path` and `text` are needed and `split`, `speaker` and
/// `seconds` may be there. Columns are separated by commas in a file whose name ends in `.csv` (quotes as in RFC 4180), otherwise by
/// tabs. Paths are relative to the folder of the file.
///
/// # Errors
/// [`AudioError::Io`](crate::AudioError::Io), [`AudioError::Column`](crate::AudioError::Column),
/// [`AudioError::Line`](crate::AudioError::Line) for a line of another number of columns or an empty path,
/// [`AudioError::NoUtterances`](crate::AudioError::NoUtterances).
pub fn read_manifest(path: impl AsRef<Path>) -> Result<Vec<Utterance>> {
    let path = path.as_ref();
    let table = Table::read(path)?;
    let (file, text) = (table.needed("path")?, table.needed("text")?);
    let [split, speaker, seconds] = ["split", "speaker", "seconds"].map(|name| table.column(name));
    let folder = path.parent().unwrap_or(Path::new(""));
    table.utterances("a line of path and text for each file", |row| {
        let field = |column: Option<usize>| Some(row.fields[column?].clone()).filter(|f| !f.is_empty());
        let seconds = match field(seconds) {
            Some(number) => match number.parse::<f64>() {
                Ok(seconds) if seconds >= 0.0 => Some(seconds),
                _ => return Err(table.wrong(row, format!("`{}` is no number of seconds", kiln_files::shown(&number)))),
            },
            None => None,
        };
        Ok(Utterance {
            path: folder.join(table.path_of(row, file)?),
            text: row.fields[text].clone(),
            split: field(split),
            speaker: field(speaker),
            seconds,
            list: path.to_path_buf(),
            line: row.line,
        })
    })
}

/// Reads a list of Common Voice (`train.tsv`, `validated.tsv`, …): columns `path`, `sentence` and `client_id`, the speaker, with sound in
/// `clips` beside the list. The split is the name of the list. Clips are published as MP3, which [`read`](crate::read) does not take: a
/// clip that is a FLAC, WAV or Ogg file of the same name is taken in its place.
///
/// # Errors
/// Those of [`read_manifest`].
pub fn read_common_voice(path: impl AsRef<Path>) -> Result<Vec<Utterance>> {
    let path = path.as_ref();
    let table = Table::read(path)?;
    let (file, text) = (table.needed("path")?, table.needed("sentence")?);
    let speaker = table.column("client_id");
    let clips = path.parent().unwrap_or(Path::new("")).join("clips");
    let split = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    table.utterances("a line of path and sentence for each clip", |row| {
        Ok(Utterance {
            path: converted(clips.join(table.path_of(row, file)?)),
            text: row.fields[text].clone(),
            split: split.clone(),
            speaker: speaker.map(|column| row.fields[column].clone()),
            seconds: None,
            list: path.to_path_buf(),
            line: row.line,
        })
    })
}

/// A converted file beside an MP3 file, if there is one.
fn converted(clip: PathBuf) -> PathBuf {
    let mp3 = clip.extension().is_some_and(|e| e.eq_ignore_ascii_case("mp3"));
    let others = ["flac", "wav", "ogg"].iter().map(|e| clip.with_extension(e));
    let found = others.filter(|_| mp3).find(|other| other.is_file());
    found.unwrap_or(clip)
}
