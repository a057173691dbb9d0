//! A curve over a logarithmic axis, as text and as an SVG image.

/// A curve of positive `x` and any `y`, and a point on it to mark.
pub(crate) struct Plot<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
    /// The `x` at which a line is drawn.
    pub(crate) marked: Option<f64>,
}

/// The part of an axis from its lower to its upper end, 0 to 1.
pub(crate) fn share((low, high): (f64, f64), value: f64) -> f64 {
    match high > low {
        true => ((value - low) / (high - low)).clamp(0.0, 1.0),
        false => 0.5,
    }
}

/// The smallest and the largest value.
pub(crate) fn ends(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
        (low.min(v), high.max(v))
    })
}

impl Plot<'_> {
    /// The decimal logarithms of the ends of the horizontal axis.
    fn across(&self) -> (f64, f64) {
        ends(self.points.iter().map(|p| p.0.log10()))
    }

    fn up(&self) -> (f64, f64) {
        ends(self.points.iter().map(|p| p.1))
    }

    /// The curve in `width` by `height` characters, with its axes.
    pub(crate) fn text(&self, width: usize, height: usize) -> String {
        let (across, up) = (self.across(), self.up());
        let column = |x: f64| (share(across, x.log10()) * (width - 1) as f64).round() as usize;
        let mut cells = vec![vec![' '; width]; height];
        if let Some(x) = self.marked {
            cells.iter_mut().for_each(|row| row[column(x)] = '|');
        }
        for (x, y) in &self.points {
            let row = height - 1 - (share(up, *y) * (height - 1) as f64).round() as usize;
            cells[row][column(*x)] = '*';
        }
        let label = |row: usize| match row {
            0 => format!("{:>10.4} ", up.1),
            last if last + 1 == height => format!("{:>10.4} ", up.0),
            _ => " ".repeat(11),
        };
        let rows = cells
            .iter()
            .enumerate()
            .map(|(i, row)| label(i) + row.iter().collect::<String>().trim_end());
        let mut lines = vec![format!("{}{}", " ".repeat(11), self.y)];
        lines.extend(rows);
        let (first, last) = (
            format!("{:.0e}", 10f64.powf(across.0)),
            format!("{:.0e}", 10f64.powf(across.1)),
        );
        let gap = width.saturating_sub(first.len() + last.len() + self.x.len()) / 2;
        let gap = " ".repeat(gap);
        lines.push(format!("{}{first}{gap}{}{gap}{last}", " ".repeat(11), self.x));
        lines.join("\n")
    }

    /// The curve as an SVG image.
    pub(crate) fn svg(&self) -> String {
        const SIZE: (f64, f64) = (640.0, 400.0);
        const MARGIN: f64 = 60.0;
        let (across, up) = (self.across(), self.up());
        let x = |value: f64| MARGIN + share(across, value) * (SIZE.0 - 2.0 * MARGIN);
        let y = |value: f64| SIZE.1 - MARGIN - share(up, value) * (SIZE.1 - 2.0 * MARGIN);
        let text = |at: (f64, f64), anchor: &str, text: &str| {
            format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{text}</text>\n",
                at.0, at.1
            )
        };
        let (left, right, top, bottom) = (MARGIN, SIZE.0 - MARGIN, MARGIN, SIZE.1 - MARGIN);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <path d=\"M{left} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>\n",
            SIZE.0, SIZE.1
        );
        svg += &text((SIZE.0 / 2.0, 30.0), "middle", self.title);
        svg += &text((SIZE.0 / 2.0, SIZE.1 - 15.0), "middle", self.x);
        svg += &text((left, top - 10.0), "middle", self.y);
        for power in across.0.ceil() as i32..=across.1.floor() as i32 {
            let at = x(f64::from(power));
            svg += &format!("<path d=\"M{at:.1} {bottom}v5\" stroke=\"black\"/>\n");
            svg += &text((at, bottom + 20.0), "middle", &format!("1e{power}"));
        }
        for step in 0..=4 {
            let value = up.0 + f64::from(step) / 4.0 * (up.1 - up.0);
            svg += &format!("<path d=\"M{left} {:.1}h-5\" stroke=\"black\"/>\n", y(value));
            svg += &text((left - 8.0, y(value) + 4.0), "end", &format!("{value:.3}"));
        }
        if let Some(marked) = self.marked {
            let at = x(marked.log10());
            svg += &format!("<path d=\"M{at:.1} {top}V{bottom}\" stroke=\"crimson\" stroke-dasharray=\"4\"/>\n");
            svg += &text((at, top - 4.0), "middle", &format!("{marked:.1e}"));
        }
        let curve: Vec<String> = self
            .points
            .iter()
            .map(|(a, b)| format!("{:.1},{:.1}", x(a.log10()), y(*b)))
            .collect();
        svg += &format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"steelblue\" stroke-width=\"2\"/>\n",
            curve.join(" ")
        );
        svg + "</svg>\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_drawn_from_end_to_end() {
        let plot = Plot {
            title: "t",
            x: "rate",
            y: "loss",
            points: vec![(1e-4, 2.0), (1e-3, 1.0), (1e-2, 3.0)],
            marked: Some(1e-3),
        };
        let text = plot.text(21, 5);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "    3.0000           |         *");
        assert_eq!(lines[3], "           *         |");
        assert_eq!(lines[5], "    1.0000           *");
        assert_eq!(lines[6], "           1e-4    rate    1e-2");
        let svg = plot.svg();
        assert!(svg.contains("points=\"60.0,200.0 320.0,340.0 580.0,60.0\""), "{svg}");
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        // One point alone is no division by zero.
        let alone = Plot {
            points: vec![(1.0, 1.0)],
            marked: None,
            ..plot
        };
        assert!(!alone.svg().contains("NaN") && !alone.text(10, 3).contains("NaN"));
    }
}
