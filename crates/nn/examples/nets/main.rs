//! Seven nets in Kiln, each with the same net in PyTorch in the comment at the top of its file.
//! `cargo run --release -p kiln-nn --example nets` builds them and trains each for a few steps on made-up data.

#![allow(unreachable_pub)]

mod bert;
mod dcgan;
mod gpt;
mod r3d;
mod resnet18;
mod vgg16;
mod wgan_gp;

use kiln_cpu::Cpu;
use kiln_nn::prelude::*;

fn main() -> Result<()> {
    println!("{:>10} {:>11}  losses", "net", "parameters");
    for net in NETS {
        let (parameters, losses) = (net.train)(4)?;
        let losses: Vec<String> = losses.iter().map(|loss| format!("{loss:.3}")).collect();
        println!("{:>10} {parameters:>11}  {}", net.name, losses.join(" "));
    }
    Ok(())
}

/// A net of a small size, and data to train it.
struct Net {
    name: &'static str,
    /// Trains for some steps on one batch; returns the number of parameters and the losses.
    train: fn(usize) -> Result<(usize, Vec<f64>)>,
    /// The number of parameters of the net in PyTorch.
    #[cfg(test)]
    parameters: usize,
    /// The text of the net's file.
    #[cfg(test)]
    text: &'static str,
}

macro_rules! nets {
    ($($name:ident: $parameters:literal;)*) => {
        const NETS: &[Net] = &[$(Net {
            name: stringify!($name),
            train: $name,
            #[cfg(test)]
            parameters: $parameters,
            #[cfg(test)]
            text: include_str!(concat!(stringify!($name), ".rs")),
        }),*];
    };
}
nets! {
    resnet18: 11_173_962;
    vgg16: 16_325_194;
    gpt: 9_184;
    bert: 7_952;
    dcgan: 187_296;
    wgan_gp: 465;
    r3d: 33_171_402;
}

/// Minimises a loss for some steps.
fn steps<M: Module<Cpu>>(
    steps: usize,
    mut model: M,
    loss: impl Fn(&M) -> Result<Tensor<Cpu>>,
) -> Result<(usize, Vec<f64>)> {
    let mut adam = Adam::new(1e-3);
    let mut losses = Vec::new();
    for _ in 0..steps {
        let loss = loss(&model)?;
        adam.step(&mut model, &loss.backward()?)?;
        losses.push(loss.item()?);
    }
    Ok((model.num_parameters(), losses))
}

/// Trains a classifier on four images, or videos, of noise.
fn classifier(count: usize, net: Sequential<Cpu>, shape: &[usize]) -> Result<(usize, Vec<f64>)> {
    let cpu = Cpu::new();
    let x = Tensor::randn(&cpu, &[&[4], shape].concat(), DType::F32, &mut Rng::new(1))?;
    let labels = Indices::from_slice(&cpu, &[0, 1, 2, 3], &[4])?;
    steps(count, net, |net| net.forward(&x)?.cross_entropy(&labels))
}

fn resnet18(count: usize) -> Result<(usize, Vec<f64>)> {
    let net = resnet18::resnet18(&mut Init::new(&Cpu::new(), 0), 10)?;
    classifier(count, net, &[16, 16, 3])
}

fn vgg16(count: usize) -> Result<(usize, Vec<f64>)> {
    let net = vgg16::vgg16(&mut Init::new(&Cpu::new(), 0), 10, 64)?;
    classifier(count, net, &[32, 32, 3])
}

fn r3d(count: usize) -> Result<(usize, Vec<f64>)> {
    let net = r3d::r3d18(&mut Init::new(&Cpu::new(), 0), 10)?;
    classifier(count, net, &[4, 16, 16, 3])
}

