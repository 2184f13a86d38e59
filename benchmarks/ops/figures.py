"""The figures of docs/accuracy-ops.md: each says its target, ours, and what it was fitted on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from foretrace.datasets import shipped
from foretrace.datasets.ops.table import OpTable
from foretrace.predictor.cost.learned.calibration import columns
from foretrace.predictor.cost.learned.ensemble import BlindEnsemble
from foretrace.predictor.cost.learned.families import NAMES, families_of
from foretrace.predictor.cost.learned.fit import shape_names, strata
from foretrace.predictor.cost.learned.pricer import OpPricer, canonical
from foretrace.predictor.cost.learned.rows import Rows, flag_names, groups_of

from . import sources
from .leave_out import DRAWS, Left, _after, by_device, errors_of, leave_out

NOMINAL = 0.8
NEW = "RTX-PRO-6000-SE"


@dataclass(frozen=True)
class Figure:
    """One line of the table of targets."""

    rows: str
    target: str
    ours: str
    fitted_on: str


def _mean(left: Left, method: str, devices: list[str], which: int = 0) -> float:
    scores = by_device(left, method)
    return float(np.mean([scores[name][which] for name in devices if name in scores]))


def _devices(table: OpTable) -> list[str]:
    return sorted(set(table.device.texts()))


def half_gemms(say) -> tuple[list[Figure], dict[str, Left]]:
    """fp16 and bf16 GEMMs, each device left out, then with its family."""
    table = canonical(sources.large_gemms())[0]
    devices = _devices(table)
    scored = [name for name in devices if name not in sources.VALIDATION]
    alone = leave_out("gemm", table, table, devices, shots=(20,))
    say("GEMM, devices left out")
    kin = leave_out("gemm", table, table, devices, what="family", shots=(20,))
    say("GEMM, families left out")
    ours = " / ".join(f"{_mean(*pick, scored):.1f}" for pick in ((alone, "blind"), (kin, "blind"), (alone, "20")))
    both = " / ".join(f"{_mean(*pick, devices):.1f}" for pick in ((alone, "blind"), (kin, "blind"), (alone, "20")))
    base = _mean(alone, "base", scored)
    return [
        Figure(
            "GEMM fp16/bf16, m >= 256, > 1 GFLOP, mean over scored devices: LODO blind / family-out / with 20 timings",
            "10.5 / 11.5 / 6", f"{ours} (base alone {base:.1f}; with validation devices {both})",
            "the same kind of rows of all other devices, 700 a group at most",
        )
    ], {"GEMM, device left out": alone, "GEMM, family left out": kin}  # fmt: skip


def full_gemms(say) -> tuple[list[Figure], dict[str, Left]]:
    """fp32 GEMMs and convolutions, each device left out."""
    table = canonical(sources.large_fp32_gemms())[0]
    wanted = ["A100-PCIE-40GB", "A100-PCIE-80GB", "V100-PCIE-32GB", "P100-PCIE-16GB", "T4", "MI100"]
    wanted = [name for name in wanted if name in _devices(table)]
    gemms = leave_out("gemm", table, table, wanted, shots=(20,))
    say("GEMM fp32, devices left out")
    conv = canonical(sources.convolutions())[0]
    ours = [name for name in _devices(conv) if name != "XeonPhi-KNL7250F"]
    convs = leave_out("convolution", conv, conv, ours)
    say("convolutions, devices left out")
    each = ", ".join(f"{name} {pair[0]:.0f}" for name, pair in by_device(gemms, "blind").items())
    seen = ", ".join(f"{name} {pair[0]:.0f}" for name, pair in by_device(convs, "blind").items())
    return [
        Figure("GEMM fp32 (A100, V100, P100, T4, MI100), LODO blind, mean", "16",
               f"{_mean(gemms, 'blind', wanted):.1f} ({each}); with 20 timings {_mean(gemms, '20', wanted):.1f}",
               "NeuSight's and DeepBench's fp32 GEMMs of all other devices, without P4"),
        Figure("conv fp32, LODO blind, mean", "20", f"{_mean(convs, 'blind', ours):.1f}, median "
               f"{_mean(convs, 'blind', ours, 1):.1f} ({seen})", "NeuSight's and DeepBench's fp32 convolutions"),
    ], {"GEMM fp32, device left out": gemms, "conv fp32, device left out": convs}  # fmt: skip


def attention(say) -> tuple[list[Figure], dict[str, Left]]:
    """Attention forward, full window: each device left out, and a new architecture."""
    table = canonical(sources.long_attention())[0]
    devices = _devices(table)
    scored = [name for name in devices if name not in sources.VALIDATION]
    alone = leave_out("attention", table, table, devices, shots=(10,))
    say("attention, devices left out")
    new = leave_out("attention", table, table, [NEW], what="family", shots=(10,))
    say("attention, a new architecture")
    ours = " / ".join(f"{_mean(alone, method, scored, 1):.1f}" for method in ("blind", "10"))
    both = " / ".join(f"{_mean(alone, method, devices, 1):.1f}" for method in ("blind", "10"))
    fresh = " / ".join(f"{_mean(new, method, [NEW], 1):.1f}" for method in ("blind", "10"))
    return [
        Figure("attention forward bf16 and fp16, full window, median: LODO blind / 10 timings", "12 / 6.5",
               f"{ours} (with validation devices {both})", "the same kind of rows of all other devices"),
        Figure("a new architecture (RTX PRO, its family left out): blind / 10 timings", "20 / 9", fresh,
               "the same kind of rows of all other families"),
    ], {"attention, device left out": alone}  # fmt: skip


def known_shapes(say) -> list[Figure]:
    """Shapes held out of known devices, priced as `foretrace price ops` does; estimate-train-time likewise."""
    scored = OpTable.of_frame(shipped.ops(parts=[shipped.SCORE]), where="shipped", times=True)
    pricer = OpPricer.load()
    pricer.remember(OpTable.of_frame(shipped.ops(), where="shipped", times=True))
    prices = pricer.price(scored)
    assert scored.time_s is not None
    error = 100.0 * np.abs(prices.time_s / scored.time_s - 1.0)
    table = canonical(scored)[0]
    held = ~table.source.map(lambda name: name in ("aceso", "tracelens"), bool)
    held &= ~table.device.map(lambda name: name.startswith("TPU"), bool)
    family = families_of(table)
    half = table.dtype.map(lambda name: name in ("fp16", "bf16"), bool)
    gemm = held & half & (family == NAMES.index("gemm")) & (table.m >= 256) & (table.flops > 1e9)
    full = (table.extra("window", 0.0) == 0) & ~table.kernel.map(lambda name: "triton" in name, bool)
    long = held & table.op.are("attention_fwd") & (table.m >= 256) & (scored.time_s > 50e-6) & full

    def mean(mask: np.ndarray) -> tuple[float, float]:
        group = groups_of(table).codes
        by = {}
        for code in np.unique(group[mask]):
            own = mask & (group == code)
            by.setdefault(int(table.device.codes[own][0]), []).append((error[own].mean(), np.median(error[own])))
        pairs = np.array([np.mean(values, axis=0) for values in by.values()])
        return float(pairs[:, 0].mean()), float(pairs[:, 1].mean())

    steps = table.source.are("estimate-train-time") & ~table.direction.are("opt")
    trains = [float(error[steps & table.device.are(name)].mean()) for name in ("A100-SXM4-80GB", "GH200-120GB")]
    medians = [float(np.median(error[steps & table.device.are(name)])) for name in ("A100-SXM4-80GB", "GH200-120GB")]
    g, a = mean(gemm), mean(long)
    say("held-out shapes of known devices")
    what = "shipped models and rows of the part `fit`; scored on the part `score`, whole shapes"
    return [
        Figure("same devices, whole shapes held out: GEMM / attention, mean", "3.3 / 4.5",
               f"{g[0]:.1f} / {a[0]:.1f} (median {g[1]:.1f} / {a[1]:.1f})", what),
        Figure("estimate-train-time, forward and backward, held-out 20 % of shapes: A100 / GH200, mean", "2.8 / 2.2",
               f"{trains[0]:.1f} / {trains[1]:.1f} (median {medians[0]:.1f} / {medians[1]:.1f})",
               what + "; optimizer rows apart"),
    ]  # fmt: skip


def neusight(say) -> list[Figure]:
    """NeuSight's test rows from its own four training GPUs."""
    table = canonical(sources.load("neusight", dtypes=("fp32",)))[0]
    four = table.device.map(lambda name: name in sources.NEUSIGHT_TRAIN, bool)
    train = table.take(np.flatnonzero(four & ~table.split.are("test")))
    test = table.take(np.flatnonzero(table.split.are("test")))
    h100 = test.device.are("H100-SXM5-80GB")
    blind, shots = {}, {}
    for op in ("bmm", "linear"):
        error, after = _from_four("gemm", _ops(train, op), _ops(test.take(np.flatnonzero(h100)), op), 20)
        blind[op], shots[op] = error.mean(), after
    say("NeuSight's H100 GEMMs")
    vector = []
    for name in ("elementwise.", "layernorm", "softmax"):
        tested = _ops(test, name)
        error, _ = _from_four("traffic", _ops(train, name), tested, 0)
        unseen = ~tested.device.map(lambda own: own in sources.NEUSIGHT_TRAIN, bool)
        vector.append((error.mean(), error[unseen].mean()))
    say("NeuSight's vector ops")
    what = "NeuSight's train rows of P100, V100, T4, A100-40"
    return [
        Figure("NeuSight's H100 test rows: bmm / linear, mean, blind", "12 / 10",
               f"{blind['bmm']:.1f} / {blind['linear']:.1f}", what),
        Figure("the same with 20 timings", "8 / 5.5", f"{shots['bmm']:.1f} / {shots['linear']:.1f}",
               what + "; 20 of its test rows, which are not scored"),
        Figure("NeuSight's elementwise, layernorm, softmax test rows, mean", "2 / 12 / 13",
               " / ".join(f"{pair[0]:.1f}" for pair in vector) + " (unseen devices only: "
               + " / ".join(f"{pair[1]:.1f}" for pair in vector) + ")", what),
    ]  # fmt: skip


