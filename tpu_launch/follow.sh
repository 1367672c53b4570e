#!/usr/bin/env bash
# Shows what the run says, from its last 200 lines on. --host=N: that host instead of the first.
source "$(dirname "$0")/common.sh"
host=0
options "--host" "$@"
[[ $host =~ ^[0-9]+$ ]] || fail "--host=$host is no number" "--host=0 is the first"
need PROJECT ZONE NAME -- gcloud
need_slice
on_hosts "$host" "sudo journalctl --unit=$unit --output=cat --lines=200 --follow"
