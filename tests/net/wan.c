/* wan.c - an emulated network for tests: a hub and replicas, each in a network namespace of its
 * own, and each replica with a link to the hub alone.
 *
 *     wan LINK HUB REPLICA…      namespaces that `ip netns add` made; LINK as of --link
 *     wan LINK --mesh HUB …      replicas reach each other too, over the links of both
 *
 * The hub's namespace gets a TUN device with 10.78.0.1, replica i one with 10.78.0.(1 + i). This
 * process is the network between them (netem would do, but is often not there): a packet waits
 * in the queue of its replica and direction, a drop-tail queue of $WAN_QUEUE_S seconds (0.25: a
 * router of the better kind); leaves it at the rate; arrives half the delay later; or is lost.
 * Packets from replica to replica go nowhere, but in a mesh, up the one's link and down the
 * other's. Prints "up" when the devices are there; SIGUSR1 cuts all links, SIGUSR2 mends them; ends
 * at SIGTERM, with what passed on stdout. */
#include "base/clock.h"
#include "base/link.h"
#include "base/rng.h"

#include <diloco/status.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { MAX_REPLICAS = 32, N_QUEUED = 8192, PACKET_MAX = 65536, N_READ = 64 };
static double queue_s = 0.25;
static const dl_time LONGEST_SLEEP = DL_SECOND / 20;

typedef struct packet {
    dl_time due;
    size_t len;
    unsigned char *data; /* owned */
} packet;

/* One direction of one link. */
typedef struct lane {
    double bytes_per_s; /* 0: at once */
    dl_time free_at;    /* when the last one has left the queue */
    int to;             /* the device where it comes out */
    packet queued[N_QUEUED];
    size_t first, n;
} lane;

static lane up[MAX_REPLICAS], down[MAX_REPLICAS];
static int devices[1 + MAX_REPLICAS]; /* the hub's, then the replicas' */
static size_t n_replicas, n_passed, n_dropped, n_lost;
static bool mesh;
static volatile sig_atomic_t is_cut, is_over;

static void on_signal(int signal)
{
    if (signal == SIGTERM) is_over = 1;
    if (signal == SIGUSR1) is_cut = 1;
    if (signal == SIGUSR2) is_cut = 0;
}

static void give_up(const char *what)
{
    perror(what);
    exit(1);
}

/* A TUN device with address 10.78.0.<number> in the namespace, and a route to all of 10.78.0. */
static int make_device(const char *netns, int number)
{
    char text[256];
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(text, sizeof text, "/run/netns/%s", netns);
    const int space = open(text, O_RDONLY | O_CLOEXEC);
    if (space < 0 || setns(space, CLONE_NEWNET)) give_up(text);
    close(space);
    const int device = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    strcpy(request.ifr_name, "wan0");
    if (device < 0 || ioctl(device, TUNSETIFF, &request)) give_up("/dev/net/tun");
    snprintf(text, sizeof text,
             "ip addr add 10.78.0.%d/24 dev wan0 && ip link set wan0 up && ip link set lo up",
             number);
    if (system(text)) give_up("ip");
    return device;
}

static void enter(lane *l, const unsigned char *data, size_t len, const dl_link *link)
{
    static dl_rng rng = {.seed = 1};
    const dl_time now = dl_clock_now();
    if (is_cut || dl_rng_f64(&rng) < link->loss) {
        n_lost++;
        return;
    }
    dl_time leaves = l->free_at > now ? l->free_at : now;
    unsigned char *copy = malloc(len);
    if (!copy || l->n == N_QUEUED || (l->bytes_per_s > 0 && dl_seconds(leaves - now) > queue_s)) {
        n_dropped++;
        free(copy);
        return;
    }
    memcpy(copy, data, len);
    if (l->bytes_per_s > 0) leaves += dl_time_from_seconds((double)len / l->bytes_per_s);
    l->free_at = leaves;
    const dl_time due = leaves + dl_time_from_seconds(link->delay_s / 2);
    l->queued[(l->first + l->n++) % N_QUEUED] = (packet){due, len, copy};
}

