#!/bin/sh
# A sensor in shell: publishes the load of this machine. Needs socat or nc.
#
#   sensor.sh [-t TOPIC] [-e SECONDS] [-n COUNT] [-i ADDRESS] [-g GROUP] [-p PORT]
#
# -i names the interface by its address; without it the system's route decides.
set -eu

topic=machines/load every=5 count=-1 address='' group=239.255.24.16 port=2416
while getopts t:e:n:i:g:p: option; do
    case $option in
        t) topic=$OPTARG ;;
        e) every=$OPTARG ;;
        n) count=$OPTARG ;;
        i) address=$OPTARG ;;
        g) group=$OPTARG ;;
        p) port=$OPTARG ;;
        *) exit 2 ;;
    esac
done

# Text as JSON: quotes and backslashes escaped, control characters replaced by spaces.
quote() {
    printf '"%s"' "$(printf %s "$1" | tr '\000-\037\177' ' ' | sed 's/["\\]/\\&/g')"
}

send() {
    if command -v socat > /dev/null; then
        printf %s "$1" |
            socat -u - "UDP4-DATAGRAM:$group:$port,ip-multicast-ttl=1${address:+,ip-multicast-if=$address}"
    else
        printf %s "$1" | nc -u -w 1 ${address:+-s "$address"} "$group" "$port"
    fi
}

while [ "$count" -ne 0 ]; do
    load=$(LC_ALL=C uptime | sed -n 's/.*load averages*: *\([0-9.]*\).*/\1/p')
    payload=$(printf '{"host":%s,"load":%s}' "$(quote "$(uname -n)")" "${load:-null}")
    # A network that is down is no reason to end: the next reading comes.
    send "$(printf '{"topic":%s,"payload":%s}' "$(quote "$topic")" "$payload")" || echo "not sent" >&2
    count=$((count - 1))
    [ "$count" -eq 0 ] || sleep "$every"
done
