# foretrace: everything a developer or CI runs. `make test` works from a clean checkout.

BASE_PYTHON ?= python3
VENV        ?= .venv
PYTHON      := $(VENV)/bin/python
INSTALLED   := $(VENV)/.installed
PYTEST_ARGS ?=
TREE        := .mypy_cache/tree

.PHONY: test check format demo bench-closed-loop bench-ops bench-collectives bench-overhead bench-simulate clean

test: $(INSTALLED)
	$(PYTHON) -m pytest $(PYTEST_ARGS)

check: $(INSTALLED)
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	# mypy knows no package-dir map; it gets the installed shape as a tree of links.
	mkdir -p $(TREE)/foretrace
	ln -sfn $(foreach name,cli profiler predictor datasets,$(CURDIR)/$(name)) $(wildcard $(CURDIR)/foretrace/*.py) $(TREE)/foretrace/
	MYPYPATH=$(TREE) $(PYTHON) -m mypy --cache-dir .mypy_cache/results -p foretrace

format: $(INSTALLED)
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

demo: $(INSTALLED)
	$(PYTHON) benchmarks/demo.py

bench-closed-loop: $(INSTALLED)
	$(PYTHON) -m benchmarks.closed_loop

bench-ops: $(INSTALLED)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,torch,fit]'
	$(PYTHON) -m benchmarks.ops

bench-collectives: $(INSTALLED)
	$(PYTHON) -m benchmarks.collective_prices

bench-overhead: $(INSTALLED)
	$(PYTHON) benchmarks/overhead.py

bench-simulate: $(INSTALLED)
	$(PYTHON) benchmarks/simulate_speed.py

$(INSTALLED): pyproject.toml setup.py constraints.txt
	test -x $(PYTHON) || $(BASE_PYTHON) -m venv $(VENV)
	$(PYTHON) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,torch]'
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .hypothesis .mypy_cache .ruff_cache
