//! The rows of a profile, from the marks: the time of each scope by itself, and its least time.

use crate::record::{Detail, Mark, ScopeInfo, Step, Timeline};
use kiln_core::{Cost, Shape};

/// The time and work of one scope in one direction, per step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Share {
    /// Seconds without those of inner scopes: the median over the steps.
    pub seconds: f64,
    /// The part of these seconds spent inside of ops, the rest being host work: the median over the steps.
    pub in_ops: f64,
    /// Number of ops.
    pub ops: u64,
    /// The least cost of the ops.
    pub cost: Cost,
    /// The sum of the least seconds of each op.
    pub floor: f64,
}

/// One scope over all steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Dotted path of a layer, or name of a part.
    pub name: String,
    /// The outermost part of the step that it lies in; empty for such a part itself, and outside of any.
    pub inside: String,
    /// Type of a layer; empty for a part of the step.
    pub kind: &'static str,
    /// Shape of a layer's input.
    pub input: Option<Shape>,
    /// Shape of a layer's output.
    pub output: Option<Shape>,
    /// Forward passes of one step.
    pub calls: u64,
    /// The forward pass of a layer; everything in a part.
    pub forward: Share,
    /// Gradients of the ops that the forward pass recorded.
    pub backward: Share,
    /// The ops for which the backend chose among algorithms, each with its choice in the last step.
    pub algorithms: Vec<(&'static str, &'static str)>,
}

impl Row {
    /// True if it is a layer, rather than a part of the step.
    pub fn is_layer(&self) -> bool {
        self.input.is_some()
    }

    /// Seconds of both directions.
    pub fn seconds(&self) -> f64 {
        self.forward.seconds + self.backward.seconds
    }

    /// The least seconds of both directions.
    pub fn floor(&self) -> f64 {
        self.forward.floor + self.backward.floor
    }

    /// Seconds of both directions above the least seconds.
    pub fn gap(&self) -> f64 {
        self.seconds() - self.floor()
    }

    /// The least cost of both directions.
    pub fn cost(&self) -> Cost {
        self.forward.cost + self.backward.cost
    }
}

/// The time and work of a scope in one step, in nanoseconds: forward, then backward.
#[derive(Clone, Copy, Default)]
struct Taken {
    calls: u64,
    own: [u64; 2],
    in_ops: [u64; 2],
    ops: [u64; 2],
    cost: [Cost; 2],
    floor: [f64; 2],
}

/// The time and work of every scope in one step. Each nanosecond of the step is in exactly one scope.
fn taken(step: &Step, scopes: usize, floor: &dyn Fn(Cost) -> f64) -> Vec<Taken> {
    let mut all = vec![Taken::default(); scopes];
    let mut open: Vec<(usize, usize)> = vec![(0, 0)];
    let mut since = step.start;
    for mark in &step.marks {
        let (scope, way) = open.last().copied().unwrap_or((0, 0));
        let now = match *mark {
            Mark::Enter { at, .. } | Mark::Leave { at } => at,
            Mark::Op { end, .. } => end,
        };
        all[scope].own[way] += now.saturating_sub(since);
        since = now;
        match *mark {
            Mark::Enter { scope, gradient, .. } => {
                let (scope, way) = (scope as usize, usize::from(gradient.is_some()));
                all[scope].calls += u64::from(gradient.is_none());
                open.push((scope, way));
            }
            Mark::Leave { .. } => drop(open.pop()),
            Mark::Op { start, end, cost, .. } => {
                let own = &mut all[scope];
                own.in_ops[way] += end.saturating_sub(start);
                own.ops[way] += 1;
                own.cost[way] += cost;
                own.floor[way] += floor(cost);
            }
        }
    }
    all[0].own[0] += step.end.saturating_sub(since);
    all
}

/// The ops of every scope for which an algorithm was chosen, in one step.
fn algorithms(step: &Step, scopes: usize) -> Vec<Vec<(&'static str, &'static str)>> {
    let mut all = vec![Vec::new(); scopes];
    let mut open = vec![0];
    for mark in &step.marks {
        match *mark {
            Mark::Enter { scope, .. } => open.push(scope as usize),
            Mark::Leave { .. } => drop(open.pop()),
            Mark::Op {
                name,
                detail: Detail::Conv(_, Some(algorithm)) | Detail::Product(_, Some(algorithm)),
                ..
            } => {
                let of_scope = &mut all[open.last().copied().unwrap_or(0)];
                if !of_scope.contains(&(name, algorithm)) {
                    of_scope.push((name, algorithm));
                }
            }
            Mark::Op { .. } => {}
        }
    }
    all
}

/// The median of some numbers; 0 if there are none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    match n {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

