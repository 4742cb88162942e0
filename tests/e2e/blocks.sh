# blocks.sh - run the fenced blocks of a page in the order in which they are printed. A test sources
# it after lib.sh and calls  run_blocks PAGE.  The info string of a block says what happens to it:
#
#     ```sh runnable                        run it; it must succeed
#     ```sh runnable &                      run it beside the next blocks; it must have succeeded at
#                                           the end of the page
#     ```sh runnable & until FILE           likewise; the next block waits until FILE has content
#     ```sh runnable & stopped until FILE   likewise, and end it with SIGTERM at the end of the page
#     ```sh runnable when others ended      run it after the blocks that were started with & have
#                                           succeeded, but for those that are "stopped"
#     ```sh runnable interrupted at FILE    send it SIGINT when FILE exists; it must exit with 130, or
#                                           with 0 if it was done before the signal arrived
#     ```sh runnable killed at FILE         send all its processes SIGKILL when FILE exists
#     ```LANGUAGE file NAME                 save it as NAME
#     ```text expected                      each line is a line in the output of the last block that
#                                           was run; … means any text, and blanks any number of them
#
# Other blocks are left alone. A line that begins with "export " holds for later blocks, too. A page
# that serves at port 8765 with --listen serves at a free port of 127.0.0.1 instead. The output of
# block N is in blockN.out.

# signal NAME JOB: to every process of a block.
signal() {
    kill -s "$1" -- "-$2" 2>/dev/null || true
}

# group_gone JOB: no process of the block's group is left.
group_gone() {
    ! kill -0 -- "-$1" 2>/dev/null
}

# killed JOB: no process of the block is left; SIGKILL to those that are. Replicas have process groups
# of their own, in the session of the block. A replica that outlives the launcher stops in order and
# holds the lock of its private state until then.
killed() {
    processes=$(cat /proc/[0-9]*/stat 2>/dev/null | awk -v session="$1" '
        { pid = $1; sub(/.*\) /, "") } $1 != "Z" && $1 != "X" && $4 == session { print pid }')
    [ -n "$processes" ] || return 0
    kill -s KILL $processes 2>/dev/null || true
    return 1
}

# start_block N: in a process group of its own, its leader in $job.
start_block() {
    setsid sh -eu "block$1.sh" >"block$1.out" 2>&1 &
    job=$!
    started="$started -$job"
}

has_content() {
    [ -s "$1" ]
}

# file_or_end FILE JOB: the file exists, or no process will make it any more.
file_or_end() {
    [ -e "$1" ] || gone "$2"
}

block_fails() {
    fail "$page, block $1 $2:
$(cat "block$1" "block$1.out")"
}

# line_printed PATTERN FILE
line_printed() {
    grep -qE -- "$1" "$2"
}

# expect_lines N: the lines of block N are in the output of the block that was run last, or appear
# in it if it is still running.
expect_lines() {
    sed -e '/^ *$/d' -e 's/^ *//' -e 's/[][\.*^$+?(){}|]/\\&/g' -e 's/…/.*/g' -e 's/  */ +/g' \
        -e 's/^/^ */' -e 's/$/ *$/' "block$1" >patterns
    while read -r pattern; do
        if [ "$last_runs" ]; then
            wait_for line_printed "$pattern" "block$last.out"
        else
            line_printed "$pattern" "block$last.out" ||
                block_fails "$last" "does not print: $pattern"
        fi
    done <patterns
}

# stop_at SIGNAL FILE N
stop_at() {
    start_block "$3"
    wait_for file_or_end "$2" "$job"
    code=0
    if [ "$1" = KILL ]; then
        wait_for killed "$job"
    else
        signal "$1" "$job"
    fi
    wait "$job" 2>/dev/null || code=$?
    wait_for group_gone "$job"
    case $1.$code in
    INT.0 | INT.130 | KILL.*) ;;
    *) block_fails "$3" "exits with $code after SIG$1" ;;
    esac
}

# run_beside N [stopped] [until FILE]
run_beside() {
    number=$1
    shift
    start_block "$number"
    if [ "${1:-}" = stopped ]; then
        shift
        stopped="$stopped $job:$number"
    else
        beside="$beside $job:$number"
    fi
    last_runs=yes
    [ -z "${2:-}" ] || wait_for has_content "$2"
}

# run_alone N
run_alone() {
    sh -eu "block$1.sh" >"block$1.out" 2>&1 || block_fails "$1" fails
}

# end_beside: the blocks that run beside the others have succeeded.
end_beside() {
    for job in $beside; do
        wait "${job%:*}" || block_fails "${job#*:}" fails
    done
    beside=
}

# run_sh N WORD…: a block of commands, by the words after "runnable".
run_sh() {
    number=$1
    shift
    last=$number
    last_runs=
    cat exported "block$number" >"block$number.sh"
    grep '^export ' "block$number" >>exported || true
    case "$*" in
    '') run_alone "$number" ;;
    'when others ended') end_beside && run_alone "$number" ;;
    'interrupted at '*) stop_at INT "$3" "$number" ;;
    'killed at '*) stop_at KILL "$3" "$number" ;;
    '&'*) shift && run_beside "$number" "$@" ;;
    *) fail "$page: there is no block of this kind: sh runnable $*" ;;
    esac
}

end_page() {
    end_beside
    for job in $stopped; do
        ! gone "${job%:*}" || block_fails "${job#*:}" "ends before the page does"
        signal TERM "${job%:*}"
        wait "${job%:*}" 2>/dev/null || true
    done
}

run_blocks() {
    page=$1
    beside=
    stopped=
    last=
    rm -f block*
    : >exported
    awk '/^ *```/ { if (open) { open = 0; next }
                  n++; open = 1; printf "" >("block" n)
                  head = $0; sub(/^ *```/, "", head); print head >("block" n ".head"); next }
         open { print >("block" n) }' "$page"
    sed -i 's/^diloco serve hub &/diloco serve hub --listen 127.0.0.1:8765 \&/' block*
    if grep -q -- '--listen [^ ]*:8765' block*; then
        sed -i "s/--listen [^ ]*:8765/--listen 127.0.0.1:8765/
                s/:8765/:$(python3 "$project/tests/free_port.py")/g" block*
    fi
    n=1
    while [ -e block$n ]; do
        read -r kind what rest <block$n.head || true
        case "$kind $what" in
        'sh runnable') run_sh $n $rest ;;
        'text expected') expect_lines $n ;;
        *' file') cp block$n "$rest" ;;
        esac
        n=$((n + 1))
    done
    [ -n "$last" ] || fail "$page has no runnable block"
    end_page
}
