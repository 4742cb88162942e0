/* direct_test.c - a member's server over TLS: read only, for holders of welcome keys, and accepted
 * only from the holder of the expected key. */
#include "gossip/direct.h"

#include "check.h"
#include "exchange/peers.h"
#include "scratch.h"
#include "store/store.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

static const dl_time LONG = 30 * DL_SECOND;

typedef struct member {
    dl_config config;
    dl_signer *signer;
    dl_peers *peers;
    char address[DL_ADDRESS_MAX + 1];
} member;

static diloco_status open_member(member *m, const char *name, const char *listen)
{
    dl_direct_use();
    dl_config_init(&m->config);
    CHECK_OK(dl_config_set(&m->config, "run.peers_listen", listen, "test"));
    CHECK_OK(dl_signer_generate(&m->signer));
    const dl_peers_args args = {.config = &m->config,
                                .dir = scratch_path(name),
                                .signer = m->signer,
                                .replica = name,
                                .max_members = 4,
                                .reads = true};
    return dl_peers_create(&m->peers, &args);
}

/* Where it is, as its heartbeat says. */
static void find_address(member *m)
{
    dl_buf text;
    dl_json j;
    dl_json_value json;
    dl_buf_init(&text, 4096);
    dl_json_init(&j, &text);
    dl_json_object(&j, NULL);
    dl_peers_report(m->peers, &j);
    dl_json_end(&j);
    CHECK_OK(dl_json_done(&j));
    CHECK_OK(dl_json_parse(&json, text.data, text.len));
    CHECK_OK(dl_json_read_str(m->address, sizeof m->address, json, "address"));
    dl_buf_deinit(&text);
}

static void close_member(member *m)
{
    dl_peers_destroy(m->peers);
    dl_signer_close(m->signer);
}

/* A line to `m` from the holder of `signer`, which expects the holder of `expected`. */
static dl_store *line_of(const member *m, const dl_signer *signer, const dl_public *expected,
                         dl_time patience)
{
    dl_store *store;
    dl_buf cert, secret;
    char pin[DL_PIN_TEXT];
    dl_buf_init(&cert, 8192);
    dl_buf_init(&secret, 8192);
    CHECK_OK(dl_signer_certificate(&cert, &secret, signer));
    CHECK_OK(dl_public_pin(pin, expected));
    const dl_peer_access access = {
        .pin = pin, .cert = dl_buf_str(&cert), .key = dl_buf_str(&secret), .patience = patience};
    CHECK_OK(dl_store_open_peer(&store, m->address, &access));
    dl_buf_deinit(&cert);
    dl_cleanse(&secret);
    return store;
}

static diloco_status read_it(dl_store *store)
{
    dl_buf text;
    dl_buf_init(&text, 64);
    const diloco_status status = dl_store_get(store, &text, "c/0000000007/r0.0000",
                                              dl_time_after(dl_clock_now(), 60 * DL_SECOND));
    CHECK(status || (text.len == 5 && !memcmp(text.data, "bytes", 5)));
    dl_buf_deinit(&text);
    return status;
}

TEST(only_known_peers_read_and_no_peer_writes)
{
    member m;
    dl_signer *friend, *untrusted;
    const dl_span span = {"bytes", 5};
    const dl_generation generation = {.replica = "r0"};
    CHECK_OK(open_member(&m, "r0", "127.0.0.1:0"));
    find_address(&m);
    CHECK(!strncmp(m.address, "https://127.0.0.1:", 18));
    CHECK_OK(dl_signer_generate(&friend));
    CHECK_OK(dl_signer_generate(&untrusted));
    const dl_public *its = dl_signer_public(m.signer);
    dl_peers_know(m.peers, "r1", dl_signer_public(friend));
    dl_peers_keep(m.peers, 7, &span, 1);
    dl_store *line = line_of(&m, friend, its, LONG);
    dl_store *other = line_of(&m, untrusted, its, LONG);
    CHECK_STATUS(DILOCO_ENOENT, read_it(line));
    dl_peers_show(m.peers, 7, &generation);
    CHECK_OK(read_it(line));
    CHECK_STATUS(DILOCO_EREFUSED, read_it(other));
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_create(line, "c/0000000008/r0.0000", &span, 1, NULL,
                                                  dl_time_after(dl_clock_now(), 60 * DL_SECOND)));
    CHECK_STATUS(DILOCO_EREFUSED, dl_store_delete(line, "c/0000000007/r0.0000",
                                                  dl_time_after(dl_clock_now(), 60 * DL_SECOND)));
    CHECK_OK(read_it(line));
    CHECK(dl_peers_count(m.peers).sent >= 5);
    dl_store_close(line);
    dl_store_close(other);
    dl_signer_close(friend);
    dl_signer_close(untrusted);
    close_member(&m);
}

TEST(a_server_with_another_key_than_the_members_is_refused)
{
    member m;
    dl_signer *friend;
    CHECK_OK(open_member(&m, "r0", "127.0.0.1:0"));
    find_address(&m);
    CHECK_OK(dl_signer_generate(&friend));
    dl_peers_know(m.peers, "r1", dl_signer_public(friend));
    dl_store *line = line_of(&m, friend, dl_signer_public(friend), LONG);
    CHECK_STATUS(DILOCO_EREFUSED, read_it(line));
    dl_store_close(line);
    dl_signer_close(friend);
    close_member(&m);
}

/* Accepted by the system, and never answered. */
TEST(a_stalled_member_delays_no_other)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    member m;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK_INT(0, bind(fd, (struct sockaddr *)&at, sizeof at));
    CHECK_INT(0, listen(fd, 4));
    CHECK_INT(0, getsockname(fd, (struct sockaddr *)&at, &len));
    CHECK_OK(dl_signer_generate(&m.signer));
    snprintf(m.address, sizeof m.address, "https://127.0.0.1:%d", ntohs(at.sin_port));
    dl_store *line = line_of(&m, m.signer, dl_signer_public(m.signer), DL_SECOND);
    const diloco_status status = read_it(line);
    CHECK(status == DILOCO_EUNREACHABLE || status == DILOCO_ETIMEDOUT);
    dl_store_close(line);
    dl_signer_close(m.signer);
    close(fd);
}

TEST(everywhere_is_no_address)
{
    member m;
    CHECK_STATUS(DILOCO_EINVAL, open_member(&m, "r0", ":0"));
    CHECK_CONTAINS("set run.peers_address to", diloco_error_text());
    dl_signer_close(m.signer);
    CHECK_STATUS(DILOCO_EINVAL, open_member(&m, "r1", "nowhere"));
    dl_signer_close(m.signer);
}

TEST_MAIN(only_known_peers_read_and_no_peer_writes,
          a_server_with_another_key_than_the_members_is_refused, a_stalled_member_delays_no_other,
          everywhere_is_no_address)
