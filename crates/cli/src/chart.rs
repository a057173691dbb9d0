//! Line charts as SVG inside of a page, whose style gives the colours.

use crate::html::{Tag, tag};
use crate::plot::{ends, share};

/// The width and the height of a chart, and the space for its axes.
const SIZE: (f64, f64) = (480.0, 270.0);
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// The number of points up to which each is a dot that shows its value.
const DOTS: usize = 120;

/// The ratio of the largest to the smallest value from which on an axis is logarithmic.
const DECADES: f64 = 100.0;

/// The number of steps of a vertical axis, about.
const TICKS: f64 = 5.0;

/// A line of a chart.
pub(crate) struct Series {
    pub(crate) name: String,
    /// Points by growing `x`; a `y` that is not finite interrupts the line.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Lines over one axis, with a legend if there are several.
pub(crate) struct Chart {
    pub(crate) title: String,
    pub(crate) x: &'static str,
    pub(crate) series: Vec<Series>,
    /// True for a logarithmic axis where the values are that far apart.
    pub(crate) log: bool,
}

/// The vertical axis: its ends, as logarithms if `log`.
struct Axis {
    ends: (f64, f64),
    log: bool,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>, log: bool) -> Self {
        let (low, high) = ends(values);
        let log = log && low > 0.0 && high / low > DECADES;
        let ends = match (log, step(low, high, TICKS)) {
            (true, _) => (low.log10(), high.log10()),
            // A linear axis goes from tick to tick.
            (false, Some(step)) => ((low / step).floor() * step, (high / step).ceil() * step),
            (false, None) => (low, high),
        };
        Axis { ends, log }
    }

    fn share(&self, value: f64) -> f64 {
        share(self.ends, if self.log { value.log10() } else { value })
    }

    /// The values at which the axis is labelled.
    fn ticks(&self) -> Vec<f64> {
        let (low, high) = self.ends;
        match self.log {
            false => ticks(low, high, TICKS),
            true => (low.ceil() as i32..=high.floor() as i32)
                .map(|power| 10f64.powi(power))
                .collect(),
        }
    }
}

/// 1, 2 or 5 times a power of ten that is in a range about `count` times; `None` for a range of one value or none.
fn step(low: f64, high: f64, count: f64) -> Option<f64> {
    let rough = (high - low) / count;
    if !(rough > 0.0 && rough.is_finite()) {
        return None;
    }
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|m| m * power)
        .into_iter()
        .find(|step| *step >= rough)
}

/// The multiples of such a step from `low` to `high`; `low` alone if the two are equal, nothing if there is no range.
fn ticks(low: f64, high: f64, count: f64) -> Vec<f64> {
    let Some(step) = step(low, high, count) else {
        // Without values the ends are infinite.
        return Vec::from_iter(low.is_finite().then_some(low));
    };
    let (first, last) = ((low / step - 1e-9).ceil() as i64, (high / step + 1e-9).floor() as i64);
    (first..=last).map(|n| n as f64 * step).collect()
}

/// A number with up to four significant digits.
pub(crate) fn label(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".to_string();
    }
    if !(1e-3..1e6).contains(&size) {
        let text = format!("{value:.2e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{power}", trimmed(digits));
    }
    let digits = (3 - size.log10().floor() as i32).max(0) as usize;
    trimmed(&format!("{value:.digits$}")).to_string()
}

/// The digits without zeros at their end.
fn trimmed(digits: &str) -> &str {
    match digits.contains('.') {
        true => digits.trim_end_matches('0').trim_end_matches('.'),
        false => digits,
    }
}

impl Chart {
    /// The chart as a figure with its title.
    pub(crate) fn figure(&self) -> Tag {
        let legend = self.series.iter().enumerate().map(|(i, series)| {
            let mark = tag("span").class(&format!("mark c{}", i % 6));
            tag("span").class("key").with(mark).text(&series.name)
        });
        let mut caption = tag("figcaption").with(tag("strong").text(&self.title));
        if self.series.len() > 1 {
            caption = caption.each(legend);
        }
        tag("figure").with(caption).with(self.svg())
    }

