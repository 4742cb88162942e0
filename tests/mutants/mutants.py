#!/usr/bin/env python3
"""mutants.py - deliberate bugs of the protocol, each of which the cluster simulation has to catch.

    mutants.py list                         one line a mutant: its name, the folder, its files
    mutants.py write NAME FILE OUT          a copy of that source with the bug in it
    mutants.py check NAME SIMULATION SOUND  run the simulation that was built from it: passes when an
                                            invariant breaks at a seed at which none breaks in SOUND,
                                            the one without a bug, and says which, at which seed

The bugs are never in src/: the build copies a source and changes a text that must occur there
exactly once. It links the copy into a simulation of its own (tests/CMakeLists.txt).
"""
import pathlib
import re
import subprocess
import sys
from collections import namedtuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
# To be caught in, from `first` on. Seeds before it would only cost time: choose the 20 that catch the bug.
SEEDS = 400

# edits: file, text, text with the bug; way: server.diloco.exchange; first: seed to begin at
Mutant = namedtuple("Mutant", "name rule bug edits way first", defaults=["allgather", 1])

MUTANTS = [
    Mutant("decide_alone", "P5, P12", "past the deadline a replica counts the entry as aborted by itself", [
        ("src/protocol/propose.c", """    case DL_VERDICT_ABORT:
        return verdict->nobody && dl_clients_empty_momentum(m->a.config)
                   ? draft_emptied(m, verdict->reason)
                   : dl_propose_draft_abort(m, verdict->reason);
""", """    case DL_VERDICT_ABORT:
        if (verdict->nobody && dl_clients_empty_momentum(m->a.config)) return draft_emptied(m, verdict->reason);
        dl_draft_abort(&m->open.draft, &(dl_draft_source){.args = &m->a, .known = &m->open.known, .silent = m->open.silent}, verdict->reason);
        dl_pace_apply(m->a.pace, dl_open_entry(m), dl_machine_fragment(m), false, false);
        dl_control_apply(m->a.control, &m->open.draft.entry, m->a.control->prev);
        dl_machine_clear_entry(m);
        return dl_machine_go_on(m);
"""),
        ("src/protocol/phases.c", "(COMMIT | TO(DL_WAITING)", "(COMMIT | GO_ON | TO(DL_WAITING)")]),
    Mutant("own_draft", "P5", "the creator of an entry applies its own draft, not the entry in the log", [
        ("src/exchange/exec.c", """    const diloco_status status =
        dl_store_create(x->a.store, key, &span, 1, &reply->create.taken, until);
    return status == DILOCO_EEXIST ? DILOCO_OK : status; /* P5: losing is normal */
""", """    const diloco_status status =
        dl_store_create(x->a.store, key, &span, 1, &reply->create.taken, until);
    reply->read.text = x->text.data, reply->read.text_len = x->text.len;
    return status == DILOCO_EEXIST ? DILOCO_OK : status;
"""),
        ("src/protocol/propose.c", """    /* P26, and P5: losing is normal */
    return dl_machine_request(m, DL_REQUEST_READ, DL_READING_BACK);
""", """    return dl_apply_text(m, reply);
"""),
        ("src/protocol/phases.c", "dl_propose_created, 0, TO(DL_READING_BACK)", "dl_propose_created, 0, APPLY")]),
    Mutant("no_fencing", "P6", "a replica that sees a later generation of itself continues", [
        ("src/protocol/gather.c", "if (generation->number > m->a.self.number) /* P6 */",
         "if (generation->number == UINT32_MAX)")]),
    Mutant("junk_fences", "P6", "an unsigned object at a replica's own name fences it", [
        ("src/exchange/contribute.c", "    if (!signed_by_us)\n", "    if (!signed_by_us && store == NULL)\n")], first=41),
    Mutant("any_later_life", "P6", "an object with the name of a later generation counts, signed or not", [
        ("src/exchange/listing.c", """x->ring ? take_or_keep(x, &o, key, named)
                               : verdict_of(x->collect.lister, key) != FORGED && take(x, &o, named);""",
         "x->ring && !named ? take_or_keep(x, &o, key, named) : take(x, &o, named);")]),
    Mutant("long_entry", "P7", "an object that is too long for an entry makes its reader fail", [
        ("src/log/entry.c", "return status == DILOCO_EPROTO ? DILOCO_OK : status;", "return status;")]),
    Mutant("any_result", "P7", "a commit is applied although its result does not follow from its members", [
        ("src/protocol/apply.c", "if (dl_hash_equal(reply->compute.result, m->applying.entry.result)) return dl_apply_swap(m);",
         "if (reply->status == DILOCO_OK) return dl_apply_swap(m);")]),
    Mutant("any_stands", "P7", "a replica that cannot read an entry's contributions waits for them, however few committers build on the entry", [
        ("src/protocol/void/unreadable.c", "u->accepted |= u->n_supporters > max_byzantine;", "u->accepted |= u->n_supporters > max_byzantine * 0;")], first=61),
    Mutant("first_reading", "P7", "an entry is judged by one reading of it", [
        ("src/protocol/apply.c", "if (dl_hash_equal(m->applying.suspect, m->applying.digest)) return false;",
         "if (m->applying.n_recomputed == 0) return false;")]),
    Mutant("abort_elsewhere", "P5", "aborts have names of their own", [
        ("src/exchange/exec.c", """    dl_key_entry(key, request->entry);
    dl_buf_clear(&x->text);
    DL_TRY(dl_entry_write(""", """    dl_key_entry(key, request->entry);
    if (!request->step.draft->commit) strcpy(strchr(key, '.'), ".abort");
    dl_buf_clear(&x->text);
    DL_TRY(dl_entry_write("""),
        ("src/exchange/exec.c", """    const diloco_status status = dl_entry_get(&x->text, x->a.store, request->entry, until);
    if (status == DILOCO_ENOENT) return DILOCO_OK;
    reply->read.text = x->text.data;""", """    dl_key key;
    dl_key_entry(key, request->entry);
    diloco_status status = dl_store_get(x->a.store, &x->text, key, until);
    if (status == DILOCO_ENOENT) strcpy(strchr(key, '.'), ".abort");
    if (status == DILOCO_ENOENT) status = dl_store_get(x->a.store, &x->text, key, until);
    if (status == DILOCO_ENOENT) return DILOCO_OK;
    reply->read.text = x->text.data;""")]),
    Mutant("gap", "P4", "an entry counts as absent if the store does not answer", [
        ("src/exchange/exec.c", """    if (status == DILOCO_ENOENT) return DILOCO_OK;
    reply->read.text = x->text.data;""", """    if (status == DILOCO_ENOENT || status == DILOCO_EUNREACHABLE) return DILOCO_OK;
    reply->read.text = x->text.data;""")]),
    Mutant("count_twice", "P15", "two generations of a replica both count", [
        ("src/protocol/candidates.c", "if (other->generation.number > known->generation.number && other->validity == DL_VALID)", "if (other->generation.number == UINT32_MAX)"),
        ("src/log/entry.c", "if (before && strcmp(before->generation.replica, m->generation.replica) == 0)",
         "if (before && strcmp(before->generation.replica, m->generation.replica) == 9)"),
        ("src/protocol/control_apply.c", 'if (counts_a_replica_twice(entry)) return "it counts a replica twice";',
         'if (counts_a_replica_twice(entry) && entry->n_members == 0) return "it counts a replica twice";')]),
    Mutant("no_bans", "P27", "a banned replica's contributions count", [
        ("src/protocol/bans.c", "return dl_bans_until(bans, name) > 0;",
         "return dl_bans_until(bans, name) == UINT64_MAX;"),
        ("src/protocol/gather.c", "const bool banned = m->self.n_put < dl_bans_until(",
         "const bool banned = UINT64_MAX == dl_bans_until(")]),
    Mutant("any_steps", "P9", "a contribution may claim more steps than a replica can take since its base", [
        ("src/log/claims.c", "if (steps > b->steps || steps > position - b->since)",
         "if (steps > b->due)")], first=41),
    Mutant("any_base", "P3, P7", "contributions with any base count", [
        ("src/log/contribution.c", "if (!e->any_base && !dl_hash_equal(f->base, e->base) && !dl_hash_equal(f->base, e->also_base)) {",
         "if (f->n_floats == UINT64_MAX) {")], first=241),
    Mutant("early_fragment", "P9", "an announcement has to name the fragment that its entry will have", [
        ("src/log/contribution.c", "(f->fragment != e->fragment && !empty)",
         "f->fragment != e->fragment")], first=461),
    Mutant("resumed_unread", "P3, P16", "a resumed generation ignores the entries since its saved state", [
        ("src/protocol/machine.c", """    if (m->self.has_bases && dl_open_entry(m) > m->self.bases_at) {
        m->self.has_bases = false;
        dl_pace_restart(m->a.pace);
    }
""", """    if (m->self.has_bases && dl_open_entry(m) > m->self.bases_at) m->self.has_bases = false;
""")], first=301),
    Mutant("passed_over", "P13", "a replica that an entry did not count measures its movement from its own state", [
        ("src/protocol/pace.c", """    } else if (entry >= p->n_captured && commit && (counted || p->adopts_uncounted)) {
        p->fragments[fragment].behind = true;
    }
""", "    }\n")]),
    Mutant("collect_from_the_living", "P25", "collection does not read heartbeats", [
        ("src/state/collection.c", "if (live && row->entry < s->floor) s->floor = row->entry;", "(void)live;")], first=61),
    Mutant("own_roster", "P9", "a replica waits for all replicas that it has not itself seen silent", [
        ("src/protocol/advance.c", """        dl_control_apply(m->a.control, &m->applying.entry, m->applying.digest);
""", """        dl_control_apply(m->a.control, &m->applying.entry, m->applying.digest);
        if (m->a.control->roster.n && m->open.silent[m->a.control->roster.n - 1]) m->a.control->roster.n--;
""")]),
    Mutant("two_uses_of_a_slot", "P19", "slices overwrite contributions that were read whole for a draft", [
        ("src/protocol/topology/topology_sharded.c", "    if (m->open.by_all) return dl_propose_look_to_close(m);\n", "")], "sharded", 21),
    Mutant("any_slice", "P19", "an update is applied without a check of its slices", [
        ("src/exchange/sharded.c", "if (named->bytes == 0 || dl_hash_equal(reply->combined.result, named->body)) return DILOCO_OK;",
         "if (reply->combined.len) return DILOCO_OK;"),
        ("src/protocol/apply.c", "if (dl_hash_equal(reply->compute.result, m->applying.entry.result)) return dl_apply_swap(m);",
         "if (m->applying.entry.combined.there || dl_hash_equal(reply->compute.result, m->applying.entry.result)) return dl_apply_swap(m);")],
        "sharded", 141),
    Mutant("one_array", "P20", "an asynchronous replica computes entries of others in the array of its capture", [
        ("src/exchange/exec.c", "ahead == 1 && !x->a.beside && x->mode->may_share_next", "ahead == 1 && !x->a.beside")]),
    Mutant("waits_for_another", "P20",
           "a replica finds while catching up that its contribution counted, and still waits for one more entry", [
        ("src/protocol/machine.c", """    if (dl_machine_mode(m)->go_on && !m->a.reader) return dl_machine_mode(m)->go_on(m);
    if (m->a.reader""", "    if (m->a.reader")], first=181),
]


