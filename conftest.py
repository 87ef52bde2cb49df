"""What needs nerfstudio is looked for only where it is installed, as in `make test-scene`."""

from importlib.util import find_spec

collect_ignore_glob = (
    [] if find_spec("nerfstudio") else ["inlier/integrations/nerfstudio/[a-z]*.py", "tests/scene"]
)
