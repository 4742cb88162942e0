/* file_store_test.c - troubles of a folder alone: killed writers, full and read-only disks, roots
 * that go away, links, and foreign files in the folder. */
#include "store/kind.h"

#include "base/hash.h"
#include "base/rng.h"
#include "check.h"
#include "store/file_store.h"
#include "store_suite.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[512];

/* A path below the root; valid until the fourth next call. */
static const char *at(const char *below)
{
    static char paths[4][1200];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", root, below);
    return path;
}

static dl_store *begin(void)
{
    dl_store *store;
    store_make_folder(root);
    CHECK_OK(dl_store_open(&store, root, true));
    return store;
}

static void end(dl_store *store)
{
    dl_store_close(store);
    store_remove_folder(root);
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    CHECK_INT(strlen(text), write(fd, text, strlen(text)));
    close(fd);
}

static diloco_status create_text(dl_store *store, const char *key, const char *text)
{
    dl_span span = {text, strlen(text)};
    return dl_store_create(store, key, &span, 1, NULL, DL_NEVER);
}

/* Only if it is empty can the folder be removed. */
static void check_no_temporary_files(void)
{
    CHECK_INT(0, rmdir(at(".tmp")));
    CHECK_INT(0, mkdir(at(".tmp"), 0777));
}

/* ---- opening */

TEST(a_missing_root_is_made_with_its_parents_only_when_asked)
{
    dl_store *store = begin(), *deep;
    CHECK_STATUS(DILOCO_ENOENT, dl_store_open(&deep, at("a/b/c"), false));
    CHECK_CONTAINS("a/b/c", diloco_error_text());
    CHECK_OK(dl_store_open(&deep, at("a/b/c/"), true));
    store_must_create(deep, "k", "x");
    CHECK_STR("a/b/c/k ", store_keys(store, "", NULL));
    dl_store_close(deep);
    end(store);
}

TEST(a_root_that_is_no_folder_is_refused)
{
    dl_store *store = begin(), *other;
    write_file(at("file"), "x");
    CHECK_STATUS(DILOCO_EIO, dl_store_open(&other, at("file"), true));
    CHECK_CONTAINS("is not a folder", diloco_error_text());
    CHECK_STATUS(DILOCO_EIO, dl_store_open(&other, at("file/below"), true));
    end(store);
}

TEST(a_reader_leaves_a_folder_as_it_is)
{
    dl_store *store;
    store_make_folder(root);
    write_file(at("k"), "x");
    CHECK_OK(dl_store_open(&store, root, false));
    store_must_hold(store, "k", "x");
    CHECK(access(at(".tmp"), F_OK) != 0);
    store_must_create(store, "l", "y"); /* becomes a writer */
    CHECK(access(at(".tmp"), F_OK) == 0);
    end(store);
}

/* ---- the other entries of the folder */

TEST(foreign_files_are_not_listed)
{
    dl_store *store = begin();
    store_must_create(store, "c/1/r0.0", "x");
    write_file(at(".tmp/unfinished"), "x");
    write_file(at("c/.nfs0001"), "x");
    write_file(at("c/notes~"), "x");
    write_file(at("c/a b"), "x");
    CHECK_INT(0, symlink("r0.0", at("c/1/link")));
    CHECK_INT(0, symlink("1", at("c/linked")));
    CHECK_INT(0, mkfifo(at("c/1/pipe"), 0644));
    CHECK_INT(0, mkdir(at("c/empty"), 0755));
    CHECK_STR("c/1/r0.0 ", store_keys(store, "", NULL));
    end(store);
}

