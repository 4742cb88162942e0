/* toy_keys.h - crews of toy_run.h in runs of keys, and what belongs to them. */
#ifndef DL_TESTS_TOY_KEYS_H
#define DL_TESTS_TOY_KEYS_H

#include "base/clock.h"
#include "log/keyring.h"
#include "log/signed_beat.h"
#include "run/open.h"
#include "toy_run.h"

enum { CREW = 3 };
static const char *const policies[] = {"open", "invited", "closed"};

static inline const char *key_of(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "%s.pem", name);
    const char *path = scratch_path(file);
    const diloco_status status = dl_signer_make(path);
    CHECK(!status || status == DILOCO_EEXIST);
    return path;
}

static inline dl_signer *signer_of(const char *name)
{
    dl_signer *signer;
    CHECK_OK(dl_signer_open(&signer, key_of(name)));
    return signer;
}

static inline void public_of(char out[DL_PUBLIC_TEXT], const char *name)
{
    dl_signer *signer = signer_of(name);
    dl_public_text(out, dl_signer_public(signer));
    dl_signer_close(signer);
}

/* "r0 KEY" a line, of keys of the same names. */
static inline const char *members_file(size_t n)
{
    char text[4096] = "# who may\n\n", key[DL_PUBLIC_TEXT];
    for (size_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "r%zu", i);
        public_of(key, name);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s %s\n", name, key);
    }
    return scratch_write("members", text, strlen(text));
}

/* The keys of r0 to r<n - 1>, of which an entry has to be signed by one. */
static inline const char *committers_file(int n)
{
    char text[CREW * (DL_PUBLIC_TEXT + 1) + 1] = "", name[16], key[DL_PUBLIC_TEXT];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "r%d", i);
        public_of(key, name);
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s\n", key);
    }
    return scratch_write("committers", text, strlen(text));
}

static inline dl_store *store_of(const char *url)
{
    dl_store *store;
    CHECK_OK(dl_store_open(&store, url, true));
    return store;
}

static inline void read_run(dl_runfile *file, dl_hash *digest, dl_store *store)
{
    CHECK_OK(dl_run_read(file, digest, store));
}

/* An invitation by `owner`, for `seconds`, as a file. */
static inline const char *invite(const char *url, const char *owner, int seconds)
{
    static int n;
    char text[DL_INVITATION_TEXT], name[32];
    dl_runfile file;
    dl_hash digest;
    dl_store *store = store_of(url);
    dl_signer *signer = signer_of(owner);
    read_run(&file, &digest, store);
    CHECK_OK(dl_invitation_make(text, file.id, (uint64_t)(dl_clock_wall() + seconds), signer));
    dl_signer_close(signer);
    dl_runfile_deinit(&file);
    dl_store_close(store);
    snprintf(name, sizeof name, "invitation%d", n++);
    return scratch_write(name, text, strlen(text));
}

/* A crew with keys of their names, r0 the owner. */
static inline void crew_of(toy *all, const char *url, const char *policy)
{
    toy_keep(url);
    toy_crew(all, CREW, url, "none");
    toy_set_all(all, CREW, "run.roster", policy);
    toy_set_all(all, CREW, "run.on_missing", "wait");
    if (!strcmp(policy, "closed")) toy_set_all(all, CREW, "run.members", members_file(CREW));
    for (int i = 0; i < CREW; i++)
        toy_set(&all[i], "run.key", key_of(all[i].name));
}

/* The run made, so that there is one to be invited to. */
static inline void create(toy *t)
{
    CHECK_OK(toy_open(t));
    CHECK_OK(diloco_run_create(t->run));
    toy_close(t);
}

/* Makes the run, and invites all of its crew but the owner where the roster is by invitation. */
static inline void create_and_invite(toy *all, const char *url, const char *policy)
{
    create(&all[0]);
    for (int i = 1; i < CREW && !strcmp(policy, "invited"); i++)
        toy_set(&all[i], "run.invitation", invite(url, "r0", 3600));
}

/* A generation's heartbeat or end with that member's signature, at any key. `time` is when it was
 * written, by the member's clock. */
static inline void put_signed(dl_store *store, const dl_runfile *run, const char *by,
                              const dl_heartbeat_kind *kind, const dl_generation *of, uint64_t beat,
                              double time, const char *key)
{
    unsigned char bytes[1024];
    dl_buf text = {.data = bytes, .cap = sizeof bytes, .max = sizeof bytes};
    dl_heartbeat_writer w;
    dl_signer *signer = signer_of(by);
    dl_heartbeat_begin(&w, &text, kind, signer, run->id, of);
    dl_json_u64(&w.json, "beat", beat);
    dl_json_u64(&w.json, "step", beat);
    dl_json_f64(&w.json, "time", time);
    CHECK_OK(dl_heartbeat_end(&w));
    CHECK_OK(dl_store_put(store, key, text.data, text.len, DL_NEVER));
    dl_signer_close(signer);
}

static inline diloco_verify_report verified(const char *url)
{
    diloco_verify_report report;
    CHECK_OK(diloco_verify(&report, url, 1, NULL, NULL));
    CHECK(report.complete);
    return report;
}

#endif
