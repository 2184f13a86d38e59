"""The folder that `foretrace profile run` puts on PYTHONPATH; only `sitecustomize` of it is ever imported."""
