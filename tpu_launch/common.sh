# shellcheck shell=bash
# What all scripts share: settings, --dry-run, questions to the cloud, failures with a remedy.
# shellcheck disable=SC2034  # the scripts use what is set here
set -euo pipefail
shopt -s inherit_errexit
launch=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$launch/settings.sh"
region=${ZONE%-*}
unit=spade-train        # systemd's name of the run on every host
home=/opt/spade-jax     # of the code there
mount=/mnt/spade        # of the bucket there

say() {
  local note=""
  [[ ${DRY_RUN:-} != true ]] || note="(dry run) "
  printf '%s\n' "$note$*" >&2
}

fail() { # REASON REMEDY
  printf 'error: %s\n  remedy: %s\n' "$1" "$2" >&2
  exit 1
}

# Takes --dry-run and the flags that the script names; anything else ends it. Sets dry_run and one
# variable for each flag.
options() {
  local allowed=$1 argument
  shift
  dry_run=${DRY_RUN:-false}
  for argument in "$@"; do
    case " --dry-run $allowed " in
      *" ${argument%%=*} "*) ;;
      *) fail "unknown argument $argument" "allowed: --dry-run${allowed:+ $allowed}; all else is in tpu_launch/settings.sh" ;;
    esac
    argument=${argument#--}
    local name=${argument%%=*} value=true
    [[ $argument != *=* ]] || value=${argument#*=}
    printf -v "${name//-/_}" %s "$value"
  done
  # Any other word would be taken for a command, and its failure for leave to act.
  [[ $dry_run == true || $dry_run == false ]] || fail "dry_run=$dry_run" "--dry-run has no value; DRY_RUN is true or false"
  export DRY_RUN=$dry_run
}

# Ends unless these settings are set, to what names may hold, and these programs are there.
need() { # SETTING... -- PROGRAM...
  local kind=setting item
  for item in "$@"; do
    if [[ $item == -- ]]; then
      kind=program
    elif [[ $kind == setting ]]; then
      [[ -n ${!item} ]] || fail "$item is not set" "set it in tpu_launch/settings.sh or the environment"
      [[ ${!item} =~ ^[A-Za-z0-9_./:,@-]+$ ]] || fail "$item='${!item}' has characters that no name has" "correct it in tpu_launch/settings.sh"
    elif ! $dry_run; then
      command -v "$item" >/dev/null || fail "$item is not installed" "https://cloud.google.com/sdk/docs/install (kubectl: gcloud components install kubectl)"
    fi
  done
}

show() { printf '+%s\n' "$(printf ' %q' "$@")" >&2; }

# Runs a command that changes something; on failure ends with the reason and a remedy.
change() {
  local failed=false
  show "$@"
  if $dry_run; then return; fi
  "$@" 2>"$errors" || failed=true
  cat "$errors" >&2
  ! $failed || explain "$(<"$errors")"
}

# Prints the answer to a question, empty where the thing does not exist; in a dry run, the answer
# that is assumed. Any other failure ends the script: use it as answer=$(ask ...), which hands it on.
ask() { # ASSUMED COMMAND...
  local assumed=$1
  shift
  if $dry_run; then
    show "$@"
    printf '%s\n' "$assumed"
  elif ! "$@" 2>"$errors"; then
    grep -qiE 'NOT_FOUND|not found|NotFound' "$errors" || explain "$(<"$errors")"
  fi
}

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

# Ends with what a message of the cloud means and what to do about it.
explain() {
  case $1 in
    *"no more capacity"* | *"does not have enough resources"* | *STOCKOUT* | *"tockout"*)
      fail "no capacity for $ACCELERATOR_TYPE in $ZONE at the moment" "CAPACITY=queued waits for it; or another ZONE" ;;
    *[Qq]uota* | *RESOURCE_EXHAUSTED*)
      fail "quota: the project may not have this much of $ACCELERATOR_TYPE in $ZONE ($(tail -n 1 <<<"$1"))" "ask for more at console.cloud.google.com/iam-admin/quotas, or rent less (ACCELERATOR_TYPE)" ;;
    *ALREADY_EXISTS* | *"already exists"* | *"already own"* | *"bucket name is not available"*)
      fail "the name is taken: $(tail -n 1 <<<"$1")" "another NAME or BUCKET in tpu_launch/settings.sh" ;;
    *"Permission denied on 'locations"* | *"nvalid zone"* | *"nknown zone"* | *"nvalid location"* | *"ocation"*"not found"*)
      fail "there is no zone $ZONE for TPUs" "gcloud compute tpus locations list --project=$PROJECT" ;;
    *SERVICE_DISABLED* | *"has not been used in project"*)
      fail "an API is not enabled in $PROJECT" "gcloud services enable tpu.googleapis.com compute.googleapis.com container.googleapis.com cloudbuild.googleapis.com artifactregistry.googleapis.com --project=$PROJECT" ;;
    *"active account"* | *UNAUTHENTICATED* | *"gcloud auth login"*)
      fail "nobody is logged in" "gcloud auth login" ;;
    *PERMISSION_DENIED* | *orbidden* | *"does not have permission"*)
      fail "not allowed: $(tail -n 1 <<<"$1")" "ask the owner of $PROJECT for the roles in docs/pod.md" ;;
    *) fail "the command failed: $(tail -n 3 <<<"$1")" "the message is the cloud's; docs/pod.md lists those known" ;;
  esac
}

