#!/bin/sh
# watch.sh HANDLER [COUNT]: a line for all that becomes of a handler's requests, HANDLER/ for all below it.
set -eu

case $# in
    1) exec earshot watch -- "$1" ;;
    2) exec earshot watch --count "$2" -- "$1" ;;
    *) echo "usage: watch.sh HANDLER [COUNT]" >&2; exit 64 ;;
esac
