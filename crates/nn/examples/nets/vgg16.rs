//! VGG-16 (Simonyan & Zisserman 2014). In PyTorch:
//!
//! ```python
//! def vgg16(classes, hidden=4096):
//!     layers, channels = [], 3
//!     for width in (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"):
//!         if width == "M":
//!             layers.append(nn.MaxPool2d(2))
//!         else:
//!             layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
//!             channels = width
//!     layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten()]
//!     for inputs in (512 * 7 * 7, hidden):
//!         layers += [nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout()]
//!     return nn.Sequential(*layers, nn.Linear(hidden, classes))
//!
//!
//! model = vgg16(10, 64)
//! ```

use kiln_nn::prelude::*;

pub fn vgg16<B: Backend>(init: &mut Init<B>, classes: usize, hidden: usize) -> Result<Sequential<B>> {
    let (mut net, mut channels) = (Sequential::new(), 3);
    for (width, convolutions) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
        for _ in 0..convolutions {
            net = net.push(Conv2d::builder(channels, width, 3).padding(1).build(init)?).push(Relu);
            channels = width;
        }
        net = net.push(MaxPool2d::new(2));
    }
    net = net.push(AdaptiveAvgPool2d::new(7)).push(Flatten::default());
    for inputs in [512 * 7 * 7, hidden] {
        net = net.push(Linear::new(init, inputs, hidden)?).push(Relu).push(Dropout::new(init, 0.5)?);
    }
    Ok(net.push(Linear::new(init, hidden, classes)?))
}
