#!/usr/bin/env bash
# Puts the code of the last commit, what it needs and the bucket onto every host of the slice.
source "$(dirname "$0")/common.sh"
options "" "$@"
need PROJECT ZONE NAME ACCELERATOR_TYPE BUCKET -- gcloud git
need_slice
state=$(run_state inactive)
[[ $state != active ]] || fail "a run is under way on $NAME" "tpu_launch/stop.sh first"

root=$(cd "$launch/.." && pwd)
[[ -z $(git -C "$root" status --porcelain) ]] || say "note: what is not committed does not go to the hosts"
archive=$(mktemp -d)/spade-jax.tar.gz
trap 'rm -rf "$errors" "$(dirname "$archive")"' EXIT
change git -C "$root" archive --format=tar.gz --output="$archive" HEAD

case $ACCELERATOR_TYPE in
  v5p-*) chips=$((${ACCELERATOR_TYPE##*-} / 2)) ;;
  *) chips=${ACCELERATOR_TYPE##*-} ;;
esac
change gcloud compute tpus tpu-vm scp "$archive" "$NAME:spade-jax.tar.gz" --project="$PROJECT" --zone="$ZONE" --worker=all --quiet
on_hosts all "sudo rm -rf $home && sudo mkdir -p $home && sudo tar -xzf spade-jax.tar.gz -C $home && sudo bash $home/tpu_launch/host/setup.sh $BUCKET $mount"
# All hosts at once: the first thing that needs every one of them.
on_hosts all "sudo $home/.venv/bin/python $home/tpu_launch/host/devices.py $chips"
say "all hosts of $NAME are set up; next: tpu_launch/run.sh"
