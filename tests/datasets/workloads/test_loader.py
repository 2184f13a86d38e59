"""load: names, files, settings, the four-part form, and what it says when something is wrong."""

import gc
import weakref

import pytest
import torch
from foretrace.datasets.errors import InputError, UsageError
from foretrace.datasets.plan import Plan
from foretrace.datasets.workloads import load
from foretrace.datasets.workloads.step import make_step

FILE = """
from __future__ import annotations
import torch
from torch import nn
from torch.nn import functional
from helper_beside_it import CLASSES

def batch_of(samples):
    return torch.randn(samples, 4), torch.randint(0, CLASSES, (samples,))

def with_instance(width: int = 8, lr: float = 0.5, deep: bool = False, sizes: tuple[int, ...] = (1, 2)):
    module = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, CLASSES))
    return module, batch_of, functional.cross_entropy, torch.optim.AdamW(module.parameters(), lr=lr, betas=(0.8, 0.9))

def with_callable(batch=6):
    module = nn.Linear(4, CLASSES)
    return module, batch_of, functional.cross_entropy, lambda parameters: torch.optim.SGD(parameters, lr=0.1)

def with_groups():
    module = nn.Linear(4, CLASSES)
    groups = [{"params": [p], "lr": 0.1} for p in module.parameters()]
    return module, batch_of, functional.cross_entropy, torch.optim.SGD(groups)

def raises():
    raise ValueError("no data today")

def returns_three():
    return 1, 2, 3

def needs(size: int):
    return with_instance(width=size)

def bad_loss():
    return nn.Linear(4, 3), batch_of, None, torch.optim.SGD
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "mine.py").write_text(FILE)
    (tmp_path / "helper_beside_it.py").write_text("CLASSES = 3\n")
    return tmp_path / "mine.py"


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(UsageError, match="'bert': not known; use one of dlrm, gpt, lstm, mlp, resnet, vit"):
        load("bert")


def test_file_without_factory_says_how():
    with pytest.raises(UsageError, match=r"a file needs its factory: file\.py:factory"):
        load("train.py")


def test_missing_file():
    with pytest.raises(InputError, match=r"there is no file .*nowhere\.py"):
        load("nowhere.py:make")


def test_settings_are_text_or_values():
    by_text, by_value = load("gpt", layers="3", lr="0.01"), load("gpt", layers=3, lr=0.01)
    assert by_text.settings == by_value.settings
    assert by_text.settings["layers"] == 3
    assert by_text.settings["lr"] == 0.01
    assert by_text.settings["seq"] == 128  # defaults are there too


def test_reference_and_settings_rebuild():
    first = load("mlp", width=32)
    again = load(first.reference, **first.settings)
    assert (again.reference, again.settings) == (first.reference, first.settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layers": "many"}, "layers needs a whole number, found 'many'"),
        ({"lr": "fast"}, "lr needs a number, found 'fast'"),
        ({"depth": "3"}, "no setting depth; it has: layers, width, heads, seq, vocab, batch, lr"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(UsageError, match=message):
        load("gpt", **settings)


def test_annotations_of_a_users_factory(file):
    settings = load(f"{file}:with_instance", width="16", deep="true", sizes="3+4").settings
    assert settings == {"width": 16, "lr": 0.5, "deep": True, "sizes": (3, 4)}
    with pytest.raises(UsageError, match="deep needs true or false"):
        load(f"{file}:with_instance", deep="perhaps")
    with pytest.raises(UsageError, match="setting size has no default; give size=VALUE"):
        load(f"{file}:needs")


@pytest.mark.parametrize("factory", ["with_instance", "with_callable"])
def test_four_parts_train(file, factory):
    step = make_step(load(f"{file}:{factory}"), Plan())
    losses = [step.run().item() for _ in range(10)]
    assert losses[-1] < losses[0]


def test_optimizer_instance_is_remade_with_its_settings(file):
    workload = load(f"{file}:with_instance", lr=0.25)
    optimizer = workload.make_optimizer(workload.build().parameters())
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert optimizer.param_groups[0]["betas"] == (0.8, 0.9)


def test_builds_are_fresh_and_follow_the_seed(file):
    workload = load(f"{file}:with_instance")
    weights = []
    for _ in range(2):
        torch.manual_seed(3)
        weights.append(workload.build()[0].weight)
    assert weights[0] is not weights[1]
    assert torch.equal(weights[0], weights[1])


def test_first_module_is_not_kept(file):
    workload = load(f"{file}:with_instance")
    module = workload.build()
    reference = weakref.ref(module)
    del module
    gc.collect()
    assert reference() is None


def test_batch_of_four_parts(file):
    assert load(f"{file}:with_callable").batch == 6
    assert load(f"{file}:with_callable", batch="12").batch == 12
    assert load(f"{file}:with_instance").batch == 32
    inputs, target = load(f"{file}:with_instance").make_batch(5)
    assert isinstance(inputs, tuple)
    assert inputs[0].shape == (5, 4)
    assert target.shape == (5,)


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("raises", r"the factory raised ValueError: no data today \(mine.py, line \d+\)"),
        ("returns_three", "returned a tuple of 3"),
        ("with_groups", "2 parameter groups"),
        ("bad_loss", "third part, the loss, is NoneType"),
        ("nowhere", "has no function 'nowhere'; it has .*with_instance"),
    ],
)
def test_broken_factories(file, factory, message):
    with pytest.raises(InputError, match=message):
        load(f"{file}:{factory}")


def test_file_that_does_not_import(tmp_path):
    (tmp_path / "broken.py").write_text("import not_a_library_at_all\n")
    with pytest.raises(InputError, match=r"importing broken.py raised ModuleNotFoundError: .* \(broken.py, line 1\)"):
        load(f"{tmp_path}/broken.py:make")
    (tmp_path / "syntax.py").write_text("def make(:\n")
    with pytest.raises(InputError, match=r"importing syntax\.py raised SyntaxError"):
        load(f"{tmp_path}/syntax.py:make")