/* IPv4 from 10.78.0.(1 + i) to the hub, or from the hub to there: which lane? NULL: no way. */
static lane *lane_of(size_t device, const unsigned char *data, size_t len)
{
    if (len < 20 || data[0] >> 4 != 4) return NULL;
    const unsigned to = data[19];
    if (device > 0 && to == 1) return &up[device - 1];
    if (device > 0) return mesh && to >= 2 && to < 2 + n_replicas ? &up[device - 1] : NULL;
    return to >= 2 && to < 2 + n_replicas ? &down[to - 2] : NULL;
}

static void take_in(size_t device, const dl_link *link)
{
    static unsigned char data[PACKET_MAX];
    for (int i = 0; i < N_READ; i++) {
        const ssize_t len = read(devices[device], data, sizeof data);
        if (len <= 0) return;
        lane *l = lane_of(device, data, (size_t)len);
        if (l) enter(l, data, (size_t)len, link);
    }
}

/* All that is due comes out, to another replica into its lane; when the next is. */
static dl_time let_out(lane *l, dl_time next, const dl_link *link)
{
    const dl_time now = dl_clock_now();
    for (; l->n && l->queued[l->first].due <= now; l->n--) {
        packet *p = &l->queued[l->first];
        if (l->to == devices[0] && p->data[19] != 1)
            enter(&down[p->data[19] - 2], p->data, p->len, link);
        else if (write(l->to, p->data, p->len) < 0)
            n_dropped++;
        else
            n_passed++;
        free(p->data);
        l->first = (l->first + 1) % N_QUEUED;
    }
    return l->n && l->queued[l->first].due < next ? l->queued[l->first].due : next;
}

static void run(const dl_link *link)
{
    struct pollfd polls[1 + MAX_REPLICAS];
    for (size_t i = 0; i <= n_replicas; i++)
        polls[i] = (struct pollfd){.fd = devices[i], .events = POLLIN};
    while (!is_over) {
        dl_time next = dl_clock_now() + LONGEST_SLEEP;
        for (size_t i = 0; i <= n_replicas; i++)
            take_in(i, link);
        for (size_t i = 0; i < n_replicas; i++) {
            next = let_out(&up[i], next, link);
            next = let_out(&down[i], next, link);
        }
        const dl_time left = next - dl_clock_now();
        const struct timespec sleep = {0, left > 0 ? left : 0};
        ppoll(polls, 1 + n_replicas, &sleep, NULL);
    }
}

int main(int argc, char **argv)
{
    const char *queue = getenv("WAN_QUEUE_S");
    if (queue) queue_s = atof(queue);
    dl_link link;
    mesh = argc > 2 && !strcmp(argv[2], "--mesh");
    if (mesh) argv[2] = argv[1], argv++, argc--;
    if (argc < 4 || argc > 3 + MAX_REPLICAS) {
        fprintf(stderr, "usage: wan LINK [--mesh] HUB REPLICA…\n");
        return 2;
    }
    if (dl_link_parse(&link, "wan", argv[1])) {
        fprintf(stderr, "%s\n", diloco_error_text());
        return 2;
    }
    n_replicas = (size_t)argc - 3;
    for (size_t i = 0; i <= n_replicas; i++)
        devices[i] = make_device(argv[2 + i], 1 + (int)i);
    for (size_t i = 0; i < n_replicas; i++) {
        up[i].bytes_per_s = link.up_bps / 8;
        up[i].to = devices[0];
        down[i].bytes_per_s = link.down_bps / 8;
        down[i].to = devices[1 + i];
    }
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    puts("up");
    fflush(stdout);
    run(&link);
    printf("packets: %zu passed, %zu lost, %zu dropped from full queues\n", n_passed, n_lost,
           n_dropped);
    return 0;
}