TEST(no_symbolic_link_is_followed)
{
    dl_store *store = begin();
    dl_buf buf;
    char outside[512];
    dl_buf_init(&buf, 100);
    store_make_folder(outside);
    store_must_create(store, "k", "x");
    CHECK_INT(0, symlink(outside, at("far")));
    CHECK_INT(0, symlink("k", at("link")));
    CHECK_INT(0, mkfifo(at("pipe"), 0644));

    CHECK_STATUS(DILOCO_EPROTO, dl_store_get(store, &buf, "link", DL_NEVER));
    CHECK_STATUS(DILOCO_EPROTO, dl_store_get(store, &buf, "pipe", DL_NEVER)); /* or it hangs */
    CHECK_CONTAINS("no object", diloco_error_text());
    CHECK_STATUS(DILOCO_EEXIST, create_text(store, "pipe", "x"));
    CHECK_STATUS(DILOCO_ENOENT, dl_store_get(store, &buf, "far/k", DL_NEVER));
    CHECK_STR("", store_keys(store, "far/", NULL));
    CHECK_STATUS(DILOCO_EEXIST, create_text(store, "link", "x"));
    CHECK_STATUS(DILOCO_EIO, create_text(store, "far/k", "x"));
    CHECK_CONTAINS("link is in the way", diloco_error_text());
    CHECK_STATUS(DILOCO_EIO, dl_store_put(store, "far/k", "x", 1, DL_NEVER));
    CHECK_OK(dl_store_delete(store, "far/k", DL_NEVER)); /* is not there */
    CHECK_INT(0, rmdir(outside));                        /* and nothing came there */
    dl_buf_deinit(&buf);
    end(store);
}

TEST(a_folder_at_a_key_takes_its_name_and_is_no_object)
{
    dl_store *store = begin();
    dl_buf buf;
    dl_buf_init(&buf, 100);
    store_must_create(store, "a/b", "x");
    CHECK_STATUS(DILOCO_EEXIST, create_text(store, "a", "x"));
    CHECK_CONTAINS("taken", diloco_error_text());
    CHECK_STATUS(DILOCO_EIO, dl_store_put(store, "a", "x", 1, DL_NEVER));
    CHECK_STATUS(DILOCO_EIO, create_text(store, "a/b/c", "x"));
    CHECK_CONTAINS("in the way", diloco_error_text());
    CHECK_STATUS(DILOCO_EPROTO, dl_store_get(store, &buf, "a", DL_NEVER));
    check_no_temporary_files();
    dl_buf_deinit(&buf);
    end(store);
}

/* A writer without a key left it there. A run keeps a folder under such a name. */
TEST(an_object_in_place_of_a_folder_of_a_run_is_removed)
{
    dl_store *store = begin();
    char outside[512];
    store_make_folder(outside);
    CHECK_INT(0, mkdir(at("c"), 0777));
    CHECK_INT(0, mkdir(at("snap"), 0777));
    CHECK_INT(0, mkdir(at("log"), 0777));
    write_file(at("c/0000000001"), "junk");
    CHECK_INT(0, mkfifo(at("c/0000000002"), 0644));
    CHECK_INT(0, symlink(outside, at("c/0000000003")));
    write_file(at("x"), "junk");
    CHECK_STR("", store_keys(store, "c/0000000001/", NULL));
    store_must_create(store, "c/0000000001/r0.0000", "one");
    store_must_create(store, "c/0000000002/r0.0000", "two");
    store_must_create(store, "c/0000000003/r0.0000", "three");
    store_must_create(store, "x/0000000001/0003/r0.0000=r0.0000", "four");
    CHECK_OK(dl_store_put(store, "hb/r0.0000", "beat", 4, DL_NEVER));
    CHECK_STR("c/0000000001/r0.0000 c/0000000002/r0.0000 c/0000000003/r0.0000 ",
              store_keys(store, "c/", NULL));
    CHECK_INT(0, rmdir(outside)); /* nothing came there */

    /* Objects stay, whatever is to be created below them, and so do files that are not the
     * run's. */
    store_must_create(store, "log/0000000001.json", "entry");
    CHECK_STATUS(DILOCO_EIO, create_text(store, "log/0000000001.json/x", "x"));
    CHECK_STATUS(DILOCO_EIO, create_text(store, "c/0000000001/r0.0000/x", "x"));
    store_must_hold(store, "log/0000000001.json", "entry");
    end(store);
}

/* An empty log would look like the log of a run that has just begun. */
TEST(an_object_in_place_of_the_log_is_an_error)
{
    dl_store *store = begin();
    write_file(at("log"), "junk");
    write_file(at("gen"), "junk");
    CHECK_STATUS(DILOCO_EIO, create_text(store, "log/0000000001.json", "x"));
    CHECK_CONTAINS("in the way", diloco_error_text());
    CHECK_STATUS(DILOCO_EIO, create_text(store, "gen/r0.0000", "x"));
    end(store);
}

