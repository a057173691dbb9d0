//! ResNet-18 for small images (He et al. 2015). In PyTorch:
//!
//! ```python
//! class Block(nn.Module):
//!     def __init__(self, inputs, outputs, stride):
//!         super().__init__()
//!         self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
//!         self.bn1 = nn.BatchNorm2d(outputs)
//!         self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
//!         self.bn2 = nn.BatchNorm2d(outputs)
//!         self.shortcut = nn.Sequential()
//!         if stride != 1:
//!             self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
//!
//!     def forward(self, x):
//!         y = F.relu(self.bn1(self.conv1(x)))
//!         y = self.bn2(self.conv2(y))
//!         return F.relu(y + self.shortcut(x))
//!
//!
//! class ResNet18(nn.Module):
//!     def __init__(self, classes):
//!         super().__init__()
//!         self.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
//!         self.bn1 = nn.BatchNorm2d(64)
//!         self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
//!         self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
//!         self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
//!         self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
//!         self.fc = nn.Linear(512, classes)
//!
//!     def forward(self, x):
//!         x = F.relu(self.bn1(self.conv1(x)))
//!         x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
//!         return self.fc(x.mean((2, 3)))
//!
//!
//! model = ResNet18(10)
//! ```

use kiln_nn::prelude::*;

#[derive(Clone, Module)]
struct Block<B: Backend> {
    conv1: Conv2d<B>,
    bn1: BatchNorm<B>,
    conv2: Conv2d<B>,
    bn2: BatchNorm<B>,
    shortcut: Option<(Conv2d<B>, BatchNorm<B>)>,
}

fn block<B: Backend>(init: &mut Init<B>, inputs: usize, outputs: usize, stride: usize) -> Result<Block<B>> {
    let shortcut = Conv2d::builder(inputs, outputs, 1).stride(stride).bias(false);
    Ok(Block {
        conv1: Conv2d::builder(inputs, outputs, 3).stride(stride).padding(1).bias(false).build(init)?,
        bn1: BatchNorm::new(init, outputs)?,
        conv2: Conv2d::builder(outputs, outputs, 3).padding(1).bias(false).build(init)?,
        bn2: BatchNorm::new(init, outputs)?,
        shortcut: if stride == 1 { None } else { Some((shortcut.build(init)?, BatchNorm::new(init, outputs)?)) },
    })
}

impl<B: Backend> Layer<B> for Block<B> {
    fn call(&self, x: &Tensor<B>) -> Result<Tensor<B>> {
        let y = self.bn1.forward(&self.conv1.forward(x)?)?.relu()?;
        let y = self.bn2.forward(&self.conv2.forward(&y)?)?;
        (y + self.shortcut.forward(x)?)?.relu()
    }
}

pub fn resnet18<B: Backend>(init: &mut Init<B>, classes: usize) -> Result<Sequential<B>> {
    let conv1 = Conv2d::builder(3, 64, 3).padding(1).bias(false).build(init)?;
    let mut net = Sequential::new().push(conv1).push(BatchNorm::new(init, 64)?).push(Relu);
    for (inputs, outputs, stride) in [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)] {
        net = net.push((block(init, inputs, outputs, stride)?, block(init, outputs, outputs, 1)?));
    }
    Ok(net.push(GlobalAvgPool2d::default()).push(Linear::new(init, 512, classes)?))
}
