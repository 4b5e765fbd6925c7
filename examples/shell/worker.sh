#!/bin/sh
# worker.sh [MILLISECONDS]: serves URLs such as upper:hello, with HELLO. Each job takes so long, as real work would.
set -eu

delay=${1-0}
case $#$delay in
    [01]*[!0-9]* | [2-9]* | 1 | ??????????*) echo "usage: worker.sh [MILLISECONDS]" >&2; exit 64 ;;
esac

# Run for each URL, which is its last argument. What it writes is the answer; its last words say why there is none.
upper='
    text=${2#*:}
    if [ -z "$text" ]; then
        echo "no text stands behind upper:" >&2
        exit 1
    fi
    sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"
    printf %s "$text" | tr a-z A-Z
'
exec earshot work --scheme upper --content-type text/plain -- sh -c "$upper" upper "$delay"
