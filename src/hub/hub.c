/* hub.c - starting, connections, stopping.
 *
 * libmicrohttpd accepts and gives each connection a thread. Beside them runs one thread, the
 * reaper. Once a second it shuts down connections that have been without a request for too long.
 * Untrusted peers, which have shown neither token nor signature, have less time. A header that
 * trickles in counts as idle, so no peer holds a connection by a byte now and then. Ten times a
 * second it eases the lines that something is sent over (tcp_pacing.h). Once an hour it cleans the
 * folders of what was cut.
 *
 * Stopping: new requests are refused and event streams end; requests in progress continue until the
 * time is over; then connections are cut, and what was not published is discarded. */
#include "base/log.h"
#include "base/thread.h"
#include "hub/address.h"
#include "hub/server.h"
#include "store/http/tcp_pacing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLEAN_EVERY (3600 * DL_SECOND)

/* Limits of memory, threads and files. docs/hub.md (Bounds) promises them to users. */
enum {
    PEM_MAX = 1 << 20,
    /* Half of it is what one recv takes; a request's headers must fit. Touched only as used. */
    CONNECTION_MEMORY = 128 << 10,
    STACK = 1 << 20,   /* /status.json takes about 230 KiB of it, and more under a sanitizer */
    STRANGERS_MIN = 4, /* of one address, however few connections there may be */
    CLOSING_MAX = 256,
    SPARE_FILES = 64 /* beside three a connection: its socket, a file, a folder */
};

/* One connection. libmicrohttpd owns the socket; hub->lock guards the rest. It exists from
 * MHD_CONNECTION_NOTIFY_STARTED to the end of the connection. */
struct dl_connection {
    dl_connection *next, **self; /* of the hub's list */
    dl_hub *hub;
    int fd;             /* libmicrohttpd's */
    dl_time since;      /* of the last request's end; of an untrusted peer's, the beginning */
    dl_time ease_at;    /* when its line is to be eased next */
    bool busy, welcome; /* busy: a request is in flight; welcome: access was shown */
    bool closing;       /* shut down here: it does not count any more */
    unsigned char
        address[16]; /* of the client: IPv4 as ::ffff:a.b.c.d, of IPv6 the first 64 bits */
};

/* ---- connections */

/* Write the part of the client's address by which connections are counted. A host with IPv6 has
 * as many addresses as it likes, of one prefix of 64 bits. So only the prefix counts. */
static void note_address(dl_connection *c, const struct sockaddr *address)
{
    static const unsigned char mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (address->sa_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(const void *)address;
        memcpy(c->address, mapped, 12);
        memcpy(c->address + 12, &in->sin_addr, 4);
    } else if (address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)(const void *)address;
        memcpy(c->address, &in->sin6_addr, IN6_IS_ADDR_V4MAPPED(&in->sin6_addr) ? 16 : 8);
    }
}

/* Shut the socket down but do not close it: the descriptor is libmicrohttpd's. Its thread sees
 * the end and closes it. */
static void close_now(dl_connection *c)
{
    c->closing = true;
    shutdown(c->fd, SHUT_RDWR);
}

/* An untrusted peer has come, the first of the list. Untrusted peers of one address have a quarter
 * of the connections, all of them three quarters: beyond that the oldest is closed. So a client
 * that shows a token at once is served, and a flood from one address closes only that address's
 * connections. Returns the number of connections that are being closed. */
static unsigned make_room(dl_hub *hub)
/* The newest connection is first in the list, so the last match of the loop is the oldest one. */
{
    const unsigned max = hub->options.max_connections;
    const dl_connection *newest = hub->connections;
    dl_connection *oldest = NULL, *oldest_here = NULL;
    unsigned n_all = 0, n_closing = 0, n = 0, n_here = 0;
    for (dl_connection *c = hub->connections; c; c = c->next) {
        n_closing += c->closing;
        n_all += !c->closing;
        if (c->welcome || c->closing) continue;
        n++, oldest = c;
        if (memcmp(c->address, newest->address, sizeof c->address)) continue;
        n_here++, oldest_here = c;
    }
    /* The limit by address comes first: a flood from one address then never costs a connection
     * of another address. */
    if (n_here > (max < 4 * STRANGERS_MIN ? STRANGERS_MIN : max / 4))
        close_now(oldest_here);
    else if (n_all > max || (n > STRANGERS_MIN && n > max / 4 * 3))
        close_now(oldest);
    return n_closing;
}

