/* hostile.c - malicious replicas, for LD_PRELOAD: the program itself knows nothing of it.
 *
 *     ATTACK=NAME ATTACKERS=r5,r6,r7 HONEST=5    of a run over a folder, codec f32, unsigned
 *
 * An attacker's contribution is rewritten when it is whole, just before it gets its name. The
 * movement of c/<e>/<replica>.<g> becomes that of the attack, and its header fits. So an attacker
 * is a real replica that trains, follows and commits; only its contributions are forged. Attacks
 * that depend on the honest contributions wait, up to a minute, until HONEST contributions of
 * others are under c/<e>/.
 *
 *     sign_flip    -g                       scale     1000 g
 *     nan, inf     in one element           gaussian  noise as long as 10 g
 *     zero         nothing                  stale     what it sent first, over and over
 *     alie         "a little is enough" (Baruch et al. 2019): the honest mean less 1.5 standard
 *                  deviations, element by element
 *     ipm          inner-product manipulation (Xie et al. 2019): -2 times the honest mean
 *     ipm_small    likewise, -1/2 times: shorter than any honest movement, so near to all of them
 *     mimic        (Karimireddy et al. 2022) what the first honest one sends
 *     copy         likewise, each of another
 *     slice_owner  with exchange "sharded": the attackers' combined slices, x/<e>/<slice>/,
 *                  and their measurements, x/<e>/measured/, become -1000 times their values. All do
 * the same, so the owners of one slice agree. */
#include "log/contribution.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_HONEST = 64, WAITS = 600, WAIT_US = 100000, ACCOMPLICE_WAITS = 10 };

typedef struct attack {
    const char *name, *folder; /* of the attack; c/<e> */
    dl_contribution header;
    float *g; /* of the attacker */
    size_t n;
    float *honest[MAX_HONEST];
    size_t n_honest, rank; /* which of the attackers this is */
} attack;

static bool is(const attack *a, const char *name)
{
    return strcmp(a->name, name) == 0;
}

/* ---- files -------------------------------------------------------------------------------- */

/* The path of a name in an open folder. */
static void path_at(char out[1024], int folder, const char *leaf)
{
    char link[64], path[512] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    snprintf(out, 1024, "%s/%s", path, leaf);
}

static unsigned char *read_whole(const char *path, size_t *len)
{
    struct stat info;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &info)) abort();
    unsigned char *bytes = malloc((size_t)info.st_size + 1);
    *len = bytes ? fread(bytes, 1, (size_t)info.st_size, f) : 0;
    fclose(f);
    return bytes;
}

static bool is_attacker(const char *replica, size_t *rank)
{
    const char *all = getenv("ATTACKERS");
    const size_t len = strcspn(replica, ".");
    *rank = 0;
    for (const char *at = all; at && *at; at += *at == ',') {
        const size_t n = strcspn(at, ",");
        if (n == len && !strncmp(at, replica, n)) return true;
        at += n;
        ++*rank;
    }
    return false;
}

/* ---- contributions of others ---------------------------------------------------------------- */

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_honest(const struct dirent *d)
{
    size_t rank;
    return d->d_name[0] == 'r' && !is_attacker(d->d_name, &rank);
}

static void read_honest(attack *a)
{
    struct dirent **names = NULL;
    const size_t wanted = (size_t)strtoul(getenv("HONEST") ? getenv("HONEST") : "1", NULL, 10);
    int n = 0;
    for (int i = 0; i < WAITS && (size_t)n < wanted; i++) {
        if (i) usleep(WAIT_US);
        n = scandir(a->folder, &names, is_honest, by_name);
    }
    for (int i = 0; i < n && a->n_honest < MAX_HONEST; i++) {
        char path[2048];
        size_t len;
        snprintf(path, sizeof path, "%s/%s", a->folder, names[i]->d_name);
        unsigned char *bytes = read_whole(path, &len);
        if (len < DL_CONTRIBUTION_HEADER + a->n * sizeof(float)) abort();
        a->honest[a->n_honest++] = (float *)(void *)(bytes + DL_CONTRIBUTION_HEADER);
    }
    if (a->n_honest == 0) abort();
}

