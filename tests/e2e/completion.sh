#!/bin/sh
# Completion in bash: commands, flags, keys of --set, values of options, presets. The scripts for zsh and
# fish are valid where these shells are installed, and have every command and flag.
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
    offers train diloco tra
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
    if command -v $shell >/dev/null; then
        $shell -n diloco.$shell || fail "$shell cannot read its script"
    else
        echo "left out: the script for $shell read by it (it is not installed)"
    fi
done
if command -v fish >/dev/null; then
    fish -c 'source diloco.fish; complete -C "diloco train --preset str"' >offered
    grep -q '^--preset=\{0,1\}streaming\|^streaming' offered || fail "fish offers $(cat offered)"
fi
