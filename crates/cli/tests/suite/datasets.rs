//! Tests of the table of datasets on the command line: tables of numbers, folders of images, made-up samples of every kind.

use crate::common::{run, succeeds};
use serde_json::Value;
use std::path::Path;

fn json(dir: &Path, file: &str) -> Value {
    let text = std::fs::read(dir.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"));
    serde_json::from_slice(&text).unwrap()
}

/// Writes a table with the columns `a`, `b` and `price = 2000 + 100·a − 50·b`.
fn table(dir: &Path, name: &str, rows: usize) {
    let mut text = "a,b,price\n".to_string();
    for i in 0..rows {
        let (a, b) = (i % 7, (i * i) % 5);
        text.push_str(&format!("{a},{b},{}\n", 2000 + 100 * a as i64 - 50 * b as i64));
    }
    std::fs::write(dir.join(name), text).unwrap();
}

#[test]
fn a_column_of_a_table_is_learned_and_predicted_in_its_units() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    table(dir, "houses.csv", 200);
    let args = [
        "train",
        "mlp",
        "--data",
        "houses.csv",
        "--target",
        "price",
        "--out",
        "run",
        "--lr",
        "0.005",
    ];
    let told = succeeds(dir, &[&args[..], &["--epochs", "30", "--report"]].concat()).stdout;
    for part in [
        "the table houses.csv: 2 features, target price, 180 rows to train, 20 held back",
        "R²",
        "mse",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let config = json(dir, "run/config.json");
    assert_eq!(
        (&config["data"]["format"], &config["data"]["target"]),
        (&"csv".into(), &"price".into())
    );
    assert_eq!(config["facts"]["features"], serde_json::json!(["a", "b"]));
    // What the run has measured is measured again, also at another time and by the facts of the run alone.
    let eval = succeeds(dir, &["eval", "-w", "run", "--data", "houses.csv", "--json"]).stdout;
    let eval: Value = serde_json::from_str(&eval).unwrap();
    assert!(eval["r2"].as_f64().unwrap() > 0.98, "{eval}");
    let history = std::fs::read_to_string(dir.join("run/history.jsonl")).unwrap();
    let best: Vec<Value> = history
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let smallest = best
        .iter()
        .map(|epoch| epoch["valid"]["loss"].as_f64().unwrap())
        .fold(f64::INFINITY, f64::min);
    assert!(
        (eval["loss"].as_f64().unwrap() - smallest).abs() < 1e-6 * smallest.max(1e-3),
        "{eval}, {smallest}"
    );
    // Rows without the column that is predicted, in another order and with others beside.
    std::fs::write(dir.join("new.csv"), "note,b,a\nfirst,2,3\nsecond,0,6\n").unwrap();
    let lines = succeeds(dir, &["predict", "-w", "run", "new.csv", "--json"]).stdout;
    let prices: Vec<f64> = lines
        .lines()
        .map(|line| {
            serde_json::from_str::<Value>(line).unwrap()["values"]["price"]
                .as_f64()
                .unwrap()
        })
        .collect();
    assert_eq!(prices.len(), 2);
    for (price, expected) in prices.iter().zip([2200.0, 2600.0]) {
        assert!((price - expected).abs() < 60.0, "{price} for {expected}");
    }
    let told = succeeds(dir, &["predict", "-w", "run", "new.csv"]).stdout;
    assert!(told.starts_with("new.csv: row 1: price 2"), "{told}");
    // The report and the profile take the network of the table.
    assert!(dir.join("run/report.html").exists());
    let profile = succeeds(dir, &["profile", "--run", "run", "--steps", "1"]).stdout;
    assert!(profile.contains("mlp") && profile.contains("fc2"), "{profile}");
    // A run goes on with the same table, and refuses another.
    table(dir, "others.csv", 150);
    run(
        dir,
        &["train", "--resume", "run", "--epochs", "31", "--data", "others.csv"],
    )
    .fails(1, &["the data is other than when the run began"]);
    succeeds(dir, &["train", "--resume", "run", "--epochs", "31"]);
    for (args, code, parts) in [
        (&["train", "mlp"][..], 2, &["mlp needs a table", "--target COLUMN"][..]),
        (&["train", "mlp", "--data", "houses.csv"], 2, &["--target COLUMN"]),
        (
            &["train", "mlp", "--data", "houses.csv", "--target", "prize"],
            1,
            &["label column"],
        ),
        (
            &["train", "mlp", "--data", "houses.csv", "--data-format", "mnist"],
            2,
            &["mlp takes rows", "csv"],
        ),
        (&["train", "mnist-cnn", "--target", "price"], 2, &["no columns"]),
        (&["predict", "-w", "run", "houses.txt"], 1, &["houses.txt"]),
        (&["predict", "-w", "run"], 2, &["<FILE> is missing"]),
        (
            &["predict", "-w", "run/best.safetensors", "other.csv"],
            1,
            &["no column `b`"],
        ),
    ] {
        std::fs::write(dir.join("other.csv"), "a\n1\n").unwrap();
        run(dir, args).fails(code, parts);
    }
}

/// Writes an image file of one shade.
fn image(path: &Path, shade: u8) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut encoder = png::Encoder::new(std::fs::File::create(path).unwrap(), 9, 7);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(&[shade; 63]).unwrap();
}

