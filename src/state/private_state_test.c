/* private_state_test.c - local state is at any moment the old or the new one, and is loaded bit for
 * bit. A damaged or foreign file changes nothing of the trainer's. */
#include "state/private_state.h"

#include "base/file.h"
#include "check.h"
#include "count_alloc.h"
#include "scratch.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define RUN   "0123456789abcdef0123456789abcdef"
#define OTHER "0123456789abcdef0123456789abcdee"

/* A trainer's tensors and privates. */
typedef struct trainer { /* without padding, to compare it as bytes */
    int64_t counts[2];
    float w[7][3];
    float moments[21];
    uint8_t mask[3];
    unsigned char stream[13];
} trainer;

enum { N_TENSORS = 3, N_PRIVATES = 2, N_FRAGMENTS = 2, DIGITS_AT = 35 /* docs/formats.md */ };

typedef struct scene {
    trainer t;
    diloco_tensor tensors[N_TENSORS];
    dl_private privates[N_PRIVATES];
    dl_local_facts facts;
    dl_local_fragment fragments[N_FRAGMENTS], fragments_back[N_FRAGMENTS];
    dl_pace_capture captures[2], captures_back[DL_PACE_MAX_CAPTURES];
    dl_pace_fragment paces[N_FRAGMENTS], paces_back[N_FRAGMENTS];
    dl_hash manifest;
    char folder[PATH_MAX], path[PATH_MAX + 64];
    dl_local *local;
} scene;

static void fill(trainer *t, int seed)
{
    unsigned char *bytes = (unsigned char *)t;
    memset(t, 0, sizeof *t);
    for (size_t i = 0; i < sizeof *t; i++)
        bytes[i] = (unsigned char)(i * 7 + (size_t)seed);
}

static void scene_begin(scene *s, const char *name)
{
    memset(s, 0, sizeof *s);
    fill(&s->t, 1);
    trainer *t = &s->t;
    s->tensors[0] = (diloco_tensor){"w", t->w, DILOCO_F32, DILOCO_PARAMETER, 2, {7, 3}, 0};
    s->tensors[1] = (diloco_tensor){"counts", t->counts, DILOCO_I64, DILOCO_BUFFER, 1, {2}, 0};
    s->tensors[2] = (diloco_tensor){"mask", t->mask, DILOCO_BOOL, DILOCO_BUFFER, 1, {3}, 0};
    s->privates[0] =
        (dl_private){.name = "moments", .data = t->moments, .len = sizeof t->moments, .f32 = true};
    s->privates[1] = (dl_private){.name = "stream", .data = t->stream, .len = sizeof t->stream};
    s->manifest = dl_hash_bytes("model", 5);
    s->facts = (dl_local_facts){.run = RUN,
                                .replica = "r0",
                                .pace = {6000, 12, 11, 13, 7, 0.25f, s->captures, s->paces},
                                .step = UINT64_MAX,
                                .shard = 1,
                                .next_sample = 46000,
                                .fragments = s->fragments,
                                .n_fragments = N_FRAGMENTS,
                                .manifest = s->manifest,
                                .isa = "avx2",
                                .device = "a card",
                                .threads = 2,
                                .program = DILOCO_VERSION};
    for (size_t f = 0; f < N_FRAGMENTS; f++)
        s->fragments[f] = (dl_local_fragment){
            .stats = {.steps = 250 + f, .samples = 2000, .tokens = 256000, .first_sample = 44000},
            .loss_sum = 1.0 / 3,
            .base = dl_hash_bytes(&f, sizeof f)};
    s->paces[0] = (dl_pace_fragment){.since = 5500};
    s->paces[1] = (dl_pace_fragment){.since = 5750, .behind = true};
    s->captures[0] =
        (dl_pace_capture){.entry = 11, .position = 5990, .commit = true, .counted = true};
    s->captures[1] = (dl_pace_capture){.entry = 12, .position = 6000, .fragment = 1, .mute = true};
    snprintf(s->folder, sizeof s->folder, "%s", scratch_path(name));
    snprintf(s->path, sizeof s->path, "%s/r0/local.safetensors", s->folder);
    CHECK_OK(dl_local_open(&s->local, s->folder, "r0"));
}

static void scene_end(scene *s)
{
    dl_local_close(s->local);
}

