"""GPipe (Huang et al., 2019): all forwards, then all backwards.

Bubble (p-1)(F+B); activations of all m micro-batches are alive on every stage.
"""

from .action import Action


def gpipe(stages: int, micro_batches: int) -> list[list[Action]]:
    """Actions per stage, backwards in the order of the forwards, as torch.distributed.pipelining runs them."""
    forwards = [Action("F", index) for index in range(micro_batches)]
    backwards = [Action("B", index) for index in range(micro_batches)]
    return [forwards + backwards for _ in range(stages)]
