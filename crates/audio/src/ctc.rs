//! Labels from the log-probabilities of a network that was trained with CTC.

use crate::{LanguageModel, Result};
use kiln_core::Error;
use std::collections::HashMap;

/// Checks log-probabilities `[steps, classes]`.
fn check(op: &'static str, log_probs: &[f32], classes: usize, blank: usize) -> Result<()> {
    if blank >= classes {
        return Err(Error::invalid(op, "blank", blank, format!("below {classes}, the number of classes")).into());
    }
    if !log_probs.len().is_multiple_of(classes) {
        let expected = format!("rows of {classes}");
        return Err(Error::invalid(op, "log_probs", format!("{} numbers", log_probs.len()), expected).into());
    }
    Ok(())
}

/// The labels of the most probable alignment of log-probabilities `[steps, classes]`: of each step the most probable class, the first of
/// equals, repetitions merged and blanks left out.
///
/// # Errors
/// [`Error::InvalidArgument`] for a blank that is no class, or numbers that are no rows of classes.
pub fn ctc_greedy(log_probs: &[f32], classes: usize, blank: usize) -> Result<Vec<usize>> {
    check("ctc_greedy", log_probs, classes, blank)?;
    let mut labels = Vec::new();
    let mut before = blank;
    for row in log_probs.chunks_exact(classes) {
        let best = (1..classes).fold(0, |best, c| if row[c] > row[best] { c } else { best });
        if best != blank && best != before {
            labels.push(best);
        }
        before = best;
    }
    Ok(labels)
}

/// Prefix beam search (Hannun et al., "First-pass large vocabulary continuous speech recognition using bi-directional recurrent DNNs",
/// 2014). Beginnings of labels are kept by `ln p(labels) + lm_weight·ln p_lm(labels) + label_bonus·count`, where `p(labels)` is the sum over
/// their alignments; a language model's end of text is part of the final score.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BeamSearch {
    /// How many beginnings are kept after each step, at least 1.
    pub width: usize,
    /// The class of the blank.
    pub blank: usize,
    /// The weight of the language model.
    pub lm_weight: f64,
    /// The bonus that each label adds to the score: a language model alone prefers few labels.
    pub label_bonus: f64,
}

impl Default for BeamSearch {
    /// 16 beginnings, blank 0, the language model at 0.5, a bonus of 0.
    fn default() -> Self {
        BeamSearch {
            width: 16,
            blank: 0,
            lm_weight: 0.5,
            label_bonus: 0.0,
        }
    }
}

/// Labels that a beam search found.
#[derive(Debug, Clone, PartialEq)]
pub struct Hypothesis {
    /// The labels.
    pub labels: Vec<usize>,
    /// The logarithm of the probability of the alignments that were followed.
    pub log_prob: f64,
    /// The score that it was ranked by: a logarithm, larger for better ones.
    pub score: f64,
}

/// A beginning of labels: the one without the last, and that.
struct Node {
    parent: usize,
    label: usize,
    count: usize,
    /// ln p of the language model.
    lm: f64,
}

/// The logarithms of the probabilities of the alignments of a beginning that end in a blank and in its last label.
#[derive(Clone, Copy)]
struct Ends {
    blank: f64,
    label: f64,
}

impl Ends {
    const NEVER: Ends = Ends {
        blank: f64::NEG_INFINITY,
        label: f64::NEG_INFINITY,
    };

    fn both(self) -> f64 {
        log_add(self.blank, self.label)
    }
}

fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if high == f64::NEG_INFINITY {
        high
    } else {
        high + (low - high).exp().ln_1p()
    }
}

/// All beginnings so far; the first is that of no labels.
struct Tree<'a> {
    nodes: Vec<Node>,
    children: HashMap<(usize, usize), usize>,
    model: Option<&'a dyn LanguageModel>,
}