/* libmicrohttpd refuses a connection beyond its limit at once, of whichever address it is. Closing
 * ones count there until their threads have ended. So a flood is accepted the more slowly, the more
 * of them there are, and never reaches the limit. */
static void slow_down(unsigned n_closing)
{
    if (n_closing > CLOSING_MAX / 2) dl_clock_sleep((n_closing - CLOSING_MAX / 2) * DL_MILLISECOND);
}

/* libmicrohttpd's notification about a connection's begin and end. It runs in the accepting
 * thread at the begin, so slow_down holds up accepting and no request. */
static void on_connection(void *cls, struct MHD_Connection *mhd, void **context,
                          enum MHD_ConnectionNotificationCode code)
{
    dl_hub *hub = cls;
    dl_connection *c = *context;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        *context = c = calloc(1, sizeof *c);
        if (!c || !info) return; /* its requests are refused */
        *c = (dl_connection){.hub = hub, .fd = info->connect_fd, .since = dl_clock_now()};
        info = MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
        if (info && info->client_addr) note_address(c, info->client_addr);
        atomic_fetch_add(&hub->metrics.connections, 1);
        pthread_mutex_lock(&hub->lock);
        c->next = hub->connections;
        c->self = &hub->connections;
        if (c->next) c->next->self = &c->next;
        hub->connections = c;
        const unsigned n_closing = make_room(hub);
        pthread_mutex_unlock(&hub->lock);
        slow_down(n_closing);
    } else if (c) {
        atomic_fetch_sub(&hub->metrics.connections, 1);
        pthread_mutex_lock(&hub->lock);
        *c->self = c->next;
        if (c->next) c->next->self = c->self;
        pthread_mutex_unlock(&hub->lock);
        free(c);
    }
}

/* A request begins or has ended on this connection. The idle time of a welcome client begins
 * with the end of its request. */
void dl_connection_busy(dl_connection *c, bool busy)
{
    pthread_mutex_lock(&c->hub->lock);
    c->busy = busy;
    if (c->welcome)
        c->since = dl_clock_now(); /* an untrusted peer's time runs whatever it asks for */
    pthread_mutex_unlock(&c->hub->lock);
}

void dl_connection_welcome(dl_connection *c)
{
    if (!c) return;
    pthread_mutex_lock(&c->hub->lock);
    c->welcome = true;
    pthread_mutex_unlock(&c->hub->lock);
}

int dl_connection_fd(const dl_connection *c)
{
    return c ? c->fd : -1;
}

bool dl_hub_is_crowded(const dl_hub *hub)
{
    return atomic_load(&hub->metrics.connections) > hub->options.max_connections / 4 * 3;
}

/* Return the time that a client has to show its access. It is one second while three quarters of
 * the connections are in use, so idle untrusted clients make room. */
static dl_time unauthenticated_limit(const dl_hub *hub)
{
    const dl_time limit = hub->options.unauthenticated;
    return dl_hub_is_crowded(hub) && limit > DL_SECOND ? DL_SECOND : limit;
}

/* Shut down connections whose time is over. Under the lock a connection in the list is not
 * closed yet, so its descriptor is its own. */
static void reap(dl_hub *hub)
{
    const dl_time now = dl_clock_now(), unauthenticated = unauthenticated_limit(hub);
    for (const dl_connection *c = hub->connections; c; c = c->next) {
        dl_time limit = c->welcome ? hub->options.idle : unauthenticated;
        if (!(c->busy && c->welcome) && now - c->since > limit) shutdown(c->fd, SHUT_RDWR);
    }
}

/* Let tcp_pacing.h slow busy connections whose packets queue on the way. Returns the time until
 * the next call. Loopback is not paced. */
static dl_time ease_lines(dl_hub *hub)
{
    const dl_time now = dl_clock_now();
    bool any = false;
    for (dl_connection *c = hub->loopback ? NULL : hub->connections; c; c = c->next) {
        any = any || c->busy;
        if (c->busy && now >= c->ease_at) c->ease_at = dl_time_after(now, dl_line_ease(c->fd));
    }
    return any ? DL_SECOND / 10 : DL_SECOND;
}

