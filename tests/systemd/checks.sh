#!/usr/bin/env bash
# Runs inside a guest that boot-systemd.sh has booted: one check after the other of the units in /product/systemd with the
# programs in /product/bin. Prints `ok NAME`, or `FAIL NAME` with the reason and what the journal says.
#
# Each check is a function check_NAME; it runs in a shell of its own with `set -e`, so that the first thing that is not so ends
# it. Nothing sleeps to be right: `until_so SECONDS COMMAND…` waits on a condition.
set -uo pipefail

SERVICE=mcpvisord.service SOCKET=mcpvisord.socket
CONFIG=/etc/mcpvisor/mcpvisord.toml
GATES=/run/mcpvisor/gates
STUBBORN='/product/bin/mcpvisor demo-server stubborn'

until_so() {
    local limit=$1 end; shift
    end=$((SECONDS + limit))
    until "$@" > /dev/null 2>&1; do
        if ((SECONDS >= end)); then echo "not within $limit s: $*" >&2; return 1; fi
        sleep 0.05
    done
}
same() { [[ $1 == "$2" ]] || { echo "expected '$2', found '$1' ${3-}" >&2; return 1; }; }
like() { [[ $1 == *"$2"* ]] || { echo "expected '…$2…', found '$1'" >&2; return 1; }; }
not() { ! "$@"; }

prop() { systemctl show --value --property="$1" "${2-$SERVICE}"; }
main_pid() { prop MainPID; }
restarts() { prop NRestarts; }
gone() { [[ ! -e /proc/$1 ]]; }
is() { systemctl is-active --quiet "$1"; }
status_line() { [[ $(prop StatusText) == *"$1"* ]]; }
journal() { journalctl --quiet --no-pager --output=cat --unit="$SERVICE" --since="@$(cat /run/check-began)"; }
said() { journal | grep --quiet --fixed-strings -- "$1"; }
# A client of the daemon as it is installed; root finds the socket by itself.
mcp() { mcpvisor --timeout 20s "$@"; }
cgroup_of() { sed -n 's/^0:://p' "/proc/$1/cgroup"; }
# The processes below a unit's cgroup but for the daemon, its guardian and its keepers.
servers() {
    local file
    for file in $(find "/sys/fs/cgroup$1" -path '*/s-*' -name cgroup.procs); do cat "$file"; done 2> /dev/null
}
all_gone() { local pid; for pid in "$@"; do gone "$pid" || return 1; done; }
mark() { grep --null --null-data --quiet --fixed-strings "CHECK=$1" /proc/[0-9]*/environ 2> /dev/null; }

configure() { cat > "$CONFIG"; }
plain() {
    configure <<'TOML'
[timeouts]
stdin_grace = "300ms"
term_grace = "300ms"
[profiles.polite.servers.main]
command = "/product/bin/mcpvisor"
args = ["demo-server", "polite"]
[profiles.stubborn.servers.main]
command = "/product/bin/mcpvisor"
args = ["demo-server", "stubborn"]
TOML
}
dropin() { mkdir -p /run/systemd/system/$SERVICE.d; cat > "/run/systemd/system/$SERVICE.d/$1.conf"; systemctl daemon-reload; }

