"""Maps the top-level folders onto the import package: `profiler/` installs as `foretrace.profiler`, and so on.

Only this mapping lives here; everything else is in pyproject.toml. It is code because setuptools cannot discover
packages under several mapped roots, and a list by hand would forget the next folder.
"""

from setuptools import find_packages, setup

ROOMS = ("datasets", "profiler", "predictor", "cli")

packages = ["foretrace"]
for room in ROOMS:
    packages += [f"foretrace.{room}", *(f"foretrace.{room}.{sub}" for sub in find_packages(room))]

setup(
    packages=packages,
    package_dir={"foretrace": "foretrace", **{f"foretrace.{room}": room for room in ROOMS}},
    package_data={"": ["py.typed", "**/*.json", "**/*.csv", "**/*.parquet", "**/*.html", "**/NOTICE"]},
)
