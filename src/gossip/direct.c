/* direct.c - see direct.h.
 *
 * The certificate is made for this process from the member's signing key. It proves that key and
 * nothing else; both sides know the owner of a key from the run. A client shows a certificate of
 * the same kind, and the hub asks `welcome` about its key. */
#include "gossip/direct.h"

#include "exchange/peers.h"
#include "gossip/reached.h"
#include "hub/hub.h"

#include <stdlib.h>

enum { PEM_MAX = 8192, CONNECTIONS = 256 }; /* bytes of a PEM text; clients at one time */

typedef struct direct {
    dl_hub *hub;
    dl_buf cert, secret; /* PEM */
} direct;

/* Gives replies in flight one second, and wipes the key. */
static void stop(void *self)
{
    direct *d = self;
    dl_hub_stop(d->hub, dl_time_after(dl_clock_now(), DL_SECOND), NULL);
    dl_buf_deinit(&d->cert);
    dl_cleanse(&d->secret);
    free(d);
}

static diloco_status start(direct *d, char address[DL_ADDRESS_MAX + 1],
                           const dl_peers_service *service)
{
    const dl_config *config = service->config;
    DL_TRY(dl_signer_certificate(&d->cert, &d->secret, service->signer));
    const dl_hub_options options = {.dir = service->dir,
                                    .listen = config->peers_listen,
                                    .cert = dl_buf_str(&d->cert),
                                    .key = dl_buf_str(&d->secret),
                                    .read_only = true,
                                    .max_connections = CONNECTIONS,
                                    .welcome = service->welcome,
                                    .welcome_user = service->user};
    if (!options.cert || !options.key) return dl_fail(DILOCO_ENOMEM, "out of memory for a key");
    DL_TRY(dl_hub_start(&d->hub, &options));
    const dl_reached reached = {.listen = config->peers_listen,
                                .listen_option = "run.peers_listen",
                                .address = config->peers_address,
                                .address_option = "run.peers_address",
                                .url = dl_hub_url(d->hub),
                                .tls = true};
    return dl_reached_by(address, &reached);
}

static diloco_status serve(void **out, char address[DL_ADDRESS_MAX + 1],
                           const dl_peers_service *service)
{
    direct *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) return dl_fail(DILOCO_ENOMEM, "out of memory for a server");
    dl_buf_init(&d->cert, PEM_MAX);
    dl_buf_init(&d->secret, PEM_MAX);
    const diloco_status status = start(d, address, service);
    if (status)
        stop(d);
    else
        *out = d;
    return status;
}

static uint64_t served(const void *self)
{
    return dl_hub_served(((const direct *)self)->hub);
}

/* Opens the server of the member with this key. A server with another key is refused, whatever its
 * address is. */
static diloco_status open_line(void *self, dl_store **out, const char *address,
                               const dl_public *key, dl_time patience)
{
    direct *d = self;
    char pin[DL_PIN_TEXT];
    DL_TRY(dl_public_pin(pin, key));
    const dl_peer_access access = {.pin = pin,
                                   .cert = (const char *)d->cert.data,
                                   .key = (const char *)d->secret.data,
                                   .patience = patience};
    return dl_store_open_peer(out, address, &access);
}

void dl_direct_use(void)
{
    static const dl_peers_kind kind = {
        .serve = serve, .stop = stop, .served = served, .open = open_line};
    dl_peers_use(&kind);
}