static diloco_status save(scene *s)
{
    return dl_local_save(s->local, &s->facts, s->tensors, N_TENSORS, s->privates, N_PRIVATES);
}

static diloco_status load(scene *s, dl_local_facts *facts, bool load_tensors)
{
    facts->pace.captures = s->captures_back;
    facts->pace.fragments = s->paces_back;
    facts->fragments = s->fragments_back;
    facts->n_fragments = N_FRAGMENTS;
    return dl_local_load(s->local, facts, RUN, s->manifest, s->tensors, N_TENSORS, s->privates,
                         N_PRIVATES, load_tensors);
}

/* Checks that loading fails this way, and that nothing was written. */
static void check_refused(scene *s, diloco_status expected, const char *part)
{
    dl_local_facts facts = {.step = 77};
    trainer before;
    fill(&s->t, 9);
    before = s->t;
    CHECK_STATUS(expected, load(s, &facts, true));
    CHECK_CONTAINS(part, diloco_error_text());
    CHECK_BYTES(&before, &s->t, sizeof before);
    CHECK_INT(77, facts.step);
}

TEST(local_state_comes_back_to_the_bit)
{
    scene s;
    dl_local_facts facts;
    trainer saved;
    scene_begin(&s, "round");
    CHECK_STATUS(DILOCO_ENOENT, load(&s, &facts, true));
    saved = s.t;
    s.facts.formers = (dl_former_generations){.at = {3, 70000}, .n = 2};
    CHECK_OK(save(&s));
    fill(&s.t, 2);
    CHECK_OK(load(&s, &facts, true));
    CHECK_BYTES(&saved, &s.t, sizeof saved);
    CHECK(facts.formers.n == 2 && facts.formers.at[0] == 3 && facts.formers.at[1] == 70000);
    CHECK(facts.pace.applied == 12 && facts.pace.position == 6000 && facts.step == UINT64_MAX);
    CHECK(facts.pace.next_adopt == 11 && facts.pace.n_captured == 13);
    CHECK(facts.pace.base == 7 && facts.pace.weight == 0.25f);
    for (size_t k = 0; k < 2; k++) {
        const dl_pace_capture *t = &s.captures_back[k], *was = &s.captures[k];
        CHECK(t->entry == was->entry && t->position == was->position);
        CHECK(t->fragment == was->fragment && t->mute == was->mute);
        CHECK(t->commit == was->commit && t->counted == was->counted);
    }
    for (size_t f = 0; f < N_FRAGMENTS; f++) {
        const dl_local_fragment *p = &s.fragments_back[f];
        CHECK(p->stats.steps == 250 + f && p->stats.samples == 2000 && p->stats.tokens == 256000);
        CHECK(p->stats.first_sample == 44000 && p->loss_sum == 1.0 / 3);
        CHECK(dl_hash_equal(s.fragments[f].base, p->base));
        CHECK_INT(f ? 5750 : 5500, s.paces_back[f].since);
        CHECK(s.paces_back[f].behind == (f == 1));
    }
    CHECK(facts.shard == 1 && facts.next_sample == 46000 && facts.threads == 2);
    CHECK(dl_hash_equal(s.manifest, facts.manifest));
    CHECK_STR(RUN, facts.run);
    CHECK_STR("r0", facts.replica);
    CHECK_STR("avx2", facts.isa);
    CHECK_STR("a card", facts.device);
    CHECK_STR(DILOCO_VERSION, facts.program);
    scene_end(&s);
}

TEST(a_later_save_replaces_an_earlier_one_and_survives_a_restart)
{
    scene s;
    dl_local_facts facts;
    scene_begin(&s, "restart");
    CHECK_OK(save(&s));
    fill(&s.t, 5);
    trainer saved = s.t;
    s.facts.pace.position = 6013;
    s.fragments[0].loss_sum = NAN;
    CHECK_OK(save(&s));
    dl_local_close(s.local);
    CHECK_OK(dl_local_open(&s.local, s.folder, "r0"));
    fill(&s.t, 2);
    CHECK_OK(load(&s, &facts, true));
    CHECK_BYTES(&saved, &s.t, sizeof saved);
    CHECK_INT(6013, facts.pace.position);
    CHECK(isnan(s.fragments_back[0].loss_sum));
    scene_end(&s);
}

