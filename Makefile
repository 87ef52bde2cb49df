# Each command installs what it needs into .venv, the first time, from the pinned versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
RUN := $(BIN)/python
PIP := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip --disable-pip-version-check --quiet
SCENE := .venv-scene/bin
SCENE_PIP := PIP_CONSTRAINT="constraints.txt constraints-scene.txt" $(SCENE)/python -m pip \
	--disable-pip-version-check --quiet
comma := ,
PYTEST := -m pytest -n 2 --dist worksteal
# The pages need the tools of the documentation, which `make test` has.
VERSIONS := --ignore tests/test_docs.py -m "not slow"

.PHONY: demo test test-all test-scene test-oldest test-newest nightly check format docs package bench bench-tables \
	bench-labels bench-scene clean

demo: .venv/cli
	$(BIN)/inlier reproduce regression --preset cpu

# A few minutes: everything but the tests marked slow.
test: .venv/installed
	$(RUN) $(PYTEST) -m "not slow"

# Every test, with the floor of coverage in pyproject.toml.
test-all: .venv/installed
	.ci/chromium
	$(RUN) $(PYTEST) --cov

# nerfstudio has an environment of its own: it holds others back, and is large.
test-scene: .venv-scene/installed
	OMP_NUM_THREADS=1 $(SCENE)/python $(PYTEST) tests/integrations/nerfstudio inlier/integrations/nerfstudio

# The oldest versions that pyproject.toml allows, and the newest that there are. Their torch may bring 3 GB of CUDA.
test-oldest: .venv-oldest/installed
	.venv-oldest/bin/python $(PYTEST) $(VERSIONS)

test-newest: .venv-newest/installed
	.venv-newest/bin/python $(PYTEST) $(VERSIONS)

# Property tests on other examples than yesterday, and more of them; the tests above always take the same.
nightly: .venv/installed
	$(RUN) $(PYTEST) -m hypothesis --hypothesis-profile nightly

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy
	SKIP=ruff-format,ruff-check,imports $(BIN)/pre-commit run --all-files

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/installed
	$(RUN) docs/tools/build.py

# The wheel and the sdist, each installed and tried in a fresh environment.
package: .venv/installed
	rm -rf dist .venv-package
	$(RUN) -m build
	$(PYTHON) -m venv .venv-package
	PIP_CONSTRAINT=constraints.txt .venv-package/bin/pip --quiet install torch==2.13.0
	for archive in dist/*.whl dist/*.tar.gz; do \
		PIP_CONSTRAINT=constraints.txt .venv-package/bin/pip --quiet install --force-reinstall --no-deps $$archive && \
		PIP_CONSTRAINT=constraints.txt .venv-package/bin/pip --quiet install "$$archive[cli]" && \
		.venv-package/bin/python -I .ci/smoke.py || exit 1; \
	done

bench: .venv/bench
	$(RUN) -m benchmarks $(if $(QUICK),--quick)

# Real tables, clean and with planted errors. Goes on where it stopped; HALF=report for the tables that claims are made on.
bench-tables: .venv/bench
	OMP_NUM_THREADS=1 $(RUN) -m benchmarks.real_tables $(if $(HALF),--half $(HALF)) $(if $(QUICK),--quick)

# Class labels with noise, on features of pretrained encoders; DATA is the folder of the data sets.
bench-labels: .venv/bench
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(RUN) -m benchmarks.label_bench --data $(DATA) $(if $(QUICK),--only banking77/similar-30/3 --methods sgd$(comma)sce$(comma)inlier)

bench-scene: .venv-scene/installed
	OMP_NUM_THREADS=1 $(SCENE)/python -m benchmarks.scene

clean:
	rm -rf .venv .venv-scene .venv-oldest .venv-newest .venv-package .coverage .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache dist build site

# The demo needs little; tests and checks need every framework that they try.
.venv/cli: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install torch==2.13.0
	$(PIP) install --editable ".[cli]"
	touch $@

.venv/installed: .venv/cli
	$(PIP) install --editable ".[check]"
	touch $@

.venv/bench: .venv/installed
	$(PIP) install --editable ".[bench]"
	touch $@

# uv can choose the oldest version of each direct dependency. Where it would have to compile one, the next is taken.
.venv-oldest/installed: RESOLUTION := lowest-direct
.venv-newest/installed: RESOLUTION := highest
.venv-oldest/installed .venv-newest/installed: pyproject.toml
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip --disable-pip-version-check --quiet install uv
	$(@D)/bin/uv pip install --python $(@D)/bin/python --resolution $(RESOLUTION) --only-binary :all: \
		$(if $(findstring oldest,$@),--constraint constraints-oldest.txt) --requirement pyproject.toml --extra test-versions
	$(@D)/bin/uv pip install --python $(@D)/bin/python --no-deps --editable .
	touch $@

# What a training on a CPU needs of nerfstudio; all of it, with what its viewer and its video tools need, is 3.5 GB.
.venv-scene/installed: pyproject.toml constraints.txt constraints-scene.txt
	$(PYTHON) -m venv .venv-scene
	$(SCENE_PIP) install torch==2.13.0
	$(SCENE_PIP) install appdirs hypothesis imageio jaxtyping matplotlib msgspec opencv-python-headless packaging pathos \
		pillow protobuf pytest pytest-timeout pytest-xdist pyyaml rawpy requests rich safetensors scipy tensorboard \
		tensorly torchmetrics tqdm typing-extensions tyro websockets
	$(SCENE_PIP) install --no-deps nerfstudio viser gsplat nerfacc splines pytorch-msssim pyquaternion fpsample \
		torchvision
	$(SCENE_PIP) install --editable ".[cli]"
	touch $@
