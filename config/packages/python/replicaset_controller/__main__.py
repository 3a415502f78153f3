"""Runs the program: `python -m replicaset_controller`, and `kubectl rs-explain`."""

import os
import sys

from . import DevServerError, find_binary


def run(name="replicaset-controller"):
    """Replaces this process by the program under `name`, by which it knows how kubectl calls it."""
    try:
        binary = find_binary()
        os.execv(binary, [name, *sys.argv[1:]])
    except (DevServerError, OSError) as error:
        sys.exit(f"{name}: {error}")


def explain():
    """The plugin of kubectl."""
    run("kubectl-rs_explain")


if __name__ == "__main__":
    run()