TEST(saving_again_allocates_nothing)
{
    if (!count_alloc_works()) {
        print_message("left out: a sanitizer counts for itself\n");
        skip();
    }
    scene s;
    scene_begin(&s, "allocations");
    CHECK_OK(save(&s));
    s.facts.pace.position++;
    size_t before = count_alloc();
    diloco_status status = save(&s);
    CHECK_INT(before, count_alloc());
    CHECK_OK(status);
    scene_end(&s);
}

TEST(tensors_may_stay_as_they_are)
{
    scene s;
    dl_local_facts facts;
    scene_begin(&s, "privates");
    trainer saved = s.t;
    CHECK_OK(save(&s));
    fill(&s.t, 2);
    trainer other = s.t;
    CHECK_OK(load(&s, &facts, false));
    CHECK_BYTES(other.w, s.t.w, sizeof other.w);
    CHECK_BYTES(other.mask, s.t.mask, sizeof other.mask);
    CHECK_BYTES(saved.moments, s.t.moments, sizeof saved.moments);
    CHECK_BYTES(saved.stream, s.t.stream, sizeof saved.stream);
    scene_end(&s);
}

TEST(a_replica_with_nothing_of_its_own_saves_its_facts)
{
    scene s;
    dl_local_facts facts;
    scene_begin(&s, "nothing");
    CHECK_OK(dl_local_save(s.local, &s.facts, NULL, 0, NULL, 0));
    facts.pace.captures = s.captures_back;
    facts.pace.fragments = s.paces_back;
    facts.fragments = s.fragments_back;
    facts.n_fragments = N_FRAGMENTS;
    CHECK_OK(dl_local_load(s.local, &facts, RUN, s.manifest, NULL, 0, NULL, 0, true));
    CHECK_INT(6000, facts.pace.position);
    scene_end(&s);
}

/* ---- damage */

TEST(every_flipped_bit_and_every_cut_is_found)
{
    scene s;
    dl_buf bytes;
    scene_begin(&s, "bits");
    CHECK_OK(save(&s));
    dl_buf_init(&bytes, 1 << 20);
    CHECK_OK(dl_file_read(&bytes, s.path));
    FILE *file = fopen(s.path, "r+b"); /* in place: a rename and its syncs are slow */
    CHECK(file != NULL);
    setvbuf(file, NULL, _IONBF, 0);
    for (size_t i = 0; i < bytes.len; i++) {
        if (i >= DIGITS_AT && i < DIGITS_AT + DL_HASH_HEX)
            continue; /* the digest's own digits, below */
        for (int bit = 0; bit < 8; bit += i < 1200 ? 1 : 3) {
            fseek(file, (long)i, SEEK_SET);
            fputc(bytes.data[i] ^ 1 << bit, file);
            check_refused(&s, DILOCO_EPROTO, "digest");
        }
        fseek(file, (long)i, SEEK_SET);
        fputc(bytes.data[i], file);
    }
    for (long at = DIGITS_AT; at < DIGITS_AT + DL_HASH_HEX; at++) {
        fseek(file, at, SEEK_SET);
        fputc(bytes.data[at] ^ 1, file);
        check_refused(&s, DILOCO_EPROTO, "digest");
        fseek(file, at, SEEK_SET);
        fputc(bytes.data[at], file);
    }
    fclose(file);
    dl_local_facts facts;
    CHECK_OK(load(&s, &facts, true));
    for (long len = (long)bytes.len - 1; len >= 0; len--) {
        CHECK_INT(0, truncate(s.path, len));
        check_refused(&s, DILOCO_EPROTO, "digest");
    }
    dl_buf_deinit(&bytes);
    scene_end(&s);
}

/* Replaces `from` by `to`, of the same length, and makes the digest again. */
static void check_edited(const char *from, const char *to, diloco_status expected, const char *part)
{
    static int number;
    char name[32], hex[DL_HASH_HEX + 1];
    scene s;
    dl_buf bytes;
    snprintf(name, sizeof name, "edited%d", number++);
    scene_begin(&s, name);
    CHECK_OK(save(&s));
    dl_buf_init(&bytes, 1 << 20);
    CHECK_OK(dl_file_read(&bytes, s.path));
    unsigned char *at = memmem(bytes.data, bytes.len, from, strlen(from));
    CHECK(at && strlen(from) == strlen(to));
    memcpy(at, to, strlen(to));
    memset(bytes.data + DIGITS_AT, '0', DL_HASH_HEX);
    dl_hash_to_hex(hex, dl_digest_bytes(bytes.data, bytes.len));
    memcpy(bytes.data + DIGITS_AT, hex, DL_HASH_HEX);
    CHECK_OK(dl_file_write(s.path, &(dl_span){bytes.data, bytes.len}, 1));
    check_refused(&s, expected, part);
    dl_buf_deinit(&bytes);
    scene_end(&s);
}