def _ops(table: OpTable, prefix: str) -> OpTable:
    return table.take(np.flatnonzero(table.op.map(lambda name: name.startswith(prefix), bool)))


def _from_four(family: str, train: OpTable, test: OpTable, shot: int) -> tuple[np.ndarray, float]:
    """Errors in per cent of the test rows, and their mean after `shot` timings."""
    index = NAMES.index(family)
    rows, tested = Rows.of(index, train), Rows.of(index, test)
    assert train.time_s is not None and test.time_s is not None
    flags = tuple(name for name in flag_names(train) if not name.startswith(("source", "framework")))
    model = BlindEnsemble(rounds=200, rate=0.08)
    stratum = strata(train, groups_of(train))
    model.fit(rows.shape, rows.device, rows.flags(flags), np.log(train.time_s / rows.base_s), stratum)
    left = np.log(test.time_s / tested.base_s) - model.predict(tested.shape, tested.device, tested.flags(flags))
    after = np.nan
    if shot:
        features = tested.shape[:, columns(shape_names(index), family)].astype(np.float64)
        rest = [_after(features, left, shot, family, draw) for draw in range(DRAWS)]
        after = float(np.mean([np.nanmean(100.0 * np.abs(np.exp(-draw) - 1.0)) for draw in rest]))
    return 100.0 * np.abs(np.exp(-left) - 1.0), after


