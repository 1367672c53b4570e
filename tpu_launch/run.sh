#!/usr/bin/env bash
# Begins or continues the run on every host of the slice, in the background.
source "$(dirname "$0")/common.sh"
options "" "$@"
need PROJECT ZONE NAME CONFIG RUN -- gcloud
need_slice
state=$(run_state inactive)
if [[ $state == active ]]; then
  say "the run is under way; tpu_launch/follow.sh shows it"
  exit
fi
read -ra flags <<<"$TRAIN_FLAGS"
arguments=$(printf ' %q' --distributed --config="$CONFIG" --workdir="$mount/runs/$RUN" "${flags[@]}")
on_hosts all "sudo bash $home/tpu_launch/host/run.sh $unit $home $mount$arguments"
say "begun; next: tpu_launch/follow.sh, and for capacity that can be taken away tpu_launch/resume.sh --watch"
