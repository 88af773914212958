PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test unit soak lint type proto proto-check bench clean

demo: $(STAMP)
	$(BIN)/rlmesh-trio run CartPole-v1 --episodes 64 --lanes 8 --seed 7

test: lint type unit

unit: $(STAMP)
	$(BIN)/python -m pytest

soak: $(STAMP)
	$(BIN)/python -m rlmesh_trio.testing.soak

lint: $(STAMP) proto-check
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(STAMP)
	$(BIN)/pyright

proto: $(STAMP)
	$(BIN)/python schemas/generate.py

proto-check: $(STAMP)
	$(BIN)/python schemas/generate.py --check

bench: $(STAMP)
	$(BIN)/python -m benchmarks

$(STAMP): pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint requirements.lock --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis
