//! Lists of utterances, written here.

use kiln_audio::{AudioError, read_common_voice, read_librispeech, read_manifest};
use std::path::PathBuf;

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

#[test]
fn manifests() {
    let folder = Folder::new();
    let tabs = "path\tsplit\tseconds\ttext\naudio/a.ogg\ttrain\t0.85\tUna rana.\naudio/b.ogg\ttest\t\t\"Sí\", dijo.\n";
    let list = read_manifest(folder.write("manifest.tsv", tabs)).unwrap();
    assert_eq!(list.len(), 2);
    assert_eq!(list[0].path, folder.path("audio/a.ogg"));
    assert_eq!((list[0].text.as_str(), list[0].seconds), ("Una rana.", Some(0.85)));
    assert_eq!(list[1].text, "\"Sí\", dijo.");
    assert_eq!((&list[1].list, list[1].line), (&folder.path("manifest.tsv"), 3));
    assert_eq!((list[1].split.as_deref(), list[1].seconds), (Some("test"), None));
    let commas = "\u{feff}text,path\r\n\"a \"\"b\"\", c\",/x.wav\r\n";
    let list = read_manifest(folder.write("list.csv", commas)).unwrap();
    assert_eq!(
        (list[0].text.as_str(), list[0].path.to_str()),
        ("a \"b\", c", Some("/x.wav"))
    );
    assert_eq!((&list[0].split, &list[0].speaker), (&None, &None));
}

#[test]
fn wrong_manifests() {
    let folder = Folder::new();
    let error = |text: &str| read_manifest(folder.write("m.tsv", text)).unwrap_err();
    assert!(matches!(
        error("path\tsplit\na\tb\n"),
        AudioError::Column { column: "text", .. }
    ));
    assert!(matches!(error(""), AudioError::Column { column: "path", .. }));
    assert!(matches!(error("path\ttext\n"), AudioError::NoUtterances { .. }));
    assert!(matches!(
        error("path\ttext\na\tb\nc\n"),
        AudioError::Line { line: 3, .. }
    ));
    assert!(matches!(error("path\ttext\n\tb\n"), AudioError::Line { line: 2, .. }));
    assert!(matches!(
        error("path\ttext\tseconds\na\tb\tx\n"),
        AudioError::Line { line: 2, .. }
    ));
    let e = read_manifest(folder.path("absent.tsv")).unwrap_err();
    assert!(
        matches!(e, AudioError::Io { .. }) && e.to_string().contains("absent.tsv"),
        "{e}"
    );
    let quote = read_manifest(folder.write("m.csv", "path,text\na,\"b\n")).unwrap_err();
    assert!(matches!(quote, AudioError::Line { line: 2, .. }));
}

#[test]
fn common_voice() {
    let folder = Folder::new();
    let list = "client_id\tpath\tsentence\tup_votes\nab\tx.mp3\t¿Qué?\t2\nab\ty.mp3\tNo \"tal\"\t3\n";
    let list = folder.write("es/train.tsv", list);
    let converted = folder.write("es/clips/y.flac", "");
    let list = read_common_voice(list).unwrap();
    assert_eq!(list[0].path, folder.path("es/clips/x.mp3"));
    assert_eq!(list[1].path, converted);
    assert_eq!(list[1].text, "No \"tal\"");
    assert_eq!(
        (list[0].split.as_deref(), list[0].speaker.as_deref()),
        (Some("train"), Some("ab"))
    );
}

#[test]
fn librispeech() {
    let folder = Folder::new();
    folder.write(
        "L/test-clean/61/70/61-70.trans.txt",
        "61-70-0000 HE BEGAN A\n61-70-0001 YES\n",
    );
    folder.write("L/dev-clean/5/1/5-1.trans.txt", "5-1-0000 NO\n");
    folder.write("L/README.TXT", "");
    let list = read_librispeech(folder.path("L")).unwrap();
    let texts: Vec<_> = list.iter().map(|u| u.text.as_str()).collect();
    assert_eq!(texts, ["NO", "HE BEGAN A", "YES"]);
    assert_eq!(list[1].path, folder.path("L/test-clean/61/70/61-70-0000.flac"));
    assert_eq!(
        (list[1].split.as_deref(), list[1].speaker.as_deref()),
        (Some("test-clean"), Some("61"))
    );
    assert_eq!(read_librispeech(folder.path("L/dev-clean")).unwrap().len(), 1);
    folder.write("L/dev-clean/5/1/5-1.trans.txt", "5-1-0000 NO\n HE\n");
    assert!(matches!(
        read_librispeech(folder.path("L")),
        Err(AudioError::Line { line: 2, .. })
    ));
    std::fs::create_dir(folder.path("nothing")).unwrap();
    assert!(matches!(
        read_librispeech(folder.path("nothing")),
        Err(AudioError::NoUtterances { .. })
    ));
    assert!(matches!(
        read_librispeech(folder.path("absent")),
        Err(AudioError::Io { .. })
    ));
}