def intervals(found: dict[str, Left]) -> list[Figure]:
    """80 % intervals of left-out devices; a device's width comes from the errors of the others."""
    lines = []
    for title, left in found.items():
        for method in ("blind", *(name for name in left.said if name.isdigit())):
            covered = _coverage(left, method)
            worst = min(covered, key=covered.__getitem__)
            word = "blind" if method == "blind" else f"after {method} timings"
            lines.append(
                Figure(f"80 % interval, {title}, {word}: average / worst device", "76 to 86 / >= 65",
                       f"{np.mean(list(covered.values())):.0f} / {covered[worst]:.0f} ({worst})",
                       "errors of the other left-out devices")
            )  # fmt: skip
    return lines


def _coverage(left: Left, method: str) -> dict[str, float]:
    """Device -> per cent of rows within the width that the other devices' errors give."""
    said = left.said[method]
    log_error = np.abs(said if said.ndim == 2 else (left.log_ratio - said)[None])
    names = [name for name in sorted(set(left.device)) if np.isfinite(log_error[:, left.device == name]).any()]
    quantile = {name: np.nanquantile(log_error[:, left.device == name], NOMINAL) for name in names}
    found = {}
    for name in names:
        width = np.quantile([quantile[other] for other in names if other != name], 0.6)
        own = log_error[:, left.device == name]
        found[name] = 100.0 * float((own[np.isfinite(own)] <= width).mean())
    return found


__all__ = ["Figure", "attention", "errors_of", "full_gemms", "half_gemms", "intervals", "known_shapes", "neusight"]
