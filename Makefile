# The one vocabulary of the project: people, hooks and CI call the same targets.
#   make demo    analyse a capture that ships with the project and write a report
#   make test    everything that must be green
# Both set up all they need (virtual environment, pinned dependencies, release build of the extension);
# they need a Rust toolchain, Python 3.11 or newer and a C compiler.

PYTHON ?= python3
FUZZ_SECONDS ?= 600
# Processes that share the Python tests: one a processor, at most four; PYTEST_WORKERS=0 runs them in one process.
PYTEST_WORKERS ?= logical
VENV := .venv
BIN := $(VENV)/bin
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
# Where the environment forbids bytecode, each of the many processes that the tests start would compile the package anew.
unexport PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

# cargo counts its own jobs: make's do not reach it.
CARGO := env -u MAKEFLAGS -u MFLAGS cargo
RUST_SOURCES := $(shell find rust -name '*.rs' -o -name Cargo.toml) Cargo.toml Cargo.lock

.PHONY: help demo test lint rust-lint python-lint rust-check python-test docs site calibrate pictures screenshots notebooks fixtures format bench fuzz dist-test lock clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.installed: requirements-dev.lock
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else f"pyanalyze needs Python 3.11 or newer, $(PYTHON) is {v.major}.{v.minor}; call make PYTHON=python3.11")'
	@command -v cargo >/dev/null || { echo "pyanalyze needs a Rust toolchain (cargo); see https://rustup.rs" >&2; exit 1; }
	@echo "setting up $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	@touch $@

$(VENV)/.built: $(VENV)/.installed $(RUST_SOURCES) pyproject.toml
	@echo "compiling the extension (a few minutes the first time)"
	@env -u MAKEFLAGS -u MFLAGS $(BIN)/maturin develop --release --locked > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log; exit 1; }
	@touch $@

demo: $(VENV)/.built ## analyse the capture that ships in fixtures/, print the verdict, write demo-report.html
	@$(BIN)/python fixtures/demo.py

# Two lanes: compiling the extension and the Python tests in one, what is Rust only in the other. They compile in folders
# of their own (release and debug), so that neither waits for the other.
test: ## everything that must be green
	@$(MAKE) --no-print-directory --jobs=2 python-test rust-check python-lint
	@echo "make test: all green"

lint: rust-lint python-lint ## formatting, clippy, ruff, layers, mypy, stub check

rust-lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --quiet -- -D warnings

python-lint: $(VENV)/.built
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache --no-logo
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest pyanalyze.core._core --ignore-disjoint-bases

# Clippy is a compiler: as the one of the tests it looks at the same code without compiling all dependencies once more.
rust-check: ## formatting, clippy and Rust tests, compiled once
	$(CARGO) fmt --all --check
	CLIPPY_ARGS=-Dwarnings RUSTC_WORKSPACE_WRAPPER=clippy-driver $(CARGO) test --workspace --locked --quiet

python-test: $(VENV)/.built ## Python tests, docstring examples included
	$(BIN)/python -m pytest -q -n $(PYTEST_WORKERS) --maxprocesses 4 --dist worksteal

docs: $(VENV)/.built ## regenerate docs/schemas.md, docs/troubleshooting.md and docs/measurements.md
	$(BIN)/python docs/generate.py

site: $(VENV)/.built ## build the documentation site in build/site, and look for dead links
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-site.lock
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	$(BIN)/python docs/check_links.py build/site

calibrate: $(VENV)/.built ## write what verdicts may claim, from simulated recordings (at most 15 minutes on two cores)
	$(BIN)/python tests/bench/verdicts.py --calibrate
	$(BIN)/python docs/generate.py

pictures: $(VENV)/.built ## take the pictures in docs/images (needs a system Chromium)
	$(BIN)/python docs/pictures.py

screenshots: $(VENV)/.built ## take pictures of six reports (light, dark, phone, print) in build/screenshots, to be looked at
	$(BIN)/python docs/screenshots.py

notebooks: $(VENV)/.built ## execute notebooks/*.ipynb in place
	$(BIN)/python notebooks/run_notebooks.py

fixtures: $(VENV)/.installed ## rebuild fixtures/captures; or make fixtures SCENARIO=mps SEED=7 OUT=folder
	$(BIN)/python fixtures/generate.py $(SCENARIO) $(if $(SEED),--seed $(SEED)) $(if $(SOLO),--solo) $(if $(OUT),--tables -o $(OUT))

bench: $(VENV)/.built ## measure; appends to docs/measurements.jsonl
	$(BIN)/python tests/bench/run.py
	$(BIN)/python tests/bench/ingest.py
	$(BIN)/python tests/bench/residency.py
	$(BIN)/python tests/bench/verdicts.py --seeds 4
	$(BIN)/python tests/bench/facts.py
	$(BIN)/python tests/bench/interference.py --seeds 4 --kernels 10000000
	$(BIN)/python tests/bench/coverage.py --first 1001 --seeds 170
	$(BIN)/python tests/bench/hardware.py
	$(BIN)/python tests/bench/recorder.py
	$(BIN)/python tests/bench/first_answer.py
	$(BIN)/python tests/bench/reports.py
	$(BIN)/python tests/bench/memory.py --compare --peers
	$(BIN)/python tests/bench/placement.py
	$(BIN)/python tests/bench/launches.py
	$(BIN)/python tests/bench/streams.py
	$(BIN)/python tests/bench/explain.py
	$(BIN)/python tests/bench/explain.py --speed
	$(BIN)/python tests/bench/occupancy.py --seeds 3
	$(BIN)/python tests/bench/occupancy.py --speed
	$(BIN)/python tests/bench/advice.py --first 11 --seeds 4
	$(BIN)/python tests/bench/forecast.py
	$(BIN)/python tests/bench/replicas.py --first 201 --seeds 2 --speed --launches 100000
	$(BIN)/python tests/bench/fleet.py
	$(BIN)/python tests/bench/scale.py

fuzz: $(VENV)/.built ## fuzz readers, state machine, escaping, commands, and mutate whole captures: FUZZ_SECONDS (600) each
	$(BIN)/python fuzz/run.py --seconds $(FUZZ_SECONDS)
	$(BIN)/python fuzz/sweep.py --seconds $(FUZZ_SECONDS) --seed $$(date +%s)
	PAGE_SCAN_SECONDS=$(FUZZ_SECONDS) cargo test --release --locked -p pyanalyze-core --test page_scan -- --ignored --nocapture

dist-test: $(VENV)/.built ## build wheel and sdist, install them where nothing is, offline too, and use them
	$(BIN)/python packaging/dist_test.py

format: $(VENV)/.installed ## format everything
	cargo fmt --all
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: ## renew requirements-dev.lock and requirements-site.lock, with hashes
	$(PYTHON) -m venv $(VENV)-lock
	$(VENV)-lock/bin/pip install --quiet pip-tools
	for name in dev site; do $(VENV)-lock/bin/pip-compile --quiet --allow-unsafe --generate-hashes --no-header --no-emit-index-url --no-emit-trusted-host --strip-extras --no-emit-find-links -o requirements-$$name.lock requirements-$$name.in || exit 1; done
	rm -rf $(VENV)-lock

clean: ## remove what was built
	rm -rf $(VENV) target
	find . -name '*.so' -path './pyanalyze/*' -delete
	find . -name __pycache__ -prune -exec rm -rf {} +