# ---------------------------------------------------------------- the system daemon, as the user mcpvisor
# Any output of the verification is a failure.
silent() {
    local out
    out=$("$@" 2>&1) || { echo "$out" >&2; return 1; }
    same "$out" "" "($*)"
}
check_verify() {
    mkdir -p /run/verify
    silent systemd-analyze verify $SERVICE
    silent systemd-analyze verify $SOCKET
    silent env XDG_RUNTIME_DIR=/run/verify systemd-analyze --user verify /usr/lib/systemd/user/$SERVICE
    silent env XDG_RUNTIME_DIR=/run/verify systemd-analyze --user verify /usr/lib/systemd/user/$SOCKET
    silent systemd-sysusers mcpvisor.conf
    silent systemd-tmpfiles --create mcpvisor.conf
}
check_sysusers_and_tmpfiles() {
    id mcpvisor
    same "$(getent passwd mcpvisor | cut -d: -f6)" /var/lib/mcpvisor
    same "$(stat -c '%a %U:%G' /etc/mcpvisor)" '750 root:mcpvisor'
    same "$(stat -c '%a %U:%G' /var/lib/mcpvisor)" '700 mcpvisor:mcpvisor'
    same "$(stat -c '%a %U' /run/mcpvisor)" '755 mcpvisor'
}
# What servers would inherit is not in force, whatever the unit's text looks like.
check_nothing_is_sandboxed() {
    local key value
    for key in ProtectControlGroups PrivateTmp PrivateDevices PrivateNetwork PrivateUsers NoNewPrivileges \
               MemoryDenyWriteExecute RestrictRealtime RestrictSUIDSGID LockPersonality ProtectKernelTunables \
               ProtectKernelModules ProtectClock ProtectHostname DynamicUser; do
        value=$(prop $key); same "$value" no "($key)"
    done
    same "$(prop ProtectHome)" no; same "$(prop ProtectSystem)" no
    same "$(prop RestrictNamespaces)" no
    for key in SystemCallFilter SystemCallArchitectures RestrictAddressFamilies ReadOnlyPaths InaccessiblePaths; do
        # systemd 252 writes an empty filter as "~".
        value=$(prop $key); [[ -z $value || $value == '~' ]] || { echo "$key=$value" >&2; return 1; }
    done
    same "$(prop OOMScoreAdjust)" 0
}
check_activation() {
    systemctl stop $SERVICE; not is $SERVICE; is $SOCKET
    mcp status > /dev/null          # a connection that is made while the service is down is served
    is $SERVICE
    same "$(ps -o user= -p "$(main_pid)")" mcpvisor
}
check_readiness_and_status() {
    systemctl restart $SERVICE      # returns at READY=1
    same "$(prop SubState)" running
    until_so 10 status_line 'serving 0 sessions'
    mcp open one --profile polite --user "$(id -u mcpvisor)" > /dev/null
    until_so 10 status_line 'serving 1 session of'
    mcp close one --user "$(id -u mcpvisor)" > /dev/null
    until_so 10 status_line 'serving 0 sessions'
}
check_socket_survives_a_stop() {
    systemctl restart $SERVICE
    systemctl stop $SERVICE
    [[ -S /run/mcpvisor/control.sock ]]
    is $SOCKET
    mcp status > /dev/null
}
check_socket_permissions() {
    same "$(stat -c %a /run/mcpvisor/control.sock)" 660
    useradd --no-create-home stranger; useradd --no-create-home --groups mcpvisor member
    not runuser -u stranger -- mcpvisor --socket /run/mcpvisor/control.sock status 2> /dev/null
    runuser -u member -- mcpvisor open m --profile polite > /dev/null
    runuser -u member -- mcpvisor close m > /dev/null
}
# `delegation NAME…`: the sessions' cgroups lie below the unit's, and the daemon says so.
delegation() {
    local unit pids
    unit=$(prop ControlGroup)
    like "$(mcp --json status)" '"containment":"cgroup"'
    "$@" open d --profile stubborn > /dev/null
    pids=$(servers "$unit"); [[ $(wc -w <<< "$pids") == 2 ]] || { echo "servers: $pids" >&2; return 1; }
    local pid; for pid in $pids; do like "$(cgroup_of "$pid")" "$unit/mcpvisor-"; done
    like "$("$@" --json close d)" '"proof":"cgroup"'
    until_so 5 all_gone $pids
}
as_daemon() { mcp --user "$(id -u mcpvisor)" "$@"; }
check_delegation_as_user() {
    same "$(prop User)" mcpvisor
    delegation as_daemon
}
check_delegation_as_root() {
    dropin root <<< $'[Service]\nUser=root\nGroup=root'
    systemctl restart $SERVICE
    same "$(ps -o user= -p "$(main_pid)")" root
    delegation mcp
}
check_controllers() {
    # Where the unit has the controllers, the daemon has moved into a cgroup below it, and limits are in force.
    local unit controllers pid dir
    systemctl restart $SERVICE
    unit=$(prop ControlGroup); controllers=$(cat "/sys/fs/cgroup$unit/cgroup.controllers")
    if [[ " $controllers " != *' memory '* ]]; then echo "(this guest has no memory controller)"; return; fi
    same "$(cgroup_of "$(main_pid)")" "$unit/daemon"
    cat >> $CONFIG <<< $'[profiles.limited.servers.main]\ncommand = "/product/bin/mcpvisor"\nargs = ["demo-server", "polite"]\nlimits = { memory = "64M", processes = 9 }'
    systemctl reload $SERVICE
    as_daemon open l --profile limited > /dev/null
    pid=$(servers "$unit"); dir=/sys/fs/cgroup$(cgroup_of "$pid")
    same "$(cat "$dir/memory.max")" $((64 << 20)); same "$(cat "$dir/pids.max")" 9
    like "$(as_daemon --json close l)" '"peak_memory_bytes":'
    # The unit starts again although its cgroup hands controllers on.
    systemctl kill --kill-whom=main --signal=KILL $SERVICE
    until_so 20 is $SERVICE; mcp status > /dev/null
    same "$(cgroup_of "$(main_pid)")" "$unit/daemon"
}
check_reload() {
    local before
    systemctl restart $SERVICE
    before=$(main_pid)
    echo $'[daemon]\nmax_sessions = 7' > $CONFIG
    systemctl reload $SERVICE
    same "$(prop SubState)" running; same "$(main_pid)" "$before"
    like "$(mcp --json status)" '"limit":7'
    # A wrong one fails the reload, says why, and changes nothing.
    echo $'[daemon]\nmax_session = 8\nmax_sessions = "x"' > $CONFIG
    not systemctl reload $SERVICE 2> /dev/null
    same "$(prop SubState)" running; same "$(main_pid)" "$before"
    like "$(mcp --json status)" '"limit":7'
    until_so 5 said "$CONFIG:2:1: unknown key"
    until_so 5 said "$CONFIG:3:16: "
    # SIGHUP by itself, without systemd's knowing.
    echo $'[daemon]\nmax_sessions = 9' > $CONFIG
    systemctl kill --kill-whom=main --signal=HUP $SERVICE
    until_so 10 eval 'mcp --json status | grep -q "\"limit\":9"'
    until_so 10 eval '[[ $(prop SubState) == running ]]'
    same "$(main_pid)" "$before"
}
# A service of Type=notify-reload (253 and later) sends SIGHUP and waits for RELOADING=1, MONOTONIC_USEC and READY=1.
check_reload_by_notification() {
    if (($(systemctl --version | sed -n '1s/systemd \([0-9]*\).*/\1/p') < 253)); then echo "(before 253)"; return; fi
    dropin reload <<< $'[Service]\nType=notify-reload\nExecReload='
    systemctl restart $SERVICE
    echo $'[daemon]\nmax_sessions = 8' > $CONFIG
    timeout 20 systemctl reload $SERVICE
    same "$(prop SubState)" running
    like "$(mcp --json status)" '"limit":8'
}
check_watchdog() {
    local before pids
    dropin watchdog <<< "[Service]
WatchdogSec=2s
ExecStart=
ExecStart=/product/bin/mcpvisord-failpoints --log-format journal
Environment=MCPVISOR_FAILPOINTS=$GATES"
    systemctl restart $SERVICE
    before=$(main_pid)
    as_daemon open w --profile stubborn > /dev/null
    pids=$(servers "$(prop ControlGroup)")
    # It is fed as long as the registry answers: three times its limit pass without harm.
    local end=$((SECONDS + 6)); until_so 20 eval "((SECONDS >= $end))"
    same "$(main_pid)" "$before"; same "$(restarts)" 0
    # The registry's actor is held in the middle of its work, and everything else goes on.
    python3 - "$GATES" <<'PY'
import socket, sys
gates = socket.socket(socket.AF_UNIX)
gates.connect(sys.argv[1])
gates.sendall(b"hold registry.message\n")
lines = gates.makefile()
while lines.readline() not in ("reached registry.message\n", ""):
    pass
PY
    until_so 20 eval '(($(restarts) >= 1))'
    until_so 20 is $SERVICE
    until_so 5 said 'the registry does not answer'
    [[ $(main_pid) != "$before" ]]
    mcp status > /dev/null
    until_so 2 all_gone $pids
}
# At rest nothing of the daemon runs: its beat for the watchdog comes every 15 s.
check_idle() {
    local pid before after end
    systemctl restart $SERVICE
    pid=$(main_pid)
    until_so 10 status_line 'serving 0 sessions'
    as_daemon open i --profile polite > /dev/null
    until_so 10 status_line 'serving 1 session of'
    before=$(switches "$pid"); end=$((SECONDS + 4))
    until_so 20 eval "((SECONDS >= $end))"
    after=$(switches "$pid")
    same "$after" "$before"
}
switches() { cat /proc/"$1"/task/*/status | awk '/^voluntary_ctxt/ { n += $2 } END { print n }'; }
check_a_slow_drain_is_waited_for() {
    dropin stop <<< $'[Service]\nTimeoutStopSec=2s'
    configure <<'TOML'
[timeouts]
drain = "60s"
[profiles.slow.servers.main]
command = "python3"
args = ["/product/cases/34-out-of-order.py"]
TOML
    systemctl restart $SERVICE
    as_daemon open slow --profile slow > /dev/null
    (as_daemon call slow echo '{"text":"in time","delay_ms":9000}' > /run/answer) &
    local call=$!
    until_so 10 eval 'as_daemon --json show slow | grep -q "\"in_flight\":1,"'
    local began=$SECONDS
    systemctl stop $SERVICE
    (($(date +%s) > 0 && SECONDS - began >= 6)) || { echo "the stop took $((SECONDS - began)) s" >&2; return 1; }
    wait $call; like "$(cat /run/answer)" 'in time'
    same "$(prop Result)" success
    not said 'timed out'
}
check_a_server_that_ignores_sigterm() {
    local pids began=$SECONDS
    systemctl restart $SERVICE
    as_daemon open s --profile stubborn > /dev/null
    pids=$(servers "$(prop ControlGroup)")
    systemctl stop $SERVICE
    all_gone $pids
    same "$(prop Result)" success; same "$(prop ExecMainStatus)" 0
    ((SECONDS - began < 15))
    [[ ! -e /sys/fs/cgroup/system.slice/$SERVICE ]]
}
# The daemon is killed with servers open that ignore all signals and have helpers in sessions of their own.
check_sigkill() {
    local before unit pids n
    systemctl restart $SERVICE
    before=$(main_pid); unit=$(prop ControlGroup)
    for n in 1 2 3; do as_daemon open k$n --profile stubborn > /dev/null; done
    as_daemon open kp --profile polite > /dev/null
    pids=$(servers "$unit"); same "$(wc -w <<< "$pids")" 7
    systemctl kill --kill-whom=main --signal=KILL $SERVICE
    until_so 20 eval "[[ \$(main_pid) != 0 && \$(main_pid) != $before ]]"
    until_so 20 is $SERVICE
    until_so 2 all_gone $pids
    same "$(restarts)" 1
    like "$(mcp --json status)" '"used":0'
    until_so 5 eval "(( \$(find /sys/fs/cgroup$unit -maxdepth 1 -name 'mcpvisor-*' | wc -l) == 1 ))"
    # The keys are free, and a connection that is made while the daemon is dead is served by the next.
    as_daemon open k1 --profile polite > /dev/null; as_daemon close k1 > /dev/null
    systemctl kill --kill-whom=main --signal=KILL $SERVICE
    mcp status > /dev/null
}
check_a_shutdown_is_not_undone() {
    systemctl restart $SERVICE
    mcp shutdown > /dev/null
    until_so 10 eval '[[ $(prop ActiveState) == inactive ]]'
    same "$(restarts)" 0
    is $SOCKET
}

# What can't be killed, since the version-1 freezer has it, is left: the daemon ends with 8, and the unit fails with it. It
# is not started again for that, but by the next connection, and then has what was left.
check_leftovers_fail_the_unit() {
    local pid status=0
    mkdir -p $FREEZER
    if ! mount -t cgroup -o freezer freezer $FREEZER 2> /dev/null; then
        echo "(this guest has no version-1 freezer)"; return
    fi
    # All guests of a machine see one hierarchy. Whatever fails, what is frozen must not outlive the guest.
    frozen=$(mktemp -d $FREEZER/checks.XXXXXX)
    trap 'thaw; until_so 10 rmdir "$frozen"; umount $FREEZER' EXIT
    dropin stop <<< $'[Service]\nTimeoutStopSec=1s'
    configure <<'TOML'
[timeouts]
stdin_grace = "200ms"
term_grace = "200ms"
kill_wait = "500ms"
[profiles.polite.servers.main]
command = "/product/bin/mcpvisor"
args = ["demo-server", "polite"]
TOML
    systemctl restart $SERVICE
    as_daemon open left --profile polite > /dev/null
    pid=$(servers "$(prop ControlGroup)"); same "$(wc -w <<< "$pid")" 1
    echo "$pid" > "$frozen/cgroup.procs"; echo FROZEN > "$frozen/freezer.state"
    until_so 10 grep -q FROZEN "$frozen/freezer.state"
    mcp shutdown > /dev/null 2>&1 || status=$?; same "$status" 8 "(mcpvisor shutdown)"
    failed_with_leftovers
    # The next daemon is not kept from its start, takes over, and may leave it in turn.
    until_so 20 eval 'as_daemon --json show left | grep -q "\"state\":\"quarantined\""'
    is $SERVICE; not gone "$pid"
    systemctl stop --no-block $SERVICE
    failed_with_leftovers
    not gone "$pid"
    mcp status > /dev/null
    thaw
    until_so 10 eval 'mcp --json status | grep -q "\"used\":0,"'
    gone "$pid"
    systemctl stop $SERVICE
    same "$(prop Result) $(prop ExecMainStatus)" 'success 0'
}
FREEZER=/run/freezer
thaw() { echo THAWED > "$frozen/freezer.state"; }
failed_with_leftovers() {
    until_so 30 eval '[[ $(prop ActiveState) == failed ]] || (($(restarts) > 0))'
    same "$(prop ActiveState) $(prop Result) $(prop ExecMainStatus) $(restarts)" 'failed exit-code 8 0'
    like "$(systemctl status $SERVICE || true)" 'status=8'
    until_so 5 said 'processes of them could not be killed'
    is $SOCKET
}

# ---------------------------------------------------------------- a user's daemon
as_ann() { runuser -u ann -- env -C / XDG_RUNTIME_DIR=/run/user/"$(id -u ann)" CHECK="$1" "${@:2}"; }
ctl() { as_ann ctl systemctl --user "$@"; }
check_user_manager() {
    local pid unit pids n
    useradd --create-home ann
    loginctl enable-linger ann
    until_so 20 ctl is-active --quiet default.target
    ctl start $SOCKET
    not ctl is-active --quiet $SERVICE
    as_ann client mcpvisor --timeout 20s status > /dev/null
    ctl is-active --quiet $SERVICE
    pid=$(ctl show --value -p MainPID $SERVICE); unit=$(ctl show --value -p ControlGroup $SERVICE)
    same "$(ps -o user= -p "$pid")" ann
    like "$(as_ann client mcpvisor --json status)" '"containment":"cgroup"'
    same "$(stat -c '%a %U' /run/user/"$(id -u ann)"/mcpvisor/control.sock)" '600 ann'
    as_ann client mcpvisor open u -- $STUBBORN > /dev/null
    pids=$(servers "$unit"); same "$(wc -w <<< "$pids")" 2
    for n in $pids; do like "$(cgroup_of "$n")" "$unit/mcpvisor-"; done
    ctl reload $SERVICE
    # Killed: restarted, and nothing of the former is left.
    ctl kill --kill-whom=main --signal=KILL $SERVICE
    until_so 20 eval "[[ \$(ctl show --value -p MainPID $SERVICE) != 0 && \$(ctl show --value -p MainPID $SERVICE) != $pid ]]"
    until_so 2 all_gone $pids
    as_ann client mcpvisor open u -- $STUBBORN > /dev/null
    pids=$(servers "$unit")
    # The end of the user's manager ends it all in order.
    loginctl disable-linger ann
    systemctl stop user@"$(id -u ann)".service
    all_gone $pids
}

# ---------------------------------------------------------------- running them
install_product() {
    ln -sf /product/bin/mcpvisor /usr/bin/mcpvisor
    # The second binary is the same daemon.
    printf '#!/bin/sh\nexec /product/bin/mcpvisor daemon "$@"\n' > /usr/bin/mcpvisord; chmod 755 /usr/bin/mcpvisord
    mkdir -p /usr/lib/systemd/{system,user} /usr/lib/{sysusers,tmpfiles}.d
    cp /product/systemd/system/* /usr/lib/systemd/system/
    cp /product/systemd/user/* /usr/lib/systemd/user/
    cp /product/systemd/sysusers.d/* /usr/lib/sysusers.d/
    cp /product/systemd/tmpfiles.d/* /usr/lib/tmpfiles.d/
    systemd-sysusers mcpvisor.conf && systemd-tmpfiles --create mcpvisor.conf
    systemctl daemon-reload
}
# What each check begins with: no drop-in, the plain configuration, an idle socket.
clean() {
    date +%s > /run/check-began
    rm -rf /run/systemd/system/$SERVICE.d
    systemctl daemon-reload
    plain
    systemctl stop $SERVICE $SOCKET; systemctl reset-failed $SERVICE $SOCKET 2> /dev/null
    systemctl start $SOCKET
}

systemctl --version | head -n 1
install_product || { echo "FAIL install"; exit 1; }
failed=0
checks=("$@"); ((${#checks[@]})) || mapfile -t checks < <(declare -F | sed -n 's/^declare -f check_//p')
for name in "${checks[@]}"; do
    clean
    began=$EPOCHREALTIME
    # Not as a condition: bash would let a check go on after what is not so.
    (set -e; "check_$name") > /run/out 2>&1
    if (($? == 0)); then
        printf 'ok %s %.1fs %s\n' "$name" "$(python3 -c "print($EPOCHREALTIME-$began)")" "$(grep -a '^(' /run/out)"
    else
        failed=1
        echo "FAIL $name"; sed 's/^/    /' /run/out
        journalctl --quiet --no-pager -o short-monotonic --since="@$(cat /run/check-began)" | tail -n 60 | sed 's/^/    | /'
    fi
done
echo "done ${#checks[@]}"
exit $failed
