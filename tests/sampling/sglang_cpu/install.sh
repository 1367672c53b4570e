#!/usr/bin/env bash
# The stock SGLang server for a CPU, in a virtual environment of its own (2.8 GB, about 2 minutes):
# its pins are not ours. Reused when it is there already.
#   bash tests/sampling/sglang_cpu/install.sh FOLDER
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
folder=$1
if test -e "$folder/complete"; then exit 0; fi
rm -rf "$folder"
python3.11 -m venv "$folder"
"$folder/bin/pip" install -q --no-cache-dir -r "$here/requirements.txt"
# With their dependencies these would bring CUDA.
"$folder/bin/pip" install -q --no-cache-dir --no-deps -r "$here/no_deps.txt"
touch "$folder/complete"
