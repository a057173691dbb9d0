//! DCGAN (Radford et al. 2015): 32×32 images from noise, and a judge of them. In PyTorch:
//!
//! ```python
//! def generator(noise, c):
//!     layers = []
//!     for i, o, stride, padding in ((noise, 4 * c, 1, 0), (4 * c, 2 * c, 2, 1), (2 * c, c, 2, 1)):
//!         layers += [nn.ConvTranspose2d(i, o, 4, stride, padding, bias=False), nn.BatchNorm2d(o), nn.ReLU()]
//!     return nn.Sequential(*layers, nn.ConvTranspose2d(c, 3, 4, 2, 1, bias=False), nn.Tanh())
//!
//!
//! def discriminator(c):
//!     layers = [nn.Conv2d(3, c, 4, 2, 1, bias=False), nn.LeakyReLU(0.2)]
//!     for i, o in ((c, 2 * c), (2 * c, 4 * c)):
//!         layers += [nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2)]
//!     return nn.Sequential(*layers, nn.Conv2d(4 * c, 1, 4, bias=False), nn.Flatten())
//!
//!
//! model = nn.ModuleList([generator(100, 16), discriminator(16)])
//! ```

use kiln_nn::prelude::*;

pub fn generator<B: Backend>(init: &mut Init<B>, noise: usize, c: usize) -> Result<Sequential<B>> {
    let mut net = Sequential::new();
    for (i, o, stride, padding) in [(noise, 4 * c, 1, 0), (4 * c, 2 * c, 2, 1), (2 * c, c, 2, 1)] {
        let up = ConvTranspose2d::builder(i, o, 4).stride(stride).padding(padding).bias(false).build(init)?;
        net = net.push(up).push(BatchNorm::new(init, o)?).push(Relu);
    }
    Ok(net.push(ConvTranspose2d::builder(c, 3, 4).stride(2).padding(1).bias(false).build(init)?).push(Tanh))
}

pub fn discriminator<B: Backend>(init: &mut Init<B>, c: usize) -> Result<Sequential<B>> {
    let (leaky, conv) = (LeakyRelu { negative_slope: 0.2 }, |i, o| Conv2d::builder(i, o, 4).bias(false));
    let mut net = Sequential::new().push(conv(3, c).stride(2).padding(1).build(init)?).push(leaky);
    for (i, o) in [(c, 2 * c), (2 * c, 4 * c)] {
        net = net.push(conv(i, o).stride(2).padding(1).build(init)?).push(BatchNorm::new(init, o)?).push(leaky);
    }
    Ok(net.push(conv(4 * c, 1).build(init)?).push(Flatten::default()))
}
