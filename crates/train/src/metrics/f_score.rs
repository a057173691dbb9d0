//! Precision, recall and F-scores from a confusion matrix.

use super::Metric;
use super::confusion::Confusion;
use super::counting::{self, Counting};
use crate::Output;
use kiln_core::{Backend, Result};
use kiln_nn::Tensor;

/// The way in which the scores of classes become one, named as the argument `average` of scikit-learn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassAverage {
    /// The score of this class alone, the positive one of two: 1 as a rule.
    Binary(usize),
    /// The score of the summed counts of all classes.
    Micro,
    /// The mean over classes. A class that neither a label nor a prediction names is left out.
    Macro,
    /// The mean over classes, each as often as it occurs among the labels.
    Weighted,
}

impl ClassAverage {
    /// `name`, and the average unless it is that of one class, as scikit-learn names its scorers.
    fn named(self, name: String) -> String {
        match self {
            ClassAverage::Binary(_) => name,
            ClassAverage::Micro => format!("{name}_micro"),
            ClassAverage::Macro => format!("{name}_macro"),
            ClassAverage::Weighted => format!("{name}_weighted"),
        }
    }
}

/// Precision, recall and F-score of a class, or an average of them. A ratio whose divisor is 0 is 0.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ClassScores {
    /// The share of the predictions of this class that are correct.
    pub precision: f64,
    /// The share of the samples of this class that are predicted correctly.
    pub recall: f64,
    /// The weighted harmonic mean of both, `(1 + β²)·P·R / (β²·P + R)`.
    pub f: f64,
    /// The number of samples of this class.
    pub support: u64,
}

impl ClassScores {
    fn of(correct: u64, predicted: u64, support: u64, beta: f64) -> Self {
        let ratio = |x: f64, y: f64| if y == 0.0 { 0.0 } else { x / y };
        let (tp, p, n) = (correct as f64, predicted as f64, support as f64);
        let beta2 = beta * beta;
        ClassScores {
            precision: ratio(tp, p),
            recall: ratio(tp, n),
            f: ratio((1.0 + beta2) * tp, beta2 * n + p),
            support,
        }
    }
}

/// The mean with weights; 0 if these sum to 0.
fn mean(scores: &[(ClassScores, f64)], support: u64) -> ClassScores {
    let total: f64 = scores.iter().map(|(_, w)| w).sum();
    let mean = |of: fn(&ClassScores) -> f64| match total {
        0.0 => 0.0,
        total => scores.iter().map(|(s, w)| of(s) * w).sum::<f64>() / total,
    };
    ClassScores {
        precision: mean(|s| s.precision),
        recall: mean(|s| s.recall),
        f: mean(|s| s.f),
        support,
    }
}

impl Confusion {
    /// Precision, recall and Fβ of each class (`sklearn.metrics.precision_recall_fscore_support` with `zero_division=0`).
    pub fn class_scores(&self, beta: f64) -> Vec<ClassScores> {
        let each = self.marginals().into_iter();
        each.map(|(tp, p, n)| ClassScores::of(tp, p, n, beta)).collect()
    }

    /// The average of precision, recall and Fβ over classes (`sklearn.metrics.precision_recall_fscore_support` with
    /// `zero_division=0`); its support is the number of all samples, or those of the one class.
    ///
    /// ```
    /// use kiln_train::{ClassAverage, Confusion};
    /// let confusion = Confusion::of(2, &[0, 0, 1, 1], &[0, 1, 1, 1])?;
    /// let scores = confusion.averaged(1.0, ClassAverage::Binary(1));
    /// assert_eq!((scores.precision, scores.recall, scores.f), (2.0 / 3.0, 1.0, 0.8));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn averaged(&self, beta: f64, average: ClassAverage) -> ClassScores {
        let marginals = self.marginals();
        let sum = |of: fn(&(u64, u64, u64)) -> u64| marginals.iter().map(of).sum();
        let samples = sum(|m| m.2);
        let scores = self.class_scores(beta).into_iter();
        match average {
            ClassAverage::Binary(class) => scores.into_iter().nth(class).unwrap_or_default(),
            ClassAverage::Micro => ClassScores::of(sum(|m| m.0), samples, samples, beta),
            ClassAverage::Macro => {
                let named = scores.zip(&marginals).filter(|(_, (_, p, n))| p + n > 0);
                mean(&named.map(|(s, _)| (s, 1.0)).collect::<Vec<_>>(), samples)
            }
            ClassAverage::Weighted => mean(&scores.map(|s| (s, s.support as f64)).collect::<Vec<_>>(), samples),
        }
    }

    /// The number of correct predictions, of predictions, and of samples of each class.
    fn marginals(&self) -> Vec<(u64, u64, u64)> {
        let of = |(class, row): (usize, &[u64])| {
            let predicted = self.rows().map(|row| row[class]).sum();
            (row[class], predicted, row.iter().sum())
        };
        self.rows().enumerate().map(of).collect()
    }
}

