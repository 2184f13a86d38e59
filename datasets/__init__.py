"""The ground floor: what profiler, predictor and cli all speak. Imports nothing else of ours.

Row schemas, op families (dims, FLOPs, bytes; no seconds), Plan, workload specs and their loader, the run store, errors.
"""