static void mean_and_deviation(const attack *a, size_t i, double *mean, double *deviation)
{
    double sum = 0, sum2 = 0, n = (double)a->n_honest;
    for (size_t h = 0; h < a->n_honest; h++) {
        sum += (double)a->honest[h][i];
        sum2 += (double)a->honest[h][i] * (double)a->honest[h][i];
    }
    *mean = sum / n;
    *deviation = sqrt(fmax(0, sum2 / n - *mean * *mean));
}

/* ---- the attacks -------------------------------------------------------------------------- */

/* Box and Muller, from a small generator: no attack needs better. */
static double normal(uint64_t *seed)
{
    double u[2];
    for (int k = 0; k < 2; k++) {
        *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        u[k] = ((double)(*seed >> 33) + 1) / 2147483649.0;
    }
    return sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]);
}

static void make_noise(attack *a)
{
    double norm2 = 0;
    uint64_t seed = a->header.entry * 64 + a->rank + 1;
    for (size_t i = 0; i < a->n; i++)
        norm2 += (double)a->g[i] * (double)a->g[i];
    for (size_t i = 0; i < a->n; i++)
        a->g[i] = (float)(10 * sqrt(norm2 / (double)a->n) * normal(&seed));
}

static void follow_the_honest(attack *a)
{
    read_honest(a);
    const float *whose = a->honest[is(a, "copy") ? a->rank % a->n_honest : 0];
    for (size_t i = 0; i < a->n; i++) {
        double mean, deviation;
        mean_and_deviation(a, i, &mean, &deviation);
        a->g[i] = is(a, "alie")        ? (float)(mean - 1.5 * deviation)
                  : is(a, "ipm")       ? (float)(-2 * mean)
                  : is(a, "ipm_small") ? (float)(-mean / 2)
                                       : whose[i];
    }
}

/* Under the same name, in the newest entry before for which it sent any; which was sent again
 * itself, so it is always the first. An entry that did not wait for it may be without. */
static void send_again(attack *a, const char *leaf)
{
    char path[2048] = "";
    size_t len;
    for (uint64_t e = a->header.entry; e-- > 0 && access(path, R_OK);)
        snprintf(path, sizeof path, "%.*s/%010llu/%s", (int)(strrchr(a->folder, '/') - a->folder),
                 a->folder, (unsigned long long)e, leaf);
    if (access(path, R_OK)) return; /* this is the first */
    unsigned char *bytes = read_whole(path, &len);
    if (len < DL_CONTRIBUTION_HEADER + a->n * sizeof(float)) abort();
    memcpy(a->g, bytes + DL_CONTRIBUTION_HEADER, a->n * sizeof(float));
    free(bytes);
}

static void forged(attack *a, const char *leaf)
{
    const bool follows =
        is(a, "alie") || is(a, "ipm") || is(a, "ipm_small") || is(a, "mimic") || is(a, "copy");
    if (follows)
        follow_the_honest(a);
    else if (is(a, "gaussian"))
        make_noise(a);
    else if (is(a, "stale"))
        send_again(a, leaf);
    else if (is(a, "nan"))
        a->g[a->n / 2] = NAN;
    else if (is(a, "inf"))
        a->g[a->n / 2] = INFINITY;
    else {
        const float factor = is(a, "sign_flip") ? -1
                             : is(a, "scale")   ? 1000
                             : is(a, "zero")    ? 0
                                                : 9;
        if (factor == 9) abort(); /* there is no such attack */
        for (size_t i = 0; i < a->n; i++)
            a->g[i] *= factor;
    }
}

