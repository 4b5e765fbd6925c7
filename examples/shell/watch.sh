#!/bin/sh
# watch.sh HANDLER [COUNT]: Prints a line for each result of a handler. HANDLER/ selects all handlers below it.
set -eu

case $# in
    1) exec earshot watch -- "$1" ;;
    2) exec earshot watch --count "$2" -- "$1" ;;
    *) echo "usage: watch.sh HANDLER [COUNT]" >&2; exit 64 ;;
esac
