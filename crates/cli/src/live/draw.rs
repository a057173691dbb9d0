//! Draws the live view.

use super::model::{Curve, Model, Point};
use crate::chart::label;
use crate::plot::ends;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Clear, Dataset, GraphType, LineGauge, Paragraph};
use std::collections::BTreeMap;

/// The least size of the screen that has room for curves.
const CURVES: (u16, u16) = (50, 16);

/// The width from which on there are two curves beside each other, and three.
const TWO: u16 = 80;
const THREE: u16 = 150;

const KEYS: &str = "q stop   s save a checkpoint   + - learning rate   ? help";

const HELP: [&str; 9] = [
    "q, Ctrl-C  stop after this step: weights and a checkpoint are saved",
    "           again: end at once",
    "s          save a checkpoint now",
    "+          learning rate times 1.25",
    "-          learning rate divided by 1.25",
    "?          this help",
    "",
    "What is asked is noted in journal.jsonl in the folder of the run.",
    "--plain shows lines instead.",
];

/// The colours of the view; none if the user wants none.
#[derive(Debug, Clone, Copy)]
pub(super) struct Palette {
    pub(super) colored: bool,
}

impl Palette {
    fn of(self, color: Color) -> Style {
        match self.colored {
            true => Style::new().fg(color),
            false => Style::new(),
        }
    }
}

/// A line of a chart: its name, its points and its colour.
type Drawn<'a> = (String, &'a [Point], Color);

/// The colours of losses and metrics: training, validation, and those of a second phase.
const COLORS: [Color; 4] = [Color::Cyan, Color::Magenta, Color::Blue, Color::Red];

/// A chart: its title, and its lines by name.
struct Curves<'a> {
    title: String,
    lines: Vec<Drawn<'a>>,
}

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, palette: Palette) {
    let area = frame.area();
    let facts: Vec<String> = [model.training(), model.processor(), model.gpu(), model.verdict()]
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    match area.width >= CURVES.0 && area.height >= CURVES.1 {
        true => whole(frame, area, model, &facts, palette),
        false => small(frame, area, model, &facts, palette),
    }
    if model.helps {
        help(frame, area);
    }
}

/// Lines alone, the most important first, the last for the latest message.
fn small(frame: &mut Frame<'_>, area: Rect, model: &Model, facts: &[String], palette: Palette) {
    let mut lines = vec![Line::from(model.progress())];
    let facts = facts.iter().flat_map(|text| packed(text, area.width));
    lines.extend(facts.map(Line::from));
    lines.extend(
        model
            .messages(2)
            .map(|text| Line::styled(text, palette.of(Color::Yellow))),
    );
    lines.push(Line::from(KEYS));
    frame.render_widget(Paragraph::new(lines), area);
}

fn whole(frame: &mut Frame<'_>, area: Rect, model: &Model, facts: &[String], palette: Palette) {
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let titles = packed(&model.about.title, area.width);
    let facts: Vec<String> = facts.iter().flat_map(|text| packed(text, area.width)).collect();
    let rows = Layout::vertical([
        Constraint::Length(titles.len() as u16),
        Constraint::Length(1),
        Constraint::Min(6),
        Constraint::Length(facts.len() as u16),
        Constraint::Length(3),
        Constraint::Length(1),
    ]);
    let [title, progress, curves, texts, messages, keys] = rows.areas(area);
    let titles: Vec<Line<'_>> = titles.into_iter().map(|text| Line::styled(text, bold)).collect();
    frame.render_widget(Paragraph::new(titles), title);
    let gauge = LineGauge::default()
        .ratio(model.done())
        .label(model.progress())
        .filled_style(palette.of(Color::Cyan));
    frame.render_widget(gauge, progress);
    charts(frame, curves, model, palette);
    let lines: Vec<Line<'_>> = facts.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines), texts);
    let said: Vec<Line<'_>> = model.messages(3).map(Line::from).collect();
    frame.render_widget(Paragraph::new(said).style(palette.of(Color::Yellow)), messages);
    frame.render_widget(Line::styled(KEYS, Style::new().add_modifier(Modifier::DIM)), keys);
}

/// A text of parts with three spaces between them in lines of this width: a line ends between two parts, and within a part that is longer
/// than a line between two words.
fn packed(text: &str, width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let fits =
        |line: &str, more: &str, gap: usize| line.chars().count() + gap + more.chars().count() <= usize::from(width);
    for part in text.split("   ").filter(|part| !part.is_empty()) {
        match lines.last_mut() {
            Some(line) if fits(line, part, 3) => *line = format!("{line}   {part}"),
            _ => {
                lines.push(String::new());
                for word in part.split(' ') {
                    match lines.last_mut() {
                        Some(line) if line.is_empty() => line.push_str(word),
                        Some(line) if fits(line, word, 1) => *line = format!("{line} {word}"),
                        _ => lines.push(word.to_string()),
                    }
                }
            }
        }
    }
    lines
}

