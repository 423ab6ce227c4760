# `make demo`: everything from an empty clone to the table of results. `make test`: the tests. Both set up .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo voxgate results setup test test-slow lint docs docs-serve clean
.DEFAULT_GOAL := demo

demo: setup
	$(BIN)/python tools/demo.py

# After `make demo`: VoxGate's supervised and GRPO stages, three seeds and their ablations; docs/results/voxgate.md.
voxgate: setup
	$(BIN)/python tools/voxgate.py

# After `make demo`: the studies of docs/results/. FAST=1 runs two steps and an item of each task, and writes no page of docs.
results: setup
	$(BIN)/python tools/results.py $(if $(FAST),fast=true,)

setup: $(STAMP)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "WearLlama needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	@echo "installing WearLlama and its dependencies into $(VENV) (about 6 GB, some minutes)"
	$(BIN)/python -m pip install -e '.[assets,conditions,dev]'
	touch $@

test: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2

test-slow: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The site, strictly: a warning is an error. build/site/index.html; docs-serve shows it while it is written.
docs: setup
	NO_MKDOCS_2_WARNING=1 OMP_NUM_THREADS=1 $(BIN)/mkdocs build --strict

docs-serve: setup
	OMP_NUM_THREADS=1 $(BIN)/mkdocs serve

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