fn gpt(count: usize) -> Result<(usize, Vec<f64>)> {
    let cpu = Cpu::new();
    let net = gpt::Gpt::new(&mut Init::new(&cpu, 0), [65, 32, 2, 2, 16])?;
    let text: Vec<i32> = (0..2 * 33).map(|i| i * i % 65).collect();
    let text = Indices::from_slice(&cpu, &text, &[2, 33])?;
    let (ids, next) = (text.i((.., ..32))?, text.i((.., 1..))?.reshape(&[-1])?);
    steps(count, net, |net| net.forward(&ids)?.flatten(0, 1)?.cross_entropy(&next))
}

fn bert(count: usize) -> Result<(usize, Vec<f64>)> {
    let cpu = Cpu::new();
    let net = bert::Bert::new(&mut Init::new(&cpu, 0), [50, 16, 2, 2, 16])?;
    let ids: Vec<i32> = (0..16).map(|i| i * i % 50).collect();
    let ids = Indices::from_slice(&cpu, &ids, &[2, 8])?;
    let types = Indices::from_slice(&cpu, &[0, 0, 0, 0, 1, 1, 1, 1].repeat(2), &[2, 8])?;
    let tokens = Indices::from_slice(&cpu, &[1u8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0], &[2, 1, 1, 8])?;
    let labels = Indices::from_slice(&cpu, &[3, 11], &[2])?;
    // The first vector of a sequence says which of 16 classes it is of.
    steps(count, net, |net| net.forward(&ids, &types, &tokens)?[0].cross_entropy(&labels))
}

fn dcgan(count: usize) -> Result<(usize, Vec<f64>)> {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0);
    let nets = (dcgan::generator(init, 100, 16)?, dcgan::discriminator(init, 16)?);
    let noise = Tensor::randn(&cpu, &[4, 1, 1, 100], DType::F32, &mut Rng::new(1))?;
    let real = Tensor::ones(&cpu, &[4, 1], DType::F32)?;
    // The generator's loss alone: that the images be taken for real ones.
    steps(count, nets, |(generator, judge)| {
        judge.forward(&generator.forward(&noise)?)?.bce_with_logits(&real, None, Reduction::Mean)
    })
}

fn wgan_gp(count: usize) -> Result<(usize, Vec<f64>)> {
    let cpu = Cpu::new();
    let init = &mut Init::new(&cpu, 0);
    let critic = (Conv2d::builder(3, 8, 4).stride(2).build(init)?, Tanh, Flatten::default(), Linear::new(init, 72, 1)?);
    let [real, noise] = [1, 2].map(|seed| Tensor::rand(&cpu, &[4, 8, 8, 3], DType::F32, &mut Rng::new(seed)));
    let (real, fake) = (real?, (noise? - 1.0)?);
    assert!(wgan_gp::generator_loss(&critic, &fake)?.item()?.is_finite());
    steps(count, critic, |critic| wgan_gp::critic_loss(critic, [&real, &fake], &mut Rng::new(3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_net_has_pytorchs_parameters_and_learns() {
        for net in NETS {
            let (parameters, losses) = (net.train)(10).unwrap();
            assert_eq!(parameters, net.parameters, "{}", net.name);
            // Dropout's losses rise and fall on their way down.
            let least = losses.iter().copied().fold(f64::INFINITY, f64::min);
            assert!(least < 0.97 * losses[0], "{}: {losses:?}", net.name);
        }
    }

    /// Lines of code, not counting empty ones and comments.
    fn lines<'a>(text: impl Iterator<Item = &'a str>) -> usize {
        text.filter(|line| !line.trim().is_empty() && !line.trim().starts_with("//")).count()
    }

    #[test]
    fn no_net_has_more_than_eight_fifths_of_pytorchs_lines() {
        for net in NETS {
            let (head, code) = net.text.split_once("prelude::*;\n").expect("an import");
            let twin = head.lines().filter_map(|line| line.strip_prefix("//! "));
            let twin = twin.skip_while(|line| *line != "```python").skip(1).take_while(|line| *line != "```");
            let (kiln, torch) = (lines(code.lines()), lines(twin.take_while(|line| !line.starts_with("model = "))));
            assert!(torch > 5 && kiln * 5 <= torch * 8, "{}: {kiln} lines, {torch} in PyTorch", net.name);
        }
    }
}