TEST(whole_file_of_another_run_is_refused)
{
    check_edited("\"format\":\"diloco-local\"", "\"format\":\"diloco-state\"", DILOCO_EPROTO,
                 "diloco-state");
    check_edited("\"version\":\"1\"", "\"version\":\"2\"", DILOCO_EDIFFERS, "version 2");
    check_edited("\\\"entry\\\"", "\\\"entri\\\"", DILOCO_EPROTO, "entry");
    check_edited("\\\"mute\\\":true", "\\\"mute\\\":null", DILOCO_EPROTO, "mute");
    check_edited("\\\"base\\\"", "\\\"bass\\\"", DILOCO_EPROTO, "base");
    check_edited("\\\"threads\\\":2", "\\\"formers\\\":2", DILOCO_EPROTO, "formers");
    check_edited("\"facts\":\"", "\"facts\":1", DILOCO_EPROTO, "safetensors");
    check_edited("\"data_offsets\"", "\"data_offsetz\"", DILOCO_EPROTO, "safetensors");
}

TEST(state_of_another_run_model_or_replica_is_refused)
{
    scene s;
    scene_begin(&s, "foreign");
    dl_local_facts good = s.facts;
    strcpy(s.facts.run, OTHER);
    CHECK_OK(save(&s));
    check_refused(&s, DILOCO_EDIFFERS, "belongs to run " OTHER);
    s.facts = good;
    s.facts.manifest = dl_hash_bytes("other", 5);
    CHECK_OK(save(&s));
    check_refused(&s, DILOCO_EDIFFERS, "another model");
    s.facts = good;
    strcpy(s.facts.replica, "r1");
    CHECK_OK(save(&s));
    check_refused(&s, DILOCO_EDIFFERS, "replica r1's");
    scene_end(&s);
}

TEST(state_of_another_shape_is_refused_by_name)
{
    scene s;
    scene_begin(&s, "shape");
    CHECK_OK(save(&s));
    s.tensors[0].shape[0] = 6;
    check_refused(&s, DILOCO_EDIFFERS, "w;");
    s.tensors[0].shape[0] = 7;
    s.privates[0].len -= 4;
    check_refused(&s, DILOCO_EDIFFERS, "diloco.private.moments");
    s.privates[0].len += 4;
    s.privates[1].name = "another";
    check_refused(&s, DILOCO_EDIFFERS, "no diloco.private.another");
    s.privates[1].name = "stream";
    s.privates[0].f32 = false;
    check_refused(&s, DILOCO_EDIFFERS, "diloco.private.moments");
    scene_end(&s);
}

/* ---- the lock */

TEST(a_second_process_is_refused_with_the_pid_of_the_first)
{
    scene s;
    char pid[32];
    scene_begin(&s, "lock");
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    pid_t child = fork();
    if (child == 0) {
        dl_local *second;
        diloco_status status = dl_local_open(&second, s.folder, "r0");
        bool named = strstr(diloco_error_text(), pid) && strstr(diloco_error_text(), "r0");
        bool other = dl_local_open(&second, s.folder, "r1") == DILOCO_OK;
        _exit(status == DILOCO_EINVAL && named && other ? 0 : 1);
    }
    int result;
    CHECK(waitpid(child, &result, 0) == child);
    CHECK(WIFEXITED(result));
    CHECK_INT(0, WEXITSTATUS(result));
    scene_end(&s);
    CHECK_OK(dl_local_open(&s.local, s.folder, "r0"));
    scene_end(&s);
}

/* It has a copy of the descriptor. If it closes that, the owner keeps the lock. If it keeps it, the
 * lock ends with the owner's close. */
