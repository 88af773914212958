PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LEROBOT := .venv-lerobot
LEROBOT_STAMP := $(LEROBOT)/.installed

.PHONY: demo test test-lerobot unit explore conform-matrix soak lint type proto proto-check bench clean

demo: $(STAMP)
	$(BIN)/rlmesh-trio run CartPole-v1 --episodes 64 --lanes 8 --seed 7

test: lint type unit

# Side by side on as many cores as there are, four at most; python -m pytest runs them one by one.
# Exploring, the properties are tried on other examples each time.
unit: $(STAMP)
	$(BIN)/python -m pytest $(EXAMPLES) --numprocesses logical --maxprocesses 4 --dist worksteal

explore: EXAMPLES := --hypothesis-profile explore
explore: unit

# LeRobot brings torch (some gigabytes) and other versions of packages than the lock's.
test-lerobot: $(LEROBOT_STAMP)
	$(LEROBOT)/bin/python -m pytest -W ignore tests/lerobot_loader/load_with_lerobot.py

conform-matrix: $(STAMP)
	$(BIN)/python -W ignore -m tests.conformance.gym_matrix

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

$(LEROBOT_STAMP): pyproject.toml
	$(PYTHON) -m venv $(LEROBOT)
	$(LEROBOT)/bin/python -m pip install --quiet --upgrade pip
	$(LEROBOT)/bin/python -m pip install --quiet --editable '.[mcap,parquet,lerobot]' 'lerobot>=0.4.4,<0.5' pytest pytest-trio
	touch $@

clean:
	rm -rf $(VENV) $(LEROBOT) .pytest_cache .ruff_cache .hypothesis
