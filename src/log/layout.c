/* layout.c - each kind of name is made by one printf. A name is read by reading its parts and
 * making it again: if the result differs, the name is not ours. So every name has one spelling, and
 * only the printf knows how numbers are padded. Names of generations and contributions, which
 * listings have thousands of, are read without. */
#include "log/layout.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS_MAX = 20, OUTPUT_DIGITS = 10, ENTRY_DIGITS = 10 };
enum { LEAST_DIGITS = 4, MOST_DIGITS = 7 }; /* of a generation: DL_GENERATION_MAX has 7 */

/* ---- replicas and generations */

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* A name has no dot and no slash. So it cannot leave its folder in a file store, and the generation
 * after it is unambiguous. */
static bool name_ok(const char *name, size_t most)
{
    size_t len = strnlen(name, most + 1);
    if (len == 0 || len > most) return false;
    for (size_t i = 0; i < len; i++)
        if (!name_char(name[i])) return false;
    return true;
}

bool dl_replica_name_ok(const char *name)
{
    return name_ok(name, DL_REPLICA_MAX);
}

bool dl_output_job_ok(const char *job)
{
    return name_ok(job, DL_OUTPUT_JOB_MAX);
}

bool dl_generation_ok(const dl_generation *generation)
{
    return dl_replica_name_ok(generation->replica) && generation->number <= DL_GENERATION_MAX;
}

void dl_generation_text(char out[DL_GENERATION_TEXT], const dl_generation *generation)
{
    DL_ASSERT(dl_generation_ok(generation));
    int len = snprintf(out, DL_GENERATION_TEXT, "%s.%04u", generation->replica,
                       (unsigned)generation->number);
    DL_ASSERT(len > 0 && len < DL_GENERATION_TEXT);
}

/* Reads the digits at the beginning of text; *n is their number. At most DIGITS_MAX digits are
 * read, so a long name cannot loop for long. */
static uint64_t read_digits(size_t *n, const char *text, size_t len)
{
    uint64_t value = 0;
    for (*n = 0; *n < len && *n < DIGITS_MAX && is_digit(text[*n]); ++*n)
        value = value * 10 + (uint64_t)(text[*n] - '0'); /* too large wraps: spelt differently */
    return value;
}

/* A number has one spelling: four digits, or up to seven without a zero first. So "r0.3" and
 * "r0.00003" are not accepted. */
bool dl_generation_parse(dl_generation *out, const char *text, size_t len)
{
    const char *dot = memchr(text, '.', len);
    if (!dot || dot - text > DL_REPLICA_MAX) return false;
    dl_generation generation = {0};
    memcpy(generation.replica, text, (size_t)(dot - text));
    const char *digits = dot + 1;
    size_t n_digits, rest = len - (size_t)(digits - text);
    generation.number = (uint32_t)read_digits(&n_digits, digits, rest);
    if (n_digits != rest || n_digits < LEAST_DIGITS || n_digits > MOST_DIGITS ||
        (n_digits > LEAST_DIGITS && *digits == '0') || !dl_replica_name_ok(generation.replica))
        return false;
    *out = generation;
    return true;
}

bool dl_generation_equal(const dl_generation *a, const dl_generation *b)
{
    return a->number == b->number && strcmp(a->replica, b->replica) == 0;
}

/* Compares the numbers at the beginning of *a and *b, by length without leading zeros, then by
 * digits. Moves both past them. */
static int compare_numbers(const char **a, const char **b)
{
    size_t n[2];
    const char **text[2] = {a, b}, *digits[2];
    for (int i = 0; i < 2; i++) {
        while (**text[i] == '0')
            ++*text[i];
        digits[i] = *text[i];
        while (is_digit(**text[i]))
            ++*text[i];
        n[i] = (size_t)(*text[i] - digits[i]);
    }
    if (n[0] != n[1]) return n[0] < n[1] ? -1 : 1;
    return memcmp(digits[0], digits[1], n[0]);
}

