/* sim_intruder.c - a writer without a key, in a simulated run of keys.
 *
 * It can create any object under any free name, and does. The names are of entries that are open or
 * come soon, of generations that a replica has or will need, or of no replica. It has no key of a
 * member. Its objects are empty, too short, random, longer than any entry, or copies of what
 * members have signed, under other names. All invariants hold all the same, progress (I4) among
 * them, and no replica stops. */
#include "sim.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SIM_FEW = 4, SECRET = 32, DER = 48, TOO_LONG_MAX = 4, CROWD_MAX = 300, RANDOM_MAX = 700 };

/* ---- keys --------------------------------------------------------------------------------- */

static void base64(char *out, const unsigned char *bytes, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        const unsigned v = (unsigned)bytes[i] << 16 | (unsigned)bytes[i + 1] << 8 | bytes[i + 2];
        for (int k = 0; k < 4; k++)
            *out++ = digits[v >> (18 - 6 * k) & 63];
    }
    *out = 0;
}

/* The same keys in every process, so that a seed replays: PKCS #8 of an Ed25519 secret. */
static void write_key(const char *path, size_t i)
{
    unsigned char der[DER] = {0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 32};
    char text[DER / 3 * 4 + 1];
    const dl_hash a = dl_hash_bytes(&i, sizeof i), b = dl_hash_bytes(&a, sizeof a);
    memcpy(der + DER - SECRET, a.bytes, sizeof a.bytes);
    memcpy(der + DER - sizeof b.bytes, b.bytes, sizeof b.bytes);
    base64(text, der, sizeof der);
    FILE *file = fopen(path, "w");
    if (!file || chmod(path, 0600) ||
        fprintf(file, "-----BEGIN PRIVATE KEY-----\n%s\n-----END PRIVATE KEY-----\n", text) < 0 ||
        fclose(file)) {
        perror(path);
        exit(1);
    }
}

const dl_signer *sim_signer(size_t i)
{
    static dl_signer *signers[MAX_REPLICAS];
    char folder[] = "/tmp/diloco-sim-XXXXXX", path[64];
    if (signers[i]) return signers[i];
    if (!mkdtemp(folder)) perror(folder), exit(1);
    snprintf(path, sizeof path, "%s/key", folder);
    write_key(path, i);
    if (dl_signer_open(&signers[i], path)) fprintf(stderr, "%s\n", diloco_error_text()), exit(1);
    unlink(path);
    rmdir(folder);
    return signers[i];
}

/* ---- its objects --------------------------------------------------------------------------- */

static uint64_t below(sim *s, uint64_t n)
{
    return dl_rng_below(&s->intruder.rng, n);
}

uint64_t sim_open_entry(const sim *s)
{
    uint64_t open = 0;
    for (size_t i = 0; i < s->n_slots; i++) {
        const replica *r = &s->replicas[i];
        if (r->now.alive && dl_exec_state(r->exec)->control.entry > open)
            open = dl_exec_state(r->exec)->control.entry;
    }
    return open;
}

/* A current generation, the next one, or the last possible one. */
static dl_generation draw_generation(sim *s)
{
    const replica *r = &s->replicas[below(s, s->n)];
    dl_generation generation = {.number = r->generation.number + (uint32_t)below(s, 3)};
    snprintf(generation.replica, sizeof generation.replica, "%s", r->name);
    if (below(s, 8) == 0) generation.number = DL_GENERATION_MAX;
    if (below(s, 8) == 0)
        snprintf(generation.replica, sizeof generation.replica, "a%llu",
                 (unsigned long long)below(s, 1000));
    return generation;
}

/* The patterns of docs/formats.md except four. run.json exists already. No replica reads launch/ or
 * batch.json. Only sharded entries have x/<e>/measured/, and no simulation with keys is sharded. A
 * new case here changes what every keyed seed does. */
