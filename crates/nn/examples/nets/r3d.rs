//! R3D-18, a ResNet over space and time (Tran et al. 2018). In PyTorch:
//!
//! ```python
//! class Block(nn.Module):
//!     def __init__(self, inputs, outputs, stride):
//!         super().__init__()
//!         self.main = nn.Sequential(
//!             nn.Conv3d(inputs, outputs, 3, stride, 1, bias=False),
//!             nn.BatchNorm3d(outputs),
//!             nn.ReLU(),
//!             nn.Conv3d(outputs, outputs, 3, 1, 1, bias=False),
//!             nn.BatchNorm3d(outputs),
//!         )
//!         self.shortcut = nn.Sequential()
//!         if stride != 1:
//!             self.shortcut = nn.Sequential(nn.Conv3d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm3d(outputs))
//!
//!     def forward(self, x):
//!         return F.relu(self.main(x) + self.shortcut(x))
//!
//!
//! def r3d18(classes):
//!     layers = [nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False), nn.BatchNorm3d(64), nn.ReLU()]
//!     for inputs, outputs, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
//!         layers += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
//!     return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(512, classes))
//!
//!
//! model = r3d18(10)
//! ```

use kiln_nn::prelude::*;

#[derive(Clone, Module)]
struct Block<B: Backend> {
    main: (Conv3d<B>, BatchNorm<B>, Relu, Conv3d<B>, BatchNorm<B>),
    shortcut: Option<(Conv3d<B>, BatchNorm<B>)>,
}

impl<B: Backend> Layer<B> for Block<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        (self.main.forward(x)? + self.shortcut.forward(x)?)?.relu()
    }
}

fn block<B: Backend>(init: &mut Init<B>, i: usize, o: usize, stride: usize) -> Result<Block<B>> {
    let conv = |i, kernel, stride| Conv3d::builder(i, o, kernel).stride(stride).padding(kernel / 2).bias(false);
    let (conv1, conv2) = (conv(i, 3, stride).build(init)?, conv(o, 3, 1).build(init)?);
    let main = (conv1, BatchNorm::new(init, o)?, Relu, conv2, BatchNorm::new(init, o)?);
    let shortcut = if stride == 1 { None } else { Some((conv(i, 1, stride).build(init)?, BatchNorm::new(init, o)?)) };
    Ok(Block { main, shortcut })
}

pub fn r3d18<B: Backend>(init: &mut Init<B>, classes: usize) -> Result<Sequential<B>> {
    let stem = Conv3d::builder(3, 64, [3, 7, 7]).stride([1, 2, 2]).padding([1, 3, 3]).bias(false).build(init)?;
    let mut net = Sequential::new().push(stem).push(BatchNorm::new(init, 64)?).push(Relu);
    for (inputs, outputs, stride) in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)] {
        net = net.push(block(init, inputs, outputs, stride)?).push(block(init, outputs, outputs, 1)?);
    }
    Ok(net.push(GlobalAvgPool3d::default()).push(Linear::new(init, 512, classes)?))
}