impl Timeline {
    /// A row for every scope, in the order in which the scopes were first entered; `floor` gives the least seconds of an
    /// op. The first row is the step itself: the time and the ops that are in no other scope.
    ///
    /// In each step the times of all scopes add up to that step's. The rows hold medians over all steps, which add up to about
    /// the median step.
    pub fn rows(&self, floor: &dyn Fn(Cost) -> f64) -> Vec<Row> {
        let steps: Vec<Vec<Taken>> = self.steps.iter().map(|s| taken(s, self.scopes.len(), floor)).collect();
        let last = self.steps.last();
        let mut chosen = last.map_or_else(Vec::new, |step| algorithms(step, self.scopes.len()));
        let row = |(i, scope): (usize, &ScopeInfo)| {
            let middle = |f: &dyn Fn(&Taken) -> u64| median(steps.iter().map(|s| f(&s[i]) as f64 * 1e-9).collect());
            let last = steps.last().map(|s| s[i]).unwrap_or_default();
            let share = |way: usize| Share {
                seconds: middle(&|t| t.own[way]),
                in_ops: middle(&|t| t.in_ops[way]),
                ops: last.ops[way],
                cost: last.cost[way],
                floor: last.floor[way],
            };
            Row {
                name: scope.name.clone(),
                inside: self.outermost(i),
                kind: scope.kind,
                input: scope.input,
                output: scope.output,
                calls: last.calls,
                forward: share(0),
                backward: share(1),
                algorithms: chosen.get_mut(i).map(std::mem::take).unwrap_or_default(),
            }
        };
        self.scopes.iter().enumerate().map(row).collect()
    }

    /// The name of the outermost scope around scope `i`, the step left out.
    fn outermost(&self, i: usize) -> String {
        let (mut at, mut name) = (self.scopes[i].parent as usize, "");
        while at != 0 {
            name = &self.scopes[at].name;
            at = self.scopes[at].parent as usize;
        }
        name.to_string()
    }

    /// Seconds of a step: the median over all of them.
    pub fn step_seconds(&self) -> f64 {
        median(self.steps.iter().map(|s| (s.end - s.start) as f64 * 1e-9).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Detail, Recorder};
    use kiln_core::{Observer, Scope};

    #[test]
    fn medians_are_in_the_middle() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    /// A step of 100 ns: a part from 10 to 90 around a layer from 20 to 50 with an op from 25 to 45, and a gradient of it
    /// from 60 to 80 with an op from 60 to 75.
    fn timeline() -> Timeline {
        let recorder = Recorder::new();
        let input = Shape::new(&[2, 3]).unwrap();
        recorder.begin();
        recorder.enter_part("model");
        recorder.enter(&Scope::Layer {
            name: "fc",
            kind: "Linear",
            input: &input,
        });
        recorder.leave(Some(&input));
        recorder.leave(None);
        recorder.end(true);
        let mut timeline = recorder.timeline();
        let op = |start, end| Mark::Op {
            start,
            end,
            name: "linear",
            cost: Cost { flops: 10, bytes: 4 },
            detail: Detail::Elements(6),
        };
        let enter = |at, scope, gradient| Mark::Enter { at, scope, gradient };
        timeline.steps = vec![Step {
            start: 0,
            end: 100,
            marks: vec![
                enter(10, 1, None),
                enter(20, 2, None),
                op(25, 45),
                Mark::Leave { at: 50 },
                enter(60, 2, Some("linear")),
                op(60, 75),
                Mark::Leave { at: 80 },
                Mark::Leave { at: 90 },
            ],
        }];
        timeline
    }

    #[test]
    fn every_nanosecond_is_in_one_row() {
        let timeline = timeline();
        let rows = timeline.rows(&|cost| cost.flops as f64 * 1e-9);
        let names: Vec<_> = rows.iter().map(|r| (r.name.as_str(), r.kind)).collect();
        assert_eq!(names, [("step", ""), ("model", ""), ("fc", "Linear")]);
        assert_eq!(
            rows.iter().map(|r| r.inside.as_str()).collect::<Vec<_>>(),
            ["", "", "model"]
        );
        let near = |a: f64, b: f64| assert!((a - b * 1e-9).abs() < 1e-15, "{a} is not {b} ns");
        near(rows[0].seconds(), 20.0);
        near(rows[1].seconds(), 30.0);
        let fc = &rows[2];
        near(fc.forward.seconds, 30.0);
        near(fc.forward.in_ops, 20.0);
        near(fc.backward.seconds, 20.0);
        near(fc.backward.in_ops, 15.0);
        near(fc.floor(), 20.0);
        near(fc.gap(), 30.0);
        assert_eq!((fc.calls, fc.forward.ops, fc.cost().flops), (1, 1, 20));
        assert!(fc.is_layer() && !rows[1].is_layer());
        near(rows.iter().map(Row::seconds).sum(), 100.0);
        near(timeline.step_seconds(), 100.0);
    }

    #[test]
    fn outside_of_a_step_nothing_is_kept() {
        let recorder = Recorder::new();
        let mark = Mark::Leave { at: 1 };
        recorder.enter_part("early");
        recorder.op(mark);
        recorder.leave(None);
        recorder.begin();
        recorder.end(false);
        let timeline = recorder.timeline();
        assert!(timeline.steps.is_empty());
        assert_eq!(timeline.scopes.len(), 1);
        assert_eq!((recorder.scope(), timeline.step_seconds()), (0, 0.0));
    }

    #[test]
    fn one_field_with_inputs_of_two_shapes_is_two_scopes() {
        let recorder = Recorder::new();
        let shapes = [Shape::new(&[4]).unwrap(), Shape::new(&[2]).unwrap()];
        for _ in 0..2 {
            recorder.begin();
            for input in &shapes {
                recorder.enter(&Scope::Layer {
                    name: "pool",
                    kind: "MaxPool2d",
                    input,
                });
                recorder.leave(None);
            }
            recorder.end(true);
        }
        let timeline = recorder.timeline();
        let names: Vec<_> = timeline.scopes.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["step", "pool", "pool"]);
    }
}