TEST(a_forked_process_neither_takes_nor_keeps_the_lock)
{
    scene s;
    dl_local *again;
    scene_begin(&s, "forked");
    pid_t child = fork();
    if (!child) {
        dl_local_close(s.local);
        _exit(0);
    }
    CHECK_INT(child, waitpid(child, NULL, 0));
    CHECK_STATUS(DILOCO_EINVAL, dl_local_open(&again, s.folder, "r0"));
    child = fork();
    if (!child) _exit(pause());
    scene_end(&s);
    CHECK_OK(dl_local_open(&again, s.folder, "r0"));
    CHECK_INT(0, kill(child, SIGKILL));
    CHECK_INT(child, waitpid(child, NULL, 0));
    dl_local_close(again);
}

TEST(the_lock_ends_with_a_killed_process)
{
    scene s;
    int ready[2];
    char c;
    scene_begin(&s, "killed");
    scene_end(&s);
    CHECK_INT(0, pipe(ready));
    pid_t child = fork();
    if (child == 0) {
        dl_local *mine;
        diloco_status status = dl_local_open(&mine, s.folder, "r0");
        if (write(ready[1], status ? "-" : "+", 1) != 1) _exit(1);
        for (;;)
            pause();
    }
    CHECK_INT(1, read(ready[0], &c, 1));
    CHECK_INT('+', c);
    CHECK_STATUS(DILOCO_EINVAL, dl_local_open(&s.local, s.folder, "r0"));
    CHECK(s.local == NULL);
    kill(child, SIGKILL);
    CHECK(waitpid(child, NULL, 0) == child);
    CHECK_OK(dl_local_open(&s.local, s.folder, "r0"));
    close(ready[0]);
    close(ready[1]);
    scene_end(&s);
}

/* ---- the disk */

static size_t count_files(const char *folder)
{
    size_t n = 0;
    DIR *dir = opendir(folder);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir));)
        n += entry->d_name[0] != '.';
    closedir(dir);
    return n;
}

TEST(half_written_files_of_a_killed_process_are_removed)
{
    scene s;
    char path[PATH_MAX + 96], folder[PATH_MAX + 8];
    scene_begin(&s, "leftover");
    CHECK_OK(save(&s));
    snprintf(path, sizeof path, "%s.123-0.tmp", s.path);
    snprintf(folder, sizeof folder, "%s/r0", s.folder);
    CHECK_OK(dl_file_write(path, &(dl_span){"half", 4}, 1));
    CHECK_INT(3, count_files(folder));
    scene_end(&s);
    CHECK_OK(dl_local_open(&s.local, s.folder, "r0"));
    CHECK_INT(2, count_files(folder)); /* the lock and the state */
    CHECK(dl_file_exists(s.path));
    scene_end(&s);
}

/* After a failed save the earlier state is there, whole, and nothing else. */
static void check_old_state(scene *s, const trainer *saved)
{
    dl_local_facts facts;
    char folder[PATH_MAX + 8];
    snprintf(folder, sizeof folder, "%s/r0", s->folder);
    CHECK_INT(2, count_files(folder));
    CHECK_OK(load(s, &facts, true));
    CHECK_INT(6000, facts.pace.position);
    CHECK_BYTES(saved, &s->t, sizeof *saved);
}

TEST(a_write_that_fails_leaves_the_old_state)
{
    scene s;
    struct rlimit kept, small;
    scene_begin(&s, "limit");
    trainer saved = s.t;
    CHECK_OK(save(&s));
    fill(&s.t, 3);
    s.facts.pace.position = 6013;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(0, getrlimit(RLIMIT_FSIZE, &kept));
    small = kept;
    small.rlim_cur = 1000;
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &small));
    diloco_status status = save(&s);
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &kept));
    CHECK_INT(DILOCO_EIO, status);
    CHECK_CONTAINS("local state", diloco_error_text());
    check_old_state(&s, &saved);
    scene_end(&s);
}

TEST(values_that_are_not_finite_leave_the_old_state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    scene s;
    scene_begin(&s, "not-finite");
    trainer saved = s.t;
    CHECK_OK(save(&s));
    s.facts.pace.position = 6013;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        s.t.w[6][2 - i] = bad[i];
        CHECK_STATUS(DILOCO_ENUMERIC, save(&s));
        CHECK_CONTAINS("local state: w[", diloco_error_text());
        s.t.w[6][2 - i] = 1;
    }
    check_old_state(&s, &saved);
    s.t.moments[0] = NAN; /* the caller's own */
    CHECK_OK(save(&s));
    scene_end(&s);
}

