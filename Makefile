# Everything a contributor runs. `make help` lists the targets; the virtual environment is made when it is needed.

PYTHON ?= python3
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
# a file of `make lock`: install its packages, by their hashes, and no others
LOCK ?=
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow lint format bench-robot bench-sim bench-against bench-linearize bench-control bench-thermal bench-soft bench-all conformance impacts fuzz pairs solvers reliability robots docs kernels package doctor lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed-demo ## throw a ball with a robot arm, by gradients and by CMA-ES
	$(BIN)/pullback run throw

test: lint ## run the checks, then every test this machine can run but the slow ones
	$(BIN)/python -m pytest -n $(WORKERS)

test-slow: $(VENV)/.installed-dev ## run the tests that take minutes: trainings, browsers, long references
	$(BIN)/python -m pytest -n $(WORKERS) -m slow --timeout 3600

lint: $(VENV)/.installed-dev ## check style, formatting, layers and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/python tools/check_layers.py
	$(BIN)/pyright

format: $(VENV)/.installed-dev ## format the code, and mend what ruff can mend
	$(BIN)/ruff check --fix-only
	$(BIN)/ruff format

bench-robot: $(VENV)/.installed-bench ## measure robot kinematics and dynamics against other engines
	$(BIN)/python -m bench.robot

bench-sim: $(VENV)/.installed-bench ## measure simulation with contact, its gradient and its memory
	$(BIN)/python -m bench.sim

bench-against: $(VENV)/.installed-base ## compare the speed of one Laikago with an earlier commit: REV=...
	$(BIN)/python -m bench.against $(REV)

bench-linearize: $(VENV)/.installed-bench ## measure the Jacobians of steps against differences by MuJoCo
	$(BIN)/python -m bench.linearize

bench-control: $(VENV)/.installed-bench ## measure motion control and identification against other ways
	$(BIN)/python -m bench.control

bench-thermal: $(VENV)/.installed-bench ## measure a part being printed, its gradient and its memory
	$(BIN)/python -m bench.thermal

bench-soft: $(VENV)/.installed-bench ## measure soft bodies, their gradient and its memory
	$(BIN)/python -m bench.soft

bench-all: $(VENV)/.installed-bench ## every table against today's tools; makes environments for those that need one
	$(BIN)/python -m bench.all

conformance: $(VENV)/.installed-base ## compare gradients of the simulation with central differences
	$(BIN)/python -m checks.conformance

impacts: $(VENV)/.installed-base ## compare gradients through impacts with those of the physics
	$(BIN)/python -m checks.impacts

fuzz: $(VENV)/.installed-dev ## a million random steps over random worlds; settings, arguments and files
	$(BIN)/python -m checks.fuzz

pairs: $(VENV)/.installed-dev ## compare every pair of shapes with other engines and formulas
	$(BIN)/python -m checks.pairs

solvers: $(VENV)/.installed-base ## show every contact solver on the same four problems
	$(BIN)/python -m checks.solvers

reliability: $(VENV)/.installed-dev ## measure default settings: robots, energy, piles, schedules, threads
	$(BIN)/python -m checks.reliability

robots: $(VENV)/.installed-dev ## load every robot of the installed packages and compare it with Pinocchio
	$(BIN)/python -m checks.robots

docs: $(VENV)/.installed-docs ## build the documentation site into site/; a dead link fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --site-dir site

kernels: $(VENV)/.installed-base ## compile the kernels that a release ships, for x86-64 processors
	rm -rf pullback/kernels
	$(BIN)/pullback compile --into pullback/kernels

package: $(VENV)/.installed-dev ## build wheel and sdist, and run a contact gradient from the wheel in a clean environment
	$(BIN)/python tools/check_package.py

doctor: $(VENV)/.installed-base ## report what is installed and which devices are found
	$(BIN)/pullback doctor

lock: $(BIN)/python ## write requirements.lock: every package with its hash, for `make test LOCK=requirements.lock`
	$(BIN)/python tools/lock.py

clean: ## remove the virtual environment, caches and outputs
	rm -rf $(VENV) .pytest_cache .ruff_cache build dist out site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-base: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

# these hold the base as well, so that nothing is installed twice
$(VENV)/.installed-demo $(VENV)/.installed-dev $(VENV)/.installed-bench $(VENV)/.installed-docs: $(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(if $(LOCK),$(BIN)/python -m pip install --quiet --require-hashes -r $(LOCK))
	$(INSTALL) $(if $(LOCK),--no-deps) -e '.[$*]'
	@touch $@ $(VENV)/.installed-base
