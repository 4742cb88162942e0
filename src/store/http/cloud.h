/* cloud.h - is this a machine of a cloud provider?
 *
 * The address of a provider's metadata service, 169.254.169.254, leads elsewhere or nowhere outside
 * its machines. So it is only asked on a machine whose firmware names the provider. */
#ifndef DL_STORE_HTTP_CLOUD_H
#define DL_STORE_HTTP_CLOUD_H

#include <stdbool.h>

typedef enum dl_cloud { DL_CLOUD_AMAZON, DL_CLOUD_GOOGLE, DL_CLOUD_AZURE } dl_cloud;

/* Return whether the SMBIOS (DMI) texts of this machine name the provider. */
bool dl_cloud_is_here(dl_cloud cloud);

/* Read the texts from this folder from now on instead of /sys/class/dmi/id; NULL: from there again.
 * Borrowed. For tests. */
void dl_cloud_read_from(const char *folder);

#endif
