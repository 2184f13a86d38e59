"""The compiled loops. Imported where they are called, because importing compiles or loads them.

Everything that a loop calls stays in this file: numba's cache knows a change by the hash of one source file.
"""

from __future__ import annotations

import numpy as np
from numba import types

from .compiled import njit


def _input(dtype: types.Type, dims: int = 1) -> types.Array:
    """C-contiguous array that is only read; writable ones are taken too."""
    return types.Array(dtype, dims, "C", readonly=True)


_INDICES, _OFFSETS, _REALS, _MATRIX = (
    _input(types.int32), _input(types.int64), _input(types.float64), _input(types.float64, 2)
)  # fmt: skip
# Loads are running sums: ten users of 0.1 fill a capacity of 1, they do not exceed it.
_NO_MORE_THAN_FULL = 1.0 + 1e-12

_REALS_OUT, _MATRIX_OUT = types.float64[::1], types.float64[:, ::1]


@njit(types.boolean(types.int64, _INDICES, _OFFSETS, _INDICES, _MATRIX, _MATRIX_OUT, _MATRIX_OUT, _REALS_OUT))
def longest_path(streams, stream, dep_ptr, dep_idx, duration, start, end, makespan):
    """Start and end of every task where nothing is shared. False at a duration that is negative, infinite or NaN.

    Samples beyond the rows of `start` and `end` overwrite their last row, for callers who want the makespans only.
    """
    free_at = np.empty(streams)
    for sample in range(len(duration)):
        row = min(sample, len(start) - 1)
        free_at[:] = 0.0
        valid = True
        for task in range(len(stream)):
            begin = free_at[stream[task]]
            for edge in range(dep_ptr[task], dep_ptr[task + 1]):
                begin = max(begin, end[row, dep_idx[edge]])
            seconds = duration[sample, task]
            valid &= (seconds >= 0.0) & (seconds < np.inf)
            start[row, task] = begin
            end[row, task] = free_at[stream[task]] = begin + seconds
        if not valid:
            return False
        for at in free_at:
            makespan[sample] = max(makespan[sample], at)
    return True


@njit()
def _successors(streams, stream, dep_ptr, dep_idx):
    """The graph turned round: how many tasks each task waits for, and (compressed by row) those that wait for it.

    The predecessor on the stream is one of those waited for.
    """
    tasks = len(stream)
    previous = np.empty(tasks, np.int32)
    last = np.full(streams, -1, np.int32)
    waits = np.empty(tasks, np.int32)
    next_ptr = np.zeros(tasks + 2, np.int64)  # counted two places up, so that filling moves each row to its place
    for task in range(tasks):
        before = last[stream[task]]
        previous[task] = before
        last[stream[task]] = task
        waits[task] = dep_ptr[task + 1] - dep_ptr[task]
        for edge in range(dep_ptr[task], dep_ptr[task + 1]):
            next_ptr[dep_idx[edge] + 2] += 1
        if before >= 0:
            waits[task] += 1
            next_ptr[before + 2] += 1
    for task in range(tasks):
        next_ptr[task + 2] += next_ptr[task + 1]
    next_idx = np.empty(next_ptr[tasks + 1], np.int32)
    for task in range(tasks):
        for edge in range(dep_ptr[task], dep_ptr[task + 1]):
            next_idx[next_ptr[dep_idx[edge] + 1]] = task
            next_ptr[dep_idx[edge] + 1] += 1
        if previous[task] >= 0:
            next_idx[next_ptr[previous[task] + 1]] = task
            next_ptr[previous[task] + 1] += 1
    return waits, next_ptr, next_idx


@njit()
def _release(task, next_ptr, next_idx, waiting, ready, ready_count):
    """Tell those that wait for `task` that it has ended; returns the new number of ready tasks."""
    for edge in range(next_ptr[task], next_ptr[task + 1]):
        waiting[next_idx[edge]] -= 1
        if waiting[next_idx[edge]] == 0:
            ready[ready_count] = next_idx[edge]
            ready_count += 1
    return ready_count