def find(name):
    return next(m for m in MUTANTS if m.name == name)


def files(mutant):
    return sorted({file for file, _, _ in mutant.edits})


def missing(mutant):
    """The edits whose text does not occur exactly once in its file."""
    return [file for file, old, _ in mutant.edits if (ROOT / file).read_text().count(old) != 1]


def write(mutant, file, out):
    text = (ROOT / file).read_text()
    for at, old, new in mutant.edits:
        if at == file and text.count(old) == 1:
            text = text.replace(old, new)
    pathlib.Path(out).write_text(f'#line 1 "{file} of {mutant.name}"\n' + text)


def check(mutant, simulation, sound):
    if missing(mutant):
        sys.exit(f"{mutant.name}: what it changes in {missing(mutant)[0]} is not there any more, or "
                 "more than once: see tests/mutants/mutants.py")
    seed = mutant.first
    while seed < mutant.first + SEEDS:
        run = subprocess.run([simulation, str(seed), "20", "16", mutant.way],
                             capture_output=True, text=True)
        if run.returncode == 0:
            seed += 20
            continue
        caught = re.search(r"^seed (\d+) at .*\nreplay: (.*)", run.stderr, re.M)
        if not caught:
            sys.exit(f"{mutant.name}: the simulation ended with {run.returncode}: {run.stderr[-300:]}")
        print(f"{mutant.name} ({mutant.rule}) is caught: {caught.group(0)}")
        subprocess.run([sound, caught.group(1), "1", "16", mutant.way], check=True,
                       stdout=subprocess.DEVNULL)
        return
    sys.exit(f"{mutant.name}: no invariant broke in {SEEDS} seeds from {mutant.first} on: {mutant.bug}")


def main():
    command, *args = sys.argv[1:]
    if command == "list":
        for m in MUTANTS:
            print(";".join([m.name, *files(m)]))
    elif command == "write":
        write(find(args[0]), args[1], args[2])
    elif command == "check":
        check(find(args[0]), args[1], args[2])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
