"""resnet: BasicBlock ResNet with batch norm for pictures of 32 to 64 pixels (3×3 stem, no max pooling)."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from .layers import Chain
from .spec import Workload


class Stem(nn.Module):
    """3×3 convolution, norm, relu: (B, 3, H, W) -> (B, C, H, W)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, 3, H, W) -> (B, C, H, W)."""
        return functional.relu(self.norm(self.conv(x)))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions around a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, C_in, H, W) -> (B, C_out, H / stride, W / stride)."""
        y = functional.relu(self.norm1(self.conv1(x)))
        return functional.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class Classify(nn.Module):
    """Global average pooling and a linear layer: (B, C, H, W) -> (B, classes)."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.projection = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, C, H, W) -> (B, classes)."""
        return self.projection(x.mean(dim=(2, 3)))


def resnet(
    *,
    width: int = 32,
    blocks: int = 2,
    stages: int = 4,
    image: int = 32,
    classes: int = 100,
    batch: int = 16,
    lr: float = 0.05,
) -> Workload:
    """A ResNet of `stages` × `blocks` basic blocks; channels double and pixels halve per stage. SGD with momentum."""

    def build() -> nn.Module:
        children: list[nn.Module] = [Stem(width)]
        channels = width
        for stage in range(stages):
            for block in range(blocks):
                outputs = width << stage
                children.append(BasicBlock(channels, outputs, 2 if stage and not block else 1))
                channels = outputs
        return Chain(*children, Classify(channels, classes))

    def make_batch(samples: int) -> tuple[tuple[torch.Tensor], torch.Tensor]:
        return (torch.randn(samples, 3, image, image),), torch.randint(0, classes, (samples,))

    return Workload(
        name="resnet",
        build=build,
        make_batch=make_batch,
        loss=functional.cross_entropy,
        make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
        batch=batch,
    )
