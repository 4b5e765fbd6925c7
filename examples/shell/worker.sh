#!/bin/sh
# worker.sh [MILLISECONDS]: Answers URLs such as upper:hello, with HELLO. Each job takes MILLISECONDS.
set -eu

delay=${1-0}
case $#$delay in
    [01]*[!0-9]* | [2-9]* | 1 | ??????????*) echo "usage: worker.sh [MILLISECONDS]" >&2; exit 64 ;;
esac

# `earshot work` runs this program for each URL. The URL is the last argument, and standard output is the response.
# After a failure the last line of standard error is the detail.
upper='
    text=${2#*:}
    if [ -z "$text" ]; then
        echo "no text follows upper:" >&2
        exit 1
    fi
    sleep "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))"
    printf %s "$text" | tr a-z A-Z
'
exec earshot work --scheme upper --content-type text/plain -- sh -c "$upper" upper "$delay"
