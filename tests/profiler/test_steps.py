"""Where a training step ends: the finder on made-up optimizers, the watch on torch's."""

import gc

import pytest
import torch
from foretrace.profiler.steps import PATIENCE, OptimizerWatch, StepFinder


class Fake:
    """Something that steps."""


class Clock:
    """Moves by one with every step."""

    now = 0.0

    def __call__(self):
        return self.now


def found_steps(pattern, made=(), every=None, finish=True):
    """Ends of steps as the number of the optimizer step (from 1), for letters that step in turn."""
    clock = Clock()
    ends = []
    finder = StepFinder(
        lambda skipped, end_s: ends.append(clock.now if end_s is None else end_s), every=every, clock=clock
    )
    optimizers = {letter: Fake() for letter in {*pattern, *made}}
    for letter in made:
        finder.made(optimizers[letter])
    for letter in pattern:
        clock.now += 1
        finder.stepped(optimizers[letter])
    if finish:
        finder.finish()
    return ends, finder


def test_one_optimizer():
    ends, finder = found_steps("aaa")
    assert ends == [1, 2, 3]
    assert finder.rule == "a step ends when the only optimizer (Fake) has stepped"


@pytest.mark.parametrize(
    ("pattern", "ends"),
    [
        ("dddg" * 3, [4, 8, 12]),  # the critic more often than the generator
        ("dg" * 3, [2, 4, 6]),
        ("abc" * 2, [3, 6]),
        ("gddd" * 3, [2, 5, 9]),  # from its second step on at the rare one's step
    ],
)
def test_the_rarest_ends_the_step(pattern, ends):
    assert found_steps(pattern, made=sorted(set(pattern)))[0] == ends


def test_one_that_was_made_but_never_steps_is_given_up():
    pattern = "a" * (PATIENCE + 5)
    ends, _ = found_steps(pattern, made="ab")
    assert ends == list(range(1, PATIENCE + 6))  # the first ones told afterwards, by their noted times


def test_a_short_run_is_told_at_its_end():
    assert found_steps("aaa", made="ab")[0] == [1, 2, 3]
    assert found_steps("aaa", made="ab", finish=False)[0] == []


def test_one_that_stops_stepping_is_given_up():
    ends, _ = found_steps("ab" * 5 + "a" * 60, made="ab")
    assert ends[:5] == [2, 4, 6, 8, 10]
    assert ends[5:] == list(range(11, 71))


def test_one_that_is_gone_is_not_waited_for():
    ends = []
    finder = StepFinder(lambda skipped, end_s: ends.append(end_s))
    one, other = Fake(), Fake()
    finder.made(one)
    finder.made(other)
    del other
    gc.collect()
    finder.stepped(one)
    assert len(ends) == 1


def test_every():
    ends, finder = found_steps("abababa", made="ab", every=3)
    assert ends == [3, 6]
    assert "every 3 optimizer steps" in finder.rule


@pytest.fixture
def watched():
    """A watch on torch's own classes; (finder, list of skipped flags)."""
    told = []
    watch = OptimizerWatch(StepFinder(lambda skipped, end_s: told.append(skipped)))
    before = torch.optim.Optimizer.__init__, torch.amp.GradScaler.step
    watch.patch_optimizers(torch.optim.Optimizer)
    watch.patch_scaler(torch.amp.GradScaler)
    yield watch.finder, told
    watch.remove()
    assert (torch.optim.Optimizer.__init__, torch.amp.GradScaler.step) == before


def model_and_loss():
    model = torch.nn.Linear(3, 2)
    return model, lambda: model(torch.ones(4, 3)).sum()


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.LBFGS])
def test_torch_optimizers(watched, kind):
    _, told = watched
    model, loss = model_and_loss()
    optimizer = kind(model.parameters(), lr=0.01)

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(3):
        optimizer.step(closure)
    assert told == [False] * 3


def test_a_learning_rate_schedule_does_not_mind(watched):
    _, told = watched
    model, loss = model_and_loss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(2):
        loss().backward()
        optimizer.step()
        schedule.step()
    assert told == [False] * 2


def test_an_optimizer_inside_of_another_counts_once(watched):
    _, told = watched

    class Outer(torch.optim.Optimizer):
        def __init__(self, parameters):
            parameters = list(parameters)
            super().__init__(parameters, {})
            self.inner = torch.optim.SGD(parameters, lr=0.1)

        def step(self, closure=None):
            self.inner.step()

    model, loss = model_and_loss()
    optimizer = Outer(model.parameters())
    for _ in range(4):
        loss().backward()
        optimizer.step()
    assert told == [False] * 4


@pytest.mark.parametrize("fused", [False, True])
def test_a_skipped_scaler_step(watched, fused):
    _, told = watched
    model, loss = model_and_loss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for step in range(3):
        scaler.scale(loss()).backward()
        if step == 1:
            model.weight.grad[0, 0] = float("nan")
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert told == [False, True, False]


def test_a_scaler_that_is_off(watched):
    _, told = watched
    model, loss = model_and_loss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    scaler.scale(loss()).backward()
    scaler.step(optimizer)
    assert told == [False]
