# Everything a newcomer types. Each target sets up what it needs, on a machine with Python 3.11+, gcc and PyPI.
# Another Python: make test PYTHON=/path/to/python3.12.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# The targets share an environment, so an upper bound of one of them is an upper bound for all.
PIP_UPGRADE := $(BIN)/python -m pip install --quiet 'pip>=25'
PIP_INSTALL := $(BIN)/python -m pip install --constraint tools/constraints.txt
LIGHT ?= .venv-without-tensorflow
# The PyTorch to test feeds with, and its environment.
TORCH ?= torch
TORCH_VENV ?= .venv-torch
TESTS_WITHOUT_TENSORFLOW := tests/without_tensorflow tests/golden/test_tfds_4_9_10.py \
	$(addprefix tests/rlds/test_,alignment.py normalization.py) tests/rlds/statistics \
	$(addprefix tests/rlds/feeds/test_,core.py images.py permutation.py) \
	$(addprefix tests/rlds/evaluation/test_,evaluation_set.py importance.py)

# The editable install compiles the extensions in place; it is redone when their sources change.
COMPILED := riegeli rlds/feeds
SOURCES := pyproject.toml setup.py $(COMPILED:%=%/_compiled.pyx)

# Tests that run twice: with the compiled cores, and in plain Python.
TESTS_OF_CORES := tests/riegeli $(addprefix tests/rlds/feeds/test_,core.py permutation.py)

# The environment with the lowest releases, and the extras that it installs.
LOWEST ?= .venv-lowest
LOWEST_EXTRAS := all creator examples grain jax postgresql
LOWEST_TESTS ?= $(addprefix tests/,envlogger rlds rlds_creator rlds_tools tfds_builders)

# The environment of TypeScript and Biome, which check the code of the pages.
NODE_TOOLS ?= .venv-node

# Seconds that `make fuzz` spends on Riegeli files, and again on raw data.
FUZZ_SECONDS ?= 1800

.PHONY: audit quickstart test test-all test-without-tensorflow test-torch lower-bounds lint lint-pages format docs bench wheel notebooks colab fuzz protos clean

quickstart: $(VENV)/.examples
	$(BIN)/python examples/quickstart.py

# A first pass that fails does not hide what the second one finds. The last lines name the tests that
# failed in either of them, which `tests/conftest.py` writes to this file.
FAILED := .pytest_cache/failed.txt
PYTEST := FAILED_TESTS=$(FAILED) $(BIN)/python -m pytest -n auto --dist worksteal
SHOW_FAILED := if [ "$$failed" ]; then echo "Failed in one of the two passes:"; sort -u $(FAILED); exit 1; fi

test: $(VENV)/.dev
	failed=; mkdir -p $(dir $(FAILED)); : > $(FAILED); \
	$(PYTEST) --durations 40 -m "not slow" || failed=1; \
	RIEGELI_IMPLEMENTATION=python $(PYTEST) -m "not slow" $(TESTS_OF_CORES) || failed=1; \
	$(SHOW_FAILED)

test-all: $(VENV)/.dev $(VENV)/.wheel
	failed=; mkdir -p $(dir $(FAILED)); : > $(FAILED); \
	FEW_EXAMPLES=8 $(PYTEST) || failed=1; \
	RIEGELI_IMPLEMENTATION=python $(PYTEST) $(TESTS_OF_CORES) || failed=1; \
	$(SHOW_FAILED)

# The packages below the builders, in an environment that has no TensorFlow.
test-without-tensorflow: $(LIGHT)/.installed
	WITHOUT_TENSORFLOW=1 $(LIGHT)/bin/python -m pytest $(TESTS_WITHOUT_TENSORFLOW)

# Feeds in PyTorch and Grain, where there is no TensorFlow either, which one of the tests writes raw data with.
test-torch: $(TORCH_VENV)/.installed
	$(TORCH_VENV)/bin/python -m pytest --ignore tests/rlds/feeds/test_sources.py \
		tests/rlds/feeds tests/examples/test_behaviour_cloning.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/words.py
	@if $(MAKE) --no-print-directory $(NODE_TOOLS)/.installed; then $(MAKE) --no-print-directory lint-pages; \
	else echo "The JavaScript of the pages was NOT checked: npm is missing, or could not install tools/package.json."; fi

# The JavaScript of the pages: rules, then types.
lint-pages: $(NODE_TOOLS)/.installed
	$(NODE_TOOLS)/node_modules/.bin/biome lint --error-on-warnings rlds_creator rlds_tools tests
	$(NODE_TOOLS)/node_modules/.bin/tsc

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The documentation site: build/docs/index.html.
docs: $(VENV)/.docs
	$(BIN)/sphinx-build --fresh-env --fail-on-warning --keep-going --quiet docs build/docs

# Side by side with the published packages. QUICK=1: in a few minutes, only to look at.
bench: $(VENV)/.dev
	$(BIN)/python benchmarks/run.py $(if $(QUICK),--quick)

# The tables of docs/audit.md, and that of the ranking in docs/evaluation.md.
audit: export OMP_NUM_THREADS = 1
audit: export OPENBLAS_NUM_THREADS = 1
audit: $(VENV)/.dev
	$(BIN)/python benchmarks/auditing.py
	$(BIN)/python benchmarks/cloning.py
	$(BIN)/python benchmarks/ranking.py

