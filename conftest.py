"""What every test run needs to know: which examples Hypothesis takes, and where nerfstudio is looked for."""

from importlib.util import find_spec

from hypothesis import settings

# The same examples in every run, so that only a change can break a test; `make nightly` looks for new ones.
# What it finds is kept in .hypothesis, and fails again the next night.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("nightly", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("repeatable")

# `make test-scene` has it.
collect_ignore_glob = []
if not find_spec("nerfstudio"):
    collect_ignore_glob += ["inlier/integrations/nerfstudio/*", "tests/integrations/nerfstudio/*"]
# The examples in their docstrings; the tests say what is missing.
collect_ignore_glob += [
    f"inlier/integrations/{name}.py" for name in ("sentence_transformers", "trl") if not find_spec(name)
]