static void draw_key(sim *s, dl_key key)
{
    const uint64_t entry = sim_open_entry(s) + below(s, 4), far = below(s, 50) ? entry : 9999999999;
    const dl_generation generation = draw_generation(s), other = draw_generation(s);
    const dl_hash hash = dl_hash_bytes(&entry, sizeof entry);
    char id[DL_HASH_HEX + 1];
    dl_hash_to_hex(id, hash);
    switch (below(s, 16)) {
    case 0:
    case 1:
        dl_key_entry(key, entry);
        break;
    case 2:
        dl_key_gen(key, &generation);
        break;
    case 3:
        dl_key_end(key, &generation);
        break;
    case 4:
        dl_key_heartbeat(key, &generation);
        break;
    case 5:
        dl_key_snapshot(key, far, &generation, below(s, 2) ? "manifest.json" : "state.safetensors");
        break;
    case 6:
        dl_key_combined(key, entry, &generation);
        break;
    case 7:
        dl_key_slice(key, entry, below(s, 4), &generation);
        break;
    case 8:
        dl_key_combined_slice(key, entry, below(s, 4), &generation, &other);
        break;
    case 9:
        dl_key_plan(key, entry, &generation);
        break;
    case 10:
        dl_key_invite(key, id);
        break;
    case 11:
        dl_key_admit(key, generation.replica);
        break;
    case 12:
        dl_key_record(key, &generation, below(s, 3));
        break;
    case 13:
        dl_key_theta0(key, hash);
        break;
    default:
        dl_key_contribution(key, entry, &generation);
    }
}

typedef struct pick {
    sim *s;
    dl_key key;
    uint64_t n;
} pick;

/* One of all, each as likely. */
static diloco_status found(void *context, const char *key, size_t len)
{
    pick *p = context;
    (void)len;
    if (below(p->s, ++p->n) == 0) memcpy(p->key, key, strlen(key) + 1);
    return DILOCO_OK;
}

/* An object that a member has signed, for another name. */
static void copy_another(sim *s, dl_buf *out)
{
    static const char *const folders[] = {"c/", "log/", "gen/", "snap/", "x/"};
    pick p = {.s = s};
    const char *folder = folders[below(s, sizeof folders / sizeof *folders)];
    if (dl_store_list(s->store, folder, NULL, found, &p, DL_NEVER) || !p.n) return;
    if (dl_store_get(s->store, out, p.key, DL_NEVER)) DIE(s, "%s", diloco_error_text());
}

static void draw_content(sim *s, dl_buf *out)
{
    unsigned char random[RANDOM_MAX];
    static const unsigned char zeros[DL_ENTRY_TEXT_MAX + 1];
    diloco_status status = DILOCO_OK;
    switch (below(s, 5)) {
    case 0: /* empty */
        break;
    case 1:
        status = dl_buf_add(out, "junk", 4);
        break;
    case 2:
        for (size_t i = 0; i < sizeof random; i++)
            random[i] = (unsigned char)below(s, 256);
        status = dl_buf_add(out, random, sizeof random);
        break;
    case 3:
        if (s->count.too_long++ < TOO_LONG_MAX) status = dl_buf_add(out, zeros, sizeof zeros);
        break;
    default:
        copy_another(s, out);
    }
    if (status) DIE(s, "%s", diloco_error_text());
}

static void create(sim *s, const char *key)
{
    dl_buf bytes;
    bool taken;
    dl_buf_init(&bytes, SIZE_MAX / 2);
    draw_content(s, &bytes);
    const dl_span span = {bytes.data, bytes.len};
    const diloco_status status = dl_store_create(s->store, key, &span, 1, &taken, DL_NEVER);
    if (status && status != DILOCO_EEXIST) DIE(s, "an intruder's %s: %s", key, diloco_error_text());
    sim_happened[SIM_INTRUDED] += !taken;
    if (!taken) sim_notify(s, key);
    dl_buf_deinit(&bytes);
}

