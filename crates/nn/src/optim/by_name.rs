//! Learning rates and weight decays by the names of parameters.

use super::group::Group;
use crate::module::NamePattern;

/// Learning rates and weight decays of parameters by patterns of their dotted names: the layers near the input train more slowly, or
/// biases and norms do not decay. Of several patterns that match a name the first counts.
///
/// ```
/// use kiln_nn::optim::{AdamW, ByName};
/// # use kiln_nn::{DType, Init, Layer, Sequential, Tensor, layers::Linear, optim::Optimizer};
/// # let cpu = kiln_cpu::Cpu::new();
/// # let init = &mut Init::new(&cpu, 0);
/// let mut net = Sequential::new().push_named("body", Linear::new(init, 4, 8)?)?.push_named("head", Linear::new(init, 8, 2)?)?;
/// let by_name = ByName::new().lr_factor("body".parse()?, 0.1).weight_decay("*.bias".parse()?, 0.0);
/// let mut adamw = AdamW::new(1e-3).groups(by_name.groups());
/// # let loss = net.forward(&Tensor::ones(&cpu, &[1, 4], DType::F32)?)?.sum(&[], false)?;
/// # adamw.step(&mut net, &loss.backward()?)?;
/// # Ok::<(), kiln_nn::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByName {
    lr_factors: Vec<(NamePattern, f64)>,
    weight_decays: Vec<(NamePattern, f64)>,
}

/// The index of the first pattern that matches.
fn first(rules: &[(NamePattern, f64)], name: &str) -> Option<usize> {
    rules.iter().position(|(pattern, _)| pattern.matches(name))
}

impl ByName {
    /// No rules.
    ///
    /// See the example of [`ByName`].
    pub fn new() -> Self {
        ByName::default()
    }

    /// Multiplies the learning rate of parameters that the pattern matches.
    ///
    /// See the example of [`ByName`].
    pub fn lr_factor(mut self, pattern: NamePattern, factor: f64) -> Self {
        self.lr_factors.push((pattern, factor));
        self
    }

    /// Sets the weight decay of parameters that the pattern matches.
    ///
    /// See the example of [`ByName`].
    pub fn weight_decay(mut self, pattern: NamePattern, weight_decay: f64) -> Self {
        self.weight_decays.push((pattern, weight_decay));
        self
    }

    /// The patterns of the rules.
    ///
    /// ```
    /// use kiln_nn::optim::ByName;
    /// let by_name = ByName::new().lr_factor("body".parse()?, 0.1);
    /// assert!(by_name.patterns().all(|pattern| pattern.matches("body.weight")));
    /// # Ok::<(), kiln_nn::Error>(())
    /// ```
    pub fn patterns(&self) -> impl Iterator<Item = &NamePattern> {
        self.lr_factors
            .iter()
            .chain(&self.weight_decays)
            .map(|(pattern, _)| pattern)
    }

    /// The groups of an optimizer: one for each pair of a factor and a decay.
    ///
    /// See the example of [`ByName`].
    pub fn groups(&self) -> Vec<Group> {
        let indices = |rules: &[_]| (0..rules.len()).map(Some).chain([None]);
        let mut groups = Vec::new();
        for lr in indices(&self.lr_factors) {
            for decay in indices(&self.weight_decays) {
                if lr.is_none() && decay.is_none() {
                    continue;
                }
                let rules = self.clone();
                let group = Group::new(move |name| {
                    first(&rules.lr_factors, name) == lr && first(&rules.weight_decays, name) == decay
                });
                let group = group.lr_factor(lr.map_or(1.0, |i| self.lr_factors[i].1));
                groups.push(match decay {
                    Some(i) => group.weight_decay(self.weight_decays[i].1),
                    None => group,
                });
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::optim::{Optimizer, Sgd};
    use crate::{DType, Init, Layer, Module, Result, Sequential, Tensor, layers::Linear};
    use kiln_cpu::Cpu;

    /// Every parameter moves by its own rate and decay, as with an optimizer that has these for all.
    #[test]
    fn each_parameter_has_the_first_rate_and_decay_that_match() -> Result<()> {
        let cpu = Cpu::poisoned();
        let made = || -> Result<Sequential<Cpu>> {
            let init = &mut Init::new(&cpu, 0);
            let net = Sequential::new().push_named("body", Linear::new(init, 3, 4)?)?;
            net.push_named("head", Linear::new(init, 4, 2)?)
        };
        let step = |sgd: &mut dyn Optimizer<Cpu>| -> Result<Sequential<Cpu>> {
            let mut net = made()?;
            let loss = net
                .forward(&Tensor::ones(&cpu, &[2, 3], DType::F32)?)?
                .square()?
                .sum(&[], false)?;
            sgd.step(&mut net, &loss.backward()?)?;
            Ok(net)
        };
        let by_name = ByName::new()
            .lr_factor("body.weight".parse()?, 0.5)
            .lr_factor("body".parse()?, 0.0)
            .weight_decay("*.bias".parse()?, 0.0)
            .weight_decay("head".parse()?, 0.25);
        let net = step(&mut Sgd::new(0.1).weight_decay(0.125).groups(by_name.groups()))?;
        for (name, lr, decay) in [
            ("body.weight", 0.05, 0.125),
            ("body.bias", 0.0, 0.0),
            ("head.weight", 0.1, 0.25),
            ("head.bias", 0.1, 0.0),
        ] {
            let alone = step(&mut Sgd::new(lr).weight_decay(decay))?;
            let of = |net: &Sequential<Cpu>| net.state_dict().float(name).expect("it is there").to_f64();
            assert_eq!(of(&net)?, of(&alone)?, "{name}");
        }
        Ok(())
    }
}
