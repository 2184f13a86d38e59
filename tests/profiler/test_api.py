"""foretrace.profiler.profile from code."""

import subprocess
import sys

import foretrace.profiler
import pytest
import torch
from foretrace.datasets.errors import RunError, UsageError
from foretrace.profiler import profile


def train(steps, after_step=lambda: None):
    model = torch.nn.Linear(6, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(2, 6)).sum().backward()
        optimizer.step()
        after_step()
    return steps


def test_a_block(tmp_path):
    with profile(tmp_path / "run") as p:
        train(7, p.step)
    found = p.profile()
    assert (found.status, len(found.steps)) == ("complete", 7)
    assert found.manifest["step_rule"] == "a step ends where the program calls step()"
    assert len(found.ops)
    assert found.memory.set_index("category").loc["parameters", "peak_bytes"] == (6 * 3 + 3) * 4


def test_a_decorator_finds_the_steps(tmp_path):
    recorded = profile(tmp_path / "run", channels=("host",), force=True)

    @recorded
    def training(steps):
        """What it does."""
        return train(steps)

    assert training.__doc__ == "What it does."
    assert training(5) == 5
    assert len(recorded.profile().steps) == 5
    assert "SGD" in recorded.profile().manifest["step_rule"]


def test_optimizers_are_as_before(tmp_path):
    before = torch.optim.Optimizer.__init__, torch.optim.SGD.step
    with profile(tmp_path / "run", channels=(), step_every=2) as p:
        train(4)
    assert (torch.optim.Optimizer.__init__, torch.optim.SGD.step) == before
    assert len(p.profile().steps) == 2


def test_no_step_at_all(tmp_path):
    with pytest.raises(RunError, match=r"0 steps were recorded; call p.step\(\)"), profile(tmp_path / "run"):
        pass
    with pytest.raises(RunError, match=r"call optimizer.step\(\)"), profile(tmp_path / "other", find_steps=True):
        pass


def test_an_error_in_the_block_passes_on(tmp_path):
    with pytest.raises(ValueError, match="boom"), profile(tmp_path / "run", channels=()) as p:
        p.step()
        raise ValueError("boom")
    assert p.profile().status == "failed"
    assert len(p.profile().steps) == 1


def test_a_folder_in_use_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"), profile(tmp_path):
        pass
    with pytest.raises(RuntimeError, match="outside of the with block"):
        profile(tmp_path).step()


def test_importing_it_imports_no_torch():
    code = "import sys, foretrace.profiler; foretrace.profiler.profile; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert set(foretrace.profiler.__all__) <= set(dir(foretrace.profiler))
