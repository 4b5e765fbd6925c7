#!/bin/sh
# gallery.sh HANDLER URL...: Requests all URLs, and removes the handler after half of the results.
set -eu

if [ $# -lt 2 ]; then
    echo "usage: gallery.sh HANDLER URL..." >&2
    exit 64
fi
handler=$1
shift

# A subscription before the first request receives all results, also if other programs subscribe to the handler.
folder=$(mktemp -d)
mkfifo "$folder/messages"
earshot watch --count $((($# + 1) / 2)) -- "$handler" 2>"$folder/messages" &
watcher=$!
exec 3<"$folder/messages"
rm -r "$folder"

# Submitted requests belong to the handler and outlive this script, so the script drops the handler at any exit.
trap 'kill "$watcher" 2>/dev/null || true; earshot drop -- "$handler" >/dev/null 2>&1 || true' EXIT
trap 'exit 130' INT TERM
IFS= read -r line <&3
echo "$line" >&2
cat <&3 >&2 &
case $line in
    "earshot: listening"*) earshot submit --handler "$handler" -- "$@" >/dev/null ;;
esac
# The status of `watch` is not 0 if a request failed.
status=0
wait "$watcher" || status=$?
dropped=$(earshot drop -- "$handler") # removed 8 requests of gallery/1
trap - EXIT
echo "dropped $(echo "$dropped" | cut -d ' ' -f 2)"
exit "$status"
