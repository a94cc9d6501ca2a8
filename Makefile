# make demo   a real program on real data, killed twice, ends with the very same bytes
# make test   the tests of every commit: ten minutes; those of the interpreter on one of the other versions of Python, too
# make nightly   all of every test; make soak   the long sweeps
# make help   the rest

PYTHON ?= $(shell command -v python3.11 2>/dev/null || command -v python3 2>/dev/null || echo python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help setup packages demo demo-redundancy test nightly others conformance programs lint format bench soak clean

help:
	@echo 'make setup   virtual environment with everything (done by itself when needed)'
	@echo 'make packages  what the tests need of the system (Debian, root): Slurm, hydra, file systems'
	@echo 'make demo-redundancy  the tsunami on 4 x 3 processes: flipped bits and kills, the same bytes'
	@echo 'make demo    the tsunami demo: two kills, the same bytes, what it cost'
	@echo 'make test    the tests of every commit (ARGS="-k name" calls pytest with these options instead)'
	@echo 'make nightly all of every test but the long sweeps, also on the other versions of Python'
	@echo 'make others  what depends on the interpreter, on another version of Python that is here'
	@echo 'make conformance   the tests of mpi4py itself, fetched, at 1 to 4 ranks'
	@echo 'make programs      public mpi4py programs, fetched: beside a real MPI, and killed twice'
	@echo 'make lint    ruff and mypy --strict'
	@echo 'make bench   the benchmarks, beside their peers, as ratios'
	@echo 'make soak    the long sweeps'
	@echo 'make clean   what the targets above have made'

setup: $(READY)

packages:
	.ci/run packages

# Made again when what is installed may have changed: the dependencies or the C module.
$(READY): pyproject.toml tools/setup.sh examples/tsunami/requirements.txt $(wildcard ckpt/*/*.c ckpt/*/*.h ckpt/*/*/*.c ckpt/*/*/*.h ckpt/*/*/*/*.c ckpt/*/*/*/*.h transport/*.c transport/*/*.c transport/*/*.h)
	tools/setup.sh '$(PYTHON)' '$(VENV)'
	@touch $@

demo: $(READY)
	$(BIN)/python examples/demo.py $(ARGS)

demo-redundancy: $(READY)
	$(BIN)/python examples/demo_redundancy.py $(ARGS)

test: $(READY)
	$(if $(ARGS),$(BIN)/python -m pytest $(ARGS),$(BIN)/python tools/run_tests.py)

nightly: $(READY)
	$(BIN)/python -m pip install -q --disable-pip-version-check -r tests/libraries/requirements.txt -r tests/libraries/torch.txt
	$(BIN)/python tools/run_tests.py --nightly

others: $(READY)
	$(BIN)/python tools/other_pythons.py $(ARGS)

conformance: $(READY)
	$(BIN)/python -m tests.conformance $(ARGS)

programs: $(READY)
	$(BIN)/python -m tests.programs $(ARGS)

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(READY)
	$(BIN)/python -m benchmarks $(ARGS)

# Hours. By and by: python -m tests.soak. What was looked at goes into benchmarks/soak.json, and its sums are printed.
soak: $(READY)
	-$(BIN)/python -m pip install -q atheris
	CKPT_SOAK_LEDGER=1 $(BIN)/python -m pytest -m soak --timeout 7200 $(ARGS)
	$(BIN)/python -m tests.soak

clean:
	rm -rf '$(VENV)' .venv-3.* build *.egg-info ckpt/*/*/*.so transport/*.so transport/*/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis demo-output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
