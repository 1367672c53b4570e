#!/usr/bin/env bash
# Has the run save its state and end, on every host; tpu_launch/run.sh continues it.
source "$(dirname "$0")/common.sh"
options "" "$@"
need PROJECT ZONE NAME -- gcloud
need_slice
on_hosts all "sudo systemctl stop $unit 2>/dev/null || true"
say "no run is under way on $NAME; tpu_launch/run.sh continues it"
