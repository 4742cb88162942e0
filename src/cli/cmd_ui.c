/* cmd_ui.c - the page of a run in any store, or of the runs in a folder: a server for one person on
 * this machine, which only reads.
 *
 * Its token is drawn for this process. The browser gets the address in a file that only this user
 * can read. A command line is visible to every user of the machine. The server is a hub without a
 * folder (hub/hub.h): it serves the page and JSON of the runs that were named, and takes no writes.
 * Main waits for a signal while the hub's threads answer. */
#include "cli/cli.h"

#if !DL_CLOUD

static diloco_status cmd_ui(const dl_args *args)
{
    (void)args;
    return dl_fail(DILOCO_EREFUSED,
                   "this program was built without its server (DILOCO_CLOUD=OFF): \"diloco watch\" "
                   "shows a run in the terminal");
}

#else

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/text.h"
#include "cli/run_names.h"
#include "cli/settings/settings.h"
#include "cli/swarm.h"
#include "hub/hub.h"
#include <diloco/config.h>
#include <diloco/inspect.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* 128 random bits, too many to guess; and runs of one folder that are shown. */
enum { TOKEN_BYTES = 16, MOST_RUNS = 500 };

extern char **environ;

/* The runs, and what the server needs to show them. It has to outlive the server, which borrows
 * the names. */
typedef struct shown {
    dl_run_names runs;               /* with their URLs */
    char token[2 * TOKEN_BYTES + 1]; /* of this process only */
    char folder[64];                 /* of the file for the browser; "": none */
} shown;

/* ---- which runs */

/* Called by the server's threads. The names do not change after the start, so no lock is needed. */
static bool url_of(void *user, char url[DL_VIEW_URL], const char *name)
{
    return dl_run_names_url(&((shown *)user)->runs, url, name);
}

/* Return true if the folder is the store of a run. */
static bool has_run(const char *folder)
{
    char path[DL_PATH_MAX + 512];
    snprintf(path, sizeof path, "%s/run.json", folder);
    return access(path, F_OK) == 0;
}

/* Read run.json, so that an error is said now, and not by the page. */
static diloco_status check_run(const char *url)
{
    diloco_config *config = diloco_config_create();
    if (!config) return dl_fail(DILOCO_ENOMEM, "out of memory for a configuration");
    const diloco_status status = diloco_run_config(config, url);
    diloco_config_destroy(config);
    return status;
}

/* A damaged run does not hide those beside it. */
static bool is_readable(const char *folder)
{
    if (!check_run(folder)) return true;
    dl_log(DILOCO_LOG_WARN, "the page leaves a run out: %s", diloco_error_text());
    return false;
}

/* The order of bytes, which is the same in every locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Add the first MOST_RUNS folders of `folder` that are readable runs, by name. */
static diloco_status add_folder(shown *s, const char *folder)
{
    struct dirent **all;
    diloco_status status = DILOCO_OK;
    const int n = scandir(folder, &all, NULL, by_name);
    if (n < 0) return dl_fail(DILOCO_ENOENT, "%s: no run, and no folder of runs", folder);
    int found = 0;
    for (int i = 0; i < n; i++) {
        char path[sizeof(dl_config_path) + 256]; /* a longer path is left out below */
        const int len = snprintf(path, sizeof path, "%s/%s", folder, all[i]->d_name);
        if (!status && all[i]->d_name[0] != '.' && (size_t)len < sizeof(dl_config_path) &&
            has_run(path) && (found >= MOST_RUNS || is_readable(path)) && found++ < MOST_RUNS)
            status = dl_run_names_add(&s->runs, path);
        free(all[i]);
    }
    free(all);
    if (!status && found > MOST_RUNS)
        fprintf(stderr,
                "diloco: %s: the page shows the first %d of %d runs, in the order of their names; "
                "to see another one, give its URL to diloco ui\n",
                folder, MOST_RUNS, found);
    if (!status && !s->runs.names.len)
        status = dl_fail(DILOCO_ENOENT, "%s: no run, and no folder of runs", folder);
    return status;
}

/* A folder without a run.json may hold runs; any other target is a run itself. */
static diloco_status add_target(shown *s, const char *target)
{
    dl_config_path store;
    DL_TRY(dl_settings_store(store, target));
    DL_TRY(dl_swarm_refuse(store, "show"));
    const char *folder = strncmp(store, "file://", 7) ? store : store + 7;
    struct stat st;
    /* A store elsewhere cannot be listed for runs, so its URL has to name one. */
    if (!strstr(folder, "://") && !has_run(folder) && !stat(folder, &st) && S_ISDIR(st.st_mode))
        return add_folder(s, folder);
    DL_TRY(check_run(store));
    return dl_run_names_add(&s->runs, store);
}