/// The lines of the losses by their names: `training`, or `training generator` where there are several.
fn losses<'a>(curves: &'a BTreeMap<String, Curve>, what: &str, color: usize) -> Vec<Drawn<'a>> {
    let each = curves.iter().enumerate().map(|(i, (name, curve))| {
        let name = match (curves.len(), name.split_once('/')) {
            (1, _) => what.to_string(),
            (_, Some((phase, "loss"))) => format!("{what} {phase}"),
            _ => format!("{what} {name}"),
        };
        (name, curve.points(), COLORS[(color + 2 * i) % COLORS.len()])
    });
    each.collect()
}

fn charts(frame: &mut Frame<'_>, area: Rect, model: &Model, palette: Palette) {
    let mut lines = losses(&model.train_losses, "training", 0);
    lines.extend(losses(&model.valid_losses, "validation", 1));
    let mut all = vec![Curves {
        title: "loss".to_string(),
        lines,
    }];
    if let Some(metric) = model.about.metric {
        all.push(Curves {
            title: metric.label.to_string(),
            lines: vec![
                ("training".to_string(), model.train_metric.points(), COLORS[0]),
                ("validation".to_string(), model.valid_metric.points(), COLORS[1]),
            ],
        });
    }
    all.push(Curves {
        title: "learning rate".to_string(),
        lines: vec![(String::new(), model.lrs.points(), Color::Green)],
    });
    let shown = match area.width {
        width if width >= THREE => 3,
        width if width >= TWO => 2,
        _ => 1,
    };
    all.truncate(shown);
    let columns = Layout::horizontal(vec![Constraint::Fill(1); all.len()]).split(area);
    for (curves, column) in all.iter().zip(columns.iter()) {
        chart(frame, *column, curves, palette);
    }
}

/// The ends of an axis, apart from each other even for one value.
fn span(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    let (low, high) = ends(values.filter(|v| v.is_finite()));
    (low <= high).then(|| match high - low > f64::EPSILON * high.abs().max(low.abs()) {
        true => (low, high),
        false => {
            let pad = if low == 0.0 { 0.5 } else { 0.05 * low.abs() };
            (low - pad, high + pad)
        }
    })
}

fn chart(frame: &mut Frame<'_>, area: Rect, curves: &Curves<'_>, palette: Palette) {
    let points = || curves.lines.iter().flat_map(|(_, points, _)| points.iter());
    let (above, below) = titles(curves, area.width.saturating_sub(2), palette);
    let block = Block::bordered().title(above).title_bottom(below);
    let (Some(across), Some(up)) = (span(points().map(|p| p.0)), span(points().map(|p| p.1))) else {
        frame.render_widget(Paragraph::new("no value yet").block(block), area);
        return;
    };
    let sets = curves.lines.iter().enumerate().filter(|(_, line)| !line.1.is_empty());
    let sets = sets.map(|(i, (_, points, color))| {
        Dataset::default()
            .marker(marker(i, palette))
            .graph_type(match points.len() {
                0 | 1 => GraphType::Scatter,
                _ => GraphType::Line,
            })
            .style(palette.of(*color))
            .data(points)
    });
    let axis = |(low, high): (f64, f64), middle: bool| {
        let half = middle.then_some((low + high) / 2.0);
        let labels: Vec<Line<'_>> = [Some(low), half, Some(high)]
            .into_iter()
            .flatten()
            .map(|v| Line::from(label(v)))
            .collect();
        Axis::default().bounds([low, high]).labels(labels)
    };
    let chart = Chart::new(sets.collect())
        .block(block)
        .x_axis(axis(across, false).title("epoch"))
        .y_axis(axis(up, true));
    frame.render_widget(chart, area);
}

/// The marks of a line; without colours those of the second line are larger.
fn marker(line: usize, palette: Palette) -> Marker {
    match palette.colored || line == 0 {
        true => Marker::Braille,
        false => Marker::Dot,
    }
}