TEST(a_full_disk_leaves_the_old_state)
{
    scene s;
    char *disk = scratch_folder("disk");
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", disk, "tmpfs", 0, "size=16k")) {
        print_message("no right to mount: a disk cannot be filled here\n");
        skip();
    }
    scene_begin(&s, "disk/state");
    trainer saved = s.t;
    CHECK_OK(save(&s));
    s.facts.pace.position = 6013;
    diloco_status status = DILOCO_OK;
    char filler[PATH_MAX];
    snprintf(filler, sizeof filler, "%s/filler", disk);
    FILE *file = fopen(filler, "wb");
    CHECK(file != NULL);
    setvbuf(file, NULL, _IONBF, 0);
    while (fputc('x', file) != EOF)
        continue;
    fclose(file);
    status = save(&s);
    CHECK_INT(DILOCO_EFULL, status);
    CHECK_INT(0, remove(filler));
    check_old_state(&s, &saved);
    CHECK_OK(save(&s));
    scene_end(&s);
    CHECK_INT(0, umount(disk));
}

/* All of them or none, even while another process holds the lock. */
TEST(another_run_inherits_the_privates_of_a_sound_file_and_nothing_else)
{
    scene s;
    scene_begin(&s, "inherit");
    CHECK(!dl_local_inherit(s.folder, "r0", s.privates, N_PRIVATES)); /* nothing saved yet */
    const trainer saved = s.t;
    CHECK_OK(save(&s));
    fill(&s.t, 2);
    trainer before = s.t;
    dl_private longer[] = {s.privates[0], s.privates[1]}, unknown[] = {s.privates[0], longer[1]};
    longer[1].len--;
    unknown[1].name = "other";
    CHECK(!dl_local_inherit(s.folder, "r0", longer, 2));
    CHECK(!dl_local_inherit(s.folder, "r0", unknown, 2));
    CHECK(!dl_local_inherit(s.folder, "r1", s.privates, N_PRIVATES));
    CHECK_BYTES(&before, &s.t, sizeof before);
    CHECK(dl_local_inherit(s.folder, "r0", s.privates, N_PRIVATES));
    CHECK_BYTES(saved.moments, s.t.moments, sizeof saved.moments);
    CHECK_BYTES(saved.stream, s.t.stream, sizeof saved.stream);
    CHECK_BYTES(before.w, s.t.w, sizeof before.w);
    FILE *f = fopen(s.path, "r+b");
    CHECK(f != NULL && fseek(f, -1, SEEK_END) == 0);
    const int last = fgetc(f);
    CHECK(fseek(f, -1, SEEK_END) == 0 && fputc(last ^ 1, f) != EOF);
    CHECK_INT(0, fclose(f));
    fill(&s.t, 3), fill(&before, 3);
    CHECK(!dl_local_inherit(s.folder, "r0", s.privates, N_PRIVATES));
    CHECK_BYTES(&before, &s.t, sizeof before);
    scene_end(&s);
}

TEST(a_folder_that_cannot_be_made_is_an_error)
{
    dl_local *local;
    char *file = scratch_write("file", "x", 1);
    CHECK_STATUS(DILOCO_EIO, dl_local_open(&local, file, "r0"));
    CHECK(local == NULL);
    static char longer[PATH_MAX + 10];
    memset(longer, 'a', sizeof longer - 1);
    CHECK_STATUS(DILOCO_EIO, dl_local_open(&local, longer, "r0"));
    CHECK(local == NULL);
    dl_local_close(NULL);
}

static size_t file_size(const scene *s)
{
    struct stat st;
    CHECK(!stat(s->path, &st));
    return (size_t)st.st_size;
}

static dl_local_copying copying(scene *s, bool restored, dl_pool *pool)
{
    return (dl_local_copying){.facts = &s->facts,
                              .tensors = s->tensors,
                              .n_tensors = N_TENSORS,
                              .privates = s->privates,
                              .n_privates = N_PRIVATES,
                              .restored = restored,
                              .pool = pool};
}

