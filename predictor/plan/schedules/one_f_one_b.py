"""1F1B (PipeDream-flush, Narayanan et al., 2021): a stage turns to backwards as soon as it can.

Bubble (p-1)(F+B) as in GPipe; at most p - stage micro-batches are alive on a stage.
"""

from .action import Action


def one_f_one_b(stages: int, micro_batches: int) -> list[list[Action]]:
    """Actions per stage: p - stage warm-up forwards, then one backward and one forward in turn, then the rest."""
    actions: list[list[Action]] = []
    for stage in range(stages):
        warm_up = min(stages - stage, micro_batches)
        order = [Action("F", index) for index in range(warm_up)]
        for index in range(micro_batches):
            order.append(Action("B", index))
            if warm_up + index < micro_batches:
                order.append(Action("F", warm_up + index))
        actions.append(order)
    return actions
