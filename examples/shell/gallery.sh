#!/bin/sh
# gallery.sh HANDLER URL...: asks for all, and closes the page when half of them are there: the rest is not fetched.
set -eu

if [ $# -lt 2 ]; then
    echo "usage: gallery.sh HANDLER URL..." >&2
    exit 64
fi
handler=$1
shift

earshot submit --handler "$handler" -- "$@" >/dev/null
# What was submitted belongs to the handler, not to this script: it is dropped however the script ends.
trap 'earshot drop -- "$handler" >/dev/null' EXIT
trap 'exit 130' INT TERM
earshot watch --count $((($# + 1) / 2)) -- "$handler"
trap - EXIT
dropped=$(earshot drop -- "$handler")
echo "dropped $dropped"