/* The upload is whole under `from`; it will be c/<e>/<leaf>. */
static void rewrite(unsigned char *bytes, size_t len, const char *folder, const char *leaf,
                    size_t rank)
{
    attack a = {.name = getenv("ATTACK"), .folder = folder, .rank = rank};
    if (dl_contribution_read_header(&a.header, bytes, len) || a.header.n_floats == 0) return;
    unsigned char *body = bytes + DL_CONTRIBUTION_HEADER;
    a.g = (float *)(void *)body;
    a.n = (size_t)a.header.n_floats;
    forged(&a, leaf);
    a.header.body = dl_digest_bytes(body, len - DL_CONTRIBUTION_HEADER);
    dl_contribution_write_header(bytes, &a.header);
}

static int is_byzantine(const struct dirent *d)
{
    size_t rank;
    return is_attacker(d->d_name, &rank);
}

/* A witness, which puts a digest alone, repeats the digest of its accomplice: the first of the
 * slice's owners, where that is one. */
static bool bear_witness(dl_hash *said, const char *folder)
{
    struct dirent **names = NULL;
    bool found = false;
    for (int i = 0; i < ACCOMPLICE_WAITS && !found; i++) {
        if (i) usleep(WAIT_US / 10);
        for (int k = scandir(folder, &names, is_byzantine, by_name); k-- > 0 && !found;) {
            char path[2048];
            size_t len;
            snprintf(path, sizeof path, "%s/%s", folder, names[k]->d_name);
            unsigned char *bytes = read_whole(path, &len);
            found = len > sizeof *said;
            if (found) memcpy(said->bytes, bytes + len - sizeof *said, sizeof *said);
            free(bytes);
        }
    }
    return found;
}

/* A combined slice has floats, a measured one doubles; then the digest. */
static void rewrite_slice(unsigned char *bytes, size_t len, bool measured, const char *folder)
{
    dl_hash digest;
    if (len < sizeof digest) abort();
    len -= sizeof digest;
    if (len == 0 && bear_witness(&digest, folder)) {
        memcpy(bytes, digest.bytes, sizeof digest);
        return;
    }
    float *combined = (float *)(void *)bytes;
    double *sums = (double *)(void *)bytes;
    for (size_t i = 0; !measured && i < len / sizeof *combined; i++)
        combined[i] *= -1000;
    for (size_t i = 0; measured && i < len / sizeof *sums; i++)
        sums[i] *= -1000;
    digest = dl_digest_bytes(bytes, len);
    memcpy(bytes + len, digest.bytes, sizeof digest);
}

/* Of an attacker's object that will be path, a part of the run's folder. */
static void rewrite_upload(int from, const char *old, const char *path, const char *leaf,
                           size_t rank)
{
    const bool of_slices = !strcmp(getenv("ATTACK"), "slice_owner");
    const char *x = strstr(path, "/x/");
    char source[1024], folder[1024];
    size_t len;
    if (of_slices ? !x || !strchr(leaf, '=') : !strstr(path, "/c/")) return;
    path_at(source, from, old);
    unsigned char *bytes = read_whole(source, &len);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if (of_slices)
        rewrite_slice(bytes, len, strstr(x, "/measured/"), folder);
    else
        rewrite(bytes, len, folder, leaf, rank);
    FILE *f = fopen(source, "r+b");
    if (!f || fwrite(bytes, 1, len, f) != len || fclose(f)) abort();
    free(bytes);
}

__attribute__((visibility("default"))) int linkat(int from, const char *old, int to,
                                                  const char *leaf, int flags)
{
    typedef int (*real_linkat)(int, const char *, int, const char *, int);
    char path[1024];
    size_t rank;
    path_at(path, to, leaf);
    if (getenv("ATTACK") && is_attacker(leaf, &rank)) rewrite_upload(from, old, path, leaf, rank);
    return ((real_linkat)dlsym(RTLD_NEXT, "linkat"))(from, old, to, leaf, flags);
}
