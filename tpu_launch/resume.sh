#!/usr/bin/env bash
# Brings the run back: rents the slice anew if it was taken away, sets it up, continues the run.
# --watch: stays, and does so whenever needed, until the run has ended.
source "$(dirname "$0")/common.sh"
watch=false
options "--watch" "$@"
[[ $watch == true || $watch == false ]] || fail "--watch=$watch" "--watch has no value"
need PROJECT ZONE NAME ACCELERATOR_TYPE CAPACITY BUCKET CONFIG RUN -- gcloud

resume() {
  local state
  state=$(slice_state PREEMPTED)
  case $state in
    READY) ;;
    CREATING | STARTING | REPAIRING | RESTARTING)
      wait_for "slice" 3600 "READY" slice_state READY >/dev/null ;;
    *)
      say "the slice $NAME is ${state:-gone}"
      "$launch/delete.sh"
      "$launch/create.sh"
      "$launch/setup.sh" ;;
  esac
  "$launch/run.sh"
}

resume
while $watch && ! $dry_run; do
  sleep "$POLL_SECONDS"
  state=$(slice_state READY)
  if [[ $state != READY ]]; then
    resume
    continue
  fi
  state=$(run_state active)
  case $state in
    active | activating | deactivating) ;;
    failed) # by itself, or because hosts are being taken away?
      sleep "$POLL_SECONDS"
      state=$(slice_state READY)
      [[ $state != READY ]] || fail "the run failed" "tpu_launch/follow.sh shows why; when that is mended, tpu_launch/run.sh"
      resume ;;
    *) say "the run has ended (or its first host was started anew: tpu_launch/follow.sh shows which); tpu_launch/delete.sh ends the cost"; exit ;;
  esac
done