/// The titles above and below a chart: its name, and the names of its lines in their colours. Those for which there is no room above are
/// below.
fn titles<'a>(curves: &'a Curves<'_>, width: u16, palette: Palette) -> (Line<'a>, Line<'a>) {
    let (mut above, mut below) = (vec![Span::raw(curves.title.as_str())], Vec::new());
    let mut room = usize::from(width).saturating_sub(curves.title.chars().count());
    let named = curves.lines.iter().enumerate();
    for (i, (name, _, color)) in named.filter(|(_, line)| !line.0.is_empty() && !line.1.is_empty()) {
        let mark = match marker(i, palette) {
            Marker::Dot => "•",
            _ => "⠒",
        };
        let text = format!("  {mark} {name}");
        let length = text.chars().count();
        let span = Span::styled(text, palette.of(*color));
        match below.is_empty() && length <= room {
            true => {
                room -= length;
                above.push(span);
            }
            false => below.push(span),
        }
    }
    (Line::from(above), Line::from(below))
}

/// The keys, over the middle of the screen.
fn help(frame: &mut Frame<'_>, area: Rect) {
    let width = HELP.iter().map(|line| line.chars().count()).max().unwrap_or(0) as u16 + 2;
    let (width, height) = (width.min(area.width), (HELP.len() as u16 + 2).min(area.height));
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(*line)).collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("keys")), place);
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{info, plan};
    use super::super::model::{About, Model};
    use super::*;
    use kiln_models::{Form, Shown};
    use kiln_monitor::{GpuState, Lap, Memory, Sample};
    use kiln_train::{EpochRecord, Execution, Values};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    const ACCURACY: Shown = Shown::new("accuracy", Form::Percent);

    fn model() -> Model {
        let about = About {
            title: "lenet, adam 0.001, batch 32, cpu".to_string(),
            metric: Some(&ACCURACY),
            samples: "images".to_string(),
            on_gpu: true,
            gpu: Some("Stub 9000".to_string()),
            ..Default::default()
        };
        let mut model = Model::new(about, plan());
        model.machine = Sample {
            lap: Lap {
                seconds: 1.0,
                cpu_utilisation: Some(0.42),
                process_cores: Some(1.5),
                process_memory: Some(64.0 * 1024.0 * 1024.0),
                cpu_celsius: Some(61.0),
                gpu_utilisation: Some(0.3),
                gpu_joules: Some(250.0),
                ..Default::default()
            },
            memory: Some(Memory {
                total: 8 << 30,
                available: 2 << 30,
            }),
            process_peak: Some(96 << 20),
            gpu: Some(GpuState {
                memory_used: Some(1 << 30),
                memory_total: Some(4 << 30),
                celsius: Some(70.0),
                ..Default::default()
            }),
        };
        for epoch in 1..=2 {
            for batch in (10..=50).step_by(10) {
                let at = (50 * (epoch - 1) + batch) as f64;
                model.step(&info(
                    epoch,
                    batch,
                    batch as f64 / 10.0,
                    batch as f64 / 100.0,
                    Some(2.0 - at / 100.0),
                ));
            }
            let values = |loss| Values::from([("loss".to_string(), loss), ("accuracy".to_string(), 1.0 - loss / 3.0)]);
            model.epoch(&EpochRecord {
                epoch,
                step: 50 * epoch,
                skipped: 0,
                lr: 0.00125,
                lrs: Values::new(),
                train: values(2.0 / epoch as f64),
                valid: Some(values(1.9 / epoch as f64)),
                best: true,
                samples: 1600,
                seconds: 5.0,
                waiting: 0.5,
                samples_per_second: 320.0,
                execution: Execution::default(),
                machine: Values::new(),
            });
        }
        model.say("checkpoint after step 100");
        model
    }

    /// The screen of this size as lines.
    fn screen(model: &Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal
            .draw(|frame| {
                draw(
                    frame,
                    model,
                    Palette {
                        colored: width.is_multiple_of(2),
                    },
                )
            })
            .unwrap();
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| row(y).trim_end().to_string()).collect()
    }

    #[test]
    fn a_screen_of_the_usual_size_has_everything() {
        let lines = screen(&model(), 100, 24);
        assert_eq!(lines[0], "lenet, adam 0.001, batch 32, cpu");
        assert!(
            lines[1].starts_with("epoch 3/4  batch 0/50  50 %  00:00:0"),
            "{}",
            lines[1]
        );
        assert!(
            lines[2].contains("loss") && lines[2].contains("accuracy"),
            "{}",
            lines[2]
        );
        let all = lines.join("\n");
        assert!(all.contains("training") && all.contains("validation"), "{all}");
        let end = &lines[14..];
        assert_eq!(
            end[0],
            "loss 1.0000   320 images/s   waiting for data 10 %   lr 0.00125   step 100"
        );
        let processor = "cpu 42 % busy   1.5 cores by this run   memory 64.0 MiB, 96.0 MiB at most";
        assert!(end[1].starts_with(processor) && all.contains("61 °C"), "{all}");
        assert!(
            all.contains("Stub 9000   30 % busy   1.0 GiB of 4.0 GiB used   70 °C   250 W"),
            "{all}"
        );
        assert!(
            all.contains("steps are too small for the GPU: busy 30 % of the time"),
            "{all}"
        );
        // A long verdict goes on in the next line.
        assert!(lines.join(" ").contains("larger batches would help"), "{all}");
        assert!(end.contains(&"checkpoint after step 100".to_string()), "{all}");
        assert_eq!(lines[23], KEYS);
        // The curve of the loss goes down from the left to the right: its first column is higher than its last.
        let dots = |x: usize| lines[3..12].iter().position(|l| is_dot(l.chars().nth(x)));
        assert!(dots(8) < dots(45), "{all}");
    }

    fn is_dot(c: Option<char>) -> bool {
        c.is_some_and(|c| ('\u{2801}'..='\u{28ff}').contains(&c))
    }

    #[test]
    fn a_small_screen_has_lines_and_none_is_too_small() {
        let lines = screen(&model(), 40, 8);
        assert!(lines[0].starts_with("epoch 3/4"), "{lines:?}");
        assert!(lines[1].starts_with("loss 1.0000"), "{lines:?}");
        let mut other = Model::new(About::default(), plan());
        for helps in [false, true] {
            other.helps = helps;
            let mut full = model();
            full.helps = helps;
            for (width, height) in [
                (1, 1),
                (10, 3),
                (50, 16),
                (51, 17),
                (3, 40),
                (200, 2),
                (80, 25),
                (300, 90),
            ] {
                screen(&full, width, height);
                screen(&other, width, height);
            }
        }
    }

    #[test]
    fn losses_of_phases_have_their_names() {
        let mut model = model();
        let values = [("critic/loss", 1.0), ("generator/loss", 2.0)].map(|(name, v)| (name.to_string(), v));
        model.train_losses.clear();
        model.step(&kiln_train::StepInfo {
            values: values.into(),
            ..info(3, 10, 1.0, 0.0, None)
        });
        let all = screen(&model, 180, 30).join("\n");
        for text in [
            "training critic",
            "training generator",
            "learning rate",
            "critic/loss 1.0000",
        ] {
            assert!(all.contains(text), "{text}: {all}");
        }
    }

    #[test]
    fn texts_are_broken_between_their_parts() {
        let text = "loss 1.0   320 images/s   waiting for data 10 %";
        assert_eq!(packed(text, 80), [text]);
        assert_eq!(packed(text, 30), ["loss 1.0   320 images/s", "waiting for data 10 %"]);
        assert_eq!(
            packed(text, 12),
            ["loss 1.0", "320 images/s", "waiting for", "data 10 %"]
        );
        assert_eq!(packed(text, 0).len(), 9);
        assert!(packed("", 10).is_empty());
    }

    #[test]
    fn names_of_lines_without_room_above_a_chart_are_below_it() {
        let points = [(1.0, 2.0)];
        let names = ["training critic", "training generator", "validation", "none yet"];
        let lines = names.map(|name| {
            (
                name.to_string(),
                if name == "none yet" { &[][..] } else { &points[..] },
                Color::Red,
            )
        });
        let curves = Curves {
            title: "loss".to_string(),
            lines: lines.into(),
        };
        let both = |width| {
            let (above, below) = titles(&curves, width, Palette { colored: true });
            (above.to_string(), below.to_string())
        };
        let (above, below) = both(38);
        assert_eq!(
            (&above[..], &below[..]),
            ("loss  ⠒ training critic", "  ⠒ training generator  ⠒ validation")
        );
        assert!(both(80).1.is_empty());
    }

    #[test]
    fn help_lies_over_the_curves() {
        let mut model = model();
        model.helps = true;
        let all = screen(&model, 100, 30).join("\n");
        HELP.iter()
            .for_each(|line| assert!(all.contains(line.trim_end()), "{line}"));
        assert!(all.contains(KEYS));
    }

    #[test]
    fn curves_of_one_value_and_of_none_have_an_axis() {
        assert_eq!(span([].into_iter()), None);
        assert_eq!(span([f64::NAN].into_iter()), None);
        assert_eq!(span([2.0, 2.0].into_iter()), Some((1.9, 2.1)));
        assert_eq!(span([0.0].into_iter()), Some((-0.5, 0.5)));
        assert_eq!(span([1.0, f64::INFINITY, 3.0].into_iter()), Some((1.0, 3.0)));
    }
}
