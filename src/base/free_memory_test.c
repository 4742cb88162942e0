/* free_memory_test.c - free memory, read from made-up files of the kernel. */
#include "base/free_memory.h"

#include "check.h"
#include "scratch.h"

static const char *root; /* of the test that runs */

static void put(const char *name, const char *text)
{
    scratch_write_below(root, name, text);
}

static size_t free_now(void)
{
    char meminfo[PATH_MAX], membership[PATH_MAX], mount[PATH_MAX];
    snprintf(meminfo, sizeof meminfo, "%s/meminfo", root);
    snprintf(membership, sizeof membership, "%s/self", root);
    snprintf(mount, sizeof mount, "%s/cgroup", root);
    return dl_memory_free_of(meminfo, membership, mount);
}

TEST(the_least_of_machine_and_container_is_free)
{
    root = scratch_folder("2");
    CHECK(free_now() == SIZE_MAX);
    put("meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 7000 kB\n");
    CHECK(free_now() == 7000 * 1024);
    put("self", "0::/\n");
    put("cgroup/memory.max", "max\n");
    put("cgroup/memory.current", "5000\n");
    CHECK(free_now() == 7000 * 1024);
    put("cgroup/memory.max", "8000\n");
    CHECK(free_now() == 3000);
    put("cgroup/memory.stat", "anon 1\ninactive_file 1500\n");
    CHECK(free_now() == 4500);
    put("cgroup/memory.max", "2000\n");
    CHECK(free_now() == 0);
}

TEST(version_1_has_a_folder)
{
    root = scratch_folder("1");
    put("self", "5:cpuset:/x\n4:memory:/y\n");
    put("cgroup/memory/memory.limit_in_bytes", "8000\n");
    put("cgroup/memory/memory.usage_in_bytes", "5000\n");
    put("cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 2000\n");
    CHECK(free_now() == 5000);
}

TEST(limit_of_a_service_and_of_each_folder_above_it_counts)
{
    root = scratch_folder("service");
    put("self", "0::/system.slice/train.service\n");
    put("cgroup/system.slice/train.service/memory.max", "8000\n");
    put("cgroup/system.slice/train.service/memory.current", "5000\n");
    CHECK(free_now() == 3000);
    put("cgroup/system.slice/memory.max", "9000\n");
    put("cgroup/system.slice/memory.current", "7000\n");
    CHECK(free_now() == 2000);
}

TEST(limit_of_version_1_is_that_of_the_memory_controllers_folder)
{
    root = scratch_folder("service-1");
    put("self", "5:cpuset:/x\n4:memory:/y\n");
    put("cgroup/memory/x/memory.limit_in_bytes", "100\n");
    put("cgroup/memory/x/memory.usage_in_bytes", "50\n");
    put("cgroup/memory/y/memory.limit_in_bytes", "8000\n");
    put("cgroup/memory/y/memory.usage_in_bytes", "5000\n");
    CHECK(free_now() == 3000);
}

TEST(limit_of_version_2_counts_in_a_hybrid_layout)
{
    root = scratch_folder("hybrid");
    put("self", "4:cpu:/y\n0::/x\n");
    put("cgroup/unified/x/memory.max", "8000\n");
    put("cgroup/unified/x/memory.current", "5000\n");
    CHECK(free_now() == 3000);
}

TEST(this_machine_has_some)
{
    CHECK(dl_memory_free() > 0);
}

TEST_MAIN(the_least_of_machine_and_container_is_free, version_1_has_a_folder,
          limit_of_a_service_and_of_each_folder_above_it_counts,
          limit_of_version_1_is_that_of_the_memory_controllers_folder,
          limit_of_version_2_counts_in_a_hybrid_layout, this_machine_has_some)
