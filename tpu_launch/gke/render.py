"""Prints manifests with ${NAME} replaced from the environment; a name that is not set is an error.

python3 tpu_launch/gke/render.py FILE...
"""

import os
import string
import sys
from collections.abc import Mapping


def render(text: str, values: Mapping[str, str]) -> str:
    """Raises KeyError, with the name, for one that ``values`` lacks; ``$$`` is a dollar sign."""
    return string.Template(text).substitute(values)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as file:
            print("---")
            print(render(file.read(), os.environ), end="")