/* Clean each bucket of uploads that were cut. Opening a folder store removes temporary files
 * that are an hour old, which a killed hub has left. */
static void clean_buckets(const dl_hub *hub)
{
    DIR *dir = opendir(hub->dir);
    for (struct dirent *d; dir && (d = readdir(dir));) {
        char url[sizeof "file://" + sizeof hub->dir + NAME_MAX];
        dl_store *store;
        struct stat st;
        if (!dl_hub_bucket_name_ok(d->d_name)) continue;
        snprintf(url, sizeof url, "file://%s/%s", hub->dir, d->d_name);
        if (lstat(url + strlen("file://"), &st) || !S_ISDIR(st.st_mode)) continue;
        if (dl_store_open(&store, url, true))
            dl_log(DILOCO_LOG_WARN, "%s", diloco_error_text());
        else
            dl_store_close(store);
        dl_multipart_clean(url + strlen("file://"));
    }
    if (dir) closedir(dir);
}

/* The cleaning runs without the lock, since it walks folders. A hub that only shows runs has
 * nothing to clean. */
static void *reaper(void *context)
{
    dl_hub *hub = context;
    dl_time clean_at = hub->options.viewed ? DL_NEVER : dl_clock_now() + CLEAN_EVERY;
    pthread_mutex_lock(&hub->lock);
    while (!atomic_load(&hub->stopping)) {
        dl_time next = dl_clock_now() + ease_lines(hub);
        struct timespec t = {.tv_sec = next / DL_SECOND, .tv_nsec = next % DL_SECOND};
        pthread_cond_timedwait(&hub->stop, &hub->lock, &t);
        reap(hub);
        if (next < clean_at) continue;
        clean_at = next + CLEAN_EVERY;
        pthread_mutex_unlock(&hub->lock);
        clean_buckets(hub);
        pthread_mutex_lock(&hub->lock);
    }
    pthread_mutex_unlock(&hub->lock);
    return NULL;
}

static bool is_stopping(void *context)
{
    return atomic_load(&((dl_hub *)context)->stopping);
}

/* Count the folders' content, beside the reaper, which a walk of them would keep from its work. A
 * hub that only shows runs looks for new objects in them. */
static void *counter(void *context)
{
    dl_hub *hub = context;
    const bool viewed = hub->options.viewed;
    while (!is_stopping(hub)) {
        if (viewed)
            dl_page_report(hub);
        else
            dl_holdings_walk(&hub->tally, hub->dir, dl_hub_bucket_name_ok, is_stopping, hub);
        const dl_time next = dl_clock_now() + (viewed ? DL_SECOND : CLEAN_EVERY);
        const struct timespec t = {.tv_sec = next / DL_SECOND, .tv_nsec = next % DL_SECOND};
        pthread_mutex_lock(&hub->lock);
        while (!is_stopping(hub) && !pthread_cond_timedwait(&hub->stop, &hub->lock, &t)) {
        }
        pthread_mutex_unlock(&hub->lock);
    }
    return NULL;
}

/* ---- callbacks of libmicrohttpd: they only pass on to request.c */
/* ---- callbacks of libmicrohttpd */

static void *on_target(void *cls, const char *target, struct MHD_Connection *mhd)
{
    return dl_request_create(cls, target, mhd);
}

static enum MHD_Result on_step(void *cls, struct MHD_Connection *mhd, const char *url,
                               const char *method, const char *version, const char *data,
                               size_t *len, void **context)
{
    (void)cls, (void)mhd, (void)url, (void)version;
    return *context ? dl_request_step(*context, method, data, len) : MHD_NO;
}

static void on_end(void *cls, struct MHD_Connection *mhd, void **context,
                   enum MHD_RequestTerminationCode why)
{
    (void)cls, (void)mhd;
    if (*context) dl_request_end(*context, why == MHD_REQUEST_TERMINATED_COMPLETED_OK);
    *context = NULL;
}

/* Keep libmicrohttpd from decoding the target: target.c does that, and a signature covers the
 * text as it was sent. */
