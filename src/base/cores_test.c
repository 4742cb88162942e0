/* cores_test.c - quotas read from made-up cgroup trees of both versions. */
#include "base/cores.h"

#include "base/file.h"
#include "check.h"

#include <ftw.h>
#include <limits.h>
#include <unistd.h>

static char root[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static void begin_tree(void)
{
    snprintf(root, sizeof root, "/tmp/dl_cores_XXXXXX");
    CHECK(mkdtemp(root));
}

static void end_tree(void)
{
    CHECK_INT(0, nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS));
}

/* Put a file below the root, making its folders. */
static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", root, name);
    *strrchr(path, '/') = 0;
    CHECK_OK(dl_dir_make(path));
    snprintf(path, sizeof path, "%s/%s", root, name);
    CHECK_OK(dl_file_write(path, &(dl_span){text, strlen(text)}, 1));
}

static int cores(void)
{
    char membership[128], mount[128];
    snprintf(membership, sizeof membership, "%s/self", root);
    snprintf(mount, sizeof mount, "%s/fs", root);
    return dl_cgroup_cores(membership, mount);
}

TEST(version_2_takes_the_least_quota_on_the_way_up)
{
    begin_tree();
    put("self", "0::/a/b\n");
    put("fs/a/b/cpu.max", "max 100000\n");
    CHECK_INT(INT_MAX, cores());
    put("fs/a/cpu.max", "250000 100000\n");
    CHECK_INT(3, cores());
    put("fs/a/b/cpu.max", "400000 100000\n");
    CHECK_INT(3, cores());
    put("fs/a/b/cpu.max", "50000 100000\n");
    CHECK_INT(1, cores());
    end_tree();
}

TEST(a_path_of_the_host_falls_back_to_the_containers_mount)
{
    begin_tree();
    put("self", "0::/kubepods/pod1/container\n");
    put("fs/cpu.max", "200000 100000\n");
    CHECK_INT(2, cores());
    end_tree();
}

TEST(version_1_reads_quota_and_period_of_the_cpu_controller)
{
    begin_tree();
    put("self", "5:cpuset:/x\n4:cpu,cpuacct:/y\n1:name=systemd:/z\n");
    put("fs/cpu/x/cpu.cfs_quota_us", "100000\n");
    put("fs/cpu/x/cpu.cfs_period_us", "100000\n");
    put("fs/cpu/y/cpu.cfs_quota_us", "-1\n");
    put("fs/cpu/y/cpu.cfs_period_us", "100000\n");
    CHECK_INT(INT_MAX, cores());
    put("fs/cpu/y/cpu.cfs_quota_us", "400000\n");
    CHECK_INT(4, cores());
    end_tree();
}

TEST(nonsense_is_no_quota)
{
    begin_tree();
    CHECK_INT(INT_MAX, cores());
    put("self", "no colons\n0:\n:::\n0::relative\n");
    put("fs/cpu.max", "100000 0\n");
    CHECK_INT(INT_MAX, cores());
    put("self", "0::/\n");
    CHECK_INT(INT_MAX, cores());
    put("fs/cpu.max", "9223372036854775807 1\n");
    CHECK_INT(INT_MAX, cores());
    end_tree();
}

TEST_MAIN(version_2_takes_the_least_quota_on_the_way_up,
          a_path_of_the_host_falls_back_to_the_containers_mount,
          version_1_reads_quota_and_period_of_the_cpu_controller, nonsense_is_no_quota)