static void reserve(scene *s, int n_slots, dl_pool *pool)
{
    const dl_local_copied_parts parts = {.tensors = s->tensors,
                                         .n_tensors = N_TENSORS,
                                         .privates = s->privates,
                                         .n_privates = N_PRIVATES,
                                         .n_sharing = 1};
    CHECK_OK(dl_local_prepare_copies(s->local, &parts));
    for (int slot = 0; slot < n_slots; slot++)
        CHECK(dl_local_has_room(s->local, slot, 0, 0, pool));
}

TEST(a_copy_keeps_its_values_while_training_continues)
{
    scene s;
    dl_pool *pool;
    dl_local_facts facts = {.step = 0};
    scene_begin(&s, "copy");
    const trainer then = s.t;
    CHECK_OK(dl_pool_create(&pool, 3));
    reserve(&s, 2, pool);
    const dl_local_copying args = copying(&s, false, pool);
    for (int slot = 0; slot < DL_LOCAL_COPIES; slot++) {
        s.t = then;
        CHECK_OK(dl_local_copy(s.local, slot, &args));
        fill(&s.t, 99); /* the next steps */
        CHECK_OK(dl_local_write(s.local, slot));
        CHECK_OK(dl_local_write(s.local, slot)); /* again, as after an error: the same file */
        CHECK_OK(load(&s, &facts, true));
        CHECK(!memcmp(&then, &s.t, sizeof then));
        CHECK(facts.step == s.facts.step);
    }
    fill(&s.t, 5); /* and a save that is not beside training still works */
    const trainer now = s.t;
    CHECK_OK(save(&s));
    fill(&s.t, 6);
    CHECK_OK(load(&s, &facts, true));
    CHECK(!memcmp(&now, &s.t, sizeof now));
    dl_pool_destroy(pool);
    scene_end(&s);
}

/* A save is written while the next one is copied. */
TEST(two_copies_before_and_after_a_step_give_the_files_of_both_states)
{
    scene s;
    dl_pool *pool;
    dl_local_facts facts = {.step = 0};
    scene_begin(&s, "two");
    const trainer then = s.t;
    CHECK_OK(dl_pool_create(&pool, 1));
    reserve(&s, 2, pool);
    const dl_local_copying args = copying(&s, false, pool);
    CHECK_OK(dl_local_copy(s.local, 0, &args));
    fill(&s.t, 5);
    const trainer later = s.t;
    s.facts.step = 5;
    CHECK_OK(dl_local_copy(s.local, 1, &args));
    fill(&s.t, 99);
    for (int slot = 0; slot < DL_LOCAL_COPIES; slot++) {
        CHECK_OK(dl_local_write(s.local, slot));
        CHECK_OK(load(&s, &facts, true));
        CHECK(!memcmp(slot ? &later : &then, &s.t, sizeof s.t));
        CHECK_INT(slot ? 5 : UINT64_MAX, facts.step);
    }
    dl_pool_destroy(pool);
    scene_end(&s);
}

/* The caller writes some tensors to their places itself, or leaves them to dl_local_copy_rest. */
TEST(tensors_that_the_caller_copies_give_the_same_file)
{
    scene s;
    dl_pool *pool;
    dl_local_facts facts = {.step = 0};
    scene_begin(&s, "places");
    const trainer then = s.t;
    CHECK_OK(dl_pool_create(&pool, 2));
    reserve(&s, 1, pool);
    for (int own = 0; own < 2; own++) {
        s.t = then;
        void *places[N_TENSORS] = {&s, NULL, &s};
        dl_local_copying args = copying(&s, false, pool);
        args.places = places;
        CHECK_OK(dl_local_copy(s.local, 0, &args));
        CHECK(places[0] && !places[1] && places[2]);
        CHECK_INT(0, (uintptr_t)places[0] % 64);
        if (own) memcpy(places[0], s.t.w, sizeof s.t.w);
        if (own) places[0] = NULL;
        fill(&s.t, 99);
        if (own) memcpy(s.t.mask, then.mask, sizeof then.mask);
        if (!own) s.t = then;
        dl_local_copy_rest(s.local, 0, &args);
        CHECK(!places[0] && !places[2]);
        CHECK_OK(dl_local_write(s.local, 0));
        fill(&s.t, 98);
        CHECK_OK(load(&s, &facts, true));
        CHECK(!memcmp(&then, &s.t, sizeof then));
    }
    dl_pool_destroy(pool);
    scene_end(&s);
}

