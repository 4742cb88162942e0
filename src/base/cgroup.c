/* cgroup.c - see cgroup.h.
 *
 * A container may see its cgroup under the host's path while only its own subtree is mounted. So
 * missing folders are passed over. Going up from the path to the mount meets the container's own
 * limit in either case. */
#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* From `root`/`below` up to `root`. */
static void walk_upwards(const char *root, const char *below, dl_cgroup_fn fn, void *user)
{
    char folder[4096];
    const int len = snprintf(folder, sizeof folder, "%s%s", root, below);
    if (len < 0 || (size_t)len >= sizeof folder) return;
    for (const size_t root_len = strlen(root);; *strrchr(folder, '/') = 0) {
        fn(user, folder);
        if (strlen(folder) <= root_len) return;
    }
}

/* Returns whether the list of a version 1 hierarchy has the controller. */
static bool has_controller(const char *controllers, const char *controller)
{
    char list[256], item[64];
    snprintf(list, sizeof list, ",%s,", controllers);
    snprintf(item, sizeof item, ",%s,", controller);
    return strstr(list, item) != NULL;
}

/* A version 2 line has no controllers. Its hierarchy is mounted at `mount`, or beside those of
 * version 1 (a hybrid layout, systemd's default before 2021). */
void dl_cgroup_walk(const char *membership, const char *mount, const char *controller,
                    dl_cgroup_fn fn, void *user)
{
    char line[4096], own_mount[1024], unified[1024];
    FILE *f = fopen(membership, "re");
    if (!f) return; /* no cgroups here */
    snprintf(own_mount, sizeof own_mount, "%s/%s", mount, controller);
    snprintf(unified, sizeof unified, "%s/unified", mount);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':'), *path = NULL;
        if (controllers) path = strchr(++controllers, ':');
        if (!path || path[1] != '/') continue;
        *path++ = 0;
        if (!*controllers) walk_upwards(mount, path, fn, user);
        if (!*controllers) walk_upwards(unified, path, fn, user);
        if (has_controller(controllers, controller)) walk_upwards(own_mount, path, fn, user);
    }
    fclose(f);
}