#[test]
fn a_folder_of_images_gives_a_network_its_classes() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for i in 0..30u8 {
        let (class, shade) = [("dark", i), ("grey", 110 + i), ("light", 220 + i)][usize::from(i % 3)];
        image(&dir.join(format!("photos/{class}/{i}.png")), shade);
    }
    let args = [
        "train",
        "lenet",
        "--data",
        "photos",
        "--epochs",
        "25",
        "--optimizer",
        "adam",
        "--lr",
        "0.002",
        "--out",
        "run",
        "--report",
    ];
    let told = succeeds(dir, &args).stdout;
    assert!(
        told.contains("the images of photos: 3 classes, 27 images to train, 3 held back"),
        "{told}"
    );
    let told = succeeds(
        dir,
        &["predict", "-w", "run", "photos/light/2.png", "photos/dark/0.png"],
    )
    .stdout;
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[0].contains(": light ") && lines[1].contains(": dark "), "{told}");
    let told = succeeds(dir, &["eval", "-w", "run", "--data", "photos"]).stdout;
    assert!(told.contains("grey") && told.contains("100.00 %"), "{told}");
    let page = std::fs::read_to_string(dir.join("run/report.html")).unwrap();
    assert!(page.contains("Confusion matrix") && page.contains("grey"));
}

/// Writes a sheet of 4×2 cells of 10 pixels, dark ones on the left, light ones on the right, and transparent ones in the last row, which show
/// the white ground; with its table.
fn sheet(folder: &Path) {
    std::fs::create_dir_all(folder).unwrap();
    let file = std::fs::File::create(folder.join("sheet-8.png")).unwrap();
    let mut encoder = png::Encoder::new(file, 40, 80);
    encoder.set_color(png::ColorType::Rgba);
    let pixel = |i: usize| match (i % 40 < 20, i / 40 < 70) {
        (true, true) => [9, 9, 9, 255],
        (false, true) => [240, 240, 240, 255],
        (_, false) => [0, 0, 0, 0],
    };
    let pixels: Vec<u8> = (0..40 * 80).flat_map(pixel).collect();
    encoder.write_header().unwrap().write_image_data(&pixels).unwrap();
    let mut table = "column,row,category,split\n".to_string();
    for i in 0..32 {
        let class = if i % 4 < 2 && i / 4 < 7 { "dark" } else { "light" };
        let split = if i % 5 == 0 { "test" } else { "train" };
        table.push_str(&format!("{},{},{class},{split}\n", i % 4, i / 4));
    }
    std::fs::write(folder.join("labels.csv"), table + "0,0,rare,train\n").unwrap();
}