TEST(privates_that_are_not_in_use_take_no_bytes_and_are_zeros_when_loaded)
{
    scene s;
    dl_local_facts facts = {.step = 0};
    static const unsigned char zeros[sizeof s.t.moments];
    bool in_use = true;
    scene_begin(&s, "unused");
    for (int i = 0; i < N_PRIVATES; i++)
        s.privates[i].in_use = &in_use;
    const trainer then = s.t;
    CHECK_OK(save(&s));
    const size_t whole = file_size(&s);
    in_use = false;
    CHECK_OK(save(&s));
    CHECK(file_size(&s) + sizeof s.t.moments + sizeof s.t.stream <= whole);
    CHECK_OK(load(&s, &facts, true));
    CHECK_BYTES(then.w, s.t.w, sizeof then.w);
    CHECK_BYTES(zeros, s.t.moments, sizeof s.t.moments);
    CHECK_BYTES(zeros, s.t.stream, sizeof s.t.stream);

    s.privates[0].in_use = NULL; /* only the second may be left out */
    CHECK_OK(save(&s));
    s.t = then;
    s.privates[0].in_use = &in_use; /* one of two that belong together */
    CHECK_STATUS(DILOCO_EDIFFERS, load(&s, &facts, true));
    s.privates[1].in_use = NULL; /* it has to be there */
    CHECK_STATUS(DILOCO_EDIFFERS, load(&s, &facts, true));
    CHECK_CONTAINS("has no diloco.private.stream", diloco_error_text());
    CHECK(!memcmp(&then, &s.t, sizeof then));
    scene_end(&s);
}

static diloco_status refuse_to_fill(void *user, void *to)
{
    (void)user, (void)to;
    return DILOCO_EREFUSED;
}

TEST(restored_private_is_saved_from_its_place_and_not_filled)
{
    scene s;
    dl_pool *pool;
    dl_local_facts facts = {.step = 0};
    scene_begin(&s, "restored");
    const trainer then = s.t;
    s.privates[0].fill = refuse_to_fill;
    CHECK_STATUS(DILOCO_EREFUSED, dl_local_fill_in_place(s.privates, N_PRIVATES));
    CHECK_OK(dl_pool_create(&pool, 1));
    reserve(&s, 1, pool);
    for (int copies = 0; copies < 2; copies++) {
        s.t = then;
        if (copies) {
            const dl_local_copying args = copying(&s, true, pool);
            CHECK_OK(dl_local_fill(s.local, 0, &args));
            CHECK_OK(dl_local_copy(s.local, 0, &args));
            CHECK_OK(dl_local_write(s.local, 0));
        } else {
            CHECK_OK(save(&s));
        }
        fill(&s.t, 99);
        CHECK_OK(load(&s, &facts, true));
        CHECK(!memcmp(&then, &s.t, sizeof then));
    }
    dl_pool_destroy(pool);
    scene_end(&s);
}

TEST_MAIN(restored_private_is_saved_from_its_place_and_not_filled,
          a_copy_keeps_its_values_while_training_continues,
          two_copies_before_and_after_a_step_give_the_files_of_both_states,
          tensors_that_the_caller_copies_give_the_same_file,
          privates_that_are_not_in_use_take_no_bytes_and_are_zeros_when_loaded,
          local_state_comes_back_to_the_bit,
          a_later_save_replaces_an_earlier_one_and_survives_a_restart,
          saving_again_allocates_nothing, tensors_may_stay_as_they_are,
          a_replica_with_nothing_of_its_own_saves_its_facts,
          every_flipped_bit_and_every_cut_is_found, whole_file_of_another_run_is_refused,
          state_of_another_run_model_or_replica_is_refused,
          state_of_another_shape_is_refused_by_name,
          a_second_process_is_refused_with_the_pid_of_the_first,
          a_forked_process_neither_takes_nor_keeps_the_lock, the_lock_ends_with_a_killed_process,
          half_written_files_of_a_killed_process_are_removed,
          a_write_that_fails_leaves_the_old_state, values_that_are_not_finite_leave_the_old_state,
          a_full_disk_leaves_the_old_state,
          another_run_inherits_the_privates_of_a_sound_file_and_nothing_else,
          a_folder_that_cannot_be_made_is_an_error)
