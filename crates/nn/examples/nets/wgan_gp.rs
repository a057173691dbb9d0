//! The losses of WGAN-GP (Gulrajani et al. 2017), which differentiate a gradient. In PyTorch:
//!
//! ```python
//! def critic_loss(critic, real, fake):
//!     share = torch.rand(len(real), 1, 1, 1)
//!     between = (fake + share * (real - fake)).detach().requires_grad_()
//!     score = critic(between).sum()
//!     (slope,) = torch.autograd.grad(score, between, create_graph=True)
//!     penalty = ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
//!     return critic(fake).mean() - critic(real).mean() + 10 * penalty
//!
//!
//! def generator_loss(critic, fake):
//!     return -critic(fake).mean()
//! ```

use kiln_nn::prelude::*;

pub fn critic_loss<B: Backend>(net: &impl Layer<B>, [real, fake]: [&Tensor<B>; 2], rng: &mut Rng) -> Result<Tensor<B>> {
    let share = Tensor::rand(real.backend(), &[real.shape()[0], 1, 1, 1], real.dtype(), rng)?;
    let between = (fake + share * (real - fake))?.detach().requires_grad();
    let score = net.forward(&between)?.sum(&[], false)?;
    let slope = grad(&score, &[&between], None, true)?.remove(0).expect("the score depends on its input");
    let penalty = (slope.flatten(1, -1)?.norm(2.0, &[1], false)? - 1.0)?.square()?.mean(&[], false)?;
    let mean = |x| net.forward(x)?.mean(&[], false);
    mean(fake)? - mean(real)? + (10.0 * penalty)?
}

pub fn generator_loss<B: Backend>(net: &impl Layer<B>, fake: &Tensor<B>) -> Result<Tensor<B>> {
    net.forward(fake)?.mean(&[], false)?.neg()
}