impl Tree<'_> {
    fn labels(&self, mut node: usize) -> Vec<usize> {
        let mut labels = Vec::with_capacity(self.nodes[node].count);
        while node != 0 {
            labels.push(self.nodes[node].label);
            node = self.nodes[node].parent;
        }
        labels.reverse();
        labels
    }

    fn child(&mut self, parent: usize, label: usize) -> usize {
        if let Some(node) = self.children.get(&(parent, label)) {
            return *node;
        }
        let log_prob = self
            .model
            .map_or(0.0, |model| model.log_prob(&self.labels(parent), Some(label)));
        let Node { count, lm, .. } = self.nodes[parent];
        self.nodes.push(Node {
            parent,
            label,
            count: count + 1,
            lm: lm + log_prob,
        });
        let node = self.nodes.len() - 1;
        self.children.insert((parent, label), node);
        node
    }
}

impl BeamSearch {
    /// The best labels of log-probabilities `[steps, classes]`, at most `width`, the best first; of equals the one found first.
    ///
    /// # Errors
    /// Those of [`ctc_greedy`]; [`Error::InvalidArgument`] for a width of 0.
    pub fn decode(
        &self,
        log_probs: &[f32],
        classes: usize,
        model: Option<&dyn LanguageModel>,
    ) -> Result<Vec<Hypothesis>> {
        check("BeamSearch", log_probs, classes, self.blank)?;
        if self.width == 0 {
            return Err(Error::invalid("BeamSearch", "width", 0, "at least 1").into());
        }
        let root = Node {
            parent: 0,
            label: self.blank,
            count: 0,
            lm: 0.0,
        };
        let mut tree = Tree {
            nodes: vec![root],
            children: HashMap::new(),
            model,
        };
        let start = Ends {
            blank: 0.0,
            label: f64::NEG_INFINITY,
        };
        let mut beams = vec![(0, start)];
        for row in log_probs.chunks_exact(classes) {
            beams = self.step(&mut tree, &beams, row);
        }
        let mut found: Vec<Hypothesis> = beams
            .iter()
            .map(|&(node, ends)| {
                let labels = tree.labels(node);
                let end = model.map_or(0.0, |model| model.log_prob(&labels, None));
                let score = self.score(&tree.nodes[node], ends) + self.lm_weight * end;
                Hypothesis {
                    labels,
                    log_prob: ends.both(),
                    score,
                }
            })
            .collect();
        found.sort_by(|a, b| b.score.total_cmp(&a.score));
        Ok(found)
    }

    fn score(&self, node: &Node, ends: Ends) -> f64 {
        let lm = if node.count == 0 { 0.0 } else { self.lm_weight * node.lm };
        ends.both() + lm + self.label_bonus * node.count as f64
    }

    /// The beginnings that are kept after another step.
    fn step(&self, tree: &mut Tree<'_>, beams: &[(usize, Ends)], row: &[f32]) -> Vec<(usize, Ends)> {
        let mut next: Vec<(usize, Ends)> = Vec::new();
        let mut places: HashMap<usize, usize> = HashMap::new();
        let mut at = |node: usize, next: &mut Vec<(usize, Ends)>| {
            *places.entry(node).or_insert_with(|| {
                next.push((node, Ends::NEVER));
                next.len() - 1
            })
        };
        for &(node, ends) in beams {
            for (class, &log_prob) in row.iter().enumerate() {
                let p = f64::from(log_prob);
                if p == f64::NEG_INFINITY {
                    continue;
                }
                if class == self.blank {
                    let place = at(node, &mut next);
                    let to = &mut next[place].1.blank;
                    *to = log_add(*to, ends.both() + p);
                    continue;
                }
                let repeated = node != 0 && tree.nodes[node].label == class;
                if repeated {
                    let place = at(node, &mut next);
                    let to = &mut next[place].1.label;
                    *to = log_add(*to, ends.label + p);
                }
                // A label behind itself needs a blank between them.
                let from = if repeated { ends.blank } else { ends.both() };
                if from == f64::NEG_INFINITY {
                    continue;
                }
                let place = at(tree.child(node, class), &mut next);
                let to = &mut next[place].1.label;
                *to = log_add(*to, from + p);
            }
        }
        let mut ranked: Vec<_> = next
            .into_iter()
            .map(|(node, ends)| (self.score(&tree.nodes[node], ends), node, ends))
            .collect();
        ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        ranked.truncate(self.width);
        ranked.into_iter().map(|(_, node, ends)| (node, ends)).collect()
    }
}