@njit()
def _take(task, use_ptr, use_idx, use_rate, capacity, load, users, active, place, active_count, over):
    """Add what a starting task takes at full speed to `load`; returns the new number of resources in use, and over.

    `active[:active_count]` are the resources in use, each at its `place`; `over` of them are asked for too much.
    """
    for use in range(use_ptr[task], use_ptr[task + 1]):
        resource = use_idx[use]
        if use_rate[use] > 0.0:
            if users[resource] == 0:
                active[active_count] = resource
                place[resource] = active_count
                active_count += 1
            users[resource] += 1
            over -= load[resource] > capacity[resource] * _NO_MORE_THAN_FULL
            load[resource] += use_rate[use]
            over += load[resource] > capacity[resource] * _NO_MORE_THAN_FULL
    return active_count, over


@njit()
def _give_back(task, use_ptr, use_idx, use_rate, capacity, load, users, active, place, active_count, over):
    """The contrary of `_take`."""
    for use in range(use_ptr[task], use_ptr[task + 1]):
        resource = use_idx[use]
        if use_rate[use] > 0.0:
            over -= load[resource] > capacity[resource] * _NO_MORE_THAN_FULL
            users[resource] -= 1
            load[resource] -= use_rate[use]
            if users[resource] == 0:
                load[resource] = 0.0  # rounding does not outlive the last user
                active_count -= 1
                moved = active[active_count]
                active[place[resource]] = moved
                place[moved] = place[resource]
            over += load[resource] > capacity[resource] * _NO_MORE_THAN_FULL
    return active_count, over


@njit()
def _share(count, running, use_ptr, use_idx, use_rate, capacity, load, active, active_count, rising_load, left, rate):
    """Max-min fair rates of the `count` running tasks, into `rate`.

    All rates rise together from 0. When a resource is used up the tasks on it keep the rate they have reached; the
    others rise on, to 1 at most. `rising_load` and `left` are scratch, one place per resource: what is asked for by
    the tasks that still rise, and what is left for them.
    """
    for index in range(active_count):
        resource = active[index]
        rising_load[resource] = load[resource]
        left[resource] = capacity[resource]
    for slot in range(count):
        rate[slot] = 1.0
    rising = count
    reached = 0.0
    while rising > 0:
        level = 1.0
        full = -1
        for index in range(active_count):
            resource = active[index]
            if rising_load[resource] > 0.0 and left[resource] < level * rising_load[resource]:
                level = left[resource] / rising_load[resource]
                full = resource
        if full < 0:
            break
        # What is left and the load are differences; without this their rounding could let a rate fall, even below 0.
        reached = max(reached, level)
        for slot in range(count):
            if rate[slot] < 1.0:
                continue
            first, beyond = use_ptr[running[slot]], use_ptr[running[slot] + 1]
            for use in range(first, beyond):
                if use_idx[use] == full and use_rate[use] > 0.0:
                    rate[slot] = reached
            if rate[slot] < 1.0:
                rising -= 1
                for use in range(first, beyond):
                    if use_idx[use] != full:
                        left[use_idx[use]] -= reached * use_rate[use]
                        rising_load[use_idx[use]] -= use_rate[use]
        rising_load[full] = 0.0


