"""foretrace: how fast, how big and how costly a training step will be, before the machines are rented.

The package has four rooms, each a top-level folder of the repository:

* `foretrace.datasets`: what all rooms speak (row schemas, op families, Plan, workload specs, run store, errors).
* `foretrace.profiler`: real run -> Profile.
* `foretrace.predictor`: workload x cluster x plan -> Prediction.
* `foretrace.cli`: the `foretrace` command.
"""

__version__ = "0.1.0"