# State of the slice, empty if there is none: CREATING, READY, PREEMPTED, TERMINATED, ...
slice_state() { # ASSUMED
  ask "$1" gcloud compute tpus tpu-vm describe "$NAME" --project="$PROJECT" --zone="$ZONE" --format='value(state)'
}

# State of the request in the queue, empty if there is none: WAITING_FOR_RESOURCES, ACTIVE, FAILED, ...
queue_state() { # ASSUMED
  ask "$1" gcloud compute tpus queued-resources describe "$NAME" --project="$PROJECT" --zone="$ZONE" --format='value(state.state)'
}

need_slice() {
  local state
  state=$(slice_state READY)
  case $state in
    READY) ;;
    "") fail "there is no slice $NAME in $ZONE" "tpu_launch/create.sh" ;;
    PREEMPTED | TERMINATED | STOPPED) fail "the slice $NAME is $state" "tpu_launch/resume.sh" ;;
    *) fail "the slice $NAME is $state, not READY" "wait: tpu_launch/create.sh does" ;;
  esac
}

on_hosts() { # all | NUMBER, COMMAND: in the shell of these hosts
  local command=(gcloud compute tpus tpu-vm ssh "$NAME" --project="$PROJECT" --zone="$ZONE" --worker="$1" --quiet --command="$2")
  show "${command[@]}"
  $dry_run || "${command[@]}" || fail "the command failed on a host; what it said is above" \
    "mend that and run this again: what is done already is not done twice"
}

# Is the run active, failed or inactive (never begun here, or finished) on the first host?
run_state() { # ASSUMED
  # --quiet: else the first call asks whether to make a key, where nobody sees it.
  ask "$1" gcloud compute tpus tpu-vm ssh "$NAME" --project="$PROJECT" --zone="$ZONE" --worker=0 --quiet \
    --command="systemctl is-active $unit || true"
}

# Waits until a question has one of these answers, which it prints.
wait_for() { # WHAT SECONDS 'ANSWERS' COMMAND...
  local what=$1 limit=$2 answers=$3 answer last="" start=$SECONDS
  shift 3
  while true; do
    answer=$("$@")
    [[ $answer == "$last" ]] || say "$what: ${answer:-none}"
    last=$answer
    case " $answers " in *" $answer "*) printf '%s\n' "$answer"; return ;; esac
    ((SECONDS - start < limit)) || fail "$what is still ${answer:-none} after $limit s" "run this again to go on waiting, or tpu_launch/delete.sh"
    sleep "$POLL_SECONDS"
  done
}