/* The order of members decides the order of sums, so it is the same on every machine: bytes and
 * numbers, no locale. */
int dl_replica_compare(const char *a, const char *b)
{
    const char *p = a, *q = b;
    while (*p && *q) {
        if (is_digit(*p) && is_digit(*q)) {
            int order = compare_numbers(&p, &q);
            if (order) return order;
        } else if (*p != *q) {
            return (unsigned char)*p < (unsigned char)*q ? -1 : 1;
        } else {
            p++, q++;
        }
    }
    if (*p || *q) return *p ? 1 : -1;
    return strcmp(a, b); /* equal except leading zeros: r02 < r2 */
}

int dl_replica_listed_order(const char *a, const char *b)
{
    while (*a && *a == *b)
        a++, b++;
    return (*a ? *a : '.') - (*b ? *b : '.');
}

int dl_generation_compare(const void *a, const void *b)
{
    const dl_generation *x = a, *y = b;
    int order = dl_replica_compare(x->replica, y->replica);
    if (order) return order;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* ---- making keys */

/* A key that does not fit is a bug: its parts have maxima that make it fit. */
static void put(dl_key out, const char *format, ...) DL_PRINTF(2, 3);
static void put(dl_key out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int len = vsnprintf(out, sizeof(dl_key), format, args);
    va_end(args);
    DL_ASSERT(len > 0 && len <= DL_KEY_MAX);
}

static void put_generation(dl_key out, const char *folder, const dl_generation *generation)
{
    char text[DL_GENERATION_TEXT];
    dl_generation_text(text, generation);
    put(out, "%s%s", folder, text);
}

/* Entries have 10 digits, so keys sort by entry. */
static void put_entry_generation(dl_key out, const char *folder, uint64_t entry,
                                 const dl_generation *generation, const char *rest)
{
    char text[DL_GENERATION_TEXT];
    dl_generation_text(text, generation);
    put(out, "%s%010llu/%s%s", folder, (unsigned long long)entry, text, rest);
}

void dl_key_gen(dl_key out, const dl_generation *generation)
{
    put_generation(out, "gen/", generation);
}

void dl_key_end(dl_key out, const dl_generation *generation)
{
    put_generation(out, "end/", generation);
}

void dl_key_heartbeat(dl_key out, const dl_generation *generation)
{
    put_generation(out, "hb/", generation);
}

void dl_key_entry(dl_key out, uint64_t entry)
{
    put(out, "log/%010llu.json", (unsigned long long)entry);
}

void dl_key_contribution(dl_key out, uint64_t entry, const dl_generation *generation)
{
    put_entry_generation(out, "c/", entry, generation, "");
}

void dl_key_contributions(dl_key out, uint64_t entry)
{
    put(out, "c/%010llu/", (unsigned long long)entry);
}

void dl_key_combined(dl_key out, uint64_t entry, const dl_generation *generation)
{
    put_entry_generation(out, "x/", entry, generation, "");
}

static void put_slice(dl_key out, const char *folder, uint64_t entry, size_t slice,
                      const dl_generation *generation)
{
    char text[DL_GENERATION_TEXT];
    dl_generation_text(text, generation);
    put(out, "%s%010llu/%04zu/%s", folder, (unsigned long long)entry, slice, text);
}

void dl_key_slice(dl_key out, uint64_t entry, size_t slice, const dl_generation *generation)
{
    put_slice(out, "b/", entry, slice, generation);
}

void dl_key_combined_slice(dl_key out, uint64_t entry, size_t slice, const dl_generation *owner,
                           const dl_generation *planner)
{
    char text[DL_GENERATION_TEXT];
    dl_generation_text(text, planner);
    put_slice(out, "x/", entry, slice, owner);
    const size_t len = strlen(out);
    snprintf(out + len, sizeof(dl_key) - len, "=%s", text);
}

void dl_key_measured_slice(dl_key out, uint64_t entry, size_t slice, const dl_generation *owner,
                           const dl_generation *planner)
{
    char from[DL_GENERATION_TEXT], to[DL_GENERATION_TEXT];
    dl_generation_text(from, owner);
    dl_generation_text(to, planner);
    put(out, "x/%010llu/measured/%04zu/%s=%s", (unsigned long long)entry, slice, from, to);
}

void dl_key_combined_of(dl_key out, uint64_t entry)
{
    put(out, "x/%010llu/", (unsigned long long)entry);
}

void dl_key_plans(dl_key out, uint64_t entry)
{
    put(out, "x/%010llu/plan/", (unsigned long long)entry);
}

void dl_key_plan(dl_key out, uint64_t entry, const dl_generation *planner)
{
    char text[DL_GENERATION_TEXT];
    dl_generation_text(text, planner);
    put(out, "x/%010llu/plan/%s", (unsigned long long)entry, text);
}

void dl_key_snapshot(dl_key out, uint64_t entry, const dl_generation *generation, const char *file)
{
    char rest[64];
    int len = snprintf(rest, sizeof rest, "/%s", file);
    DL_ASSERT(len > 0 && (size_t)len < sizeof rest);
    put_entry_generation(out, "snap/", entry, generation, rest);
}

void dl_key_theta0(dl_key out, dl_hash digest)
{
    char hex[DL_HASH_HEX + 1];
    dl_hash_to_hex(hex, digest);
    put(out, "theta0/%s.safetensors", hex);
}

void dl_key_invite(dl_key out, const char *id)
{
    put(out, "invite/%s", id);
}

void dl_key_admit(dl_key out, const char *replica)
{
    put(out, "admit/%s", replica);
}

void dl_key_record(dl_key out, const dl_generation *generation, uint64_t part)
{
    char text[DL_GENERATION_TEXT];
    dl_generation_text(text, generation);
    put(out, "rec/%s/%010llu.jsonl.zst", text, (unsigned long long)part);
}

void dl_key_output(dl_key out, const char *job, uint64_t process, uint64_t part)
{
    put(out, "out/%s/%0*llu-%0*llu.zst", job, OUTPUT_DIGITS, (unsigned long long)process,
        OUTPUT_DIGITS, (unsigned long long)part);
}

/* ---- reading keys */

/* Returns the text after the prefix, or NULL. The parsers below read names that anyone may have
 * created. Each accepts one spelling, which is checked by printing the key again. */
static const char *after_prefix(const char *key, const char *prefix)
{
    size_t len = strlen(prefix);
    return strncmp(key, prefix, len) == 0 ? key + len : NULL;
}

bool dl_key_parse_generation(dl_generation *out, const char *key, const char *folder)
{
    const char *text = after_prefix(key, folder);
    return text && dl_generation_parse(out, text, strlen(text));
}

bool dl_key_parse_entry(uint64_t *entry, const char *key)
{
    const char *text = after_prefix(key, "log/");
    if (!text) return false;
    size_t n_digits;
    uint64_t value = read_digits(&n_digits, text, strlen(text));
    dl_key again;
    dl_key_entry(again, value);
    if (strcmp(again, key) != 0) return false;
    *entry = value;
    return true;
}

/* Parses "<folder><entry>/<replica>.<generation>"; *rest follows it. */
static bool parse_entry_generation(uint64_t *entry, dl_generation *generation, const char **rest,
                                   const char *key, const char *folder)
{
    const char *text = after_prefix(key, folder);
    if (!text) return false;
    size_t n_digits;
    *entry = read_digits(&n_digits, text, strlen(text));
    text += n_digits;
    if (*text++ != '/') return false;
    size_t len = strcspn(text, "/");
    *rest = text + len;
    return dl_generation_parse(generation, text, len);
}

/* Returns whether %010llu prints this entry as the digits are. A number of 20 digits may not fit.
 */
static bool is_printed_so(const char *digits, uint64_t entry)
{
    const size_t n = strspn(digits, "0123456789");
    char again[DIGITS_MAX + 1];
    if (n < DIGITS_MAX) return n == ENTRY_DIGITS || (n > ENTRY_DIGITS && *digits != '0');
    snprintf(again, sizeof again, "%llu", (unsigned long long)entry);
    return n == DIGITS_MAX && !strncmp(again, digits, n);
}

bool dl_key_parse_contribution(uint64_t *entry, dl_generation *generation, const char *key)
{
    uint64_t e;
    dl_generation who;
    const char *rest;
    if (!parse_entry_generation(&e, &who, &rest, key, "c/")) return false;
    if (*rest || !is_printed_so(key + strlen("c/"), e)) return false;
    *entry = e;
    *generation = who;
    return true;
}

bool dl_key_parse_plan(uint64_t *entry, dl_generation *planner, const char *key)
{
    uint64_t e;
    dl_generation who;
    const char *leaf = strrchr(key, '/');
    if (!dl_key_entry_of(&e, key) || !leaf ||
        !dl_generation_parse(&who, leaf + 1, strlen(leaf + 1)))
        return false;
    dl_key again;
    dl_key_plan(again, e, &who);
    if (strcmp(again, key) != 0) return false;
    *entry = e;
    *planner = who;
    return true;
}

bool dl_key_parse_record(dl_generation *generation, uint64_t *part, const char *key)
{
    dl_generation who;
    const char *text = after_prefix(key, "rec/");
    const size_t len = text ? strcspn(text, "/") : 0;
    if (!text || !text[len] || !dl_generation_parse(&who, text, len)) return false;
    size_t n_digits;
    const uint64_t k = read_digits(&n_digits, text + len + 1, strlen(text + len + 1));
    dl_key again;
    dl_key_record(again, &who, k);
    if (strcmp(again, key) != 0) return false;
    *generation = who;
    *part = k;
    return true;
}

/* Numbers have exactly 10 digits, so that keys sort by them. The job's name comes first, since a
 * key is printed again from it. */
bool dl_key_parse_output(char job[DL_OUTPUT_JOB_MAX + 1], uint64_t *process, uint64_t *part,
                         const char *key)
{
    const char *text = after_prefix(key, "out/");
    const size_t len = text ? strcspn(text, "/") : 0;
    size_t n_process, n_part;
    if (!text || !text[len] || len > DL_OUTPUT_JOB_MAX) return false;
    memcpy(job, text, len);
    job[len] = '\0';
    if (!dl_output_job_ok(job)) return false;
    text += len + 1;
    *process = read_digits(&n_process, text, strlen(text));
    text += n_process + (text[n_process] == '-');
    *part = read_digits(&n_part, text, strlen(text));
    dl_key again;
    dl_key_output(again, job, *process, *part);
    return n_process == OUTPUT_DIGITS && n_part == OUTPUT_DIGITS && strcmp(again, key) == 0;
}

/* Only the manifest counts: without it there is no snapshot. */
bool dl_key_parse_snapshot(uint64_t *entry, dl_generation *generation, const char *key)
{
    uint64_t e;
    dl_generation who;
    const char *rest;
    if (!parse_entry_generation(&e, &who, &rest, key, "snap/")) return false;
    dl_key again;
    dl_key_snapshot(again, e, &who, "manifest.json");
    if (strcmp(again, key) != 0) return false;
    *entry = e;
    *generation = who;
    return true;
}

/* Overflow is checked, so a name with many digits cannot look like an old entry. */
bool dl_key_entry_of(uint64_t *entry, const char *key)
{
    const char *at = strchr(key, '/');
    if (!at || !is_digit(at[1])) return false;
    uint64_t n = 0;
    for (at++; is_digit(*at); at++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*at - '0'), &n))
            return false;
    *entry = n;
    return *at == '/';
}
