/* etcd_wire.h - talking to etcd v3 through its JSON gateway: keys in base64, one request and its
 * answer, and the login. etcd.c makes a store of it. */
#ifndef DL_STORE_HTTP_ETCD_WIRE_H
#define DL_STORE_HTTP_ETCD_WIRE_H

#include "base/json.h"
#include "store/http/change_stream.h"

#include <pthread.h>

enum {
    DL_ETCD_OBJECT_MAX = 1 << 20,
    DL_ETCD_RESPONSE_MAX = 96 << 20, /* bytes: a page of the largest objects in base64 */
    DL_ETCD_PREFIX_MAX = 200,
    DL_ETCD_HOSTS_MAX = 8,
    DL_ETCD_TOKEN_MAX = 1024,
    DL_ETCD_WHAT_MAX = DL_KEY_MAX + 256
};

typedef struct dl_etcd {
    char *place;                         /* "host:port,host:port/prefix" as given; owned */
    char *hosts[DL_ETCD_HOSTS_MAX];      /* "https://host:port"; owned */
    size_t n_hosts, host;                /* host: which answered last */
    char prefix[DL_ETCD_PREFIX_MAX + 2]; /* "run/", or "" */
    uint64_t lease_s;
    const atomic_bool *aborted;
    dl_web *web;
    dl_web_options options;
    const char *user, *password; /* the environment's; NULL: no login */
    uint64_t lease;              /* 0: none yet */
    dl_time renewed;

    dl_change_stream *stream; /* NULL until the first wait */
    dl_buf watch;             /* the listening thread's: its request, */
    dl_span watch_span;
    size_t stream_host; /* and where */

    pthread_mutex_t lock; /* guards token */
    char token[DL_ETCD_TOKEN_MAX];
} dl_etcd;

/* One request: the arguments of prepare and finish. */
typedef struct dl_etcd_call {
    dl_etcd *s;
    const char *path; /* "kv/range" */
    dl_buf body;
    dl_span span;
    char what[DL_ETCD_WHAT_MAX];
    bool unauthorized, no_lease;
    diloco_status (*take)(struct dl_etcd_call *c,
                          dl_json_value answer); /* NULL: nothing is of interest */

    bool succeeded, more; /* kv/txn; kv/range */
    uint64_t lease;       /* lease/grant */
    bool found;           /* kv/range of one key, whose value goes to: */
    dl_sink sink;
    const char *prefix; /* kv/range of many, which go to: */
    dl_found_fn on_key;
    void *context;
    char last[DL_KEY_MAX + 1];
} dl_etcd_call;

/* ---- keys and values: added to a request, read from an answer */

diloco_status dl_etcd_add_base64(dl_buf *out, const void *data, size_t len);
diloco_status dl_etcd_decode(dl_buf *out, dl_json_value value); /* DILOCO_EPROTO */

/* "name":"<base64 of prefix, key and one more byte if it is not negative>" */
diloco_status dl_etcd_add_key(dl_buf *out, const dl_etcd *s, const char *name, const char *key,
                              int last);
/* The key after all keys that begin with this text, which ends with a slash: '0' follows '/'. */
diloco_status dl_etcd_add_range_end(dl_buf *out, const dl_etcd *s, const char *folder);

/* ---- requests */

dl_etcd_call dl_etcd_call_of(dl_etcd *s, const char *path, const char *key);
/* A request, a second time where the token has expired. Lets go of the body; with `made` not OK
 * that is all it does, and returns it. */
diloco_status dl_etcd_send(dl_etcd_call *c, diloco_status made, dl_time until);
diloco_status dl_etcd_add_token(dl_etcd *s, dl_web_exchange *x); /* any thread */
diloco_status dl_etcd_log_in(dl_etcd *s, dl_time until);

#endif