    fn svg(&self) -> Tag {
        let points = || self.series.iter().flat_map(|s| &s.points);
        let across = ends(points().map(|p| p.0));
        let up = Axis::of(points().map(|p| p.1).filter(|y| y.is_finite()), self.log);
        let right = SIZE.0 - RIGHT;
        let bottom = SIZE.1 - BOTTOM;
        let x = |value: f64| LEFT + share(across, value) * (right - LEFT);
        let y = |value: f64| bottom - up.share(value) * (bottom - TOP);
        let text = |class: &str, at: (f64, f64), text: &str| {
            let at_x = format!("{:.1}", at.0);
            let at_y = format!("{:.1}", at.1);
            tag("text").class(class).attr("x", at_x).attr("y", at_y).text(text)
        };
        let line = |class: &str, d: String| tag("path").class(class).attr("d", d);
        let mut svg = tag("svg")
            .attr("viewBox", format!("0 0 {} {}", SIZE.0, SIZE.1))
            .attr("role", "img")
            .attr("aria-label", &self.title);
        for value in up.ticks() {
            let at = y(value);
            svg = svg.with(line("grid", format!("M{LEFT} {at:.1}H{right}"))).with(text(
                "end",
                (LEFT - 6.0, at + 4.0),
                &label(value),
            ));
        }
        // Epochs and steps are whole numbers.
        for value in ticks(across.0, across.1, 6.0).iter().filter(|v| v.fract() == 0.0) {
            let at = x(*value);
            svg = svg.with(line("axis", format!("M{at:.1} {bottom}v4"))).with(text(
                "middle",
                (at, bottom + 17.0),
                &label(*value),
            ));
        }
        svg = svg
            .with(line("axis", format!("M{LEFT} {TOP}V{bottom}H{right}")))
            .with(text("middle", ((LEFT + right) / 2.0, SIZE.1 - 6.0), self.x));
        for (i, series) in self.series.iter().enumerate() {
            let class = format!("c{}", i % 6);
            let parts = series.points.split(|p| !p.1.is_finite()).filter(|part| part.len() > 1);
            for part in parts {
                let at = |p: &(f64, f64)| format!("{:.1},{:.1}", x(p.0), y(p.1));
                let all: Vec<String> = part.iter().map(at).collect();
                svg = svg.with(tag("polyline").class(&class).attr("points", all.join(" ")));
            }
            let finite = || series.points.iter().filter(|p| p.1.is_finite());
            if finite().count() > DOTS {
                continue;
            }
            for point in finite() {
                let told = format!("{} {}: {} {}", self.x, label(point.0), series.name, label(point.1));
                let dot = tag("circle")
                    .class(&class)
                    .attr("cx", format!("{:.1}", x(point.0)))
                    .attr("cy", format!("{:.1}", y(point.1)))
                    .attr("r", 2.5);
                svg = svg.with(dot.with(tag("title").text(told)));
            }
        }
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_labelled_with_round_numbers() {
        assert_eq!(ticks(0.0, 1.0, 5.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(ticks(1.0, 30.0, 6.0), [5.0, 10.0, 15.0, 20.0, 25.0, 30.0]);
        assert_eq!(ticks(2.0, 2.0, 5.0), [2.0]);
        assert!(ticks(f64::INFINITY, f64::NEG_INFINITY, 5.0).is_empty());
        assert_eq!(
            [0.0, 0.6000000000000001, 1.0, 5974.3, 12e6, 3e-4, -0.25].map(label),
            ["0", "0.6", "1", "5974", "1.2e7", "3e-4", "-0.25"]
        );
        assert_eq!(
            Axis::of([1e-4, 1.0].into_iter(), true).ticks(),
            [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
        );
    }

    #[test]
    fn a_line_is_interrupted_where_there_is_no_value() {
        let chart = |points: Vec<(f64, f64)>| Chart {
            title: "loss".to_string(),
            x: "epoch",
            log: false,
            series: vec![Series {
                name: "train".to_string(),
                points,
            }],
        };
        let gap = chart(vec![(1.0, 2.0), (2.0, 1.0), (3.0, f64::NAN), (4.0, 1.5), (5.0, 0.5)]);
        let svg = gap.figure().to_string();
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains("<title>epoch 5: train 0.5</title>"), "{svg}");
        for few in [vec![], vec![(1.0, 1.0)], vec![(1.0, f64::NAN)]] {
            let svg = chart(few).figure().to_string();
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }
}