static size_t leave_as_is(void *cls, struct MHD_Connection *mhd, char *text)
{
    (void)cls, (void)mhd;
    return strlen(text);
}

/* A message of libmicrohttpd may contain bytes of the client. It is cut at a line end, so it
 * cannot forge a line of our log. */
static void on_log(void *cls, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));
static void on_log(void *cls, const char *format, va_list args)
{
    char line[512];
    (void)cls;
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\r\n")] = '\0';
    dl_log(DILOCO_LOG_DEBUG, "http: %s", line);
}

/* ---- starting */

/* Replace each zero option by its default (hub.h). */
static void fill_in(dl_hub_options *o)
{
    if (!o->listen) o->listen = DL_HUB_LISTEN;
    if (!o->max_object) o->max_object = DL_HUB_MAX_OBJECT;
    if (!o->max_connections) o->max_connections = DL_HUB_MAX_CONNECTIONS;
    if (!o->idle) o->idle = 120 * DL_SECOND;
    if (!o->unauthenticated) o->unauthenticated = 15 * DL_SECOND;
    if (!o->stalled) o->stalled = 30 * DL_SECOND;
    if (!o->slow) o->slow = 30 * DL_SECOND;
}

/* Raise the limit of open files to three for each connection, or lower the number of
 * connections. A connection without descriptors would be accepted and then fail. */
static void fit_files(dl_hub_options *o)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return;
    rlim_t wanted = 3 * (rlim_t)o->max_connections + CLOSING_MAX + SPARE_FILES;
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = limit.rlim_max < wanted ? limit.rlim_max : wanted;
        if (setrlimit(RLIMIT_NOFILE, &limit)) getrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur >= wanted) return;
    o->max_connections =
        limit.rlim_cur > SPARE_FILES + 3 ? (unsigned)((limit.rlim_cur - SPARE_FILES) / 3) : 1;
    dl_log(DILOCO_LOG_WARN, "only %llu files may be open: at most %u connections",
           (unsigned long long)limit.rlim_cur, o->max_connections);
}

/* Open DIR and remember its device and inode. A request after an unmount then finds another
 * folder and gets 503 (folder_is_ours), instead of an empty hub. */
static diloco_status open_folder(dl_hub *hub, const char *path)
{
    struct stat st;
    DL_TRY(dl_dir_make(path));
    if (!realpath(path, hub->dir) || stat(hub->dir, &st)) return dl_fail_errno(errno, "open", path);
    hub->device = st.st_dev;
    hub->inode = st.st_ino;
    clean_buckets(hub);
    return DILOCO_OK;
}

/* Read all credentials. Client certificates exist only in TLS, so members' keys without a
 * certificate of the hub are refused. */
static diloco_status read_secrets(dl_hub *hub, const dl_hub_options *o)
{
    dl_auth_warn_if_shared(o->token_file);
    dl_auth_warn_if_shared(o->s3_keys_file);
    dl_auth_warn_if_shared(o->key_file);
    if (o->token_file) DL_TRY(dl_auth_read_tokens(&hub->auth, o->token_file));
    if (o->s3_keys_file) DL_TRY(dl_auth_read_keys(&hub->auth, o->s3_keys_file));
    if (o->token) DL_TRY(dl_auth_add_token(&hub->auth, o->token));
    if (o->members_file) DL_TRY(dl_auth_read_members(&hub->auth, o->members_file));
    if (dl_hub_needs_keys(hub) && !o->cert_file && !o->cert)
        return dl_fail(DILOCO_EINVAL, "members show their keys over TLS: give a certificate too");
    return DILOCO_OK;
}

/* Listen, and write hub->url as clients reach it. The Host header is checked only where a hub on
 * loopback has no credentials, against DNS rebinding. */
static diloco_status listen_on(dl_hub *hub, const dl_hub_options *o, int *fd)
{
    dl_address address;
    bool v6;
    DL_TRY(dl_address_parse(&address, o->listen));
    DL_TRY(dl_address_listen(fd, &address, &hub->loopback, hub->tls || o->insecure));
    hub->any_host = !hub->loopback || !dl_hub_is_open(hub);
    v6 = strchr(address.host, ':') != NULL;
    snprintf(hub->url, sizeof hub->url, "%s://%s%s%s:%s", hub->tls ? "https" : "http",
             v6 ? "[" : "", address.host[0] ? address.host : "localhost", v6 ? "]" : "",
             address.port);
    return DILOCO_OK;
}

