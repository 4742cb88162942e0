/* cores_test.c - quotas read from made-up cgroup trees of both versions. */
#include "base/cores.h"

#include "check.h"
#include "scratch.h"

static const char *root; /* of the test that runs */

static void put(const char *name, const char *text)
{
    scratch_write_below(root, name, text);
}

static int cores(void)
{
    char membership[PATH_MAX], mount[PATH_MAX];
    snprintf(membership, sizeof membership, "%s/self", root);
    snprintf(mount, sizeof mount, "%s/fs", root);
    return dl_cgroup_cores(membership, mount);
}

TEST(version_2_takes_the_least_quota_on_the_way_up)
{
    root = scratch_folder("1");
    put("self", "0::/a/b\n");
    put("fs/a/b/cpu.max", "max 100000\n");
    CHECK_INT(INT_MAX, cores());
    put("fs/a/cpu.max", "250000 100000\n");
    CHECK_INT(3, cores());
    put("fs/a/b/cpu.max", "400000 100000\n");
    CHECK_INT(3, cores());
    put("fs/a/b/cpu.max", "50000 100000\n");
    CHECK_INT(1, cores());
}

TEST(a_path_of_the_host_falls_back_to_the_containers_mount)
{
    root = scratch_folder("2");
    put("self", "0::/kubepods/pod1/container\n");
    put("fs/cpu.max", "200000 100000\n");
    CHECK_INT(2, cores());
}

TEST(version_1_reads_quota_and_period_of_the_cpu_controller)
{
    root = scratch_folder("3");
    put("self", "5:cpuset:/x\n4:cpu,cpuacct:/y\n1:name=systemd:/z\n");
    put("fs/cpu/x/cpu.cfs_quota_us", "100000\n");
    put("fs/cpu/x/cpu.cfs_period_us", "100000\n");
    put("fs/cpu/y/cpu.cfs_quota_us", "-1\n");
    put("fs/cpu/y/cpu.cfs_period_us", "100000\n");
    CHECK_INT(INT_MAX, cores());
    put("fs/cpu/y/cpu.cfs_quota_us", "400000\n");
    CHECK_INT(4, cores());
}

TEST(hybrid_layout_takes_the_least_quota_of_both_versions)
{
    root = scratch_folder("5");
    put("self", "4:cpu,cpuacct:/y\n1:name=systemd:/z\n0::/a/b\n");
    put("fs/unified/a/cpu.max", "300000 100000\n");
    CHECK_INT(3, cores());
    put("fs/cpu/y/cpu.cfs_quota_us", "200000\n");
    put("fs/cpu/y/cpu.cfs_period_us", "100000\n");
    CHECK_INT(2, cores());
}

TEST(nonsense_is_no_quota)
{
    root = scratch_folder("4");
    CHECK_INT(INT_MAX, cores());
    put("self", "no colons\n0:\n:::\n0::relative\n");
    put("fs/cpu.max", "100000 0\n");
    CHECK_INT(INT_MAX, cores());
    put("self", "0::/\n");
    CHECK_INT(INT_MAX, cores());
    put("fs/cpu.max", "9223372036854775807 1\n");
    CHECK_INT(INT_MAX, cores());
}

TEST_MAIN(version_2_takes_the_least_quota_on_the_way_up,
          a_path_of_the_host_falls_back_to_the_containers_mount,
          version_1_reads_quota_and_period_of_the_cpu_controller,
          hybrid_layout_takes_the_least_quota_of_both_versions, nonsense_is_no_quota)
