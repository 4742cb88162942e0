/* hub.h - the store over HTTP: `diloco serve DIR`. docs/hub.md has the endpoints.
 *
 * DIR/<bucket>/ is a folder store each (store/file_store.h): file://DIR/<bucket> on the same
 * machine opens the same objects, and http://host:port/<bucket>[/<more>] is a run in it. Nothing
 * is kept but those folders: a hub that was killed continues where it was. */
#ifndef DL_HUB_HUB_H
#define DL_HUB_HUB_H

#include "base/clock.h"
#include "base/signature.h"
#include "view/view.h"
#include <stdbool.h>
#include <stdint.h>

#define DL_HUB_LISTEN          "127.0.0.1:8765"
#define DL_HUB_MAX_OBJECT      ((uint64_t)16 << 30)
#define DL_HUB_MAX_CONNECTIONS 1024
/* Other nodes whose heartbeats a node keeps, and bytes of one (option `node`). */
enum { DL_HUB_KNOWN = 256, DL_HUB_KNOWN_BYTES = 2048 };

/* Options of dl_hub_start. Texts are borrowed until it returns, except `viewed`, `welcome`,
 * their users, `names` and `node`, which are used until the stop. */
typedef struct dl_hub_options {
    const char *dir;                  /* made when it is not there */
    const char *listen;               /* NULL: DL_HUB_LISTEN */
    const char *cert_file, *key_file; /* PEM; both or neither */
    const char *cert, *key;           /* likewise, as texts, in place of files; read in the start */
    const char *token_file;           /* NULL: no token is asked for */
    const char *s3_keys_file;         /* NULL: no S3 */
    const char *members_file;         /* keys that may without a token; NULL: none. Needs TLS */
    uint64_t max_object;              /* bytes; 0: DL_HUB_MAX_OBJECT */
    unsigned max_connections;         /* 0: DL_HUB_MAX_CONNECTIONS */
    bool insecure;                    /* listen beyond this machine without TLS */
    bool read_only;                   /* no client changes anything by it */
    bool page;                        /* serve the page of its runs at / (page.c) */
    const char *token;                /* a token as text, beside those of token_file; NULL: none */

    /* Serve the page of these runs, and no store: dir is not looked at. `viewed` says where a run
     * is; `names` are all of them, each with its zero byte and the last with two. NULL: a hub. */
    bool (*viewed)(void *user, char url[DL_VIEW_URL], const char *name);
    void *viewed_user; /* its first argument */
    const char *names;

    /* NULL, or: return true if this key gives access. Besides members_file; needs TLS. From the
     * connection's own thread, so it may wait for a moment. */
    bool (*welcome)(void *user, const dl_public *key);
    void *welcome_user; /* its first argument */

    /* Serve a node of a run without a log (docs/swarm.md), by that name: objects are its own,
     * made in the folder beside the hub, and others only read them. Others may put
     * <bucket>/hb/<name>, of at most DL_HUB_KNOWN_BYTES, DL_HUB_KNOWN of them, and not under the
     * node's own name. NULL: no such. */
    const char *node;

    /* Time limits in seconds of: an idle connection, an idle one that has not shown yet that it is
     * welcome, a body without any byte, a body slower than 1 kB/s. 0: 120, 15, 30, 30 s.
     */
    dl_time idle, unauthenticated, stalled, slow;
} dl_hub_options;

/* A running hub. Its functions may be called from any thread, except the stop, which is called
 * once. */
typedef struct dl_hub dl_hub;

/* Serves, on threads of its own, from here to the stop. DILOCO_EINVAL: an option; beyond this
 * machine without TLS (or `insecure`): DILOCO_EREFUSED. DILOCO_EIO: the folder, the address.
 * SIGPIPE is ignored from here on. */
DL_MUST_CHECK diloco_status dl_hub_start(dl_hub **out, const dl_hub_options *options);

const char *dl_hub_url(const dl_hub *hub); /* "http://127.0.0.1:8765" */
bool dl_hub_run_ok(const char *name);      /* may a run be called so here? */
bool dl_hub_is_open(const dl_hub *hub);    /* it asks for no token and no signature */

/* Bytes of objects that it has sent so far. */
uint64_t dl_hub_served(const dl_hub *hub);

/* This program made or changed DIR/<path> itself: report it to waiting readers. Any thread. */
void dl_hub_report(dl_hub *hub, const char *path);

/* Accept nothing more, let requests in progress finish until then, cut the rest, free. NULL is
 * fine. `hurry` (may be NULL) ends the waiting when it becomes true. */
void dl_hub_stop(dl_hub *hub, dl_time until, bool (*hurry)(void));

#endif