static diloco_status shorten(void *context, const void *data, size_t len)
{
    (void)data, (void)len;
    return truncate(context, 10) ? dl_fail(DILOCO_EIO, "truncate") : DILOCO_OK;
}

static diloco_status lengthen(void *context, const void *data, size_t len)
{
    (void)data, (void)len;
    return truncate(context, 5000000) ? dl_fail(DILOCO_EIO, "truncate") : DILOCO_OK;
}

TEST(an_object_that_changes_while_it_is_read_is_refused)
{
    dl_store *store = begin();
    char path[1200];
    snprintf(path, sizeof path, "%s", at("k"));
    write_file(path, "");
    CHECK_INT(0, truncate(path, 2500000));
    dl_sink sink = {path, NULL, shorten};
    CHECK_STATUS(DILOCO_EPROTO, dl_store_read(store, "k", sink, DL_NEVER));
    CHECK_INT(0, truncate(path, 2500000));
    sink.piece = lengthen;
    CHECK_STATUS(DILOCO_EPROTO, dl_store_read(store, "k", sink, DL_NEVER));
    CHECK_CONTAINS("changed while it was read", diloco_error_text());
    end(store);
}

/* ---- leftovers */

static void make_leftover(const char *name, long pid, long age_s)
{
    char host[256], path[1200];
    struct timeval now;
    CHECK_INT(0, gethostname(host, sizeof host));
    if (pid)
        snprintf(path, sizeof path, "%s/.tmp/%s.%ld.%s", root, host, pid, name);
    else
        snprintf(path, sizeof path, "%s/.tmp/another-host.1.%s", root, name);
    write_file(path, "half an obj");
    gettimeofday(&now, NULL);
    struct timeval times[] = {{now.tv_sec - age_s, 0}, {now.tv_sec - age_s, 0}};
    CHECK_INT(0, utimes(path, times));
}

static int n_leftovers(void)
{
    char command[1200];
    int n;
    snprintf(command, sizeof command, "ls %s/.tmp | wc -l", root);
    FILE *pipe = popen(command, "r");
    CHECK(pipe != NULL);
    CHECK_INT(1, fscanf(pipe, "%d", &n));
    pclose(pipe);
    return n;
}

static long dead_pid(void)
{
    pid_t child = fork();
    if (child == 0) _exit(0);
    CHECK(child > 0);
    CHECK_INT(child, waitpid(child, NULL, 0));
    return child;
}

TEST(open_removes_old_leftovers_of_the_dead_only)
{
    dl_store *store = begin(), *other;
    make_leftover("1", dead_pid(), 7200);
    make_leftover("2", 0, 7200);
    CHECK_INT(2, n_leftovers());
    CHECK_OK(dl_store_open(&other, root, false));
    dl_store_close(other);
    CHECK_INT(0, n_leftovers());

    make_leftover("3", dead_pid(), 60);
    make_leftover("4", getpid(), 7200); /* in a container a dead writer had our number */
    CHECK_OK(dl_store_open(&other, root, true));
    dl_store_close(other);
    CHECK_INT(1, n_leftovers());

    dl_file_store writer = {.root = root}; /* a writer that takes hours is not dead */
    dl_upload upload;
    CHECK_OK(dl_upload_begin(&upload, &writer, "slow"));
    CHECK_INT(0, futimes(upload.fd, (struct timeval[]){{1, 0}, {1, 0}}));
    CHECK_OK(dl_store_open(&other, root, true));
    dl_store_close(other);
    CHECK_INT(2, n_leftovers());
    dl_upload_discard(&upload);
    end(store);
}

/* ---- a root that goes away */

static void check_unreachable(dl_store *store)
{
    dl_buf buf;
    dl_buf_init(&buf, 10);
    size_t n = 0;
    CHECK_STATUS(DILOCO_EUNREACHABLE, create_text(store, "k", "x"));
    CHECK_CONTAINS("is gone", diloco_error_text());
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_put(store, "k", "x", 1, DL_NEVER));
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_get(store, &buf, "k", DL_NEVER));
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_list(store, "", NULL, NULL, &n, DL_NEVER));
    CHECK_STATUS(DILOCO_EUNREACHABLE, dl_store_delete(store, "k", DL_NEVER));
    dl_buf_deinit(&buf);
}

