"""StorageTracker: what lives at the peak of a step, against arithmetic."""

import pytest
import torch
from foretrace.datasets.plan import Plan
from foretrace.datasets.workloads import load
from foretrace.datasets.workloads.step import make_step
from foretrace.profiler.process import process_peak_bytes
from foretrace.profiler.storage import CATEGORIES, StorageTracker
from torch import nn


def test_peak_in_the_optimizer():
    module = nn.Linear(512, 512, bias=False)
    optimizer = torch.optim.Adam(module.parameters())
    x = torch.randn(1, 512)

    def step():
        module(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    step()
    with StorageTracker(module, optimizer) as tracker:
        step()
    peak = tracker.peak()
    weight = 512 * 512 * 4
    assert peak["parameters"] == weight
    assert peak["gradients"] == weight
    assert peak["optimizer"] == 2 * weight + 4  # two moments and the step count
    # The update holds the root of the second moment and its quotient at once; the batch is 2 KiB.
    assert 2 * weight <= peak["other"] <= 2 * weight + 8 * 1024
    assert peak["total"] == sum(peak[category] for category in CATEGORIES)


def test_peak_in_backward_counts_what_forward_kept():
    # Three (1024 × 64) activations and hardly any parameters: the peak is at the start of backward.
    module = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    x = torch.randn(1024, 64)
    with StorageTracker(module, optimizer) as tracker:
        module(x).square().mean().backward()
        optimizer.step()
    one = 1024 * 64 * 4
    peak = tracker.peak()
    # tanh 1, tanh 2 are saved; linear outputs die at once because tanh saves its output; square may still live.
    assert 2 * one <= peak["activations"] <= 4 * one
    assert peak["parameters"] == 2 * (64 * 64 + 64) * 4


def test_recompute_keeps_fewer_activations():
    peaks = {}
    for recompute in ("none", "full"):
        workload = load("mlp", layers=4, width=32, hidden=128, features=8, classes=4, batch=256)
        step = make_step(workload, Plan(recompute=recompute))
        with StorageTracker(step.module, step.optimizer) as tracker:
            step.run()
        peaks[recompute] = tracker.peak()
    assert peaks["full"]["activations"] < 0.5 * peaks["none"]["activations"]
    assert peaks["full"]["parameters"] == peaks["none"]["parameters"]


def test_storages_that_change_size_are_noticed():
    module, kept = nn.Linear(2, 2), torch.zeros(1024)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with StorageTracker(module, optimizer, resizable=True) as tracker:
        kept.add_(1)
        kept.untyped_storage().resize_(0)
        other = torch.zeros(512)
        kept.untyped_storage().resize_(1024 * 4)
        kept.add_(other.sum())
    parameters = (4 + 2) * 4
    assert tracker.peak()["total"] == pytest.approx(parameters + 4096 + 2048, abs=64)


def test_process_peak_is_at_least_what_python_needs():
    peak = process_peak_bytes()
    assert peak is None or peak > 10 * 2**20
