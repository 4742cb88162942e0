#!/bin/sh
# Completion in bash, zsh and fish, where these shells are installed: commands, flags, keys of --set,
# values of options, presets.
. "$(dirname "$0")/lib.sh"

for shell in bash zsh fish; do
    expect 0 diloco completion $shell
    mv out diloco.$shell
done
expect_error 2 'give bash, zsh or fish' diloco completion tcsh
expect_error 2 'needs a SHELL' diloco completion

# complete_words WORD…: what bash offers for the last word, one a line and sorted, in offered. As bash does, give
# NAME=VALUE as three words.
complete_words() {
    bash -u -c '
        source ./diloco.bash
        COMP_WORDS=("$@")
        COMP_CWORD=$(($# - 1))
        _diloco
        [ ${#COMPREPLY[@]} -eq 0 ] || printf "%s\n" "${COMPREPLY[@]}"' complete "$@" >offered 2>offered.err ||
        fail "$*: bash fails: $(cat offered.err)"
    sort -o offered offered
    [ ! -s offered.err ] || fail "$*: $(cat offered.err)"
}

# offers EXPECTED WORD…: these words and no others. offers_some EXPECTED WORD…: among others.
offers() {
    wanted=$1
    shift
    complete_words "$@"
    [ "$(tr '\n' ' ' <offered)" = "$wanted${wanted:+ }" ] || fail "$*: offers $(cat offered)"
}
offers_some() {
    wanted=$1
    shift
    complete_words "$@"
    grep -qxF -- "$wanted" offered || fail "$*: does not offer $wanted"
}

if command -v bash >/dev/null; then
    offers train diloco trai
    offers --version diloco --v
    offers '--preset --print-config' diloco train --pr
    offers_some --help diloco eval -
    offers '--seed --set' diloco train --se
    offers server.diloco.outer_learning_rate= diloco train --set server.diloco.outer_learning_r
    offers trainer.rounds= diloco train --set = trainer.rou
    offers streaming diloco train --preset str
    offers streaming diloco train --preset = str
    offers streaming diloco train --set preset = str
    offers_some commit_partial diloco train --set run.on_missing =
    offers 'true' diloco train --set run.peers = t
    offers_some eager diloco presets ''
    offers 'server' diloco train --role s
    offers data.train_path= diloco join --set data.train_p
    offers '' diloco join --set trainer.rounds
    offers '' diloco train --replicas ''
    offers '' diloco verify runs
    offers prepare diloco data pre
    offers '--text --tokenizer' diloco data prepare --t
    offers '--set' diloco data --s
    offers zsh diloco completion z
    offers verify diloco help verif
    offers '' diloco train --set run.store = run # a file's name: left to bash

    # everything that help has
    expect 0 diloco --help
    sed -n 's/^  \([a-z]*\( [a-z]*\)\{0,1\}\)  .*/\1/p' out | sed 's/ *$//' >commands
    [ "$(wc -l <commands)" -gt 10 ] || fail "no commands were read from the help"
    while read -r command; do
        case $command in
        *' '*) offers_some "${command#* }" diloco "${command% *}" "${command#* }" ;;
        *) offers_some "$command" diloco "$command" ;;
        esac
    done <commands
    expect 0 diloco presets
    sed -n 's/^\([a-z_]*\) - .*/\1/p' out | sort >presets
    [ "$(wc -l <presets)" -gt 10 ] || fail "no presets were read"
    complete_words diloco train --preset ''
    cmp -s presets offered || fail "not the presets: $(cat offered)"
else
    echo "left out: completion in bash (it is not installed)"
fi

for shell in zsh fish; do
    for word in train takeover tokenizer --replicas --s3-keys trainer.rounds streaming; do
        [ $shell = zsh ] || word=${word#--}
        grep -qF -- "$word" diloco.$shell || fail "the script for $shell lacks $word"
    done
    ! command -v $shell >/dev/null || $shell -n diloco.$shell || fail "$shell cannot read its script"
done
if command -v fish >/dev/null; then
    # fish_offers WORD LINE: among what fish offers at the end of the line
    fish_offers() {
        fish --no-config -c 'source diloco.fish; complete -C $argv' -- "$2" >offered
        cut -f1 offered | grep -qxF -- "$1" || fail "$2: fish does not offer $1: $(cat offered)"
    }
    fish_offers train 'diloco trai'
    fish_offers --help=all 'diloco train --he'
    fish_offers streaming 'diloco train --preset str'
    fish_offers run.on_missing= 'diloco train --set run.on_m'
    fish_offers run.on_missing=commit_partial 'diloco train --set run.on_missing=com'
    fish_offers data.train_path= 'diloco join --set data.train_p'
    fish_offers prepare 'diloco data pre'
    fish_offers takeover 'diloco help takeo'
    fish --no-config -c 'source diloco.fish; complete -C "diloco join --set trainer.rou"' >offered
    [ ! -s offered ] || fail "fish offers join what train takes: $(cat offered)"
else
    echo "left out: completion in fish (it is not installed)"
fi

# zsh completes in its line editor alone: in a terminal, of which Ctrl-X saves the line.
cat >zsh_line.py <<'PY'
"""zsh_line.py LINE: print the line that zsh makes of it when Tab is pressed at its end."""
import os, pty, sys

pid, fd = pty.fork()
if pid == 0:
    os.environ.update(TERM="dumb", PS1="first> ")
    os.execvp("zsh", ["zsh", "-f", "-i"])
seen = b""


def wait_for(text):
    global seen
    while text not in seen:
        piece = os.read(fd, 4096)
        if not piece:
            sys.exit("zsh ends")
        seen += piece
    seen = seen.split(text, 1)[1]


wait_for(b"first> ")
os.write(fd, b"source ./zshrc; PS1='rea'; PS1+='dy> '\r")
wait_for(b"ready> ")
os.write(fd, sys.argv[1].encode() + b"\t\x18")
try:
    while os.read(fd, 4096):
        pass
except OSError:  # zsh has ended
    pass
os.waitpid(pid, 0)
print(open("line").read(), end="")
PY
cat >zshrc <<'ZSH'
autoload -Uz compinit && compinit -u -D
source ./diloco.zsh 2>/dev/null # it defines _diloco, and calls it, which is for compinit's autoload
compdef _diloco diloco
save() { print -r -- "$BUFFER" >line; exit }
zle -N save
bindkey '^X' save
bindkey '^I' complete-word
ZSH
if command -v zsh >/dev/null; then
    # zsh_makes RESULT LINE
    zsh_makes() {
        : >line
        python3 zsh_line.py "$2" >offered 2>&1 || fail "$2: $(cat offered)"
        [ "$(cat offered)" = "$1" ] || fail "zsh makes of '$2': '$(cat offered)'"
    }
    zsh_makes 'diloco train ' 'diloco trai'
    zsh_makes 'diloco train --preset streaming ' 'diloco train --preset str'
    zsh_makes 'diloco train --preset=streaming ' 'diloco train --preset=str'
    zsh_makes 'diloco train --set run.on_missing=' 'diloco train --set run.on_m'
    zsh_makes 'diloco train --set run.on_missing=commit_partial ' 'diloco train --set run.on_missing=com'
    zsh_makes 'diloco join --set data.train_path=' 'diloco join --set data.train_p'
    zsh_makes 'diloco join --set trainer.rou' 'diloco join --set trainer.rou'
    zsh_makes 'diloco data tokenizer ' 'diloco data toke'
    zsh_makes 'diloco help takeover ' 'diloco help takeo'
    zsh_makes 'diloco train --help=all ' 'diloco train --help=a'
else
    echo "left out: completion in zsh (it is not installed)"
fi
