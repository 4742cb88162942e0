/* cmd_serve.c - the hub: started, left alone, stopped by a signal. */
#include "cli/cli.h"

#if !DL_CLOUD

diloco_status dl_cmd_serve(const dl_args *args)
{
    (void)args;
    return dl_fail(DILOCO_EREFUSED, "this program was built without the hub (DILOCO_CLOUD=OFF)");
}

#else

#include "hub/address.h"
#include "hub/cert.h"
#include "hub/hub.h"

#include <signal.h>
#include <string.h>
#include <time.h>

#define FINISH_TIME (10 * DL_SECOND) /* for requests under way, at the end */

static sigset_t stop_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    return set;
}

/* A second signal: has one come since? */
static bool hurry(void)
{
    sigset_t set = stop_signals();
    return sigtimedwait(&set, NULL, &(struct timespec){0}) > 0;
}

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

static diloco_status read_options(dl_hub_options *o, const dl_args *args)
{
    uint64_t max_object, max_connections;
    DL_TRY(dl_args_u64(&max_object, args, DL_FLAG_MAX_OBJECT, 0, INT64_MAX));
    DL_TRY(dl_args_u64(&max_connections, args, DL_FLAG_MAX_CONNECTIONS, 0, 100000));
    *o = (dl_hub_options){.dir = args->target,
                          .listen = args->flags[DL_FLAG_LISTEN],
                          .cert_file = args->flags[DL_FLAG_CERT],
                          .key_file = args->flags[DL_FLAG_KEY],
                          .token_file = args->flags[DL_FLAG_TOKEN_FILE],
                          .s3_keys_file = args->flags[DL_FLAG_S3_KEYS],
                          .max_object = max_object,
                          .max_connections = (unsigned)max_connections,
                          .insecure = dl_args_has(args, DL_FLAG_INSECURE)};
    if (!o->dir) return dl_fail(DILOCO_EINVAL, "serve needs a DIR; see diloco serve --help");
    if (!o->cert_file != !o->key_file)
        return dl_fail(DILOCO_EINVAL, "--cert and --key go together");
    return DILOCO_OK;
}

static void greet(const dl_hub *hub, const char *dir)
{
    printf("serving %s at %s%s\n", dir, dl_hub_url(hub),
           dl_hub_is_open(hub) ? ", to whoever reaches it" : "");
    printf("a run: %s/NAME; metrics: %s/metrics; Ctrl-C ends\n", dl_hub_url(hub), dl_hub_url(hub));
    fflush(stdout);
}

diloco_status dl_cmd_serve(const dl_args *args)
{
    sigset_t set = stop_signals();
    dl_hub_options options;
    dl_hub *hub;
    int which;
    if (dl_args_has(args, DL_FLAG_MAKE_CERT)) return make_cert(args);
    DL_TRY(read_options(&options, args));
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    DL_TRY(dl_hub_start(&hub, &options));
    if (!dl_args_has(args, DL_FLAG_QUIET)) greet(hub, options.dir);
    sigwait(&set, &which);
    dl_hub_stop(hub, dl_time_after(dl_clock_now(), FINISH_TIME), hurry);
    return DILOCO_OK;
}

#endif