/* Add the runs of all targets, then an empty name, which ends the list for the server. */
static diloco_status add_targets(shown *s, const dl_args *args)
{
    DL_TRY(add_target(s, args->target));
    for (size_t i = 0; i < args->n_compared; i++)
        DL_TRY(add_target(s, args->compared[i]));
    return dl_buf_add(&s->runs.names, "", 1);
}

/* ---- the browser */

/* Write a page that leads to the address, into a folder of mode 0700. XDG_RUNTIME_DIR is the
 * user's own and is emptied at logout. */
static diloco_status write_address(shown *s, const char *address, char path[128])
{
    const char *tmp = getenv("XDG_RUNTIME_DIR");
    snprintf(s->folder, sizeof s->folder, "%.32s/diloco-ui-XXXXXX",
             tmp && strlen(tmp) < 32 ? tmp : "/tmp");
    if (!mkdtemp(s->folder)) {
        s->folder[0] = 0;
        return dl_fail(DILOCO_EIO, "no folder for the browser's file");
    }
    char text[1024];
    snprintf(path, 128, "%s/open.html", s->folder);
    /* The page redirects at once. The address with its token is in the file and in no argument. */
    const int len = snprintf(text, sizeof text,
                             "<!doctype html><meta charset=utf-8><title>diloco</title>"
                             "<meta http-equiv=refresh content=\"0;url=%s\">",
                             address);
    const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return dl_fail_errno(errno, "create", path);
    const diloco_status status = dl_fd_write(fd, &(dl_span){text, (size_t)len}, 1, path);
    close(fd);
    return status;
}

/* Start the browser. Whether one opens is not known: xdg-open ends when it has asked for it.
 * Signals are unblocked in it, since this process has blocked them. */
static void open_browser(shown *s, const char *address)
{
    char path[128];
    char *const argv[] = {(char[]){"xdg-open"}, path, NULL};
    posix_spawn_file_actions_t quiet;
    posix_spawnattr_t attributes;
    sigset_t none;
    pid_t pid;
    if (write_address(s, address, path)) {
        fprintf(stderr, "diloco: %s; open the address above\n", diloco_error_text());
        return;
    }
    sigemptyset(&none);
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    if (posix_spawnp(&pid, argv[0], &quiet, &attributes, argv, environ))
        fprintf(stderr, "diloco: no browser is known here (xdg-open is missing); open the address "
                        "above\n");
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&quiet);
}

/* Remove the browser's file and its folder. The browser has read it long before. */
static void remove_address(const shown *s)
{
    char path[128];
    if (!s->folder[0]) return;
    snprintf(path, sizeof path, "%s/open.html", s->folder);
    unlink(path);
    rmdir(s->folder);
}

/* ---- */

/* The token comes from the system's random source. The part after '#' is not sent with a
 * request, so it reaches no log. */
static diloco_status serve(shown *s, const dl_args *args)
{
    unsigned char random[TOKEN_BYTES];
    char address[512];
    dl_hub *hub;
    sigset_t set;
    int which;
    DL_TRY(dl_random_bytes(random, sizeof random));
    dl_hex(s->token, random, sizeof random);
    /* Blocked before the hub starts its threads, which inherit the mask. So only sigwait below
     * receives these signals. */
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    const char *listen = args->flags[DL_FLAG_LISTEN];
    /* Port 0 of the loopback address is any free port, and no other machine can connect to it. */
    const dl_hub_options options = {.listen = listen ? listen : "127.0.0.1:0",
                                    .token = s->token,
                                    .viewed = url_of,
                                    .viewed_user = s,
                                    .names = (const char *)s->runs.names.data};
    DL_TRY(dl_hub_start(&hub, &options));
    snprintf(address, sizeof address, "%s/#token=%s", dl_hub_url(hub), s->token);
    printf("the page of %s: %s\nCtrl-C ends\n", args->target, address);
    fflush(stdout);
    if (!dl_args_has(args, DL_FLAG_NO_BROWSER)) open_browser(s, address);
    sigwait(&set, &which);
    remove_address(s);
    dl_hub_stop(hub, dl_clock_now(), NULL);
    return DILOCO_OK;
}

static diloco_status cmd_ui(const dl_args *args)
{
    shown s = {.folder = ""};
    dl_run_names_init(&s.runs);
    diloco_status status = add_targets(&s, args);
    if (!status) status = serve(&s, args);
    dl_run_names_deinit(&s.runs);
    return status;
}

#endif

const dl_command dl_command_ui = {
    .name = "ui",
    .target = "URL",
    .summary = "the page of a run, or of a folder of runs, in your browser",
    .details =
        "A server for you alone: on this machine, until Ctrl-C, with a token of its own in the "
        "address\n"
        "that it prints. It only reads. --compare adds another run. A hub (diloco serve) has the "
        "same\n"
        "page at its own address.",
    .flags = DL_FLAGS(DL_FLAG_COMPARE, DL_FLAG_LISTEN, DL_FLAG_NO_BROWSER),
    .run = cmd_ui,
};