static diloco_status read_pem(dl_buf *out, const char *path)
{
    dl_buf_init(out, PEM_MAX);
    DL_TRY(dl_file_read(out, path));
    return dl_buf_str(out) ? DILOCO_OK
                           : dl_fail(DILOCO_ENOMEM, "not enough memory to read %s", path);
}

/* Start libmicrohttpd. All signals are blocked in its threads (start_threads), so that they go
 * to the program's own threads. */
static diloco_status start_daemon(dl_hub *hub, int fd, const char *cert, const char *key)
{
    /* TLS 1.3 only, as docs/hub.md promises. */
    static const char versions[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3";
    const bool asks = dl_hub_needs_keys(hub);
    /* MHD asks clients for certificates where it has an authority; the authority does not
     * matter, for peer.c alone judges the certificates. */
    struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)(uintptr_t)cert},
                                   {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)(uintptr_t)key},
                                   {MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)versions},
                                   {asks ? MHD_OPTION_HTTPS_MEM_TRUST : MHD_OPTION_END, 0,
                                    asks ? (void *)(uintptr_t)cert : NULL},
                                   {MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
                     MHD_USE_POLL | MHD_USE_ITC | MHD_USE_ERROR_LOG;
    if (hub->tls)
        flags |= MHD_USE_TLS;
    else
        tls[0] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    /* The limit of connections has room for CLOSING_MAX that are being closed, because
     * libmicrohttpd counts them until their threads end. The time-out is a second above ours, so
     * the reaper acts first. */
    hub->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_step, hub, MHD_OPTION_EXTERNAL_LOGGER, on_log, hub,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
        hub->options.max_connections + CLOSING_MAX, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_MEMORY, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)((hub->options.idle + DL_SECOND) / DL_SECOND), MHD_OPTION_THREAD_STACK_SIZE,
        (size_t)STACK, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_URI_LOG_CALLBACK, on_target, hub,
        MHD_OPTION_UNESCAPE_CALLBACK, leave_as_is, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_end, hub,
        MHD_OPTION_NOTIFY_CONNECTION, on_connection, hub, MHD_OPTION_ARRAY, tls, MHD_OPTION_END);
    return hub->daemon ? DILOCO_OK
                       : dl_fail(DILOCO_EIO, "the HTTP server does not start%s",
                                 hub->tls ? "; do certificate and key belong together?" : "");
}

/* Set the stop flag under the lock, so neither thread misses the wake between its test and its
 * wait. `thread` NULL: it was not started. */
static void stop_thread(dl_hub *hub, const pthread_t *thread)
{
    pthread_mutex_lock(&hub->lock);
    atomic_store(&hub->stopping, true);
    pthread_cond_broadcast(&hub->stop);
    pthread_mutex_unlock(&hub->lock);
    if (thread) pthread_join(*thread, NULL);
}

/* Threads inherit the blocked signals. After an error every thread that was started has ended,
 * and the daemon is stopped. */
static diloco_status start_threads(dl_hub *hub, int fd, const char *cert, const char *key)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    diloco_status status = start_daemon(hub, fd, cert, key);
    bool reaps = !status && !pthread_create(&hub->reaper, NULL, reaper, hub);
    if (!status && (!reaps || pthread_create(&hub->counter, NULL, counter, hub))) {
        stop_thread(hub, reaps ? &hub->reaper : NULL);
        MHD_stop_daemon(hub->daemon);
        status = dl_fail(DILOCO_ENOMEM, "the system cannot start another thread");
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return status;
}

/* Everything that can fail, in the order in which it can be undone: credentials, folder, page,
 * listening, threads. The private key is cleansed as soon as libmicrohttpd has its copy. */