#[test]
fn a_sheet_of_pictures_is_learned_and_single_pictures_are_asked_about() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    sheet(&dir.join("signs"));
    let args = [
        "train",
        "lenet",
        "--data",
        "signs",
        "--epochs",
        "25",
        "--batch",
        "8",
        "--optimizer",
        "adam",
        "--lr",
        "0.002",
    ];
    let told = succeeds(dir, &[&args[..], &["--out", "run"]].concat()).stdout;
    assert!(
        told.contains("the pictures of signs: 2 classes, 25 images to train, 7 held back"),
        "{told}"
    );
    let config = json(dir, "run/config.json");
    assert_eq!(config["facts"]["classes"], serde_json::json!(["dark", "light"]));
    let eval = succeeds(dir, &["eval", "-w", "run", "--data", "signs", "--json"]).stdout;
    let eval: Value = serde_json::from_str(&eval).unwrap();
    assert_eq!(eval["accuracy"], 1.0, "{eval}");
    // A picture without any colour shows its ground.
    let mut encoder = png::Encoder::new(std::fs::File::create(dir.join("clear.png")).unwrap(), 5, 4);
    encoder.set_color(png::ColorType::Rgba);
    encoder.write_header().unwrap().write_image_data(&[0; 80]).unwrap();
    let told = succeeds(dir, &["predict", "-w", "run", "clear.png"]).stdout;
    assert!(told.contains("clear.png: light "), "{told}");
    // A network of these classes is not measured on others.
    for i in 0..2 {
        image(&dir.join(format!("photos/{i}/a.png")), 9);
    }
    run(dir, &["eval", "-w", "run", "--data", "photos"]).fails(1, &["photos", "classes 0, 1", "dark, light"]);
    std::fs::write(dir.join("test_batch.bin"), vec![9; 3073]).unwrap();
    run(dir, &["eval", "-w", "run", "--data", "."]).fails(1, &["airplane", "dark, light"]);
}

#[test]
fn a_network_of_too_few_classes_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for i in 1..=5 {
        std::fs::write(dir.join(format!("data_batch_{i}.bin")), vec![0; 3073]).unwrap();
    }
    std::fs::write(dir.join("test_batch.bin"), vec![0; 3073]).unwrap();
    succeeds(dir, &["train", "lenet", "--data", ".", "--epochs", "1", "--out", "run"]);
    for part in ["train", "test"] {
        std::fs::write(dir.join(format!("{part}.bin")), vec![0; 3074]).unwrap();
    }
    let hundred = ["eval", "-w", "run", "--data", ".", "--data-format", "cifar100"];
    run(dir, &hundred).fails(1, &["100 classes", "tells 10 apart"]);
}

#[test]
fn every_model_trains_on_made_up_samples() {
    let dir = tempfile::tempdir().unwrap();
    for model in ["mlp", "gpt-mini", "lenet", "vae", "deepspeech2", "transformer"] {
        let args = ["train", model, "--synthetic", "8", "--batch", "2", "--fast-dev-run"];
        let told = succeeds(dir.path(), &args).stdout;
        assert!(told.contains("made-up"), "{model}: {told}");
    }
}

#[test]
fn datasets_and_help_list_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let told = succeeds(dir.path(), &["datasets"]).stdout;
    let listed = succeeds(dir.path(), &["datasets", "--json"]).stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let help = succeeds(dir.path(), &["train", "--help"]).stdout;
    let names: Vec<&str> = listed["datasets"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "mnist",
            "cifar10",
            "cifar100",
            "sprite-sheet",
            "image-folder",
            "flat-folder",
            "csv",
            "texts",
            "conll",
            "squad",
            "cloze",
            "tokens",
            "text",
            "speech",
            "pairs",
            "spelling",
            "scenes",
            "coco",
            "voc",
            "yolo",
            "motions",
            "clip-folder"
        ]
    );
    for name in names {
        assert!(
            told.contains(&format!("{name}: ")) && help.contains(&format!("- {name}")),
            "{name}"
        );
    }
    assert_eq!(listed["datasets"][6]["models"], serde_json::json!(["mlp"]));
    let drawn = ["vae", "wgan-gp", "wgan-gp-conv", "dcgan", "stylegan2", "stylegan2-256"];
    assert_eq!(listed["datasets"][5]["models"], serde_json::json!(drawn));
    let of = |dataset: usize| listed["datasets"][dataset]["models"].as_array().unwrap();
    let small = ["lenet", "resnet18", "vgg11", "wide-resnet-28-10", "mobilenet-v2-32"];
    assert_eq!((of(1), of(2)), (&small.map(Value::from).to_vec(), of(1)));
}