/* More than there is room for, under names of no replica or of one. */
static void create_crowd(sim *s)
{
    const uint64_t entry = sim_open_entry(s) + below(s, 3), n = below(s, CROWD_MAX);
    const bool of_one = below(s, 2);
    dl_generation generation = draw_generation(s);
    for (uint64_t i = 0; i < n; i++) {
        dl_key key;
        if (of_one)
            generation.number = (uint32_t)i;
        else
            snprintf(generation.replica, sizeof generation.replica, "a%llu", (unsigned long long)i);
        dl_key_contribution(key, entry, &generation);
        const dl_span span = {"junk", 4};
        bool taken;
        const diloco_status status = dl_store_create(s->store, key, &span, 1, &taken, DL_NEVER);
        if (status && status != DILOCO_EEXIST) DIE(s, "%s", diloco_error_text());
        sim_happened[SIM_INTRUDED] += !taken;
    }
}

/* The writer creates the name before its replica does. Every open seed has at least this case. */
static void begin_a_name(sim *s)
{
    dl_key key;
    dl_generation first = {.number = 0};
    memcpy(first.replica, s->replicas[s->n - 1].name, sizeof first.replica);
    dl_key_gen(key, &first);
    create(s, key);
}

/* In half of the seeds with keys and many replicas one of them stops for good, and entries wait for
 * slow ones. */
bool sim_loses_one(const sim *s)
{
    return s->kind.keyed && s->n > SIM_FEW && s->seed % 40 < 20;
}

void sim_choose_loss(sim *s)
{
    s->loss.of = sim_loses_one(s) ? &s->replicas[s->n - 2] : NULL;
    s->loss.at = 100 * dl_rng_f64(&s->intruder.rng);
    s->loss.n_forged = 0;
    for (int i = 0; i < 2; i++)
        dl_buf_init(&s->loss.beats[i], SIZE_MAX / 2);
}

static void keep_a_heartbeat(sim *s, dl_buf *out)
{
    dl_key key;
    dl_key_heartbeat(key, &s->loss.of->generation);
    dl_buf_clear(out);
    (void)!dl_store_get(s->store, out, key, DL_NEVER); /* it need not have one yet */
}

static void put_heartbeat(sim *s, uint32_t number, const void *data, size_t len)
{
    dl_key key;
    dl_generation generation = s->loss.of->generation;
    generation.number = number;
    dl_key_heartbeat(key, &generation);
    if (dl_store_put(s->store, key, data, len, DL_NEVER)) DIE(s, "%s", diloco_error_text());
    sim_happened[SIM_FORGED_BEAT]++;
}

/* Before the replica stops, two of its heartbeats are kept. Afterwards those of its generation and
 * of a later one change for ever: to text with a number that counts up, and to what was kept. */
static void forge_a_heartbeat(sim *s)
{
    char text[64];
    const replica *r = s->loss.of;
    if (!r || !r->generation.replica[0]) return; /* it has not begun yet */
    dl_buf *kept = &s->loss.beats[s->loss.n_forged++ % 2];
    if (!r->now.lost) return keep_a_heartbeat(s, kept);
    const int len = snprintf(text, sizeof text, "{\"beat\":%llu,\"entry\":0}",
                             (unsigned long long)s->loss.n_forged + 1000000);
    put_heartbeat(s, DL_GENERATION_MAX, text, (size_t)len);
    const bool again = s->loss.n_forged % 3 == 0 && kept->len;
    put_heartbeat(s, r->generation.number, again ? (const char *)kept->data : text,
                  again ? kept->len : (size_t)len);
}

void sim_intrude(sim *s)
{
    dl_key key;
    if (!s->kind.keyed || s->now < s->intruder.next) return;
    forge_a_heartbeat(s);
    if (s->now >= SIM_QUIET) s->intruder.next = s->now + 2;
    if (s->now >= SIM_QUIET) return;
    if (s->kind.open && s->intruder.next <= 0) begin_a_name(s);
    s->intruder.next = s->now + 0.2 + 5 * dl_rng_f64(&s->intruder.rng);
    if (below(s, 20) == 0) create_crowd(s);
    draw_key(s, key);
    /* Its own void entries would end the wait for the lost replica. */
    if (s->loss.of && s->loss.of->now.lost && !strncmp(key, "log/", 4)) return;
    create(s, key);
}
