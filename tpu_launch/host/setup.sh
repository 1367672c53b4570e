#!/usr/bin/env bash
# On a host, as root: Python, the package and the bucket. Does nothing twice.
set -euo pipefail
bucket=$1 mount=$2
cd "$(dirname "$0")/../.."

if ! command -v gcsfuse >/dev/null; then
  source /etc/os-release
  curl -fsSL https://packages.cloud.google.com/apt/doc/apt-key.gpg -o /usr/share/keyrings/cloud.google.asc
  echo "deb [signed-by=/usr/share/keyrings/cloud.google.asc] https://packages.cloud.google.com/apt gcsfuse-$VERSION_CODENAME main" \
    >/etc/apt/sources.list.d/gcsfuse.list
  apt-get update -q
  apt-get install -q -y gcsfuse
fi
mkdir -p "$mount"
mountpoint -q "$mount" || gcsfuse --implicit-dirs --rename-dir-limit=100000 "$bucket" "$mount"
mkdir -p "$mount/runs"

# TPU images have Python 3.10; uv brings the version that the tests run on.
command -v uv >/dev/null || python3 -m pip install --quiet uv
uv venv --quiet --allow-existing --python 3.11 .venv
uv pip install --quiet --python .venv/bin/python -e '.[tpu,tfds]'
