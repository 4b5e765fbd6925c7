#!/bin/sh
# gallery.sh HANDLER URL...: asks for all, and closes the page when half of them are there: the rest is not fetched.
set -eu

if [ $# -lt 2 ]; then
    echo "usage: gallery.sh HANDLER URL..." >&2
    exit 64
fi
handler=$1
shift

# Who listens before anything is asked for misses nothing, also when others listen too.
folder=$(mktemp -d)
mkfifo "$folder/said"
earshot watch --count $((($# + 1) / 2)) -- "$handler" 2>"$folder/said" &
watcher=$!
exec 3<"$folder/said"
rm -r "$folder"

# What is submitted belongs to the handler, not to this script: it is dropped however the script ends.
trap 'kill "$watcher" 2>/dev/null || true; earshot drop -- "$handler" >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM
IFS= read -r said <&3
echo "$said" >&2
cat <&3 >&2 &
case $said in
    "earshot: listening"*) earshot submit --handler "$handler" -- "$@" >/dev/null ;;
esac
# Not 0 if a result is a failure.
status=0
wait "$watcher" || status=$?
dropped=$(earshot drop -- "$handler")
trap - EXIT
echo "dropped $dropped"
exit "$status"
