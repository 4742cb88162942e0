/* kinds.c - see kinds.h.
 *
 * A replica writes a "traffic" line when its process ends (docs/architecture.md section 9). The
 * kinds are found by name in an array of at most DL_KINDS_MAX, in the order of their first line. */
#include "cli/display/kinds.h"

#include "cli/display/units.h"

#include <stdio.h>
#include <string.h>

/* Names are written with spaces for people, and with underscores in JSON. */
static void replace(char *text, char what, char by)
{
    for (char *c = text; (c = strchr(c, what));)
        *c = by;
}

/* Return the index of a kind, a new one if need be. DL_KINDS_MAX: there is no room, and the kind
 * is left out. */
static size_t find(dl_kinds *k, const char *name)
{
    size_t i = 0;
    while (i < k->n && strcmp(k->at[i].name, name) != 0)
        i++;
    if (i == k->n && i < DL_KINDS_MAX) snprintf(k->at[k->n++].name, sizeof k->at->name, "%s", name);
    return i;
}

/* A record may come from a later version, so unknown kinds are added as they are. */
static void add(dl_kinds *k, dl_json_value bytes, bool sent)
{
    dl_json_iter it = dl_json_each(bytes);
    while (dl_json_next(&it)) {
        char name[sizeof k->at->name];
        uint64_t n;
        if (dl_json_as_str(name, sizeof name, it.key) || dl_json_as_u64(&n, it.value, INT64_MAX))
            continue;
        replace(name, '_', ' ');
        const size_t i = find(k, name);
        if (i == DL_KINDS_MAX) continue;
        *(sent ? &k->at[i].sent : &k->at[i].received) += n;
    }
}

/* A line without "sent" or "received" still counts as a process that has ended. */
void dl_kinds_add(dl_kinds *k, dl_json_value traffic)
{
    add(k, dl_json_get(traffic, "sent"), true);
    add(k, dl_json_get(traffic, "received"), false);
    k->lines++;
}

/* Bytes on the wire, framing included. */
uint64_t dl_kinds_sent(const dl_kinds *k)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < k->n; i++)
        sum += k->at[i].sent;
    return sum;
}

/* Bytes on the wire, framing included. */
uint64_t dl_kinds_received(const dl_kinds *k)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < k->n; i++)
        sum += k->at[i].received;
    return sum;
}

/* Return the kind with the most bytes that is not said yet, or n. Kinds without a byte are never
 * said. */
static size_t next_largest(const dl_kinds *k, const bool *said)
{
    size_t best = k->n;
    uint64_t most = 0;
    for (size_t i = 0; i < k->n; i++) {
        const uint64_t bytes = k->at[i].sent + k->at[i].received;
        if (!said[i] && bytes > most) best = i, most = bytes;
    }
    return best;
}

/* The text has room for every kind (DL_KINDS_TEXT). */
const char *dl_kinds_text(char out[DL_KINDS_TEXT], const dl_kinds *k)
{
    bool said[DL_KINDS_MAX] = {false};
    size_t used = 0;
    dl_unit_text sent, received;
    *out = '\0';
    for (size_t i; (i = next_largest(k, said)) < k->n; said[i] = true)
        used += (size_t)snprintf(out + used, DL_KINDS_TEXT - used, "%s%s %s sent, %s received",
                                 used ? "; " : "", k->at[i].name,
                                 dl_bytes_text(sent, (double)k->at[i].sent),
                                 dl_bytes_text(received, (double)k->at[i].received));
    return out;
}

/* The names become the record's members again, so a program reads both alike. */
static void put(dl_json *j, const char *key, const dl_kinds *k, bool sent)
{
    dl_json_object(j, key);
    for (size_t i = 0; i < k->n; i++) {
        char name[sizeof k->at->name];
        memcpy(name, k->at[i].name, sizeof name);
        replace(name, ' ', '_');
        dl_json_u64(j, name, sent ? k->at[i].sent : k->at[i].received);
    }
    dl_json_end(j);
}

void dl_kinds_json(dl_json *j, const dl_kinds *k)
{
    put(j, "sent", k, true);
    put(j, "received", k, false);
}
