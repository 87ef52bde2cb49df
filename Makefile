# Each command installs what it needs into .venv, the first time, from the pinned versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
RUN := $(BIN)/python
PIP := PIP_CONSTRAINT=constraints.txt $(BIN)/python -m pip --disable-pip-version-check --quiet
SCENE := .venv-scene/bin
SCENE_PIP := PIP_CONSTRAINT="constraints.txt constraints-scene.txt" $(SCENE)/python -m pip \
	--disable-pip-version-check --quiet

.PHONY: demo test test-fast test-scene check format docs bench bench-scene clean

demo: .venv/cli
	$(BIN)/inlier reproduce regression --preset cpu

test: .venv/installed
	$(RUN) -m pytest -n 2 --dist worksteal

test-fast: .venv/installed
	$(RUN) -m pytest -n 2 --dist worksteal -m "not slow"

# nerfstudio has an environment of its own: it holds others back, and is large.
test-scene: .venv-scene/installed
	OMP_NUM_THREADS=1 $(SCENE)/python -m pytest -n 2 --dist worksteal tests/scene

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/installed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: .venv/bench
	$(RUN) -m benchmarks $(if $(QUICK),--quick)

bench-scene: .venv-scene/installed
	OMP_NUM_THREADS=1 $(SCENE)/python -m benchmarks.scene

clean:
	rm -rf .venv .venv-scene .pytest_cache .mypy_cache .ruff_cache .hypothesis dist build site

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
