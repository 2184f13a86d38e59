"""Run folders: parquet parts and a JSON manifest, written atomically by many writers at once."""

from .reader import RunFolder, is_run_folder, read_run
from .writer import RUN_ID_VARIABLE, RunWriter, new_run_id

__all__ = ["RUN_ID_VARIABLE", "RunFolder", "RunWriter", "is_run_folder", "new_run_id", "read_run"]