TEST(a_root_that_vanished_is_unreachable_and_works_again)
{
    dl_store *store = begin();
    char away[600];
    const char *prefix = "log/";
    snprintf(away, sizeof away, "%s-away", root);
    store_must_create(store, "k", "x");

    CHECK_INT(0, rename(root, away));
    check_unreachable(store);
    CHECK_OK(dl_store_wait(store, &prefix, 1, true, DL_NEVER)); /* to look again */

    CHECK_INT(0, mkdir(root, 0777)); /* like the mount point of an unmounted share */
    check_unreachable(store);
    CHECK_INT(0, rmdir(root)); /* nothing was put there */

    CHECK_INT(0, rename(away, root));
    store_must_hold(store, "k", "x");
    store_must_create(store, "l", "y");
    CHECK_STR("k l ", store_keys(store, "", NULL));
    end(store);
}

/* ---- inotify: the kind's own wait, which unlike dl_store_wait has no back-off */

static void *create_one(void *key)
{
    dl_store *store;
    diloco_status status = dl_store_open(&store, root, false);
    if (!status) status = create_text(store, key, "x");
    if (!status) dl_store_close(store);
    return (void *)(uintptr_t)status;
}

TEST(a_change_under_the_prefix_wakes_a_wait)
{
    const char *prefixes[] = {"c/0000000001/", "log/"};
    static char keys[][40] = {"c/0000000001/r0.0" /* the folder is not there yet */,
                              "c/0000000001/r1.0", "log/0000000001.json"};
    const atomic_bool *aborted;
    dl_store *store;
    void *self;
    store_make_folder(root);
    CHECK_OK(dl_store_wrap(&store, &dl_store_file, root, &self, &aborted));
    CHECK_OK(dl_store_file.open(self, root, true, aborted));
    CHECK_OK(dl_store_file.wait(self, prefixes, 2, DL_NEVER)); /* a new watch: look again */
    for (int i = 0; i < 3; i++) {
        pthread_t thread;
        void *result;
        CHECK_INT(0, pthread_create(&thread, NULL, create_one, keys[i]));
        CHECK_OK(dl_store_file.wait(self, prefixes, 2, DL_NEVER)); /* or it hangs */
        pthread_join(thread, &result);
        CHECK_INT(DILOCO_OK, (uintptr_t)result);
    }
    end(store);
}

/* ---- full and read-only disks */

/* A small file system of our own over the root, seen by this process only. */
static bool mount_small(void)
{
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("none", root, "tmpfs", 0, "size=1m")) {
        print_message("left out: a small file system cannot be mounted here (needs root)\n");
        return false;
    }
    return true;
}

static void unmount_small(void)
{
    CHECK_INT(0, umount(root));
    CHECK_INT(0, rmdir(root));
}

TEST(a_full_disk_is_said_and_harms_nothing)
{
    static char bytes[700 * 1024];
    dl_span span = {bytes, sizeof bytes};
    dl_store *store;
    store_make_folder(root);
    if (!mount_small()) {
        store_remove_folder(root);
        skip();
    }
    CHECK_OK(dl_store_open(&store, root, true));
    CHECK_OK(dl_store_create(store, "c/1", &span, 1, NULL, DL_NEVER));
    CHECK_STATUS(DILOCO_EFULL, dl_store_create(store, "c/2", &span, 1, NULL, DL_NEVER));
    CHECK_CONTAINS("c/2 in store", diloco_error_text());
    CHECK_CONTAINS("free some space", diloco_error_text());
    CHECK_STATUS(DILOCO_EFULL, dl_store_put(store, "c/1", bytes, sizeof bytes, DL_NEVER));
    CHECK_STR("c/1 ", store_keys(store, "", NULL));
    check_no_temporary_files();
    CHECK_OK(dl_store_create(store, "c/1", &span, 1, NULL, DL_NEVER)); /* as it was */
    CHECK_OK(dl_store_delete(store, "c/1", DL_NEVER));
    CHECK_OK(dl_store_create(store, "c/2", &span, 1, NULL, DL_NEVER));
    dl_store_close(store);
    unmount_small();
}

