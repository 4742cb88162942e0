/* cmd_serve.c - the hub: started, left alone, stopped by a signal.
 *
 * The hub itself is src/hub. This file reads its flags, makes what a join line needs, and waits.
 * With --join it also makes a certificate, its key and a token in DIR/.hub, once, and prints the
 * line that a second machine joins with. Begin with cmd_serve. */
#include "cli/cli.h"

#if !DL_CLOUD

static diloco_status cmd_serve(const dl_args *args)
{
    (void)args;
    return dl_fail(DILOCO_EREFUSED, "this program was built without the hub (DILOCO_CLOUD=OFF)");
}

#else

#include "hub/address.h"
#include "hub/cert.h"
#include "hub/hub.h"

#include "base/config.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/signature.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FINISH_TIME (10 * DL_SECOND) /* for requests in flight, at the end */
enum { FIRST_LINE = 512 }; /* more than the hub accepts of a token */

/* Return the signals that end the hub. They are blocked in all threads and read by sigwait, so no
 * handler runs. */
static sigset_t stop_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

/* Return true if a second signal has come since. */
static bool hurry(void)
{
    sigset_t set = stop_signals();
    return sigtimedwait(&set, NULL, &(struct timespec){0}) > 0;
}

/* Write a new certificate and key, and print how clients trust it. Besides the host of --listen the
 * certificate is for localhost, this host's name and the loopback addresses. */
static diloco_status make_cert(const dl_args *args)
{
    const char *cert = args->flags[DL_FLAG_CERT], *key = args->flags[DL_FLAG_KEY];
    const char *listen = args->flags[DL_FLAG_LISTEN];
    char fingerprint[DL_CERT_PRINT], pin[DL_CERT_PIN];
    dl_address address = {0};
    if (!cert) cert = "hub.pem";
    if (!key) key = "hub.key";
    if (listen) DL_TRY(dl_address_parse(&address, listen));
    DL_TRY(dl_cert_make(cert, key, address.host, fingerprint, pin));
    printf("certificate  %s, for %d days\nkey          %s\nfingerprint  %s\npin          %s\n\n"
           "Give clients the certificate (DILOCO_HUB_CA=%s) or the pin (DILOCO_HUB_PIN=%s).\n",
           cert, DL_CERT_DAYS, key, fingerprint, pin, cert, pin);
    return DILOCO_OK;
}

/* Read the flags into the hub's options. A bound that is 0 is the hub's default. */
static diloco_status read_options(dl_hub_options *o, const dl_args *args)
{
    uint64_t max_object, max_connections;
    DL_TRY(dl_args_u64(&max_object, args, DL_FLAG_MAX_OBJECT, 0, INT64_MAX));
    DL_TRY(dl_args_u64(&max_connections, args, DL_FLAG_MAX_CONNECTIONS, 0, 100000));
    if (max_object == 0 && dl_args_has(args, DL_FLAG_MAX_OBJECT))
        return dl_fail(DILOCO_EINVAL, "--max-object 0: no object would be accepted");
    if (max_connections == 0 && dl_args_has(args, DL_FLAG_MAX_CONNECTIONS))
        return dl_fail(DILOCO_EINVAL, "--max-connections 0: at least one is needed");
    *o = (dl_hub_options){.dir = args->target,
                          .listen = args->flags[DL_FLAG_LISTEN],
                          .cert_file = args->flags[DL_FLAG_CERT],
                          .key_file = args->flags[DL_FLAG_KEY],
                          .token_file = args->flags[DL_FLAG_TOKEN_FILE],
                          .s3_keys_file = args->flags[DL_FLAG_S3_KEYS],
                          .members_file = args->flags[DL_FLAG_MEMBERS],
                          .max_object = max_object,
                          .max_connections = (unsigned)max_connections,
                          .insecure = dl_args_has(args, DL_FLAG_INSECURE),
                          .page = true};
    if (!o->dir) return dl_fail(DILOCO_EINVAL, "serve needs a DIR; see diloco serve --help");
    if (!o->cert_file != !o->key_file)
        return dl_fail(DILOCO_EINVAL, "--cert and --key go together");
    return DILOCO_OK;
}

/* ---- the join line */

/* The files that a hub of a join line makes unless they are given. They are in DIR/.hub, whose
 * name begins with a dot, so no request reaches it. */
typedef struct made {
    char cert[DL_PATH_MAX + 1], key[DL_PATH_MAX + 1], token[DL_PATH_MAX + 1];
} made;