/// The settings of a metric of this file, and its last counts.
#[derive(Debug, Clone, PartialEq)]
struct Scored {
    counting: Counting,
    average: ClassAverage,
    beta: f64,
    last: Option<Confusion>,
}

impl Scored {
    fn new(classes: usize, average: ClassAverage, beta: f64) -> Self {
        Scored {
            counting: Counting::new(classes),
            average,
            beta,
            last: None,
        }
    }

    fn value(&mut self, sum: &[f64], of: fn(ClassScores) -> f64) -> f64 {
        let confusion = Confusion::from_sum(self.counting.classes(), sum);
        of(self.last.insert(confusion).averaged(self.beta, self.average))
    }
}

/// A metric that computes one field of [`ClassScores`].
macro_rules! scored {
    ($(#[$doc:meta])* $metric:ident, $field:ident, $name:expr, $function:literal) => {
        $(#[$doc])*
        #[doc = concat!("(`sklearn.metrics.", $function, "` with `zero_division=0`).")]
        ///
        /// It reads `scores` `[…, classes]`, of which the highest is the prediction, and `labels` `[…]` in `0..classes`. The
        /// confusion matrix is counted on the device.
        #[derive(Debug, Clone, PartialEq)]
        pub struct $metric(Scored);

        impl $metric {
            counting::options!(0.counting);

            /// The confusion matrix of the last epoch or evaluation; `None` before the first.
            pub fn counts(&self) -> Option<&Confusion> {
                self.0.last.as_ref()
            }
        }

        impl<B: Backend> Metric<B> for $metric {
            fn name(&self) -> String {
                let name: fn(f64) -> String = $name;
                self.0.average.named(name(self.0.beta))
            }

            fn measure(&self, output: &Output<B>) -> Result<Tensor<B>> {
                self.0.counting.measure(output)
            }

            fn value(&mut self, sum: &[f64], _: u64) -> f64 {
                self.0.value(sum, |scores| scores.$field)
            }
        }
    };
}

scored!(
    /// The share of predictions of a class that are correct, averaged over classes
    Precision,
    precision,
    |_| "precision".to_string(),
    "precision_score"
);
scored!(
    /// The share of samples of a class that are predicted correctly, averaged over classes
    Recall,
    recall,
    |_| "recall".to_string(),
    "recall_score"
);
scored!(
    /// The harmonic mean of precision and recall, averaged over classes
    F1,
    f,
    |_| "f1".to_string(),
    "f1_score"
);
scored!(
    /// The harmonic mean of precision and recall in which recall counts `β²` times as much, averaged over classes
    FBeta,
    f,
    |beta| format!("f{beta}"),
    "fbeta_score"
);

impl Precision {
    /// Creates the metric, named `precision`, with `_micro`, `_macro` or `_weighted` after it for an average over classes.
    pub fn new(classes: usize, average: ClassAverage) -> Self {
        Precision(Scored::new(classes, average, 1.0))
    }
}

impl Recall {
    /// Creates the metric, named `recall`, with `_micro`, `_macro` or `_weighted` after it for an average over classes.
    pub fn new(classes: usize, average: ClassAverage) -> Self {
        Recall(Scored::new(classes, average, 1.0))
    }
}

impl F1 {
    /// Creates the metric, named `f1`, with `_micro`, `_macro` or `_weighted` after it for an average over classes.
    pub fn new(classes: usize, average: ClassAverage) -> Self {
        F1(Scored::new(classes, average, 1.0))
    }
}

impl FBeta {
    /// Creates the metric, named `f{beta}`, with `_micro`, `_macro` or `_weighted` after it for an average over classes.
    pub fn new(classes: usize, beta: f64, average: ClassAverage) -> Self {
        FBeta(Scored::new(classes, average, beta))
    }
}