TEST(a_read_only_store_is_said_and_can_be_read)
{
    dl_store *store, *other;
    store_make_folder(root);
    if (!mount_small()) {
        store_remove_folder(root);
        skip();
    }
    CHECK_OK(dl_store_open(&store, root, true));
    store_must_create(store, "c/1", "x");
    CHECK_INT(0, mount("none", root, NULL, MS_REMOUNT | MS_RDONLY, NULL));
    CHECK_STATUS(DILOCO_EIO, create_text(store, "c/2", "x"));
    CHECK_CONTAINS("c/2 in store", diloco_error_text());
    CHECK_CONTAINS("the store is read-only", diloco_error_text());
    CHECK_STATUS(DILOCO_EIO, dl_store_put(store, "c/1", "x", 1, DL_NEVER));
    CHECK_STATUS(DILOCO_EIO, dl_store_delete(store, "c/1", DL_NEVER));
    CHECK_CONTAINS("the store is read-only", diloco_error_text());
    CHECK_OK(dl_store_open(&other, root, false));
    store_must_hold(other, "c/1", "x");
    CHECK_STR("c/1 ", store_keys(other, "", NULL));
    dl_store_close(other);
    CHECK_STATUS(DILOCO_EIO, dl_store_open(&other, at("new"), true));
    CHECK_CONTAINS("give another folder: make folder", diloco_error_text());
    dl_store_close(store);
    unmount_small();
}

/* Runs everywhere: the write fails in the middle. */
TEST(a_limit_on_file_sizes_is_said_and_harms_nothing)
{
    static char bytes[100000];
    dl_span span = {bytes, sizeof bytes};
    struct rlimit unlimited, limit;
    dl_store *store = begin();
    CHECK_INT(0, getrlimit(RLIMIT_FSIZE, &unlimited));
    limit = (struct rlimit){50000, unlimited.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &limit));
    diloco_status status = dl_store_create(store, "c/1", &span, 1, NULL, DL_NEVER);
    CHECK_INT(0, setrlimit(RLIMIT_FSIZE, &unlimited));
    CHECK_INT(DILOCO_EFULL, status);
    CHECK_CONTAINS("c/1 in store", diloco_error_text());
    CHECK_STR("", store_keys(store, "", NULL));
    check_no_temporary_files();
    CHECK_OK(dl_store_create(store, "c/1", &span, 1, NULL, DL_NEVER));
    end(store);
}

/* ---- several processes */

enum { N_PROCESSES = 8, N_NAMES = 10 };

/* Exit code: how many creates of N_NAMES names won; 100 on an error. */
static int race_in_child(int me, int start)
{
    dl_store *store;
    char go;
    int won = 0;
    if (dl_store_open(&store, root, false) || read(start, &go, 1) != 0) return 100; /* 0: closed */
    for (int i = 0; i < N_NAMES; i++) {
        char key[40], text[] = "of process 0";
        bool taken;
        text[sizeof text - 2] = (char)('0' + me);
        dl_span span = {text, sizeof text};
        snprintf(key, sizeof key, "log/%010d.json", i);
        diloco_status status = dl_store_create(store, key, &span, 1, &taken, DL_NEVER);
        if (status && status != DILOCO_EEXIST) return 100;
        won += !status && !taken;
    }
    dl_store_close(store);
    return won;
}

TEST(of_eight_processes_that_create_a_name_one_wins)
{
    dl_store *store = begin();
    int start[2], won = 0;
    CHECK_INT(0, pipe(start));
    pid_t children[N_PROCESSES];
    for (int i = 0; i < N_PROCESSES; i++) {
        CHECK((children[i] = fork()) >= 0);
        if (children[i] == 0) {
            close(start[1]);
            _exit(race_in_child(i, start[0]));
        }
    }
    close(start[0]);
    close(start[1]);
    for (int i = 0; i < N_PROCESSES; i++) {
        int status;
        CHECK_INT(children[i], waitpid(children[i], &status, 0));
        CHECK(WIFEXITED(status));
        CHECK(WEXITSTATUS(status) != 100);
        won += WEXITSTATUS(status);
    }
    CHECK_INT(N_NAMES, won);
    end(store);
}