/* Write DIR/.hub/NAME, or the folder itself for a NAME of "". */
static diloco_status path_of(char out[DL_PATH_MAX + 1], const char *dir, const char *name)
{
    const int n = snprintf(out, DL_PATH_MAX + 1, "%s/.hub%s%s", dir, *name ? "/" : "", name);
    return n <= DL_PATH_MAX ? DILOCO_OK : dl_fail(DILOCO_EINVAL, "%s: too long a path", dir);
}

/* Return true if the file is there and not empty. A file left by a full disk or a kill is empty,
 * or has another name. */
static bool is_made(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_size > 0;
}

/* Give a finished file its name. Within a folder, rename() replaces the old file at once. */
static diloco_status move(const char *from, const char *to)
{
    return rename(from, to) ? dl_fail_errno(errno, "rename", from) : DILOCO_OK;
}

/* Write 32 random bytes in hex, readable by the owner alone, and sync it. O_EXCL after unlink:
 * the file is a new one, with this mode from the start. */
static diloco_status write_token(const char *path)
{
    unsigned char random[32];
    char text[2 * sizeof random + 2];
    DL_TRY(dl_random_bytes(random, sizeof random));
    dl_hex(text, random, sizeof random);
    text[2 * sizeof random] = '\n';
    unlink(path);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return dl_fail_errno(errno, "create", path);
    diloco_status status = dl_fd_write(fd, &(dl_span){text, sizeof text - 1}, 1, path);
    if (!status && fsync(fd)) status = dl_fail_errno(errno, "sync", path);
    if (close(fd) && !status) status = dl_fail_errno(errno, "write", path);
    return status;
}

/* The token gets its name last, so a file of that name is whole. */
static diloco_status make_token(const char *path, const char *dir)
{
    char new[DL_PATH_MAX + 1];
    if (is_made(path)) return DILOCO_OK;
    DL_TRY(path_of(new, dir, "token.new"));
    DL_TRY(write_token(new));
    return move(new, path);
}

/* Make the certificate and its key. The certificate comes last: where it is, its key is. */
static diloco_status make_pair(const made *m, const char *dir, const char *host)
{
    char fingerprint[DL_CERT_PRINT], pin[DL_CERT_PIN], cert[DL_PATH_MAX + 1], key[DL_PATH_MAX + 1];
    if (is_made(m->cert)) return DILOCO_OK;
    DL_TRY(path_of(cert, dir, "hub.pem.new"));
    DL_TRY(path_of(key, dir, "hub.key.new"));
    unlink(cert), unlink(key);
    DL_TRY(dl_cert_make(cert, key, host, fingerprint, pin));
    DL_TRY(move(key, m->key));
    return move(cert, m->cert);
}

/* Return true for an address that represents all of this machine. A client cannot connect to it. */
static bool is_anywhere(const char *host)
{
    return !*host || !strcmp(host, "0.0.0.0") || !strcmp(host, "::");
}

/* Files that were given are kept. The rest is made once and found again by later calls, so a
 * join line stays valid. */
static diloco_status make_what_is_missing(dl_hub_options *o, made *m)
{
    char folder[DL_PATH_MAX + 1];
    dl_address address = {0};
    DL_TRY(dl_dir_make(o->dir));
    DL_TRY(path_of(folder, o->dir, ""));
    if (mkdir(folder, 0700) && errno != EEXIST) return dl_fail_errno(errno, "make", folder);
    if (!o->cert_file) {
        DL_TRY(path_of(m->cert, o->dir, "hub.pem"));
        DL_TRY(path_of(m->key, o->dir, "hub.key"));
        if (o->listen) DL_TRY(dl_address_parse(&address, o->listen));
        DL_TRY(make_pair(m, o->dir, is_anywhere(address.host) ? "" : address.host));
        o->cert_file = m->cert;
        o->key_file = m->key;
    }
    if (!o->token_file) {
        DL_TRY(path_of(m->token, o->dir, "token"));
        DL_TRY(make_token(m->token, o->dir));
        o->token_file = m->token;
    }
    return DILOCO_OK;
}

/* A dl_line_fn that keeps the first line; context: of FIRST_LINE bytes. */
static diloco_status keep_first(void *context, const char *line, size_t len)
{
    char *out = context;
    if (out[0]) return DILOCO_OK;
    if (len >= FIRST_LINE)
        return dl_fail(DILOCO_EINVAL, "a token of more than %d characters", FIRST_LINE - 1);
    memcpy(out, line, len);
    return DILOCO_OK;
}