@njit(
    types.boolean(
        types.int64, _INDICES, _OFFSETS, _INDICES, _OFFSETS, _INDICES, _REALS, _REALS,
        _MATRIX, _MATRIX_OUT, _MATRIX_OUT, _REALS_OUT,
    )
)  # fmt: skip
def advance_by_events(
    streams, stream, dep_ptr, dep_idx, use_ptr, use_idx, use_rate, capacity, duration, start, end, makespan
):
    """Start and end of every task where resources are shared. False, and rows, as in `longest_path`.

    A running task keeps the time at which it will finish, which moves only when its rate does. Rates change only when a
    task that uses something starts or ends, so tasks that share nothing end at exactly start + duration.
    """
    tasks, resources = len(stream), len(capacity)
    waits, next_ptr, next_idx = _successors(streams, stream, dep_ptr, dep_idx)
    waiting = np.empty(tasks, np.int32)
    ready = np.empty(streams, np.int32)  # of each stream only the first unfinished task can be ready or running
    running = np.empty(streams, np.int32)
    finish, rate, fair_rate = np.empty(streams), np.empty(streams), np.empty(streams)
    load, users = np.zeros(resources), np.zeros(resources, np.int32)
    active, place = np.empty(resources, np.int32), np.empty(resources, np.int32)
    rising_load, left = np.empty(resources), np.empty(resources)
    for sample in range(len(duration)):
        row = min(sample, len(start) - 1)
        ready_count = 0
        for task in range(tasks):
            if not 0.0 <= duration[sample, task] < np.inf:
                return False
            waiting[task] = waits[task]
            if waits[task] == 0:
                ready[ready_count] = task
                ready_count += 1
        now = 0.0
        count = 0  # of running tasks
        active_count = over = 0
        users_changed = slowed = False
        while True:
            while ready_count > 0:
                ready_count -= 1
                task = ready[ready_count]
                start[row, task] = now
                if duration[sample, task] > 0.0:
                    running[count] = task
                    finish[count] = now + duration[sample, task]
                    rate[count] = 1.0
                    count += 1
                    if use_ptr[task] < use_ptr[task + 1]:
                        users_changed = True
                        active_count, over = _take(
                            task, use_ptr, use_idx, use_rate, capacity, load, users, active, place, active_count, over
                        )
                else:
                    end[row, task] = now
                    ready_count = _release(task, next_ptr, next_idx, waiting, ready, ready_count)
            if count == 0:
                break
            if users_changed and (over > 0 or slowed):
                slowed = over > 0
                if slowed:
                    _share(
                        count, running, use_ptr, use_idx, use_rate, capacity, load, active, active_count,
                        rising_load, left, fair_rate,
                    )  # fmt: skip
                else:
                    fair_rate[:count] = 1.0
                for slot in range(count):
                    moved = now + (finish[slot] - now) * (rate[slot] / fair_rate[slot])
                    finish[slot] = finish[slot] if fair_rate[slot] == rate[slot] else moved
                    rate[slot] = fair_rate[slot]
            users_changed = False
            now = finish[0]
            for slot in range(1, count):
                now = min(now, finish[slot])
            slot = 0
            while slot < count:
                if finish[slot] > now:
                    slot += 1
                    continue
                task = running[slot]
                end[row, task] = now
                ready_count = _release(task, next_ptr, next_idx, waiting, ready, ready_count)
                if use_ptr[task] < use_ptr[task + 1]:
                    users_changed = True
                    active_count, over = _give_back(
                        task, use_ptr, use_idx, use_rate, capacity, load, users, active, place, active_count, over
                    )
                count -= 1
                running[slot], finish[slot], rate[slot] = running[count], finish[count], rate[count]
        makespan[sample] = now
    return True


@njit(_INDICES.copy(readonly=False)(types.int64, _INDICES, _OFFSETS, _INDICES, _REALS, types.int64))
def walk_back(streams, stream, dep_ptr, dep_idx, end, task):
    """From `task` back through what each task waited for last, to a task that waited for nothing: ids, last first."""
    previous = np.empty(len(stream), np.int32)
    last = np.full(streams, -1, np.int32)
    for index in range(len(stream)):
        previous[index] = last[stream[index]]
        last[stream[index]] = index
    path = np.empty(len(stream), np.int32)
    count = 0
    while task >= 0:
        path[count] = task
        count += 1
        # Of several that ended last the one on the same stream is named: work hides communication, not the other way.
        latest = previous[task]
        for edge in range(dep_ptr[task], dep_ptr[task + 1]):
            if latest < 0 or end[dep_idx[edge]] > end[latest]:
                latest = dep_idx[edge]
        task = latest
    return path[:count].copy()