enum { N_KILLS = 50, MAX_BYTES = 200000, SEED = 1 };

/* Objects of random size, each a hash and the bytes it is of, until killed. */
static void create_for_ever(unsigned child)
{
    static unsigned char bytes[MAX_BYTES];
    dl_store *store;
    dl_rng rng;
    dl_rng_init(&rng, SEED, DL_STREAM(DL_STREAM_TEST, child + 1), 0);
    if (dl_store_open(&store, root, false)) _exit(1);
    for (unsigned i = 0;; i++) {
        char key[64];
        size_t n = (size_t)dl_rng_below(&rng, sizeof bytes);
        memset(bytes, (int)dl_rng_u32(&rng), n);
        dl_hash hash = dl_hash_bytes(bytes, n);
        dl_span spans[] = {{&hash, sizeof hash}, {bytes, n}};
        snprintf(key, sizeof key, "c/%010u/r%u.0", i, child);
        if (dl_store_create(store, key, spans, 2, NULL, DL_NEVER)) _exit(1);
        if (dl_store_put(store, "hb/r", bytes, n, DL_NEVER)) _exit(1);
    }
}

static diloco_status check_whole(void *context, const char *key, size_t len)
{
    dl_store *reader = ((void **)context)[0];
    size_t *n = ((void **)context)[1];
    dl_buf buf;
    dl_buf_init(&buf, MAX_BYTES + sizeof(dl_hash));
    diloco_status status = dl_store_get(reader, &buf, key, DL_NEVER);
    if (!status && buf.len != len) status = dl_fail(DILOCO_EPROTO, "%s: another length", key);
    if (!status && len < sizeof(dl_hash)) status = dl_fail(DILOCO_EPROTO, "%s: torn", key);
    if (!status) {
        dl_hash hash = dl_hash_bytes(buf.data + sizeof hash, len - sizeof hash);
        if (memcmp(&hash, buf.data, sizeof hash))
            status = dl_fail(DILOCO_EPROTO, "%s: torn (seed %d)", key, SEED);
    }
    ++*n;
    dl_buf_deinit(&buf);
    return status;
}

TEST(writers_killed_at_any_moment_leave_whole_objects_only)
{
    dl_store *store = begin(), *reader;
    size_t n = 0;
    dl_rng rng;
    dl_rng_init(&rng, SEED, DL_STREAM(DL_STREAM_TEST, 0), 0);
    for (unsigned i = 0; i < N_KILLS; i++) {
        int status;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) create_for_ever(i);
        dl_clock_sleep((dl_time)dl_rng_below(&rng, 30 * DL_MILLISECOND));
        CHECK_INT(0, kill(child, SIGKILL));
        CHECK_INT(child, waitpid(child, &status, 0));
        CHECK(WIFSIGNALED(status)); /* it did not end by itself */
    }
    CHECK_OK(dl_store_open(&reader, root, false));
    void *context[] = {reader, &n};
    CHECK_OK(dl_store_list(store, "c/", NULL, check_whole, context, DL_NEVER));
    CHECK(n > 0);
    dl_store_close(reader);
    end(store);
}

TEST_MAIN(
    a_missing_root_is_made_with_its_parents_only_when_asked, a_root_that_is_no_folder_is_refused,
    a_reader_leaves_a_folder_as_it_is, foreign_files_are_not_listed, no_symbolic_link_is_followed,
    a_folder_at_a_key_takes_its_name_and_is_no_object,
    an_object_in_place_of_a_folder_of_a_run_is_removed, an_object_in_place_of_the_log_is_an_error,
    an_object_that_changes_while_it_is_read_is_refused, open_removes_old_leftovers_of_the_dead_only,
    a_root_that_vanished_is_unreachable_and_works_again, a_change_under_the_prefix_wakes_a_wait,
    a_full_disk_is_said_and_harms_nothing, a_read_only_store_is_said_and_can_be_read,
    a_limit_on_file_sizes_is_said_and_harms_nothing, of_eight_processes_that_create_a_name_one_wins,
    writers_killed_at_any_moment_leave_whole_objects_only)