/* Read the first token of a file that the hub has found to hold tokens, by the hub's own rules. */
static diloco_status first_token(char out[FIRST_LINE], const char *path)
{
    memset(out, 0, FIRST_LINE);
    return dl_file_each_line(path, 1 << 20, keep_first, out);
}

/* Print the join line, on stdout and nowhere else. A hub for all addresses is called by this
 * machine's name. The token is wiped from memory afterwards. */
static diloco_status print_line(const dl_hub *hub, const dl_hub_options *o, const char *run)
{
    char hash[DL_CERT_KEY_HEX + 1], token[FIRST_LINE], host[256] = "";
    const char *url = dl_hub_url(hub);
    dl_address address = {0};
    DL_TRY(dl_cert_key_hash(hash, o->cert_file));
    DL_TRY(first_token(token, o->token_file));
    if (o->listen) DL_TRY(dl_address_parse(&address, o->listen));
    const char *port = strrchr(url, ':');
    if (is_anywhere(address.host) && o->listen && port && !gethostname(host, sizeof host - 1))
        printf("diloco join https://%s%s/%s#%s.%s\n", host, port, run, hash, token);
    else
        printf("diloco join %s/%s#%s.%s\n", url, run, hash, token);
    fflush(stdout);
    explicit_bzero(token, sizeof token);
    return DILOCO_OK;
}

/* Print the addresses. An open hub is named as such, since every client may then write. */
static void greet(const dl_hub *hub, const char *dir)
{
    printf("serving %s at %s%s\n", dir, dl_hub_url(hub),
           dl_hub_is_open(hub) ? ", to every client that reaches it" : "");
    printf("a run: %s/NAME; its page: %s/; metrics: %s/metrics; Ctrl-C ends\n", dl_hub_url(hub),
           dl_hub_url(hub), dl_hub_url(hub));
    fflush(stdout);
}

/* Signals are blocked before the hub starts its threads, which inherit that. The hub is stopped
 * again if the line cannot be printed. */
static diloco_status cmd_serve(const dl_args *args)
{
    sigset_t set = stop_signals();
    dl_hub_options options;
    dl_hub *hub;
    int which;
    if (dl_args_has(args, DL_FLAG_MAKE_CERT)) return make_cert(args);
    const char *run = args->flags[DL_FLAG_JOIN_LINE];
    made files;
    if (run && !dl_hub_run_ok(run))
        return dl_fail(DILOCO_EINVAL,
                       "--join %s: a run's name is of letters, digits and ._=-, "
                       "perhaps in folders",
                       run);
    /* The certificate and the token have to exist before the hub starts, which reads both. */
    DL_TRY(read_options(&options, args));
    if (run) DL_TRY(make_what_is_missing(&options, &files));
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    DL_TRY(dl_hub_start(&hub, &options));
    if (!dl_args_has(args, DL_FLAG_QUIET)) greet(hub, options.dir);
    const diloco_status status = run ? print_line(hub, &options, run) : DILOCO_OK;
    if (status) {
        dl_hub_stop(hub, 0, NULL);
        return status;
    }
    sigwait(&set, &which);
    dl_hub_stop(hub, dl_time_after(dl_clock_now(), FINISH_TIME), hurry);
    return DILOCO_OK;
}

#endif

const dl_command dl_command_serve = {
    .name = "serve",
    .target = "[DIR]",
    .summary = "the hub: a folder of runs over HTTP, for replicas that share no disk",
    .details = "A run in DIR/name is http://HOST:PORT/name. Without --token-file every client\n"
               "that reaches the port may read and write. Ctrl-C lets requests in flight finish.\n"
               "docs/hub.md has the details.",
    .flags =
        DL_FLAGS(DL_FLAG_LISTEN, DL_FLAG_CERT, DL_FLAG_KEY, DL_FLAG_MAKE_CERT, DL_FLAG_TOKEN_FILE,
                 DL_FLAG_MEMBERS, DL_FLAG_JOIN_LINE, DL_FLAG_S3_KEYS, DL_FLAG_MAX_OBJECT,
                 DL_FLAG_MAX_CONNECTIONS, DL_FLAG_INSECURE, DL_FLAG_QUIET, DL_FLAG_VERBOSE),
    .run = cmd_serve,
};