static diloco_status start(dl_hub *hub, const dl_hub_options *o)
{
    dl_buf cert = {0}, key = {0};
    int fd = -1;
    if (!o->cert_file != !o->key_file || !o->cert != !o->key)
        return dl_fail(DILOCO_EINVAL, "a certificate and its key go together");
    DL_TRY(read_secrets(hub, o));
    if (!o->viewed) DL_TRY(open_folder(hub, o->dir));
    if (o->page || o->viewed) DL_TRY(dl_page_open(hub));
    hub->tls = o->cert_file || o->cert;
    diloco_status status = o->cert_file ? read_pem(&cert, o->cert_file) : DILOCO_OK;
    if (!status && o->cert_file) status = read_pem(&key, o->key_file);
    if (!status) status = listen_on(hub, &hub->options, &fd);
    if (!status)
        status = start_threads(hub, fd, o->cert ? o->cert : (const char *)cert.data,
                               o->cert ? o->key : (const char *)key.data);
    if (status && fd >= 0 && !hub->daemon) close(fd);
    if (key.data) OPENSSL_cleanse(key.data, key.cap);
    dl_buf_deinit(&cert);
    dl_buf_deinit(&key);
    return status;
}

/* No thread of the hub runs any more. */
static void hub_free(dl_hub *hub)
{
    dl_page_close(hub);
    dl_events_deinit(&hub->events);
    dl_holdings_deinit(&hub->tally);
    pthread_cond_destroy(&hub->stop);
    pthread_mutex_destroy(&hub->lock);
    dl_auth_deinit(&hub->auth);
    free(hub);
}

/* On an error *out is NULL and nothing runs. */
diloco_status dl_hub_start(dl_hub **out, const dl_hub_options *options)
{
    *out = NULL;
    dl_hub *hub = calloc(1, sizeof *hub);
    if (!hub) return dl_fail(DILOCO_ENOMEM, "out of memory for a hub");
    /* A client that closes early would otherwise end the program by SIGPIPE. */
    signal(SIGPIPE, SIG_IGN);
    hub->options = *options;
    fill_in(&hub->options);
    fit_files(&hub->options);
    pthread_mutex_init(&hub->lock, NULL);
    dl_cond_init(&hub->stop);
    dl_events_init(&hub->events);
    dl_holdings_init(&hub->tally);
    diloco_status status = start(hub, options);
    if (status) {
        hub_free(hub);
        return status;
    }
    *out = hub;
    return DILOCO_OK;
}

const char *dl_hub_url(const dl_hub *hub)
{
    return hub->url;
}

bool dl_hub_needs_keys(const dl_hub *hub)
{
    return hub->auth.n_members > 0 || hub->options.welcome;
}

bool dl_hub_run_ok(const char *name)
{
    return strcspn(name, "/") <= DL_BUCKET_MAX && dl_store_key_ok(name);
}

bool dl_hub_is_open(const dl_hub *hub)
{
    return hub->auth.n_tokens == 0 && hub->auth.n_keys == 0 && !dl_hub_needs_keys(hub);
}

uint64_t dl_hub_served(const dl_hub *hub)
{
    return atomic_load(&hub->metrics.bytes_out);
}

/* The object was written beside the hub, so its size is not known here. Zero bytes, before and
 * after, change no count but are seen by entries and heartbeats. */
void dl_hub_report(dl_hub *hub, const char *path)
{
    char bucket[DL_BUCKET_MAX + 1];
    snprintf(bucket, sizeof bucket, "%.*s", (int)strcspn(path, "/"), path);
    dl_events_report(&hub->events, path);
    if (!strchr(path, '/')) return;
    dl_holdings_begin(&hub->tally,
                      bucket); /* whether it is new is not known: the next walk counts it */
    dl_holdings_end(&hub->tally, bucket, strchr(path, '/') + 1, 0, 0);
}

/* Order: accept nothing more, end the threads, wake the event streams, wait for requests in
 * flight, cut the rest. Nothing uses the hub when it is freed. */
void dl_hub_stop(dl_hub *hub, dl_time until, bool (*hurry)(void))
{
    if (!hub) return;
    int fd = MHD_quiesce_daemon(hub->daemon);
    if (fd >= 0) close(fd);
    stop_thread(hub, &hub->reaper);
    pthread_join(hub->counter, NULL);
    dl_events_close(&hub->events);
    while (atomic_load(&hub->in_flight) && dl_clock_now() < until && !(hurry && hurry()))
        dl_clock_sleep(10 * DL_MILLISECOND);
    MHD_stop_daemon(hub->daemon);
    hub_free(hub);
}