# Writes the notebooks from the scripts in the same folder.
notebooks: $(VENV)/.dev
	$(BIN)/python tools/notebooks.py

# Installs the project in an environment like Colab's, and runs notebooks there. Takes 10 minutes, and 3 GB of disk.
colab:
	$(PYTHON) tools/colab.py

# Feeds hostile files to riegeli, whose core is built with AddressSanitizer, and spoilt raw data to the sources. Needs gcc, and Linux.
fuzz: $(VENV)/.fuzz
	$(BIN)/python fuzz/run.py --seconds $(FUZZ_SECONDS)
	$(BIN)/python fuzz/sources.py --seconds $(FUZZ_SECONDS)

# The sdists and the wheels, with TensorFlow and light, in dist/: checked, and tried on every Python at hand.
wheel: $(VENV)/.wheel
	$(BIN)/python tools/wheel.py

# Fast tests with the lowest releases that pyproject.toml allows. The warnings of old releases of gcsfs and
# JAX are not of this project. Without FSSPEC_GS_TOKEN, gcsfs looks for credentials in each thread.
lower-bounds: $(LOWEST)/.installed
	FSSPEC_GS_TOKEN=anon PYTHONPATH=$(CURDIR) $(LOWEST)/bin/python -m pytest -n auto --dist worksteal -p no:anyio -m "not slow" \
		-W 'ignore:You are using a Python version:FutureWarning' -W 'ignore:os.fork:RuntimeWarning' $(LOWEST_TESTS)

# box2d-py is compiled with swig. Zarr, Minari and Flask ask for later releases of packages that the others need too.
$(LOWEST)/.installed: pyproject.toml tools/lower_bounds.txt | $(VENV)/.dev
	$(BIN)/python -m venv --clear $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet swig uv
	$(LOWEST)/bin/uv pip compile --quiet --resolution lowest-direct $(LOWEST_EXTRAS:%=--extra %) \
		pyproject.toml tools/lower_bounds.txt -o $(LOWEST)/lowest.txt
	PATH="$(abspath $(LOWEST))/bin:$$PATH" uv pip install --quiet --python $(LOWEST)/bin/python --requirement $(LOWEST)/lowest.txt
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps \
		'zarr==3.0.8' crc32c donfig 'minari==0.5.4' flask flask-cors blinker itsdangerous
	touch $@

# An older pip tries hundreds of releases of the dependencies of `dev` one after the other.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP_UPGRADE)

$(VENV)/.examples: $(SOURCES) | $(BIN)/python
	$(PIP_INSTALL) --editable '.[examples]'
	touch $@

# A core that was built for one Python would be taken instead of the new one.
$(VENV)/.dev: $(SOURCES) | $(BIN)/python
	$(PIP_UPGRADE)
	rm -f $(COMPILED:%=%/_compiled*.so)
	RIEGELI_IMPLEMENTATION=cython $(PIP_INSTALL) --editable '.[dev]'
	touch $@ $(VENV)/.examples

# The packages are imported from here, where the other environment has compiled them.
$(LIGHT)/.installed: pyproject.toml tests/without_tensorflow/requirements.py | $(VENV)/.dev
	$(BIN)/python -m venv --clear $(LIGHT)
	$(BIN)/python tests/without_tensorflow/requirements.py > $(LIGHT)/requirements.txt
	$(LIGHT)/bin/python -m pip install --quiet --requirement $(LIGHT)/requirements.txt
	touch $@

$(TORCH_VENV)/.installed: pyproject.toml tests/without_tensorflow/requirements.py | $(VENV)/.dev
	$(BIN)/python -m venv --clear $(TORCH_VENV)
	$(BIN)/python tests/without_tensorflow/requirements.py torch grain gymnasium ros video zarr > $(TORCH_VENV)/requirements.txt
	$(TORCH_VENV)/bin/python -m pip install --quiet --requirement $(TORCH_VENV)/requirements.txt '$(TORCH)'
	touch $@

$(NODE_TOOLS)/.installed: tools/package.json tools/package-lock.json
	mkdir -p $(NODE_TOOLS)
	cp tools/package.json tools/package-lock.json $(NODE_TOOLS)
	npm ci --prefix $(NODE_TOOLS) --no-audit --no-fund
	touch $@

$(VENV)/.wheel: $(SOURCES) | $(BIN)/python
	$(PIP_INSTALL) --editable '.[wheel]'
	touch $@

$(VENV)/.docs: $(SOURCES) | $(BIN)/python
	$(PIP_INSTALL) --editable '.[docs]'
	touch $@

$(VENV)/.fuzz: $(SOURCES) | $(BIN)/python
	$(PIP_INSTALL) --editable '.[fuzz]'
	touch $@

clean:
	rm -rf $(VENV) $(LIGHT) $(TORCH_VENV) $(NODE_TOOLS) build dist *.egg-info $(COMPILED:%=%/*.c) $(COMPILED:%=%/*.so) out .hypothesis

# Generates the *_pb2 modules. This protoc's output runs with every protobuf release since 4.25.
protos:
	$(PYTHON) -m venv .venv-protos
	.venv-protos/bin/pip install --quiet 'grpcio-tools==1.62.3' 'setuptools<80'
	.venv-protos/bin/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. \
		envlogger/proto/storage.proto riegeli/records/records_metadata.proto
